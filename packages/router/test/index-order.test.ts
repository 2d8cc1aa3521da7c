/* Which indexes can be merged, and in what order: by rows of `_vindex` as Tarantool 3.2.1 gave them. */
import { Decimal } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { UnmergeableError } from '../src/index.js'
import { compareRowKeys, indexOrder, keyOf, wireKey } from '../src/pages/index-order.js'
import type { IndexRow } from '../src/pages/index-order.js'

const PRIMARY: IndexRow = [512, 0, 'pk', 'tree', { unique: true }, [[0, 'unsigned']]]
const BUCKET: IndexRow = [512, 1, 'bucket_id', 'tree', { unique: false }, [[1, 'unsigned']]]

describe('an index is refused', () => {
  it.each<[string, IndexRow, string]>([
    [
      'that is multikey',
      [512, 5, 'mk', 'tree', { unique: false }, [{ field: 4, type: 'unsigned', path: '[*]' }]],
      "Index 'mk' of space 's' is multikey: a row would be listed once for each of its keys",
    ],
    [
      'that is functional',
      [512, 6, 'fn', 'tree', { unique: false, func: 66 }, [[0, 'unsigned']]],
      "Index 'fn' of space 's' is functional: the order of its keys cannot be computed from the rows",
    ],
    [
      'over a path inside a field',
      [512, 7, 'in', 'tree', { unique: false }, [{ field: 4, type: 'unsigned', path: '.a' }]],
      "Index 'in' of space 's' is over .a inside a field, which cannot be merged",
    ],
    [
      'with a collation of ICU',
      [512, 4, 'ci', 'tree', { unique: false }, [{ field: 5, type: 'string', collation: 2 }]],
      "Index 'ci' of space 's' has the collation 2, whose order cannot be reproduced",
    ],
    [
      'that is a hash',
      [512, 8, 'h', 'HASH', { unique: true }, [[0, 'unsigned']]],
      "Index 'h' of space 's' is of type HASH: only a tree has an order",
    ],
    [
      'over a type without order',
      [512, 9, 'r', 'tree', { unique: false }, [[3, 'array']]],
      "Index 'r' of space 's' is over a field of type array, which cannot be merged",
    ],
  ])('%s', (_what, index, message) => {
    expect(() => indexOrder('s', index, PRIMARY, BUCKET)).toThrow(UnmergeableError)
    expect(() => indexOrder('s', index, PRIMARY, BUCKET)).toThrow(message)
  })

  it('of a space without an index over bucket ids', () => {
    expect(() => indexOrder('s', PRIMARY, PRIMARY, undefined)).toThrow("Space 's' is not sharded")
  })
})

describe('the order of rows', () => {
  it('is that of the index, then of the primary key, then of the bucket', () => {
    const index: IndexRow = [512, 2, 'v', 'tree', { unique: false }, [{ field: 2, is_nullable: true, type: 'number' }]]
    const order = indexOrder('s', index, PRIMARY, BUCKET)
    expect(order).toMatchObject({ ownParts: 1, shardParts: 2, primary: [1], isExact: false })
    const rows = [
      [5, 1, 1],
      [4, 1, 2],
      [3, 2],
      [5, 2, 1],
      [6, 1, Decimal.from('1.5')],
    ]
    const sorted = rows.toSorted((a, b) => compareRowKeys(order, keyOf(order, a), keyOf(order, b)))
    expect(sorted).toEqual([
      [3, 2],
      [5, 1, 1],
      [5, 2, 1],
      [6, 1, Decimal.from('1.5')],
      [4, 1, 2],
    ])
  })

  it('runs down where a part does', () => {
    const index: IndexRow = [
      512,
      4,
      'de',
      'tree',
      { unique: false },
      [
        { field: 0, sort_order: 'desc', type: 'unsigned' },
        { field: 5, is_nullable: true, collation: 3, type: 'string' },
      ],
    ]
    const order = indexOrder('s', index, PRIMARY, BUCKET)
    expect(order.parts.map(({ field }) => field)).toEqual([0, 5, 1])
    expect(compareRowKeys(order, [1, 'a', 1], [2, 'a', 1])).toBeGreaterThan(0)
    expect(compareRowKeys(order, [2, 'a', 1], [2, 'b', 1])).toBeLessThan(0)
  })

  it('knows the primary key, and a unique index without nil, to name one row of a shard', () => {
    const unique = (isNullable: boolean): IndexRow => [
      512,
      3,
      'u',
      'tree',
      { unique: true },
      [{ field: 2, type: 'string', is_nullable: isNullable }],
    ]
    expect(indexOrder('s', PRIMARY, PRIMARY, BUCKET).isExact).toBe(true)
    expect(indexOrder('s', unique(false), PRIMARY, BUCKET).isExact).toBe(true)
    expect(indexOrder('s', unique(true), PRIMARY, BUCKET).isExact).toBe(false)
  })

  it('sends whole numbers of a field of doubles as doubles', () => {
    const index: IndexRow = [512, 3, 'd', 'tree', { unique: false }, [[3, 'double']]]
    const order = indexOrder('s', index, PRIMARY, BUCKET)
    expect(wireKey(order, [2, 7])).toEqual([{ value: 2 }, 7])
  })
})
