import { ExtensionType } from '../constants.js'
import { InvalidArgumentError } from '../errors.js'
import type { BodyWriter } from '../msgpack/body-writer.js'

/* Extension 1. Source: Tarantool 2.2+, src/lib/core/mp_decimal.c
 *   payload  scale as a MessagePack integer, then packed BCD: two digits a byte, high nibble first, the last nibble is the
 *            sign; an even count of digits is padded in front with a 0. value = digits * 10^-scale. */

/**
 * An exact decimal number of up to 38 digits, as Tarantool's `decimal`. It never passes through a float, and keeps its scale
 * (`1.10` is not written as `1.1`) and the sign of zero. Immutable.
 */
export class Decimal {
  readonly isNegative: boolean
  /** Significant digits, without leading zeros; `0` for zero. */
  readonly digits: string
  /** Digits behind the point, -37..38; a negative one means zeros in front of it. */
  readonly scale: number

  /**
   * @param parts.digits - 1 to 38 decimal digits
   * @throws InvalidArgumentError when the digits or the scale do not fit
   */
  constructor(parts: { readonly digits: string; readonly scale?: number; readonly isNegative?: boolean }) {
    const { digits, scale = 0, isNegative = false } = parts
    const trimmed = digits.replace(LEADING_ZEROS, '')
    if (!DIGITS.test(trimmed) || !isScale(scale)) {
      throw new InvalidArgumentError(
        `A decimal holds 1 to 38 digits and a scale of -37..38, not ${trimmed.length} digits (${trimmed}) and scale ${scale}`,
      )
    }
    this.isNegative = isNegative
    this.digits = trimmed
    this.scale = scale
  }

  /**
   * @param text - `-12.340`, `1e33`, `.5`: digits with an optional sign, point and exponent
   * @throws InvalidArgumentError when it is no number or does not fit
   */
  static from(text: string): Decimal {
    const match = DECIMAL_TEXT.exec(text)
    if (match === null) throw new InvalidArgumentError(`${JSON.stringify(text)} is not a decimal number`)
    const [, sign, whole = '', fraction = '', exponent = '0'] = match
    return new Decimal({
      digits: whole + fraction,
      scale: fraction.length - Number(exponent),
      isNegative: sign === '-',
    })
  }

  /** Plain notation without an exponent: `10000000000`, `-0.001`, `0.00`. */
  toString(): string {
    let text = this.digits
    if (this.scale > 0) {
      const padded = text.padStart(this.scale + 1, '0')
      text = `${padded.slice(0, -this.scale)}.${padded.slice(-this.scale)}`
    } else if (text !== '0') {
      text += '0'.repeat(-this.scale)
    }
    return this.isNegative ? `-${text}` : text
  }

  /** The text, since a JSON number would be rounded. */
  toJSON(): string {
    return this.toString()
  }

  /** By value: 1.10 equals 1.1, and -0 equals 0. */
  compare(other: Decimal): -1 | 0 | 1 {
    const scale = Math.max(this.scale, other.scale)
    const a = unscaled(this, scale)
    const b = unscaled(other, scale)
    if (a === b) return 0
    return a < b ? -1 : 1
  }

  /** Whether `other` is a Decimal of the same value. */
  equals(other: unknown): boolean {
    return other instanceof Decimal && this.compare(other) === 0
  }
}

/** Written with the sign nibbles c and d; readers accept more. */
export function writeDecimal(out: BodyWriter, value: Decimal): void {
  const padding = value.digits.length % 2 === 0 ? '0' : ''
  const bcd = padding + value.digits + (value.isNegative ? 'd' : 'c')
  out.extension(ExtensionType.decimal, Buffer.from(scaleHex(value.scale) + bcd, 'hex'))
}

/** @returns undefined when the payload is no decimal that fits: the caller keeps the bytes */
export function readDecimal(payload: Buffer): Decimal | undefined {
  const first = payload[0]
  if (first === undefined || payload.length > MAX_PAYLOAD_BYTES) return undefined
  let scale = first
  let start = 1
  if (first >= 0xe0) scale = first - 0x100
  else if (first >= 0x80) {
    const width = WIDE_INTEGER_BYTES.get(first)
    if (width === undefined || payload.length <= width) return undefined
    scale =
      first >= 0xd0 ? Number(BigInt.asIntN(width * 8, bigEndian(payload, width))) : Number(bigEndian(payload, width))
    start = 1 + width
  }
  if (!isScale(scale)) return undefined
  const match = BCD.exec(payload.toString('hex', start))
  if (match === null) return undefined
  const [, digits = '', sign = ''] = match
  const trimmed = digits.replace(LEADING_ZEROS, '')
  if (!DIGITS.test(trimmed)) return undefined
  return new Decimal({ digits: trimmed, scale, isNegative: sign === 'b' || sign === 'd' })
}

const DECIMAL_TEXT = /^([+-])?(?=\.?\d)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d{1,3}))?$/
/** The widest scale and 38 digits take 29 bytes; the rest is room for leading zeros. */
const MAX_PAYLOAD_BYTES = 64
const LEADING_ZEROS = /^0+(?=\d)/
const DIGITS = /^\d{1,38}$/
/** Digits, then one of the sign nibbles: a, c, e, f plus, b, d minus. */
const BCD = /^(\d+)([a-f])$/
const WIDE_INTEGER_BYTES: ReadonlyMap<number, number> = new Map([
  [0xcc, 1],
  [0xcd, 2],
  [0xce, 4],
  [0xcf, 8],
  [0xd0, 1],
  [0xd1, 2],
  [0xd2, 4],
  [0xd3, 8],
])

function isScale(scale: number): boolean {
  return Number.isInteger(scale) && scale >= -37 && scale <= 38
}

function unscaled(value: Decimal, scale: number): bigint {
  const whole = BigInt(value.digits) * 10n ** BigInt(scale - value.scale)
  return value.isNegative ? -whole : whole
}

/** The scale in its shortest form: one byte down to -32, two below. */
function scaleHex(scale: number): string {
  return scale < -0x20 ? `d0${hexByte(scale)}` : hexByte(scale)
}

function hexByte(value: number): string {
  return (value & 0xff).toString(16).padStart(2, '0')
}

function bigEndian(payload: Buffer, width: number): bigint {
  return BigInt(`0x${payload.toString('hex', 1, 1 + width)}`)
}
