/*
 * What a router and other storages call on a storage: `vshard.storage.*` as vshard 0.1.42 answers it (shapes and order of checks:
 * vectors of real storages). Refusals are values, `[nil, error]`; only wrong use raises.
 */
import { BoxError, encodeValue, RawValue } from '@orbweaver/iproto'
import { KEEPS_REFS, SERVICES, STORAGE_FUNCTIONS, VshardError } from '@orbweaver/vshard'
import type { RebalancerState } from '@orbweaver/vshard'
import { arrayHead } from '../engine/tuple.js'
import { boxErrors } from '../errors.js'
import { functionError } from '../function-context.js'
import type { FunctionContext } from '../function-context.js'
import { values } from '../functions.js'
import type { StoredFunction, Values } from '../functions.js'
import { argumentList, bucketIdOf, countsOf, fieldOf, functionName, milliseconds } from './arguments.js'
import { readBucketMessage, receiveBucket, reserveTurn } from './bucket-receive.js'
import type { BucketRecord } from './bucket-record.js'
import { sendBucket } from './bucket-send.js'
import type { BucketSendOptions } from './bucket-send.js'
import { storageInfo } from './info.js'
import type { InfoParts } from './info.js'
import { internalServices } from './internal-services.js'
import type { Service } from './internal-services.js'
import { AWAIT_REFS, RELEASE_TURN, RESERVE_TURN } from './peer-services.js'
import { answered, raisedIn, refused, timeoutFor } from './refusals.js'
import { bucketRows, shardedSpaces } from './sharded-spaces.js'
import type { VshardParts } from './vshard-parts.js'

export interface ServiceParts extends InfoParts {
  /** @throws VshardError, BoxError: why this storage takes no part in rebalancing now */
  rebalancerState(): RebalancerState
  /** Begins to send. @throws VshardError, BoxError */
  applyRoutes(routes: ReadonlyMap<string, number>): void
}

const PAGE = 1_000
/** `vshard.storage.call` hands on three results of a function at the most. */
const MAX_RESULTS = 3

/** Every function by its public name. */
export function vshardFunctions(parts: ServiceParts): Record<string, StoredFunction> {
  const receive: Service = (context, ...args) => bucketRecv(parts, context, args)
  const requestState: Service = () => answered(() => stateReply(parts.rebalancerState()))
  const applyRoutes: Service = (_context, routes) =>
    answered(() => {
      parts.applyRoutes(countsOf(routes))
      return true
    })
  const services = internalServices(parts, {
    [SERVICES.rebalancerRequestState]: requestState,
    [SERVICES.rebalancerApplyRoutes]: applyRoutes,
    [SERVICES.bucketRecv]: receive,
  })
  const functions: Record<string, Service> = {
    [STORAGE_FUNCTIONS.call]: (context, bucketId, mode, name, args) =>
      callOnBucket(parts, context, bucketId, mode, name, args),
    [STORAGE_FUNCTIONS.service]: (context, service, ...args) => {
      const found = typeof service === 'string' && Object.hasOwn(services, service) ? services[service] : undefined
      if (found === undefined)
        throw boxErrors.procLua(`attempt to call a nil value: there is no service '${String(service)}'`)
      return found(context, ...args)
    },
    [STORAGE_FUNCTIONS.bucketsCount]: () => parts.buckets.size,
    [STORAGE_FUNCTIONS.bucketStat]: (_context, id) => bucketStat(parts, bucketIdOf(id, 'bucket_stat(bucket_id)')),
    [STORAGE_FUNCTIONS.bucketsDiscovery]: (_context, options) => discoveryPage(parts, options),
    [STORAGE_FUNCTIONS.bucketsInfo]: (_context, id) => bucketsInfo(parts, id),
    [STORAGE_FUNCTIONS.bucketForceCreate]: (_context, first, count = 1) => forceCreate(parts, first, count),
    [STORAGE_FUNCTIONS.bucketForceDrop]: (_context, id) => {
      parts.buckets.remove(bucketIdOf(id, 'bucket_force_drop(bucket_id)'))
      return true
    },
    [STORAGE_FUNCTIONS.bucketCollect]: (_context, id) => collect(parts, bucketIdOf(id, 'bucket_collect(bucket_id)')),
    [STORAGE_FUNCTIONS.bucketRecv]: receive,
    [STORAGE_FUNCTIONS.bucketSend]: (_context, id, destination, options) => bucketSend(parts, id, destination, options),
    [STORAGE_FUNCTIONS.sync]: (_context, timeout) =>
      answered(async () => {
        await parts.own.synced(milliseconds(timeout, parts.settings.syncTimeoutMs / 1000), 'sync')
        return true
      }),
    [STORAGE_FUNCTIONS.rebalancerRequestState]: requestState,
    [STORAGE_FUNCTIONS.rebalancerApplyRoutes]: applyRoutes,
    [RESERVE_TURN]: (_context, id, from, timeout) =>
      answered(async () => {
        await reserveTurn(parts, bucketIdOf(id, 'reserve_turn(bucket_id, from)'), String(from), milliseconds(timeout))
        return true
      }),
    [RELEASE_TURN]: (_context, id, from) => {
      parts.reservations.release(bucketIdOf(id, 'release_turn(bucket_id, from)'), String(from))
      return true
    },
    // Sending and receiving ask every other instance of the replicaset for the end of its references (AWAIT_REFS).
    [KEEPS_REFS]: () => true,
    [AWAIT_REFS]: (_context, timeout) =>
      answered(async () => {
        const deadline = parts.clock.now() + milliseconds(timeout)
        if (!(await parts.storageRefs.ended(deadline)))
          throw timeoutFor(`instance ${parts.identity.instanceId} still holds storage refs`)
        return true
      }),
  }
  const guarded = Object.fromEntries(
    Object.entries(functions).map(([name, run]): [string, StoredFunction] => [
      name,
      (context, ...args) => {
        if (!parts.isEnabled) throw boxErrors.procLua(DISABLED.toWireText())
        return run(context, ...args)
      },
    ]),
  )
  return { ...guarded, [INFO]: () => storageInfo(parts) }
}

