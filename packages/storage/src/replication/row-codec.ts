/*
 * Replication frames between embedded storages, in Tarantool's words: SUBSCRIBE (0x42) asks, an OK frame with a vclock answers
 * and later acknowledges, rows are REPLACE and DELETE frames. Unlike Tarantool's, the position of a row (origin, lsn, term,
 * flags) travels in its body: the stream is between our own instances only.
 *
 *   row       0x02 ORIGIN uint, 0x03 LSN uint, 0x04 TIMESTAMP float64, 0x09 FLAGS uint (1: last row of its transaction),
 *             0x53 TERM uint, 0x10 SPACE_ID uint, 0x21 TUPLE array | 0x20 KEY array
 *   promote   type 31, the same without a row, 0x26 VCLOCK map
 *   snapshot  type 72 opens, rows without position, type 71 closes: 0x26 VCLOCK, 0x53 TERM, 0x02 LEADER, 0x30 DATA: promotions
 */
import { BodyReader, type FrameWriter, Key, RequestType } from '@orbweaver/iproto'
import type { FrameHeader } from '@orbweaver/iproto'
import type { RowBody } from '../engine/engine.js'
import type { LoggedTransaction, Promotion } from './row-log.js'
import { readVclock } from './vclock.js'
import type { Vclock } from './vclock.js'

const LAST_ROW = 1

export function encodeTransaction(writer: FrameWriter, transaction: LoggedTransaction): void {
  const { rows, promotion } = transaction
  if (promotion !== undefined) {
    writer.beginRequest(RequestType.raftPromote, 0, 0)
    writer.mapHeader(6)
    writePlace(writer, transaction, LAST_ROW)
    writer.uint(Key.vclock)
    writer.value(promotion.vclock)
    writer.end()
    return
  }
  if (rows.length === 0) {
    writer.beginRequest(RequestType.nop, 0, 0)
    writer.mapHeader(5)
    writePlace(writer, transaction, LAST_ROW)
    writer.end()
    return
  }
  rows.forEach((row, i) => {
    writer.beginRequest(row.kind === 'replace' ? RequestType.replace : RequestType.delete, 0, 0)
    writer.mapHeader(7)
    writePlace(writer, transaction, i === rows.length - 1 ? LAST_ROW : 0)
    writeRow(writer, row)
    writer.end()
  })
}

function writePlace(writer: FrameWriter, { origin, lsn, term, timestamp }: LoggedTransaction, flags: number): void {
  writer.uint(Key.replicaId)
  writer.uint(origin)
  writer.uint(Key.lsn)
  writer.uint(lsn)
  writer.uint(Key.timestamp)
  writer.double(timestamp)
  writer.uint(Key.flags)
  writer.uint(flags)
  writer.uint(Key.term)
  writer.uint(term)
}

function writeRow(writer: FrameWriter, row: RowBody): void {
  writer.uint(Key.spaceId)
  writer.uint(row.spaceId)
  writer.uint(row.kind === 'replace' ? Key.tuple : Key.key)
  writer.raw(row.kind === 'replace' ? row.tuple : row.key)
}

/** A row outside any transaction: part of a snapshot. */
export function encodeSnapshotRow(writer: FrameWriter, row: RowBody): void {
  writer.beginRequest(row.kind === 'replace' ? RequestType.replace : RequestType.delete, 0, 0)
  writer.mapHeader(2)
  writeRow(writer, row)
  writer.end()
}

export interface SnapshotEnd {
  readonly vclock: Vclock
  readonly term: number
  /** Who was promoted in `term`; 0: nobody. */
  readonly leader: number
  readonly promotions: readonly Promotion[]
}

export function encodeSnapshotStart(writer: FrameWriter): void {
  writer.beginRequest(RequestType.joinSnapshot, 0, 0)
  writer.mapHeader(0)
  writer.end()
}

export function encodeSnapshotEnd(writer: FrameWriter, { vclock, term, leader, promotions }: SnapshotEnd): void {
  writer.beginRequest(RequestType.joinMeta, 0, 0)
  writer.mapHeader(4)
  writer.uint(Key.vclock)
  writer.value(vclock)
  writer.uint(Key.term)
  writer.uint(term)
  writer.uint(Key.replicaId)
  writer.uint(leader)
  writer.uint(Key.data)
  writer.value(promotions.map((promotion) => [promotion.term, promotion.vclock]))
  writer.end()
}

