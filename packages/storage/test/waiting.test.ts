/* Whatever stands in the way is named by the status, and by one line of the log for as long as it lasts. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import type { ReplicasetConfig } from '@orbweaver/vshard'
import { afterEach, describe, expect, it } from 'vitest'
import { MemoryCluster } from './vshard-cluster.js'
import type { MemoryClusterOptions } from './vshard-cluster.js'

interface Line {
  readonly package: string
  readonly storage: string
  readonly event: string
  readonly problem?: string
  readonly [field: string]: unknown
}

let cluster: MemoryCluster
const lines: Line[] = []
const keep = (line: unknown): void => {
  if ((line as Line).package === 'storage') lines.push(line as Line)
}

afterEach(async () => {
  await cluster.close()
  unsubscribe('orbweaver:log', keep)
  lines.length = 0
})

async function started(options: MemoryClusterOptions, spread?: readonly number[]): Promise<void> {
  subscribe('orbweaver:log', keep)
  cluster = await new MemoryCluster(options).start(spread)
  lines.length = 0
}

function configure(change: (set: ReplicasetConfig) => ReplicasetConfig): void {
  const replicasets = cluster.config.map(change)
  for (const name of cluster.names) cluster.at(name).vshard.configure({ replicasets })
}

/** Every cause has one line. */
function expectNoRepetition(of: readonly Line[]): void {
  const causes = of.map(({ storage, event, problem, step }) => JSON.stringify([storage, event, problem, step]))
  expect(causes).toEqual([...new Set(causes)])
}

describe('what is in the way of a rebalancing', { timeout: 30_000 }, () => {
  it('a bucket that is stuck on its way: which one, in which state, and who does not answer', async () => {
    await started({ replicasets: 2 })
    cluster.intercept('b1', 'vshard.storage.bucket_recv', () => {
      cluster.isolate('b1')
      return new Promise<never>(() => undefined)
    })
    await cluster.wait(
      cluster
        .at('a1')
        .vshard.sendBucket(3, 'b', { timeout: 3_000 })
        .catch(() => undefined),
    )
    await cluster.clock.advance(300_000)
    expect(cluster.at('a1').vshard.info().recovery.problem).toMatch(
      /^bucket 3 is sending \(replicaset b\): replicaset b: /,
    )
    expect(cluster.at('a1').vshard.info().recovery.problemAgeMs).toBeGreaterThan(60_000)
    const told = lines.filter(({ event }) => event === 'recovery waits')
    expect(told.length).toBeGreaterThan(0)
    expect(told.length).toBeLessThanOrEqual(3)
    expectNoRepetition(told)
    expect(told.at(-1)).toMatchObject({
      level: 'warn',
      storage: 'a1',
      problem: cluster.at('a1').vshard.info().recovery.problem,
    })
  })

  it('a replicaset that cannot be reached', async () => {
    await started({ replicasets: 2, bucketCount: 20, vshard: { rebalancerMode: 'auto' } }, [10, 10])
    cluster.isolate('b1')
    configure((set) => ({ ...set, weight: set.id === 'a' ? 3 : 1 }))
    await cluster.clock.advance(300_000)
    expect(cluster.at('a1').vshard.info().rebalancer).toMatchObject({
      state: 'waiting',
      problem: expect.stringContaining('replicaset b') as string,
    })
    const told = lines.filter(({ event }) => event === 'rebalancer waits')
    expect(told.length).toBeGreaterThan(0)
    expect(told.length).toBeLessThanOrEqual(3)
    expectNoRepetition(told)
  })

  it('a reference that is held: the moves that wait for it, and where it is', async () => {
    await started(
      { replicasets: 2, bucketCount: 20, vshard: { rebalancerMode: 'auto', rebalancerMaxSending: 5 } },
      [10, 10],
    )
    const ref = await cluster.wait(cluster.at('a1').ref({ timeout: 1_000 }))
    configure((set) => ({ ...set, weight: set.id === 'a' ? 1 : 3 }))
    await cluster.clock.advance(120_000)
    expect(cluster.at('a1').vshard.info().transfers[0]).toMatchObject({
      direction: 'send',
      peer: 'b',
      step: expect.stringMatching(/^waiting for a turn/) as string,
    })
    expect(cluster.at('a1').vshard.refs.list()).toMatchObject([{ owner: 'local' }])
    const told = lines.filter(({ event }) => event === 'move waits')
    expect(told.length).toBeGreaterThan(0)
    expect(told.length).toBeLessThanOrEqual(3)
    expectNoRepetition(told)
    expect(told[0]).toMatchObject({
      storage: 'a1',
      direction: 'send',
      peer: 'b',
      step: expect.stringMatching(/turn/) as string,
    })
    await ref[Symbol.asyncDispose]()
    await cluster.clock.until(() => cluster.isAtRest && cluster.side('a1').buckets.size === 5)
  })

  it('a lock', async () => {
    await started({ replicasets: 3, bucketCount: 30, vshard: { rebalancerMode: 'auto' } }, [10, 10, 10])
    configure((set) => ({ ...set, lock: set.id === 'c', weight: set.id === 'b' ? 3 : 1 }))
    await cluster.clock.advance(60_000)
    const { rebalancer } = cluster.at('a1').vshard.info()
    expect(rebalancer).toMatchObject({ state: 'balanced', locked: ['c'] })
    expect(Object.keys(rebalancer.balance)).toEqual(['a', 'b'])
    expect(cluster.at('c1').vshard.info().isLocked).toBe(true)
    expect(lines.filter(({ event }) => event === 'rebalancer leaves out')).toMatchObject([
      { storage: 'a1', locked: ['c'] },
    ])
  })

  it('a lock that only the receiver knows of is a failure with one line, however often it is tried', async () => {
    await started({ replicasets: 2, bucketCount: 20, vshard: { rebalancerMode: 'auto' } }, [10, 10])
    const locked = cluster.config.map((set) => ({ ...set, lock: set.id === 'b' }))
    cluster.at('b1').vshard.configure({ replicasets: locked })
    const heavier = cluster.config.map((set) => ({ ...set, weight: set.id === 'b' ? 3 : 1 }))
    cluster.at('a1').vshard.configure({ replicasets: heavier })
    await cluster.clock.advance(120_000)
    expect(cluster.at('a1').vshard.info().rebalancer.sending.lastError).toMatch(/replicaset b: .*locked/i)
    const told = lines.filter(({ event, storage }) => event === 'move failed' && storage === 'a1')
    expect(told).toHaveLength(1)
  })
})

