/*
 * Hashes of encoded keys: equal for all forms of an equal key (5 may stand there in one byte or in nine). Only for types whose
 * values are equal in one way: numbers that may be floats or decimals are not among them.
 */
import type { FieldType } from './field-type.js'
import { valueAt } from './tuple.js'

/** Types whose keys can be hashed. */
export const HASHABLE: ReadonlySet<FieldType> = new Set<FieldType>([
  'unsigned',
  'integer',
  'string',
  'varbinary',
  'uuid',
  'boolean',
])

const SEED = 0x811c_9dc5
const PRIME = 0x0100_0193
const UUID_BYTES = 16

/** The hash of one more part of a key, which is the value in [start, end). @param hash - of the parts before it */
export function hashPart(bytes: Buffer, start: number, end: number, hash: number = SEED): number {
  const lead = bytes[start]!
  if (lead < 0x80 || lead >= 0xe0 || (lead >= 0xcc && lead <= 0xd3)) return hashNumber(valueAt(bytes, start, end), hash)
  const from = lead === 0xd8 || lead === 0xc7 ? end - UUID_BYTES : start + headBytes(lead)
  let mixed = hash
  for (let i = from; i < end; i++) mixed = Math.imul(mixed ^ bytes[i]!, PRIME)
  return scattered(mixed ^ (end - from))
}

/** Bytes of a text or binary before its contents; a boolean is its own contents. */
function headBytes(lead: number): number {
  if (lead >= 0xa0 && lead < 0xc0) return 1
  if (lead === 0xd9 || lead === 0xc4) return 2
  if (lead === 0xda || lead === 0xc5) return 3
  return lead === 0xdb || lead === 0xc6 ? 5 : 0
}

function hashNumber(value: unknown, hash: number): number {
  if (typeof value === 'bigint')
    return scattered(
      hash ^ Number(BigInt.asIntN(32, value)) ^ Math.imul(Number(BigInt.asIntN(32, value >> 32n)), PRIME),
    )
  const number = value as number
  const high = number >= 0 && number <= 0xffff_ffff ? 0 : Math.floor(number / 0x1_0000_0000)
  return scattered(hash ^ (number | 0) ^ Math.imul(high | 0, PRIME))
}

/** Spreads what differs in a few bits over all 32. */
function scattered(value: number): number {
  let mixed = value
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85eb_ca6b)
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2_ae35)
  return (mixed ^ (mixed >>> 16)) >>> 0
}
