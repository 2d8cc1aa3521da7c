/*
 * The engine against a model of a few lines: a list of tuples, sorted when it is read. Random operations on a space with three
 * indexes, alone, in transactions that are rolled back, and in transactions that overlap.
 */
import { VirtualClock } from '@orbweaver/connection/testing'
import { BoxError } from '@orbweaver/iproto'
import type { IteratorName } from '@orbweaver/iproto'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createStorage } from '../src/index.js'
import type { FunctionContext, SpaceHandle } from '../src/index.js'

type Tuple = [id: number, code: string | null, group: number]

type Operation =
  | { readonly do: 'insert' | 'replace'; readonly tuple: Tuple }
  | { readonly do: 'upsert'; readonly tuple: Tuple; readonly add: number }
  | { readonly do: 'regroup'; readonly id: number; readonly group: number }
  | { readonly do: 'recode'; readonly id: number; readonly code: string | null }
  | { readonly do: 'delete'; readonly id: number }
  | { readonly do: 'deleteByCode'; readonly code: string }
  | {
      readonly do: 'select'
      readonly index: IndexName
      readonly iterator: IteratorName
      readonly key: readonly unknown[]
      readonly offset: number
      readonly limit: number
    }

type IndexName = 'pk' | 'code' | 'group'

/** The fields of each index, those of the primary key behind them where entries need them to be distinct. */
const ORDER: Readonly<Record<IndexName, readonly number[]>> = { pk: [0], code: [1, 0], group: [2, 0] }
const WIDTH: Readonly<Record<IndexName, number>> = { pk: 1, code: 1, group: 2 }

class Model {
  tuples: Tuple[]

  constructor(tuples: readonly Tuple[] = []) {
    this.tuples = tuples.map((tuple) => [...tuple])
  }

  /** The answer, or the number of the error; a refused operation changes nothing. */
  run(operation: Operation): unknown {
    switch (operation.do) {
      case 'insert':
        return this.#find(operation.tuple[0]) === undefined ? this.#put(operation.tuple) : 3
      case 'replace':
        return this.#put(operation.tuple)
      case 'upsert': {
        const found = this.#find(operation.tuple[0])
        const next: Tuple = found === undefined ? operation.tuple : [found[0], found[1], found[2] + operation.add]
        const answer = this.#put(next)
        return typeof answer === 'number' ? answer : null
      }
      case 'regroup': {
        const found = this.#find(operation.id)
        return found === undefined ? null : this.#put([found[0], found[1], operation.group])
      }
      case 'recode': {
        const found = this.#find(operation.id)
        return found === undefined ? null : this.#put([found[0], operation.code, found[2]])
      }
      case 'delete':
        return this.#remove(this.#find(operation.id))
      case 'deleteByCode':
        return this.#remove(this.tuples.find((tuple) => tuple[1] === operation.code))
      case 'select':
        return this.#select(operation)
    }
  }

  #find(id: number): Tuple | undefined {
    return this.tuples.find((tuple) => tuple[0] === id)
  }

  #put(tuple: Tuple): unknown {
    const taken = this.tuples.some((other) => other[0] !== tuple[0] && tuple[1] !== null && other[1] === tuple[1])
    if (taken) return 3
    this.tuples = [...this.tuples.filter((other) => other[0] !== tuple[0]), tuple]
    return tuple
  }

  #remove(tuple: Tuple | undefined): unknown {
    this.tuples = this.tuples.filter((other) => other !== tuple)
    return tuple ?? null
  }

  #select({ index, iterator, key, offset, limit }: Extract<Operation, { do: 'select' }>): Tuple[] {
    const fields = ORDER[index]
    const sorted = this.tuples.toSorted((a, b) =>
      compare(
        fields.map((field) => a[field]),
        fields.map((field) => b[field]),
      ),
    )
    const side = (tuple: Tuple): number =>
      compare(
        key.map((_, i) => tuple[fields[i]!]),
        key,
      )
    const fits: Partial<Record<IteratorName, (order: number) => boolean>> = {
      EQ: (order) => order === 0,
      REQ: (order) => order === 0,
      ALL: (order) => order >= 0,
      GE: (order) => order >= 0,
      GT: (order) => order > 0 || key.length === 0,
      LE: (order) => order <= 0,
      LT: (order) => order < 0 || key.length === 0,
    }
    const found = sorted.filter((tuple) => fits[iterator]!(side(tuple)))
    if (['REQ', 'LE', 'LT'].includes(iterator)) found.reverse()
    return found.slice(offset, offset + limit)
  }
}

