/* Instances in processes of their own: every row is counted exactly once, however many buckets move meanwhile. */
import { connect } from '@orbweaver/connection'
import type { Connection } from '@orbweaver/connection'
import { createRouter } from '@orbweaver/router'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startCluster } from '../../src/index.js'
import type { Cluster } from '../../src/index.js'

const BUCKETS = 60
const ROWS = 3_000
const DURATION_MS = 20_000

/** A module of its own, since the instances are other processes. */
const SET_UP = `data:text/javascript,${encodeURIComponent(`
export function setUp(storage) {
  storage.define('prepare', () => {
    storage.createSpace('s', {
      format: [{ name: 'id', type: 'unsigned' }, { name: 'bucket_id', type: 'unsigned' }],
      indexes: [
        { name: 'pk', parts: ['id'] },
        { name: 'bucket_id', parts: ['bucket_id'], isUnique: false },
      ],
    })
    return true
  })
  storage.define('add', (context, bucketId, ids) => {
    context.atomic(() => { for (const id of ids) context.space('s').insert([id, bucketId]) })
    return true
  })
  storage.define('count', (context) => context.space('s').count())
  storage.define('ids_of_buckets', (context) => context.space('_bucket').select().map(([id]) => id))
}`)}`

describe('map-reduce beside moves', () => {
  let cluster: Cluster
  const masters = new Map<string, Connection>()

  beforeAll(async () => {
    cluster = await startCluster({ replicasets: 2, instances: 2, quorum: 2, bucketCount: BUCKETS, setUp: SET_UP })
    const { user, password } = cluster.config
    for (const { id } of cluster.config.replicasets)
      masters.set(id, await connect({ uri: cluster.masterOf(id).uri, user, password }))
    for (const master of masters.values()) await master.call('prepare')
  })

  afterAll(async () => {
    for (const master of masters.values()) master.destroy()
    await cluster?.close()
  })

  it('counts every row exactly once in every map that succeeds, and both kinds of work go on', async () => {
    const router = createRouter({ config: cluster.config })
    await router.ready()
    const perBucket = ROWS / BUCKETS
    for (let bucket = 1; bucket <= BUCKETS; bucket++) {
      const ids = Array.from({ length: perBucket }, (_, i) => (bucket - 1) * perBucket + i + 1)
      await router.callrw(bucket, 'add', [bucket, ids])
    }
    const [here, there] = [...masters.keys()] as [string, string]
    const until = Date.now() + DURATION_MS
    const counts: number[] = []
    let [moves, refusedMoves, failedMaps] = [0, 0, 0]
    const moving = async (from: string, to: string): Promise<void> => {
      while (Date.now() < until) {
        const [ids] = await masters.get(from)!.call<[number[]]>('ids_of_buckets')
        const id = ids[Math.floor(Math.random() * ids.length)]
        if (id === undefined) continue
        const [isMoved] = await masters.get(from)!.call('vshard.storage.bucket_send', [id, to, { timeout: 5 }])
        if (isMoved === true) moves++
        else refusedMoves++
      }
    }
    const mapping = async (): Promise<void> => {
      while (Date.now() < until) {
        try {
          const results = await router.mapCallrw<[number]>('count', [], { timeout: 5_000 })
          counts.push([...results.values()].reduce((sum, [count]) => sum + count, 0))
        } catch (error) {
          failedMaps++
          if (failedMaps > 20) throw error
        }
      }
    }
    await Promise.all([moving(here, there), moving(there, here), mapping()])
    await router.close({ timeout: 0 })
    expect(new Set(counts)).toEqual(new Set([ROWS]))
    expect(counts.length).toBeGreaterThanOrEqual(50)
    expect(moves).toBeGreaterThanOrEqual(50)
    expect(refusedMoves).toBeLessThan(moves)
  }, 60_000)
})
