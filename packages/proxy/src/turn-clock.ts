/*
 * A clock that looks at the time once per piece of input. Requests are stamped several times each on their way, and hundreds of
 * them come in one chunk: to look again for each stamp would cost more than the work they do.
 */
import type { Clock, ScheduleOptions } from '@orbweaver/connection'

export class TurnClock implements Clock {
  readonly #clock: Clock
  #nowMs: number | undefined
  readonly #forget = (): void => void (this.#nowMs = undefined)

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** The same until what runs now has returned to the event loop. */
  now(): number {
    if (this.#nowMs === undefined) {
      this.#nowMs = this.#clock.now()
      queueMicrotask(this.#forget)
    }
    return this.#nowMs
  }

  wallNow(): number {
    return this.#clock.wallNow()
  }

  schedule(delayMs: number, task: () => void, options?: ScheduleOptions): () => void {
    return this.#clock.schedule(delayMs, task, options)
  }

  soon(task: () => void): void {
    this.#clock.soon(task)
  }
}
