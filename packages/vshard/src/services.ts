/* The services behind `vshard.storage._call(name, …)`: storage refs and map, health, and what storages ask each other.
 * Source: vshard 0.1.42, captured replies of Tarantool 2.6.0 and 3.2.1. */
import { type BucketRecord, asCount, asTrue, bucketRecordOf, isNumberList } from './buckets.js'
import { entriesOf, fieldOf, isRecord } from './lua-map.js'
import { KEEPS_REFS, SERVICES, STORAGE_FUNCTIONS, type ServiceName } from './service-names.js'
import { isNothing, readServiceReply, type ServiceCall, type ServiceReply, toSeconds } from './service-reply.js'

/** What an instance says about itself. Every instance answers, also a disabled storage. */
export interface InstanceInfo {
  readonly isMaster: boolean
  /** The instance's name; undefined where names are not the keys of the configuration. */
  readonly name: string | undefined
  /** Replication from the master, when it was asked for; undefined when the instance has none to show. */
  readonly masterUpstream: MasterUpstream | undefined
}

export interface MasterUpstream {
  /** `follow`, `sync`, `loading`, `stopped`, `disconnected`, …, as Tarantool names them. */
  readonly status: string
  readonly idleMs: number | undefined
  readonly lagMs: number | undefined
}

/** A call of a service by its name, with its arguments as they travel. */
export function serviceCall(service: ServiceName, args: readonly unknown[]): ServiceCall {
  return { name: STORAGE_FUNCTIONS.service, args: [service, ...args] }
}

/**
 * Asks who the instance is. With `health` it also tells of its replication, for which an instance that does not know its
 * master waits up to that time.
 */
export function infoCall(options: { readonly health?: { readonly timeoutMs: number } } = {}): ServiceCall {
  if (options.health === undefined) return serviceCall(SERVICES.info, [])
  return serviceCall(SERVICES.info, [{ with_health: true, timeout: toSeconds(options.health.timeoutMs) }])
}

export function readInfo(values: readonly unknown[]): ServiceReply<InstanceInfo> {
  return readServiceReply(SERVICES.info, values, (value) => {
    const isMaster = fieldOf(value, 'is_master')
    if (typeof isMaster !== 'boolean') return undefined
    const name = fieldOf(value, 'name')
    return {
      isMaster,
      name: typeof name === 'string' ? name : undefined,
      masterUpstream: upstreamOf(fieldOf(fieldOf(value, 'health'), 'master_upstream')),
    }
  })
}

/**
 * Takes a storage ref: until it is used, given back or runs out, no bucket leaves the storage. Waits until all buckets
 * are writable. Refs live in the session that took them.
 * @param refId - a number that no other ref of the session has
 */
export function storageRefCall(refId: number, timeoutMs: number): ServiceCall {
  return serviceCall(SERVICES.storageRef, [refId, toSeconds(timeoutMs)])
}

/** @returns the number of buckets on the storage, of any status */
export function readStorageRef(values: readonly unknown[]): ServiceReply<number> {
  return readServiceReply(SERVICES.storageRef, values, asCount)
}

/** A bucket that is not where it was asked for. */
export interface MovedBucket {
  readonly id: number
  /** Id of the replicaset it went to, if the storage still knows. */
  readonly destination: string | undefined
  /** `sent` or `garbage`; undefined when there is no record any more. */
  readonly status: string | undefined
}

/** The answer to a ref for chosen buckets. */
export interface BucketsRefReply {
  /** False: all the buckets are gone and no ref was taken. */
  readonly isReferenced: boolean
  readonly moved: readonly MovedBucket[]
}

/** Takes a storage ref for the sake of some buckets, and tells which of them are not there. */
export function storageRefMakeWithBucketsCall(
  refId: number,
  timeoutMs: number,
  bucketIds: readonly number[],
): ServiceCall {
  return serviceCall(SERVICES.storageRefMakeWithBuckets, [refId, toSeconds(timeoutMs), bucketIds])
}

export function readStorageRefMakeWithBuckets(values: readonly unknown[]): ServiceReply<BucketsRefReply> {
  return readServiceReply(SERVICES.storageRefMakeWithBuckets, values, (value) => {
    const moved = movedIn(value)
    return moved === undefined ? undefined : { isReferenced: fieldOf(value, 'is_done') === true, moved }
  })
}

