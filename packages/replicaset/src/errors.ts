/**
 * What a replicaset itself answers. Nothing was executed, unless the request had been declared repeatable, was sent, and its
 * outcome got lost while it was to be repeated: then `executed` is `unknown`.
 */
import { type Executed, OrbweaverError } from '@orbweaver/iproto'

/** Why one instance could not take a request, in words. */
export interface InstanceReason {
  /** As in the definition. */
  readonly instance: string
  /** `unreachable: connect ECONNREFUSED 127.0.0.1:3301`, `read-only`, `silent for 2.1 s`, … */
  readonly reason: string
}

export interface ReplicasetErrorDetails extends ErrorOptions {
  readonly replicasetId: string
  readonly instances: readonly InstanceReason[]
  /** How long the request waited in the window, over all its waits. */
  readonly bufferedMs: number
  /** Why it had to wait, see `WindowReason`. */
  readonly reason: string
  /** Default `no`. */
  readonly executed?: Executed
}

/** What all errors of this package carry. `cause` is the refusal or failure that made the request wait, if there was one. */
export abstract class ReplicasetError extends OrbweaverError {
  readonly replicasetId: string
  /** Every configured instance and what kept it from serving, at the moment of the error. */
  readonly instances: readonly InstanceReason[]
  readonly bufferedMs: number
  readonly reason: string

  constructor(what: string, details: ReplicasetErrorDetails) {
    super(`${what}${listOf(details.instances)}`, {
      executed: details.executed ?? 'no',
      ...(details.cause === undefined ? {} : { cause: details.cause }),
    })
    this.replicasetId = details.replicasetId
    this.instances = details.instances
    this.bufferedMs = details.bufferedMs
    this.reason = details.reason
  }
}

/** No master was found before the request's deadline, or waiting for one is switched off or pausing. Tarantool calls this 282. */
export class NoMasterError extends ReplicasetError {
  readonly code = 'ORB_NO_MASTER' as const
}

/** Several instances are writable and nothing tells which is right: no write is sent to any. Tarantool calls this 283. */
export class MasterConflictError extends ReplicasetError {
  readonly code = 'ORB_MASTER_CONFLICT' as const
}

/** No instance could serve the read before its deadline. */
export class NoInstanceError extends ReplicasetError {
  readonly code = 'ORB_NO_INSTANCE' as const
}

/** The hold budget is used up and this replicaset has nothing older to give way. */
export class BufferFullError extends ReplicasetError {
  readonly code = 'ORB_BUFFER_FULL' as const
}

/** It had waited longest when the hold budget was used up, and gave way to a younger request. */
export class BufferEvictedError extends ReplicasetError {
  readonly code = 'ORB_BUFFER_EVICTED' as const
}

/** It waited `windowMs`, or its window lasted `maxDurationMs`, and no master came. */
export class BufferWindowError extends ReplicasetError {
  readonly code = 'ORB_BUFFER_WINDOW' as const
}

function listOf(instances: readonly InstanceReason[]): string {
  if (instances.length === 0) return ''
  return ` (${instances.map(({ instance, reason }) => `${instance}: ${reason}`).join('; ')})`
}
