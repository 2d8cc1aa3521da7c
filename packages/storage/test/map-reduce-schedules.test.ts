/*
 * The schedules that give wrong totals without storage references. Each is run twice: as map-reduce does it, with a reference on
 * every storage before anything is mapped, and without, to show that the schedule is one that matters.
 */
import type { Connection } from '@orbweaver/connection'
import { afterEach, describe, expect, it } from 'vitest'
import { MemoryCluster } from './vshard-cluster.js'

const BUCKETS = 8

let cluster: MemoryCluster

afterEach(async () => {
  await cluster.close()
})

/** Maps `count` on each storage in turn, with `between` before the second one. @returns the total, or why there is none */
async function mapped(isReferenced: boolean, between: () => Promise<unknown>): Promise<number | string> {
  const clients = cluster.config.map(({ id }) => cluster.connect(`${id}1`))
  const call = (client: Connection, ...args: unknown[]): Promise<unknown[]> =>
    cluster.wait(client.call('vshard.storage._call', args))
  if (isReferenced) {
    const counts = await Promise.all(clients.map((client) => call(client, 'storage_ref', 1, 30)))
    const known = counts.reduce((sum, [count]) => sum + Number(count), 0)
    if (known !== BUCKETS) return `${known} buckets`
  }
  let total = 0
  for (const [i, client] of clients.entries()) {
    if (i === 1) await between()
    const [isDone, count] = isReferenced
      ? await call(client, 'storage_map', 1, 'count')
      : [true, (await cluster.wait(client.call<[number]>('count')))[0]]
    if (isDone !== true) return 'the map failed'
    total += Number(count)
  }
  for (const client of clients) client.destroy()
  return total
}

async function start(spread: readonly number[]): Promise<void> {
  cluster = await new MemoryCluster({ replicasets: spread.length, bucketCount: BUCKETS }).start(spread)
  for (const name of cluster.names) cluster.at(name).define('count', (context) => context.space('s').count())
}

/** Begins a move, and gives it time enough to end. */
async function move(id: number, from: string, to: string): Promise<void> {
  cluster
    .at(`${from}1`)
    .vshard.sendBucket(id, to, { timeout: 60_000 })
    .catch((error: unknown) => {
      throw error
    })
  await cluster.clock.advance(3_000)
}

describe.each([
  ['seen twice: it moves behind the map', [4, 4], () => move(1, 'a', 'b'), BUCKETS + 1],
  ['missed: it moves past the map', [4, 4], () => move(5, 'b', 'a'), BUCKETS - 1],
  ['that arrives on a storage which had none', [BUCKETS, 0], () => move(1, 'a', 'b'), BUCKETS + 1],
] as const)('a bucket %s', (_what, spread, between, wrong) => {
  it('is counted once under references', async () => {
    await start(spread)
    expect(await mapped(true, between)).toBe(BUCKETS)
    // The move goes on when the map has ended.
    await cluster.clock.advance(10_000)
    expect(cluster.isAtRest).toBe(true)
    expect(await mapped(true, () => Promise.resolve())).toBe(BUCKETS)
  })

  it('is counted wrong without them', async () => {
    await start(spread)
    expect(await mapped(false, between)).toBe(wrong)
  })
})

describe('references that are taken one storage after another, each mapped at once', () => {
  it('are not enough: a bucket moves between the two', async () => {
    await start([4, 4])
    let total = 0
    for (const [i, { id }] of cluster.config.entries()) {
      if (i === 1) await move(1, 'a', 'b')
      const client = cluster.connect(`${id}1`)
      await cluster.wait(client.call('vshard.storage._call', ['storage_ref', 1, 30]))
      const [, count] = await cluster.wait(
        client.call<[true, number]>('vshard.storage._call', ['storage_map', 1, 'count']),
      )
      total += count
    }
    expect(total).toBe(BUCKETS + 1)
  })
})