/** Asks a storage on which this session has a ref which of some more buckets are not there. */
export function storageRefCheckWithBucketsCall(refId: number, bucketIds: readonly number[]): ServiceCall {
  return serviceCall(SERVICES.storageRefCheckWithBuckets, [refId, bucketIds])
}

export function readStorageRefCheckWithBuckets(
  values: readonly unknown[],
): ServiceReply<{ readonly moved: readonly MovedBucket[] }> {
  return readServiceReply(SERVICES.storageRefCheckWithBuckets, values, (value) => {
    const moved = movedIn(value)
    return moved === undefined ? undefined : { moved }
  })
}

/** Calls a function under the ref, which is used up by it whatever the function does. */
export function storageMapCall(refId: number, functionName: string, args: readonly unknown[] = []): ServiceCall {
  return serviceCall(SERVICES.storageMap, [refId, functionName, args])
}

/**
 * What the function returned: a list of at most one value, empty for none (a function that returned `nil, error` looks
 * like that too). `executed` of an error is `no` when the ref was refused, `yes` when the function failed.
 */
export function readStorageMap(values: readonly unknown[]): ServiceReply<readonly unknown[]> {
  return readServiceReply(SERVICES.storageMap, values, (status) => (status === true ? values.slice(1, 2) : undefined))
}

/** Gives a ref back. */
export function storageUnrefCall(refId: number): ServiceCall {
  return serviceCall(SERVICES.storageUnref, [refId])
}

export function readStorageUnref(values: readonly unknown[]): ServiceReply<true> {
  return readServiceReply(SERVICES.storageUnref, values, asTrue)
}

/**
 * Asks whether moves wait for the storage references of this instance also when another one has become the master. Storages of
 * this project answer true; to those in Lua it is no function (error 33, or 42 without rights).
 */
export function keepsRefsCall(): ServiceCall {
  return { name: KEEPS_REFS, args: [] }
}

export function readKeepsRefs(values: readonly unknown[]): ServiceReply<boolean> {
  return readServiceReply(KEEPS_REFS, values, (value) => (typeof value === 'boolean' ? value : undefined))
}

/** Asks a replica which of the buckets may not be collected yet. */
export function bucketTestGcCall(bucketIds: readonly number[]): ServiceCall {
  return serviceCall(SERVICES.bucketTestGc, [bucketIds])
}

/** @returns the ids that must wait */
export function readBucketTestGc(values: readonly unknown[]): ServiceReply<readonly number[]> {
  return readServiceReply(SERVICES.bucketTestGc, values, (value) => {
    const ids = fieldOf(value, 'bids_not_ok')
    return isNumberList(ids) ? ids : undefined
  })
}

/** Asks a replica to wait until nobody writes to the buckets, which are readonly there. It raises what stands against it. */
export function bucketTestSendCall(bucketIds: readonly number[], timeoutMs: number): ServiceCall {
  return serviceCall(SERVICES.bucketTestSend, [bucketIds, { timeout: toSeconds(timeoutMs) }])
}

export function readBucketTestSend(values: readonly unknown[]): ServiceReply<true> {
  return readServiceReply(SERVICES.bucketTestSend, values, (value) => (isNothing(value) ? true : asTrue(value)))
}

/** Asks a synchronised master for the record of a bucket: the other side of a move deciding what became of it. */
export function recoveryBucketStatCall(bucketId: number): ServiceCall {
  return serviceCall(SERVICES.recoveryBucketStat, [bucketId])
}

/** @returns `bucket` undefined when the storage has no record of it */
export function readRecoveryBucketStat(
  values: readonly unknown[],
): ServiceReply<{ readonly bucket: BucketRecord | undefined }> {
  return readServiceReply(SERVICES.recoveryBucketStat, values, (value) => {
    if (isNothing(value)) return { bucket: undefined }
    const bucket = bucketRecordOf(value)
    return bucket === undefined ? undefined : { bucket }
  })
}

/** Asks a former master for the position of its last bucket transaction; it waits until it is read-only. */
export function storageBucketCheckpointCall(timeoutMs: number): ServiceCall {
  return serviceCall(SERVICES.storageBucketCheckpoint, [toSeconds(timeoutMs)])
}

/** @returns the vclock by numeric ids of instances */
export function readStorageBucketCheckpoint(values: readonly unknown[]): ServiceReply<ReadonlyMap<number, number>> {
  return readServiceReply(SERVICES.storageBucketCheckpoint, values, (value) => vclockOf(fieldOf(value, 'vclock')))
}

