import { writeDatetime, Datetime } from '../ext/datetime.js'
import { Decimal, writeDecimal } from '../ext/decimal.js'
import { writeErrorStack } from '../ext/error.js'
import { Interval, writeInterval } from '../ext/interval.js'
import { Tuple } from '../ext/tuple.js'
import { Uuid, writeUuid } from '../ext/uuid.js'
import { ExtensionType, Key } from '../constants.js'
import { BoxError, FrameTooLargeError, InvalidArgumentError } from '../errors.js'
import type { BodyWriter } from './body-writer.js'
import { DEFAULT_MAX_FRAME_BYTES, MAX_WRITE_NESTING } from './limits.js'
import { Refusal } from './refusal.js'
import { ByteString, Double, Extension, Float, RawValue } from './wrappers.js'

/**
 * Writes MessagePack into a slab of memory: exact, by hand. General-purpose encoders write integers from 2^32 up as floats and
 * BigInts in signed forms; Tarantool refuses both and they hash to another bucket. Here the form of a number depends on its
 * value only.
 *
 * Work is done in transactions: `commit` finishes what was written since the last one, `rollback` forgets it, `take` hands out what
 * was finished. A slab that is full is left to its readers and the open transaction moves to the next one, so bytes that were taken
 * never change.
 */
export class Encoder implements BodyWriter {
  #bytes: Buffer = NO_BYTES
  /** The same memory, for numbers of several bytes. */
  #view: DataView = NO_VIEW
  #position = 0
  #begun = 0
  /** Start of the finished bytes in the slab that were not taken yet. */
  #finished = 0
  #chunks: Buffer[] = []
  #chunkBytes = 0
  readonly #slabBytes: number
  readonly #maxBytes: number

  /** @param options.maxBytes - largest transaction; more throws FrameTooLargeError with `executed: 'no'` */
  constructor(options: { slabBytes?: number; maxBytes?: number } = {}) {
    this.#slabBytes = options.slabBytes ?? 65_536
    this.#maxBytes = options.maxBytes ?? DEFAULT_MAX_FRAME_BYTES
  }

  /** Forgets the open transaction. */
  rollback(): void {
    this.#position = this.#begun
  }

  /** Bytes of the open transaction. */
  get openBytes(): number {
    return this.#position - this.#begun
  }

  /** Ends the transaction: its bytes are finished now, and another begins. */
  commit(): void {
    this.#begun = this.#position
  }

  /** Finished bytes that `take` would return. */
  get pendingBytes(): number {
    return this.#chunkBytes + this.#begun - this.#finished
  }

  /** Overwrites four bytes of the open transaction, `offset` bytes behind its start, with a big-endian number. */
  patchUint32(offset: number, value: number): void {
    this.#view.setUint32(this.#begun + offset, value)
  }

  /** A view of the open transaction, valid until the next write. */
  open(): Buffer {
    return this.#bytes.subarray(this.#begun, this.#position)
  }

