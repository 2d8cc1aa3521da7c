import { readDatetime } from '../ext/datetime.js'
import { readDecimal } from '../ext/decimal.js'
import { errorValue } from '../ext/error.js'
import { readInterval } from '../ext/interval.js'
import { type FieldFormat, Tuple } from '../ext/tuple.js'
import { readUuid } from '../ext/uuid.js'
import { ExtensionType } from '../constants.js'
import { type BoxError, MalformedFrameError } from '../errors.js'
import type { DecodeOptions } from './decode-options.js'
import { MAX_PAYLOAD_NESTING, MAX_READ_NESTING } from './limits.js'
import { truncated } from './skip.js'
import { closeText, keyAt, openText, textAt } from './text.js'
import { ByteString, Double, Extension, Float } from './wrappers.js'

/**
 * The reader: every MessagePack value exactly as it is, within `start` and `stop` and nothing beyond. It knows all integers, all keys,
 * all bytes of strings and all extension types, and bounds depth and memory by what is really there.
 *
 * One value is read at a time and nothing of the caller runs meanwhile, so the state is the module's: reads of it are cheaper than
 * passing it down. Numbers of up to 32 bits are read without a look at `end`: whoever overruns it is found out at the end of the value,
 * and before anything of a size is read.
 */
export function readExactly(source: Buffer, start: number, stop: number, options: DecodeOptions): unknown {
  bytes = source
  if (source !== viewed) openView(source)
  position = start
  end = stop
  nesting = payloadNesting = 0
  unclaimed = stop - start
  isBigInts = options.integers === 'bigint'
  isNumbers = options.integers === 'number'
  isMaps = options.maps === 'map'
  isTextBytes = options.strings === 'bytes'
  metFormats = undefined
  openText(source, stop)
  try {
    const value = read()
    if (position > end) throw truncated(end)
    if (position < end) throw new MalformedFrameError(`${end - position} bytes are left behind a value`)
    return value
  } finally {
    bytes = NO_BYTES
    unsafe = undefined
    closeText()
    if (isLargeView) openView(NO_BYTES)
  }
}

/**
 * The formats of the tuples (extension 7) in the value read last: they stand elsewhere in a reply and are looked for only when there is
 * a tuple, so the caller fills the lists afterwards. undefined when there was none.
 */
export function takeMetFormats(): ReadonlyMap<number, FieldFormat[]> | undefined {
  const met = metFormats
  metFormats = undefined
  return met
}

const NO_BYTES = Buffer.alloc(0)
/** A received chunk is kept for its next frames; a buffer larger than that is let go. */
const MAX_KEPT_BYTES = 1_048_576

let bytes: Buffer = NO_BYTES
/** The memory of `viewed`, for floats; it starts `viewOffset` bytes before. */
let view: DataView = new DataView(NO_BYTES.buffer)
let viewed: Buffer = NO_BYTES
let viewOffset = 0
let isLargeView = false
let position = 0
let end = 0
let nesting = 0
let payloadNesting = 0
/** Bytes not yet claimed by an element: every element takes at least one, which bounds what headers can make us allocate. */
let unclaimed = 0
let isBigInts = false
let isNumbers = false
let isMaps = false
let isTextBytes = false
/** Formats of the tuples met in this value, by id: empty lists, shared by all tuples of an id, to be filled when the value is read. */
let metFormats: Map<number, FieldFormat[]> | undefined
/** The last refusal of `integers: 'number'`: nothing is wrong with the bytes then, so no payload is kept unread for it. */
let unsafe: MalformedFrameError | undefined

function read(): unknown {
  const first = bytes[position++]!
  if (first < 0x80) return isBigInts ? BigInt(first) : first
  if (first < 0xc0) {
    if (first >= 0xa0) return readText(first & 0x1f)
    return first >= 0x90 ? readArray(first & 0x0f) : readMap(first & 0x0f)
  }
  if (first >= 0xe0) return isBigInts ? BigInt(first - 0x100) : first - 0x100
  return readWide(first)
}

