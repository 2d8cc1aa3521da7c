/*
 * Tarantool's order of values, on decoded values, as its indexes have it. Between types: nil, booleans, numbers (integers, doubles
 * and decimals compared exactly), strings, binary, uuid, datetime. Strings are ordered by their bytes, which differs from
 * JavaScript's order of UTF-16 units where surrogate pairs meet characters from U+E000 on. Collations are not known here.
 */
import { Datetime } from './ext/datetime.js'
import { Decimal } from './ext/decimal.js'
import { Uuid } from './ext/uuid.js'
import { ByteString, Double, Float } from './msgpack/wrappers.js'

/** Negative, zero or positive, as `a` stands before, at or behind `b`. Total: every pair of indexable values has an order. */
export function compareValues(a: unknown, b: unknown): number {
  if (typeof a === 'number' && typeof b === 'number') return compareNumbers(a, b)
  if (typeof a === 'string' && typeof b === 'string') return compareStrings(a, b)
  if (a === b) return 0
  const rankA = rankOf(a)
  const rankB = rankOf(b)
  if (rankA !== rankB) return rankA - rankB
  switch (rankA) {
    case RANK.boolean:
      return a === true ? 1 : -1
    case RANK.number:
      return compareExactly(plainNumber(a), plainNumber(b))
    case RANK.string:
      return Buffer.compare(bytesOfText(a), bytesOfText(b))
    case RANK.binary:
      return Buffer.compare(a as Uint8Array, b as Uint8Array)
    case RANK.uuid:
      return (a as Uuid).compare(b as Uuid)
    case RANK.datetime:
      return (a as Datetime).compare(b as Datetime)
    default:
      return 0
  }
}

const RANK = {
  nil: 0,
  boolean: 1,
  number: 2,
  string: 3,
  binary: 4,
  uuid: 5,
  datetime: 6,
  other: 7,
} as const

function rankOf(value: unknown): number {
  switch (typeof value) {
    case 'boolean':
      return RANK.boolean
    case 'number':
    case 'bigint':
      return RANK.number
    case 'string':
      return RANK.string
    default:
      break
  }
  if (value === null || value === undefined) return RANK.nil
  if (value instanceof Decimal || value instanceof Double || value instanceof Float) return RANK.number
  if (value instanceof ByteString) return RANK.string
  if (value instanceof Uint8Array) return RANK.binary
  if (value instanceof Uuid) return RANK.uuid
  return value instanceof Datetime ? RANK.datetime : RANK.other
}

/** NaN stands before all numbers, so that the order is total. */
function compareNumbers(a: number, b: number): number {
  if (a < b) return -1
  if (a > b) return 1
  if (a === b) return 0
  return Number.isNaN(a) ? (Number.isNaN(b) ? 0 : -1) : 1
}

function compareStrings(a: string, b: string): number {
  if (a === b) return 0
  const common = a.length < b.length ? a.length : b.length
  for (let i = 0; i < common; i++) {
    const unitA = a.charCodeAt(i)
    const unitB = b.charCodeAt(i)
    if (unitA !== unitB) return byCodePoint(unitA) - byCodePoint(unitB)
  }
  return a.length - b.length
}

/** Moves surrogates behind U+FFFF, where the characters they stand for belong. */
function byCodePoint(unit: number): number {
  if (unit < 0xd800) return unit
  return unit < 0xe000 ? unit + 0x2000 : unit - 0x800
}

function bytesOfText(value: unknown): Uint8Array {
  return value instanceof ByteString ? value.bytes : Buffer.from(value as string)
}

type PlainNumber = number | bigint | Decimal

function plainNumber(value: unknown): PlainNumber {
  return value instanceof Double || value instanceof Float ? value.value : (value as PlainNumber)
}

function compareExactly(a: PlainNumber, b: PlainNumber): number {
  if (a instanceof Decimal) return b instanceof Decimal ? a.compare(b) : compareDecimal(a, b)
  if (b instanceof Decimal) return 0 - compareDecimal(b, a)
  if (typeof a === 'number' && typeof b === 'number') return compareNumbers(a, b)
  if (Number.isNaN(a)) return -1
  if (Number.isNaN(b)) return 1
  // JavaScript compares bigint with number exactly.
  return a < b ? -1 : a > b ? 1 : 0
}

/** decimal = digits / 10^scale, double = mantissa × 2^exponent: compared as whole numbers, so nothing is rounded. */
function compareDecimal(decimal: Decimal, other: number | bigint): number {
  if (typeof other === 'number') {
    if (Number.isNaN(other)) return 1
    if (!Number.isFinite(other)) return other > 0 ? -1 : 1
  }
  const [digits, scale] = digitsOf(decimal)
  const [mantissa, exponent] = typeof other === 'bigint' ? [other, 0] : binaryParts(other)
  let left = digits
  let right = mantissa
  if (scale > 0) right *= 10n ** BigInt(scale)
  else left *= 10n ** BigInt(-scale)
  if (exponent > 0) right <<= BigInt(exponent)
  else left <<= BigInt(-exponent)
  return left < right ? -1 : left > right ? 1 : 0
}

function digitsOf(decimal: Decimal): [bigint, number] {
  const match = /^(-?)(\d*)\.?(\d*)(?:e([+-]?\d+))?$/i.exec(decimal.toString())
  if (match === null) return [0n, 0]
  const [, sign, whole, fraction = '', exponent] = match
  const digits = BigInt(`${whole}${fraction}` || '0')
  return [sign === '-' ? -digits : digits, fraction.length - Number(exponent ?? 0)]
}

function binaryParts(value: number): [bigint, number] {
  if (Number.isInteger(value)) return [BigInt(value), 0]
  let exponent = 0
  let mantissa = value
  while (!Number.isInteger(mantissa)) {
    mantissa *= 2
    exponent--
  }
  return [BigInt(mantissa), exponent]
}
