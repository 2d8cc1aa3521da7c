/** What all cases have in common. */

/** Who is measured. Each runs in a process of its own. */
export type SubjectName =
  | 'orbweaver'
  | 'orbweaver, own buffer'
  | 'orbweaver, no timeout'
  | 'orbweaver, a timeout each'
  | 'tarantool-driver'
  | 'raw socket'
  | 'msgpackr'
  | 'msgpack-lite'
  | 'replicaset'
  | 'router'
  | 'Lua router'
  | 'proxy'
  | 'HAProxy'
  | 'socket pipe'
  | 'no proxy'
  | 'connection'
  | 'embedded storage'
  | 'Tarantool'
  | 'Tarantool, wal_mode fsync'

/**
 * `cpu`: CPU time per request. `rps`: requests per second. `speed`: the inverse of CPU time. `p50`: milliseconds that half of the
 * requests need at most. `memory`: resident MB. `pause`: milliseconds of the longest wait of a request that needs next to nothing.
 */
export type Metric = 'cpu' | 'rps' | 'speed' | 'p50' | 'memory' | 'pause'

/** Metrics that are to be low; the others are to be high. */
export const LOW_METRICS: ReadonlySet<Metric> = new Set<Metric>(['cpu', 'p50', 'memory', 'pause'])

/** A ratio of the first subject to another one, or its own figure, and what it must be. */
export interface Target {
  readonly metric: Metric
  /** undefined: the figure itself. */
  readonly of?: SubjectName
  /** undefined: the ratio is shown, nothing is asked of it. */
  readonly must?: number
  readonly aim?: number
}

export interface CaseBase {
  readonly id: string
  /** The case for people. */
  readonly words: string
  readonly subjects: readonly SubjectName[]
  readonly targets: readonly Target[]
  /** How long a subject may need before its first round, where that is more than a moment. */
  readonly setUpSeconds?: number
}
