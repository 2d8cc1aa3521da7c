/**
 * Holding writes while the master changes. One window per replicaset: it opens when a write finds no master, and closes on
 * this replicaset's own evidence only: `resume` is called when the selection over its views names a master. Then what
 * waited drains in the order of arrival, a few at a time.
 *
 * The buffer knows no instances and no sockets. Time and timers come in; the replicaset runs what is drained.
 */
import type { Clock } from '@orbweaver/connection'
import type { HoldShare } from './hold-budget.js'
import { type Held, type HoldEnd, HoldQueue, type SkipReason } from './hold-queue.js'

/** Why a window opened. Closed list: it is a metric label. */
export type WindowReason = 'refused' | 'not_master' | 'not_ready' | 'unreachable' | 'stopping' | 'silent' | 'no_master'

/** Why a window ended. Closed list: it is a metric label. */
export type WindowEnd = 'newer_term' | 'other_instance' | 'same_instance' | 'operator' | 'timeout' | 'removed'

export interface BufferLimits {
  readonly mode: 'on' | 'off' | 'observe'
  readonly windowMs: number
  readonly maxDurationMs: number
  readonly cooldownMs: number
  readonly drainConcurrency: number
  readonly maxAttempts: number
  readonly maxWindowsPerMinute: number
}

/** A window as it opened. */
export interface WindowRecord {
  readonly reason: WindowReason
  /** Highest term known at its opening. */
  readonly T0: number
  /** The master that was lost: which instance, in which of its generations. */
  readonly M0: { readonly id: string; readonly generation: number } | undefined
  readonly openedMs: number
  /** Requests that waited in it, so far. */
  entries: number
}

export interface BufferHost {
  readonly clock: Clock
  /** Sends it to the master of this moment. @returns undefined: there is none (any more) */
  run(held: Held): 'sent' | 'elsewhere' | undefined
  giveUp(held: Held, end: HoldEnd, reason: WindowReason): void
  opened(window: WindowRecord): void
  ended(window: WindowRecord, why: WindowEnd, endedMs: number): void
  /** What was lost, for a window that opens now. */
  lost(): Pick<WindowRecord, 'T0' | 'M0'>
}

/** Law, true at any moment: asked = entered (of the queue) + rejected + all skipped. */
export interface BufferCounts {
  asked: number
  readonly skipped: Record<SkipReason, number>
  readonly windows: Record<WindowReason, number>
  readonly windowEnds: Record<WindowEnd, number>
  /** Sum of the lengths of the windows that ended. */
  windowMs: number
}

export class FailoverBuffer {
  readonly counts: BufferCounts = {
    asked: 0,
    skipped: { off: 0, observe: 0, cooldown: 0, rate: 0, attempts: 0, closed: 0 },
    windows: { refused: 0, not_master: 0, not_ready: 0, unreachable: 0, stopping: 0, silent: 0, no_master: 0 },
    windowEnds: { newer_term: 0, other_instance: 0, same_instance: 0, operator: 0, timeout: 0, removed: 0 },
    windowMs: 0,
  }
  readonly queue: HoldQueue
  readonly #limits: BufferLimits
  readonly #host: BufferHost
  #state: 'idle' | 'buffering' | 'draining' | 'closed' = 'idle'
  #window: WindowRecord | undefined
  #lastReason: WindowReason = 'no_master'
  #draining = 0
  /** Order keys of entries in flight: the next of the same key stays behind. */
  readonly #drainingKeys = new Set<string>()
  #cooldownUntilMs = Number.NEGATIVE_INFINITY
  #openings: number[] = []
  #cancelWindowTimer: (() => void) | undefined
  #isPumping = false

