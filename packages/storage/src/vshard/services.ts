/*
 * What a router calls on a storage: `vshard.storage.*` as vshard 0.1.42 answers it (shapes and order of checks: vectors of
 * real storages). Refusals are values, `[nil, error]`; only wrong use raises.
 */
import { BoxError } from '@orbweaver/iproto'
import { VshardError } from '@orbweaver/vshard'
import { boxErrors } from '../errors.js'
import { functionError } from '../function-context.js'
import type { FunctionContext } from '../function-context.js'
import { values } from '../functions.js'
import type { StoredFunction, Values } from '../functions.js'
import { BUCKET_STATUS } from './bucket-record.js'
import type { BucketRecord } from './bucket-record.js'
import type { BucketMode, BucketRefs, VshardIdentity } from './bucket-refs.js'
import { isMoved } from './buckets.js'
import type { Buckets } from './buckets.js'
import type { StorageRefs } from './storage-refs.js'

export interface VshardParts {
  readonly buckets: Buckets
  readonly bucketRefs: BucketRefs
  readonly storageRefs: StorageRefs
  readonly identity: VshardIdentity
  /** Name of this instance where instances are identified by name. */
  readonly name: string | undefined
  invoke(
    context: FunctionContext,
    name: string,
    args: readonly unknown[],
  ): readonly unknown[] | Promise<readonly unknown[]>
  /** True when every other instance has everything written here; false when it is not so within the time. */
  synced(timeoutMs: number): Promise<boolean>
}

/** vshard's default call timeout, where a router sends none. */
const DEFAULT_TIMEOUT_S = 0.5
const PAGE = 1_000
/** `vshard.storage.call` hands on three results of a function at the most. */
const MAX_RESULTS = 3

type Service = (context: FunctionContext, ...args: unknown[]) => unknown

/** Every function by its public name. */
export function vshardFunctions(parts: VshardParts): Record<string, StoredFunction> {
  const services = internalServices(parts)
  return {
    'vshard.storage.call': (context, bucketId, mode, name, args) =>
      callOnBucket(parts, context, bucketId, mode, name, args),
    'vshard.storage._call': (context, service, ...args) => {
      const found = typeof service === 'string' && Object.hasOwn(services, service) ? services[service] : undefined
      if (found === undefined)
        throw boxErrors.procLua(`attempt to call a nil value: there is no service '${String(service)}'`)
      return found(context, ...args)
    },
    'vshard.storage.buckets_count': () => parts.buckets.size,
    'vshard.storage.bucket_stat': (_context, id) => bucketStat(parts, id),
    'vshard.storage.buckets_discovery': (_context, options) => discoveryPage(parts, options),
    'vshard.storage.buckets_info': (_context, id) => bucketsInfo(parts, id),
    'vshard.storage.bucket_force_create': (_context, first, count = 1) => forceCreate(parts, first, count),
    'vshard.storage.sync': async (_context, timeout = 1) =>
      (await parts.synced(milliseconds(timeout))) ? true : values(null, unpacked(boxErrors.timeout())),
    'vshard.storage.rebalancer_request_state': () => rebalancerState(parts),
  }
}

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
  if (mode !== 'read' && mode !== 'write') throw boxErrors.procLua(`Unknown mode: ${String(mode)}`)
  const refusal = parts.bucketRefs.take(bucketId, mode)
  if (refusal !== undefined) return values(null, refusal.toWire())
  let reply: Values
  try {
    const results = await parts.invoke(context, functionName(name), argumentList(args))
    reply = values(true, ...withoutTrailingNils(results.slice(0, MAX_RESULTS)))
  } catch (error) {
    reply = values(false, unpacked(functionError(error)))
  }
  return released(parts.bucketRefs, bucketId, mode) ?? reply
}

function released(bucketRefs: BucketRefs, bucketId: number, mode: BucketMode): Values | undefined {
  const corrupted = bucketRefs.release(bucketId, mode)
  return corrupted === undefined ? undefined : values(null, corrupted.toWire())
}

function withoutTrailingNils(results: readonly unknown[]): unknown[] {
  let length = results.length
  while (length > 0 && (results[length - 1] === null || results[length - 1] === undefined)) length--
  return results.slice(0, length)
}

