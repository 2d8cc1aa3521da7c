/* Calls about buckets as such: where they are, how many, making and dropping their records. Source: vshard 0.1.42,
 * captured replies of Tarantool 2.6.0 and 3.2.1. */
import type { BoxError } from '@orbweaver/iproto'
import type { VshardError } from './errors.js'
import { fieldOf, isRecord } from './lua-map.js'
import { STORAGE_FUNCTIONS } from './service-names.js'
import {
  errorIn,
  isNothing,
  readServiceReply,
  type ServiceCall,
  type ServiceReply,
  toSeconds,
  unexpectedReply,
} from './service-reply.js'

/** Status of a bucket on one storage. */
export const BUCKET_STATUSES = ['active', 'pinned', 'readonly', 'sending', 'sent', 'receiving', 'garbage'] as const
export type BucketStatus = (typeof BUCKET_STATUSES)[number]

/** The record of a bucket as a storage shows it. */
export interface BucketRecord {
  readonly id: number
  readonly status: BucketStatus
  /** Receiver of a bucket that leaves or left, sender of one that arrives; id of a replicaset. */
  readonly destination: string | undefined
  /** How often the bucket was sent so far. */
  readonly generation: number
  /** Whether a transfer of it runs right now; false also where the call does not tell. */
  readonly isTransferring: boolean
}

/** What `bucket_stat` answered: the record (with the reason when the bucket cannot be read), or that there is none. */
export type BucketStatReply =
  | { readonly kind: 'present'; readonly bucket: BucketRecord; readonly unreadable: VshardError | BoxError | undefined }
  | { readonly kind: 'absent'; readonly error: VshardError | BoxError }

/** One page of discovery: the active and pinned buckets among the records scanned. May be empty and not the last. */
export interface DiscoveryPage {
  readonly buckets: readonly number[]
  /** Where the next page starts; undefined on the last one. */
  readonly nextFrom: number | undefined
}

/** Asks a storage for the record of one bucket. */
export function bucketStatCall(bucketId: number): ServiceCall {
  return { name: STORAGE_FUNCTIONS.bucketStat, args: [bucketId] }
}

/** @throws MalformedFrameError when the reply has another shape */
export function readBucketStat(values: readonly unknown[]): BucketStatReply {
  const [record, error] = values
  if (isNothing(record)) {
    if (isNothing(error)) throw unexpectedReply(STORAGE_FUNCTIONS.bucketStat, values)
    return { kind: 'absent', error: errorIn(error) }
  }
  const bucket = bucketRecordOf(record)
  if (bucket === undefined) throw unexpectedReply(STORAGE_FUNCTIONS.bucketStat, values)
  return { kind: 'present', bucket, unreadable: isNothing(error) ? undefined : errorIn(error) }
}

/** A record in a reply of `bucket_stat` or `recovery_bucket_stat`; undefined when it is none. */
export function bucketRecordOf(value: unknown): BucketRecord | undefined {
  const [id, status, destination] = [fieldOf(value, 'id'), fieldOf(value, 'status'), fieldOf(value, 'destination')]
  if (typeof id !== 'number' || !isBucketStatus(status)) return undefined
  const generation = fieldOf(value, 'generation') ?? fieldOf(fieldOf(value, 'opts'), 'generation')
  return {
    id,
    status,
    destination: typeof destination === 'string' ? destination : undefined,
    generation: typeof generation === 'number' ? generation : 0,
    isTransferring: fieldOf(value, 'is_transfering') === true,
  }
}

/**
 * Asks for one page of buckets: a storage scans at most 1000 records from `from` on, in the order of ids.
 * @param from - 1 for the first page
 */
export function bucketsDiscoveryCall(from: number): ServiceCall {
  return { name: STORAGE_FUNCTIONS.bucketsDiscovery, args: [{ from }] }
}

/** Reads a page, and the plain list that `buckets_discovery` answers when it is called without a position. */
export function readBucketsDiscovery(values: readonly unknown[]): ServiceReply<DiscoveryPage> {
  return readServiceReply(STORAGE_FUNCTIONS.bucketsDiscovery, values, (page) => {
    if (isNumberList(page)) return { buckets: page, nextFrom: undefined }
    const [buckets, nextFrom] = [fieldOf(page, 'buckets'), fieldOf(page, 'next_from') ?? undefined]
    if (!isNumberList(buckets) || (nextFrom !== undefined && typeof nextFrom !== 'number')) return undefined
    return { buckets, nextFrom }
  })
}

/** Asks how many bucket records of any status a storage has. */
export function bucketsCountCall(): ServiceCall {
  return { name: STORAGE_FUNCTIONS.bucketsCount, args: [] }
}

export function readBucketsCount(values: readonly unknown[]): ServiceReply<number> {
  return readServiceReply(STORAGE_FUNCTIONS.bucketsCount, values, asCount)
}

