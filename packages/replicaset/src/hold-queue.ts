/**
 * Attempts that wait, in the order of their arrival. Each leaves exactly once: taken for a dispatch, at its own limit (which
 * holds even if nothing else ever happens), evicted by a younger one when the budget is used up, or withdrawn. The slot it
 * held is free at that moment.
 */
import type { Clock } from '@orbweaver/connection'
import type { OrbweaverError } from '@orbweaver/iproto'
import type { Attempt, CallMode } from './attempt.js'
import type { HoldShare } from './hold-budget.js'

/** Why something that could have waited did not. Closed list: it is a metric label. */
export type SkipReason = 'off' | 'observe' | 'cooldown' | 'rate' | 'attempts' | 'closed'

/** How a wait ends without a dispatch. */
export type HoldEnd =
  | { readonly type: 'deadline' | 'windowMs' | 'maxDurationMs' | 'evicted' | 'full' | 'aborted' | 'closed' }
  | { readonly type: 'skipped'; readonly why: SkipReason }

/** What is kept beside an attempt from its first wait (or repetition) on, over all its waits. */
export interface Held {
  readonly attempt: Attempt
  readonly mode: CallMode
  /** Place by arrival: an entry that comes back goes where it was. */
  readonly order: number
  /** When its first wait began. */
  readonly sinceMs: number
  /** The end of its patience: the window's limit or its own deadline, whichever is nearer. */
  readonly limitMs: number
  /** Times it was run. */
  dispatches: number
  /** The epoch it was last run under; 0: never. */
  epoch: number
  /** It was run, and nothing proves that this had no effect. */
  mayHaveRun: boolean
  /** The last refusal or failure. */
  cause: OrbweaverError | undefined
  /** Instances a read was refused by since it last waited. */
  readonly tried: Set<number>
  place: 'outside' | 'queued' | 'draining'
  stopListening: (() => void) | undefined
}

/**
 * Law, true at any moment: entered = queued + drained + expired + evicted + cancelled (an entry that comes back enters
 * again). `rejected` never entered.
 */
export interface HoldCounts {
  entered: number
  drained: number
  expired: number
  evicted: number
  rejected: number
  cancelled: number
}

export class HoldQueue {
  readonly counts: HoldCounts = { entered: 0, drained: 0, expired: 0, evicted: 0, rejected: 0, cancelled: 0 }
  readonly #clock: Clock
  readonly #share: HoldShare
  readonly #giveUp: (held: Held, end: HoldEnd) => void
  readonly #left: () => void
  readonly #entries: Held[] = []
  /** Order keys of entries, and how many of each. */
  readonly #keys = new Map<string, number>()
  #cancelSweep: (() => void) | undefined
  #sweepDueMs = Number.POSITIVE_INFINITY

  /**
   * @param giveUp - told of each entry that ends here; may call back
   * @param left - told after entries left by themselves (limit, abort)
   */
  constructor(clock: Clock, share: HoldShare, giveUp: (held: Held, end: HoldEnd) => void, left: () => void) {
    this.#clock = clock
    this.#share = share
    this.#giveUp = giveUp
    this.#left = left
  }

  get length(): number {
    return this.#entries.length
  }

  at(index: number): Held | undefined {
    return this.#entries[index]
  }

  /** All entries of this moment. */
  snapshot(): readonly Held[] {
    return this.#entries.slice()
  }

  hasKey(orderKey: string): boolean {
    return this.#keys.has(orderKey)
  }

