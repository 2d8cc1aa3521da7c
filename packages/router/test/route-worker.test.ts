import { VirtualClock } from '@orbweaver/connection/testing'
import { describe, expect, it } from 'vitest'
import { UNKNOWN } from '../src/route-table.js'
import { accept } from '../src/route-fact.js'
import type { RouteFact } from '../src/route-fact.js'
import { RouteWorker } from '../src/route-worker.js'

const A = 1
const B = 2
const C = 3
const BUCKET = 7

/* failover.md C3: which facts change an entry, and to what. `stamp` 10 is when the entry changed last. */
const RULES: readonly [string, RouteFact, value: number, next: number][] = [
  [
    'WRONG_BUCKET from the owner with a destination',
    { kind: 'moved', bucketId: BUCKET, sent: 11, from: A, owner: B },
    A,
    B,
  ],
  [
    'WRONG_BUCKET with a destination for an unknown entry',
    { kind: 'moved', bucketId: BUCKET, sent: 11, from: A, owner: B },
    UNKNOWN,
    B,
  ],
  [
    'WRONG_BUCKET from somebody who is not the owner',
    { kind: 'moved', bucketId: BUCKET, sent: 11, from: A, owner: B },
    C,
    C,
  ],
  [
    'WRONG_BUCKET from the owner without a destination',
    { kind: 'moved', bucketId: BUCKET, sent: 11, from: A, owner: UNKNOWN },
    A,
    UNKNOWN,
  ],
  [
    'WRONG_BUCKET without a destination from another one',
    { kind: 'moved', bucketId: BUCKET, sent: 11, from: A, owner: UNKNOWN },
    B,
    B,
  ],
  ['WRONG_BUCKET naming itself', { kind: 'moved', bucketId: BUCKET, sent: 11, from: A, owner: A }, A, A],
  ['a refusal older than the entry', { kind: 'moved', bucketId: BUCKET, sent: 9, from: A, owner: B }, A, A],
  ['a page that lists it', { kind: 'owned', bucketId: BUCKET, sent: 11, owner: B }, A, B],
  ['a page of a replica', { kind: 'owned', bucketId: BUCKET, sent: 11, owner: B, isReplica: true }, A, A],
  [
    'a page of a replica, where nothing is known',
    { kind: 'owned', bucketId: BUCKET, sent: 11, owner: B, isReplica: true },
    UNKNOWN,
    B,
  ],
  ['a page older than the entry', { kind: 'owned', bucketId: BUCKET, sent: 9, owner: B }, A, A],
  ['a sweep of the owner that did not list it', { kind: 'unlisted', bucketId: BUCKET, sent: 11, from: A }, A, UNKNOWN],
  ['a sweep of another one that did not list it', { kind: 'unlisted', bucketId: BUCKET, sent: 11, from: B }, A, A],
  ['a sweep that began before the entry changed', { kind: 'unlisted', bucketId: BUCKET, sent: 9, from: A }, A, A],
]

describe('a fact about a bucket', () => {
  it.each(RULES)('%s', (_what, fact, value, next) => {
    expect(accept(fact, value, 10)).toBe(next)
  })
})

