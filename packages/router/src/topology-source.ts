/*
 * Where a router learns which replicasets there are, while it runs. A source is read again from time to time, when it says that it has
 * changed, and when a storage names an owner nobody knows; the last good configuration stays until there is a better one.
 */
import type { Clock } from '@orbweaver/connection'
import type { ClusterConfig } from '@orbweaver/vshard'

/** A source of the cluster's configuration. `topologyFile` and `topologyOfStorage` make some; a program may bring its own. */
export interface TopologySource {
  /** The configuration of this moment. Rejects when it cannot be had, or is not understood. */
  read(signal: AbortSignal): Promise<ClusterConfig>
  /** Calls back whenever there may be another one. @returns what ends that */
  watch?(changed: () => void): () => void
}

export interface TopologyReaderParts {
  readonly clock: Clock
  readonly random: () => number
  readonly intervalMs: number
  /** Takes a configuration. @throws when it cannot be used */
  apply(config: ClusterConfig): void
  /** undefined: it was read and taken. */
  outcome(error: unknown): void
}

/** Re-reads one source for one router. */
export class TopologyReader {
  readonly #source: TopologySource
  readonly #parts: TopologyReaderParts
  readonly #abort = new AbortController()
  #stopWatching: (() => void) | undefined
  #cancelTimer: (() => void) | undefined
  #readAtMs = Number.NEGATIVE_INFINITY
  #isReading = false
  /** Somebody asked for it while it was being read: what is read may be older than the question. */
  #isWantedAgain = false

  constructor(source: TopologySource, parts: TopologyReaderParts) {
    this.#source = source
    this.#parts = parts
  }

  start(): void {
    try {
      this.#stopWatching = this.#source.watch?.(() => this.#readIn(CHANGE_PAUSE_MS))
    } catch (error) {
      this.#parts.outcome(error)
    }
    this.#readIn(this.#jittered(this.#parts.intervalMs))
  }

  /** Something does not fit what is configured. Reads soon, and not more often than once in a while. */
  want(): void {
    const nextMs = this.#readAtMs + LEAST_INTERVAL_MS
    this.#readIn(Math.max(0, nextMs - this.#parts.clock.now()))
  }

  stop(): void {
    this.#abort.abort()
    this.#cancelTimer?.()
    this.#stopWatching?.()
  }

  #readIn(delayMs: number): void {
    if (this.#abort.signal.aborted) return
    if (this.#isReading) {
      this.#isWantedAgain = true
      return
    }
    const { clock } = this.#parts
    this.#cancelTimer?.()
    this.#cancelTimer = clock.schedule(delayMs, () => void this.#read(), { ref: false })
  }

  async #read(): Promise<void> {
    const { clock, intervalMs } = this.#parts
    this.#isReading = true
    this.#readAtMs = clock.now()
    try {
      const config = await this.#source.read(this.#abort.signal)
      if (!this.#abort.signal.aborted) {
        this.#parts.apply(config)
        this.#parts.outcome(undefined)
      }
    } catch (error) {
      if (!this.#abort.signal.aborted) this.#parts.outcome(error)
    }
    this.#isReading = false
    const isWanted = this.#isWantedAgain
    this.#isWantedAgain = false
    this.#readIn(isWanted ? LEAST_INTERVAL_MS : this.#jittered(intervalMs))
  }

  #jittered(ms: number): number {
    return ms * (0.8 + 0.4 * this.#parts.random())
  }
}

/** A change is often told several times, and the first time before it is complete. */
const CHANGE_PAUSE_MS = 20
/** Between two readings for the sake of unknown owners. */
const LEAST_INTERVAL_MS = 2_000
