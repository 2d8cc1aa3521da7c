import { isUtf8 } from 'node:buffer'

/**
 * Strings out of bytes, strictly: what is not UTF-8 is said so, never replaced.
 *
 * A call into native code costs more than most strings of a row. So a stretch of the source is turned into one Latin-1 string (the
 * window), and short ASCII strings are cut out of it; a string of 13 to 63 characters may thereby keep up to 2 KiB alive. Other short
 * text is decoded here, unit by unit, which also checks it, faster than the native decoder does in Node.js 20.
 */

let source: Buffer = Buffer.alloc(0)
let sourceEnd = 0
let window = ''
let windowStart = 0
let windowEnd = 0

/** Sets the bytes that `textAt` and `keyAt` read, up to `end`. */
export function openText(bytes: Buffer, end: number): void {
  source = bytes
  sourceEnd = end
  windowEnd = 0
}

/** Lets go of the bytes. */
export function closeText(): void {
  source = NO_BYTES
  window = ''
}

/** The string in a range of the open bytes, or undefined when it is not UTF-8. */
export function textAt(at: number, stop: number): string | undefined {
  const size = stop - at
  if (size >= LONG_TEXT) return longText(at, stop)
  const bytes = source
  let i = at
  for (const last = stop - 3; i < last; i += 4) {
    if (((bytes[i]! | bytes[i + 1]! | bytes[i + 2]! | bytes[i + 3]!) & 0x80) !== 0) return decodeUtf8(bytes, at, stop)
  }
  for (; i < stop; i++) if (bytes[i]! >= 0x80) return decodeUtf8(bytes, at, stop)
  if (stop > windowEnd || at < windowStart) moveWindow(at, stop)
  return window.substring(at - windowStart, stop - windowStart)
}

/**
 * As `textAt`, for keys of maps: the same ones come again and again, so they are remembered by their bytes. At most 1024 keys of up to
 * 31 bytes are.
 */
export function keyAt(at: number, stop: number): string | undefined {
  const size = stop - at
  if (size === 0 || size > MAX_KNOWN_KEY) return textAt(at, stop)
  const bytes = source
  const slot = ((size << 5) ^ (bytes[at]! << 3) ^ bytes[stop - 1]! ^ (bytes[at + (size >> 1)]! << 6)) & (KNOWN_KEYS - 1)
  const known = knownKeys[slot]
  if (known !== undefined && known.bytes.length === size) {
    let i = 0
    while (i < size && known.bytes[i] === bytes[at + i]) i++
    if (i === size) return known.text
  }
  const text = decodeUtf8(bytes, at, stop)
  if (text !== undefined) knownKeys[slot] = { bytes: Uint8Array.from(bytes.subarray(at, stop)), text }
  return text
}

function moveWindow(at: number, stop: number): void {
  windowStart = at
  windowEnd = Math.min(sourceEnd, Math.max(stop, at + WINDOW_BYTES))
  window = source.toString('latin1', windowStart, windowEnd)
}

function longText(at: number, stop: number): string | undefined {
  const size = stop - at
  if (size <= MAX_UNITS && !isAsciiStart(at)) return decodeUtf8(source, at, stop)
  const text = source.toString('utf8', at, stop)
  // Every character beyond ASCII takes more bytes than units, and every invalid byte became U+FFFD.
  if (text.length === size && !text.includes('\ufffd')) return text
  return isUtf8(source.subarray(at, stop)) ? text : undefined
}

function isAsciiStart(at: number): boolean {
  for (let i = at; i < at + PROBE_BYTES; i++) if (source[i]! >= 0x80) return false
  return true
}

/** Strict UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing beyond U+10FFFF. At most MAX_UNITS bytes. */
function decodeUtf8(bytes: Buffer, start: number, stop: number): string | undefined {
  let size = 0
  let at = start
  while (at < stop) {
    const first = bytes[at++]!
    if (first < 0x80) {
      units[size++] = first
    } else if (first < 0xe0) {
      const second = at < stop ? bytes[at]! ^ 0x80 : 0xff
      if (first < 0xc2 || second > 0x3f) return undefined
      at += 1
      units[size++] = ((first & 0x1f) << 6) | second
    } else if (first < 0xf0) {
      if (at + 1 >= stop) return undefined
      const second = bytes[at]! ^ 0x80
      const third = bytes[at + 1]! ^ 0x80
      const unit = ((first & 0x0f) << 12) | (second << 6) | third
      if ((second | third) > 0x3f || unit < 0x800 || (unit >= 0xd800 && unit < 0xe000)) return undefined
      at += 2
      units[size++] = unit
    } else {
      if (at + 2 >= stop) return undefined
      const second = bytes[at]! ^ 0x80
      const third = bytes[at + 1]! ^ 0x80
      const fourth = bytes[at + 2]! ^ 0x80
      const point = ((first & 0x07) << 18) | (second << 12) | (third << 6) | fourth
      if (first > 0xf4 || (second | third | fourth) > 0x3f || point < 0x10000 || point > 0x10ffff) return undefined
      at += 3
      units[size++] = 0xd7c0 + (point >> 10)
      units[size++] = 0xdc00 | (point & 0x3ff)
    }
  }
  if (size > FEW_UNITS && isLittleEndian) return unitBytes.toString('utf16le', 0, size * 2)
  const list = new Array<number>(size)
  for (let i = 0; i < size; i++) list[i] = units[i]!
  return String.fromCharCode.apply(undefined, list)
}

const NO_BYTES = Buffer.alloc(0)
/** How much of the source becomes one string: smaller costs calls, larger keeps more memory alive for one string that is kept. */
const WINDOW_BYTES = 2048
/** From here on a string is made by itself. */
const LONG_TEXT = 64
/** Bytes that tell whether a long text is likely to be ASCII. */
const PROBE_BYTES = 16
const MAX_UNITS = 4096
/** Up to this length the list of units is the cheaper way to a string. */
const FEW_UNITS = 16
const MAX_KNOWN_KEY = 31
const KNOWN_KEYS = 1024

const units = new Uint16Array(MAX_UNITS)
const unitBytes = Buffer.from(units.buffer)
const isLittleEndian = new Uint8Array(Uint16Array.of(1).buffer)[0] === 1
const knownKeys: ({ readonly bytes: Uint8Array; readonly text: string } | undefined)[] = Array.from({
  length: KNOWN_KEYS,
})
