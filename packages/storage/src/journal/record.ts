/*
 * Records of the journal are the frames of replication (row-codec.ts), so that one encoding serves both: rows without a position
 * belong to local spaces, and one more frame remembers which term was promised to whom.
 *
 *   vote  type 30, 0x53 TERM uint, 0x02 REPLICA_ID uint
 */
import { BodyReader, FrameHeader, Key, MalformedFrameError, RequestType } from '@orbweaver/iproto'
import type { FrameWriter } from '@orbweaver/iproto'
import type { RowBody } from '../engine/engine.js'
import { decodeStreamFrame, encodeSnapshotRow, encodeTransaction } from '../replication/row-codec.js'
import type { StreamFrame } from '../replication/row-codec.js'
import type { LoggedTransaction } from '../replication/row-log.js'

/** The term that was promised, and the candidate it was promised to: it outlives the process that said so. */
export interface Vote {
  readonly term: number
  readonly candidate: number
}

/** What is written as one: rows of local spaces, a transaction, a promise. */
export interface JournalRecord {
  readonly localRows?: readonly RowBody[]
  readonly transaction?: LoggedTransaction
  readonly vote?: Vote
}

export function encodeRecord(writer: FrameWriter, record: JournalRecord): void {
  for (const row of record.localRows ?? []) encodeSnapshotRow(writer, row)
  if (record.transaction !== undefined) encodeTransaction(writer, record.transaction)
  if (record.vote !== undefined) encodeVote(writer, record.vote)
}

export function encodeVote(writer: FrameWriter, vote: Vote): void {
  writer.beginRequest(RequestType.raft, 0, 0)
  writer.mapHeader(2)
  writer.uint(Key.term)
  writer.uint(vote.term)
  writer.uint(Key.replicaId)
  writer.uint(vote.candidate)
  writer.end()
}

export type JournalFrame = StreamFrame | { readonly is: 'vote'; readonly vote: Vote }

const PREFIX_BYTES = 5

/** The frames of one block. @throws MalformedFrameError, BoxError for anything else */
export function* decodeRecords(payload: Buffer): IterableIterator<JournalFrame> {
  const header = new FrameHeader()
  for (let at = 0; at < payload.length;) {
    if (payload.length - at < PREFIX_BYTES || payload[at] !== 0xce)
      throw new MalformedFrameError(`A record of the journal begins with 0x${(payload[at] ?? 0).toString(16)}`)
    const end = at + PREFIX_BYTES + payload.readUInt32BE(at + 1)
    if (end > payload.length) throw new MalformedFrameError('A record of the journal is cut')
    const frame = payload.subarray(at, end)
    header.read(frame)
    yield header.type === RequestType.raft ? decodeVote(frame, header) : decodeStreamFrame(frame, header)
    at = end
  }
}

function decodeVote(frame: Buffer, header: FrameHeader): JournalFrame {
  const body = new BodyReader(frame.subarray(header.bodyStart, header.bodyEnd))
  return { is: 'vote', vote: { term: body.requireUint(Key.term), candidate: body.requireUint(Key.replicaId) } }
}