/** An OK frame that tells how far the sender is: the answer to SUBSCRIBE, a heartbeat, an acknowledgement. */
export function encodePosition(writer: FrameWriter, syncLow: number, vclock: Vclock, term: number): void {
  writer.beginReply(RequestType.ok, 0, syncLow, 1)
  writer.mapHeader(2)
  writer.uint(Key.vclock)
  writer.value(vclock)
  writer.uint(Key.term)
  writer.uint(term)
  writer.end()
}

/** What one frame of the stream says. */
export type StreamFrame =
  | { readonly is: 'position'; readonly vclock: Vclock; readonly term: number }
  | { readonly is: 'snapshotStart' }
  | { readonly is: 'snapshotRow'; readonly row: RowBody }
  | { readonly is: 'snapshotEnd'; readonly end: SnapshotEnd }
  | {
      readonly is: 'row'
      readonly place: Omit<LoggedTransaction, 'rows'>
      readonly row: RowBody | undefined
      readonly isLast: boolean
    }

/** @throws BoxError, MalformedFrameError for anything else */
export function decodeStreamFrame(frame: Buffer, header: FrameHeader): StreamFrame {
  const body = new BodyReader(frame.subarray(header.bodyStart, header.bodyEnd))
  switch (header.type) {
    case RequestType.ok:
      return { is: 'position', vclock: readVclock(body.value(Key.vclock)), term: body.uint(Key.term) ?? 0 }
    case RequestType.joinSnapshot:
      return { is: 'snapshotStart' }
    case RequestType.joinMeta:
      return {
        is: 'snapshotEnd',
        end: {
          vclock: readVclock(body.value(Key.vclock)),
          term: body.requireUint(Key.term),
          leader: body.requireUint(Key.replicaId),
          promotions: readPromotions(body.array(Key.data) ?? []),
        },
      }
    case RequestType.raftPromote: {
      const place = readPlace(body)
      return {
        is: 'row',
        place: { ...place, promotion: { term: place.term, vclock: readVclock(body.value(Key.vclock)) } },
        row: undefined,
        isLast: true,
      }
    }
    case RequestType.nop:
      return { is: 'row', place: readPlace(body), row: undefined, isLast: true }
    default: {
      const row = readRow(header.type, body)
      if (!body.has(Key.lsn)) return { is: 'snapshotRow', row }
      return { is: 'row', place: readPlace(body), row, isLast: (body.requireUint(Key.flags) & LAST_ROW) !== 0 }
    }
  }
}

function readPlace(body: BodyReader): Omit<LoggedTransaction, 'rows'> {
  return {
    origin: body.requireUint(Key.replicaId),
    lsn: body.requireUint(Key.lsn),
    term: body.requireUint(Key.term),
    timestamp: body.double(Key.timestamp) ?? 0,
    promotion: undefined,
  }
}

function readRow(type: number, body: BodyReader): RowBody {
  const spaceId = body.requireUint(Key.spaceId)
  // Copied: what is stored must not keep the received chunk alive.
  if (type === RequestType.replace)
    return { kind: 'replace', spaceId, tuple: Buffer.from(body.requireSlice(Key.tuple)) }
  return { kind: 'delete', spaceId, key: Buffer.from(body.requireSlice(Key.key)) }
}

function readPromotions(list: readonly unknown[]): Promotion[] {
  return list.map((entry) => {
    const [term, vclock] = entry as [number, unknown]
    return { term, vclock: readVclock(vclock) }
  })
}

/* SUBSCRIBE body: 0x02 the subscriber's number, 0x26 its vclock, 0x53 its term. */
export interface Subscription {
  readonly replicaId: number
  readonly vclock: Vclock
  readonly term: number
}

export function encodeSubscribe(writer: FrameWriter, { replicaId, vclock, term }: Subscription): void {
  writer.beginRequest(RequestType.subscribe, 0, 1)
  writer.mapHeader(3)
  writer.uint(Key.replicaId)
  writer.uint(replicaId)
  writer.uint(Key.vclock)
  writer.value(vclock)
  writer.uint(Key.term)
  writer.uint(term)
  writer.end()
}

export function decodeSubscribe(bodyBytes: Buffer): Subscription {
  const body = new BodyReader(bodyBytes)
  return {
    replicaId: body.requireUint(Key.replicaId),
    vclock: readVclock(body.value(Key.vclock)),
    term: body.requireUint(Key.term),
  }
}
