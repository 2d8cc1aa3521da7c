/*
 * The transactions of the recent past, in the order in which this instance applied them, whoever made them. Relays read it at
 * their own pace; what fell off its end is replaced by a snapshot. Bounded in transactions and bytes.
 */
import type { RowBody } from '../engine/engine.js'
import type { Vclock } from './vclock.js'

/** An instance became the master: the first transaction of its term. */
export interface Promotion {
  readonly term: number
  /** What the new master had: whoever has more of any origin has rows that are not part of history. */
  readonly vclock: Vclock
}

export interface LoggedTransaction {
  /** Number of the instance that made it. */
  readonly origin: number
  /** Its place among the transactions of that instance, from 1, without gaps. */
  readonly lsn: number
  /** The term it was made in. */
  readonly term: number
  /** Milliseconds since 1970 on the clock of its maker; for lag, never for order. */
  readonly timestamp: number
  readonly rows: readonly RowBody[]
  readonly promotion: Promotion | undefined
}

interface Entry {
  readonly transaction: LoggedTransaction
  /** Knowledge before it: a subscriber that covers this continues here. */
  readonly before: Vclock
  readonly bytes: number
}

export class RowLog {
  readonly #maxTransactions: number
  readonly #maxBytes: number
  #entries: Entry[] = []
  /** Sequence number of `#entries[#head]`. */
  #first = 0
  #head = 0
  #bytes = 0
  /** The first transaction relays must not have yet: it is not on this instance's own disk. */
  #hidden = 0
  #generation = 0

  constructor(options: { maxTransactions?: number; maxBytes?: number } = {}) {
    this.#maxTransactions = options.maxTransactions ?? 100_000
    this.#maxBytes = options.maxBytes ?? 64 * 1024 * 1024
  }

  /** The number the next transaction will have. */
  get end(): number {
    return this.#first + this.#entries.length - this.#head
  }

  /** Relays may have everything before `end`: what one of them sends must never be unmade by a restart here. */
  reveal(end: number = this.end): void {
    if (end > this.#hidden) this.#hidden = end
  }

  append(transaction: LoggedTransaction, before: Vclock): void {
    const bytes = bytesOf(transaction)
    this.#entries.push({ transaction, before, bytes })
    this.#bytes += bytes
    while (
      this.#entries.length - this.#head > this.#maxTransactions ||
      (this.#bytes > this.#maxBytes && this.#entries.length - this.#head > 1)
    ) {
      this.#bytes -= this.#entries[this.#head]!.bytes
      this.#entries[this.#head] = undefined as unknown as Entry
      this.#head++
      this.#first++
    }
    if (this.#head > 1024 && this.#head * 2 > this.#entries.length) {
      this.#entries = this.#entries.slice(this.#head)
      this.#head = 0
    }
  }

  /** undefined: not there or not revealed yet, or no longer there (then `seq` is below `start`). */
  at(seq: number): LoggedTransaction | undefined {
    if (seq >= this.#hidden) return undefined
    return this.#entries[this.#head + seq - this.#first]?.transaction
  }

  get start(): number {
    return this.#first
  }

  /**
   * Where a subscriber with this knowledge continues, or undefined when it needs a snapshot: the first transaction it does not
   * know must still be here, and everything it does not know must follow it.
   */
  positionFor(known: Vclock, now: Vclock): number | undefined {
    const lacks = [...now].some(([origin, lsn]) => (known.get(origin) ?? 0) < lsn)
    if (!lacks) return this.end
    for (let seq = this.#first; seq < this.end; seq++) {
      const { transaction, before } = this.#entries[this.#head + seq - this.#first]!
      if ((known.get(transaction.origin) ?? 0) >= transaction.lsn) continue
      // It must know all that this instance knew before: else what it lacks is older than the log.
      return [...before].every(([origin, lsn]) => (known.get(origin) ?? 0) >= lsn) ? seq : undefined
    }
    return undefined
  }

  /** +1 with each `clear`: whoever reads must begin anew. */
  get generation(): number {
    return this.#generation
  }

  clear(): void {
    this.#generation++
    this.#first = this.end
    this.#entries = []
    this.#head = 0
    this.#bytes = 0
  }
}

function bytesOf(transaction: LoggedTransaction): number {
  let bytes = 64
  for (const row of transaction.rows) bytes += 48 + (row.kind === 'replace' ? row.tuple.length : row.key.length)
  return bytes
}
