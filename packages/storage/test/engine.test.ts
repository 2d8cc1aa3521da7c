import { BoxError, Decimal, decodeValue, Double, encodeValue, IteratorType } from '@orbweaver/iproto'
import fc from 'fast-check'
import { beforeEach, describe, expect, it } from 'vitest'
import { createStorage } from '../src/index.js'
import type { SpaceHandle, Storage } from '../src/index.js'
import { Engine } from '../src/engine/engine.js'
import { buildSpace } from '../src/engine/index-builder.js'
import { indexTuple, spaceTuple, SYSTEM_SPACE } from '../src/engine/schema.js'
import type { Space } from '../src/engine/space.js'

function codeOf(work: () => unknown): number | undefined {
  try {
    work()
    return undefined
  } catch (error) {
    if (!(error instanceof BoxError)) throw error
    return error.boxCode
  }
}

let storage: Storage
let people: SpaceHandle

beforeEach(() => {
  storage = createStorage({ name: 'one' })
  storage.createSpace('people', {
    format: [
      { name: 'id', type: 'unsigned' },
      { name: 'name', type: 'string' },
      { name: 'age', type: 'unsigned', isNullable: true },
      { name: 'extra', type: 'any' },
    ],
    indexes: [
      { name: 'id', parts: ['id'] },
      { name: 'name', parts: ['name'] },
      { name: 'age', parts: ['age'], isUnique: false },
    ],
  })
  people = storage.space('people')
})

describe('a space', () => {
  it('takes what fits and answers by key, in the order of each index', () => {
    people.insert([2, 'bob', 40])
    people.insert([1, 'ann', 50])
    people.insert([3, 'cid', 40])
    expect(people.get([2])).toEqual([2, 'bob', 40])
    expect(people.get(['ann'], 'name')).toEqual([1, 'ann', 50])
    expect(people.select()).toEqual([
      [1, 'ann', 50],
      [2, 'bob', 40],
      [3, 'cid', 40],
    ])
    expect(people.select([40], { index: 'age' })).toEqual([
      [2, 'bob', 40],
      [3, 'cid', 40],
    ])
    expect(people.select([], { index: 'age', iterator: 'REQ' })).toEqual([
      [1, 'ann', 50],
      [3, 'cid', 40],
      [2, 'bob', 40],
    ])
    expect(people.count()).toBe(3)
  })

  it.each<[string, unknown[], number]>([
    ['a string where a number belongs', ['1', 'x'], 23],
    ['a double where an unsigned belongs', [new Double(1), 'x'], 23],
    ['a negative number', [-1, 'x'], 23],
    ['nil in a field that needs a value', [1, null], 23],
    ['a missing field', [1], 39],
    ['bytes where a string belongs', [1, Buffer.from('x')], 23],
  ])('refuses %s', (_what, tuple, code) => {
    expect(codeOf(() => people.insert(tuple))).toBe(code)
    expect(people.count()).toBe(0)
  })

  it('leaves no trace of a refused change, in any index', () => {
    people.insert([1, 'ann', 50])
    expect(codeOf(() => people.insert([1, 'bob']))).toBe(3)
    expect(codeOf(() => people.insert([2, 'ann']))).toBe(3)
    expect(codeOf(() => people.replace([2, 'ann']))).toBe(3)
    expect(people.select()).toEqual([[1, 'ann', 50]])
    expect(people.select([], { index: 'name' })).toEqual([[1, 'ann', 50]])
    expect(people.select([], { index: 'age' })).toEqual([[1, 'ann', 50]])
  })

  it('keeps nils of a nullable index apart by the primary key', () => {
    people.insert([1, 'a', null])
    people.insert([2, 'b'])
    people.insert([3, 'c', 1])
    expect(people.select([null], { index: 'age' })).toEqual([
      [1, 'a', null],
      [2, 'b'],
    ])
    expect(people.select([], { index: 'age' })).toEqual([
      [1, 'a', null],
      [2, 'b'],
      [3, 'c', 1],
    ])
  })

  it.each<[string, readonly unknown[], object, number]>([
    ['a key with too many parts', [1, 2], {}, 31],
    ['a key of the wrong type', ['x'], {}, 18],
    ['an iterator of another kind of index', [1], { iterator: 'NEIGHBOR' }, 112],
    ['an index that does not exist', [1], { index: 'nope' }, 35],
  ])('refuses %s', (_what, key, options, code) => {
    expect(codeOf(() => people.select(key, options))).toBe(code)
  })

  it('names tuples for update and delete by a full key of a unique index only', () => {
    people.insert([1, 'ann', 50])
    expect(codeOf(() => people.update([50], [['=', 'name', 'x']], 'age'))).toBe(41)
    expect(codeOf(() => people.delete([]))).toBe(19)
    expect(people.update(['ann'], [['=', 'age', 51]], 'name')).toEqual([1, 'ann', 51])
    expect(people.delete([1])).toEqual([1, 'ann', 51])
    expect(people.delete([1])).toBeUndefined()
    expect(people.update([1], [['=', 'age', 51]])).toBeUndefined()
  })

  it('is empty and healthy after a thousand inserts and deletes of its only row', () => {
    for (let i = 0; i < 1_000; i++) {
      people.insert([1, 'only', i])
      people.delete([1])
    }
    expect(people.count()).toBe(0)
    expect(people.select([], { index: 'name' })).toEqual([])
    people.insert([1, 'only', 1])
    expect(people.select()).toEqual([[1, 'only', 1]])
  })

  it('can be dropped with its contents and made again', () => {
    people.insert([1, 'ann'])
    storage.dropSpace('people')
    expect(codeOf(() => storage.space('people'))).toBe(36)
    storage.createSpace('people', { format: [{ name: 'id', type: 'string' }] })
    storage.space('people').insert(['ann'])
    expect(storage.space('people').select()).toEqual([['ann']])
  })

  it('refuses a definition that cannot work, by name', () => {
    expect(() => storage.createSpace('bad', { format: [] })).toThrow(/no fields/)
    expect(() => storage.createSpace('bad', { format: [{ name: 'a', type: 'map' }] })).toThrow(/'primary'.*'a'.*'map'/)
    expect(() =>
      storage.createSpace('bad', {
        format: [{ name: 'a', type: 'unsigned' }],
        indexes: [{ name: 'pk', parts: ['b'] }],
      }),
    ).toThrow(/'b'/)
    expect(codeOf(() => storage.createSpace('people', { format: [{ name: 'a', type: 'unsigned' }] }))).toBe(3)
  })
})