/** Part of vshard's local API; answered while the storage is disabled, too. */
const INFO = 'vshard.storage.info'

const DISABLED = VshardError.of('STORAGE_IS_DISABLED', { reason: 'storage is disabled explicitly' })

// ---- vshard.storage.call ---------------------------------------------------------------------------------------------

async function callOnBucket(
  parts: VshardParts,
  context: FunctionContext,
  bucketId: unknown,
  mode: unknown,
  name: unknown,
  args: unknown,
): Promise<Values> {
  if (typeof bucketId !== 'number') throw boxErrors.procLua('bucket_id must be a number')
  if (mode !== 'read' && mode !== 'write') throw boxErrors.procLua('Unknown mode')
  const ref = parts.bucketRefs.take(bucketId, mode)
  if (ref instanceof VshardError) return refused(ref)
  let reply: Values
  try {
    const results = await parts.invoke(context, functionName(name), argumentList(args))
    reply = values(true, ...withoutTrailingNils(results.slice(0, MAX_RESULTS)))
  } catch (error) {
    reply = values(false, raisedIn(name, functionError(error)))
  }
  const corrupted = parts.bucketRefs.release(ref)
  return corrupted === undefined ? reply : refused(corrupted)
}

function withoutTrailingNils(results: readonly unknown[]): unknown[] {
  let length = results.length
  while (length > 0 && (results[length - 1] === null || results[length - 1] === undefined)) length--
  return results.slice(0, length)
}

// ---- buckets ---------------------------------------------------------------------------------------------------------

function statOf({ id, status, destination, generation }: BucketRecord, isTransferring: boolean): Map<unknown, unknown> {
  // A tuple turned into a map by Lua has its positions and its names.
  const stat = new Map<unknown, unknown>([
    [1, id],
    [2, status],
    ['id', id],
    ['status', status],
  ])
  if (destination !== undefined) stat.set(3, destination).set('destination', destination)
  if (generation > 0) stat.set(4, { generation }).set('opts', { generation })
  if (isTransferring) stat.set('is_transfering', true)
  return stat
}

function bucketStat({ bucketRefs, buckets, transfers }: VshardParts, id: number): Values {
  const record = buckets.get(id)
  const unreadable = bucketRefs.unreadable(id)
  return values(record === undefined ? null : statOf(record, transfers.has(id)), unreadable?.toWire() ?? null)
}

/** With `{from}` a page of at most 1,000 scanned records; without, the flat list of active and then pinned ids. */
function discoveryPage({ buckets }: VshardParts, options: unknown): unknown {
  const from = fieldOf(options, 'from')
  if (typeof from !== 'number') {
    const all = [...buckets.from(0)]
    return ['active', 'pinned'].flatMap((status) =>
      all.filter((record) => record.status === status).map((record) => record.id),
    )
  }
  const ids: number[] = []
  let scanned = 0
  let last = from
  for (const record of buckets.from(from, PAGE)) {
    scanned++
    last = record.id
    if (record.status === 'active' || record.status === 'pinned') ids.push(record.id)
  }
  return scanned === PAGE ? { buckets: ids, next_from: last + 1 } : { buckets: ids }
}

