import { readFileSync } from 'node:fs'
import { describe, expect, it, afterEach } from 'vitest'
import type { ReplicasetConfig } from '@orbweaver/vshard'
import { planRound, rebalancerPlace } from '../src/vshard/rebalance-plan.js'
import { MemoryCluster } from './vshard-cluster.js'
import type { MemoryClusterOptions } from './vshard-cluster.js'

let cluster: MemoryCluster | undefined

afterEach(async () => {
  await cluster?.close()
  cluster = undefined
})

async function start(options: MemoryClusterOptions, spread: readonly number[]): Promise<MemoryCluster> {
  cluster = await new MemoryCluster({
    ...options,
    vshard: { rebalancerMode: 'auto', ...options.vshard },
  }).start(spread)
  return cluster
}

function counts(): Record<string, number> {
  return Object.fromEntries(cluster!.config.map(({ id }) => [id, cluster!.side(`${id}1`).buckets.size]))
}

function configure(change: (set: ReplicasetConfig) => ReplicasetConfig): void {
  const replicasets = cluster!.config.map(change)
  for (const name of cluster!.names) cluster!.at(name).vshard.configure({ replicasets })
}

describe('the rebalancer', () => {
  it('spreads buckets evenly, each with its rows, and says so', async () => {
    await start({ replicasets: 3, instances: 2, bucketCount: 30 }, [30, 0, 0])
    await cluster!.clock.advance(10_000)
    expect(counts()).toEqual({ a: 10, b: 10, c: 10 })
    expect(cluster!.isAtRest).toBe(true)
    for (const { id } of cluster!.config) expect(cluster!.at(`${id}2`).space('s').count()).toBe(10)
    expect(cluster!.at('a1').vshard.info().rebalancer).toMatchObject({
      isHere: true,
      state: 'balanced',
      disbalancePercent: 0,
      balance: { a: { has: 10, ideal: 10 }, b: { has: 10, ideal: 10 }, c: { has: 10, ideal: 10 } },
      sending: { planned: 20, moved: 20, failed: 0 },
    })
    expect(cluster!.at('b1').vshard.info().rebalancer).toMatchObject({ isHere: false, state: 'elsewhere' })
  })

  it('follows weights when they change, and empties a replicaset of weight 0', async () => {
    await start({ replicasets: 2, bucketCount: 20, vshard: { rebalancerMaxSending: 5 } }, [10, 10])
    configure((set) => ({ ...set, weight: set.id === 'a' ? 0 : 1 }))
    await cluster!.clock.advance(10_000)
    expect(counts()).toEqual({ a: 0, b: 20 })
    configure((set) => ({ ...set, weight: set.id === 'a' ? 3 : 1 }))
    await cluster!.clock.advance(10_000)
    expect(counts()).toEqual({ a: 15, b: 5 })
  })

  it('leaves pinned buckets and locked replicasets alone', async () => {
    await start({ replicasets: 3, bucketCount: 30 }, [30, 0, 0])
    for (const name of cluster!.names) cluster!.at(name).vshard.rebalancer.pause()
    await cluster!.clock.advance(5_000)
    const before = counts()
    const pinned = [...cluster!.side('a1').buckets.idsOf('active')].slice(0, 16)
    for (const id of pinned) cluster!.at('a1').vshard.pinBucket(id)
    configure((set) => ({ ...set, lock: set.id === 'c' }))
    for (const name of cluster!.names) cluster!.at(name).vshard.rebalancer.resume()
    await cluster!.clock.advance(20_000)
    expect(counts()).toMatchObject({ c: before['c'], a: Math.max(16, (30 - before['c']!) / 2) })
    for (const id of pinned) expect(cluster!.owners(id)).toEqual({ a: 'pinned' })
  })

  it('can be paused in the middle: the bucket at hand arrives, no other leaves until it goes on', async () => {
    await start({ replicasets: 2, bucketCount: 40 }, [40, 0])
    await cluster!.clock.until(() => counts()['b']! >= 3)
    for (const name of cluster!.names) cluster!.at(name).vshard.rebalancer.pause()
    await cluster!.clock.advance(1_000)
    const { b } = counts()
    await cluster!.clock.advance(60_000)
    expect(counts()['b']).toBe(b)
    expect(cluster!.at('a1').vshard.info().rebalancer.activity).toBe('paused')
    for (const name of cluster!.names) cluster!.at(name).vshard.rebalancer.resume()
    await cluster!.clock.advance(20_000)
    expect(counts()).toEqual({ a: 20, b: 20 })
  })

  it('converges when weights change all the time and then no more', async () => {
    await start({ replicasets: 3, bucketCount: 60, vshard: { rebalancerMaxSending: 3 } }, [60, 0, 0])
    for (let i = 0; i < 100; i++) {
      configure((set) => ({ ...set, weight: i % 2 === (set.id === 'a' ? 0 : 1) ? 3 : 1 }))
      await cluster!.clock.advance(50)
      expect(cluster!.doubled()).toEqual([])
    }
    configure((set) => ({ ...set, weight: 1 }))
    await cluster!.clock.advance(30_000)
    expect(counts()).toEqual({ a: 20, b: 20, c: 20 })
    expect(cluster!.isAtRest).toBe(true)
  })

  it('names what it waits for: the instance that is away, the reference that is held', async () => {
    await start({ replicasets: 2, bucketCount: 20 }, [10, 10])
    cluster!.isolate('b1')
    configure((set) => ({ ...set, weight: set.id === 'a' ? 3 : 1 }))
    await cluster!.clock.advance(30_000)
    expect(cluster!.at('a1').vshard.info().rebalancer).toMatchObject({
      state: 'waiting',
      problem: expect.stringContaining('replicaset b') as string,
    })
    const ref = await cluster!.wait(cluster!.at('a1').ref({ timeout: 1_000 }))
    cluster!.rejoin('b1')
    await cluster!.clock.advance(30_000)
    expect(counts()).toEqual({ a: 10, b: 10 })
    expect(cluster!.at('b1').vshard.info().transfers).toMatchObject([
      { direction: 'send', peer: 'a', step: expect.stringMatching(/sending rows|waiting for a turn/) as string },
    ])
    expect(cluster!.at('a1').vshard.refs.list()).toMatchObject([{ owner: 'local' }])
    await ref[Symbol.asyncDispose]()
    await cluster!.clock.advance(30_000)
    expect(counts()).toEqual({ a: 15, b: 5 })
  })

  it('keeps a receiver at its limit busy while all senders get their share', async () => {
    const senders = 4
    await start(
      {
        replicasets: senders + 1,
        bucketCount: 40,
        vshard: { rebalancerMaxSending: 5, rebalancerMaxReceiving: 2 },
      },
      [10, 10, 10, 10, 0],
    )
    for (const name of cluster!.names) cluster!.at(name).vshard.rebalancer.pause()
    let most = 0
    const last = `${String.fromCharCode(97 + senders)}1`
    cluster!.intercept(last, 'vshard.storage.bucket_recv', async (run) => {
      await new Promise<void>((resolve) => cluster!.clock.schedule(30, resolve))
      const reply = await run()
      most = Math.max(most, cluster!.side(last).buckets.count('receiving'))
      return reply
    })
    for (const name of cluster!.names) cluster!.at(name).vshard.rebalancer.resume()
    await cluster!.clock.advance(30_000)
    expect(most).toBe(2)
    expect(counts()).toEqual({ a: 8, b: 8, c: 8, d: 8, e: 8 })
    for (const name of ['a1', 'b1', 'c1', 'd1']) {
      const { sending } = cluster!.at(name).vshard.info().rebalancer
      expect(sending.failed).toBe(0)
      // It asks with growing pauses, not all the time.
      expect(sending.throttled).toBeLessThan(40)
    }
  })
})

