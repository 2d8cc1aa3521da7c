import {
  ByteString,
  Datetime,
  Decimal,
  Double,
  encodeValue,
  Float,
  InvalidArgumentError,
  Tuple,
  Uuid,
} from '@orbweaver/iproto'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  type BigintText,
  bucketIdMpcrc32,
  bucketIdStrcrc32,
  mpcrc32,
  type ShardingKey,
  strcrc32,
} from '../src/index.js'
import { readVectors, valueOf } from './vectors.js'

interface HashVector {
  readonly fedHex: string
  readonly hash: number
  readonly buckets: Readonly<Record<string, number>>
}

interface KeyVector {
  readonly group: string
  readonly lua: string
  readonly key: unknown
  readonly mpcrc32?: HashVector
  readonly strcrc32?: HashVector
}

const { cases } = readVectors<{ cases: readonly KeyVector[] }>('bucket-ids')

/** The key as our users would hold what the vector's Lua text says. */
function keyOf({ group, lua, key }: KeyVector): ShardingKey {
  if (lua === '-0.0') return -0
  if (lua.startsWith('ffi.new("double"')) return new Double(Number(valueOf(key)))
  if (group === 'tuple') return new Tuple(valueOf(key) as unknown[], [])
  const value = valueOf(key)
  // A Lua number beyond 2^53 is a double there and a number here; a 64-bit integer of Lua is a bigint.
  if (group === 'number' && typeof value === 'bigint') return Number(value)
  if (group === 'int64' && typeof value === 'number') return BigInt(value)
  if (/\dULL,/.test(lua)) return (value as number[]).map((item) => BigInt(item))
  return value as ShardingKey
}

/** How the Lua side spelled the 64-bit integers of the key. */
function bigintsOf(lua: string): BigintText {
  if (/\dULL/.test(lua)) return 'ULL'
  return /\dLL/.test(lua) ? 'LL' : 'auto'
}

describe('mpcrc32 equals vshard for every recorded key', () => {
  for (const vector of cases) {
    const want = vector.mpcrc32
    if (want === undefined || vector.lua === '0/0') continue
    test(`${vector.group} ${vector.lua.slice(0, 60)}`, () => {
      const key = keyOf(vector)
      expect(mpcrc32(key)).toBe(want.hash)
      for (const [count, id] of Object.entries(want.buckets)) expect(bucketIdMpcrc32(key, Number(count))).toBe(id)
    })
  }
})

describe('strcrc32 equals vshard for every recorded key', () => {
  for (const vector of cases) {
    const want = vector.strcrc32
    if (want === undefined) continue
    test(`${vector.group} ${vector.lua.slice(0, 60)}`, () => {
      const key = keyOf(vector)
      const bigints = bigintsOf(vector.lua)
      expect(strcrc32(key, { bigints })).toBe(want.hash)
      for (const [count, id] of Object.entries(want.buckets)) {
        expect(bucketIdStrcrc32(key, Number(count), { bigints })).toBe(id)
      }
    })
  }
})

describe('the bucket depends on the value only', () => {
  // Computed with the Lua implementation: 30000 buckets.
  const ids: [bigint, number][] = [
    [0n, 2255],
    [1n, 7614],
    [123n, 13097],
    [-1n, 7216],
    [2147483648n, 2511],
    [4294967296n, 25980],
    [9007199254740992n, 3467],
    [922337203685477580n, 20992],
    [18446744073709551615n, 6283],
  ]
  test.each(ids)('%s', (value, id) => {
    expect(bucketIdMpcrc32(value, 30_000)).toBe(id)
    if (BigInt(Number(value)) === value) expect(bucketIdMpcrc32(Number(value), 30_000)).toBe(id)
  })

  test('every integer hashes alike as number and as bigint', () => {
    fc.assert(
      fc.property(fc.maxSafeInteger(), (value) => {
        expect(mpcrc32(BigInt(value))).toBe(mpcrc32(value))
      }),
    )
  })

  test('every 64-bit integer hashes as its one encoding', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: -(2n ** 63n), max: 2n ** 64n - 1n }), (value) => {
        expect(mpcrc32(value)).toBe(crc32c(encodeValue(value)))
      }),
    )
  })
})

