/*
 * The one writer of the routes. Facts come from answers, lookups and discovery pages, each with the moment at which its request was
 * sent; a burst of facts costs one new table, and readers keep the one they have.
 */
import type { Clock } from '@orbweaver/connection'
import { FlapWatch } from './flap-watch.js'
import { accept } from './route-fact.js'
import type { RouteFact } from './route-fact.js'
import { RouteTable, UNKNOWN } from './route-table.js'

/** Facts that may wait for the writer: more are dropped, they come again. */
const MAX_QUEUED = 8_192
/** Facts per run of the writer. */
const BATCH = 1_024

export interface RouteStats {
  readonly applied: number
  readonly ignored: number
  /** Dropped because the queue was full. */
  readonly dropped: number
  /** Bucket ids outside 1..bucketCount, owners that are no replicasets any more. */
  readonly bad: number
  /** Buckets that changed their owner so often that pages do not change them for a while. */
  readonly flapping: number
  /** Buckets whose owner is named by storages and is not in the configuration. */
  readonly pending: number
}

/** What the writer asks and tells. */
export interface RouteHooks {
  /** A new table is in place. */
  changed(changes: number): void
  /** Whether there is a replicaset of this index now. */
  isSet(index: number): boolean
  /** A storage named an owner that is not configured. */
  unknownOwner(destination: string): void
  /** A bucket began to change its owner all the time. */
  flapping(bucketId: number, owners: readonly number[]): void
  /** Storages speak of buckets this cluster does not have. */
  badBucket(bucketId: number): void
}

const SILENT: RouteHooks = {
  changed: () => undefined,
  isSet: () => true,
  unknownOwner: () => undefined,
  flapping: () => undefined,
  badBucket: () => undefined,
}

export class RouteWorker {
  #table: RouteTable
  readonly #clock: Clock
  readonly #hooks: RouteHooks
  /** The moment at which each entry changed last. Moments are numbers of changes so far: 2^32 of them last for years. */
  readonly #stamps: Uint32Array
  readonly #flaps: FlapWatch
  /** Owners by the ids storages named, for buckets whose owner is not configured. */
  readonly #pending = new Map<number, string>()
  #moment = 1
  #queue: RouteFact[] = []
  #isScheduled = false
  #applied = 0
  #ignored = 0
  #dropped = 0
  #bad = 0

  constructor(bucketCount: number, clock: Clock, hooks: Partial<RouteHooks> = {}) {
    this.#table = RouteTable.empty(bucketCount)
    this.#clock = clock
    this.#hooks = { ...SILENT, ...hooks }
    this.#stamps = new Uint32Array(bucketCount + 1)
    this.#flaps = new FlapWatch(bucketCount)
  }

  get table(): RouteTable {
    return this.#table
  }

  get stats(): RouteStats {
    return {
      applied: this.#applied,
      ignored: this.#ignored,
      dropped: this.#dropped,
      bad: this.#bad,
      flapping: this.#flaps.size,
      pending: this.#pending.size,
    }
  }

  /** The moment of a request: facts from its answer carry it. A later change of an entry makes them old. */
  tick(): number {
    return this.#moment
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
  reportPage(facts: readonly RouteFact[]): void {
    const nowMs = this.#clock.now()
    this.#apply(this.#flaps.size === 0 ? facts : facts.filter(({ bucketId }) => !this.#flaps.isHeld(bucketId, nowMs)))
  }

  /**
   * The replicasets are others now: entries of those that are gone become unknown, buckets of owners that were awaited get them,
   * in one new table.
   * @returns how many buckets are still said to be at owners nobody knows, by id; they are not waited for any longer
   */
  retarget(removed: ReadonlySet<number>, indexOf: (destination: string) => number | undefined): Map<string, number> {
    const changes = new Map<number, number>()
    const unresolved = new Map<string, number>()
    for (const index of removed) {
      if (this.#table.countOf(index) === 0) continue
      for (const bucketId of this.#table.bucketsOf(index, 1, this.#table.bucketCount + 1))
        changes.set(bucketId, UNKNOWN)
    }
    for (const [bucketId, destination] of this.#pending) {
      const index = indexOf(destination)
      if (index !== undefined) changes.set(bucketId, index)
      else unresolved.set(destination, (unresolved.get(destination) ?? 0) + 1)
    }
    this.#pending.clear()
    for (const bucketId of changes.keys()) this.#stamps[bucketId] = ++this.#moment
    this.#replace(changes)
    return unresolved
  }

  /** Routes are forgotten: all, or one. */
  forget(bucketId?: number): void {
    const changes = new Map<number, number>()
    const [from, to] = bucketId === undefined ? [1, this.#table.bucketCount] : [bucketId, bucketId]
    for (let id = from; id <= to; id++) if (this.#table.lookup(id) !== UNKNOWN) changes.set(id, UNKNOWN)
    for (const id of changes.keys()) this.#stamps[id] = ++this.#moment
    this.#replace(changes)
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
    const nowMs = this.#clock.now()
    for (const fact of facts) {
      const { bucketId } = fact
      if (!Number.isInteger(bucketId) || bucketId < 1 || bucketId > this.#table.bucketCount) {
        this.#bad++
        this.#hooks.badBucket(bucketId)
        continue
      }
      if (fact.kind !== 'unlisted' && fact.owner !== UNKNOWN && !this.#hooks.isSet(fact.owner)) {
        this.#bad++
        continue
      }
      const value = changes.get(bucketId) ?? this.#table.lookup(bucketId)
      const stamp = this.#stamps[bucketId]!
      const next = accept(fact, value, stamp)
      if (fact.kind === 'moved' && fact.destination !== undefined && fact.owner === UNKNOWN && fact.sent >= stamp)
        this.#await(bucketId, fact.destination, next)
      if (next === value) {
        this.#ignored++
        continue
      }
      changes.set(bucketId, next)
      this.#stamps[bucketId] = ++this.#moment
      this.#applied++
      if (next === UNKNOWN) continue
      if (this.#pending.size > 0) this.#pending.delete(bucketId)
      if (this.#flaps.changed(bucketId, nowMs)) this.#hooks.flapping(bucketId, [value, next])
    }
    this.#replace(changes)
  }

  #await(bucketId: number, destination: string, value: number): void {
    if (value === UNKNOWN) this.#pending.set(bucketId, destination)
    this.#hooks.unknownOwner(destination)
  }

  #replace(changes: ReadonlyMap<number, number>): void {
    const table = this.#table.with(changes)
    if (table === this.#table) return
    this.#table = table
    this.#hooks.changed(changes.size)
  }
}
