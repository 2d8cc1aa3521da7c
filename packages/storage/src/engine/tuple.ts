/*
 * A stored tuple is its MessagePack array, exactly as it came: replies copy these bytes and never encode again. Forms matter
 * (3 and 3.0 are different tuples), so everything here works on ranges of bytes and decodes only the fields it needs.
 */
import { decodeValue, skipValue } from '@orbweaver/iproto'
import { boxErrors } from '../errors.js'

export type StoredTuple = Buffer

/** Offsets of the fields: field i is [offsets[i], offsets[i + 1]). */
export type FieldOffsets = readonly number[]

/** Length of the array header at the start of `bytes`, and the number of elements. @throws BoxError 22 for anything but an array */
export function arrayHead(bytes: Buffer): { size: number; start: number } {
  const lead = bytes[0]
  if (lead !== undefined) {
    if (lead >= 0x90 && lead <= 0x9f) return { size: lead - 0x90, start: 1 }
    if (lead === 0xdc && bytes.length >= 3) return { size: bytes.readUInt16BE(1), start: 3 }
    if (lead === 0xdd && bytes.length >= 5) return { size: bytes.readUInt32BE(1), start: 5 }
  }
  throw boxErrors.tupleNotArray()
}

/** Where each field begins, plus the end. `limit` fields at the most are looked for. */
export function fieldOffsets(bytes: Buffer, limit: number = Number.MAX_SAFE_INTEGER): FieldOffsets {
  const { size, start } = arrayHead(bytes)
  const count = size < limit ? size : limit
  const offsets: number[] = [start]
  let offset = start
  for (let i = 0; i < count; i++) {
    offset = skipValue(bytes, offset, bytes.length)
    offsets.push(offset)
  }
  return offsets
}

export function fieldCount(bytes: Buffer): number {
  return arrayHead(bytes).size
}

/** The decoded field, or undefined when the tuple is shorter. */
export function fieldAt(bytes: Buffer, offsets: FieldOffsets, field: number): unknown {
  const start = offsets[field]
  const end = offsets[field + 1]
  return start === undefined || end === undefined ? undefined : decodeValue(bytes, { start, end })
}

/** A tuple made of encoded fields. */
export function tupleOf(fields: readonly Uint8Array[]): StoredTuple {
  const size = fields.length
  const head =
    size < 16 ? Buffer.of(0x90 | size) : size < 65_536 ? Buffer.of(0xdc, size >> 8, size & 255) : wideHead(size)
  return Buffer.concat([head, ...fields])
}

function wideHead(size: number): Buffer {
  const head = Buffer.alloc(5)
  head[0] = 0xdd
  head.writeUInt32BE(size, 1)
  return head
}