describe('update operations', () => {
  it.each<[string, unknown[], unknown[][], unknown[]]>([
    [
      'assign by name and by number',
      [1, 'a', 5],
      [
        ['=', 'name', 'b'],
        ['=', 2, 6],
      ],
      [1, 'b', 6],
    ],
    ['append behind the last field', [1, 'a', 5], [['=', 3, 'new']], [1, 'a', 5, 'new']],
    ['count from the end', [1, 'a', 5], [['+', -1, 2]], [1, 'a', 7]],
    ['subtract', [1, 'a', 5], [['-', 'age', 5]], [1, 'a', 0]],
    [
      'combine bits',
      [1, 'a', 6],
      [
        ['&', 'age', 3],
        ['|', 'age', 8],
        ['^', 'age', 1],
      ],
      [1, 'a', 11],
    ],
    ['splice bytes', [1, 'abcdef', 5], [[':', 'name', 1, 3, 'X']], [1, 'aXef', 5]],
    ['splice from the end', [1, 'abc', 5], [[':', 'name', -2, 1, '!']], [1, 'ab!', 5]],
    [
      'insert and delete fields',
      [1, 'a', 5, 'x'],
      [
        ['#', 3, 1],
        ['!', 3, 'y'],
      ],
      [1, 'a', 5, 'y'],
    ],
    ['assign inside a map', [1, 'a', 5, { b: [1, 2] }], [['=', 'extra.b[2]', 9]], [1, 'a', 5, { b: [1, 9] }]],
    ['add inside a map', [1, 'a', 5, { n: 1 }], [['+', 'extra["n"]', 1]], [1, 'a', 5, { n: 2 }]],
    ['delete inside a map', [1, 'a', 5, { n: 1, m: 2 }], [['#', 'extra.n', 1]], [1, 'a', 5, { m: 2 }]],
  ])('%s', (_what, before, operations, after) => {
    people.insert(before)
    expect(people.update([1], operations)).toEqual(after)
    expect(people.get([1])).toEqual(after)
  })

  it.each<[string, unknown[], number]>([
    ['an unknown operation', ['~', 'age', 1], 28],
    ['a field that is not there', ['+', 9, 1], 37],
    ['a field far behind the end', ['=', 9, 1], 37],
    ['arithmetic on a string', ['+', 'name', 1], 26],
    ['a string as argument', ['+', 'age', 'x'], 26],
    ['bits of a negative number', ['&', 'age', -1], 26],
    ['a sum beyond 64 bits', ['+', 'age', 18_446_744_073_709_551_615n], 95],
    ['a result of the wrong type', ['=', 'name', 5], 23],
    ['a change of the primary key', ['=', 'id', 2], 94],
    ['a broken path', ['=', 'extra..x', 1], 1],
  ])('refuse %s and change nothing', (_what, operation, code) => {
    people.insert([1, 'a', 5, {}])
    expect(codeOf(() => people.update([1], [operation]))).toBe(code)
    expect(people.get([1])).toEqual([1, 'a', 5, {}])
  })

  it('keep the kind of the numbers they touch and the bytes of the fields they do not', () => {
    const { engine, space } = bareSpace()
    const tuple = encodeValue([1, new Double(3), new Double(5), Decimal.from('1.50')])
    engine.insert(undefined, space, tuple)
    const next = engine.update(undefined, space, encodeValue([1]), [['+', 1, 1]])!
    expect(next.toString('hex')).toBe(
      encodeValue([1, new Double(4), new Double(5), Decimal.from('1.50')]).toString('hex'),
    )
  })

  it('of UPSERT insert when there is nothing, and skip fields that are not there', () => {
    people.upsert([1, 'a', 5], [['+', 'age', 1]])
    expect(people.get([1])).toEqual([1, 'a', 5])
    people.upsert(
      [1, 'a', 5],
      [
        ['+', 'age', 1],
        ['+', 7, 1],
      ],
    )
    expect(people.get([1])).toEqual([1, 'a', 6])
  })
})