describe('composite and typed keys', () => {
  // Computed with the Lua implementation: 30000 buckets.
  const ids: [string, ShardingKey, number][] = [
    ["'1'", '1', 12477],
    ["''", '', 17296],
    ["'abc'", 'abc', 6121],
    ["'Привет'", 'Привет', 10608],
    ['true', true, 19055],
    ['[1,2]', [1, 2], 21934],
    ["[1,'a']", [1, 'a'], 27452],
    ['[]', [], 17296],
    ['uuid', Uuid.from('11111111-1111-1111-1111-111111111112'), 19094],
  ]
  test.each(ids)('%s', (_, key, id) => {
    expect(bucketIdMpcrc32(key, 30_000)).toBe(id)
  })

  test('a string hashes as its UTF-8 bytes, whatever it holds', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (value) => {
        expect(mpcrc32(value)).toBe(crc32c(Buffer.from(value)))
        expect(mpcrc32(new ByteString(Buffer.from(value)))).toBe(mpcrc32(value))
        expect(strcrc32(value)).toBe(mpcrc32(value))
      }),
    )
  })

  test('a surrogate without its pair hashes as the bytes it is written as', () => {
    for (const value of ['\ud800', 'a\udc00b', '\ud83d']) expect(mpcrc32(value)).toBe(crc32c(Buffer.from(value)))
  })

  test('nested lists and maps hash as their whole encoding', () => {
    const scalar = fc.oneof(
      fc.maxSafeInteger(),
      fc.boolean(),
      fc.string(),
      fc.double({ noNaN: true }).filter(isPortable),
      fc.constant(null),
    )
    const nested = fc.oneof(
      fc.array(scalar, { maxLength: 20 }),
      fc.dictionary(fc.string(), scalar, { noNullPrototype: true }),
    )
    fc.assert(
      fc.property(nested, (value) => {
        expect(mpcrc32([value])).toBe(crc32c(encodeValue(value)))
      }),
    )
  })

  test('long strings, lists and byte strings inside a list get the wider headers', () => {
    for (const length of [31, 32, 255, 256, 65_535, 65_536]) {
      const inner = ['x'.repeat(length), Buffer.alloc(length, 7), Array.from({ length }, () => 1)]
      for (const value of inner) expect(mpcrc32([[value]])).toBe(crc32c(encodeValue([value])))
    }
  })

  test('a list ends at its first undefined, a null is a value', () => {
    expect(mpcrc32([1, undefined, 3])).toBe(mpcrc32([1]))
    // oxlint-disable-next-line no-sparse-arrays
    expect(mpcrc32([1, , 3])).toBe(mpcrc32([1]))
    expect(mpcrc32([1, null, 3])).not.toBe(mpcrc32([1]))
    expect(strcrc32([1, undefined, 3])).toBe(strcrc32([1]))
  })

  test('a map as the whole key counts as its list part', () => {
    expect(mpcrc32({ a: 1 })).toBe(mpcrc32([]))
    expect(mpcrc32(new Map([[1, 'a'] as const, [2, 'b'] as const]))).toBe(mpcrc32(['a', 'b']))
    expect(
      strcrc32(
        new Map<unknown, unknown>([
          [1, 'a'],
          ['x', 'b'],
        ]),
      ),
    ).toBe(strcrc32(['a']))
  })

  test('a Date hashes as the datetime it is written as', () => {
    const date = new Date('2024-02-29T12:30:15.123Z')
    expect(mpcrc32(date)).toBe(mpcrc32(Datetime.fromDate(date)))
    expect(strcrc32(date)).toBe(strcrc32(Datetime.fromDate(date)))
  })

  test('a 32-bit float differs from the double of the same value', () => {
    expect(mpcrc32(new Float(1.5))).toBe(crc32c(Buffer.from('ca3fc00000', 'hex')))
    expect(mpcrc32(new Double(3))).toBe(crc32c(Buffer.from('cb4008000000000000', 'hex')))
  })
})