/** Makes `count` bucket records from `first` on: the bootstrap of a cluster. Not one transaction: a part may stay. */
export function bucketForceCreateCall(first: number, count: number): ServiceCall {
  return { name: STORAGE_FUNCTIONS.bucketForceCreate, args: [first, count] }
}

export function readBucketForceCreate(values: readonly unknown[]): ServiceReply<true> {
  return readServiceReply(STORAGE_FUNCTIONS.bucketForceCreate, values, asTrue)
}

/** Deletes the record of a bucket: refused (raised as BUCKET_INVALID_UPDATE) unless the bucket is garbage. */
export function bucketForceDropCall(bucketId: number): ServiceCall {
  return { name: STORAGE_FUNCTIONS.bucketForceDrop, args: [bucketId] }
}

export function readBucketForceDrop(values: readonly unknown[]): ServiceReply<true> {
  return readServiceReply(STORAGE_FUNCTIONS.bucketForceDrop, values, asTrue)
}

/** How a bucket is sent. All times in milliseconds. */
export interface BucketSendOptions {
  /** Of the whole move; default Infinity. */
  readonly timeout?: number
  /** vshard's `chunk_timeout`, default 300,000. */
  readonly chunkTimeout?: number
  /** vshard's `ref_timeout`, default 300,000. */
  readonly refTimeout?: number
  /** vshard's `sync_timeout`, default 60,000. */
  readonly syncTimeout?: number
}

/** Orders a storage to send one of its buckets; `destination` is the id of a replicaset. */
export function bucketSendCall(bucketId: number, destination: string, options: BucketSendOptions = {}): ServiceCall {
  const seconds: Record<string, number> = {}
  if (options.timeout !== undefined) seconds['timeout'] = toSeconds(options.timeout)
  if (options.chunkTimeout !== undefined) seconds['chunk_timeout'] = toSeconds(options.chunkTimeout)
  if (options.refTimeout !== undefined) seconds['ref_timeout'] = toSeconds(options.refTimeout)
  if (options.syncTimeout !== undefined) seconds['sync_timeout'] = toSeconds(options.syncTimeout)
  return { name: STORAGE_FUNCTIONS.bucketSend, args: [bucketId, destination, seconds] }
}

export function readBucketSend(values: readonly unknown[]): ServiceReply<true> {
  return readServiceReply(STORAGE_FUNCTIONS.bucketSend, values, asTrue)
}

/** Waits until every configured replica has confirmed what the storage has now. */
export function storageSyncCall(timeoutMs: number): ServiceCall {
  return { name: STORAGE_FUNCTIONS.sync, args: [toSeconds(timeoutMs)] }
}

export function readStorageSync(values: readonly unknown[]): ServiceReply<true> {
  return readServiceReply(STORAGE_FUNCTIONS.sync, values, asTrue)
}

/** What a bucket record and its counters are on one storage; without an id all of them are asked. */
export function bucketsInfoCall(bucketId?: number): ServiceCall {
  return { name: STORAGE_FUNCTIONS.bucketsInfo, args: bucketId === undefined ? [] : [bucketId] }
}

/** A record of `buckets_info`: the bucket, who holds it, and which locks wait for them. */
export interface BucketInfo extends BucketRecord {
  readonly readRefs: number
  readonly writeRefs: number
  readonly readLocked: boolean
  readonly writeLocked: boolean
}

export function readBucketsInfo(values: readonly unknown[]): ServiceReply<readonly BucketInfo[]> {
  return readServiceReply(STORAGE_FUNCTIONS.bucketsInfo, values, (value) => {
    // An empty Lua table travels as an empty list, and one with the ids 1, 2, … as a list.
    const records = Array.isArray(value) ? value : isRecord(value) ? recordValues(value) : undefined
    const found = records?.filter((record) => !isNothing(record)).map(bucketInfoOf)
    return found?.every((info) => info !== undefined) ? found : undefined
  })
}

function bucketInfoOf(value: unknown): BucketInfo | undefined {
  const record = bucketRecordOf(value)
  if (record === undefined) return undefined
  return {
    ...record,
    readRefs: asCount(fieldOf(value, 'ref_ro')) ?? 0,
    writeRefs: asCount(fieldOf(value, 'ref_rw')) ?? 0,
    readLocked: fieldOf(value, 'ro_lock') === true,
    writeLocked: fieldOf(value, 'rw_lock') === true,
  }
}

function recordValues(value: ReadonlyMap<unknown, unknown> | Readonly<Record<string, unknown>>): unknown[] {
  return value instanceof Map ? [...value.values()] : Object.values(value)
}

function isBucketStatus(value: unknown): value is BucketStatus {
  return BUCKET_STATUSES.some((status) => status === value)
}

export function isNumberList(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((item) => typeof item === 'number')
}

export function asCount(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : undefined
}

export function asTrue(value: unknown): true | undefined {
  return value === true ? true : undefined
}