describe('a receiver that takes two buckets at a time', { timeout: 30_000 }, () => {
  it('is never idle while ten replicasets fill it, each gets its share, and the log has a few lines a minute', async () => {
    const givers = 10
    await started(
      {
        replicasets: givers + 1,
        bucketCount: 220,
        vshard: { rebalancerMaxSending: 5, rebalancerMaxReceiving: 2, maxChunkBytes: 14 },
      },
      [...Array.from({ length: givers }, () => 22), 0],
    )
    // Each bucket is on its way for some seconds: five messages with rows, half a second each.
    for (let id = 1; id <= 220; id++)
      for (let i = 1; i < 5; i++)
        cluster
          .master(String.fromCharCode(97 + Math.floor((id - 1) / 22)))
          .space('s')
          .insert([1_000 * id + i, id, 'x'])
    const receiver = cluster.side('k1')
    cluster.intercept('k1', 'vshard.storage.bucket_recv', async (run) => {
      const reply = await run()
      await new Promise<void>((resolve) => cluster.clock.schedule(500, resolve))
      return reply
    })
    for (const name of cluster.names) cluster.at(name).vshard.configure({ rebalancerMode: 'auto' })
    const begun = cluster.clock.now()
    let [samples, busy, most] = [0, 0, 0]
    while (receiver.buckets.count('active') < 20) {
      await cluster.clock.advance(50)
      const receiving = receiver.buckets.count('receiving')
      samples++
      busy += receiving
      most = Math.max(most, receiving)
    }
    const minutes = (cluster.clock.now() - begun) / 60_000
    await cluster.clock.advance(2_000)
    expect(cluster.isAtRest).toBe(true)
    expect(most).toBe(2)
    expect(busy / samples).toBeGreaterThan(1.5)
    for (const name of cluster.names.slice(0, givers)) {
      expect(cluster.side(name).buckets.size).toBe(20)
      expect(cluster.at(name).vshard.info().rebalancer.sending.failed).toBe(0)
      const told = lines.filter(({ event, storage }) => event === 'moves throttled' && storage === name)
      expect(told.length).toBeLessThanOrEqual(Math.ceil(minutes))
    }
  })
})

describe('the balance', () => {
  it('within the threshold is said to be balanced, with the numbers', async () => {
    await started(
      {
        replicasets: 2,
        bucketCount: 100,
        weights: [100, 150],
        vshard: { rebalancerMode: 'auto', rebalancerDisbalanceThreshold: 50 },
      },
      [50, 50],
    )
    await cluster.clock.advance(10_000)
    expect(cluster.at('a1').vshard.info().rebalancer).toMatchObject({
      state: 'balanced',
      balance: { a: { has: 50, ideal: 40 }, b: { has: 50, ideal: 60 } },
      disbalancePercent: 25,
      thresholdPercent: 50,
      locked: [],
      sending: { planned: 0 },
    })
    expect(cluster.at('a1').vshard.info().rebalancer.problem).toBeUndefined()
  })
})
