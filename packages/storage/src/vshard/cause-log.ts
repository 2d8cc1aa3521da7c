/* Lines of the log about something that goes on: one per cause, however often it is met, and another one when it comes back. */
import type { Clock } from '@orbweaver/connection'

/** A cause that was not met for so long is over: should it come back, that is news. */
const FORGOTTEN_MS = 60_000
/** Causes remembered; beyond that the oldest is forgotten. */
const MAX_CAUSES = 1_000

export class CauseLog {
  readonly #clock: Clock
  /** When each cause was met last, the one met longest ago first. */
  readonly #metAt = new Map<string, number>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Calls `tell` unless this cause was met a short while ago. */
  met(cause: string, tell: () => void): void {
    const now = this.#clock.now()
    const before = this.#metAt.get(cause)
    this.#metAt.delete(cause)
    this.#metAt.set(cause, now)
    const [oldest] = this.#metAt.keys()
    if (this.#metAt.size > MAX_CAUSES && oldest !== undefined) this.#metAt.delete(oldest)
    if (before === undefined || now - before > FORGOTTEN_MS) tell()
  }
}