  /**
   * Everything finished since the last call. The chunks belong to the caller: nothing is written to them any more. What is open
   * stays open.
   */
  take(): Buffer[] {
    const chunks = this.#chunks
    if (this.#begun > this.#finished) chunks.push(this.#bytes.subarray(this.#finished, this.#begun))
    this.#chunks = []
    this.#chunkBytes = 0
    this.#finished = this.#begun
    if (this.#bytes.length > this.#slabBytes && this.#begun === this.#position) {
      // One large frame must not keep its memory for as long as the connection lives.
      this.#bytes = NO_BYTES
      this.#view = NO_VIEW
      this.#position = this.#begun = this.#finished = 0
    }
    return chunks
  }

  reserve(bytes: number): Buffer {
    const at = this.#advance(bytes)
    return this.#bytes.subarray(at, at + bytes)
  }

  value(value: unknown, name = 'value'): void {
    try {
      this.#write(value, 0)
    } catch (error) {
      if (error instanceof Refusal) throw error.at(name)
      if (error instanceof FrameTooLargeError) throw error
      throw new InvalidArgumentError(`${name} could not be read`, { cause: error })
    }
  }

  nil(): void {
    this.#byte(0xc0)
  }

  bool(value: boolean): void {
    this.#byte(value ? 0xc3 : 0xc2)
  }

  uint(value: number): void {
    if ((value & 0x7f) === value) this.#byte(value)
    else if (Number.isSafeInteger(value) && value >= 0) this.#integer(value)
    else throw new InvalidArgumentError(`${value} is not an unsigned safe integer`)
  }

  double(value: number): void {
    const at = this.#advance(9)
    this.#bytes[at] = 0xcb
    this.#view.setFloat64(at + 1, value)
  }

  /** A number of 32 bits in its five-byte form, however small: where a layout is fixed. */
  fixedUint32(value: number): void {
    const at = this.#advance(5)
    this.#bytes[at] = 0xce
    this.#view.setUint32(at + 1, value)
  }

  /** A number of 64 bits, in two halves, in its nine-byte form. */
  fixedUint64(high: number, low: number): void {
    const at = this.#advance(9)
    this.#bytes[at] = 0xcf
    this.#view.setUint32(at + 1, high)
    this.#view.setUint32(at + 5, low)
  }

  mapHeader(size: number): void {
    this.#header(size, 0x80, 16, 0, 0xde)
  }

  arrayHeader(size: number): void {
    this.#header(size, 0x90, 16, 0, 0xdc)
  }

  text(value: string): void {
    if (!this.#text(value)) throw new InvalidArgumentError(`${JSON.stringify(value)} ${LONE_SURROGATE}`)
  }

  bytes(value: Uint8Array): void {
    this.#header(value.length, 0, 0, 0xc4, 0xc5)
    this.raw(value)
  }

  rawText(value: Uint8Array): void {
    this.#header(value.length, 0xa0, 32, 0xd9, 0xda)
    this.raw(value)
  }

  raw(encoded: Uint8Array, start = 0, end: number = encoded.length): void {
    const size = end - start
    const at = this.#advance(size)
    const isWhole = size === encoded.length
    // Short ones are copied before a native call would have begun, and before a view of a part would be made.
    if (size > (isWhole ? SHORT_RAW : SHORT_RAW_PART)) {
      this.#bytes.set(isWhole ? encoded : encoded.subarray(start, end), at)
      return
    }
    const bytes = this.#bytes
    for (let i = 0; i < size; i++) bytes[at + i] = encoded[start + i]!
  }

  /** Room for the size of a frame, and the head of a reply in its fixed layout (header.ts). */
  replyHead(type: number, syncHigh: number, syncLow: number, schemaVersion: number): void {
    const at = this.#advance(REPLY_HEAD_BYTES)
    const bytes = this.#bytes
    const view = this.#view
    bytes[at] = 0xce
    bytes[at + 5] = 0x83
    bytes[at + 6] = Key.requestType
    bytes[at + 7] = 0xce
    view.setUint32(at + 8, type)
    bytes[at + 12] = Key.sync
    bytes[at + 13] = 0xcf
    view.setUint32(at + 14, syncHigh)
    view.setUint32(at + 18, syncLow)
    bytes[at + 22] = Key.schemaVersion
    bytes[at + 23] = 0xce
    view.setUint32(at + 24, schemaVersion)
  }

  extension(type: number, payload: Uint8Array): void {
    const size = payload.length
    const fixed = FIXED_EXTENSIONS.get(size)
    if (fixed === undefined) this.#header(size, 0, 0, 0xc7, 0xc8)
    else this.#byte(fixed)
    this.#byte(type & 0xff)
    this.raw(payload)
  }

  #write(value: unknown, depth: number): void {
    switch (typeof value) {
      case 'number':
        return this.#number(value)
      case 'string':
        if (!this.#text(value)) throw new Refusal(LONE_SURROGATE)
        return
      case 'object':
        if (value === null) return this.#byte(0xc0)
        return Array.isArray(value) ? this.#array(value, depth) : this.#object(value, depth)
      case 'boolean':
        return this.#byte(value ? 0xc3 : 0xc2)
      case 'undefined':
        return this.#byte(0xc0)
      case 'bigint':
        return this.#bigint(value)
      case 'function':
        throw new Refusal('is a function, which has no MessagePack form')
      default:
        throw new Refusal('is a symbol, which has no MessagePack form')
    }
  }

  #number(value: number): void {
    // -0 | 0 is 0 and equals -0: a minus zero is written as the integer 0.
    if ((value | 0) === value) {
      if (value >= 0x80 || value < -0x20) return this.#integer(value)
      const at = this.#position
      if (at === this.#bytes.length) this.#grow(1)
      this.#bytes[this.#position++] = value
      return
    }
    if (!Number.isInteger(value)) return this.double(value)
    if (!Number.isSafeInteger(value)) {
      throw new Refusal(`is ${value}, a whole number beyond 2^53 - 1: pass a bigint, or new Double(…) for a float`)
    }
    this.#integer(value)
  }

  /** A safe integer that does not fit the one-byte forms, or does. */
  #integer(value: number): void {
    const at = this.#advance(9)
    const bytes = this.#bytes
    const view = this.#view
    let end: number
    if (value >= 0) {
      if (value < 0x80) {
        bytes[at] = value
        end = at + 1
      } else if (value < 0x100) {
        bytes[at] = 0xcc
        bytes[at + 1] = value
        end = at + 2
      } else if (value < 0x10000) {
        bytes[at] = 0xcd
        view.setUint16(at + 1, value)
        end = at + 3
      } else if (value < 0x100000000) {
        bytes[at] = 0xce
        view.setUint32(at + 1, value)
        end = at + 5
      } else {
        bytes[at] = 0xcf
        view.setUint32(at + 1, Math.floor(value / 0x100000000))
        view.setUint32(at + 5, value)
        end = at + 9
      }
    } else if (value >= -0x20) {
      bytes[at] = value
      end = at + 1
    } else if (value >= -0x80) {
      bytes[at] = 0xd0
      bytes[at + 1] = value
      end = at + 2
    } else if (value >= -0x8000) {
      bytes[at] = 0xd1
      view.setInt16(at + 1, value)
      end = at + 3
    } else if (value >= -0x80000000) {
      bytes[at] = 0xd2
      view.setInt32(at + 1, value)
      end = at + 5
    } else {
      bytes[at] = 0xd3
      view.setInt32(at + 1, Math.floor(value / 0x100000000))
      view.setUint32(at + 5, value)
      end = at + 9
    }
    this.#position = end
  }

  #bigint(value: bigint): void {
    if (value >= -SAFE && value <= SAFE) return this.#integer(Number(value))
    if (value > 0xffff_ffff_ffff_ffffn || value < -0x8000_0000_0000_0000n) {
      throw new Refusal(`is ${value}n, beyond the 64 bits of MessagePack`)
    }
    const at = this.#advance(9)
    if (value < 0n) {
      this.#bytes[at] = 0xd3
      this.#view.setBigInt64(at + 1, value)
    } else {
      this.#bytes[at] = 0xcf
      this.#view.setBigUint64(at + 1, value)
    }
  }