/** nil first, then numbers or strings; a key that ends first is equal so far. */
function compare(a: readonly unknown[], b: readonly unknown[]): number {
  for (let i = 0; i < Math.min(a.length, b.length); i++) {
    const left = a[i] as number | string | null
    const right = b[i] as number | string | null
    if (left === right) continue
    if (left === null || right === null) return left === null ? -1 : 1
    return left < right ? -1 : 1
  }
  return 0
}

function runOn(space: SpaceHandle<Tuple>, operation: Operation): unknown {
  try {
    switch (operation.do) {
      case 'insert':
        return space.insert(operation.tuple)
      case 'replace':
        return space.replace(operation.tuple)
      case 'upsert':
        space.upsert(operation.tuple, [['+', 'group', operation.add]])
        return null
      case 'regroup':
        return space.update([operation.id], [['=', 'group', operation.group]]) ?? null
      case 'recode':
        return space.update([operation.id], [['=', 'code', operation.code]]) ?? null
      case 'delete':
        return space.delete([operation.id]) ?? null
      case 'deleteByCode':
        return space.delete([operation.code], 'code') ?? null
      case 'select': {
        const { key, index, iterator, offset, limit } = operation
        return space.select(key, { index, iterator, offset, limit })
      }
    }
  } catch (error) {
    if (error instanceof BoxError) return error.boxCode
    throw error
  }
}

const id = fc.integer({ min: 0, max: 12 })
const code = fc.option(fc.constantFrom('a', 'b', 'c', 'd', 'é', '\uffff', '\u{1f600}'), { nil: null, freq: 3 })
const group = fc.integer({ min: 0, max: 3 })
const tuple = fc.tuple(id, code, group)
const iterator = fc.constantFrom<IteratorName>('EQ', 'REQ', 'ALL', 'GE', 'GT', 'LE', 'LT')
const range = { iterator, offset: fc.integer({ min: 0, max: 3 }), limit: fc.integer({ min: 0, max: 20 }) }
const operation: fc.Arbitrary<Operation> = fc.oneof(
  fc.record({ do: fc.constantFrom('insert', 'replace'), tuple }),
  fc.record({ do: fc.constant('upsert'), tuple, add: fc.integer({ min: 0, max: 2 }) }),
  fc.record({ do: fc.constant('regroup'), id, group }),
  fc.record({ do: fc.constant('recode'), id, code }),
  fc.record({ do: fc.constant('delete'), id }),
  fc.record({ do: fc.constant('deleteByCode'), code: fc.constantFrom('a', 'b', 'c', 'd') }),
  fc.record({
    do: fc.constant('select'),
    index: fc.constant('pk'),
    key: fc.array(id, { maxLength: WIDTH.pk }),
    ...range,
  }),
  fc.record({
    do: fc.constant('select'),
    index: fc.constant('code'),
    key: fc.array(code, { maxLength: WIDTH.code }),
    ...range,
  }),
  fc.record({
    do: fc.constant('select'),
    index: fc.constant('group'),
    key: fc.oneof(fc.array(group, { maxLength: 1 }), fc.tuple(group, id)),
    ...range,
  }),
) as fc.Arbitrary<Operation>

/** JavaScript orders text by UTF-16 units, Tarantool by bytes: the texts above are chosen so that only U+FFFF and the face differ. */
const BYTE_ORDER = new Map([
  ['\uffff', '\u{1}y'],
  ['\u{1f600}', '\u{1}z'],
])

/** The model compares plain text: those that differ are replaced by stand-ins that sort right behind everything else. */
function plain<T>(value: T): T {
  return JSON.parse(
    JSON.stringify(value, (_key, inner: unknown) =>
      typeof inner === 'string' && BYTE_ORDER.has(inner) ? `\u{fffd}${BYTE_ORDER.get(inner)!}` : inner,
    ),
  ) as T
}

interface Subject {
  readonly space: SpaceHandle<Tuple>
  /** Runs work with a context of its own, as a stored function. */
  with<T>(work: (context: FunctionContext) => T): T
  /** A context that stays. */
  context(): FunctionContext
}