  /** Lets it wait, unless its limit has passed or there is no room. @returns whether it waits; if not, it was given up */
  add(held: Held): boolean {
    if (held.limitMs <= this.#clock.now()) {
      this.counts.entered += 1
      this.counts.expired += 1
      this.#giveUp(held, { type: limitOf(held) })
      return false
    }
    if (!this.#makeRoom(held)) return false
    this.counts.entered += 1
    held.place = 'queued'
    let at = this.#entries.length
    while (at > 0 && isBefore(held, this.#entries[at - 1])) at -= 1
    this.#entries.splice(at, 0, held)
    const { orderKey, signal } = held.attempt
    if (orderKey !== undefined) this.#keys.set(orderKey, (this.#keys.get(orderKey) ?? 0) + 1)
    if (signal !== undefined) this.#listen(held, signal)
    this.#sweepBy(held.limitMs)
    return true
  }

  /** It leaves for a dispatch. */
  take(held: Held): void {
    this.#remove(held)
    this.counts.drained += 1
  }

  /** Takes it out for good, without telling it. @returns false: it does not wait here */
  withdraw(held: Held): boolean {
    if (held.place !== 'queued' || !this.#remove(held)) return false
    this.counts.cancelled += 1
    return true
  }

  /** Ends all entries of this moment. */
  failAll(end: HoldEnd, count: 'expired' | 'cancelled'): void {
    for (const held of this.snapshot()) {
      if (held.place !== 'queued' || !this.#remove(held)) continue
      this.counts[count] += 1
      this.#giveUp(held, end)
    }
  }

  close(): void {
    this.failAll({ type: 'closed' }, 'cancelled')
    this.#cancelSweep?.()
    this.#cancelSweep = undefined
  }

  /** Evicts the oldest entries here until the newcomer fits; never another replicaset's. */
  #makeRoom(held: Held): boolean {
    const { bytes } = held.attempt
    while (!this.#share.take(bytes)) {
      const oldest = this.#entries[0]
      if (oldest === undefined) {
        this.counts.rejected += 1
        this.#giveUp(held, { type: 'full' })
        return false
      }
      if (isBefore(held, oldest)) {
        // It came back, and is itself the one that has waited longest.
        this.counts.entered += 1
        this.counts.evicted += 1
        this.#giveUp(held, { type: 'evicted' })
        return false
      }
      this.#remove(oldest)
      this.counts.evicted += 1
      this.#giveUp(oldest, { type: 'evicted' })
    }
    return true
  }

  #remove(held: Held): boolean {
    const at = this.#entries.indexOf(held)
    if (at < 0) return false
    this.#entries.splice(at, 1)
    held.place = 'outside'
    held.stopListening?.()
    held.stopListening = undefined
    this.#share.give(held.attempt.bytes)
    const { orderKey } = held.attempt
    if (orderKey !== undefined) {
      const left = (this.#keys.get(orderKey) ?? 1) - 1
      if (left === 0) this.#keys.delete(orderKey)
      else this.#keys.set(orderKey, left)
    }
    return true
  }

  #listen(held: Held, signal: AbortSignal): void {
    const onAbort = (): void => {
      if (!this.withdraw(held)) return
      this.#giveUp(held, { type: 'aborted' })
      this.#left()
    }
    if (signal.aborted) {
      this.#clock.soon(onAbort)
      return
    }
    signal.addEventListener('abort', onAbort, { once: true })
    held.stopListening = () => signal.removeEventListener('abort', onAbort)
  }

  #sweepBy(limitMs: number): void {
    if (limitMs >= this.#sweepDueMs) return
    this.#cancelSweep?.()
    this.#sweepDueMs = limitMs
    this.#cancelSweep = this.#clock.schedule(limitMs - this.#clock.now(), () => this.#sweep())
  }

  #sweep(): void {
    this.#cancelSweep = undefined
    this.#sweepDueMs = Number.POSITIVE_INFINITY
    const nowMs = this.#clock.now()
    let nextMs = Number.POSITIVE_INFINITY
    for (const held of this.snapshot()) {
      if (held.place !== 'queued') continue
      if (held.limitMs > nowMs) {
        nextMs = Math.min(nextMs, held.limitMs)
        continue
      }
      this.#remove(held)
      this.counts.expired += 1
      this.#giveUp(held, { type: limitOf(held) })
    }
    this.#sweepBy(nextMs)
    this.#left()
  }
}

function isBefore(held: Held, other: Held | undefined): boolean {
  return other !== undefined && held.order < other.order
}

function limitOf(held: Held): 'deadline' | 'windowMs' {
  return held.attempt.deadline <= held.limitMs ? 'deadline' : 'windowMs'
}
