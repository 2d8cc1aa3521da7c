import { ExtensionType } from '../constants.js'
import { InvalidArgumentError } from '../errors.js'
import type { BodyWriter } from '../msgpack/body-writer.js'

/* Extension 4. Source: Tarantool 2.10+, src/lib/core/mp_datetime.c; little-endian
 *   payload  i64 seconds since 1970-01-01 UTC; then, when any of them is not zero, i32 nsec, i16 tzoffset, i16 tzindex. */

/** Fields of a {@link Datetime}; what is left out is 0. */
export interface DatetimeFields {
  readonly seconds: number | bigint
  readonly nsec?: number
  readonly tzoffset?: number
  readonly tzindex?: number
}

/**
 * A moment with nanoseconds and a time zone, as Tarantool's `datetime`. It reaches years of about ±5.8 million, far past `Date`.
 * Immutable.
 */
export class Datetime {
  /** Since 1970-01-01 UTC, rounded down also before it; a bigint beyond ±(2^53 - 1). */
  readonly seconds: number | bigint
  /** 0..999999999. */
  readonly nsec: number
  /** Minutes east of UTC, -720..840: how to show the moment. */
  readonly tzoffset: number
  /** Number of the zone's name in Tarantool's own table, 0 for none. The server does not derive tzoffset from it: set both. */
  readonly tzindex: number

  /** @throws InvalidArgumentError when a field is out of range */
  constructor(fields: DatetimeFields) {
    const { seconds, nsec = 0, tzoffset = 0, tzindex = 0 } = fields
    const problem = fieldProblem(seconds, nsec, tzoffset, tzindex)
    if (problem !== undefined) throw new InvalidArgumentError(problem)
    this.seconds = normalize(seconds)
    this.nsec = nsec
    this.tzoffset = tzoffset
    this.tzindex = tzindex
  }

  /** The moment of a Date, in UTC. @throws InvalidArgumentError for an invalid Date */
  static fromDate(date: Date): Datetime {
    const ms = date.getTime()
    if (Number.isNaN(ms)) throw new InvalidArgumentError('An invalid Date has no datetime')
    const seconds = Math.floor(ms / 1000)
    return new Datetime({ seconds, nsec: (ms - seconds * 1000) * 1_000_000 })
  }

  /**
   * @param iso - `2024-07-01T00:00:00.123456789+03:00`: a date, optionally a time of day with up to nine digits of fraction and an
   * offset (`Z`, `+03:00`, `+0300`; none means UTC); years -9999..9999
   * @throws InvalidArgumentError when it has another form or names no real date
   */
  static from(iso: string): Datetime {
    const match = ISO_TEXT.exec(iso)
    const refuse = (): never => {
      throw new InvalidArgumentError(`${JSON.stringify(iso)} is not an ISO 8601 date`)
    }
    if (match === null) return refuse()
    const [, year, month, day, hour = '0', minute = '0', second = '0', fraction = '', zone = 'Z'] = match
    const midnight = new Date(0)
    midnight.setUTCFullYear(Number(year), Number(month) - 1, Number(day))
    if (midnight.getUTCMonth() !== Number(month) - 1 || midnight.getUTCDate() !== Number(day)) return refuse()
    if (Number(hour) > 23 || Number(minute) > 59 || Number(second) > 59) return refuse()
    const tzoffset = offsetMinutes(zone)
    const ofDay = Number(hour) * 3600 + Number(minute) * 60 + Number(second)
    return new Datetime({
      seconds: midnight.getTime() / 1000 + ofDay - tzoffset * 60,
      nsec: Number(fraction.padEnd(9, '0')),
      tzoffset,
    })
  }

  /**
   * The same moment in milliseconds, rounded down; the zone is lost.
   * @throws InvalidArgumentError beyond the range of Date (±273,790 years)
   */
  toDate(): Date {
    const date = new Date(Number(this.seconds) * 1000 + Math.floor(this.nsec / 1_000_000))
    if (Number.isNaN(date.getTime())) throw new InvalidArgumentError(`${this.seconds} s are beyond the range of Date`)
    return date
  }

  /** As Tarantool prints it: local time and offset, `2024-07-01T00:00:00+0300`; fractions in 3, 6 or 9 digits. */
  toString(): string {
    const { date, time } = calendar(BigInt(this.seconds) + BigInt(this.tzoffset * 60))
    return `${date}T${time}${fractionText(this.nsec)}${offsetText(this.tzoffset)}`
  }

  toJSON(): string {
    return this.toString()
  }

  /** By moment; the zone does not count. */
  compare(other: Datetime): -1 | 0 | 1 {
    if (this.seconds !== other.seconds) return this.seconds < other.seconds ? -1 : 1
    if (this.nsec === other.nsec) return 0
    return this.nsec < other.nsec ? -1 : 1
  }

  /** Whether `other` is a Datetime of the same moment. */
  equals(other: unknown): boolean {
    return other instanceof Datetime && this.compare(other) === 0
  }
}

