import type { Clock } from '@orbweaver/connection'
import type { DecodeOptions } from '@orbweaver/iproto'
import type { BucketLookup } from '../lookup.js'
import type { RouteWorker } from '../route-worker.js'
import type { Topology } from '../topology.js'
import type { MasterWatch } from './master-watch.js'
import type { TimeSweep } from './time-sweep.js'

/** What map-reduce, holds and pages need of their router. */
export interface MapOwner {
  readonly name: string
  readonly clock: Clock
  readonly random: () => number
  readonly topology: Topology
  readonly routes: RouteWorker
  readonly lookup: BucketLookup
  readonly isClosed: boolean
  readonly decode: DecodeOptions | undefined
  /** vshard's `shard_index`: name or number of the index that makes a space sharded. */
  readonly shardIndex: string | number
  readonly masterWatch: MasterWatch
  /** For maps whose references do not come at once. */
  readonly mapTimes: TimeSweep
  /** Ids of references: unique in a session, also behind a proxy that shares one. */
  nextRefId(): number
}

/** The times of one map, page or hold: instants on the clock, made once from its `timeout`. */
export interface RefRun {
  readonly started: number
  /** References that are not granted until then end the call. */
  readonly refDeadline: number
  /** Until then references hold by themselves. */
  readonly deadline: number
  readonly signal: AbortSignal | undefined
}
