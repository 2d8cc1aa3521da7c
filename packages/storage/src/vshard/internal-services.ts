/* The services behind `vshard.storage._call`, as vshard 0.1.42 answers them. Refusals are values, `[nil, error]`, unless said. */
import { BoxError } from '@orbweaver/iproto'
import { SERVICES, toSeconds, VshardError } from '@orbweaver/vshard'
import type { RebalancerState } from '@orbweaver/vshard'
import { boxErrors } from '../errors.js'
import { functionError } from '../function-context.js'
import type { FunctionContext } from '../function-context.js'
import { values } from '../functions.js'
import type { Values } from '../functions.js'
import { argumentList, bucketIdOf, fieldOf, functionName, idList, milliseconds, refId } from './arguments.js'
import { isMoved } from './buckets.js'
import { answered, raisedIn, refused, timeoutFor } from './refusals.js'
import type { VshardParts } from './vshard-parts.js'
import type { Waiters } from './waiters.js'

export type Service = (context: FunctionContext, ...args: unknown[]) => unknown

/** How rows of the master come in, as Tarantool's `box.info.replication[i].upstream` says it. */
export interface MasterUpstream {
  /** `follow`, `connect`, `disconnected` or `stopped`. */
  readonly status: string
  /** Milliseconds since anything came from it. */
  readonly idleMs?: number
  /** How old its last row was when it came, in milliseconds. */
  readonly lagMs?: number
}

export interface InternalParts extends VshardParts {
  /** Changes of the role wake it. */
  readonly role: Waiters
  /** undefined: the master is not known. */
  masterUpstream(): MasterUpstream | undefined
  /** Position of this instance. */
  vclock(): ReadonlyMap<number, number>
}

/** How long `info` looks for the master when its caller does not say. */
const INFO_TIMEOUT_S = 5

export function internalServices(
  parts: InternalParts,
  publicServices: Readonly<Record<string, Service>>,
): Readonly<Record<string, Service>> {
  const { buckets, storageRefs, identity } = parts
  const services: Record<string, Service> = {
    ...publicServices,
    [SERVICES.info]: (_context, options) => info(parts, options),
    [SERVICES.storageRef]: async (context, rid, timeout) =>
      answered(async () => {
        await storageRefs.add(context.session.id, refId(rid), milliseconds(timeout))
        return buckets.size
      }),
    [SERVICES.storageRefMakeWithBuckets]: async (context, rid, timeout, ids) => {
      const wanted = idList(ids)
      const gone = movedOf(parts, wanted)
      if (gone.length === wanted.length) return { moved: gone }
      return answered(async () => {
        const { generation } = buckets
        await storageRefs.add(context.session.id, refId(rid), milliseconds(timeout))
        const moved = buckets.generation === generation ? gone : movedOf(parts, wanted)
        if (moved.length < wanted.length) return { is_done: true, moved }
        storageRefs.remove(context.session.id, refId(rid))
        return { moved }
      })
    },
    [SERVICES.storageRefCheckWithBuckets]: (context, rid, ids) =>
      answered(() => {
        storageRefs.assertHeld(context.session.id, refId(rid))
        return { moved: movedOf(parts, idList(ids)) }
      }),
    [SERVICES.storageMap]: (context, rid, name, args) => map(parts, context, refId(rid), name, args),
    [SERVICES.storageUnref]: (context, rid) =>
      answered(() => {
        storageRefs.remove(context.session.id, refId(rid))
        return true
      }),
    [SERVICES.bucketTestGc]: (_context, ids) => ({
      bids_not_ok: idList(ids).filter((id) => {
        const status = buckets.get(id)?.status
        const isGone = status === undefined || status === 'sent' || status === 'garbage'
        return !isGone || parts.transfers.has(id) || (parts.bucketRefs.of(id)?.read ?? 0) > 0
      }),
    }),
    [SERVICES.bucketTestSend]: (_context, ids, options) =>
      testSend(parts, idList(ids), milliseconds(fieldOf(options, 'timeout'))),
    [SERVICES.recoveryBucketStat]: (_context, id) =>
      answered(() => recoveryStat(parts, bucketIdOf(id, 'recovery_bucket_stat(bucket_id)'))),
    [SERVICES.storageBucketCheckpoint]: (_context, timeout) =>
      answered(async () => {
        const deadline = parts.clock.now() + milliseconds(timeout)
        if (!(await parts.role.until(() => !identity.isMaster, deadline))) throw timeoutFor('waiting for non-master')
        return { vclock: parts.vclock() }
      }),
    [SERVICES.createReplicasetRecoveryPoint]: () => {
      throw boxErrors.unsupported('vshard', 'recovery point creation')
    },
    [SERVICES.testApi]: (_context, ...args) => values(Object.keys(services).toSorted(), ...args),
  }
  return services
}