/** What starts with 0xc0..0xdf. */
function readWide(first: number): unknown {
  switch (first) {
    case 0xc0:
      return null
    case 0xc2:
      return false
    case 0xc3:
      return true
    case 0xc4:
      return readBin(readUint8())
    case 0xc5:
      return readBin(readUint16())
    case 0xc6:
      return readBin(readUint32())
    case 0xc7:
      return readExtension(readUint8())
    case 0xc8:
      return readExtension(readUint16())
    case 0xc9:
      return readExtension(readUint32())
    case 0xca:
      return view.getFloat32(viewOffset + advance(4))
    case 0xcb:
      return view.getFloat64(viewOffset + advance(8))
    case 0xcc:
      return integer(readUint8())
    case 0xcd:
      return integer(readUint16())
    case 0xce:
      return integer(readUint32())
    case 0xcf: {
      const high = readUint32()
      return integer64(high, readUint32())
    }
    case 0xd0:
      return integer((readUint8() << 24) >> 24)
    case 0xd1:
      return integer((readUint16() << 16) >> 16)
    case 0xd2:
      return integer(readUint32() | 0)
    case 0xd3: {
      const high = readUint32() | 0
      return integer64(high, readUint32())
    }
    case 0xd4:
      return readExtension(1)
    case 0xd5:
      return readExtension(2)
    case 0xd6:
      return readExtension(4)
    case 0xd7:
      return readExtension(8)
    case 0xd8:
      return readExtension(16)
    case 0xd9:
      return readText(readUint8())
    case 0xda:
      return readText(readUint16())
    case 0xdb:
      return readText(readUint32())
    case 0xdc:
      return readArray(readUint16())
    case 0xdd:
      return readArray(readUint32())
    case 0xde:
      return readMap(readUint16())
    case 0xdf:
      return readMap(readUint32())
    default:
      if (position > end) throw truncated(end)
      throw new MalformedFrameError('Byte 0xc1 is not MessagePack')
  }
}

/** Claims `size` bytes and returns where they start. */
function advance(size: number): number {
  if (size > end - position) throw truncated(end)
  const at = position
  position = at + size
  return at
}

function readUint8(): number {
  return bytes[advance(1)]!
}

function readUint16(): number {
  const at = advance(2)
  return (bytes[at]! << 8) | bytes[at + 1]!
}

function readUint32(): number {
  const at = advance(4)
  return bytes[at]! * 0x1000000 + ((bytes[at + 1]! << 16) | (bytes[at + 2]! << 8) | bytes[at + 3]!)
}

function openView(source: Buffer): void {
  viewed = source
  viewOffset = source.byteOffset
  if (view.buffer === source.buffer) return
  view = new DataView(source.buffer)
  isLargeView = view.byteLength > MAX_KEPT_BYTES
}

function integer(value: number): number | bigint {
  return isBigInts ? BigInt(value) : value
}

/** @param high - signed for signed forms, unsigned for unsigned ones */
function integer64(high: number, low: number): number | bigint {
  if (high < 0x200000 && high >= -0x200000 && !isBigInts) {
    const value = high * 0x100000000 + low
    // The one value in this range that is no safe integer is -2^53.
    if (value !== -0x20000000000000) return value
  }
  const value = (BigInt(high) << 32n) | BigInt(low)
  if (!isNumbers) return value
  unsafe = new MalformedFrameError(`${value} is not a safe integer, and integers are to be numbers`)
  throw unsafe
}

function readText(size: number): string | ByteString {
  const at = advance(size)
  return (isTextBytes ? undefined : textAt(at, at + size)) ?? new ByteString(copy(at, size))
}

function readBin(size: number): Buffer {
  return copy(advance(size), size)
}

/** Results outlive the chunk they were received in, so they must not hold it. */
function copy(at: number, size: number): Buffer {
  return Buffer.from(bytes.subarray(at, at + size))
}

function enter(elements: number): void {
  if (++nesting > MAX_READ_NESTING) throw new MalformedFrameError(`Values nest deeper than ${MAX_READ_NESTING} levels`)
  unclaimed -= elements
  if (unclaimed < 0 || elements > end - position) throw truncated(end)
}

function readArray(size: number): unknown[] {
  enter(size)
  // Beyond this length `new Array` makes a slow sparse one.
  const values: unknown[] = size <= MAX_PRESIZED ? new Array(size) : []
  if (isBigInts) for (let i = 0; i < size; i++) values[i] = read()
  else readElements(values, size)
  nesting--
  return values
}

/** The forms most rows are made of, without a call in between; integers as numbers. */
function readElements(values: unknown[], size: number): void {
  const source = bytes
  for (let i = 0; i < size; i++) {
    const at = position
    const first = source[at]!
    if (first < 0x80) {
      position = at + 1
      values[i] = first
    } else if (first === 0xcd) {
      position = at + 3
      values[i] = (source[at + 1]! << 8) | source[at + 2]!
    } else if (first === 0xce) {
      position = at + 5
      values[i] = source[at + 1]! * 0x1000000 + ((source[at + 2]! << 16) | (source[at + 3]! << 8) | source[at + 4]!)
    } else if (first === 0xcb && at + 9 <= end) {
      position = at + 9
      values[i] = view.getFloat64(viewOffset + at + 1)
    } else if (first === 0xc0) {
      position = at + 1
      values[i] = null
    } else {
      values[i] = read()
    }
  }
}