/** A box error as Lua's `error:unpack()` gives it, which is how vshard puts it into results. */
export function unpacked(error: BoxError): Record<string, unknown> {
  return {
    type: error.boxType,
    base_type: error.boxType === 'AccessDeniedError' ? 'AccessDeniedError' : 'ClientError',
    code: error.boxCode,
    message: error.message,
    trace: [{ file: error.file, line: error.line }],
    ...(error.cause instanceof BoxError ? { prev: unpacked(error.cause) } : {}),
  }
}

// ---- buckets ---------------------------------------------------------------------------------------------------------

function statOf(record: BucketRecord): Map<unknown, unknown> {
  // A tuple turned into a map by Lua has its positions and its names.
  const stat = new Map<unknown, unknown>([
    [1, record.id],
    [2, record.status],
    ['id', record.id],
    ['status', record.status],
  ])
  if (record.destination !== undefined) stat.set(3, record.destination).set('destination', record.destination)
  if (record.generation > 0)
    stat.set(4, { generation: record.generation }).set('opts', { generation: record.generation })
  return stat
}

function bucketStat({ buckets }: VshardParts, id: unknown): Values {
  if (typeof id !== 'number') throw boxErrors.procLua('Usage: bucket_stat(bucket_id)')
  const record = buckets.get(id)
  if (record === undefined)
    return values(null, VshardError.of('WRONG_BUCKET', { bucket_id: id, reason: 'Not found' }).toWire())
  if (BUCKET_STATUS[record.status].isReadable) return values(statOf(record), null)
  const { destination } = record
  return values(
    statOf(record),
    VshardError.of('WRONG_BUCKET', { bucket_id: id, reason: 'read is prohibited', destination }).toWire(),
  )
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
  for (const record of buckets.from(from)) {
    scanned++
    last = record.id
    if (record.status === 'active' || record.status === 'pinned') ids.push(record.id)
    if (scanned === PAGE) break
  }
  return scanned === PAGE ? { buckets: ids, next_from: last + 1 } : { buckets: ids }
}

function bucketsInfo({ buckets, bucketRefs }: VshardParts, id: unknown): Map<number, unknown> {
  const info = new Map<number, unknown>()
  const only = typeof id === 'number' ? buckets.get(id) : undefined
  for (const record of typeof id === 'number' ? (only === undefined ? [] : [only]) : buckets.from(0)) {
    const refs = bucketRefs.of(record.id)
    info.set(record.id, {
      id: record.id,
      status: record.status,
      destination: record.destination,
      generation: record.generation,
      ref_ro: refs === undefined || refs.read === 0 ? undefined : refs.read,
      ref_rw: refs === undefined || refs.write === 0 ? undefined : refs.write,
    })
  }
  return info
}

function forceCreate({ buckets }: VshardParts, first: unknown, count: unknown): unknown {
  if (typeof first !== 'number' || typeof count !== 'number')
    throw boxErrors.procLua('Usage: bucket_force_create(first_bucket_id, count)')
  try {
    buckets.create(first, count)
    return true
  } catch (error) {
    return values(null, unpacked(functionError(error)))
  }
}

function rebalancerState({ buckets, identity }: VshardParts): unknown {
  const refusal = masterOnly(identity)
  if (refusal !== undefined) return values(null, refusal.toWire())
  for (const status of ['sending', 'receiving', 'garbage', 'readonly'] as const)
    if (buckets.count(status) > 0) return undefined
  return { bucket_active_count: buckets.count('active'), bucket_pinned_count: buckets.count('pinned') }
}

function masterOnly({
  isMaster,
  instanceId: replica,
  replicasetId: replicaset,
  masterId: master,
}: VshardIdentity): VshardError | undefined {
  return isMaster ? undefined : VshardError.of('NON_MASTER', { replica, replicaset, master })
}

// ---- vshard.storage._call --------------------------------------------------------------------------------------------

