/* Work on all masters that needs no references: making the buckets of a new cluster, and waiting for replication. */
import { callRequest, decodeData } from '@orbweaver/iproto'
import type { OrbweaverError } from '@orbweaver/iproto'
import {
  bucketForceCreateCall,
  bucketsCountCall,
  idealBalance,
  readBucketForceCreate,
  readBucketsCount,
  readStorageSync,
  storageSyncCall,
  VshardError,
} from '@orbweaver/vshard'
import type { ServiceCall, ServiceReply } from '@orbweaver/vshard'
import { ClusterError } from './errors.js'
import { callSet, orbweaverErrorOf } from './set-call.js'
import type { RoutedSet } from './topology.js'

export interface AllSetsRun {
  readonly sets: readonly RoutedSet[]
  readonly deadline: number
  /** Milliseconds until then. */
  readonly timeoutMs: number
  readonly signal: AbortSignal | undefined
}

/**
 * Spreads all buckets over the replicasets by their weights, contiguous ranges in the order of their ids.
 * @returns false: there are buckets already, and that was allowed
 * @throws VshardError NON_EMPTY; ClusterError: what each replicaset that failed says. Ranges made before that stay.
 */
export async function bootstrapCluster(
  run: AllSetsRun,
  bucketCount: number,
  ifNotBootstrapped: boolean,
): Promise<boolean> {
  const sets = run.sets.toSorted((a, b) => (a.id < b.id ? -1 : 1))
  const counts = await askAll('count its buckets', sets, run, () => bucketsCountCall(), readBucketsCount, true)
  if ([...counts.values()].some((count) => count > 0)) {
    if (ifNotBootstrapped) return false
    throw VshardError.of('NON_EMPTY')
  }
  const shares = idealBalance(
    new Map(sets.map(({ id, definition }) => [id, { weight: definition.weight ?? 1 }])),
    bucketCount,
  )
  const firsts = new Map<string, number>()
  let next = 1
  for (const { id } of sets) {
    firsts.set(id, next)
    next += shares.get(id)!
  }
  const receivers = sets.filter(({ id }) => shares.get(id)! > 0)
  const createCall = ({ id }: RoutedSet): ServiceCall => bucketForceCreateCall(firsts.get(id)!, shares.get(id)!)
  await askAll('make its buckets', receivers, run, createCall, readBucketForceCreate, false)
  return true
}

/** Resolves when every replica has what its master has now. @throws ClusterError */
export async function syncCluster(run: AllSetsRun): Promise<void> {
  await askAll('synchronise', run.sets, run, () => storageSyncCall(run.timeoutMs), readStorageSync, true)
}

/** The answers of all masters by the ids of their replicasets; all are waited for. */
async function askAll<T>(
  what: string,
  sets: readonly RoutedSet[],
  { deadline, signal }: AllSetsRun,
  callFor: (set: RoutedSet) => ServiceCall,
  read: (values: readonly unknown[]) => ServiceReply<T>,
  idempotent: boolean,
): Promise<ReadonlyMap<string, T>> {
  const answers = new Map<string, T>()
  const failures = new Map<string, OrbweaverError>()
  await Promise.all(
    sets.map(async (set) => {
      try {
        const { name, args } = callFor(set)
        const options = { mode: 'rw', deadline, idempotent, ...(signal === undefined ? {} : { signal }) } as const
        const { reply } = await callSet(set.replicaset, callRequest(name, args), options)
        const answer = read(decodeData(reply))
        if (answer.ok) answers.set(set.id, answer.value)
        else failures.set(set.id, answer.error)
      } catch (error) {
        failures.set(set.id, orbweaverErrorOf(error))
      }
    }),
  )
  if (failures.size > 0) throw new ClusterError(what, failures)
  return answers
}
