/* A large bucket on its way: others are served between its chunks, and a failed send leaves no half of it anywhere. */
import type { Connection } from '@orbweaver/connection'
import { afterEach, describe, expect, it } from 'vitest'
import { MemoryCluster } from './vshard-cluster.js'
import type { MemoryClusterOptions } from './vshard-cluster.js'

const ROWS = 20_000
/** Chunks that may pass before a request that came in between is answered. */
const A_HANDFUL = 5

let cluster: MemoryCluster

afterEach(async () => {
  await cluster.close()
})

const pause = (ms: number): Promise<void> => new Promise((resolve) => cluster.clock.schedule(ms, resolve))

/** Bucket 3 of replicaset a has 20,000 rows and the one it was born with. */
async function started(options: Partial<MemoryClusterOptions> = {}): Promise<void> {
  cluster = await new MemoryCluster({ replicasets: 2, ...options }).start()
  for (const name of cluster.names) cluster.at(name).define('touch', () => true)
  const rows = cluster.at('a1').space('s')
  for (let i = 0; i < ROWS; i++) rows.insert([1_000 + i, 3, 'row'])
  await cluster.wait(cluster.at('a1').committed())
}

function rowsOf(name: string): number {
  return cluster.at(name).space('s').select([3], { index: 'bucket_id' }).length
}

/** Asks one storage something whenever told to, and counts what passes before each answer. */
class Caller {
  answers = 0
  /** The most that passed between a request and its answer. */
  worst = 0
  readonly #client: Connection
  readonly #bucketId: number
  readonly #passed: () => number

  constructor(name: string, bucketId: number, passed: () => number) {
    this.#client = cluster.connect(name)
    this.#bucketId = bucketId
    this.#passed = passed
  }

  call(): void {
    const before = this.#passed()
    void this.#client.call('vshard.storage.call', [this.#bucketId, 'write', 'touch', []]).then(([isDone]) => {
      if (isDone !== true) throw new Error(`Bucket ${this.#bucketId} was refused`)
      this.answers++
      this.worst = Math.max(this.worst, this.#passed() - before)
    })
  }
}

describe('a bucket of 20,000 rows', { timeout: 30_000 }, () => {
  it('leaves room for calls on both sides, between its chunks and while it is removed', async () => {
    await started()
    let chunks = 0
    let removals = 0
    let largest = 0
    const sender = new Caller('a1', 4, () => chunks + removals)
    const receiver = new Caller('b1', 14, () => chunks)
    cluster.intercept('b1', 'vshard.storage.bucket_recv', (run, args) => {
      chunks++
      const rows = (args[2] as [string, unknown[]][]).flatMap(([, tuples]) => tuples)
      largest = Math.max(largest, rows.length)
      sender.call()
      receiver.call()
      return run()
    })
    cluster.at('a1').vshard.onBucketEvent(() => {
      removals++
      sender.call()
    })
    await cluster.wait(cluster.at('a1').vshard.sendBucket(3, 'b'))
    await cluster.clock.until(() => cluster.owners(3)['a'] === undefined)
    await cluster.clock.advance(100)
    expect(chunks).toBeGreaterThan(20)
    expect(removals).toBeGreaterThan(20)
    expect(largest).toBeLessThanOrEqual(1_000)
    expect([sender.answers, receiver.answers]).toEqual([chunks + removals, chunks])
    expect(Math.max(sender.worst, receiver.worst)).toBeLessThanOrEqual(A_HANDFUL)
    expect([rowsOf('a1'), rowsOf('b1')]).toEqual([0, ROWS + 1])
  })

  it('that does not arrive within the limit is served where it was, and nothing of it stays elsewhere', async () => {
    await started()
    let chunks = 0
    cluster.intercept('b1', 'vshard.storage.bucket_recv', async (run) => {
      chunks++
      await pause(100)
      return run()
    })
    await expect(cluster.wait(cluster.at('a1').vshard.sendBucket(3, 'b', { timeout: 1_000 }))).rejects.toMatchObject({
      boxCode: 78,
    })
    expect(chunks).toBeGreaterThan(5)
    expect(chunks).toBeLessThan(15)
    await cluster.clock.until(() => cluster.isAtRest)
    expect(cluster.owners(3)).toEqual({ a: 'active' })
    expect([rowsOf('a1'), rowsOf('b1')]).toEqual([ROWS + 1, 0])
    expect(await cluster.wait(cluster.at('a1').call('vshard.storage.call', 3, 'write', 'touch', []))).toEqual([
      true,
      true,
    ])
  })

  it('whose receiver is killed half-way is served where it was, and the one that starts again has nothing of it', async () => {
    await started({ isDurable: true })
    let chunks = 0
    let crashed: Promise<void> | undefined
    cluster.onCreated = (storage) => storage.define('touch', () => true)
    cluster.intercept('b1', 'vshard.storage.bucket_recv', async (run) => {
      if (++chunks !== 10) return run()
      await run()
      await cluster.at('b1').committed()
      crashed = cluster.crash('b1')
      return new Promise<never>(() => undefined)
    })
    await expect(
      cluster.wait(cluster.at('a1').vshard.sendBucket(3, 'b', { chunkTimeout: 2_000 })),
    ).rejects.toMatchObject({
      code: 'ORB_BOX',
    })
    await cluster.wait(crashed!)
    await cluster.clock.until(() => cluster.isAtRest)
    expect(cluster.owners(3)).toEqual({ a: 'active' })
    expect([rowsOf('a1'), rowsOf('b1')]).toEqual([ROWS + 1, 0])
  })
})