function internalServices(parts: VshardParts): Readonly<Record<string, Service>> {
  const { buckets, storageRefs, identity } = parts
  const services: Record<string, Service> = {
    info: () => ({ is_master: identity.isMaster, name: parts.name ?? null }),
    storage_ref: async (context, rid, timeout) =>
      answered(async () => {
        await storageRefs.add(context.session.id, refId(rid), milliseconds(timeout))
        return buckets.size
      }),
    storage_ref_make_with_buckets: async (context, rid, timeout, ids) => {
      const wanted = idList(ids)
      const gone = movedOf(buckets, wanted)
      if (gone.length === wanted.length) return { moved: gone }
      return answered(async () => {
        const { generation } = buckets
        await storageRefs.add(context.session.id, refId(rid), milliseconds(timeout))
        const moved = buckets.generation === generation ? gone : movedOf(buckets, wanted)
        if (moved.length < wanted.length) return { is_done: true, moved }
        storageRefs.remove(context.session.id, refId(rid))
        return { moved }
      })
    },
    storage_ref_check_with_buckets: (context, rid, ids) =>
      answered(() => {
        storageRefs.assertHeld(context.session.id, refId(rid))
        return { moved: movedOf(buckets, idList(ids)) }
      }),
    storage_map: async (context, rid, name, args) => {
      const { id } = context.session
      try {
        storageRefs.use(id, refId(rid))
      } catch (error) {
        return refused(error)
      }
      try {
        const results = await parts.invoke(context, functionName(name), argumentList(args))
        return results[0] === undefined || results[0] === null ? true : values(true, results[0])
      } catch (error) {
        return values(null, unpacked(functionError(error)))
      } finally {
        // A used ref cannot expire: it is still there, whatever the function did.
        storageRefs.remove(id, refId(rid))
      }
    },
    storage_unref: (context, rid) =>
      answered(() => {
        storageRefs.remove(context.session.id, refId(rid))
        return true
      }),
    bucket_test_gc: (_context, ids) => ({
      bids_not_ok: idList(ids).filter((id) => {
        const record = buckets.get(id)
        const isGone = record === undefined || record.status === 'sent' || record.status === 'garbage'
        return !isGone || (parts.bucketRefs.of(id)?.read ?? 0) > 0
      }),
    }),
    test_api: (_context, ...args) => values(Object.keys(services).toSorted(), ...args),
  }
  return services
}

async function answered(work: () => unknown): Promise<unknown> {
  try {
    return await work()
  } catch (error) {
    return refused(error)
  }
}

/** Refusals of vshard and of the storage are values; a fault of ours goes up. */
function refused(error: unknown): Values {
  if (error instanceof VshardError) return values(null, error.toWire())
  if (error instanceof BoxError) return values(null, unpacked(error))
  throw error
}

function movedOf(buckets: Buckets, ids: readonly number[]): { id: number; dst?: string; status?: string }[] {
  return ids.flatMap((id) => {
    const record = buckets.get(id)
    if (!isMoved(record)) return []
    return [
      {
        id,
        ...(record?.destination === undefined ? {} : { dst: record.destination }),
        ...(record === undefined ? {} : { status: record.status }),
      },
    ]
  })
}

// ---- arguments -------------------------------------------------------------------------------------------------------

function functionName(value: unknown): string {
  if (typeof value === 'string') return value
  throw boxErrors.procLua(`a function name must be a string, got ${typeof value}`)
}

function argumentList(value: unknown): readonly unknown[] {
  if (value === undefined || value === null) return []
  if (Array.isArray(value)) return value
  throw boxErrors.procLua('arguments must be a list')
}

function idList(value: unknown): readonly number[] {
  if (Array.isArray(value) && value.every((id) => typeof id === 'number')) return value
  throw boxErrors.procLua('bucket ids must be a list of numbers')
}

function refId(value: unknown): number | bigint {
  if (typeof value === 'number' || typeof value === 'bigint') return value
  throw boxErrors.procLua('a ref id must be a number')
}

/** Lua's seconds, as whole or broken numbers. */
function milliseconds(seconds: unknown): number {
  const value = seconds ?? DEFAULT_TIMEOUT_S
  if (typeof value !== 'number' || Number.isNaN(value) || value < 0) {
    throw boxErrors.procLua(
      `A timeout is a number of seconds from 0, got ${typeof value === 'number' ? value : typeof value}`,
    )
  }
  return value * 1000
}

function fieldOf(value: unknown, name: string): unknown {
  if (value instanceof Map) return value.get(name)
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name)
    ? (value as Record<string, unknown>)[name]
    : undefined
}