describe('RouteWorker', () => {
  function start(bucketCount = 100) {
    const clock = new VirtualClock()
    let changes = 0
    const sets = new Set(Array.from({ length: 8 }, (_, i) => i))
    const flapping: number[] = []
    const awaited: string[] = []
    const worker = new RouteWorker(bucketCount, clock, {
      changed: () => {
        changes++
      },
      isSet: (index) => sets.has(index),
      flapping: (bucketId) => flapping.push(bucketId),
      unknownOwner: (destination) => awaited.push(destination),
    })
    return { clock, worker, changes: () => changes, sets, flapping, awaited }
  }

  it('applies a burst of facts in one new table', async () => {
    const { clock, worker, changes } = start()
    const before = worker.table
    for (let bucketId = 1; bucketId <= 50; bucketId++)
      worker.report({ kind: 'owned', bucketId, sent: worker.tick(), owner: A })
    expect(worker.table).toBe(before)
    await clock.settle()
    expect([worker.table.known, changes(), worker.table.generation]).toEqual([50, 1, before.generation + 1])
  })

  it('lets no late answer overwrite a newer one, whatever the order of arrival', async () => {
    const { clock, worker } = start()
    const early = worker.tick()
    const late = worker.tick()
    worker.report({ kind: 'owned', bucketId: BUCKET, sent: late, owner: B })
    await clock.settle()
    worker.report({ kind: 'moved', bucketId: BUCKET, sent: early, from: B, owner: A })
    worker.report({ kind: 'owned', bucketId: BUCKET, sent: early, owner: A })
    await clock.settle()
    expect(worker.table.lookup(BUCKET)).toBe(B)
    expect(worker.stats).toMatchObject({ applied: 1, ignored: 2 })
  })

  it('counts ids outside the cluster instead of failing', async () => {
    const { clock, worker } = start()
    for (const bucketId of [0, -1, 101, 1.5, Number.NaN])
      worker.report({ kind: 'owned', bucketId, sent: worker.tick(), owner: A })
    await clock.settle()
    expect(worker.stats.bad).toBe(5)
    expect(worker.table.known).toBe(0)
  })

  it('applies 500 facts of one turn over three chunks in one new table', async () => {
    const { clock, worker, changes } = start(3_000)
    for (let i = 0; i < 500; i++)
      worker.report({ kind: 'owned', bucketId: 1 + ((i * 6) % 3_000), sent: worker.tick(), owner: A })
    await clock.settle()
    expect([changes(), worker.table.known, worker.table.generation]).toEqual([1, 500, 1])
  })

  it('leaves a table that somebody holds as it is, whatever comes', async () => {
    const { clock, worker } = start()
    const held = worker.table
    let generation = held.generation
    for (let i = 0; i < 1_000; i++) {
      worker.report({ kind: 'owned', bucketId: 1 + (i % 100), sent: worker.tick(), owner: 1 + (i % 7) })
      if (i % 100 === 99) {
        await clock.settle()
        expect(worker.table.generation).toBeGreaterThan(generation)
        ;({ generation } = worker.table)
      }
    }
    expect([held.known, held.lookup(1)]).toEqual([0, UNKNOWN])
  })

  it('ignores for one bucket what is late, and takes the rest of the same page', async () => {
    const { clock, worker } = start()
    worker.reportPage([1, 2].map((bucketId) => ({ kind: 'owned', bucketId, sent: worker.tick(), owner: A })))
    const pageSent = worker.tick()
    worker.report({ kind: 'moved', bucketId: 1, sent: worker.tick(), from: A, owner: B })
    await clock.settle()
    worker.reportPage([1, 2, 3].map((bucketId) => ({ kind: 'owned', bucketId, sent: pageSent, owner: A })))
    expect([1, 2, 3].map((id) => worker.table.lookup(id))).toEqual([B, A, A])
  })

  it('ignores the refusal of an earlier time when the entry was learnt again', async () => {
    const { clock, worker } = start()
    worker.report({ kind: 'owned', bucketId: BUCKET, sent: worker.tick(), owner: A })
    await clock.settle()
    const early = worker.tick()
    worker.report({ kind: 'moved', bucketId: BUCKET, sent: worker.tick(), from: A, owner: B })
    await clock.settle()
    worker.report({ kind: 'owned', bucketId: BUCKET, sent: worker.tick(), owner: A })
    await clock.settle()
    worker.report({ kind: 'moved', bucketId: BUCKET, sent: early, from: A, owner: UNKNOWN })
    await clock.settle()
    expect(worker.table.lookup(BUCKET)).toBe(A)
  })

  it('comes to the truth behind 100,000 facts of one turn with bounded memory', async () => {
    const { clock, worker } = start(30_000)
    const truth = (bucketId: number): number => 1 + (bucketId % 3)
    const tell = (): void => {
      for (let i = 0; i < 100_000; i++) {
        const bucketId = 1 + (i % 30_000)
        worker.report({ kind: 'owned', bucketId, sent: worker.tick(), owner: truth(bucketId) })
      }
    }
    tell()
    await clock.settle()
    expect(worker.stats.dropped).toBe(100_000 - 8_192)
    for (let from = 1; from <= 30_000; from += 1_000)
      worker.reportPage(
        Array.from({ length: 1_000 }, (_, i) => ({
          kind: 'owned' as const,
          bucketId: from + i,
          sent: worker.tick(),
          owner: truth(from + i),
        })),
      )
    const wrong = Array.from({ length: 30_000 }, (_, i) => i + 1).filter((id) => worker.table.lookup(id) !== truth(id))
    expect(wrong).toEqual([])
  })

  it('lets pages turn the route of a doubled bucket over only so often, and says so once', async () => {
    const { clock, worker, flapping } = start()
    const turns: number[] = []
    for (let i = 0; i < 40; i++) {
      await clock.advance(100)
      worker.reportPage([{ kind: 'owned', bucketId: BUCKET, sent: worker.tick(), owner: i % 2 === 0 ? A : B }])
      turns.push(worker.table.lookup(BUCKET))
    }
    expect([flapping, worker.stats.flapping]).toEqual([[BUCKET], 1])
    expect(new Set(turns.slice(6)).size).toBe(1)
    // What a storage says of itself still counts, and pages again after a while.
    worker.report({ kind: 'moved', bucketId: BUCKET, sent: worker.tick(), from: turns.at(-1)!, owner: C })
    await clock.advance(11_000)
    expect(worker.table.lookup(BUCKET)).toBe(C)
    worker.reportPage([{ kind: 'owned', bucketId: BUCKET, sent: worker.tick(), owner: A }])
    expect([worker.table.lookup(BUCKET), worker.stats.flapping]).toEqual([A, 0])
  })

  it('takes a few MiB for a million buckets', () => {
    const before = process.memoryUsage().arrayBuffers
    const { worker } = start(1_000_000)
    expect(worker.table.bucketCount).toBe(1_000_000)
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(8 * 2 ** 20)
  })

  it('never makes a route of an owner that is no replicaset any more', async () => {
    const { clock, worker, sets } = start()
    worker.report({ kind: 'owned', bucketId: BUCKET, sent: worker.tick(), owner: B })
    sets.delete(B)
    await clock.settle()
    expect([worker.table.lookup(BUCKET), worker.stats.bad]).toEqual([UNKNOWN, 1])
  })

  describe('when the replicasets change', () => {
    it('forgets the routes of those that are gone in the same table that has the awaited owners', async () => {
      const { clock, worker, changes, awaited } = start(3_000)
      worker.reportPage(
        Array.from({ length: 3_000 }, (_, i) => ({
          kind: 'owned' as const,
          bucketId: i + 1,
          sent: worker.tick(),
          owner: i < 2_000 ? A : B,
        })),
      )
      for (const bucketId of [2_001, 2_002])
        worker.report({ kind: 'moved', bucketId, sent: worker.tick(), from: B, owner: UNKNOWN, destination: 'new' })
      worker.report({ kind: 'moved', bucketId: 2_003, sent: worker.tick(), from: B, owner: UNKNOWN, destination: 'x' })
      await clock.settle()
      expect([awaited, worker.stats.pending]).toEqual([['new', 'new', 'x'], 3])
      const [tables, { generation }] = [changes(), worker.table]
      const unresolved = worker.retarget(new Set([A]), (id) => (id === 'new' ? C : undefined))
      expect([Object.fromEntries(unresolved), worker.stats.pending]).toEqual([{ x: 1 }, 0])
      expect([changes() - tables, worker.table.generation - generation]).toEqual([1, 1])
      expect([A, B, C].map((index) => worker.table.countOf(index))).toEqual([0, 997, 2])
    })

    it('keeps the very table when nothing is gone and nothing was awaited', () => {
      const { worker } = start()
      const { table } = worker
      worker.retarget(new Set([A]), () => undefined)
      expect(worker.table).toBe(table)
    })
  })

  it('drops facts beyond its queue and counts them: they come again', async () => {
    const { clock, worker } = start(20_000)
    for (let bucketId = 1; bucketId <= 10_000; bucketId++)
      worker.report({ kind: 'owned', bucketId, sent: worker.tick(), owner: A })
    await clock.settle()
    expect(worker.table.known).toBe(8_192)
    expect(worker.stats.dropped).toBe(10_000 - 8_192)
  })
})
