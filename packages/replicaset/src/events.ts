/** What a replicaset tells while it works. Listeners run after the change is complete and see the new state. */
import type { Alert } from './alerts.js'
import type { WindowEnd, WindowRecord } from './failover-buffer.js'

/** There is a master, another one, or none any more. */
export interface MasterChange {
  readonly replicaset: string
  readonly epoch: number
  /** undefined: lost. */
  readonly master: string | undefined
  readonly previous: string | undefined
  readonly term: number | undefined
}

/** A window that opened (`end` and `why` undefined) or ended. */
export interface WindowEvent {
  readonly set: string
  readonly reason: WindowRecord['reason']
  readonly T0: number
  readonly M0: WindowRecord['M0']
  /** The master it ended on. */
  readonly end: string | undefined
  readonly why: WindowEnd | undefined
  /** Requests that waited. */
  readonly entries: number
  readonly ms: number
}

export interface ReplicasetEvents {
  master: (change: MasterChange) => void
  /** Once at the opening, once at the end. */
  window: (event: WindowEvent) => void
  /** Several instances are writable with the same right. */
  conflict: (instances: readonly string[]) => void
  /** Something an operator should see; `info().alerts` has those that last. */
  alert: (alert: Alert) => void
  /** The last event. */
  close: () => void
}
