/** Numbers that add up, and what `info()` shows. */
import type { CallMode } from './attempt.js'
import type { Alert } from './alerts.js'
import type { MasterState } from './discovery.js'
import type { WindowEnd, WindowReason } from './failover-buffer.js'
import type { SkipReason } from './hold-queue.js'
import type { InstanceState } from './instance-view.js'

/**
 * Counters since the start. Laws, true at any quiet moment:
 * `buffered.entered = buffered.now + drained + expired + evicted + cancelled`,
 * `buffered.asked = entered + rejected + the sum of skipped`, and the same first law for `waitingReads`.
 */
export interface ReplicasetStats {
  readonly masterChanges: number
  readonly epoch: number
  readonly mode: 'events' | 'polling'
  /** Instances that claim with the same right; 0: no conflict. */
  readonly conflict: number
  readonly windows: Readonly<Record<WindowReason, number>>
  readonly windowEnds: Readonly<Record<WindowEnd, number>>
  /** Sum of the lengths of the windows that ended, in milliseconds. */
  readonly windowMs: number
  readonly buffered: HoldStats & {
    readonly asked: number
    readonly skipped: Readonly<Record<SkipReason, number>>
    readonly bytes: number
    /** In flight of those that waited. */
    readonly draining: number
  }
  /** Reads that wait, or waited, for any instance that can serve them. */
  readonly waitingReads: HoldStats
  /** Repeatable calls that wait, or waited, for the answer of a fence. */
  readonly waitingForFence: HoldStats
  /** Refusals of an earlier master, sent again to the present one without a window. */
  readonly resentOldEpoch: number
  /** Reads sent again to another instance. */
  readonly rereads: number
  /** Looks sent, by reason. */
  readonly fences: Readonly<Record<string, number>>
  readonly polls: number
  readonly liars: number
  readonly staleClaims: number
  readonly badEvents: number
  readonly hints: number
  readonly hintsIgnored: number
  /** Attempts given to `dispatch`, by mode. */
  readonly dispatched: Readonly<Record<CallMode, number>>
}

export interface HoldStats {
  readonly now: number
  readonly entered: number
  readonly drained: number
  readonly expired: number
  readonly evicted: number
  readonly rejected: number
  readonly cancelled: number
}

export interface InstanceInfo {
  readonly id: string
  readonly uuid: string | undefined
  /** The address as people write it, without credentials. */
  readonly peer: string
  readonly zone: string | number | undefined
  readonly state: InstanceState
  /** In this state for so long. */
  readonly stateMs: number
  readonly isMaster: boolean
  readonly generation: number
  readonly term: number | undefined
  readonly version: string | undefined
  /** What keeps it from taking writes; undefined: nothing. */
  readonly reason: string | undefined
  readonly stopping: boolean
  readonly silent: boolean
  readonly refused: boolean
  /** Reads leave it alone for so long; 0: they do not. */
  readonly restMs: number
  readonly restReason: string | undefined
  /** How far behind the master; undefined: not known. Infinity: it does not follow. */
  readonly lagMs: number | undefined
  /** Round trip of the last ping. */
  readonly pingMs: number | undefined
}

/** The replicaset as it is believed to be. A copy: it does not change. */
export interface ReplicasetInfo {
  readonly id: string
  readonly state: MasterState
  readonly mode: 'events' | 'polling'
  readonly epoch: number
  readonly master: string | undefined
  /** Highest term seen. */
  readonly term: number
  readonly instances: readonly InstanceInfo[]
  readonly alerts: readonly Alert[]
  /** The window that is open. */
  readonly window: { readonly reason: WindowReason; readonly ms: number; readonly waiting: number } | undefined
  /** Writes that find no master fail at once for so long; 0: they wait. */
  readonly cooldownMs: number
}
