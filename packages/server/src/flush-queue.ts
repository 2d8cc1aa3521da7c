/*
 * Whose replies are written when: one task of the clock for all sessions of a server. Most are written behind the input of this
 * turn of the loop. Where more replies are on their way, a turn more costs microseconds and saves writes.
 */
import type { Clock } from '@orbweaver/connection'

/** Who has something to write. `flushDue` belongs to the queue. */
export interface Flushed {
  /** Turns until it is written: 0, it has nothing to write. */
  flushDue: 0 | 1 | 2
  flush(): void
}

export class FlushQueue {
  readonly #clock: Clock
  #now: Flushed[] = []
  #next: Flushed[] = []
  #isQueued = false
  readonly #run = (): void => this.#flushDue()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Behind the input of this turn. */
  soon(member: Flushed): void {
    if (member.flushDue === 1) return
    member.flushDue = 1
    this.#now.push(member)
    this.#queue()
  }

  /** One turn later, unless `soon` is asked for in the meantime. */
  later(member: Flushed): void {
    if (member.flushDue !== 0) return
    member.flushDue = 2
    this.#next.push(member)
    this.#queue()
  }

  #queue(): void {
    if (this.#isQueued) return
    this.#isQueued = true
    this.#clock.soon(this.#run)
  }

  #flushDue(): void {
    this.#isQueued = false
    const due = this.#now
    this.#now = this.#next
    this.#next = []
    for (const member of this.#now) if (member.flushDue === 2) member.flushDue = 1
    if (this.#now.length > 0) this.#queue()
    for (const member of due) {
      // Written in the meantime, by whoever closed it.
      if (member.flushDue === 0) continue
      member.flushDue = 0
      member.flush()
    }
  }
}