function bucketsInfo({ buckets, bucketRefs }: VshardParts, id: unknown): Map<number, unknown> {
  const info = new Map<number, unknown>()
  const only = typeof id === 'number' ? buckets.get(id) : undefined
  for (const record of typeof id === 'number' ? (only === undefined ? [] : [only]) : buckets.from(0)) {
    const { read, write, readLock, writeLock } = bucketRefs.of(record.id) ?? NO_COUNTERS
    info.set(record.id, {
      id: record.id,
      status: record.status,
      generation: record.generation,
      ...(record.destination === undefined ? {} : { destination: record.destination }),
      ...(read === 0 ? {} : { ref_ro: read }),
      ...(write === 0 ? {} : { ref_rw: write }),
      ...(readLock ? { ro_lock: true } : {}),
      ...(writeLock ? { rw_lock: true } : {}),
    })
  }
  return info
}

const NO_COUNTERS = { read: 0, write: 0, readLock: false, writeLock: false } as const

async function forceCreate(parts: VshardParts, first: unknown, count: unknown): Promise<unknown> {
  if (typeof first !== 'number' || typeof count !== 'number')
    throw boxErrors.procLua('Usage: bucket_force_create(first_bucket_id, count)')
  return answered(async () => {
    // A cluster is bootstrapped right after its masters were promoted: they may need a moment.
    await parts.buckets.until(() => isSynced(parts), parts.clock.now() + SYNC_MS)
    parts.assertSynced()
    try {
      parts.buckets.create(first, count)
    } catch (error) {
      // As it was raised: vshard does not make a map of it here.
      if (error instanceof BoxError) return values(null, error)
      throw error
    }
    return true
  })
}

const SYNC_MS = 2_000

function isSynced(parts: VshardParts): boolean {
  if (!parts.identity.isMaster) return true // there is nothing to wait for
  try {
    parts.assertSynced()
    return true
  } catch (error) {
    if (error instanceof VshardError) return false
    throw error
  }
}

/** Every row of a readable bucket, space by space. */
function collect({ bucketRefs, engine, settings }: VshardParts, id: number): unknown {
  const unreadable = bucketRefs.unreadable(id)
  if (unreadable !== undefined) return refused(unreadable)
  return shardedSpaces(engine, settings.shardIndex).map((sharded) => [
    sharded.space.name,
    bucketRows(engine, sharded, id).map((tuple) => new RawValue(tuple)),
  ])
}

// ---- moves -----------------------------------------------------------------------------------------------------------

async function bucketRecv(parts: VshardParts, context: FunctionContext, args: readonly unknown[]): Promise<unknown> {
  return answered(async () => {
    await receiveBucket(parts, readBucketMessage(argumentBytesOf(context, args)))
    return true
  })
}

/** Through `_call` the first argument is the service's name: then the decoded ones are encoded again. */
function argumentBytesOf(context: FunctionContext, args: readonly unknown[]): Buffer {
  const { argumentBytes } = context as FunctionContext & { readonly argumentBytes?: Buffer | undefined }
  const isDirect = argumentBytes !== undefined && arrayHead(argumentBytes).size === args.length
  return isDirect ? argumentBytes : encodeValue(args)
}

async function bucketSend(parts: VshardParts, id: unknown, destination: unknown, options: unknown): Promise<unknown> {
  if (typeof id !== 'number' || typeof destination !== 'string')
    throw boxErrors.procLua('Usage: bucket_send(bucket_id, destination)')
  return answered(async () => {
    await sendBucket(parts, id, destination, sendOptions(options))
    return true
  })
}

function sendOptions(options: unknown): BucketSendOptions {
  const given = (name: string): number | undefined => {
    const value = fieldOf(options, name)
    return value === undefined || value === null ? undefined : milliseconds(value)
  }
  const [timeout, chunkTimeout, refTimeout, syncTimeout] = [
    given('timeout'),
    given('chunk_timeout'),
    given('ref_timeout'),
    given('sync_timeout'),
  ]
  return {
    ...(timeout === undefined ? {} : { timeout }),
    ...(chunkTimeout === undefined ? {} : { chunkTimeout }),
    ...(refTimeout === undefined ? {} : { refTimeout }),
    ...(syncTimeout === undefined ? {} : { syncTimeout }),
  }
}

function stateReply({ activeCount, pinnedCount }: RebalancerState): Record<string, number> {
  return { bucket_active_count: activeCount, bucket_pinned_count: pinnedCount }
}
