import { VirtualClock } from '@orbweaver/connection/testing'
import { describe, expect, it } from 'vitest'
import { UNKNOWN } from '../src/route-table.js'
import { accept, RouteWorker } from '../src/route-worker.js'
import type { RouteFact } from '../src/route-worker.js'

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
    const worker = new RouteWorker(bucketCount, clock, () => {
      changes++
    })
    return { clock, worker, changes: () => changes }
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

  it('drops facts beyond its queue and counts them: they come again', async () => {
    const { clock, worker } = start(20_000)
    for (let bucketId = 1; bucketId <= 10_000; bucketId++)
      worker.report({ kind: 'owned', bucketId, sent: worker.tick(), owner: A })
    await clock.settle()
    expect(worker.table.known).toBe(8_192)
    expect(worker.stats.dropped).toBe(10_000 - 8_192)
  })
})
