/* What mpcrc32 feeds into the checksum: strings as their raw bytes, everything else as MessagePack in one canonical
 * spelling. The encoding is written here and not taken from an encoder, because the bucket of a row must never depend on
 * an encoder's choices: one wrong byte means a row that exists and cannot be found.
 *
 * Source: `hash.lua` of vshard 0.1.42 and msgpackffi of Tarantool 3.2.1 (2.6.0 agrees except for whole numbers outside
 * -2^63..2^64 and for uuids of the variant 0xff). */
import {
  ByteString,
  Datetime,
  Decimal,
  Double,
  encodeValue,
  Extension,
  Float,
  InvalidArgumentError,
  Interval,
  Tuple,
  Uuid,
} from '@orbweaver/iproto'
import { feedByte, feedBytes, feedText } from './crc32c.js'

/** Feeds one scalar key, or one element of a list key. `where` and `index` name it in errors. */
export function feedPart(crc: number, value: unknown, where: string, index: number): number {
  if (typeof value === 'string') return feedText(crc, value)
  if (value instanceof ByteString) return feedBytes(crc, value.bytes)
  return feedEncoded(crc, value, where, index, 0)
}

/** Feeds the complete MessagePack form of a value, strings with their header. */
function feedEncoded(crc: number, value: unknown, where: string, index: number, depth: number): number {
  switch (typeof value) {
    case 'number':
      return feedNumber(crc, value, where, index)
    case 'bigint':
      return feedBigint(crc, value, where, index)
    case 'boolean':
      return feedByte(crc, value ? 0xc3 : 0xc2)
    case 'string':
      return feedText(feedStringHeader(crc, Buffer.byteLength(value)), value)
    case 'object':
      if (value === null) return feedByte(crc, 0xc0)
      return feedObject(crc, value, where, index, depth)
    case 'undefined':
      return feedByte(crc, 0xc0)
    case 'function':
    case 'symbol':
      throw refusal(where, index, `is a ${typeof value}, which has no MessagePack form`)
  }
}

function feedNumber(crc: number, value: number, where: string, index: number): number {
  if (value >= 0) {
    if (value < 0x80 && Number.isInteger(value)) return feedByte(crc, value)
    if (Number.isInteger(value) && value < 2 ** 64) return feedUnsigned(crc, value)
  } else if (Number.isInteger(value) && value >= -(2 ** 63)) {
    return feedNegative(crc, value)
  }
  if (Number.isNaN(value)) throw refusal(where, index, 'is NaN, whose bytes differ between machines')
  return feedDouble(crc, value)
}

/** Shortest form; a double from 2^53 on is exact as well, it just has gaps to its neighbours. */
function feedUnsigned(crc: number, value: number): number {
  if (value < 0x80) return feedByte(crc, value)
  if (value <= 0xff) return feedByte(feedByte(crc, 0xcc), value)
  if (value <= 0xffff) return feed16(feedByte(crc, 0xcd), value)
  if (value <= 0xffffffff) return feed32(feedByte(crc, 0xce), value)
  return feed32(feed32(feedByte(crc, 0xcf), Math.floor(value / 2 ** 32)), value % 2 ** 32)
}

function feedNegative(crc: number, value: number): number {
  if (value >= -32) return feedByte(crc, value & 0xff)
  if (value >= -0x80) return feedByte(feedByte(crc, 0xd0), value & 0xff)
  if (value >= -0x8000) return feed16(feedByte(crc, 0xd1), value & 0xffff)
  if (value >= -0x80000000) return feed32(feedByte(crc, 0xd2), value)
  const high = Math.floor(value / 2 ** 32)
  return feed32(feed32(feedByte(crc, 0xd3), high), value - high * 2 ** 32)
}

function feedBigint(crc: number, value: bigint, where: string, index: number): number {
  if (value >= BigInt(Number.MIN_SAFE_INTEGER) && value <= BigInt(Number.MAX_SAFE_INTEGER)) {
    return value < 0n ? feedNegative(crc, Number(value)) : feedUnsigned(crc, Number(value))
  }
  if (value >= 2n ** 64n || value < -(2n ** 63n)) {
    throw refusal(where, index, `is ${value}, which does not fit 64 bits`)
  }
  const state = feedByte(crc, value < 0n ? 0xd3 : 0xcf)
  return feed32(feed32(state, Number(BigInt.asUintN(32, value >> 32n))), Number(BigInt.asUintN(32, value)))
}