  /** @returns false when the string has no UTF-8 form */
  #text(value: string): boolean {
    const length = value.length
    if (length <= SHORT_TEXT) return this.#shortText(value, length)
    if (length > MAX_TRIPLED || this.#position + length * 3 + 5 > this.#bytes.length) return this.#longText(value)
    // Nearly all text is ASCII, whose size is known: written behind the header that fits then, and moved if the guess was wrong.
    const guess = textHeaderBytes(length)
    const at = this.#advance(guess + length * 3)
    const size = this.#bytes.write(value, at + guess, length * 3, 'utf8')
    if (size !== length && !isWellFormed(value)) return false
    const actual = textHeaderBytes(size)
    if (actual !== guess) this.#bytes.copyWithin(at + actual, at + guess, at + guess + size)
    this.#position = at
    this.#header(size, 0xa0, 32, 0xd9, 0xda)
    this.#position = at + actual + size
    return true
  }

  #shortText(value: string, length: number): boolean {
    const at = this.#advance(2 + length * 3)
    const bytes = this.#bytes
    const bodyAt = length < 32 ? at + 1 : at + 2
    let end = bodyAt
    let i = 0
    for (; i < length; i++) {
      const unit = value.charCodeAt(i)
      if (unit >= 0x80) break
      bytes[end++] = unit
    }
    for (; i < length; i++) {
      const unit = value.charCodeAt(i)
      if (unit < 0x80) {
        bytes[end++] = unit
      } else if (unit < 0x800) {
        bytes[end++] = 0xc0 | (unit >> 6)
        bytes[end++] = 0x80 | (unit & 0x3f)
      } else if (unit < 0xd800 || unit > 0xdfff) {
        bytes[end++] = 0xe0 | (unit >> 12)
        bytes[end++] = 0x80 | ((unit >> 6) & 0x3f)
        bytes[end++] = 0x80 | (unit & 0x3f)
      } else {
        const low = i + 1 < length ? value.charCodeAt(++i) : 0
        if (unit > 0xdbff || low < 0xdc00 || low > 0xdfff) return false
        const point = 0x10000 + ((unit & 0x3ff) << 10) + (low & 0x3ff)
        bytes[end++] = 0xf0 | (point >> 18)
        bytes[end++] = 0x80 | ((point >> 12) & 0x3f)
        bytes[end++] = 0x80 | ((point >> 6) & 0x3f)
        bytes[end++] = 0x80 | (point & 0x3f)
      }
    }
    const size = end - bodyAt
    if (size < 32) {
      bytes[at] = 0xa0 | size
    } else {
      if (bodyAt === at + 1) {
        bytes.copyWithin(at + 2, bodyAt, end)
        end++
      }
      bytes[at] = 0xd9
      bytes[at + 1] = size
    }
    this.#position = end
    return true
  }

  /** Text for which three bytes a character would waste memory, or take new memory: its size is asked for first. */
  #longText(value: string): boolean {
    const size = Buffer.byteLength(value, 'utf8')
    if (size !== value.length && !isWellFormed(value)) return false
    this.#header(size, 0xa0, 32, 0xd9, 0xda)
    const at = this.#advance(size)
    this.#bytes.write(value, at, size, 'utf8')
    return true
  }

  #array(values: readonly unknown[], depth: number): void {
    if (depth === MAX_WRITE_NESTING) throw Refusal.tooDeep(values, MAX_WRITE_NESTING)
    const length = values.length
    this.arrayHeader(length)
    let i = 0
    try {
      for (; i < length; i++) {
        const value = values[i]
        // The commonest kinds of element without a call in between.
        if (typeof value === 'number') this.#number(value)
        else if (typeof value === 'string' && value.length <= SHORT_TEXT) {
          if (!this.#shortText(value, value.length)) throw new Refusal(LONE_SURROGATE)
        } else this.#write(value, depth + 1)
      }
    } catch (error) {
      throw error instanceof Refusal ? error.inside(values, `[${i}]`) : error
    }
  }

  #object(value: object, depth: number): void {
    const prototype: unknown = Object.getPrototypeOf(value)
    if (prototype === Object.prototype || prototype === null)
      return this.#record(value as Record<string, unknown>, depth)
    if (value instanceof Map) return this.#map(value, depth)
    if (ArrayBuffer.isView(value)) return this.bytes(viewBytes(value))
    if (this.#known(value, depth)) return
    // The prototype of a plain object of another realm (a vm context) is nobody's child either.
    if (Object.getPrototypeOf(prototype) === null) {
      return this.#record(value as Record<string, unknown>, depth)
    }
    throw new Refusal(describeInstance(value))
  }

  /** One of the classes that have a form of their own. */
  #known(value: object, depth: number): boolean {
    if (value instanceof Decimal) writeDecimal(this, value)
    else if (value instanceof Uuid) writeUuid(this, value)
    else if (value instanceof Datetime) writeDatetime(this, value)
    else if (value instanceof Date) {
      if (Number.isNaN(value.getTime())) throw new Refusal('is an invalid Date')
      writeDatetime(this, Datetime.fromDate(value))
    } else if (value instanceof Interval) writeInterval(this, value)
    else if (value instanceof Double) this.double(value.value)
    else if (value instanceof Float) {
      const at = this.#advance(5)
      this.#bytes[at] = 0xca
      this.#view.setFloat32(at + 1, value.value)
    } else if (value instanceof ByteString) this.rawText(value.bytes)
    else if (value instanceof RawValue) this.raw(value.bytes)
    else if (value instanceof Extension) this.extension(value.type, value.bytes)
    else if (value instanceof Tuple) this.#array(value.values, depth)
    else if (value instanceof BoxError) this.#error(value, depth)
    else if (value instanceof ArrayBuffer) this.bytes(new Uint8Array(value))
    else return false
    return true
  }

  /** Extension 3. Its payload is written apart, since its size stands in front of it. */
  #error(error: BoxError, depth: number): void {
    if (depth === MAX_WRITE_NESTING) throw Refusal.tooDeep(error, MAX_WRITE_NESTING)
    const payload = new Encoder({ slabBytes: 512, maxBytes: this.#maxBytes })
    writeErrorStack(payload, error.entries, (field, name) => {
      try {
        payload.#write(field, depth + 1)
      } catch (refusal) {
        throw refusal instanceof Refusal ? refusal.inside(error, `.fields.get(${describeKey(name)})`) : refusal
      }
    })
    this.extension(ExtensionType.error, payload.open())
  }

  #record(record: Record<string, unknown>, depth: number): void {
    if (depth === MAX_WRITE_NESTING) throw Refusal.tooDeep(record, MAX_WRITE_NESTING)
    const keys = Object.keys(record)
    const size = keys.length
    const headerAt = this.openBytes
    this.mapHeader(size)
    let written = 0
    let key = ''
    try {
      for (let i = 0; i < size; i++) {
        key = keys[i]!
        const value = record[key]
        if (value === undefined) continue
        if (!this.#text(key)) throw new Refusal(`has a key that ${LONE_SURROGATE}`)
        this.#write(value, depth + 1)
        written++
      }
    } catch (error) {
      throw error instanceof Refusal ? error.inside(record, propertyName(key)) : error
    }
    if (written !== size) this.#shrinkMap(headerAt, size, written)
  }

  #map(map: ReadonlyMap<unknown, unknown>, depth: number): void {
    if (depth === MAX_WRITE_NESTING) throw Refusal.tooDeep(map, MAX_WRITE_NESTING)
    const headerAt = this.openBytes
    this.mapHeader(map.size)
    let written = 0
    let at: unknown
    try {
      for (const [key, value] of map) {
        at = key
        if (value === undefined) continue
        this.#write(key, depth + 1)
        this.#write(value, depth + 1)
        written++
      }
    } catch (error) {
      throw error instanceof Refusal ? error.inside(map, `.get(${describeKey(at)})`) : error
    }
    if (written !== map.size) this.#shrinkMap(headerAt, map.size, written)
  }

  /** Entries were left out: writes the header of the smaller map and moves what is behind it when that is shorter. */
  #shrinkMap(headerAt: number, announced: number, written: number): void {
    const start = this.#begun + headerAt
    const oldBytes = mapHeaderBytes(announced)
    const end = this.#position
    this.#position = start
    this.mapHeader(written)
    const bodyAt = this.#position
    if (bodyAt - start !== oldBytes) this.#bytes.copyWithin(bodyAt, start + oldBytes, end)
    this.#position = end - oldBytes + (bodyAt - start)
  }

  /**
   * Header of a str, bin, ext, array or map.
   * @param fixed - first byte of the one-byte form, for sizes below `fixedLimit`
   * @param one - first byte of the form with one byte of size, or 0 when there is none
   * @param two - first byte of the form with two bytes; that with four is the next number
   */
  #header(size: number, fixed: number, fixedLimit: number, one: number, two: number): void {
    if (size < fixedLimit) return this.#byte(fixed | size)
    const at = this.#advance(5)
    const bytes = this.#bytes
    if (one !== 0 && size < 0x100) {
      bytes[at] = one
      bytes[at + 1] = size
      this.#position = at + 2
    } else if (size < 0x10000) {
      bytes[at] = two
      this.#view.setUint16(at + 1, size)
      this.#position = at + 3
    } else {
      bytes[at] = two + 1
      this.#view.setUint32(at + 1, size)
    }
  }

  #byte(value: number): void {
    const at = this.#position
    if (at === this.#bytes.length) this.#grow(1)
    this.#bytes[this.#position++] = value
  }

  /** Makes room for `size` bytes and returns where they start. */
  #advance(size: number): number {
    if (this.#position + size > this.#bytes.length) this.#grow(size)
    const at = this.#position
    this.#position = at + size
    return at
  }

  #grow(size: number): void {
    const open = this.#position - this.#begun
    const needed = open + size
    if (needed > this.#maxBytes + SPARE_BYTES) throw new FrameTooLargeError(needed, this.#maxBytes, { executed: 'no' })
    if (this.#begun > this.#finished) {
      this.#chunks.push(this.#bytes.subarray(this.#finished, this.#begun))
      this.#chunkBytes += this.#begun - this.#finished
    }
    const roomy = needed * 2 <= this.#slabBytes ? this.#slabBytes : Math.min(needed * 2, this.#maxBytes + SPARE_BYTES)
    const next = Buffer.allocUnsafeSlow(Math.max(roomy, needed))
    this.#bytes.copy(next, 0, this.#begun, this.#position)
    this.#bytes = next
    this.#view = new DataView(next.buffer, next.byteOffset, next.length)
    this.#position = open
    this.#begun = this.#finished = 0
  }
}

