import { InvalidArgumentError } from '@orbweaver/iproto'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type BalanceState, idealBalance, planBalance } from '../src/index.js'
import { readVectors } from './vectors.js'

interface BalanceVector {
  readonly name: string
  readonly total: number
  readonly replicasets: Readonly<Record<string, { weight?: number; pinned?: number }>>
  readonly etalon: Readonly<Record<string, number>>
}

interface RoutesVector {
  readonly name: string
  readonly replicasets: Readonly<Record<string, BalanceState>>
  readonly etalon: Readonly<Record<string, number>>
  readonly needed: Readonly<Record<string, number>>
  readonly max_disbalance: number
  readonly routes: Readonly<Record<string, Readonly<Record<string, number>>>>
}

const balances = readVectors<{ cases: readonly BalanceVector[] }>('balance').cases
const routes = readVectors<{ cases: readonly RoutesVector[] }>('rebalancer-routes').cases

describe('the ideal balance equals vshard', () => {
  test.each(balances)('$name', ({ replicasets, total, etalon }) => {
    const ideal = idealBalance(new Map(Object.entries(replicasets)), total)
    // Among equals it is open who gets the remainder: compare what each kind of replicaset gets, in any order.
    const byKind = (counts: ReadonlyMap<string, number>): string[] =>
      [...counts].map(([id, count]) => `${JSON.stringify(replicasets[id])} ${count}`).toSorted()
    expect(byKind(ideal)).toEqual(byKind(new Map(Object.entries(etalon))))
  })
})

describe('the plan equals vshard', () => {
  test.each(routes)('$name', ({ replicasets, etalon, needed, max_disbalance: worst, routes: want }) => {
    const plan = planBalance(new Map(Object.entries(replicasets)))
    expect(Object.fromEntries(plan.ideal)).toEqual(etalon)
    expect(Object.fromEntries(plan.needed)).toEqual(needed)
    expect(plan.disbalancePercent).toBe(worst)
    expect(plan.disbalanced === undefined).toBe(worst === 0)
    // Which giver serves which taker is open: the sums are not.
    const given = [...plan.routes].map(([id, to]) => `${id} ${sum(to.values())}`).toSorted()
    expect(given).toEqual(
      Object.entries(want)
        .map(([id, to]) => `${id} ${sum(Object.values(to))}`)
        .toSorted(),
    )
  })
})

const state: fc.Arbitrary<BalanceState> = fc
  .record({
    count: fc.nat(500),
    pinned: fc.nat(500),
    weight: fc.oneof(fc.nat(5), fc.double({ min: 0, max: 9, noNaN: true })),
    lock: fc.boolean(),
  })
  .map((one) => ({ ...one, pinned: Math.min(one.pinned, one.count) }))
const cluster = fc
  .uniqueArray(fc.tuple(fc.string({ minLength: 1 }), state), { selector: ([id]) => id, minLength: 1, maxLength: 8 })
  .map((entries) => new Map([['anchor', { count: 3, weight: 1 }], ...entries]))

describe('whatever the cluster', () => {
  test('no bucket is lost or made up, nobody falls below its pinned ones, the locked take no part', () => {
    fc.assert(
      fc.property(cluster, (replicasets) => {
        const open = [...replicasets].filter(([, { lock }]) => lock !== true)
        const plan = planBalance(replicasets)
        expect([...plan.ideal.keys()].toSorted()).toEqual(open.map(([id]) => id).toSorted())
        expect(sum(plan.ideal.values())).toBe(sum(open.map(([, { count }]) => count)))
        for (const [id, { pinned = 0 }] of open) expect(plan.ideal.get(id)).toBeGreaterThanOrEqual(pinned)
      }),
    )
  })

  test('following the routes leads to the ideal, and nobody both gives and takes', () => {
    fc.assert(
      fc.property(cluster, (replicasets) => {
        const { ideal, routes } = planBalance(replicasets)
        const counts = new Map([...ideal.keys()].map((id) => [id, replicasets.get(id)!.count]))
        for (const [from, to] of routes) {
          for (const [id, moved] of to) {
            expect(routes.has(id)).toBe(false)
            expect(moved).toBeGreaterThan(0)
            counts.set(from, counts.get(from)! - moved)
            counts.set(id, counts.get(id)! + moved)
          }
        }
        expect(counts).toEqual(ideal)
      }),
    )
  })

  test('shares are within one bucket of the exact proportion', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 9 }),
        fc.nat(5000),
        (weights, total) => {
          const ideal = idealBalance(new Map(weights.map((weight, i) => [String(i), { weight }])), total)
          const all = sum(weights)
          for (const [i, weight] of weights.entries()) {
            expect(Math.abs(ideal.get(String(i))! - (weight * total) / all)).toBeLessThan(1)
          }
        },
      ),
    )
  })
})

test('a replicaset that should be empty and is not deviates without bound', () => {
  const plan = planBalance(
    new Map([
      ['a', { count: 10, weight: 0 }],
      ['b', { count: 0 }],
    ]),
  )
  expect(plan).toMatchObject({ disbalancePercent: Infinity, disbalanced: 'a' })
})

test.each([-1, NaN, Infinity])('the weight %s is refused', (weight) => {
  expect(() => idealBalance(new Map([['a', { weight }]]), 10)).toThrow(InvalidArgumentError)
})

test('buckets that nobody may take are refused', () => {
  expect(() => idealBalance(new Map([['a', { weight: 0 }]]), 10)).toThrow(/^10 buckets are left/)
})

function sum(values: Iterable<number>): number {
  return [...values].reduce((total, value) => total + value, 0)
}
