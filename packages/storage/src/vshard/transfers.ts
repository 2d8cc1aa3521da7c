/*
 * Buckets whose move runs on this instance now, in either direction. In memory only: what is in here is off limits to the
 * collector and to recovery; what is not, and has a state of a move, is theirs to repair.
 */
import { VshardError } from '@orbweaver/vshard'
import type { Buckets } from './buckets.js'

/** A move as its operator sees it. */
export interface TransferInfo {
  readonly bucketId: number
  readonly direction: 'send' | 'receive'
  /** The other replicaset. */
  readonly peer: string
  /** What it does or waits for at the moment. */
  readonly step: string
  /** When it began, on the storage's clock (milliseconds). */
  readonly since: number
}

export class Transfers {
  readonly #buckets: Buckets
  readonly #now: () => number
  readonly #running = new Map<number, TransferInfo>()

  constructor(buckets: Buckets, now: () => number) {
    this.#buckets = buckets
    this.#now = now
  }

  has(id: number): boolean {
    return this.#running.has(id)
  }

  get size(): number {
    return this.#running.size
  }

  list(): TransferInfo[] {
    return [...this.#running.values()]
  }

  /** @throws VshardError WRONG_BUCKET when the bucket is on its way already */
  begin(bucketId: number, direction: TransferInfo['direction'], peer: string): void {
    if (this.#running.has(bucketId))
      throw VshardError.of('WRONG_BUCKET', { bucket_id: bucketId, reason: 'transfer is already in progress' })
    this.#running.set(bucketId, { bucketId, direction, peer, step: 'starting', since: this.#now() })
  }

  step(bucketId: number, step: string): void {
    const transfer = this.#running.get(bucketId)
    if (transfer !== undefined) this.#running.set(bucketId, { ...transfer, step })
  }

  end(bucketId: number): void {
    if (this.#running.delete(bucketId)) this.#buckets.touch()
  }
}
