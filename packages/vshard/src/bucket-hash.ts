import {
  type ByteString,
  type Datetime,
  type Decimal,
  type Double,
  type Extension,
  type Float,
  type Interval,
  InvalidArgumentError,
  type Tuple,
  type Uuid,
} from '@orbweaver/iproto'
import { CRC_START, crcValue } from './crc32c.js'
import { feedPart, isPlainObject } from './key-mpcrc32.js'
import { type BigintText, feedPartText } from './key-strcrc32.js'

/** One value of a sharding key. */
export type ShardingKeyPart =
  | string
  | number
  | bigint
  | boolean
  | Uint8Array
  | Date
  | ByteString
  | Decimal
  | Uuid
  | Datetime
  | Interval
  | Double
  | Float
  | Extension
  | Tuple

/**
 * What rows are sharded by: one value, or a list of values that are hashed one after another.
 *
 * A list ends at its first `undefined`, as in Lua; `null` is a value. Elements may be lists and maps themselves (mpcrc32
 * only). A map as the whole key counts as its list part, as in Lua: that is empty for string keys, so all such keys share
 * one bucket.
 */
export type ShardingKey =
  | ShardingKeyPart
  | readonly unknown[]
  | ReadonlyMap<unknown, unknown>
  | { readonly [key: string]: unknown }

/** Options of the two strcrc32 functions. */
export interface Strcrc32Options {
  /** How a bigint is spelled; see {@link BigintText}. Default `auto`. Numbers are always spelled as Lua numbers. */
  readonly bigints?: BigintText
}

/**
 * The bucket of a sharding key as `vshard.router.bucket_id_mpcrc32` computes it. The hash to use for new data: it depends
 * on the value only, not on the type that carries it (`1`, `1n` and a wide `1` from the wire are the same key).
 *
 * CRC-32C without the final inversion over the raw bytes of a string, over the MessagePack form of anything else, and
 * over the elements of a list one after another (so `['a', 'b']`, `['ab']` and `'ab'` share a bucket).
 * @param bucketCount - total buckets of the cluster, at least 1
 * @returns a bucket id in 1..bucketCount
 * @throws InvalidArgumentError for `undefined`, `null`, NaN, an integer beyond 64 bits, a value without a MessagePack
 * form, and a bucketCount that is not a positive integer
 * @example bucketIdMpcrc32(1, 30000) // 7614, as vshard 0.1.42 on Tarantool 3.2.1 answers
 */
export function bucketIdMpcrc32(key: ShardingKey, bucketCount: number): number {
  return bucketOf(mpcrc32(key), bucketCount)
}

/**
 * The bucket of a sharding key as `vshard.router.bucket_id_strcrc32` computes it. For data that was sharded so already:
 * the Lua text of a 64-bit integer depends on how Lua held it ({@link Strcrc32Options.bigints}), and texts of doubles
 * keep 14 digits only. Prefer {@link bucketIdMpcrc32} for new data.
 * @param bucketCount - total buckets of the cluster, at least 1
 * @returns a bucket id in 1..bucketCount
 * @throws InvalidArgumentError for `undefined`, `null`, nested lists and maps, values without a stable Lua text, and a
 * bucketCount that is not a positive integer
 * @example bucketIdStrcrc32(1, 30000) // 12477, as vshard 0.1.42 on Tarantool 3.2.1 answers
 */
export function bucketIdStrcrc32(key: ShardingKey, bucketCount: number, options: Strcrc32Options = {}): number {
  return bucketOf(strcrc32(key, options), bucketCount)
}

/**
 * The hash behind {@link bucketIdMpcrc32}, 0..4294967295.
 * @throws InvalidArgumentError as there
 */
export function mpcrc32(key: ShardingKey): number {
  const list = listOf(key)
  if (list === undefined) return crcValue(feedPart(CRC_START, key, 'key', -1))
  let crc = CRC_START
  for (let i = 0; i < list.length && list[i] !== undefined; i++) crc = feedPart(crc, list[i], 'key', i)
  return crcValue(crc)
}

/**
 * The hash behind {@link bucketIdStrcrc32}, 0..4294967295.
 * @throws InvalidArgumentError as there
 */
export function strcrc32(key: ShardingKey, options: Strcrc32Options = {}): number {
  const bigints = options.bigints ?? 'auto'
  const list = listOf(key)
  if (list === undefined) return crcValue(feedPartText(CRC_START, key, bigints, 'key', -1))
  let crc = CRC_START
  for (let i = 0; i < list.length && list[i] !== undefined; i++) crc = feedPartText(crc, list[i], bigints, 'key', i)
  return crcValue(crc)
}

/** The elements of a list key; undefined for a single value. A tuple is one value, as it is for Lua. */
function listOf(key: ShardingKey): readonly unknown[] | undefined {
  if (typeof key !== 'object') {
    if (key === undefined)
      throw new InvalidArgumentError('key is undefined: a row without a sharding key has no bucket')
    return undefined
  }
  if (key === null) throw new InvalidArgumentError('key is null: a row without a sharding key has no bucket')
  if (Array.isArray(key)) return key as readonly unknown[]
  if (key instanceof Map) return listPartOf(key)
  return isPlainObject(key) ? [] : undefined
}

function listPartOf(map: ReadonlyMap<unknown, unknown>): unknown[] {
  const list = []
  for (let i = 1; map.has(i); i++) list.push(map.get(i))
  return list
}

function bucketOf(hash: number, bucketCount: number): number {
  if (!Number.isSafeInteger(bucketCount) || bucketCount < 1) {
    throw new InvalidArgumentError(`bucketCount is ${bucketCount}, it must be a whole number of at least 1`)
  }
  return (hash % bucketCount) + 1
}
