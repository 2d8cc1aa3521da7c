/*
 * When a write may be acknowledged: as soon as enough instances, this one included, have it. Instances acknowledge positions,
 * so one number per instance is all there is to know; waiters stand in the order of their positions.
 */
import type { Clock } from '@orbweaver/connection'
import type { BoxError } from '@orbweaver/iproto'
import { boxErrors } from '../errors.js'

interface Waiter {
  readonly lsn: number
  readonly deadline: number
  readonly resolve: () => void
  readonly reject: (error: BoxError) => void
}

export class Quorum {
  readonly #clock: Clock
  readonly #needed: number
  readonly #timeoutMs: number
  readonly #acknowledged = new Map<number, number>()
  /** In the order of `lsn`, and so of deadlines. */
  #waiters: Waiter[] = []
  #confirmed = 0
  #cancelTimer: (() => void) | undefined

  /** @param needed - instances that must have a write, this one included; 1 waits for nobody */
  constructor(options: { clock: Clock; needed: number; timeoutMs: number }) {
    this.#clock = options.clock
    this.#needed = options.needed
    this.#timeoutMs = options.timeoutMs
  }

  /** The last own transaction that enough instances have. */
  get confirmed(): number {
    return this.#confirmed
  }

  get waiting(): number {
    return this.#waiters.length
  }

  /** Whether there is nothing to wait for. */
  has(lsn: number): boolean {
    return this.#needed <= 1 || lsn <= this.#confirmed
  }

  /** undefined: nothing to wait for. Rejects with BoxError 216 (executed `unknown`) after the timeout. */
  wait(lsn: number): Promise<void> | undefined {
    if (this.has(lsn)) return undefined
    return new Promise((resolve, reject) => {
      this.#waiters.push({ lsn, deadline: this.#clock.now() + this.#timeoutMs, resolve, reject })
      this.#cancelTimer ??= this.#clock.schedule(this.#timeoutMs, () => this.#expire())
    })
  }

  /** An instance has everything of ours up to `lsn`. Repeated and older news change nothing. */
  acknowledge(instance: number, lsn: number): void {
    if ((this.#acknowledged.get(instance) ?? 0) >= lsn) return
    this.#acknowledged.set(instance, lsn)
    const others = [...this.#acknowledged.values()].toSorted((a, b) => b - a)
    const confirmed = others[this.#needed - 2] ?? 0
    if (confirmed <= this.#confirmed) return
    this.#confirmed = confirmed
    let done = 0
    while (done < this.#waiters.length && this.#waiters[done]!.lsn <= confirmed) this.#waiters[done++]!.resolve()
    this.#waiters.splice(0, done)
    if (this.#waiters.length === 0) this.#stopTimer()
  }

  /** Every waiter fails: history went on without these writes, or the instance closes. */
  fail(error: BoxError): void {
    const waiters = this.#waiters
    this.#waiters = []
    this.#stopTimer()
    for (const waiter of waiters) waiter.reject(error)
  }

  /** What the others had in an earlier term counts no more; who waits, waits on. */
  beginTerm(): void {
    this.#acknowledged.clear()
  }

  /** Forgets what the others had: after a reset the numbers begin anew. */
  reset(lsn: number): void {
    this.#acknowledged.clear()
    this.#confirmed = lsn
  }

  #expire(): void {
    this.#cancelTimer = undefined
    const now = this.#clock.now()
    let expired = 0
    while (expired < this.#waiters.length && this.#waiters[expired]!.deadline <= now) expired++
    const due = this.#waiters.splice(0, expired)
    const [next] = this.#waiters
    if (next !== undefined) this.#cancelTimer = this.#clock.schedule(next.deadline - now, () => this.#expire())
    for (const waiter of due) waiter.reject(boxErrors.quorumTimeout())
  }

  #stopTimer(): void {
    this.#cancelTimer?.()
    this.#cancelTimer = undefined
  }
}
