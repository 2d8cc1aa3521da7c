/* Waiting for a condition that others make true: they call `wake`, whoever waits looks again. */
import type { Clock } from '@orbweaver/connection'

export class Waiters {
  readonly #clock: Clock
  readonly #waiting = new Set<() => void>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  get size(): number {
    return this.#waiting.size
  }

  /** Everybody looks at their condition again. */
  wake(): void {
    const waiting = [...this.#waiting]
    this.#waiting.clear()
    for (const look of waiting) look()
  }

  /** Whether `isTrue` became true by the deadline; it is asked at once and after every `wake`. */
  async until(isTrue: () => boolean, deadline: number): Promise<boolean> {
    while (!isTrue()) {
      const left = deadline - this.#clock.now()
      if (left <= 0) return false
      await this.#woken(left)
    }
    return true
  }

  /** Resolves with the next `wake`, or after the time. */
  #woken(timeoutMs: number): Promise<void> {
    return new Promise((resolve) => {
      const look = (): void => {
        cancel()
        resolve()
      }
      const cancel = this.#clock.schedule(timeoutMs, () => {
        this.#waiting.delete(look)
        resolve()
      })
      this.#waiting.add(look)
    })
  }
}
