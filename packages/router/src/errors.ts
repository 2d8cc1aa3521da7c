import { OrbweaverError } from '@orbweaver/iproto'
import type { Executed } from '@orbweaver/iproto'

/** Nobody has the bucket, as far as could be found out before the deadline. `executed` is `no`. */
export class NoRouteError extends OrbweaverError {
  readonly code = 'ORB_NO_ROUTE' as const
  readonly bucketId: number
  /** What each replicaset that was asked said, by its id. */
  readonly answers: ReadonlyMap<string, string>

  constructor(bucketId: number, answers: ReadonlyMap<string, string>, options: ErrorOptions = {}) {
    const said = [...answers].map(([id, answer]) => `${id}: ${answer}`).join('; ')
    super(`Bucket ${bucketId} was found on no replicaset${said === '' ? '' : ` (${said})`}`, {
      ...options,
      executed: 'no',
    })
    this.bucketId = bucketId
    this.answers = answers
  }
}

/** Some replicasets could not do what all were asked for. `executed` is that of the worst: `no` only when none did anything. */
export class ClusterError extends OrbweaverError {
  readonly code = 'ORB_CLUSTER' as const
  /** By the ids of the replicasets. */
  readonly failures: ReadonlyMap<string, OrbweaverError>

  constructor(what: string, failures: ReadonlyMap<string, OrbweaverError>) {
    const said = [...failures].map(([id, { message }]) => `${id}: ${message}`).join('; ')
    const outcomes = new Set([...failures.values()].map(({ executed }) => executed))
    super(`Not every replicaset could ${what} (${said})`, {
      cause: [...failures.values()][0],
      executed: outcomes.has('unknown') ? 'unknown' : outcomes.has('yes') ? 'yes' : 'no',
    })
    this.failures = failures
  }
}

/** Where a map-reduce failed. `ref` and `check`: nothing was mapped anywhere. */
export type MapStage = 'ref' | 'check' | 'map'

/** A map-reduce that gave no result. `cause` is the error of the replicaset it names. */
export class MapReduceError extends OrbweaverError {
  readonly code = 'ORB_MAP_REDUCE' as const
  readonly stage: MapStage
  /** undefined: the whole disagrees, no single replicaset failed. */
  readonly replicasetId: string | undefined
  readonly instanceId: string | undefined
  /** Stage `ref`, when time was over: what each replicaset that gave no reference says or waits for, by its id. */
  readonly obstacles: ReadonlyMap<string, string>

  constructor(
    message: string,
    options: ErrorOptions & {
      stage: MapStage
      executed: Executed
      replicasetId?: string | undefined
      instanceId?: string | undefined
      obstacles?: ReadonlyMap<string, string>
    },
  ) {
    super(message, options)
    this.stage = options.stage
    this.replicasetId = options.replicasetId
    this.instanceId = options.instanceId
    this.obstacles = options.obstacles ?? new Map()
  }
}

/** Buckets that were held in place may have moved: a hold expired, or a reference of it was lost. */
export class HoldLostError extends OrbweaverError {
  readonly code = 'ORB_HOLD_LOST' as const
  /** undefined: it expired as a whole. */
  readonly replicasetId: string | undefined

  constructor(replicasetId: string | undefined, reason: string) {
    const where = replicasetId === undefined ? '' : ` of replicaset ${replicasetId}`
    super(`Buckets${where} are not held any more: ${reason}`, { executed: 'no' })
    this.replicasetId = replicasetId
  }
}

/** A space whose rows cannot be merged in one order, or are no sharded rows. `executed` is `no`. */
export class UnmergeableError extends OrbweaverError {
  readonly code = 'ORB_UNMERGEABLE' as const

  constructor(message: string) {
    super(message, { executed: 'no' })
  }
}

/** The router was closed. `executed` is `no`. */
export class RouterClosedError extends OrbweaverError {
  readonly code = 'ORB_ROUTER_CLOSED' as const

  constructor() {
    super('The router is closed', { executed: 'no' })
  }
}