describe('a transaction', () => {
  it('is all or nothing', async () => {
    storage.define('move', (context, amount) =>
      context.atomic(() => {
        context.space('people').update([1], [['-', 'age', amount]])
        context.space('people').update([2], [['+', 'age', amount]])
        return true
      }),
    )
    people.insert([1, 'ann', 10])
    people.insert([2, 'bob', 10])
    expect(await storage.call('move', 3)).toEqual([true])
    await expect(storage.call('move', 100)).rejects.toThrow(/type does not match/)
    expect(people.select().map(([, , age]) => age)).toEqual([7, 13])
  })

  it('refuses to wait', async () => {
    storage.define('wait', (context) => context.atomic(() => Promise.resolve(1)))
    await expect(storage.call('wait')).rejects.toThrow(/must not wait/)
  })
})

function bareSpace(): { engine: Engine; space: Space } {
  const engine = new Engine()
  const { definition, indexes } = buildSpace(512, 's', { format: [{ name: 'id', type: 'unsigned' }] })
  engine.run(undefined, (transaction) => {
    engine.insert(transaction, engine.schema.get(SYSTEM_SPACE.space), spaceTuple(definition))
    for (const index of indexes)
      engine.insert(transaction, engine.schema.get(SYSTEM_SPACE.index), indexTuple(512, index))
  })
  return { engine, space: engine.schema.get(512) }
}

describe('iterators', () => {
  const ITERATORS = [
    IteratorType.eq,
    IteratorType.req,
    IteratorType.all,
    IteratorType.lt,
    IteratorType.le,
    IteratorType.ge,
    IteratorType.gt,
  ] as const

  /** What each iterator means, on a sorted array: the independent model. */
  function model(keys: readonly number[], iterator: number, key: number | undefined): number[] {
    const up = keys.toSorted((a, b) => a - b)
    const down = up.toReversed()
    if (key === undefined)
      return iterator === IteratorType.req || iterator === IteratorType.lt || iterator === IteratorType.le ? down : up
    switch (iterator) {
      case IteratorType.eq:
        return up.filter((k) => k === key)
      case IteratorType.req:
        return down.filter((k) => k === key)
      case IteratorType.lt:
        return down.filter((k) => k < key)
      case IteratorType.le:
        return down.filter((k) => k <= key)
      case IteratorType.gt:
        return up.filter((k) => k > key)
      default:
        return up.filter((k) => k >= key)
    }
  }

  it('and pages agree with a sorted list, for every iterator, key and page size', () => {
    fc.assert(
      fc.property(
        fc.uniqueArray(fc.integer({ min: 0, max: 30 }), { maxLength: 20 }),
        fc.constantFrom(...ITERATORS),
        fc.option(fc.integer({ min: 0, max: 30 }), { nil: undefined }),
        fc.integer({ min: 1, max: 7 }),
        (keys, iterator, key, limit) => {
          const { engine, space } = bareSpace()
          for (const id of keys) engine.insert(undefined, space, encodeValue([id]))
          const encoded = encodeValue(key === undefined ? [] : [key])
          const whole = engine
            .select(undefined, space, { iterator, key: encoded })
            .map((tuple) => (decodeValue(tuple) as [number])[0])
          expect(whole).toEqual(model(keys, iterator, key))
          const paged: number[] = []
          let last: Buffer | undefined
          for (;;) {
            const page = engine.select(undefined, space, {
              iterator,
              key: encoded,
              limit,
              ...(last === undefined ? {} : { after: { tuple: last } }),
            })
            paged.push(...page.map((tuple) => (decodeValue(tuple) as [number])[0]))
            if (page.length < limit) break
            last = page.at(-1)
          }
          expect(paged).toEqual(whole)
        },
      ),
    )
  })

  it('continue at the start of the range when the cursor lies before it, and find nothing behind it', () => {
    const { engine, space } = bareSpace()
    for (const id of [1, 2, 3, 4]) engine.insert(undefined, space, encodeValue([id]))
    const ids = (iterator: number, key: number, after: number): number[] =>
      engine
        .select(undefined, space, { iterator, key: encodeValue([key]), after: { tuple: encodeValue([after]) } })
        .map((tuple) => (decodeValue(tuple) as [number])[0])
    expect(ids(IteratorType.ge, 3, 1)).toEqual([3, 4])
    expect(ids(IteratorType.ge, 3, 3)).toEqual([4])
    expect(ids(IteratorType.ge, 3, 99)).toEqual([])
    expect(ids(IteratorType.le, 2, 4)).toEqual([2, 1])
    expect(ids(IteratorType.le, 2, 0)).toEqual([])
    expect(ids(IteratorType.eq, 2, 1)).toEqual([2])
    expect(ids(IteratorType.eq, 2, 2)).toEqual([])
  })
})

