import { describe, expect, it } from 'vitest'
import { RouteTable, UNKNOWN } from '../src/route-table.js'

describe('RouteTable', () => {
  it('knows nothing at first', () => {
    const table = RouteTable.empty(3_000)
    expect([table.known, table.lookup(1), table.lookup(3_000)]).toEqual([0, UNKNOWN, UNKNOWN])
  })

  it('leaves the readers of an older table what they have', () => {
    const before = RouteTable.empty(3_000)
    const after = before.with(
      new Map([
        [1, 1],
        [1_025, 2],
        [3_000, 1],
      ]),
    )
    expect([before.known, before.lookup(1)]).toEqual([0, UNKNOWN])
    expect([after.known, after.lookup(1), after.lookup(1_025), after.lookup(3_000)]).toEqual([3, 1, 2, 1])
    expect([after.countOf(1), after.countOf(2)]).toEqual([2, 1])
    expect(after.generation).toBe(before.generation + 1)
  })

  it('is the same table when nothing changes', () => {
    const table = RouteTable.empty(10).with(new Map([[5, 1]]))
    expect(table.with(new Map([[5, 1]]))).toBe(table)
    expect(table.with(new Map())).toBe(table)
  })

  it('changes the first and the last bucket of each chunk and nothing beside them', () => {
    const edges = [1, 1_024, 1_025, 2_048, 2_049, 2_500]
    const table = RouteTable.empty(2_500).with(new Map(edges.map((bucketId) => [bucketId, 3])))
    const found = Array.from({ length: 2_500 }, (_, i) => i + 1).filter((bucketId) => table.lookup(bucketId) === 3)
    expect([found, table.known]).toEqual([edges, edges.length])
  })

  it('lists the buckets of a set within a range', () => {
    const table = RouteTable.empty(2_000).with(
      new Map([
        [3, 7],
        [1_500, 7],
        [2_000, 7],
        [4, 8],
      ]),
    )
    expect([...table.bucketsOf(7, 1, 2_001)]).toEqual([3, 1_500, 2_000])
    expect([...table.bucketsOf(7, 4, 1_501)]).toEqual([1_500])
  })

  it('holds a million buckets in a few MiB', () => {
    const table = RouteTable.empty(1_000_000)
    const changes = new Map(Array.from({ length: 1_000_000 }, (_, i) => [i + 1, (i % 3) + 1]))
    const full = table.with(changes)
    expect([full.known, full.countOf(1), full.lookup(1_000_000)]).toEqual([1_000_000, 333_334, 1])
  })
})
