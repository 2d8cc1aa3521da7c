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

/** Where a map-reduce failed. `connect` and `ref`: nothing was mapped anywhere. */
export type MapStage = 'ref' | 'check' | 'map'

/** A map-reduce that gave no result. `cause` is the error of the replicaset it names. */
export class MapReduceError extends OrbweaverError {
  readonly code = 'ORB_MAP_REDUCE' as const
  readonly stage: MapStage
  /** undefined: the whole disagrees, no single replicaset failed. */
  readonly replicasetId: string | undefined
  readonly instanceId: string | undefined

  constructor(
    message: string,
    options: ErrorOptions & {
      stage: MapStage
      executed: Executed
      replicasetId?: string | undefined
      instanceId?: string | undefined
    },
  ) {
    super(message, options)
    this.stage = options.stage
    this.replicasetId = options.replicasetId
    this.instanceId = options.instanceId
  }
}

/** The router was closed. `executed` is `no`. */
export class RouterClosedError extends OrbweaverError {
  readonly code = 'ORB_ROUTER_CLOSED' as const

  constructor() {
    super('The router is closed', { executed: 'no' })
  }
}