  constructor(limits: BufferLimits, share: HoldShare, host: BufferHost) {
    this.#limits = limits
    this.#host = host
    this.queue = new HoldQueue(
      host.clock,
      share,
      (held, end) => host.giveUp(held, end, this.#lastReason),
      () => this.#pump(),
    )
  }

  get state(): 'idle' | 'buffering' | 'draining' | 'closed' {
    return this.#state
  }

  /** Entries in flight of those that waited. */
  get draining(): number {
    return this.#draining
  }

  get window(): Readonly<WindowRecord> | undefined {
    return this.#window
  }

  /** Until when writes that find no master fail at once; in the past: they wait. */
  get cooldownUntilMs(): number {
    return this.#cooldownUntilMs
  }

  /** Whether a write with this key must wait behind others of its key although there is a master. */
  mustFollow(orderKey: string | undefined): boolean {
    return orderKey !== undefined && (this.queue.hasKey(orderKey) || this.#drainingKeys.has(orderKey))
  }

  /**
   * Takes a write that finds no master; `run` or `giveUp` follows, the latter maybe at once.
   * @returns why it is not taken: then nothing follows
   */
  hold(held: Held, reason: WindowReason): SkipReason | undefined {
    this.counts.asked += 1
    const skip = this.#skip(held)
    if (skip !== undefined) {
      this.counts.skipped[skip] += 1
      return skip
    }
    if (this.#state === 'idle') this.#lastReason = reason
    if (!this.queue.add(held)) return undefined
    if (this.#state !== 'buffering') this.#open(reason)
    if (this.#window !== undefined) this.#window.entries += 1
    return undefined
  }

  /** A write was refused too often to be sent again. */
  exhausted(): void {
    this.counts.asked += 1
    this.counts.skipped.attempts += 1
  }

  /** Takes a write that must follow others of its key. */
  follow(held: Held): void {
    this.counts.asked += 1
    if (!this.queue.add(held)) return
    if (this.#window !== undefined) this.#window.entries += 1
    this.#pump()
  }

  /**
   * The outcome of an entry that was drained is in: its place in flight is free. `goOn` is to follow, once the entry's own
   * fate is settled. @returns false: it is none of the drained
   */
  landed(held: Held): boolean {
    if (held.place !== 'draining') return false
    held.place = 'outside'
    this.#draining -= 1
    if (held.attempt.orderKey !== undefined) this.#drainingKeys.delete(held.attempt.orderKey)
    return true
  }

  goOn(): void {
    this.#pump()
  }

  /** The selection names a master: the window closes and what waited drains. */
  resume(why: WindowEnd): void {
    this.#cooldownUntilMs = Number.NEGATIVE_INFINITY
    if (this.#state !== 'buffering') return
    this.#state = 'draining'
    this.#endWindow(why)
    this.#pump()
  }

  /** Takes an attempt out of the queue, without telling it. @returns false: it does not wait */
  withdraw(held: Held): boolean {
    if (!this.queue.withdraw(held)) return false
    this.#pump()
    return true
  }

  /** Ends everything: every entry fails, no cooldown, nothing starts any more. */
  close(): void {
    this.#state = 'closed'
    this.#endWindow('removed')
    this.queue.close()
  }

  #skip(held: Held): SkipReason | undefined {
    if (this.#state === 'closed') return 'closed'
    if (this.#limits.mode !== 'on') return this.#limits.mode
    if (held.dispatches >= this.#limits.maxAttempts) return 'attempts'
    if (this.#state === 'buffering') return undefined
    if (this.#host.clock.now() < this.#cooldownUntilMs) return 'cooldown'
    return this.#mayOpen() ? undefined : 'rate'
  }

  #mayOpen(): boolean {
    const nowMs = this.#host.clock.now()
    this.#openings = this.#openings.filter((atMs) => nowMs - atMs < MINUTE_MS)
    return this.#openings.length < this.#limits.maxWindowsPerMinute
  }

  #open(reason: WindowReason): void {
    const nowMs = this.#host.clock.now()
    this.#state = 'buffering'
    this.#lastReason = reason
    this.counts.windows[reason] += 1
    this.#openings.push(nowMs)
    const window: WindowRecord = { ...this.#host.lost(), reason, openedMs: nowMs, entries: 0 }
    this.#window = window
    this.#cancelWindowTimer = this.#host.clock.schedule(this.#limits.maxDurationMs, () => this.#overdue())
    this.#host.opened(window)
  }

  #endWindow(why: WindowEnd): void {
    this.#cancelWindowTimer?.()
    this.#cancelWindowTimer = undefined
    const window = this.#window
    if (window === undefined) return
    this.#window = undefined
    const nowMs = this.#host.clock.now()
    this.counts.windowEnds[why] += 1
    this.counts.windowMs += nowMs - window.openedMs
    this.#host.ended(window, why, nowMs)
  }

  #overdue(): void {
    this.#cancelWindowTimer = undefined
    this.#cooldownUntilMs = this.#host.clock.now() + this.#limits.cooldownMs
    this.#state = 'idle'
    this.#endWindow('timeout')
    this.queue.failAll({ type: 'maxDurationMs' }, 'expired')
  }

  #pump(): void {
    if (this.#isPumping || this.#state !== 'draining') return
    this.#isPumping = true
    for (let at = 0; this.#draining < this.#limits.drainConcurrency;) {
      const held = this.queue.at(at)
      if (held === undefined) break
      const { orderKey } = held.attempt
      if (orderKey !== undefined && this.#drainingKeys.has(orderKey)) {
        at += 1
        continue
      }
      const outcome = this.#host.run(held)
      if (outcome === undefined) {
        this.#goBack()
        break
      }
      this.queue.take(held)
      if (outcome === 'sent') this.#fly(held)
    }
    this.#isPumping = false
    if (this.#state === 'draining' && this.queue.length === 0 && this.#draining === 0) this.#state = 'idle'
  }

  #fly(held: Held): void {
    held.place = 'draining'
    this.#draining += 1
    if (held.attempt.orderKey !== undefined) this.#drainingKeys.add(held.attempt.orderKey)
  }

  /** The master is gone again while entries drain: what is left goes on waiting, in a new window. */
  #goBack(): void {
    if (this.#mayOpen()) {
      this.#open('no_master')
      const { window } = this
      if (window !== undefined) this.#window = { ...window, entries: this.queue.length }
      return
    }
    this.#state = 'idle'
    this.queue.failAll({ type: 'skipped', why: 'rate' }, 'cancelled')
  }
}

const MINUTE_MS = 60_000