function feedObject(crc: number, value: object, where: string, index: number, depth: number): number {
  if (depth >= MAX_DEPTH) throw refusal(where, index, `is nested deeper than ${MAX_DEPTH} levels`)
  if (Array.isArray(value)) return feedArray(crc, value, place(where, index), depth)
  if (value instanceof Map) return feedMap(crc, value.size, value, place(where, index), depth)
  if (value instanceof Uint8Array) return feedBytes(feedBinaryHeader(crc, value.length), value)
  if (value instanceof ByteString) return feedBytes(feedStringHeader(crc, value.bytes.length), value.bytes)
  if (value instanceof Tuple) return feedArray(crc, value.values, place(where, index), depth)
  if (value instanceof Double || value instanceof Float) {
    if (Number.isNaN(value.value)) throw refusal(where, index, 'is NaN, whose bytes differ between machines')
    return value instanceof Double ? feedDouble(crc, value.value) : feedFloat(crc, value.value)
  }
  if (EXTENSIONS.some((extension) => value instanceof extension)) return feedBytes(crc, encodeValue(value))
  if (isPlainObject(value)) {
    const entries = Object.entries(value).filter(([, item]) => item !== undefined)
    return feedMap(crc, entries.length, entries, place(where, index), depth)
  }
  throw refusal(where, index, `is a ${value.constructor.name}, which is no part of a sharding key`)
}

function feedArray(crc: number, items: readonly unknown[], where: string, depth: number): number {
  let state = feedLength(crc, items.length, 0x90, 0xdc)
  for (let i = 0; i < items.length; i++) state = feedEncoded(state, items[i], where, i, depth + 1)
  return state
}

function feedMap(
  crc: number,
  size: number,
  entries: Iterable<[unknown, unknown]>,
  where: string,
  depth: number,
): number {
  let state = feedLength(crc, size, 0x80, 0xde)
  for (const [key, value] of entries) {
    const inside = `${where}[${typeof key === 'string' ? JSON.stringify(key) : String(key)}]`
    state = feedEncoded(state, key, inside, -1, depth + 1)
    state = feedEncoded(state, value, inside, -1, depth + 1)
  }
  return state
}

/** Header of an array or a map: fix form up to 15, then 16 and 32 bits. */
function feedLength(crc: number, length: number, fix: number, wide: number): number {
  if (length < 16) return feedByte(crc, fix | length)
  if (length <= 0xffff) return feed16(feedByte(crc, wide), length)
  return feed32(feedByte(crc, wide + 1), length)
}

function feedStringHeader(crc: number, bytes: number): number {
  if (bytes < 32) return feedByte(crc, 0xa0 | bytes)
  if (bytes <= 0xff) return feedByte(feedByte(crc, 0xd9), bytes)
  if (bytes <= 0xffff) return feed16(feedByte(crc, 0xda), bytes)
  return feed32(feedByte(crc, 0xdb), bytes)
}

function feedBinaryHeader(crc: number, bytes: number): number {
  if (bytes <= 0xff) return feedByte(feedByte(crc, 0xc4), bytes)
  if (bytes <= 0xffff) return feed16(feedByte(crc, 0xc5), bytes)
  return feed32(feedByte(crc, 0xc6), bytes)
}

function feed16(crc: number, value: number): number {
  return feedByte(feedByte(crc, (value >>> 8) & 0xff), value & 0xff)
}

/** The low 32 bits of a whole number, also of one that is negative or above 2^31. */
function feed32(crc: number, value: number): number {
  return feed16(feed16(crc, (value >>> 16) & 0xffff), value & 0xffff)
}

function feedDouble(crc: number, value: number): number {
  SCRATCH.setFloat64(0, value)
  return feed32(feed32(feedByte(crc, 0xcb), SCRATCH.getUint32(0)), SCRATCH.getUint32(4))
}

function feedFloat(crc: number, value: number): number {
  SCRATCH.setFloat32(0, value)
  return feed32(feedByte(crc, 0xca), SCRATCH.getUint32(0))
}

/** Where a part of a key sits, as errors show it: `key`, `key[2]`, `key[2]["name"]`. */
function place(where: string, index: number): string {
  return index < 0 ? where : `${where}[${index}]`
}

export function refusal(where: string, index: number, reason: string): InvalidArgumentError {
  return new InvalidArgumentError(`${place(where, index)} ${reason}`)
}

export function isPlainObject(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === null || prototype === Object.prototype
}

/** Encoded by the protocol package: each of them has exactly one form on the wire. A Date travels as a datetime. */
const EXTENSIONS = [Uuid, Decimal, Datetime, Interval, Extension, Date]
const MAX_DEPTH = 64
const SCRATCH: DataView = new DataView(new ArrayBuffer(8))
