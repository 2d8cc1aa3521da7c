/*
 * Tarantool instances without elections, switched by hand through `read_only`: found by polling on servers before 2.10, by
 * events on newer ones. They do not replicate; who is master is all this is about.
 */
import { connect, type Connection } from '@orbweaver/connection'
import { createHoldBudget, createReplicaset, type ReplicasetHandle } from '@orbweaver/replicaset'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { isAtLeast, missingTarantool, startTarantool, type TarantoolServer } from '../tarantool.js'
import { COUNTS_SPACE_ID, discrepancies, Load } from './load.js'

const SETUP = `
box.schema.user.grant('guest', 'super', nil, nil, {if_not_exists = true})
local counts = box.schema.space.create('counts', {id = ${String(COUNTS_SPACE_ID)}, if_not_exists = true})
counts:create_index('pk', {parts = {{1, 'unsigned'}}, if_not_exists = true})
function switch(is_ro) box.cfg{read_only = is_ro} end
function who() return box.info.uuid end
function raise_read_only() box.error(box.error.READONLY) end
`

/** They would be of four replicasets otherwise, and instances of another replicaset are not used. */
const SAME_REPLICASET = `replicaset_uuid = '5ba7a7f4-6b7e-4a6c-9a5e-0c1d2e3f4a5b'`

