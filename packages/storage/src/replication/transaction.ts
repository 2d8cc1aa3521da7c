/* What replication moves: transactions of rows, as their origin numbered them. */
import type { RowBody } from '../engine/engine.js'
import type { Vclock } from './vclock.js'

/** A term and who was promoted in it (0: nobody). Of two, the later one is history: see `compareEpochs`. */
export interface Epoch {
  readonly term: number
  readonly leader: number
}

/** An instance became the master: the first transaction of its term, of one row. */
export interface Promotion extends Epoch {
  /** The number of its row. */
  readonly lsn: number
  /** What the new master had before: whoever has more of any origin has rows that are not part of history. */
  readonly vclock: Vclock
}

/** Rows take effect together, and are numbered one by one. */
export interface RowTransaction {
  /** Number of the instance that made it. */
  readonly origin: number
  /** Place of its first row among the rows of that instance, from 1, without gaps. */
  readonly lsn: number
  /** Milliseconds since 1970 on the clock of its maker; for lag, never for order. */
  readonly timestamp: number
  /** Empty for a promotion, which is a row of its own. */
  readonly rows: readonly RowBody[]
  readonly promotion: Promotion | undefined
}

export function lastLsn({ lsn, rows }: RowTransaction): number {
  return lsn + Math.max(rows.length, 1) - 1
}
