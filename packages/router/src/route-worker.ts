/*
 * The one writer of the routes. Facts come from answers, lookups and discovery pages, each with the moment at which its request was
 * sent; late news never overwrites newer (the rules of `accept`), and a burst of facts costs one new table.
 */
import type { Clock } from '@orbweaver/connection'
import { RouteTable, UNKNOWN } from './route-table.js'

/** Something learnt about one bucket. `from` and `owner` are indexes of sets. */
export type RouteFact =
  /** `from` does not have it; `owner`: who it named (UNKNOWN: nobody we know). */
  | {
      readonly kind: 'moved'
      readonly bucketId: number
      readonly sent: number
      readonly from: number
      readonly owner: number
    }
  /** `owner` answered for it, listed it, or was found to have it. */
  | { readonly kind: 'owned'; readonly bucketId: number; readonly sent: number; readonly owner: number }
  /** A whole sweep of `from` did not list it. */
  | { readonly kind: 'unlisted'; readonly bucketId: number; readonly sent: number; readonly from: number }

/** Facts that may wait for the writer: more are dropped, they come again. */
const MAX_QUEUED = 8_192
/** Facts per run of the writer. */
const BATCH = 1_024

export interface RouteStats {
  readonly applied: number
  readonly ignored: number
  /** Dropped because the queue was full. */
  readonly dropped: number
  /** Bucket ids outside 1..bucketCount. */
  readonly bad: number
}

export class RouteWorker {
  #table: RouteTable
  readonly #clock: Clock
  readonly #onChange: () => void
  /** Client sequence number at which each entry changed last. */
  readonly #stamps: Float64Array
  #sequence = 0
  #queue: RouteFact[] = []
  #isScheduled = false
  #applied = 0
  #ignored = 0
  #dropped = 0
  #bad = 0

  constructor(bucketCount: number, clock: Clock, onChange: () => void) {
    this.#table = RouteTable.empty(bucketCount)
    this.#clock = clock
    this.#onChange = onChange
    this.#stamps = new Float64Array(bucketCount + 1)
  }

  get table(): RouteTable {
    return this.#table
  }

  get stats(): RouteStats {
    return { applied: this.#applied, ignored: this.#ignored, dropped: this.#dropped, bad: this.#bad }
  }

  /** The moment of a request: facts from its answer carry it. */
  tick(): number {
    return ++this.#sequence
  }

  report(fact: RouteFact): void {
    if (this.#queue.length >= MAX_QUEUED) {
      this.#dropped++
      return
    }
    this.#queue.push(fact)
    if (this.#isScheduled) return
    this.#isScheduled = true
    this.#clock.soon(() => this.#run())
  }

  /** A page of discovery: applied at once, it is one batch by itself. */
  reportPage(owner: number, bucketIds: readonly number[], sent: number): void {
    this.#apply(bucketIds.map((bucketId) => ({ kind: 'owned', bucketId, sent, owner })))
  }

  #run(): void {
    this.#isScheduled = false
    this.#apply(this.#queue.splice(0, BATCH))
    if (this.#queue.length === 0) return
    this.#isScheduled = true
    this.#clock.soon(() => this.#run())
  }

  #apply(facts: readonly RouteFact[]): void {
    const changes = new Map<number, number>()
    for (const fact of facts) {
      const { bucketId } = fact
      if (!Number.isInteger(bucketId) || bucketId < 1 || bucketId > this.#table.bucketCount) {
        this.#bad++
        continue
      }
      const value = changes.get(bucketId) ?? this.#table.lookup(bucketId)
      const next = accept(fact, value, this.#stamps[bucketId]!)
      if (next === value) {
        this.#ignored++
        continue
      }
      changes.set(bucketId, next)
      this.#stamps[bucketId] = ++this.#sequence
      this.#applied++
    }
    const table = this.#table.with(changes)
    if (table === this.#table) return
    this.#table = table
    this.#onChange()
  }
}

/** What an entry becomes by a fact: its value when the fact is older than the entry, or speaks of another owner's past. */
export function accept(fact: RouteFact, value: number, stamp: number): number {
  if (fact.sent < stamp) return value
  switch (fact.kind) {
    case 'owned':
      return fact.owner
    case 'moved':
      if (fact.owner === fact.from) return value // it names itself: a transfer, not a route
      if (fact.owner === UNKNOWN) return value === fact.from ? UNKNOWN : value
      return value === fact.from || value === UNKNOWN ? fact.owner : value
    case 'unlisted':
      return value === fact.from ? UNKNOWN : value
  }
}