/** One message of a bucket's move. */
export interface BucketChunk {
  readonly bucketId: number
  /** Id of the sending replicaset. */
  readonly from: string
  /** Rows by space, at most 1000 in all; a bucket without rows still sends one message with all its spaces. */
  readonly data: readonly (readonly [space: string, tuples: readonly unknown[]])[]
  readonly generation: number
  /** The closing message, without data: the bucket becomes active. */
  readonly isLast?: boolean
  /** How long the receiver may wait for its turn to make the record; vshard's own senders leave it out (300,000). */
  readonly timeoutMs?: number
}

/** Sends one message of a move to the receiver. */
export function bucketRecvCall(chunk: BucketChunk): ServiceCall {
  const options: Record<string, unknown> = { generation: chunk.generation }
  if (chunk.isLast === true) options['is_last'] = true
  if (chunk.timeoutMs !== undefined) options['timeout'] = toSeconds(chunk.timeoutMs)
  return { name: STORAGE_FUNCTIONS.bucketRecv, args: [chunk.bucketId, chunk.from, chunk.data, options] }
}

export function readBucketRecv(values: readonly unknown[]): ServiceReply<true> {
  return readServiceReply(STORAGE_FUNCTIONS.bucketRecv, values, asTrue)
}

/** How many buckets a storage could give away, and how many it may not. */
export interface RebalancerState {
  readonly activeCount: number
  readonly pinnedCount: number
}

export function rebalancerRequestStateCall(): ServiceCall {
  return { name: STORAGE_FUNCTIONS.rebalancerRequestState, args: [] }
}

export function readRebalancerRequestState(values: readonly unknown[]): ServiceReply<RebalancerState> {
  return readServiceReply(STORAGE_FUNCTIONS.rebalancerRequestState, values, (value) => {
    const activeCount = asCount(fieldOf(value, 'bucket_active_count'))
    const pinnedCount = asCount(fieldOf(value, 'bucket_pinned_count'))
    return activeCount === undefined || pinnedCount === undefined ? undefined : { activeCount, pinnedCount }
  })
}

/** Orders a storage to send buckets: how many to which replicaset. It answers at once and works on in the background. */
export function rebalancerApplyRoutesCall(routes: ReadonlyMap<string, number>): ServiceCall {
  return { name: STORAGE_FUNCTIONS.rebalancerApplyRoutes, args: [Object.fromEntries(routes)] }
}

export function readRebalancerApplyRoutes(values: readonly unknown[]): ServiceReply<true> {
  return readServiceReply(STORAGE_FUNCTIONS.rebalancerApplyRoutes, values, asTrue)
}

function upstreamOf(value: unknown): MasterUpstream | undefined {
  const status = fieldOf(value, 'status')
  if (typeof status !== 'string') return undefined
  return { status, idleMs: toMilliseconds(fieldOf(value, 'idle')), lagMs: toMilliseconds(fieldOf(value, 'lag')) }
}

function toMilliseconds(seconds: unknown): number | undefined {
  return typeof seconds === 'number' ? seconds * 1000 : undefined
}

function movedIn(value: unknown): readonly MovedBucket[] | undefined {
  const moved = fieldOf(value, 'moved')
  if (!Array.isArray(moved)) return undefined
  const found = moved.map((item): MovedBucket | undefined => {
    const [id, destination, status] = [fieldOf(item, 'id'), fieldOf(item, 'dst'), fieldOf(item, 'status')]
    if (typeof id !== 'number') return undefined
    return {
      id,
      destination: typeof destination === 'string' ? destination : undefined,
      status: typeof status === 'string' ? status : undefined,
    }
  })
  return found.every((item) => item !== undefined) ? found : undefined
}

/** A vclock is a map with numeric keys; one whose keys are 1, 2, … in a row may arrive as a list. */
function vclockOf(value: unknown): ReadonlyMap<number, number> | undefined {
  const entries = Array.isArray(value)
    ? value.map((lsn: unknown, i): [unknown, unknown] => [i + 1, lsn])
    : isRecord(value)
      ? entriesOf(value)
      : undefined
  if (entries === undefined) return undefined
  const vclock = new Map<number, number>()
  for (const [id, lsn] of entries) {
    const instance = Number(id)
    if (!Number.isInteger(instance) || (typeof lsn !== 'number' && typeof lsn !== 'bigint')) return undefined
    vclock.set(instance, Number(lsn))
  }
  return vclock
}