describe('texts of strcrc32', () => {
  const texts: [ShardingKey, string, BigintText?][] = [
    [1e-7, '1e-07'],
    [1e-5, '1e-05'],
    [0.0001, '0.0001'],
    [99_999_999_999_999, '99999999999999'],
    [100_000_000_000_000, '1e+14'],
    [123_456_789_012_345, '1.2345678901235e+14'],
    [-123_456_789_012_345, '-1.2345678901235e+14'],
    [12_345.678, '12345.678'],
    [1 / 3, '0.33333333333333'],
    [-0, '-0'],
    [Infinity, 'inf'],
    [-Infinity, '-inf'],
    [5e-324, '4.9406564584125e-324'],
    [1.5e300, '1.5e+300'],
    [42n, '42'],
    [42n, '42LL', 'LL'],
    [42n, '42ULL', 'ULL'],
    [-5n, '-5'],
    [2n ** 53n, '9007199254740992ULL'],
    [-(2n ** 53n), '-9007199254740992LL'],
    [2n ** 53n, '9.007199254741e+15', 'number'],
    [Decimal.from('10000000000'), '10000000000'],
    [Decimal.from('1.50'), '1.50'],
    [new Tuple([1, 'a', true], []), "[1, 'a', true]"],
  ]
  test.each(texts)('%s is hashed as %s', (key, text, bigints) => {
    expect(strcrc32(key, bigints === undefined ? {} : { bigints })).toBe(crc32c(Buffer.from(text)))
  })
})

describe('keys without a bucket are refused, with the place named', () => {
  const both: [string, unknown, RegExp][] = [
    ['undefined', undefined, /^key is undefined/],
    ['null', null, /^key is null/],
    ['a bigint beyond 64 bits', 2n ** 64n, /^key is 18446744073709551616, which does not fit 64 bits/],
    ['a function', () => 1, /^key is a function/],
    ['a symbol in a list', ['a', Symbol('x')], /^key\[1\] is a symbol/],
  ]
  test.each(both)('%s', (_, key, message) => {
    expect(() => mpcrc32(key as ShardingKey)).toThrow(InvalidArgumentError)
    expect(() => mpcrc32(key as ShardingKey)).toThrow(message)
    expect(() => strcrc32(key as ShardingKey)).toThrow(message)
  })

  const mpOnly: [string, unknown, RegExp][] = [
    ['NaN', NaN, /^key is NaN/],
    ['NaN as a double', [new Double(NaN)], /^key\[0\] is NaN/],
    ['a Set', new Set([1]), /^key is a Set/],
    ['a promise deep inside', [1, [2, { a: [Promise.resolve()] }]], /^key\[1\]\[1\]\["a"\]\[0\] is a Promise/],
    ['an endless nesting', endless(), /is nested deeper than 64 levels/],
  ]
  test.each(mpOnly)('mpcrc32 of %s', (_, key, message) => {
    expect(() => mpcrc32(key as ShardingKey)).toThrow(message)
  })

  const textOnly: [string, unknown, RegExp, BigintText?][] = [
    ['a nested list', [[1, 2], 3], /^key\[0\] is a nested list, .*use mpcrc32/],
    ['a nested map', [{ a: 1 }], /^key\[0\] is a nested map, .*use mpcrc32/],
    ['a double of C', new Double(1.5), /^key is a Double, .*use mpcrc32/],
    ['a tuple with a list', new Tuple([[1]], []), /^key is a tuple with a nested list in field 1/],
    ['a negative integer spelled as unsigned', -1n, /spelled with ULL cannot hold/, 'ULL'],
    ['an integer too large to be signed', 2n ** 63n, /spelled with LL cannot hold/, 'LL'],
    ['an invalid date', new Date(NaN), /^key is an invalid Date/],
  ]
  test.each(textOnly)('strcrc32 of %s', (_, key, message, bigints) => {
    expect(() => strcrc32(key as ShardingKey, bigints === undefined ? {} : { bigints })).toThrow(message)
  })

  test.each([0, -1, 1.5, NaN, Infinity, 2 ** 53])('bucketCount %s', (bucketCount) => {
    expect(() => bucketIdMpcrc32(1, bucketCount)).toThrow(InvalidArgumentError)
    expect(() => bucketIdStrcrc32(1, bucketCount)).toThrow(/^bucketCount is/)
  })
})

/** Whole numbers beyond 2^53 are refused by the encoder when they come as numbers. */
function isPortable(value: number): boolean {
  return !Number.isInteger(value) || Number.isSafeInteger(value)
}

function endless(): unknown[] {
  const list: unknown[] = []
  list.push(list)
  return list
}

/** Bit by bit, so that it shares nothing with the code under test. */
function crc32c(bytes: Uint8Array): number {
  let crc = 0xffffffff
  for (const byte of bytes) {
    crc ^= byte
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1
  }
  return crc >>> 0
}