describe('definitions in transactions', () => {
  it('come back with all contents when a drop is undone', () => {
    people.insert([1, 'ann', 30, null])
    people.insert([2, 'bob', null, null])
    storage.define('dropAndThrow', (context) => {
      context.atomic(() => {
        const { id } = context.space('people')
        context.space('people').delete([1])
        context.space('people').delete([2])
        for (const index of [2, 1, 0]) context.space('_index').delete([id, index])
        context.space('_space').delete([id])
        expect(() => context.space('people')).toThrow(BoxError)
        throw new Error('changed its mind')
      })
    })
    return expect(storage.call('dropAndThrow'))
      .rejects.toThrow('changed its mind')
      .then(() => {
        expect(people.select()).toEqual([
          [1, 'ann', 30, null],
          [2, 'bob', null, null],
        ])
        expect(storage.space('people').select(['bob'], { index: 'name' })).toEqual([[2, 'bob', null, null]])
        people.insert([3, 'cid', 40, null])
        expect(storage.space('people').count()).toBe(3)
      })
  })

  it('leave handles of a space usable when it is made anew', () => {
    storage.dropSpace('people')
    expect(codeOf(() => people.count())).toBe(36)
    storage.createSpace('people', { format: [{ name: 'id', type: 'unsigned' }] })
    people.insert([7])
    expect(people.select()).toEqual([[7]])
  })

  it('go away with all contents when a creation is undone', async () => {
    storage.define('createAndThrow', (context) => {
      context.atomic(() => {
        context.space('_space').insert([600, 1, 'brief', 'memtx', 0, {}, [{ name: 'id', type: 'unsigned' }]])
        context.space('_index').insert([600, 0, 'pk', 'tree', { unique: true }, [[0, 'unsigned']]])
        context.space('brief').insert([1])
        throw new Error('changed its mind')
      })
    })
    await expect(storage.call('createAndThrow')).rejects.toThrow('changed its mind')
    expect(codeOf(() => storage.space('brief'))).toBe(36)
  })

  it('are refused where the transaction may last over waits', async () => {
    storage.define('drop', (context) => {
      context.begin()
      context.space('_index').delete([context.space('people').id, 2])
    })
    await expect(storage.call('drop')).rejects.toMatchObject({ boxCode: 5 })
  })

  it('end open transactions on a space that is dropped meanwhile', async () => {
    const release: (() => void)[] = []
    storage.define('slow', async (context) => {
      context.begin()
      context.space('people').insert([1, 'ann', 30, null])
      await new Promise<void>((resolve) => release.push(resolve))
      context.commit()
    })
    const slow = storage.call('slow')
    storage.dropSpace('people')
    storage.createSpace('people', { format: [{ name: 'id', type: 'unsigned' }] })
    release[0]!()
    await expect(slow).rejects.toMatchObject({ boxCode: 97 })
    expect(storage.space('people').count()).toBe(0)
  })
})
