import { expect, it } from 'vitest'
import { stableRank } from '../src/stable-order.js'

const NAMES = ['a', 'b', 'c']
const definition = (names: readonly string[]) => ({
  id: 's',
  instances: names.map((id) => ({ id, uri: `${id}:3301` })),
})

function choose(bucketId: number, names: readonly string[]): string {
  const rank = stableRank(bucketId, definition(names))
  return names.map((id) => ({ id })).toSorted((x, y) => rank(x) - rank(y))[0]!.id
}

it('every client chooses the same instance for each of 30,000 buckets, in whichever order it lists them', () => {
  const orders = [NAMES, ['c', 'a', 'b'], ['b', 'c', 'a'], ['c', 'b', 'a']]
  const shares = new Map<string, number>()
  for (let bucketId = 1; bucketId <= 30_000; bucketId++) {
    const chosen = new Set(orders.map((names) => choose(bucketId, names)))
    expect(chosen.size).toBe(1)
    const [name] = chosen
    shares.set(name!, (shares.get(name!) ?? 0) + 1)
  }
  for (const name of NAMES) expect(Math.abs(shares.get(name)! - 10_000)).toBeLessThan(500)
})

it('an instance that goes away moves its own buckets and no others', () => {
  let moved = 0
  for (let bucketId = 1; bucketId <= 30_000; bucketId++) {
    const before = choose(bucketId, NAMES)
    const after = choose(bucketId, ['a', 'c'])
    if (before !== after) {
      expect(before).toBe('b')
      moved++
    }
  }
  expect(Math.abs(moved - 10_000)).toBeLessThan(500)
})

it('uuids count where all instances have one: names may change then', () => {
  const named = (names: readonly string[]) => ({
    id: 's',
    instances: names.map((id, i) => ({ id, uuid: `00000000-0000-4000-8000-00000000000${i}`, uri: `${id}:3301` })),
  })
  const place = (bucketId: number, names: readonly string[]): number => {
    const rank = stableRank(bucketId, named(names))
    const ranks = names.map((id) => rank({ id }))
    return ranks.indexOf(Math.min(...ranks))
  }
  for (let bucketId = 1; bucketId <= 1_000; bucketId++)
    expect(place(bucketId, ['x', 'y', 'z'])).toBe(place(bucketId, ['p', 'q', 'r']))
})
