/* Three elected Tarantool instances under 1,000 writes a second, and what happens to them in production. */
import { setTimeout as sleep } from 'node:timers/promises'
import { connect, type Connection } from '@orbweaver/connection'
import { BoxError, selectRequest } from '@orbweaver/iproto'
import { createReplicaset, type ReplicasetHandle } from '@orbweaver/replicaset'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import {
  freePort,
  isAtLeast,
  missingTarantool,
  startTarantool,
  type TarantoolServer,
  tarantoolVersion,
} from '../tarantool.js'
import { COUNTS_SPACE_ID, discrepancies, Load, type LoadReport } from './load.js'

const missing =
  missingTarantool ??
  (isAtLeast(2, 10) ? undefined : `elections and events need 2.10, this is ${tarantoolVersion}; set TARANTOOL`)

const IDS = ['a', 'b', 'c'] as const
type Id = (typeof IDS)[number]

/** Only the leader of the moment can, and the others get it by replication. */
const SETUP = `
require('fiber').create(function()
  box.ctl.wait_rw()
  box.schema.user.grant('guest', 'super', nil, nil, {if_not_exists = true})
  local counts = box.schema.space.create('counts', {id = ${String(COUNTS_SPACE_ID)}, is_sync = true, if_not_exists = true})
  counts:create_index('pk', {parts = {{1, 'unsigned'}}, if_not_exists = true})
end)
`

