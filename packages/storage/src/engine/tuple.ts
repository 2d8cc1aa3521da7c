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
    offset = skipField(bytes, offset, bytes.length)
    offsets.push(offset)
  }
  return offsets
}

/** Where the value at `at` ends: as `skipValue`, at once for what is most common. */
export function skipField(bytes: Buffer, at: number, end: number): number {
  const lead = bytes[at]!
  let next = at + 1
  if (lead >= 0xa0 && lead < 0xc0) next += lead & 0x1f
  else if (lead >= 0xcc && lead <= 0xcf) next += 1 << (lead - 0xcc)
  else if (lead === 0xcb) next += 8
  else if (lead === 0xd9) next += 1 + bytes[at + 1]!
  else if ((lead >= 0x80 && lead < 0xa0) || (lead > 0xc3 && lead < 0xe0)) return skipValue(bytes, at, end)
  // A value that is cut, or none at all: the exact reader says so.
  return next <= end && lead !== 0xc1 ? next : skipValue(bytes, at, end)
}

/** The decoded field, or undefined when the tuple is shorter. */
export function fieldAt(bytes: Buffer, offsets: FieldOffsets, field: number): unknown {
  return field + 1 < offsets.length ? valueAt(bytes, offsets[field]!, offsets[field + 1]!) : undefined
}

/** The decoded value in [start, end). Whole numbers, which most keys are, are read here: for one, a reader is a detour. */
export function valueAt(bytes: Buffer, start: number, end: number): unknown {
  const lead = bytes[start]!
  if (lead < 0x80) return lead
  switch (end - start) {
    case 1:
      if (lead >= 0xe0) return lead - 0x100
      break
    case 2:
      if (lead === 0xcc) return bytes[start + 1]!
      break
    case 3:
      if (lead === 0xcd) return (bytes[start + 1]! << 8) | bytes[start + 2]!
      break
    case 5:
      if (lead === 0xce) return uint32At(bytes, start + 1)
      break
    case 9:
      if (lead === 0xcf && bytes[start + 1] === 0 && bytes[start + 2]! < 0x20)
        return uint32At(bytes, start + 1) * 0x1_0000_0000 + uint32At(bytes, start + 5)
  }
  return decodeValue(bytes, { start, end })
}

export function uint32At(bytes: Buffer, at: number): number {
  return ((bytes[at]! << 24) | (bytes[at + 1]! << 16) | (bytes[at + 2]! << 8) | bytes[at + 3]!) >>> 0
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