/**
 * One value by itself: for hashing, storage and tests. What every JavaScript value becomes:
 *
 * - whole numbers in the safe range: the shortest integer form (-0 is the integer 0); other numbers: float64, NaN and infinities
 *   included; whole numbers beyond 2^53 - 1 are refused. bigint: the shortest integer form; beyond 64 bits refused
 * - string: str; one with a lone surrogate is refused. boolean, null: themselves
 * - undefined: nil as an array element (holes of sparse arrays too) and by itself; an object or Map entry is left out
 * - array: array. Plain object (prototype Object.prototype or null): map of its own enumerable string keys. Map: map with any keys
 * - Buffer, typed array, DataView, ArrayBuffer: bin of the bytes as they lie in memory
 * - Date: datetime in UTC; an invalid one is refused. Decimal, Uuid, Datetime, Interval, BoxError: their extension
 * - Double, Float, ByteString, Extension, RawValue: as they say. Tuple: a plain array of its values
 * - everything else is refused: functions, symbols, boxed primitives, Set, RegExp, Error, Promise, instances of other classes (their
 *   `toJSON` is not called, so that a class decides for itself what it sends)
 * - more than 128 nested containers and circular structures are refused
 *
 * @throws InvalidArgumentError naming the place: `value.items[3] is a function, which has no MessagePack form`
 */
