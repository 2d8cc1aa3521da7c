/*
 * Removes what has left. A sent bucket becomes garbage as soon as no instance of this replicaset serves a read on it; garbage is
 * deleted in small transactions, the record last. Woken by every change of a bucket and by the end of its last reader: in
 * a healthy replicaset the source forgets a bucket milliseconds after the move.
 */
import { bucketTestGcCall, readBucketTestGc } from '@orbweaver/vshard'
import { BackgroundService } from './background-service.js'
import { bucketRows, shardedSpaces } from './sharded-spaces.js'
import type { VshardParts } from './vshard-parts.js'

/** Rows of one transaction, and buckets of one question to the replicas. */
const BATCH = 1_000
const ASK_MS = 5_000
const FIRST_PAUSE_MS = 50
/** Short: a reader on a replica ends without telling. */
const LONGEST_PAUSE_MS = 1_000

export class BucketGc extends BackgroundService {
  readonly #parts: VshardParts
  #pauseMs = FIRST_PAUSE_MS

  constructor(parts: VshardParts) {
    super('bucketGc', parts, () => this.#collect())
    this.#parts = parts
  }

  async #collect(): Promise<{ problem: string | undefined; againMs: number | undefined }> {
    const { buckets } = this.#parts
    let problem: string | undefined
    try {
      await this.#dropGarbage()
      problem = await this.#dismissSent()
      if (buckets.count('garbage') > 0) await this.#dropGarbage()
    } catch (error) {
      problem = error instanceof Error ? error.message : String(error)
    }
    if (problem === undefined) {
      this.#pauseMs = FIRST_PAUSE_MS
      return { problem, againMs: undefined }
    }
    const againMs = this.#pauseMs
    this.#pauseMs = Math.min(this.#pauseMs * 2, LONGEST_PAUSE_MS)
    return { problem, againMs }
  }

  /** Sent buckets that nobody reads, on any instance, become garbage. @returns what stands against some of them */
  async #dismissSent(): Promise<string | undefined> {
    const { bucketRefs, buckets, own, transfers } = this.#parts
    const sent = [...buckets.idsOf('sent')].filter((id) => !transfers.has(id))
    const read = sent.filter((id) => (bucketRefs.of(id)?.read ?? 0) > 0)
    const free = sent.filter((id) => !read.includes(id))
    const { unconnected } = own
    if (free.length > 0 && unconnected.length > 0)
      return `bucket ${free[0]} is sent: ${unconnected.join(', ')} cannot be asked whether it is read there`
    let problem = read.length === 0 ? undefined : `bucket ${read[0]} is sent, and still read on this instance`
    for (let start = 0; start < free.length && this.isActive; start += BATCH) {
      const batch = free.slice(start, start + BATCH)
      await own.synced(ASK_MS, `collecting sent buckets [${batch.slice(0, 10).join(', ')}]`)
      const answers = await own.askAll(bucketTestGcCall(batch), readBucketTestGc, ASK_MS)
      const kept = new Set(answers.flat())
      const [firstKept] = kept
      if (firstKept !== undefined) problem = `bucket ${firstKept} is sent, and still used on a replica`
      const records = batch.flatMap((id) => {
        const record = buckets.get(id)
        const isFree = record?.status === 'sent' && !kept.has(id) && (bucketRefs.of(id)?.read ?? 0) === 0
        return isFree && !transfers.has(id) ? [{ ...record, status: 'garbage' as const }] : []
      })
      if (records.length === 0 || !this.isActive) continue
      this.#parts.assertSynced()
      buckets.put(...records)
      await this.#parts.committed()
    }
    return problem
  }

  async #dropGarbage(): Promise<void> {
    const { bucketRefs, buckets, transfers } = this.#parts
    for (const id of [...buckets.idsOf('garbage')]) {
      const refs = bucketRefs.of(id)
      if (!this.isActive || transfers.has(id) || (refs?.read ?? 0) + (refs?.write ?? 0) > 0) continue
      if (!(await this.#dropRows(id))) continue
      this.#parts.assertSynced()
      buckets.remove(id)
      await this.#parts.committed()
    }
  }

  /** false when the bucket is no garbage any more. */
  async #dropRows(id: number): Promise<boolean> {
    const { bucketEvents, buckets, clock, engine, settings } = this.#parts
    for (const sharded of shardedSpaces(engine, settings.shardIndex)) {
      const { space } = sharded
      for (;;) {
        if (!this.isActive || buckets.get(id)?.status !== 'garbage') return false
        const rows = bucketRows(engine, sharded, id, { limit: BATCH })
        if (rows.length === 0) break
        engine.run(undefined, (transaction) => {
          bucketEvents.fire(transaction, 'bucket_data_gc_txn', id, space.name)
          for (const tuple of rows) engine.delete(transaction, space, space.primary.keyOf(tuple))
        })
        if (rows.length < BATCH) break
        await new Promise<void>((resolve) => clock.soon(resolve))
      }
    }
    return buckets.get(id)?.status === 'garbage'
  }
}
