/** What a router tells while it works. Listeners run after the change is complete and see the new state. */
import type { RouterAlert } from './alerts.js'

/** A new table of routes is in place. */
export interface RoutesChange {
  readonly router: string
  /** Number of the table. */
  readonly generation: number
  /** Buckets whose owner changed with it. */
  readonly changes: number
  /** Buckets whose owner is known. */
  readonly known: number
}

/** The replicasets are others now, by their ids. */
export interface TopologyEvent {
  readonly router: string
  /** +1 with every change. */
  readonly version: number
  readonly added: readonly string[]
  readonly removed: readonly string[]
  readonly changed: readonly string[]
}

export interface RouterEvents {
  routes: (change: RoutesChange) => void
  topology: (event: TopologyEvent) => void
  /** Something an operator should see has begun; `info().alerts` has all that lasts. */
  alert: (alert: RouterAlert) => void
  /** The last event. */
  close: () => void
}