async function info(parts: InternalParts, options: unknown): Promise<unknown> {
  const { identity, name } = parts
  const base = { is_master: identity.isMaster, name: name ?? null }
  if (fieldOf(options, 'with_health') !== true) return base
  return answered(async () => {
    const deadline = parts.clock.now() + milliseconds(fieldOf(options, 'timeout'), INFO_TIMEOUT_S)
    const isKnown = await parts.role.until(() => identity.isMaster || parts.masterUpstream() !== undefined, deadline)
    if (!isKnown) throw boxErrors.timeout()
    const upstream = identity.isMaster ? { status: 'follow', idleMs: 0, lagMs: 0 } : parts.masterUpstream()
    const health = upstream === undefined ? {} : { master_upstream: upstreamReply(upstream) }
    return { is_master: identity.isMaster, name: name ?? null, health }
  })
}

function upstreamReply({ status, idleMs, lagMs }: MasterUpstream): Record<string, unknown> {
  return {
    status,
    ...(idleMs === undefined ? {} : { idle: toSeconds(idleMs) }),
    ...(lagMs === undefined ? {} : { lag: toSeconds(lagMs) }),
  }
}

async function map(
  parts: VshardParts,
  context: FunctionContext,
  rid: number | bigint,
  name: unknown,
  args: unknown,
): Promise<Values | true> {
  const { storageRefs } = parts
  const { id } = context.session
  try {
    storageRefs.use(id, rid)
  } catch (error) {
    return refused(error)
  }
  let reply: Values | true
  try {
    const results = await parts.invoke(context, functionName(name), argumentList(args))
    reply = results[0] === undefined || results[0] === null ? true : values(true, results[0])
  } catch (error) {
    reply = values(null, raisedIn(name, functionError(error)))
  }
  // A used ref does not expire, but an operator may have deleted it: then what was read may be of no one moment.
  if (storageRefs.finish(id, rid)) return reply
  return refused(VshardError.of('STORAGE_REF_USE', { reason: 'the ref was deleted while its map ran' }))
}

async function testSend(parts: VshardParts, ids: readonly number[], timeoutMs: number): Promise<undefined> {
  const { bucketRefs, buckets, clock, identity, storageRefs } = parts
  const deadline = clock.now() + timeoutMs
  for (const id of ids) {
    const status = buckets.get(id)?.status ?? 'nil'
    if (status !== 'readonly') throw raised(id, `Bucket is '${status}' instead of 'readonly'`, identity.instanceId)
  }
  if (!(await bucketRefs.writesEnded(deadline, ids)))
    throw raised(ids[0] ?? 0, 'failed waiting for no RW refs', identity.instanceId)
  // Beyond the original: maps that a former master still runs would miss the bucket.
  if (!(await storageRefs.ended(deadline)))
    throw raised(ids[0] ?? 0, 'failed waiting for the end of storage refs', identity.instanceId)
  return undefined
}

function raised(bucketId: number, reason: string, destination: string): BoxError {
  const error = VshardError.of('WRONG_BUCKET', { bucket_id: bucketId, reason, destination })
  return boxErrors.procLua(error.toWireText())
}

function recoveryStat(parts: VshardParts, id: number): unknown {
  parts.assertSynced()
  const record = parts.buckets.get(id)
  if (record === undefined) return undefined
  const { status, generation } = record
  return { id, status, generation, ...(parts.transfers.has(id) ? { is_transfering: true } : {}) }
}

function movedOf({ buckets }: VshardParts, ids: readonly number[]): { id: number; dst?: string; status?: string }[] {
  return ids.flatMap((id) => {
    const record = buckets.get(id)
    if (!isMoved(record)) return []
    const destination = record === undefined ? buckets.redirects.get(id) : record.destination
    return [
      {
        id,
        ...(destination === undefined ? {} : { dst: destination }),
        ...(record === undefined ? {} : { status: record.status }),
      },
    ]
  })
}

/** What this storage has, for the rebalancer. @throws VshardError, BoxError in vshard's order of checks */
export function rebalancerState(parts: VshardParts, isAtRest: boolean): RebalancerState {
  const { buckets, identity } = parts
  parts.assertMaster()
  if (!isAtRest) throw luaError('Rebalancer is not active or is in progress')
  parts.assertSynced()
  for (const status of ['sending', 'receiving', 'garbage', 'readonly'] as const) {
    if (buckets.count(status) > 0)
      throw luaError(`Replica ${identity.instanceId} has ${status} buckets during rebalancing`)
  }
  return { activeCount: buckets.count('active'), pinnedCount: buckets.count('pinned') }
}

function luaError(message: string): BoxError {
  return BoxError.of(32, message, { boxType: 'ClientError', executed: 'no' })
}
