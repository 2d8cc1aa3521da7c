/*
 * Where buckets went that left this instance: what WRONG_BUCKET and `moved` tell a router in place of "ask everybody". Kept
 * for one to two minutes, as long as routers may be behind.
 */
import type { Clock } from '@orbweaver/connection'

const PERIOD_MS = 60_000

export class Redirects {
  readonly #clock: Clock
  #young = new Map<number, string>()
  #old = new Map<number, string>()
  #since: number

  constructor(clock: Clock) {
    this.#clock = clock
    this.#since = clock.now()
  }

  get size(): number {
    this.#age()
    return this.#young.size + this.#old.size
  }

  /** Id of the replicaset a bucket went to. */
  get(id: number): string | undefined {
    this.#age()
    return this.#young.get(id) ?? this.#old.get(id)
  }

  remember(id: number, destination: string): void {
    this.#age()
    this.#old.delete(id)
    this.#young.set(id, destination)
  }

  forget(id: number): void {
    this.#young.delete(id)
    this.#old.delete(id)
  }

  /** Two sheets in turn: no timer, and no note per bucket of when it left. */
  #age(): void {
    const now = this.#clock.now()
    if (now - this.#since < PERIOD_MS) return
    this.#old = now - this.#since < 2 * PERIOD_MS ? this.#young : new Map<number, string>()
    this.#young = new Map()
    this.#since = now
  }
}