export function encodeValue(value: unknown): Buffer {
  const encoder = shared
  try {
    encoder.value(value)
    return Buffer.from(encoder.open())
  } finally {
    encoder.rollback()
    encoder.take()
  }
}

const NO_BYTES = Buffer.alloc(0)
const NO_VIEW = new DataView(new ArrayBuffer(0))
const SAFE = BigInt(Number.MAX_SAFE_INTEGER)
const LONE_SURROGATE = 'holds a lone surrogate, which has no UTF-8 form'
/** Up to this many bytes a loop copies faster than the system. */
const SHORT_RAW = 24
const SHORT_RAW_PART = 96
const REPLY_HEAD_BYTES = 28
/** Up to this length a loop over the characters beats a native call; three bytes for each still fit the form with one byte of size. */
const SHORT_TEXT = 40
/** Up to this length room for three bytes a character is taken at once. */
const MAX_TRIPLED = 8192
/** The form being written may be shorter than the room asked for it, at most that of a short text. */
const SPARE_BYTES = 128
const FIXED_EXTENSIONS: ReadonlyMap<number, number> = new Map([
  [1, 0xd4],
  [2, 0xd5],
  [4, 0xd6],
  [8, 0xd7],
  [16, 0xd8],
])

function textHeaderBytes(size: number): number {
  if (size < 32) return 1
  if (size < 0x100) return 2
  return size < 0x10000 ? 3 : 5
}

