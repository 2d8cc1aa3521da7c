/*
 * The buckets of this instance: `_bucket` as records in memory, kept true by every committed change (own and replicated), with
 * the counter that wakes whoever waits for a change.
 */
import type { Engine } from '../engine/engine.js'
import type { SpaceChange } from '../engine/space.js'
import { BUCKET_STATUS, bucketTuple, readBucketTuple } from './bucket-record.js'
import type { BucketRecord, BucketStatus } from './bucket-record.js'

export const BUCKET_SPACE = '_bucket'

export class Buckets {
  readonly #engine: Engine
  readonly #records = new Map<number, BucketRecord>()
  readonly #counts: Record<BucketStatus, number> = {
    active: 0,
    pinned: 0,
    readonly: 0,
    sending: 0,
    sent: 0,
    receiving: 0,
    garbage: 0,
  }
  /** +1 with every change; unrelated to the generation of a bucket. */
  #generation = 0
  readonly #waiters = new Set<() => void>()

  constructor(engine: Engine) {
    this.#engine = engine
  }

  get generation(): number {
    return this.#generation
  }

  /** Records of any status. */
  get size(): number {
    return this.#records.size
  }

  count(status: BucketStatus): number {
    return this.#counts[status]
  }

  /** No bucket is on its way: what a storage reference needs. */
  get areAllWritable(): boolean {
    return this.#counts.active + this.#counts.pinned === this.#records.size
  }

  get(id: number): BucketRecord | undefined {
    return this.#records.get(id)
  }

  /** In the order of ids, from `first` on. */
  *from(first: number): IterableIterator<BucketRecord> {
    const space = this.#engine.schema.find(BUCKET_SPACE)
    if (space === undefined) return
    for (const tuple of space.primary.select({
      iterator: 5,
      key: [first],
      offset: 0,
      limit: Number.MAX_SAFE_INTEGER,
    })) {
      const record = readBucketTuple(tuple)
      if (record !== undefined) yield record
    }
  }

  /** Calls `wake` once, with the next change, unless the returned function is called first. */
  onceChanged(wake: () => void): () => void {
    this.#waiters.add(wake)
    return () => this.#waiters.delete(wake)
  }

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
          this.#engine.insert(
            transaction,
            space,
            bucketTuple({ id, status: 'active', destination: undefined, generation: 0 }),
          )
        }
      })
    }
  }

  /** Takes note of a committed change of any space. */
  note(change: SpaceChange): void {
    if (change.space.name !== BUCKET_SPACE) return
    const before = change.before === undefined ? undefined : readBucketTuple(change.before)
    const after = change.after === undefined ? undefined : readBucketTuple(change.after)
    if (before !== undefined) {
      this.#records.delete(before.id)
      this.#counts[before.status]--
    }
    if (after !== undefined) {
      this.#records.set(after.id, after)
      this.#counts[after.status]++
    }
    this.#bump()
  }

  /** Reads everything again: the whole state was replaced. */
  reload(): void {
    this.#records.clear()
    for (const status of Object.keys(this.#counts) as BucketStatus[]) this.#counts[status] = 0
    for (const record of this.from(0)) {
      this.#records.set(record.id, record)
      this.#counts[record.status]++
    }
    this.#bump()
  }

  #bump(): void {
    this.#generation++
    if (this.#waiters.size === 0) return
    const waiters = [...this.#waiters]
    this.#waiters.clear()
    for (const wake of waiters) wake()
  }
}

export function isMoved(record: BucketRecord | undefined): boolean {
  return record === undefined || BUCKET_STATUS[record.status].isMoved
}

const CHUNK = 1_000
