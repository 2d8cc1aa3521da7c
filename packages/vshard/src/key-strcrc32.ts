/* What strcrc32 feeds into the checksum: the text of each value as Lua's `tostring` prints it, without separators.
 * Source: `hash.lua` of vshard 0.1.42 on Tarantool 3.2.1. Kinds of values whose Lua text is an address or depends on the
 * version are refused: their rows could not be found again. */
import { ByteString, Datetime, Decimal, Tuple, Uuid } from '@orbweaver/iproto'
import { feedBytes, feedText } from './crc32c.js'
import { isPlainObject, refusal } from './key-mpcrc32.js'

/**
 * How the Lua side held a 64-bit integer, which is part of its text:
 * - `auto`: as numbers arrive from the wire: `42` within ±(2^53-1), beyond that `9007199254740993ULL` or `…LL` when
 *   negative
 * - `number`: as a Lua number always: `42`, `9.007199254741e+15`
 * - `LL`, `ULL`: as a signed or unsigned 64-bit integer always: `42LL`, `42ULL`
 */
export type BigintText = 'auto' | 'number' | 'LL' | 'ULL'

/** Feeds one scalar key, or one element of a list key. */
export function feedPartText(crc: number, value: unknown, bigints: BigintText, where: string, index: number): number {
  if (typeof value === 'string') return feedText(crc, value)
  if (value instanceof Uint8Array) return feedBytes(crc, value)
  if (value instanceof ByteString) return feedBytes(crc, value.bytes)
  return feedText(crc, textOf(value, bigints, where, index))
}

function textOf(value: unknown, bigints: BigintText, where: string, index: number): string {
  if (typeof value === 'number') return numberText(value)
  if (typeof value === 'bigint') return bigintText(value, bigints, where, index)
  if (typeof value === 'boolean') return String(value)
  if (value === null) return 'cdata<void *>: NULL'
  if (value instanceof Uuid || value instanceof Decimal || value instanceof Datetime) return value.toString()
  if (value instanceof Date) return dateText(value, where, index)
  if (value instanceof Tuple) return tupleText(value, bigints, where, index)
  throw refusal(where, index, `is ${kindOf(value)}, whose Lua text is not stable: use mpcrc32`)
}

/**
 * A number as LuaJIT prints it: `%.14g`, a tie rounded away from zero, the exponent with at least two digits.
 */
function numberText(value: number): string {
  if (Object.is(value, -0)) return '-0'
  if (Number.isNaN(value)) return 'nan'
  if (!Number.isFinite(value)) return value > 0 ? 'inf' : '-inf'
  if (Number.isInteger(value) && Math.abs(value) < 1e14) return String(value)
  const [mantissa, exponentText] = value.toExponential(13).split('e') as [string, string]
  const exponent = Number(exponentText)
  const digits = mantissa.replace('-', '').replace('.', '').replace(/0+$/, '')
  const sign = value < 0 ? '-' : ''
  if (exponent < -4 || exponent >= 14) {
    const fraction = digits.length > 1 ? `.${digits.slice(1)}` : ''
    const power = String(Math.abs(exponent)).padStart(2, '0')
    return `${sign}${digits[0]}${fraction}e${exponent < 0 ? '-' : '+'}${power}`
  }
  if (exponent < 0) return `${sign}0.${'0'.repeat(-exponent - 1)}${digits}`
  if (digits.length <= exponent + 1) return `${sign}${digits.padEnd(exponent + 1, '0')}`
  return `${sign}${digits.slice(0, exponent + 1)}.${digits.slice(exponent + 1)}`
}

function bigintText(value: bigint, bigints: BigintText, where: string, index: number): string {
  if (value >= 2n ** 64n || value < -(2n ** 63n)) {
    throw refusal(where, index, `is ${value}, which does not fit 64 bits`)
  }
  const isSafe = value >= BigInt(Number.MIN_SAFE_INTEGER) && value <= BigInt(Number.MAX_SAFE_INTEGER)
  if (bigints === 'number' || (bigints === 'auto' && isSafe)) return numberText(Number(value))
  const suffix = bigints === 'auto' ? (value < 0n ? 'LL' : 'ULL') : bigints
  if (suffix === 'LL' ? value >= 2n ** 63n : value < 0n) {
    throw refusal(where, index, `is ${value}, which an integer spelled with ${suffix} cannot hold`)
  }
  return `${value}${suffix}`
}

function dateText(value: Date, where: string, index: number): string {
  if (Number.isNaN(value.getTime())) throw refusal(where, index, 'is an invalid Date')
  return Datetime.fromDate(value).toString()
}

/** `[1, 'a', true]`. Only what Tarantool prints without escapes: the rest is refused. */
function tupleText(tuple: Tuple, bigints: BigintText, where: string, index: number): string {
  const parts = tuple.values.map((value, i) => {
    if (typeof value === 'string' && /^[\w .:@/+-]*$/.test(value)) return `'${value}'`
    if (typeof value === 'number' && Number.isInteger(value)) return numberText(value)
    if (typeof value === 'boolean') return String(value)
    throw refusal(where, index, `is a tuple with ${kindOf(value)} in field ${i + 1}: use mpcrc32`)
  })
  return `[${parts.join(', ')}]`
}

function kindOf(value: unknown): string {
  if (Array.isArray(value)) return 'a nested list'
  if (typeof value !== 'object' || value === null) return `a ${typeof value} (${String(value)})`
  return isPlainObject(value) || value instanceof Map ? 'a nested map' : `a ${value.constructor.name}`
}
