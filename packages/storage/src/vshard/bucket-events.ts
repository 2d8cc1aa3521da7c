/*
 * vshard's `on_bucket_event`: listeners that run first inside each transaction that brings rows of a bucket or removes them. What
 * they write is a part of that transaction; what they throw undoes it.
 */
import { InvalidArgumentError } from '@orbweaver/iproto'
import { log } from '../diagnostics.js'
import type { Transaction } from '../engine/transaction.js'
import { boxErrors } from '../errors.js'
import { assertNotWaiting, functionError } from '../function-context.js'

export interface BucketEvent {
  /** Rows of the bucket arrive from another replicaset, or the rows of one that has left are removed. */
  readonly type: 'bucket_data_recv_txn' | 'bucket_data_gc_txn'
  readonly bucketId: number
  /** Names of the spaces the transaction is about. */
  readonly spaces: readonly string[]
}

/** Must not wait: a promise is refused. */
export type BucketEventListener = (event: BucketEvent) => unknown

export class BucketEvents {
  readonly #storage: string
  readonly #within: <T>(transaction: Transaction, work: () => T) => T
  readonly #listeners = new Set<BucketEventListener>()

  /** @param within - runs `work` so that statements on the storage's spaces are a part of the transaction */
  constructor(storage: string, within: <T>(transaction: Transaction, work: () => T) => T) {
    this.#storage = storage
    this.#within = within
  }

  /** @returns takes it away again */
  add(listener: BucketEventListener): () => void {
    if (typeof listener !== 'function')
      throw new InvalidArgumentError(`A listener of bucket events is ${typeof listener}, expected a function`)
    const added: BucketEventListener = (event) => listener(event)
    this.#listeners.add(added)
    return () => void this.#listeners.delete(added)
  }

  /** Tells all of them, in the order they came. @throws BoxError 32 with what one of them threw as its cause */
  fire(transaction: Transaction, type: BucketEvent['type'], bucketId: number, space: string): void {
    if (this.#listeners.size === 0) return
    const event: BucketEvent = { type, bucketId, spaces: [space] }
    try {
      this.#within(transaction, () => {
        for (const listener of this.#listeners) assertNotWaiting(listener(event), 'it')
      })
    } catch (error) {
      const cause = functionError(error)
      log('error', this.#storage, 'bucket event failed', () => ({ type, bucketId, space, error }))
      throw boxErrors.procLua(
        `A listener of '${type}' undid a transaction of bucket ${bucketId}: ${cause.message}`,
        cause,
      )
    }
  }
}