export function writeDatetime(out: BodyWriter, value: Datetime): void {
  const isShort = value.nsec === 0 && value.tzoffset === 0 && value.tzindex === 0
  const payload = Buffer.alloc(isShort ? 8 : 16)
  payload.writeBigInt64LE(BigInt(value.seconds))
  if (!isShort) {
    payload.writeInt32LE(value.nsec, 8)
    payload.writeInt16LE(value.tzoffset, 12)
    payload.writeInt16LE(value.tzindex, 14)
  }
  out.extension(ExtensionType.datetime, payload)
}

/** @returns undefined when the payload is no datetime: the caller keeps the bytes */
export function readDatetime(payload: Buffer): Datetime | undefined {
  if (payload.length !== 8 && payload.length !== 16) return undefined
  const seconds = payload.readBigInt64LE(0)
  if (payload.length === 8) return new Datetime({ seconds })
  const nsec = payload.readInt32LE(8)
  const tzoffset = payload.readInt16LE(12)
  const tzindex = payload.readInt16LE(14)
  if (fieldProblem(seconds, nsec, tzoffset, tzindex) !== undefined) return undefined
  // The long form of what fits the short one could not be told from it afterwards.
  return nsec === 0 && tzoffset === 0 && tzindex === 0 ? undefined : new Datetime({ seconds, nsec, tzoffset, tzindex })
}

const ISO_TEXT =
  /^([+-]?\d{4})-(\d{2})-(\d{2})(?:[T ](\d{2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?)?(Z|[+-]\d{2}(?::?\d{2})?)?$/i
const SECONDS_PER_DAY = 86_400n

function fieldProblem(seconds: number | bigint, nsec: number, tzoffset: number, tzindex: number): string | undefined {
  if (typeof seconds === 'number' ? !Number.isSafeInteger(seconds) : BigInt.asIntN(64, seconds) !== seconds) {
    return `seconds is ${seconds}, expected a whole number of 64 bits`
  }
  if (!Number.isInteger(nsec) || nsec < 0 || nsec > 999_999_999) return `nsec is ${nsec}, expected 0..999999999`
  if (!Number.isInteger(tzoffset) || tzoffset < -720 || tzoffset > 840)
    return `tzoffset is ${tzoffset}, expected -720..840 minutes`
  if (!Number.isInteger(tzindex) || tzindex < 0 || tzindex > 0x7fff) return `tzindex is ${tzindex}, expected 0..32767`
  return undefined
}

function normalize(seconds: number | bigint): number | bigint {
  const number = Number(seconds)
  return Number.isSafeInteger(number) ? number + 0 : seconds
}

function offsetMinutes(zone: string): number {
  if (zone === 'Z' || zone === 'z') return 0
  const digits = zone.slice(1).replace(':', '').padEnd(4, '0')
  const minutes = Number(digits.slice(0, 2)) * 60 + Number(digits.slice(2))
  return zone.startsWith('-') && minutes !== 0 ? -minutes : minutes
}

/** Proleptic Gregorian calendar by days, for years no Date can hold; after H. Hinnant's civil_from_days. */
function calendar(seconds: bigint): { date: string; time: string } {
  const ofDay = Number(((seconds % SECONDS_PER_DAY) + SECONDS_PER_DAY) % SECONDS_PER_DAY)
  const days = (seconds - BigInt(ofDay)) / SECONDS_PER_DAY + 719_468n
  const era = (days >= 0n ? days : days - 146_096n) / 146_097n
  const dayOfEra = Number(days - era * 146_097n)
  const yearOfEra = Math.floor(
    (dayOfEra - Math.floor(dayOfEra / 1460) + Math.floor(dayOfEra / 36_524) - Math.floor(dayOfEra / 146_096)) / 365,
  )
  const dayOfYear = dayOfEra - (365 * yearOfEra + Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100))
  const shifted = Math.floor((5 * dayOfYear + 2) / 153)
  const day = dayOfYear - Math.floor((153 * shifted + 2) / 5) + 1
  const month = shifted < 10 ? shifted + 3 : shifted - 9
  const year = era * 400n + BigInt(yearOfEra + (month <= 2 ? 1 : 0))
  const yearText = year < 0n ? `-${String(-year).padStart(4, '0')}` : String(year).padStart(4, '0')
  const hour = Math.floor(ofDay / 3600)
  const minute = Math.floor(ofDay / 60) % 60
  return { date: `${yearText}-${two(month)}-${two(day)}`, time: `${two(hour)}:${two(minute)}:${two(ofDay % 60)}` }
}

function two(value: number): string {
  return String(value).padStart(2, '0')
}

function fractionText(nsec: number): string {
  if (nsec === 0) return ''
  const digits = String(nsec).padStart(9, '0')
  if (digits.endsWith('000000')) return `.${digits.slice(0, 3)}`
  return digits.endsWith('000') ? `.${digits.slice(0, 6)}` : `.${digits}`
}

function offsetText(minutes: number): string {
  if (minutes === 0) return 'Z'
  const size = Math.abs(minutes)
  return `${minutes < 0 ? '-' : '+'}${two(Math.floor(size / 60))}${two(size % 60)}`
}
