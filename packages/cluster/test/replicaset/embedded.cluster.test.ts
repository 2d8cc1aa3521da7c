/* A replicaset of embedded storages in processes of their own, under load, and what happens to them. */
import { selectRequest } from '@orbweaver/iproto'
import { createReplicaset, type ReplicasetHandle } from '@orbweaver/replicaset'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type Cluster, startCluster } from '../../src/index.js'
import { discrepancies, Load } from './load.js'

/** For the child processes, which load modules by URL. */
const SET_UP = `data:text/javascript,${encodeURIComponent(`
  export function setUp(storage) {
    const format = [{ name: 'key', type: 'unsigned' }, { name: 'count', type: 'unsigned' }]
    storage.define('create_counts', () => storage.createSpace('counts', { ifNotExists: true, format }))
  }
`)}`

describe('a replicaset of embedded storages', () => {
  let cluster: Cluster
  let replicaset: ReplicasetHandle
  let load: Load

  beforeEach(async () => {
    cluster = await startCluster({
      replicasets: 1,
      instances: 3,
      identification: 'name',
      vshard: false,
      setUp: SET_UP,
    })
    const { user, password, replicasets } = cluster.config
    replicaset = createReplicaset({
      definition: replicasets[0]!,
      user,
      password,
      pingIntervalMs: 200,
      silentAfterMs: 400,
    })
    await replicaset.callrw('create_counts')
    load = new Load(replicaset, 1_000, 'counts')
    await load.more(300)
  })

  afterEach(async () => {
    await load.end()
    await replicaset.close({ timeout: 0 })
    await cluster.close()
  })

  async function discrepanciesAtTheEnd(): Promise<{
    readonly errors: Readonly<Record<string, number>>
    readonly wrong: readonly string[]
  }> {
    const report = await load.end()
    const rows = await replicaset.request<[number, number][]>(
      'rw',
      selectRequest({ space: 'counts', limit: 1_000_000, iterator: 'ALL', key: [] }),
    )
    return { errors: report.errors, wrong: discrepancies(rows, report) }
  }

  it('a planned switch costs no error', async () => {
    expect(replicaset.info().mode).toBe('events')
    await cluster.instance('a2').promote()
    await expect.poll(() => replicaset.master()?.id).toBe('a2')
    await load.more(500)
    expect(await discrepanciesAtTheEnd()).toEqual({ errors: {}, wrong: [] })
  })

  it('a killed master costs the writes that were on the wire', async () => {
    await cluster.instance('a1').kill()
    await cluster.instance('a3').promote()
    await expect.poll(() => replicaset.master()?.id).toBe('a3')
    await load.more(500)
    await cluster.instance('a1').restart()
    await expect
      .poll(() => replicaset.info().instances.find(({ id }) => id === 'a1')?.state, { timeout: 10_000 })
      .toBe('RO')
    const { errors, wrong } = await discrepanciesAtTheEnd()
    expect(Object.keys(errors).filter((code) => code !== 'ORB_CONNECTION_LOST')).toEqual([])
    expect(wrong).toEqual([])
  })

  it('a master that is asked to stop costs no error', async () => {
    const stopped = cluster.instance('a1').stop()
    await cluster.instance('a2').promote()
    await stopped
    await expect.poll(() => replicaset.master()?.id).toBe('a2')
    await load.more(500)
    expect(await discrepanciesAtTheEnd()).toEqual({ errors: {}, wrong: [] })
  })

  it('a frozen master is left, and gets nothing when it wakes up', async () => {
    cluster.instance('a1').freeze()
    await expect.poll(() => replicaset.master()).toBeUndefined()
    await cluster.instance('a2').promote()
    await expect.poll(() => replicaset.master()?.id).toBe('a2')
    await load.more(500)
    cluster.instance('a1').thaw()
    await expect.poll(() => replicaset.info().instances.find(({ id }) => id === 'a1')?.silent).toBe(false)
    await load.more(300)
    expect(replicaset.master()?.id).toBe('a2')
    expect((await discrepanciesAtTheEnd()).wrong).toEqual([])
  })
})
