/** Reads that found nobody to serve them. They wait for any suitable instance, not for a master, and open no window. */
import type { Clock } from '@orbweaver/connection'
import type { HoldShare } from './hold-budget.js'
import { type Held, type HoldEnd, HoldQueue } from './hold-queue.js'

export class WaitingReads {
  readonly queue: HoldQueue
  readonly #run: (held: Held) => boolean
  #isRunning = false

  /** @param run - tries to send it; false: still nobody */
  constructor(
    clock: Clock,
    share: HoldShare,
    run: (held: Held) => boolean,
    giveUp: (held: Held, end: HoldEnd) => void,
  ) {
    this.#run = run
    this.queue = new HoldQueue(clock, share, giveUp, () => undefined)
  }

  add(held: Held): void {
    held.tried.clear()
    this.queue.add(held)
  }

  /** An instance may have become usable. */
  wake(): void {
    if (this.#isRunning || this.queue.length === 0) return
    this.#isRunning = true
    // One that cannot run says nothing of the next: their modes differ.
    for (const held of this.queue.snapshot()) {
      if (held.place !== 'queued' || !this.#run(held)) continue
      this.queue.take(held)
    }
    this.#isRunning = false
  }
}
