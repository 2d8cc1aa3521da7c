/* Waiting for rows of others to arrive. */
import type { Clock } from '@orbweaver/connection'
import { boxErrors } from '../errors.js'

interface Waiter {
  readonly isReached: () => boolean
  readonly resolve: () => void
}

export class PositionWaiters {
  readonly #clock: Clock
  #waiters: Waiter[] = []

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Resolves when `isReached`, asked behind each change, says so. @throws BoxError 78 after the time */
  wait(isReached: () => boolean, timeoutMs: number): Promise<void> {
    if (isReached()) return Promise.resolve()
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        isReached,
        resolve: () => {
          cancel()
          resolve()
        },
      }
      const cancel = this.#clock.schedule(Math.max(0, timeoutMs), () => {
        this.#waiters = this.#waiters.filter((other) => other !== waiter)
        reject(boxErrors.rowsTimeout())
      })
      this.#waiters.push(waiter)
    })
  }

  /** Something has arrived. */
  look(): void {
    if (this.#waiters.length === 0) return
    const due = this.#waiters.filter((waiter) => waiter.isReached())
    if (due.length === 0) return
    this.#waiters = this.#waiters.filter((waiter) => !due.includes(waiter))
    for (const waiter of due) waiter.resolve()
  }
}