function mapHeaderBytes(size: number): number {
  if (size < 16) return 1
  return size < 0x10000 ? 3 : 5
}

/** ES2024, present in every Node.js we run on, absent from the library types we compile with. */
function isWellFormed(text: string): boolean {
  return (text as unknown as { isWellFormed(): boolean }).isWellFormed()
}

function viewBytes(view: ArrayBufferView): Uint8Array {
  return view instanceof Uint8Array ? view : new Uint8Array(view.buffer, view.byteOffset, view.byteLength)
}

function propertyName(key: string): string {
  return /^[A-Za-z_$][\w$]*$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`
}

function describeKey(key: unknown): string {
  if (typeof key === 'string') return JSON.stringify(key)
  if (typeof key === 'bigint') return `${key}n`
  return typeof key === 'object' && key !== null ? '{…}' : String(key)
}

function describeInstance(value: object): string {
  const { constructor } = value as { constructor?: unknown }
  const name = typeof constructor === 'function' && constructor.name !== '' ? constructor.name : 'an unnamed class'
  if (value instanceof Set) return 'is a Set, which has no MessagePack form: pass an array'
  if (value instanceof Promise) return 'is a Promise: await it first'
  return `is an instance of ${name}, which has no MessagePack form: pass a plain object`
}

const shared = new Encoder({ slabBytes: 4096 })
