/*
 * Consistent map-reduce: every storage first gives a reference, a promise that no bucket moves; when the references cover all
 * buckets, each exactly once, the function runs everywhere. Reference, map and release of one storage travel through one session,
 * because that is where the storage keeps them.
 */
import { refBuckets } from './bucket-stage.js'
import type { BucketRefs } from './bucket-stage.js'
import { mapResult } from './map-call.js'
import type { MapResult } from './map-call.js'
import type { MapOwner, RefRun } from './map-owner.js'
import { mapUnder } from './map-stage.js'
import { refAll } from './ref-stage.js'
import type { Refs } from './ref-stage.js'

export interface MapRun extends RefRun {
  readonly functionName: string
  readonly args: readonly unknown[]
  readonly isRaw: boolean
  /** Only these buckets; undefined: all replicasets. */
  readonly buckets: ReadonlySet<number> | undefined
  /** One more argument for each replicaset: its own buckets' arguments. */
  readonly bucketArgs: ReadonlyMap<number, unknown> | undefined
  /** A result, in the order of arrival. */
  readonly arrived: (replicasetId: string, values: unknown[]) => void
}

/** @throws MapReduceError, NoRouteError, RequestAbortedError */
export async function mapReduce(owner: MapOwner, run: MapRun): Promise<MapResult> {
  const refs: Refs & Partial<BucketRefs> =
    run.buckets === undefined ? await refAll(owner, run) : await refBuckets(owner, run, run.buckets)
  const results = new Map<string, unknown[]>()
  const { deadline, functionName, isRaw, signal } = run
  try {
    await mapUnder(refs.held, {
      functionName,
      argumentsFor: ({ set }) => argumentsFor(run, refs.owned?.get(set)),
      isRaw,
      decode: owner.decode,
      deadline,
      signal,
      holds: (ref) => ref.holds({ deadline }),
      arrived: (replicasetId, values) => {
        results.set(replicasetId, values)
        run.arrived(replicasetId, values)
      },
    })
    return mapResult(
      refs.held.map(({ set }) => set),
      results,
      refs.skipped,
    )
  } finally {
    for (const ref of refs.held) ref.release()
  }
}

function argumentsFor({ args, bucketArgs }: MapRun, bucketIds: readonly number[] = []): readonly unknown[] {
  if (bucketArgs === undefined) return args
  return [...args, new Map(bucketIds.map((bucketId) => [bucketId, bucketArgs.get(bucketId)]))]
}
