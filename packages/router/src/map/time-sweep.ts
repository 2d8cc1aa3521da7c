import type { Clock } from '@orbweaver/connection'

/** Something that waits, and does something else when that takes too long. */
export interface Waiting {
  /** Instant on the clock; it stays what it is while it waits. */
  readonly dueMs: number
  /** Its time came. It is not waited for any more. */
  due(): void
}

/** One timer for many that wait: one of its own would cost each of them more than what they usually wait for. */
export class TimeSweep {
  readonly #clock: Clock
  readonly #waiting = new Set<Waiting>()
  #timerMs = Number.POSITIVE_INFINITY
  #cancelTimer: (() => void) | undefined
  #lastMs = Number.NEGATIVE_INFINITY

  constructor(clock: Clock) {
    this.#clock = clock
  }

  add(waiting: Waiting): void {
    this.#waiting.add(waiting)
    if (waiting.dueMs < this.#timerMs) this.#setTimer(waiting.dueMs)
  }

  delete(waiting: Waiting): void {
    this.#waiting.delete(waiting)
  }

  /** Nobody waits any longer. */
  close(): void {
    this.#cancelTimer?.()
    this.#timerMs = Number.POSITIVE_INFINITY
    const all = [...this.#waiting]
    this.#waiting.clear()
    for (const waiting of all) waiting.due()
  }

  /** A timer that is set stays when nobody waits any more; what is waited for keeps the process alive, not the timer. */
  #setTimer(dueMs: number): void {
    const timerMs = Math.max(dueMs, this.#lastMs + MIN_INTERVAL_MS)
    if (timerMs >= this.#timerMs) return
    this.#cancelTimer?.()
    this.#timerMs = timerMs
    this.#cancelTimer = this.#clock.schedule(Math.max(0, timerMs - this.#clock.now()), () => this.#fire(), {
      ref: false,
    })
  }

  #fire(): void {
    const nowMs = this.#clock.now()
    this.#timerMs = Number.POSITIVE_INFINITY
    this.#cancelTimer = undefined
    this.#lastMs = nowMs
    let nextMs = Number.POSITIVE_INFINITY
    for (const waiting of this.#waiting) {
      if (waiting.dueMs > nowMs) {
        nextMs = Math.min(nextMs, waiting.dueMs)
      } else {
        this.#waiting.delete(waiting)
        waiting.due()
      }
    }
    if (nextMs < Number.POSITIVE_INFINITY) this.#setTimer(nextMs)
  }
}

const MIN_INTERVAL_MS = 10
