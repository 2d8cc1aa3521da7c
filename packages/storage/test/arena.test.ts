import { compareValues, decodeValue, Double, encodeValue } from '@orbweaver/iproto'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Arena } from '../src/engine/arena.js'
import { buildSpace } from '../src/engine/index-builder.js'
import { Space } from '../src/engine/space.js'
import { fieldOffsets } from '../src/engine/tuple.js'
import { compareEncoded, compareParts } from '../src/engine/tuple-order.js'
import type { Edge } from '../src/engine/tuple-order.js'

type Row = [id: string, group: number, text: string]

/** Keys of every kind: text, repeated numbers, and text that may be missing. */
function makeSpace(): Space {
  const { definition, indexes } = buildSpace(512, 's', {
    format: [
      { name: 'id', type: 'string' },
      { name: 'group', type: 'unsigned' },
      { name: 'text', type: 'string', isNullable: true },
    ],
    indexes: [
      { name: 'pk', parts: ['id'] },
      { name: 'group', parts: ['group'], isUnique: false },
      { name: 'text', parts: ['text', 'id'] },
    ],
  })
  return new Space(definition, indexes)
}

function rowsIn(tuples: Iterable<Buffer>): Row[] {
  return [...tuples].map((tuple) => decodeValue(tuple) as Row)
}

function seeded(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 0x1_0000_0000) * below)
  }
}

describe('a space whose rows change all the time', () => {
  it('holds what was put, in the order of every index, and little more memory than that', () => {
    const next = seeded(11)
    const space = makeSpace()
    const model = new Map<string, Row>()
    for (let step = 0; step < 30_000; step++) {
      const id = `id${next(400)}`
      if (next(4) === 0) {
        const change = space.remove(encodeValue([id]))
        expect(change === undefined).toBe(!model.delete(id))
      } else {
        const row: Row = [id, next(20), 'x'.repeat(50 + next(400))]
        space.put(Buffer.from(encodeValue(row)), 'replace')
        model.set(id, row)
      }
      if (step % 1_000 !== 999) continue
      const byId = [...model.values()].toSorted((a, b) => (a[0] < b[0] ? -1 : 1))
      expect(rowsIn(space.tuples())).toEqual(byId)
      for (const index of ['group', 'text']) {
        const at = index === 'group' ? 1 : 2
        const expected = byId.toSorted((a, b) => (a[at] < b[at] ? -1 : a[at] > b[at] ? 1 : a[0] < b[0] ? -1 : 1))
        expect(rowsIn(space.index(index).tuples())).toEqual(expected)
      }
      expect(space.memory).toBeLessThan(2 * space.bytes + 128 * 1024)
    }
    for (const id of model.keys()) space.remove(encodeValue([id]))
    expect(space.size).toBe(0)
    expect(space.memory).toBeLessThan(128 * 1024)
  })

  it('shows a frozen view as it was, however much is written behind it', () => {
    const next = seeded(12)
    const space = makeSpace()
    for (let i = 0; i < 500; i++) space.put(Buffer.from(encodeValue([`id${i}`, i, 'x'.repeat(200)])), 'insert')
    const before = rowsIn(space.tuples())
    const frozen = space.frozenTuples()
    for (let step = 0; step < 10_000; step++)
      space.put(Buffer.from(encodeValue([`id${next(500)}`, next(500), 'y'.repeat(next(300))])), 'replace')
    expect(rowsIn(frozen)).toEqual(before)
  })

  it('keeps what was read, unchanged, for as long as somebody looks at it', () => {
    const space = makeSpace()
    space.put(Buffer.from(encodeValue(['a', 1, 'first'])), 'insert')
    const kept = space.primary.find(encodeValue(['a']))!
    for (let i = 0; i < 5_000; i++) space.put(Buffer.from(encodeValue(['a', 1, `later ${i}`])), 'replace')
    expect(decodeValue(kept)).toEqual(['a', 1, 'first'])
  })
})

describe('an arena', () => {
  it('gives the memory of removed tuples back', () => {
    const arena = new Arena()
    const refs = Array.from({ length: 10_000 }, (_, i) => arena.add(Buffer.alloc(100, i & 255)))
    for (const [i, ref] of refs.entries()) expect(arena.get(ref)[99]).toBe(i & 255)
    const full = arena.used
    for (const ref of refs.slice(0, 9_000)) {
      arena.release(ref)
      arena.closeHoles(4)
    }
    expect(arena.used).toBeLessThan(full / 2)
    for (const [i, ref] of refs.slice(9_000).entries()) expect(arena.get(ref)[0]).toBe((9_000 + i) & 255)
  })

  it('takes a tuple of any size', () => {
    const arena = new Arena()
    const sizes = [0, 1, 4, 7, 8, 4_095, 4_096, 1_000_000, 4_194_296]
    const refs = sizes.map((size) => arena.add(Buffer.alloc(size, 7)))
    expect(refs.map((ref) => arena.get(ref).length)).toEqual(sizes)
  })
})

describe('encoded values', () => {
  it('are in the order of the decoded ones', () => {
    const value = fc.oneof(
      fc.maxSafeNat(),
      fc.maxSafeInteger(),
      fc.bigInt({ min: -(2n ** 63n), max: 2n ** 64n - 1n }),
      fc.nat({ max: 300 }),
      fc.double({ noNaN: true }).map((float) => new Double(float)),
      fc.string({ unit: 'binary', maxLength: 80 }),
      fc.string({ maxLength: 3 }),
      fc.constant(null),
      fc.boolean(),
    )
    fc.assert(
      fc.property(value, value, (a, b) => {
        const left = Buffer.from(encodeValue(a))
        const right = Buffer.from(encodeValue(b))
        const order = compareEncoded(left, 0, right, 0)
        expect(Math.sign(order)).toBe(Math.sign(compareValues(decodeValue(left), decodeValue(right))))
        expect(Math.sign(compareEncoded(right, 0, left, 0)) + Math.sign(order)).toBe(0)
      }),
      { numRuns: 2_000 },
    )
  })

  it('put a key before the longer ones it begins, unless its edge lies behind them', () => {
    const order = (a: unknown[], b: unknown[], edgeA: Edge = 0, edgeB: Edge = 0): number => {
      const [left, right] = [encodeValue(a), encodeValue(b)]
      return Math.sign(compareParts(left, fieldOffsets(left), right, fieldOffsets(right), edgeA, edgeB))
    }
    expect(order(['a'], ['a', 1])).toBe(-1)
    expect(order(['a'], ['a', 1], 1)).toBe(1)
    expect(order(['a', 1], ['a'], 0, 1)).toBe(-1)
    expect(order(['a'], ['a'], -1, 0)).toBe(-1)
    expect(order(['a'], ['a'], 0, 1)).toBe(-1)
    expect(order(['b'], ['a', 1])).toBe(1)
  })
})
