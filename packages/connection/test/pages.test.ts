import { UnsupportedFeatureError } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { pagingByKey } from '../src/pages.js'
import type { IndexDefinition } from '../src/schema.js'

const primary: IndexDefinition = { id: 0, name: 'pk', type: 'tree', isUnique: true, keyFields: [0, 1] }

describe('pagingByKey', () => {
  it.each([
    ['ALL', [], 'GT'],
    ['GE', [1], 'GT'],
    ['GT', [1], 'GT'],
    ['LE', [1], 'LT'],
    ['LT', [1], 'LT'],
    ['EQ', [], 'GT'],
    ['REQ', [], 'LT'],
    [undefined, [], 'GT'],
    [2, [], 'GT'],
    [5, [1], 'GT'],
    ['EQ', [1, 2], undefined],
    ['REQ', [1, 2], undefined],
  ] as const)('goes on behind %s of key %j with %s', (iterator, key, following) => {
    expect(pagingByKey(primary, key, iterator)).toEqual({ keyFields: [0, 1], following })
  })

  it.each([
    [primary, [1], 'EQ', /part of the key/],
    [primary, [1], undefined, /part of the key/],
    [primary, [1], 'OVERLAPS', /no order/],
    [primary, [1], 12, /no order/],
    [{ ...primary, id: 1, name: 'by_age' }, [], 'ALL', /'by_age' is not the primary/],
    [{ ...primary, type: 'hash' }, [], 'ALL', /type hash/],
    [{ ...primary, keyFields: undefined }, [], 'ALL', /inside a field/],
  ] as const)('refuses what would pass over rows or repeat them: %j %j %s', (index, key, iterator, why) => {
    expect(() => pagingByKey(index, key, iterator)).toThrow(UnsupportedFeatureError)
    expect(() => pagingByKey(index, key, iterator)).toThrow(why)
  })
})
