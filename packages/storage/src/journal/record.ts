/*
 * Records of the journal are the frames of replication (stream-codec.ts), so that one encoding serves both. What is written as
 * one becomes durable as one.
 */
import { MalformedFrameError, readRow } from '@orbweaver/iproto'
import type { FrameWriter, Row } from '@orbweaver/iproto'
import type { RowBody } from '../engine/engine.js'
import { decodeStreamFrame, encodeLocalRow, encodeTransaction, encodeVote } from '../replication/stream-codec.js'
import type { StreamFrame, Vote } from '../replication/stream-codec.js'
import type { RowTransaction } from '../replication/transaction.js'

export interface JournalRecord {
  readonly localRows?: readonly RowBody[]
  readonly transaction?: RowTransaction
  /** Of a promotion: the master until then. */
  readonly leaderBefore?: number
  readonly vote?: Vote
}

export function encodeRecord(writer: FrameWriter, record: JournalRecord): void {
  for (const row of record.localRows ?? []) encodeLocalRow(writer, row)
  if (record.transaction !== undefined) encodeTransaction(writer, record.transaction, record.leaderBefore)
  if (record.vote !== undefined) encodeVote(writer, record.vote)
}

/** A frame of a journal, and the header it came with. */
export interface JournalFrame {
  readonly frame: StreamFrame
  readonly header: Row
}

const PREFIX_BYTES = 5

/** The frames of one block. @throws MalformedFrameError, BoxError for anything else */
export function* decodeRecords(payload: Buffer): IterableIterator<JournalFrame> {
  for (let at = 0; at < payload.length;) {
    if (payload.length - at < PREFIX_BYTES || payload[at] !== 0xce)
      throw new MalformedFrameError(`A record of the journal begins with 0x${(payload[at] ?? 0).toString(16)}`)
    const end = at + PREFIX_BYTES + payload.readUInt32BE(at + 1)
    if (end > payload.length) throw new MalformedFrameError('A record of the journal is cut')
    const header = readRow(payload.subarray(at, end))
    yield { frame: decodeStreamFrame(header), header }
    at = end
  }
}
