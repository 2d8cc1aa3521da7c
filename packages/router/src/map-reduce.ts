/*
 * Consistent map-reduce: every storage first gives a reference, a promise that no bucket moves; when the references cover all
 * buckets, each exactly once, the function runs everywhere. Reference, map and release of one storage travel through one session,
 * because that is where the storage keeps them.
 */
import type { Clock, ReplySink } from '@orbweaver/connection'
import { callRequest, decodeData } from '@orbweaver/iproto'
import type { OrbweaverError, Request } from '@orbweaver/iproto'
import type { InstanceHandle, PinnedSession } from '@orbweaver/replicaset'
import {
  readStorageMap,
  readStorageRef,
  readStorageRefCheckWithBuckets,
  readStorageRefMakeWithBuckets,
  storageMapCall,
  storageRefCall,
  storageRefCheckWithBucketsCall,
  storageRefMakeWithBucketsCall,
  storageUnrefCall,
  VshardError,
} from '@orbweaver/vshard'
import type { BucketsRefReply, ServiceCall, ServiceReply } from '@orbweaver/vshard'
import { MapReduceError } from './errors.js'
import type { MapStage } from './errors.js'
import type { BucketLookup } from './lookup.js'
import { UNKNOWN } from './route-table.js'
import type { RouteWorker } from './route-worker.js'
import { callSet, orbweaverErrorOf } from './set-call.js'
import type { RoutedSet, Topology } from './topology.js'

export interface MapOwner {
  readonly clock: Clock
  readonly topology: Topology
  readonly routes: RouteWorker
  readonly lookup: BucketLookup
  /** Ids of references: unique in a session, also behind a proxy that shares one. */
  nextRefId(): number
}

export interface MapRun {
  readonly functionName: string
  readonly args: readonly unknown[]
  readonly deadline: number
  /** Kept for the map: references must be granted before `deadline - mapTimeoutMs`. */
  readonly mapTimeoutMs: number
  readonly signal: AbortSignal | undefined
  /** Only these buckets; undefined: all replicasets. */
  readonly buckets: ReadonlySet<number> | undefined
  /** One more argument for each replicaset: its own buckets' arguments. */
  readonly bucketArgs: ReadonlyMap<number, unknown> | undefined
}

/** A granted reference. */
interface Ref {
  readonly set: RoutedSet
  readonly id: number
  readonly instance: InstanceHandle
  readonly session: PinnedSession
}

/** What the function returned on each replicaset, by its id: the returned values, empty for none. */
export async function mapReduce(owner: MapOwner, run: MapRun): Promise<Map<string, unknown[]>> {
  const refs: Ref[] = []
  try {
    const owned =
      run.buckets === undefined ? await refAll(owner, run, refs) : await refBuckets(owner, run, run.buckets, refs)
    return await mapAll(owner, run, refs, owned)
  } catch (error) {
    for (const ref of refs) unref(owner, ref)
    throw error
  } finally {
    for (const ref of refs) ref.session.release()
  }
}

/** Which buckets each replicaset was found to have; undefined where all are meant. */
type OwnedBuckets = ReadonlyMap<RoutedSet, readonly number[]> | undefined

// ---- references ------------------------------------------------------------------------------------------------------

async function refAll(owner: MapOwner, run: MapRun, refs: Ref[]): Promise<undefined> {
  const counts = await allOf(
    owner.topology.sets.map(async (set) => {
      const { reply } = await takeRef(
        owner,
        run,
        set,
        (id, timeoutMs) => storageRefCall(id, timeoutMs),
        readStorageRef,
        refs,
      )
      return valueOf(set, refs, reply, 'ref')
    }),
  )
  const total = counts.reduce((sum, count) => sum + count, 0)
  const { bucketCount } = owner.routes.table
  if (total !== bucketCount) {
    const missing = VshardError.of('UNKNOWN_BUCKETS', { not_discovered_cnt: bucketCount - total })
    throw new MapReduceError(`The replicasets have ${total} buckets together, expected ${bucketCount}`, {
      stage: 'check',
      executed: 'no',
      cause: missing,
    })
  }
  return undefined
}