function readMap(size: number): Record<string, unknown> | Map<unknown, unknown> {
  enter(size * 2)
  if (isMaps) {
    const map = new Map<unknown, unknown>()
    for (let i = 0; i < size; i++) {
      const key = readKey()
      map.set(key, read())
    }
    nesting--
    return map
  }
  const record: Record<string, unknown> = {}
  // An object moves keys that look like indexes to its front: from the first such key on their order is kept here.
  let order: string[] | undefined
  for (let i = 0; i < size; i++) {
    const key = readKey()
    if (typeof key !== 'string') return continueAsMap(record, order, key, size - i)
    const first = key.charCodeAt(0)
    if (order !== undefined) order.push(key)
    else if (first >= ZERO && first <= NINE) order = [...Object.keys(record), key]
    const value = read()
    if (key === '__proto__') defineEntry(record, key, value)
    else record[key] = value
  }
  nesting--
  return record
}

/**
 * A key of another kind came up: the entries so far go into a Map, in the order of the wire, and the others behind them. Nothing is read
 * twice, so nesting such maps costs no more than their bytes.
 * @param key - the key just read, whose value comes next
 * @param left - entries from that key on
 */
function continueAsMap(
  record: Record<string, unknown>,
  order: string[] | undefined,
  key: unknown,
  left: number,
): Map<unknown, unknown> {
  const map = new Map<unknown, unknown>()
  for (const name of order ?? Object.keys(record)) map.set(name, record[name])
  map.set(key, read())
  for (let i = 1; i < left; i++) {
    const next = readKey()
    map.set(next, read())
  }
  nesting--
  return map
}

/** Text stays text as a key; a whole number in a float form stays a float, apart from the integer of the same value. */
function readKey(): unknown {
  const first = bytes[position]!
  if (first >= 0xa0 && first < 0xc0) {
    position++
    const size = first & 0x1f
    const at = advance(size)
    return keyAt(at, at + size) ?? new ByteString(copy(at, size))
  }
  if (first === 0xd9 || first === 0xda || first === 0xdb) {
    const asked = isTextBytes
    isTextBytes = false
    const key = read()
    isTextBytes = asked
    return key
  }
  const key = read()
  if ((first === 0xcb || first === 0xca) && Number.isInteger(key)) {
    return first === 0xcb ? new Double(key as number) : new Float(key as number)
  }
  return key
}

function defineEntry(record: Record<string, unknown>, key: string, value: unknown): void {
  Object.defineProperty(record, key, { value, writable: true, enumerable: true, configurable: true })
}

function readExtension(size: number): unknown {
  const type = (readUint8() << 24) >> 24
  const at = advance(size)
  const payload = bytes.subarray(at, at + size)
  return knownExtension(type, payload, at) ?? new Extension(type, copy(at, size))
}

/** @returns undefined for a type that has no class here, and for a payload its class cannot hold */
function knownExtension(type: number, payload: Buffer, at: number): unknown {
  switch (type) {
    case ExtensionType.decimal:
      return readDecimal(payload)
    case ExtensionType.uuid:
      return readUuid(payload)
    case ExtensionType.error:
      return nested(at, payload.length, readError)
    case ExtensionType.datetime:
      return readDatetime(payload)
    case ExtensionType.interval:
      return readInterval(payload)
    case ExtensionType.tuple:
      return nested(at, payload.length, readTuple)
    default:
      return undefined
  }
}

/**
 * Reads MessagePack inside a payload, in its bounds.
 * @returns undefined when the payload is not MessagePack to its end
 */
function nested<T>(at: number, size: number, readPayload: () => T | undefined): T | undefined {
  const outerEnd = end
  const outerPosition = position
  const outerNesting = nesting
  const outerUnclaimed = unclaimed
  const outerBigInts = isBigInts
  const outerNumbers = isNumbers
  const outerMaps = isMaps
  const outerText = isTextBytes
  position = at
  end = at + size
  payloadNesting++
  try {
    if (payloadNesting > MAX_PAYLOAD_NESTING || ++nesting > MAX_READ_NESTING) return undefined
    const value = readPayload()
    return position === end ? value : undefined
  } catch (error) {
    if (!(error instanceof MalformedFrameError) || error === unsafe) throw error
    unclaimed = outerUnclaimed
    return undefined
  } finally {
    end = outerEnd
    position = outerPosition
    nesting = outerNesting
    payloadNesting--
    isBigInts = outerBigInts
    isNumbers = outerNumbers
    isMaps = outerMaps
    isTextBytes = outerText
  }
}

function readError(): BoxError | undefined {
  isBigInts = isNumbers = isMaps = isTextBytes = false
  return errorValue(read())
}

function readTuple(): Tuple | undefined {
  const id = read()
  const values = read()
  if ((typeof id !== 'number' && typeof id !== 'bigint') || !Array.isArray(values)) return undefined
  metFormats ??= new Map()
  let format = metFormats.get(Number(id))
  if (format === undefined) metFormats.set(Number(id), (format = []))
  return new Tuple(values, format)
}

const MAX_PRESIZED = 65_536
const ZERO = 0x30
const NINE = 0x39