describe.skipIf(missing !== undefined)(`elected instances${missing === undefined ? '' : ` (${missing})`}`, () => {
  let servers: Readonly<Record<Id, TarantoolServer>>
  let watchers: Connection[] = []
  let replicaset: ReplicasetHandle
  let load: Load
  /** When an instance said on a connection of our own that it is writable. */
  const claims: { readonly id: Id; readonly atMs: number }[] = []
  const adoptions: { readonly id: string; readonly atMs: number }[] = []

  beforeAll(async () => {
    const ports = [await freePort(), await freePort(), await freePort()] as const
    const peers = ports.map((port) => `'127.0.0.1:${String(port)}'`).join(', ')
    const cfg = `replication = {${peers}}, replication_timeout = 0.5, election_mode = 'candidate', election_timeout = 1, replication_synchro_timeout = 30`
    const started = await Promise.all(
      ports.map((port) => startTarantool({ port, listensFirst: true, walMode: 'write', cfg, lua: SETUP })),
    )
    servers = Object.fromEntries(IDS.map((id, at) => [id, started[at]!])) as unknown as Record<Id, TarantoolServer>
    for (const id of IDS) {
      const connection = await connect(servers[id].uri)
      connection.watch('box.status', (value) => {
        if ((value as { is_ro?: boolean } | undefined)?.is_ro === false) claims.push({ id, atMs: performance.now() })
      })
      watchers.push(connection)
    }
  })

  afterAll(async () => {
    for (const connection of watchers) connection.destroy()
    watchers = []
    await Promise.all(Object.values(servers).map((server) => server.stop()))
  })

  beforeEach(async () => {
    for (const id of IDS) {
      servers[id].signal('SIGCONT')
    }
    replicaset = createReplicaset({
      definition: { id: 'elected', instances: IDS.map((id) => ({ id, uri: servers[id].uri })) },
      pingIntervalMs: 400,
      silentAfterMs: 800,
    })
    replicaset.on('master', ({ master }) => {
      if (master !== undefined) adoptions.push({ id: master, atMs: performance.now() })
    })
    const rows = await rowsOnceThereIsTheSpace()
    for (const [key] of rows) await replicaset.using('rw').delete(COUNTS_SPACE_ID, [key])
    load = new Load(replicaset, 1_000)
    await load.more(300)
  })

  afterEach(async () => {
    await load.end()
    await replicaset.close({ timeout: 0 })
  })

  const allRows = (): Promise<[number, number][]> =>
    replicaset.request('rw', selectRequest({ space: COUNTS_SPACE_ID, limit: 1_000_000, iterator: 'ALL', key: [] }))
  /** It may still be on its way to whoever leads first. */
  async function rowsOnceThereIsTheSpace(): Promise<[number, number][]> {
    for (const untilMs = performance.now() + 20_000; ; await sleep(20)) {
      try {
        return await allRows()
      } catch (error) {
        if (!(error instanceof BoxError) || performance.now() > untilMs) throw error
      }
    }
  }

  const masterId = (): Id => (replicaset.master()?.id ?? 'none') as Id

  /** Every write has its due, and the switch took no longer than its announcement. */
  async function account(): Promise<LoadReport> {
    const report = await load.end()
    expect(discrepancies(await allRows(), report)).toEqual([])
    const { buffered } = replicaset.stats()
    expect({ now: buffered.now, bytes: buffered.bytes, draining: buffered.draining }).toEqual({
      now: 0,
      bytes: 0,
      draining: 0,
    })
    return report
  }

  /** From the new master's own word to its adoption. */
  function adoptionDelayMs(previous: string): number {
    const adoption = adoptions.findLast(({ id }) => id !== previous) ?? { id: '', atMs: Number.NaN }
    const claim = claims.findLast(({ id, atMs }) => id === adoption.id && atMs <= adoption.atMs + 1_000) ?? {
      atMs: Number.NaN,
    }
    return adoption.atMs - claim.atMs
  }

  it('a planned switch (demote, promote elsewhere) costs no error', async () => {
    const old = masterId()
    const next = IDS.find((id) => id !== old) ?? 'a'
    const admin = await connect(servers[next].uri)
    await admin.eval('box.ctl.promote()')
    admin.destroy()
    await expect.poll(masterId).toBe(next)
    await load.more(500)
    const report = await account()
    expect(report.errors).toEqual({})
    expect(adoptionDelayMs(old)).toBeLessThan(250)
  })

  it('a killed master costs the writes that were on the wire, and nothing when it comes back', async () => {
    const old = masterId()
    servers[old].signal('SIGKILL')
    await servers[old].exited()
    await expect.poll(masterId, { timeout: 15_000 }).not.toBe(old)
    await load.more(500)
    const { epoch } = replicaset.info()
    const errors = load.errorCount
    await servers[old].start()
    await expect
      .poll(() => replicaset.info().instances.find(({ id }) => id === old)?.state, { timeout: 15_000 })
      .toBe('RO')
    await load.more(500)
    const report = await account()
    expect(Object.keys(report.errors).filter((code) => code !== 'ORB_CONNECTION_LOST')).toEqual([])
    expect(report.unknown.size).toBeLessThanOrEqual(100)
    expect(load.errorCount).toBe(errors)
    expect(replicaset.info().epoch).toBe(epoch)
  })

  it('a frozen master costs nothing but time, and gets nothing when it wakes up', async () => {
    const old = masterId()
    servers[old].signal('SIGSTOP')
    await expect
      .poll(() => replicaset.info().instances.find(({ id }) => id === old)?.silent, { timeout: 5_000 })
      .toBe(true)
    await expect.poll(masterId, { timeout: 15_000 }).not.toBe(old)
    await load.more(500)
    servers[old].signal('SIGCONT')
    await expect
      .poll(() => replicaset.info().instances.find(({ id }) => id === old)?.silent, { timeout: 5_000 })
      .toBe(false)
    await load.more(500)
    const report = await account()
    // What was sent before it was known to be silent is answered when it wakes: refused or rolled back by its successor.
    const allowed = [
      'ORB_BOX 216',
      'ORB_BOX 217',
      'ORB_BOX 225',
      'ORB_BOX 7',
      'ORB_REQUEST_TIMEOUT',
      'ORB_CONNECTION_LOST',
    ]
    expect(Object.keys(report.errors).filter((code) => !allowed.includes(code))).toEqual([])
    expect(masterId()).not.toBe(old)
  })

  it('a master that is asked to stop costs no error', async () => {
    const old = masterId()
    servers[old].signal('SIGTERM')
    await servers[old].exited()
    await expect.poll(masterId, { timeout: 15_000 }).not.toBe(old)
    await load.more(500)
    const report = await account()
    expect(report.errors).toEqual({})
    await servers[old].start()
  })
})
