import { MalformedFrameError } from '@orbweaver/iproto'
import type { Row } from '@orbweaver/iproto'
import type { RowBody } from '../engine/engine.js'
import type { Promotion, RowTransaction } from './transaction.js'

/** As many as a transaction may have where it is made. */
const MAX_ROWS = 1_000_000

/** Puts rows together that were committed together. They come one behind the other. */
export class TransactionReader {
  #rows: RowBody[] = []
  #origin = 0
  #first = 0

  /** @returns the transaction whose last row this is @throws MalformedFrameError for a row that does not continue the one before */
  add(header: Row, row: RowBody): RowTransaction | undefined {
    const { replicaId, lsn, tsn } = header
    if (this.#rows.length === 0) {
      this.#origin = replicaId
      this.#first = lsn
    }
    if (replicaId !== this.#origin || tsn !== this.#first || lsn !== this.#first + this.#rows.length)
      throw new MalformedFrameError(
        `Row ${lsn} of instance ${replicaId}, of the transaction that began with row ${tsn}, comes where row ${this.#first + this.#rows.length} of instance ${this.#origin} is due`,
      )
    if (this.#rows.length === MAX_ROWS)
      throw new MalformedFrameError(`A transaction of instance ${replicaId} has more than ${MAX_ROWS} rows`)
    this.#rows.push(row)
    if (!header.isCommit) return undefined
    const rows = this.#rows
    this.#rows = []
    return { origin: replicaId, lsn: this.#first, timestamp: header.timestamp * 1_000, rows, promotion: undefined }
  }

  /** The rest of the transaction is not wanted: it came another way. */
  forget(): void {
    this.#rows = []
  }

  /** @throws MalformedFrameError in the middle of a transaction */
  promotion(header: Row, promotion: Promotion): RowTransaction {
    if (this.#rows.length > 0)
      throw new MalformedFrameError(`A promotion comes in the middle of a transaction of instance ${this.#origin}`)
    const { leader, lsn } = promotion
    return { origin: leader, lsn, timestamp: header.timestamp * 1_000, rows: [], promotion }
  }
}
