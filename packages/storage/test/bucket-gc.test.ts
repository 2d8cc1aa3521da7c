/* Removing what has left: whatever its keys are, and beside moves that are not finished. */
import { Double } from '@orbweaver/iproto'
import { afterEach, describe, expect, it } from 'vitest'
import { MemoryCluster } from './vshard-cluster.js'

let cluster: MemoryCluster

afterEach(async () => {
  await cluster.close()
})

const pause = (ms: number): Promise<void> => new Promise((resolve) => cluster.clock.schedule(ms, resolve))

describe('the collector', () => {
  it.each(['double', 'number', 'scalar'] as const)(
    'removes rows whose key of type %s is a whole number written as a float',
    async (type) => {
      cluster = await new MemoryCluster({ replicasets: 2 }).start()
      for (const name of ['a1', 'b1']) {
        cluster.at(name).createSpace('measured', {
          format: [
            { name: 'at', type },
            { name: 'bucket_id', type: 'unsigned' },
          ],
          indexes: [
            { name: 'pk', parts: ['at'] },
            { name: 'bucket_id', parts: ['bucket_id'], isUnique: false },
          ],
        })
      }
      const rows = cluster.at('a1').space('measured')
      for (let i = 0; i < 10; i++) rows.insert([new Double(i / 2), 3])
      await cluster.wait(cluster.at('a1').vshard.sendBucket(3, 'b'))
      await cluster.clock.advance(2_000)
      expect(cluster.at('a1').vshard.info().gc.problem).toBeUndefined()
      expect(cluster.owners(3)).toEqual({ b: 'active' })
      expect(rows.count()).toBe(0)
      expect(cluster.at('b1').space('measured').count()).toBe(10)
    },
  )

  it(
    'never takes a bucket whose move has not finished, however many there are, and takes each soon after',
    { timeout: 30_000 },
    async () => {
      const buckets = 120
      cluster = await new MemoryCluster({
        replicasets: 2,
        instances: 2,
        bucketCount: buckets,
        vshard: { rebalancerMaxSending: 15 },
      }).start([buckets, 0])
      // Recovery and the collector wake with every change, and the last acknowledgement comes late.
      const late = new Map<number, number>()
      for (const name of ['b1', 'b2'])
        cluster.intercept(name, 'vshard.storage.bucket_recv', async (run, args) => {
          if ((args[3] as { is_last?: boolean }).is_last !== true) return run()
          const reply = await run()
          await pause(700)
          late.set(Number(args[0]), cluster.clock.now())
          return reply
        })
      // Ten large ones among the small: two messages each.
      const rows = cluster.at('a1').space('s')
      for (let id = 1; id <= 10; id++)
        for (let i = 0; i < 1_200; i++) rows.insert([100_000 + id * 10_000 + i, id, 'row'])
      const goneAt = new Map<number, number>()
      cluster.side('a1').buckets.onChange(() => {
        for (const [id] of late)
          if (!goneAt.has(id) && cluster.side('a1').buckets.get(id) === undefined) goneAt.set(id, cluster.clock.now())
      })
      for (const name of cluster.names) cluster.at(name).vshard.configure({ rebalancerMode: 'auto' })
      await cluster.clock.until(() => cluster.side('b1').buckets.count('active') >= 60)
      await cluster.clock.advance(5_000)
      expect(cluster.isAtRest).toBe(true)
      const { failed, lastError } = cluster.at('a1').vshard.info().rebalancer.sending
      expect([failed, lastError]).toEqual([0, undefined])
      expect(late.size).toBeGreaterThan(50)
      for (const [id, finishedAt] of late) expect(goneAt.get(id)! - finishedAt).toBeLessThan(2_000)
      const left = cluster
        .at('a1')
        .space('s')
        .select()
        .filter((row) => cluster.writers(Number(row[1]))[0] !== 'a')
      expect(left).toEqual([])
    },
  )
})
