/* Writes that a change of masters overtakes, while the new master gives their buckets away. */
import { afterEach, describe, expect, it } from 'vitest'
import { MemoryCluster } from './vshard-cluster.js'

let cluster: MemoryCluster

afterEach(async () => {
  await cluster.close()
})

const BUCKETS = [1, 2, 3, 4, 5, 6, 7, 8]

describe('writes of a former master', () => {
  it('fail in words and leave nothing, in both directions and with many buckets; replication goes on', async () => {
    cluster = await new MemoryCluster({ replicasets: 2, instances: 2, bucketCount: 40, quorum: 2 }).start()
    for (const name of ['a1', 'a2', 'b1', 'b2'])
      cluster.at(name).define('write_late', async (context, id, bucketId) => {
        await new Promise<void>((resolve) => cluster.clock.schedule(1_000, resolve))
        context.space('s').insert([Number(id), Number(bucketId), 'late'])
        return true
      })
    let nextId = 10_000
    let home = 'a'
    for (const [from, to] of [
      ['1', '2'],
      ['2', '1'],
    ] as const) {
      // All the buckets are where `home` is: they go away under the former master's hands, and come back the next time.
      const away = home === 'a' ? 'b' : 'a'
      await cluster.wait(cluster.at(`${home}${from}`).promote())
      const former = cluster.at(`${home}${from}`)
      const ids = BUCKETS.map(() => nextId++)
      const writes = BUCKETS.map((bucketId, i) =>
        former.call('vshard.storage.call', bucketId, 'write', 'write_late', [ids[i], bucketId]),
      )
      await cluster.wait(cluster.at(`${home}${to}`).promote())
      const moves = BUCKETS.map((bucketId) => cluster.at(`${home}${to}`).vshard.sendBucket(bucketId, away))
      await cluster.clock.advance(500)
      // Nobody serves writes of a bucket whose late write is not settled.
      for (const bucketId of BUCKETS) expect(cluster.owners(bucketId)[away]).toBeUndefined()
      for (const reply of await cluster.wait(Promise.all(writes)))
        expect(reply).toMatchObject([false, { code: 32, details: { boxCode: 7 } }])
      await cluster.wait(Promise.all(moves))
      await cluster.clock.advance(2_000)
      for (const bucketId of BUCKETS) expect(cluster.owners(bucketId)).toEqual({ [away]: 'active' })
      for (const name of cluster.names) {
        for (const id of ids) expect(cluster.at(name).space('s').get([id])).toBeUndefined()
        for (const link of cluster.at(name).info().links.values()) expect(link.name).toBe('follow')
      }
      for (const set of ['a', 'b'])
        expect(cluster.at(`${set}1`).info().vclock).toEqual(cluster.at(`${set}2`).info().vclock)
      home = away
    }
  })
})
