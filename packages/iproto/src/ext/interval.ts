import { ExtensionType } from '../constants.js'
import { InvalidArgumentError } from '../errors.js'
import type { BodyWriter } from '../msgpack/body-writer.js'

/* Extension 6. Source: Tarantool 2.10+, src/lib/core/mp_interval.c
 *   payload  count of pairs (one byte), then pairs of field number (one byte) and MessagePack integer; zero fields are left out. */

/** What happens to a day that a month does not have: `excess` flows over, `none` takes the month's last day, `last` keeps to it. */
export type IntervalAdjust = 'excess' | 'none' | 'last'

/** Fields of an {@link Interval}; what is left out is 0, `adjust` is `none` as in Tarantool. */
export interface IntervalFields {
  readonly year?: number | bigint
  readonly month?: number | bigint
  readonly week?: number | bigint
  readonly day?: number | bigint
  readonly hour?: number | bigint
  readonly minute?: number | bigint
  readonly second?: number | bigint
  readonly nsec?: number | bigint
  readonly adjust?: IntervalAdjust
}

/**
 * A difference in calendar terms, as Tarantool's `interval`. Fields are whole, may be negative and are not normalised into each
 * other; a bigint beyond ±(2^53 - 1). Immutable.
 */
export class Interval {
  readonly year: number | bigint
  readonly month: number | bigint
  readonly week: number | bigint
  readonly day: number | bigint
  readonly hour: number | bigint
  readonly minute: number | bigint
  readonly second: number | bigint
  readonly nsec: number | bigint
  readonly adjust: IntervalAdjust

  /** @throws InvalidArgumentError when a field is not a whole number of 64 bits */
  constructor(fields: IntervalFields = {}) {
    this.year = wholeField(fields, 'year')
    this.month = wholeField(fields, 'month')
    this.week = wholeField(fields, 'week')
    this.day = wholeField(fields, 'day')
    this.hour = wholeField(fields, 'hour')
    this.minute = wholeField(fields, 'minute')
    this.second = wholeField(fields, 'second')
    this.nsec = wholeField(fields, 'nsec')
    this.adjust = fields.adjust ?? 'none'
    if (!ADJUSTS.includes(this.adjust)) {
      throw new InvalidArgumentError(`adjust is ${JSON.stringify(this.adjust)}, expected one of ${ADJUSTS.join(', ')}`)
    }
  }

  /** As Tarantool prints it: `+1 years, -2 days`; `0 seconds` when all are zero. */
  toString(): string {
    const parts = UNITS.filter((unit) => this[unit] !== 0).map((unit) => {
      const value = this[unit]
      return `${value > 0 ? '+' : ''}${value} ${unit === 'nsec' ? 'nanosecond' : unit}s`
    })
    return parts.length === 0 ? '0 seconds' : parts.join(', ')
  }

  /** The fields that are not zero, and `adjust`; a bigint as text. */
  toJSON(): Record<string, number | string> {
    const fields: Record<string, number | string> = {}
    for (const unit of UNITS) {
      const value = this[unit]
      if (value !== 0) fields[unit] = typeof value === 'bigint' ? String(value) : value
    }
    fields['adjust'] = this.adjust
    return fields
  }

  /** Whether `other` is an Interval with the same fields. */
  equals(other: unknown): boolean {
    return (
      other instanceof Interval && this.adjust === other.adjust && UNITS.every((unit) => this[unit] === other[unit])
    )
  }
}

export function writeInterval(out: BodyWriter, value: Interval): void {
  const payload: number[] = [0]
  for (const [number, unit] of UNITS.entries()) {
    if (value[unit] === 0) continue
    payload[0]!++
    payload.push(number, ...integerBytes(BigInt(value[unit])))
  }
  const adjust = ADJUSTS.indexOf(value.adjust)
  if (adjust !== 0) {
    payload[0]!++
    payload.push(ADJUST_FIELD, adjust)
  }
  out.extension(ExtensionType.interval, Uint8Array.from(payload))
}

/** @returns undefined when the payload is no interval: the caller keeps the bytes */
export function readInterval(payload: Buffer): Interval | undefined {
  const fields: { -readonly [Name in keyof IntervalFields]: IntervalFields[Name] } = { adjust: 'excess' }
  let at = 1
  for (let left = payload[0] ?? -1; left !== 0; left--) {
    const number = payload[at]
    const integer = readInteger(payload, at + 1)
    if (number === undefined || integer === undefined) return undefined
    at = integer.end
    const unit = UNITS[number]
    if (unit !== undefined) fields[unit] = integer.value
    else {
      const adjust = number === ADJUST_FIELD ? ADJUSTS[Number(integer.value)] : undefined
      if (adjust === undefined) return undefined
      fields.adjust = adjust
    }
  }
  return at === payload.length ? new Interval(fields) : undefined
}

/** By their number on the wire. */
const UNITS = ['year', 'month', 'week', 'day', 'hour', 'minute', 'second', 'nsec'] as const
const ADJUST_FIELD = 8
const ADJUSTS: readonly IntervalAdjust[] = ['excess', 'none', 'last']

function wholeField(fields: IntervalFields, unit: (typeof UNITS)[number]): number | bigint {
  const value = fields[unit] ?? 0
  const isWhole = typeof value === 'bigint' ? value >= -(2n ** 63n) && value < 2n ** 64n : Number.isSafeInteger(value)
  if (!isWhole) throw new InvalidArgumentError(`${unit} is ${value}, expected a whole number of 64 bits`)
  const number = Number(value)
  return Number.isSafeInteger(number) ? number + 0 : value
}

function integerBytes(value: bigint): number[] {
  if (value >= -0x20n && value < 0x80n) return [Number(value) & 0xff]
  for (const [first, bytes] of value >= 0n ? UNSIGNED_FORMS : SIGNED_FORMS) {
    const fits = value >= 0n ? BigInt.asUintN(bytes * 8, value) === value : BigInt.asIntN(bytes * 8, value) === value
    if (!fits) continue
    const out = [first]
    for (let shift = bytes - 1; shift >= 0; shift--) out.push(Number((value >> BigInt(shift * 8)) & 0xffn))
    return out
  }
  throw new InvalidArgumentError(`${value} does not fit 64 bits`)
}

function readInteger(payload: Buffer, at: number): { value: number | bigint; end: number } | undefined {
  const first = payload[at]
  if (first === undefined) return undefined
  if (first < 0x80) return { value: first, end: at + 1 }
  if (first >= 0xe0) return { value: first - 0x100, end: at + 1 }
  const form = [...UNSIGNED_FORMS, ...SIGNED_FORMS].find(([byte]) => byte === first)
  if (form === undefined || at + form[1] >= payload.length) return undefined
  const end = at + 1 + form[1]
  const unsigned = BigInt(`0x${payload.toString('hex', at + 1, end)}`)
  return { value: first >= 0xd0 ? BigInt.asIntN(form[1] * 8, unsigned) : unsigned, end }
}

const UNSIGNED_FORMS: readonly (readonly [first: number, bytes: number])[] = [
  [0xcc, 1],
  [0xcd, 2],
  [0xce, 4],
  [0xcf, 8],
]
const SIGNED_FORMS: readonly (readonly [first: number, bytes: number])[] = [
  [0xd0, 1],
  [0xd1, 2],
  [0xd2, 4],
  [0xd3, 8],
]