describe('the plan of a round', () => {
  const sets = (weights: Record<string, number>): Map<string, ReplicasetConfig> =>
    new Map(Object.entries(weights).map(([id, weight]) => [id, { id, weight, instances: [] }]))
  const state = (activeCount: number, pinnedCount = 0): { activeCount: number; pinnedCount: number } => ({
    activeCount,
    pinnedCount,
  })

  it.each([
    [0.01, 'move'],
    [1, 'move'],
    [10, 'move'],
    [50, 'balanced'],
  ])('with a threshold of %d percent: %s, and the numbers either way', (thresholdPercent, is) => {
    const round = planRound(
      sets({ a: 100, b: 150 }),
      new Map([
        ['a', state(15_000)],
        ['b', state(15_000)],
      ]),
      {
        bucketCount: 30_000,
        thresholdPercent,
      },
    )
    expect(round.is).toBe(is)
    if (round.is === 'wait') throw new Error('unexpected')
    expect(Object.fromEntries(round.plan.ideal)).toEqual({ a: 12_000, b: 18_000 })
    expect(round.plan.disbalancePercent).toBe(25)
  })

  const { cases } = JSON.parse(readFileSync(new URL('vectors/rebalancer-routes.json', import.meta.url), 'utf8')) as {
    cases: {
      name: string
      total: number
      max_disbalance: number
      needed: Record<string, number>
      replicasets: Record<string, { count: number; weight?: number; pinned?: number }>
    }[]
  }

  it.each(cases)('is the one of vshard ($name)', ({ total, needed, replicasets, max_disbalance: disbalance }) => {
    const entries = Object.entries(replicasets)
    const round = planRound(
      sets(Object.fromEntries(entries.map(([id, { weight }]) => [id, weight ?? 1]))),
      new Map(entries.map(([id, { count, pinned = 0 }]) => [id, state(count - pinned, pinned)])),
      { bucketCount: total, thresholdPercent: 1 },
    )
    if (round.is === 'wait') throw new Error(round.problem)
    expect(Object.fromEntries(round.plan.needed)).toEqual(needed)
    expect(round.plan.disbalancePercent).toBe(disbalance)
    expect(round.is).toBe(disbalance > 1 ? 'move' : 'balanced')
  })

  it('waits while buckets are missing, and says how many there are', () => {
    const round = planRound(
      sets({ a: 1, b: 1 }),
      new Map([
        ['a', state(3)],
        ['b', state(4)],
      ]),
      {
        bucketCount: 10,
        thresholdPercent: 1,
      },
    )
    expect(round).toEqual({ is: 'wait', problem: 'the replicasets have 7 active buckets of 10' })
  })

  it('divides what cannot be divided evenly, and keeps more pinned buckets than the share', () => {
    const options = { thresholdPercent: 1 }
    const three = planRound(
      sets({ a: 1, b: 1 }),
      new Map([
        ['a', state(3)],
        ['b', state(0)],
      ]),
      { ...options, bucketCount: 3 },
    )
    const pinned = planRound(
      sets({ a: 1, b: 1 }),
      new Map([
        ['a', state(2, 8)],
        ['b', state(0)],
      ]),
      { ...options, bucketCount: 10 },
    )
    if (three.is === 'wait' || pinned.is === 'wait') throw new Error('unexpected')
    expect([...three.plan.ideal.values()].toSorted((a, b) => a - b)).toEqual([1, 2])
    expect(Object.fromEntries(pinned.plan.ideal)).toEqual({ a: 8, b: 2 })
  })
})

