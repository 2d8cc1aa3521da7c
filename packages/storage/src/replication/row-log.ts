/*
 * The transactions of the recent past as they are streamed, in the order in which this instance applied them, whoever made
 * them. Encoded once, for all relays: those read at their own pace. What fell off its end is replaced by a snapshot. Bounded in
 * transactions and bytes.
 */
import { FrameWriter } from '@orbweaver/iproto'
import { encodeTransaction } from './stream-codec.js'
import { lastLsn } from './transaction.js'
import type { RowTransaction } from './transaction.js'
import { covers, lsnOf } from './vclock.js'
import type { Vclock } from './vclock.js'

/** A transaction on its way out. */
export interface LoggedFrames {
  readonly origin: number
  /** Of its last row. */
  readonly lsn: number
  readonly chunks: readonly Buffer[]
  readonly bytes: number
}

/** What an entry costs besides its bytes. */
const ENTRY_BYTES = 200
const SLAB_BYTES = 256 * 1024

export class RowLog {
  readonly #maxTransactions: number
  readonly #maxBytes: number
  readonly #writer = new FrameWriter({ slabBytes: SLAB_BYTES })
  #entries: (LoggedFrames | undefined)[] = []
  /** Sequence number of `#entries[#head]`. */
  #first = 0
  #head = 0
  #bytes = 0
  /** What was known before the first entry. */
  #before = new Map<number, number>()
  /** The first transaction relays must not have yet: it is not on this instance's own disk. */
  #hidden = 0

  constructor(options: { maxTransactions?: number; maxBytes?: number } = {}) {
    this.#maxTransactions = options.maxTransactions ?? 200_000
    this.#maxBytes = options.maxBytes ?? 64 * 1024 * 1024
  }

  /** The number the next transaction will have. */
  get end(): number {
    return this.#first + this.#entries.length - this.#head
  }

  /** The number of the oldest transaction. */
  get start(): number {
    return this.#first
  }

  /** Relays may have everything before `end`: what one of them sends must never be unmade by a restart here. */
  reveal(end: number = this.end): void {
    if (end > this.#hidden) this.#hidden = end
  }

  /** @param leaderBefore - of a promotion: the master until then */
  append(transaction: RowTransaction, leaderBefore: number): void {
    encodeTransaction(this.#writer, transaction, leaderBefore)
    const bytes = this.#writer.pendingBytes
    this.#entries.push({ origin: transaction.origin, lsn: lastLsn(transaction), chunks: this.#writer.take(), bytes })
    this.#bytes += bytes + ENTRY_BYTES
    while (
      this.#entries.length - this.#head > this.#maxTransactions ||
      (this.#bytes > this.#maxBytes && this.#entries.length - this.#head > 1)
    )
      this.#forgetFirst()
    if (this.#head > 1024 && this.#head * 2 > this.#entries.length) {
      this.#entries = this.#entries.slice(this.#head)
      this.#head = 0
    }
  }

  /** undefined: not there or not revealed yet, or no longer there (then `seq` is below `start`). */
  at(seq: number): LoggedFrames | undefined {
    return seq >= this.#hidden || seq < this.#first ? undefined : this.#entries[this.#head + seq - this.#first]
  }

  /**
   * Where somebody who knows this much continues, or undefined when the log does not reach back so far. All this instance knew
   * before the log began must be known: the rest follows in order.
   */
  positionFor(known: Vclock): number | undefined {
    if (!covers(known, this.#before)) return undefined
    let seq = this.#first
    for (; seq < this.end; seq++) {
      const { origin, lsn } = this.#entries[this.#head + seq - this.#first]!
      if (lsnOf(known, origin) < lsn) break
    }
    return seq
  }

  /** Begins anew behind what is known now. */
  clear(known: Vclock): void {
    this.#first = this.end
    this.#before = new Map(known)
    this.#entries = []
    this.#head = 0
    this.#bytes = 0
  }

  #forgetFirst(): void {
    const { origin, lsn, bytes } = this.#entries[this.#head]!
    this.#before.set(origin, lsn)
    this.#bytes -= bytes + ENTRY_BYTES
    this.#entries[this.#head] = undefined
    this.#head++
    this.#first++
  }
}
