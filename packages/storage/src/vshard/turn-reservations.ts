/* Turns of the scheduler that were taken for a transfer about to begin. Each is kept for a moment only: no promise outlives its sender. */
import type { Clock } from '@orbweaver/connection'
import { takeTurn } from './scheduler-turn.js'
import type { Scheduler } from './scheduler.js'

/** From the reservation to the first message: the sender syncs with its replicas meanwhile. */
const HOLD_MS = 1_000

export class TurnReservations {
  readonly #clock: Clock
  readonly #scheduler: Scheduler
  /** How to stop the end of each, by bucket and sender. */
  readonly #held = new Map<string, () => void>()

  constructor(clock: Clock, scheduler: Scheduler) {
    this.#clock = clock
    this.#scheduler = scheduler
  }

  get size(): number {
    return this.#held.size
  }

  /** Resolves when the turn has come. @throws BoxError 78 when it did not in time */
  async reserve(bucketId: number, from: string, timeoutMs: number): Promise<void> {
    await takeTurn(this.#scheduler, this.#clock, 'move', timeoutMs, { joins: true })
    this.release(bucketId, from)
    const key = keyOf(bucketId, from)
    this.#held.set(
      key,
      this.#clock.schedule(HOLD_MS, () => {
        this.#held.delete(key)
        this.#scheduler.end('move')
      }),
    )
  }

  /** The turn becomes the caller's, who ends it; false when there is none. */
  claim(bucketId: number, from: string): boolean {
    const key = keyOf(bucketId, from)
    const cancel = this.#held.get(key)
    if (cancel === undefined) return false
    cancel()
    this.#held.delete(key)
    return true
  }

  /** Gives it back. */
  release(bucketId: number, from: string): void {
    if (this.claim(bucketId, from)) this.#scheduler.end('move')
  }

  close(): void {
    for (const cancel of this.#held.values()) cancel()
    this.#held.clear()
  }
}

function keyOf(bucketId: number, from: string): string {
  return `${bucketId}/${from}`
}
