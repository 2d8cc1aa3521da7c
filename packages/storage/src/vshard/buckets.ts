/*
 * The buckets of this instance: `_bucket` as records in memory, kept true by every committed change (own and replicated), with
 * the counter that wakes whoever waits for a change.
 */
import type { Clock } from '@orbweaver/connection'
import { encodeValue, IteratorType } from '@orbweaver/iproto'
import { VshardError } from '@orbweaver/vshard'
import type { Engine } from '../engine/engine.js'
import type { SpaceChange } from '../engine/space.js'
import { boxErrors } from '../errors.js'
import { problemOf } from './bucket-guard.js'
import { BUCKET_STATUS, bucketTuple, readBucketRow, readBucketTuple } from './bucket-record.js'
import type { BucketRecord, BucketStatus } from './bucket-record.js'
import type { BucketCounters } from './bucket-refs.js'
import { Redirects } from './redirects.js'
import { Waiters } from './waiters.js'

export const BUCKET_SPACE = '_bucket'

/** What depends on the records: told of each change before anybody who waits for one is woken. */
export interface BucketObserver {
  changed(id: number, record: BucketRecord | undefined, before: BucketRecord | undefined): void
  replaced(): void
  countersOf(id: number): BucketCounters | undefined
}

export class Buckets {
  readonly redirects: Redirects
  /** Off: any change of `_bucket` is taken, for repairs by hand. */
  isProtected = true
  readonly #engine: Engine
  readonly #records = new Map<number, BucketRecord>()
  readonly #byStatus: Readonly<Record<BucketStatus, Set<number>>> = {
    active: new Set(),
    pinned: new Set(),
    readonly: new Set(),
    sending: new Set(),
    sent: new Set(),
    receiving: new Set(),
    garbage: new Set(),
  }
  readonly #waiters: Waiters
  readonly #listeners = new Set<() => void>()
  #observer: BucketObserver | undefined
  /** +1 with every change; unrelated to the generation of a bucket. */
  #generation = 0

  constructor(engine: Engine, clock: Clock) {
    this.#engine = engine
    this.redirects = new Redirects(clock)
    this.#waiters = new Waiters(clock)
  }

  observe(observer: BucketObserver): void {
    this.#observer = observer
  }

  get generation(): number {
    return this.#generation
  }

  /** Records of any status. */
  get size(): number {
    return this.#records.size
  }

  count(status: BucketStatus): number {
    return this.#byStatus[status].size
  }

  /** Ids of a status; a live view: copy it before changing records. */
  idsOf(status: BucketStatus): ReadonlySet<number> {
    return this.#byStatus[status]
  }

  /** No bucket is on its way: what a storage reference needs. */
  get areAllWritable(): boolean {
    return this.count('active') + this.count('pinned') === this.#records.size
  }

  get(id: number): BucketRecord | undefined {
    return this.#records.get(id)
  }

  /** In the order of ids, from `first` on: at most `limit` records. */
  *from(first: number, limit?: number): IterableIterator<BucketRecord> {
    const space = this.#engine.schema.find(BUCKET_SPACE)
    if (space === undefined) return
    for (const tuple of space.primary.withKey(IteratorType.ge, encodeValue([first]), limit)) {
      const record = readBucketTuple(tuple)
      if (record !== undefined) yield record
    }
  }

  /** Whether `isTrue` came true by the deadline; it is asked with every change. */
  until(isTrue: () => boolean, deadline: number): Promise<boolean> {
    return this.#waiters.until(isTrue, deadline)
  }

  /** Calls `listener` with every change, until the returned function is called. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  // ---- changes ------------------------------------------------------------------------------------------------------

  /**
   * Creates `count` active buckets from `first` on, in transactions of 1,000.
   * @throws BoxError 3 when one exists; the transactions before it stay
   */
  create(first: number, count: number): void {
    const space = this.#engine.schema.get(BUCKET_SPACE)
    for (let start = first; start < first + count; start += CHUNK) {
      const end = Math.min(start + CHUNK, first + count)
      this.#engine.run(undefined, (transaction) => {
        for (let id = start; id < end; id++) {
          const record = { id, destination: undefined, generation: 0 }
          this.#engine.insert(transaction, space, bucketTuple({ ...record, status: 'receiving' }))
          this.#engine.replace(transaction, space, bucketTuple({ ...record, status: 'active' }))
        }
      })
    }
  }

  /** Writes records, all or none. @throws BoxError 32 BUCKET_INVALID_UPDATE for a change that the table of states has not */
  put(...records: readonly BucketRecord[]): void {
    const space = this.#engine.schema.get(BUCKET_SPACE)
    this.#engine.run(undefined, (transaction) => {
      for (const record of records) this.#engine.replace(transaction, space, bucketTuple(record))
    })
  }

  /** Removes a record. @throws BoxError 32 BUCKET_INVALID_UPDATE unless it is garbage and nobody uses it */
  remove(id: number): void {
    this.#engine.delete(undefined, this.#engine.schema.get(BUCKET_SPACE), encodeValue([id]))
  }

  /** The guard of `_bucket`: throws for a change that must not be. */
  judge(change: SpaceChange): void {
    if (change.space.name !== BUCKET_SPACE || !this.isProtected) return
    const before = change.before === undefined ? undefined : readBucketTuple(change.before)
    const after = change.after === undefined ? undefined : readBucketRow(change.after)
    const id = after?.id ?? before?.id ?? 0
    const reason = problemOf({ before, after }, this.#observer?.countersOf(id))
    if (reason !== undefined)
      throw boxErrors.procLua(VshardError.of('BUCKET_INVALID_UPDATE', { bucket_id: id, reason }).toWireText())
  }

  // ---- what happened ------------------------------------------------------------------------------------------------

  /** Takes note of a committed change of any space. */
  note(change: SpaceChange): void {
    if (change.space.name !== BUCKET_SPACE) return
    const before = change.before === undefined ? undefined : readBucketTuple(change.before)
    const after = change.after === undefined ? undefined : readBucketTuple(change.after)
    if (before !== undefined) this.#drop(before)
    if (after !== undefined) this.#keep(after)
    const id = after?.id ?? before?.id
    if (id === undefined) return
    if (after !== undefined) this.redirects.forget(id)
    else if (before?.destination !== undefined && BUCKET_STATUS[before.status].isMoved)
      this.redirects.remember(id, before.destination)
    this.#observer?.changed(id, after, before)
    this.touch()
  }

  /** Reads everything again: the whole state was replaced. */
  reload(): void {
    this.#records.clear()
    for (const ids of Object.values(this.#byStatus)) ids.clear()
    for (const record of this.from(0)) this.#keep(record)
    this.#observer?.replaced()
    this.touch()
  }

  /** Wakes everybody who waits for a change of buckets or of who uses them. */
  touch(): void {
    this.#generation++
    this.#waiters.wake()
    for (const listener of this.#listeners) listener()
  }

  #keep(record: BucketRecord): void {
    this.#records.set(record.id, record)
    this.#byStatus[record.status].add(record.id)
  }

  #drop(record: BucketRecord): void {
    this.#records.delete(record.id)
    this.#byStatus[record.status].delete(record.id)
  }
}

export function isMoved(record: BucketRecord | undefined): boolean {
  return record === undefined || BUCKET_STATUS[record.status].isMoved
}

const CHUNK = 1_000