async function refBuckets(
  owner: MapOwner,
  run: MapRun,
  wanted: ReadonlySet<number>,
  refs: Ref[],
): Promise<OwnedBuckets> {
  const owned = new Map<RoutedSet, number[]>()
  let todo = [...wanted]
  while (todo.length > 0) {
    const groups = await grouped(owner, todo, refDeadline(run))
    const answers = await allOf(
      [...groups].map(async ([set, ids]) => {
        const held = refs.find((ref) => ref.set === set)
        const sent = owner.routes.tick()
        const reply =
          held === undefined
            ? (
                await takeRef(
                  owner,
                  run,
                  set,
                  (id, timeoutMs) => storageRefMakeWithBucketsCall(id, timeoutMs, ids),
                  readStorageRefMakeWithBuckets,
                  refs,
                  isHeld,
                )
              ).reply
            : await sendOn(
                owner,
                run,
                held,
                storageRefCheckWithBucketsCall(held.id, ids),
                readStorageRefCheckWithBuckets,
                'ref',
              )
        const { moved } = valueOf(set, refs, reply, 'ref')
        return { set, ids, moved, sent }
      }),
    )
    todo = []
    for (const { set, ids, moved, sent } of answers) {
      const gone = new Set(moved.map(({ id }) => id))
      for (const { id, destination } of moved) {
        owner.routes.report({
          kind: 'moved',
          bucketId: id,
          from: set.index,
          owner: owner.topology.find(destination)?.index ?? UNKNOWN,
          sent,
        })
        todo.push(id)
      }
      const kept = ids.filter((id) => !gone.has(id))
      if (kept.length > 0 || refs.some((ref) => ref.set === set)) owned.set(set, [...(owned.get(set) ?? []), ...kept])
    }
    // Facts take effect in `soon`: what moved is looked up in the new table.
    if (todo.length > 0) await new Promise<void>((resolve) => owner.clock.soon(resolve))
  }
  return owned
}

function isHeld(reply: BucketsRefReply): boolean {
  return reply.isReferenced
}

async function grouped(
  owner: MapOwner,
  bucketIds: readonly number[],
  deadline: number,
): Promise<Map<RoutedSet, number[]>> {
  const groups = new Map<RoutedSet, number[]>()
  for (const bucketId of bucketIds) {
    const set = owner.topology.at(owner.routes.table.lookup(bucketId)) ?? (await owner.lookup.find(bucketId, deadline))
    groups.set(set, [...(groups.get(set) ?? []), bucketId])
  }
  return groups
}

function refDeadline(run: MapRun): number {
  return run.deadline - run.mapTimeoutMs
}

/** Asks the master of a set for a reference, through a session that stays when it is granted. */
async function takeRef<T>(
  owner: MapOwner,
  run: MapRun,
  set: RoutedSet,
  callOf: (id: number, timeoutMs: number) => ServiceCall,
  read: (values: readonly unknown[]) => ServiceReply<T>,
  refs: Ref[],
  isGranted: (value: T) => boolean = () => true,
): Promise<{ reply: ServiceReply<T> }> {
  const id = owner.nextRefId()
  const deadline = refDeadline(run)
  const { name, args } = callOf(id, run.deadline - owner.clock.now())
  try {
    const { reply, instance, session } = await callSet(set.replicaset, callRequest(name, args), {
      mode: 'rw',
      deadline,
      idempotent: false,
      pinned: true,
      ...(run.signal === undefined ? {} : { signal: run.signal }),
    })
    const answer = read(decodeData(reply))
    if (session !== undefined) {
      if (answer.ok && isGranted(answer.value)) refs.push({ set, id, instance, session })
      else session.release()
    }
    return { reply: answer }
  } catch (error) {
    throw failure(set, undefined, orbweaverErrorOf(error), 'ref')
  }
}

// ---- map -------------------------------------------------------------------------------------------------------------