describe.skipIf(missingTarantool !== undefined)(
  `instances switched by hand${missingTarantool === undefined ? '' : ` (${missingTarantool})`}`,
  () => {
    const servers: TarantoolServer[] = []
    const admins: Connection[] = []
    const replicasets: ReplicasetHandle[] = []

    beforeAll(async () => {
      servers.push(
        ...(await Promise.all(Array.from({ length: 4 }, () => startTarantool({ lua: SETUP, cfg: SAME_REPLICASET })))),
      )
      for (const { uri } of servers) admins.push(await connect(uri))
    })

    afterEach(async () => {
      for (const server of servers) server.signal('SIGCONT')
      for (const replicaset of replicasets.splice(0)) await replicaset.close({ timeout: 0 })
      for (const admin of admins) {
        await admin.call('switch', [false])
        await admin.eval(`box.space.counts:truncate()`)
      }
    })

    afterAll(async () => {
      for (const admin of admins) admin.destroy()
      await Promise.all(servers.map((server) => server.stop()))
    })

    const isRo = (at: number, value: boolean): Promise<unknown> => admins[at]!.call('switch', [value])

    function open(
      id: string,
      ats: readonly number[],
      options: Partial<Parameters<typeof createReplicaset>[0]> = {},
    ): ReplicasetHandle {
      const replicaset = createReplicaset({
        definition: { id, instances: ats.map((at) => ({ id: `${id}${String(at)}`, uri: servers[at]!.uri })) },
        pingIntervalMs: 200,
        silentAfterMs: 400,
        pollIntervalMs: 500,
        ...options,
      })
      replicasets.push(replicaset)
      return replicaset
    }

    /** Rows of those instances; none may have what another has. */
    async function rowsOf(ats: readonly number[]): Promise<[number, number][]> {
      const all = await Promise.all(ats.map((at) => admins[at]!.select<[number, number]>(COUNTS_SPACE_ID)))
      return all.flat()
    }

    it('two replicasets, both read-only; each is released when its own new master is announced, and no write fails', async () => {
      for (const at of [0, 1, 2, 3]) await isRo(at, true)
      const holdBudget = createHoldBudget()
      // No poll may find out before the announcement.
      const options = { holdBudget, pollSearchIntervalMs: 60_000 }
      const [A, B] = [open('A', [0, 1], options), open('B', [2, 3], options)]
      const writing = [A, B].map((set) =>
        Promise.all(Array.from({ length: 20 }, (_, at) => set.using('rw').insert(COUNTS_SPACE_ID, [at, 1]))),
      )
      await expect
        .poll(() => [A, B].map((set) => set.info().instances.every(({ state }) => state === 'RO')))
        .toEqual([true, true])
      expect([A, B].map((set) => set.stats().buffered.now)).toEqual([20, 20])
      await isRo(0, false)
      A.announceMaster('A0')
      await writing[0]
      expect([A, B].map((set) => set.stats().buffered.now)).toEqual([0, 20])
      await isRo(3, false)
      B.announceMaster('B3')
      await writing[1]
      expect(await admins[0]!.select(COUNTS_SPACE_ID)).toHaveLength(20)
      expect(await admins[3]!.select(COUNTS_SPACE_ID)).toHaveLength(20)
    })

    it('a switch under 1,000 writes a second costs no error, and nothing is written twice or lost', async () => {
      await isRo(1, true)
      await isRo(2, true)
      const set = open('A', [0, 1, 2])
      const load = new Load(set, 1_000)
      await load.more(300)
      expect(set.info().mode).toBe(isAtLeast(2, 10) ? 'events' : 'polling')
      await isRo(0, true)
      await isRo(1, false)
      await expect.poll(() => set.master()?.id).toBe('A1')
      await load.more(300)
      const report = await load.end()
      expect(report.errors).toEqual({})
      expect(discrepancies(await rowsOf([0, 1, 2]), report)).toEqual([])
    })

    it('a killed master costs what was on the wire; the next is written to when it is made writable', async () => {
      await isRo(1, true)
      await isRo(2, true)
      const set = open('A', [0, 1, 2])
      const load = new Load(set, 1_000)
      await load.more(300)
      servers[0]!.signal('SIGKILL')
      await servers[0]!.exited()
      await isRo(2, false)
      await expect.poll(() => set.master()?.id, { timeout: 5_000 }).toBe('A2')
      await load.more(300)
      const report = await load.end()
      expect(Object.keys(report.errors).filter((code) => code !== 'ORB_CONNECTION_LOST')).toEqual([])
      // The dead one kept nothing: what it had acknowledged is not asked for.
      const rows = await rowsOf([1, 2])
      expect(rows.every(([key, count]) => count === 1 && !report.refused.has(key))).toBe(true)
      await servers[0]!.start()
    })

    it('a frozen master gets no more writes, and keeps the role when nobody else takes it', async () => {
      await isRo(1, true)
      const set = open('A', [0, 1])
      const load = new Load(set, 1_000)
      await load.more(300)
      servers[0]!.signal('SIGSTOP')
      await expect.poll(() => set.master()).toBeUndefined()
      const { buffered } = set.stats()
      await expect.poll(() => set.stats().buffered.now).toBeGreaterThan(buffered.now)
      servers[0]!.signal('SIGCONT')
      await expect.poll(() => set.master()?.id).toBe('A0')
      await load.more(300)
      const report = await load.end()
      expect(report.errors).toEqual({})
      expect(discrepancies(await rowsOf([0, 1]), report)).toEqual([])
    })

    it('a function that raises "read-only" at a writable master is passed through, also to one that may repeat it', async () => {
      const set = open('A', [0])
      await expect.poll(() => set.master()?.id).toBe('A0')
      for (const idempotent of [false, true]) {
        await expect(set.callrw('raise_read_only', [], { idempotent })).rejects.toMatchObject({ boxCode: 7 })
      }
      expect(Object.values(set.stats().windows).reduce((sum, count) => sum + count, 0)).toBe(0)
    })

    it('reads go on while there is no master', async () => {
      await isRo(0, true)
      await isRo(1, true)
      const set = open('A', [0, 1])
      await expect.poll(() => set.info().instances.map(({ state }) => state)).toEqual(['RO', 'RO'])
      const readers = new Set<string>()
      for (let count = 0; count < 4; count += 1) readers.add((await set.callbro<[string]>('who'))[0])
      expect(readers.size).toBe(2)
    })
  },
)