function start(): Subject {
  const storage = createStorage({ name: 'one', environment: { clock: new VirtualClock(), random: () => 0.5 } })
  storage.start()
  storage.createSpace('s', {
    format: [
      { name: 'id', type: 'unsigned' },
      { name: 'code', type: 'string', isNullable: true },
      { name: 'group', type: 'unsigned' },
    ],
    indexes: [
      { name: 'pk', parts: ['id'] },
      { name: 'code', parts: ['code'] },
      { name: 'group', parts: ['group', 'id'], isUnique: false },
    ],
  })
  const kept: FunctionContext[] = []
  storage.define('keep', (context) => {
    kept.push(context)
  })
  const context = (): FunctionContext => {
    void storage.call('keep')
    return kept.pop()!
  }
  return { space: storage.space<Tuple>('s'), context, with: (work) => work(context()) }
}

class Undo extends Error {}

describe('a space under random operations', () => {
  it('answers and holds what the model does', () => {
    fc.assert(
      fc.property(fc.array(operation, { minLength: 1, maxLength: 120 }), (operations) => {
        const { space } = start()
        const model = new Model()
        for (const next of operations) expect(plain(runOn(space, next))).toEqual(model.run(plain(next)))
        expect(plain(space.select())).toEqual(model.run(ALL))
        expect(space.count()).toBe(model.tuples.length)
      }),
      { numRuns: 150 },
    )
  })

  it('has nothing of a transaction that was undone, and all of one that was not', () => {
    const step = fc.record({ operations: fc.array(operation, { maxLength: 12 }), isUndone: fc.boolean() })
    fc.assert(
      fc.property(fc.array(step, { maxLength: 15 }), (steps) => {
        const { space, with: run } = start()
        let model = new Model()
        for (const { operations, isUndone } of steps) {
          const next = new Model(model.tuples)
          try {
            run((context) =>
              context.atomic(() => {
                const inside = context.space<Tuple>('s')
                for (const each of operations) expect(plain(runOn(inside, each))).toEqual(next.run(plain(each)))
                if (isUndone) throw new Undo()
              }),
            )
            model = next
          } catch (error) {
            if (!(error instanceof Undo)) throw error
          }
          expect(plain(space.select())).toEqual(model.run(ALL))
          for (const index of ['code', 'group'] as const)
            expect(plain(space.select([], { index }))).toEqual(model.run({ ...ALL, index }))
        }
      }),
      { numRuns: 100 },
    )
  })

  it('lets overlapping transactions end as if each had run alone at its commit, or not at all', () => {
    const step = fc.oneof(
      { weight: 3, arbitrary: fc.record({ who: fc.integer({ min: 0, max: 2 }), run: operation }) },
      {
        weight: 2,
        arbitrary: fc.record({
          who: fc.integer({ min: 0, max: 2 }),
          end: fc.constantFrom('commit', 'commit', 'rollback'),
        }),
      },
    )
    let committed = 0
    let refused = 0
    fc.assert(
      fc.property(fc.array(step, { minLength: 30, maxLength: 100 }), (steps) => {
        const { space, context } = start()
        const model = new Model()
        const open: ({ context: FunctionContext; did: { operation: Operation; answer: unknown }[] } | undefined)[] = []
        const abort = (who: number): void => {
          refused++
          open[who] = undefined
        }
        for (const next of steps) {
          const { who } = next
          if ('run' in next) {
            if (open[who] === undefined) {
              open[who] = { context: context(), did: [] }
              open[who].context.begin()
            }
            const answer = runOn(open[who].context.space<Tuple>('s'), next.run)
            if (answer === 97) abort(who)
            else open[who].did.push({ operation: next.run, answer })
          } else if (open[who] !== undefined) {
            const { context: owner, did } = open[who]
            open[who] = undefined
            try {
              owner[next.end]()
              if (next.end === 'commit') {
                committed++
                for (const { operation: done, answer } of did) expect(plain(answer)).toEqual(model.run(plain(done)))
              }
            } catch (error) {
              if (!(error instanceof BoxError) || error.boxCode !== 97) throw error
              refused++
            }
          }
          // Nobody sees what is not committed.
          expect(plain(space.select())).toEqual(model.run(ALL))
        }
      }),
      { numRuns: 200 },
    )
    expect(committed).toBeGreaterThan(50)
    expect(refused).toBeGreaterThan(10)
  })
})

const ALL: Extract<Operation, { do: 'select' }> = {
  do: 'select',
  index: 'pk',
  iterator: 'ALL',
  key: [],
  offset: 0,
  limit: 1_000,
}