async function mapAll(
  owner: MapOwner,
  run: MapRun,
  refs: readonly Ref[],
  owned: OwnedBuckets,
): Promise<Map<string, unknown[]>> {
  const results = await allOf(
    refs.map(async (ref) => {
      const call = storageMapCall(ref.id, run.functionName, argumentsFor(run, ref, owned))
      const reply = await sendOn(owner, run, ref, call, readStorageMap, 'map')
      const values = valueOf(ref.set, refs, reply, 'map')
      // References live on the instance that gave them: a new master knows nothing of them and may have moved buckets.
      const master = ref.set.replicaset.master()
      if (master !== undefined && master.id !== ref.instance.id) {
        throw new MapReduceError(
          `The master of replicaset ${ref.set.id} changed from ${ref.instance.id} to ${master.id} during the map`,
          {
            stage: 'map',
            executed: 'yes',
            replicasetId: ref.set.id,
            instanceId: ref.instance.id,
          },
        )
      }
      return [ref.set.id, [...values]] as [string, unknown[]]
    }),
  )
  return new Map(results)
}

function argumentsFor(run: MapRun, ref: Ref, owned: OwnedBuckets): readonly unknown[] {
  const { bucketArgs } = run
  if (bucketArgs === undefined) return run.args
  return [...run.args, new Map((owned?.get(ref.set) ?? []).map((bucketId) => [bucketId, bucketArgs.get(bucketId)]))]
}

/** One call through the session of a reference. */
async function sendOn<T>(
  owner: MapOwner,
  run: MapRun,
  ref: Ref,
  call: ServiceCall,
  read: (values: readonly unknown[]) => ServiceReply<T>,
  stage: MapStage,
): Promise<ServiceReply<T>> {
  if (ref.session.lost) {
    throw new MapReduceError(
      `The connection to ${ref.instance.id} of replicaset ${ref.set.id}, which held the reference, was lost`,
      {
        stage,
        executed: stage === 'map' ? 'unknown' : 'no',
        replicasetId: ref.set.id,
        instanceId: ref.instance.id,
      },
    )
  }
  const request = callRequest(call.name, call.args)
  try {
    const data = await new Promise<unknown[]>((resolve, reject) => {
      const options =
        run.signal === undefined ? { deadline: run.deadline } : { deadline: run.deadline, signal: run.signal }
      ref.session.send(request, options, { done: (reply) => resolve(decodeData(reply)), failed: reject })
    })
    return read(data)
  } catch (error) {
    throw failure(ref.set, ref.instance.id, orbweaverErrorOf(error), stage)
  }
}

/** Sent and not waited for: the answer changes nothing, and an unused reference expires by itself. */
function unref(owner: MapOwner, ref: Ref): void {
  if (ref.session.lost) return
  const { name, args } = storageUnrefCall(ref.id)
  const request: Request = callRequest(name, args)
  ref.session.send(request, { deadline: owner.clock.now() + UNREF_TIMEOUT_MS }, IGNORE)
}

const UNREF_TIMEOUT_MS = 5_000
const IGNORE: ReplySink = { done: () => undefined, failed: () => undefined }

function valueOf<T>(set: RoutedSet, refs: readonly Ref[], reply: ServiceReply<T>, stage: MapStage): T {
  if (reply.ok) return reply.value
  throw failure(set, refs.find((ref) => ref.set === set)?.instance.id, reply.error, stage)
}

function failure(
  set: RoutedSet,
  instanceId: string | undefined,
  cause: OrbweaverError,
  stage: MapStage,
): MapReduceError {
  if (cause instanceof MapReduceError) return cause
  const where = instanceId === undefined ? `replicaset ${set.id}` : `${instanceId} of replicaset ${set.id}`
  return new MapReduceError(`Map-reduce failed at stage ${stage} on ${where}: ${cause.message}`, {
    stage,
    executed: stage === 'map' ? cause.executed : 'no',
    cause,
    replicasetId: set.id,
    instanceId,
  })
}

/** All results, or the first failure once every part has ended: a reference granted late must be known to be released. */
async function allOf<T>(parts: readonly Promise<T>[]): Promise<T[]> {
  const ended = await Promise.allSettled(parts)
  const failed = ended.find((part) => part.status === 'rejected')
  if (failed !== undefined) throw failed.reason
  return ended.map((part) => (part as PromiseFulfilledResult<T>).value)
}
