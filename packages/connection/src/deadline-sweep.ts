import type { Clock } from './clock.js'

/**
 * One timer for the deadlines of all requests: a timer each would cost more than the request. It is set for the earliest
 * deadline it was told; when it fires, `sweep` looks at everybody and says which deadline is the next. Sweeps are at least
 * 10 ms apart, so a deadline may be overrun by that much under load.
 */
export class DeadlineSweep {
  readonly #clock: Clock
  readonly #sweep: (nowMs: number) => number
  #cancel: (() => void) | undefined
  #dueMs = Number.POSITIVE_INFINITY
  #lastMs = Number.NEGATIVE_INFINITY
  #ref = true

  /** @param sweep - ends what is overdue and returns the earliest deadline that is left, Infinity for none */
  constructor(clock: Clock, sweep: (nowMs: number) => number) {
    this.#clock = clock
    this.#sweep = sweep
  }

  /** A deadline to be kept. */
  watch(deadlineMs: number): void {
    if (deadlineMs >= this.#dueMs) return
    const dueMs = Math.max(deadlineMs, this.#lastMs + MIN_INTERVAL_MS)
    if (dueMs < this.#dueMs) this.#set(dueMs)
  }

  /** Whether a deadline has passed already. The clock is only asked when it could be. */
  isOver(deadlineMs: number): boolean {
    return deadlineMs < this.#dueMs && deadlineMs <= this.#clock.now()
  }

  stop(): void {
    this.#cancel?.()
    this.#cancel = undefined
    this.#dueMs = Number.POSITIVE_INFINITY
  }

  /** Whether the timer keeps the process alive. */
  hold(ref: boolean): void {
    this.#ref = ref
    if (this.#cancel !== undefined) this.#set(this.#dueMs)
  }

  #set(dueMs: number): void {
    this.#cancel?.()
    this.#dueMs = dueMs
    this.#cancel = this.#clock.schedule(dueMs - this.#clock.now(), () => this.#fire(), { ref: this.#ref })
  }

  #fire(): void {
    const nowMs = this.#clock.now()
    this.#cancel = undefined
    this.#dueMs = Number.POSITIVE_INFINITY
    this.#lastMs = nowMs
    this.watch(this.#sweep(nowMs))
  }
}

const MIN_INTERVAL_MS = 10