describe('the place of the rebalancer', () => {
  const set = (id: string, more: Partial<ReplicasetConfig> = {}): ReplicasetConfig => ({
    id,
    instances: [
      { id: `${id}1`, uri: '1' },
      { id: `${id}2`, uri: '2' },
    ],
    ...more,
  })

  it.each<[string, ReplicasetConfig[], 'auto' | 'manual' | 'off', unknown]>([
    ['nowhere when it is off', [set('a', { rebalancer: true })], 'off', undefined],
    [
      'where a replicaset says so',
      [set('a', { master: 'a1' }), set('b', { rebalancer: true })],
      'auto',
      { replicasetId: 'b' },
    ],
    ['nowhere in mode manual when nobody says so', [set('a', { master: 'a1' })], 'manual', undefined],
    [
      'the fixed master with the smallest id',
      [set('b', { master: 'b1' }), set('a', { master: 'a2' })],
      'auto',
      { replicasetId: 'a', instanceId: 'a2' },
    ],
    [
      'else the first replicaset that finds its master itself',
      [set('b', { master: 'auto' }), set('a', { master: 'auto' })],
      'auto',
      { replicasetId: 'a' },
    ],
    [
      'not where it is excluded',
      [set('a', { master: 'auto', rebalancer: false }), set('b', { master: 'auto' })],
      'auto',
      { replicasetId: 'b' },
    ],
  ])('%s', (_what, sets, mode, place) => {
    expect(rebalancerPlace(sets, mode)).toEqual(place)
  })

  it('on the instance that says so', () => {
    const pinned = { ...set('b'), instances: [{ id: 'b2', uri: '1', rebalancer: true }] }
    expect(rebalancerPlace([set('a', { master: 'a1' }), pinned], 'auto')).toEqual({
      replicasetId: 'b',
      instanceId: 'b2',
    })
  })
})
