/*
 * Frames between embedded storages and in their journals: rows as Tarantool writes them (iproto's row.ts). The vclock counts
 * rows; a transaction of several has TSN and, in its last row, the flag COMMIT.
 *
 *   rows        REPLACE, DELETE: 0x10 SPACE_ID uint, 0x21 TUPLE array | 0x20 KEY array; with GROUP_ID 1 a local space's, unnumbered
 *   promotion   RAFT_PROMOTE (31): 0x02 the master before, 0x03 its last row, 0x53 TERM, 0x26 VCLOCK: all the new one had
 *   promise     RAFT (30), in journals only: 0 term, 1 vote
 *   snapshot    JOIN_META (71) {0x26 VCLOCK}, the promotions so far, JOIN_SNAPSHOT (72), rows as INSERT without a number, OK {0x26 VCLOCK}
 *   heartbeat   OK without a body
 *
 * A stream begins with SUBSCRIBE (66) or JOIN (65), answered by OK {0x25 REPLICASET_UUID, 0x26 VCLOCK}. JOIN, and a SUBSCRIBE from
 * further back than the log reaches, get a snapshot and then rows (Tarantool ends the one and refuses the other). SERVER_VERSION is that
 * of these frames, with the major number 0 that no server has. The subscriber acknowledges with OK {0x26 VCLOCK: what is on its disk, 0x53 TERM: the highest it has
 * promised}.
 */
import {
  BodyReader,
  joinRequest,
  Key,
  MalformedFrameError,
  packVersion,
  readApplierHeartbeat,
  readJoin,
  readPromotion,
  readRaft,
  readSubscribe,
  RequestType,
  subscribeRequest,
  vclockOf,
  writeApplierHeartbeat,
  writePromotion,
  writeRaft,
  writeRow,
  writeVclockReply,
} from '@orbweaver/iproto'
import type { BodyWriter, FrameWriter, Row } from '@orbweaver/iproto'
import type { RowBody } from '../engine/engine.js'
import { boxErrors } from '../errors.js'
import type { Promotion, RowTransaction } from './transaction.js'
import { lsnOf } from './vclock.js'
import type { Vclock } from './vclock.js'

const STREAM_VERSION = 2
/** What a storage knows of its replicaset when nobody told it. */
export const NO_UUID = '00000000-0000-0000-0000-000000000000'
const LOCAL_GROUP = 1

// ---- rows -----------------------------------------------------------------------------------------------------------

/** @param leaderBefore - of a promotion: the master until then */
export function encodeTransaction(writer: FrameWriter, transaction: RowTransaction, leaderBefore: number = 0): void {
  const { origin, lsn, rows, promotion } = transaction
  const timestamp = transaction.timestamp / 1_000
  if (promotion !== undefined) {
    encodePromotion(writer, promotion, leaderBefore, timestamp)
    return
  }
  let row = rows[0]!
  const writeBody = (out: BodyWriter): void => writeRowBody(out, row)
  for (let i = 0; i < rows.length; i++) {
    row = rows[i]!
    const type = row.kind === 'replace' ? RequestType.replace : RequestType.delete
    const isCommit = i === rows.length - 1
    writeRow(writer, { type, replicaId: origin, lsn: lsn + i, timestamp, tsn: lsn, isCommit }, writeBody)
  }
}

function encodePromotion(writer: FrameWriter, promotion: Promotion, leaderBefore: number, timestamp: number): void {
  const { term, leader, lsn, vclock } = promotion
  writeRow(writer, { type: RequestType.raftPromote, replicaId: leader, lsn, timestamp }, (out) =>
    writePromotion(out, {
      previousOwnerId: leaderBefore,
      lsn: lsnOf(vclock, leaderBefore),
      term,
      confirmed: vclock,
    }),
  )
}

/** A row of a local space, outside all numbers. */
export function encodeLocalRow(writer: FrameWriter, row: RowBody): void {
  const type = row.kind === 'replace' ? RequestType.replace : RequestType.delete
  writeRow(writer, { type, groupId: LOCAL_GROUP }, (out) => writeRowBody(out, row))
}

function writeRowBody(out: BodyWriter, row: RowBody): void {
  out.mapHeader(2)
  out.uint(Key.spaceId)
  out.uint(row.spaceId)
  out.uint(row.kind === 'replace' ? Key.tuple : Key.key)
  out.raw(row.kind === 'replace' ? row.tuple : row.key)
}

/** The term that was promised, and the candidate it was promised to: it outlives the process that said so. */
export interface Vote {
  readonly term: number
  readonly candidate: number
}

export function encodeVote(writer: FrameWriter, { term, candidate }: Vote): void {
  writeRow(writer, { type: RequestType.raft, groupId: LOCAL_GROUP }, (out) => writeRaft(out, { term, vote: candidate }))
}

// ---- snapshots ------------------------------------------------------------------------------------------------------

/** What a snapshot says besides rows. */
export interface SnapshotHead {
  readonly vclock: Vclock
  readonly promotions: readonly Promotion[]
}

export function encodeSnapshotHead(writer: FrameWriter, { vclock, promotions }: SnapshotHead): void {
  writeRow(writer, { type: RequestType.joinMeta }, (out) => writeVclockReply(out, { vclock }))
  let leaderBefore = 0
  for (const promotion of promotions) {
    encodePromotion(writer, promotion, leaderBefore, 0)
    leaderBefore = promotion.leader
  }
  writeRow(writer, { type: RequestType.joinSnapshot })
}

export function encodeSnapshotRow(writer: FrameWriter, row: RowBody): void {
  writeRow(writer, { type: RequestType.insert }, (out) => writeRowBody(out, row))
}

/** Makes what was sent since the head valid. */
export function encodeSnapshotEnd(writer: FrameWriter, { vclock }: SnapshotHead): void {
  writeRow(writer, { type: RequestType.ok }, (out) => writeVclockReply(out, { vclock }))
}

// ---- a frame back ---------------------------------------------------------------------------------------------------

/** What one frame of a stream or a journal says. */
export type StreamFrame =
  /** The answer to a subscription, or the end of a snapshot. */
  | { readonly is: 'position'; readonly vclock: Vclock }
  | { readonly is: 'heartbeat' }
  | { readonly is: 'snapshotHead'; readonly vclock: Vclock }
  | { readonly is: 'snapshotRows' }
  | { readonly is: 'row'; readonly isLocal: boolean; readonly row: RowBody }
  | { readonly is: 'promotion'; readonly promotion: Promotion }
  | { readonly is: 'vote'; readonly vote: Vote }

/**
 * @param row - a frame as `readRow` reads it
 * @throws BoxError for the error it carries, or when a field is missing; MalformedFrameError for anything else
 */
export function decodeStreamFrame(row: Row): StreamFrame {
  switch (row.type) {
    case RequestType.ok:
      return row.body.length === 0 ? { is: 'heartbeat' } : { is: 'position', vclock: vclockIn(row) }
    case RequestType.insert:
    case RequestType.replace:
    case RequestType.delete:
      return { is: 'row', isLocal: row.groupId === LOCAL_GROUP, row: rowBody(row) }
    case RequestType.raftPromote:
      return { is: 'promotion', promotion: promotionIn(row) }
    case RequestType.raft: {
      const { term, vote = 0 } = readRaft(new BodyReader(row.body))
      return { is: 'vote', vote: { term, candidate: vote } }
    }
    case RequestType.joinMeta:
      return { is: 'snapshotHead', vclock: vclockIn(row) }
    case RequestType.joinSnapshot:
      return { is: 'snapshotRows' }
    default:
      throw new MalformedFrameError(`A row of type ${row.type} is none an embedded storage streams`)
  }
}

function vclockIn({ body }: Row): Vclock {
  return vclockOf(new BodyReader(body).value(Key.vclock))
}

function rowBody({ type, body }: Row): RowBody {
  const reader = new BodyReader(body)
  const spaceId = reader.requireUint(Key.spaceId)
  // Copied: what is stored must not keep the received chunk alive.
  return type === RequestType.delete
    ? { kind: 'delete', spaceId, key: Buffer.from(reader.requireSlice(Key.key)) }
    : { kind: 'replace', spaceId, tuple: Buffer.from(reader.requireSlice(Key.tuple)) }
}

function promotionIn({ replicaId, lsn, body }: Row): Promotion {
  const { previousOwnerId, lsn: confirmed, term, confirmed: all } = readPromotion(new BodyReader(body))
  // Tarantool before 3.x tells the last row of the master before, and of nobody else.
  const vclock = all ?? new Map(previousOwnerId === 0 ? [] : [[previousOwnerId, confirmed]])
  return { term, leader: replicaId, lsn, vclock }
}

// ---- requests and answers -------------------------------------------------------------------------------------------

export interface Subscription {
  readonly instanceUuid: string
  readonly replicasetUuid: string
  /** undefined: from nothing, whatever is here (JOIN). */
  readonly from: { readonly vclock: Vclock; readonly term: number } | undefined
}

const FORM = packVersion(0, STREAM_VERSION, 0)
const SUBSCRIBE_SYNC = 1

export function encodeSubscription(writer: FrameWriter, subscription: Subscription): void {
  const { instanceUuid, replicasetUuid, from } = subscription
  writer.request(
    from === undefined
      ? joinRequest({ instanceUuid, version: FORM })
      : subscribeRequest({ replicasetUuid, instanceUuid, ...from, version: FORM }),
    SUBSCRIBE_SYNC,
  )
}

/** @throws BoxError 1 for somebody who streams other frames, 20 or 69 when a field is of another kind or missing */
export function decodeSubscription(type: number, bodyBytes: Buffer): Subscription {
  const body = new BodyReader(bodyBytes)
  const version = body.uint(Key.serverVersion)
  if (version !== FORM) {
    throw boxErrors.illegalParams(
      `Embedded storages of this release stream rows in form ${STREAM_VERSION}, the subscriber asks for ${formName(version)}: let all instances of a replicaset be of one release`,
    )
  }
  if (type === RequestType.join)
    return { instanceUuid: readJoin(body).instanceUuid, replicasetUuid: NO_UUID, from: undefined }
  const { instanceUuid, replicasetUuid, vclock, term = 0 } = readSubscribe(body)
  return { instanceUuid, replicasetUuid, from: { vclock, term } }
}

function formName(version: number | undefined): string {
  if (version === undefined) return 'none'
  const [major, minor, patch] = [version >>> 16, (version >>> 8) & 255, version & 255]
  return major === 0 ? `form ${minor}` : `what Tarantool ${major}.${minor}.${patch} streams`
}

export function encodeAnswer(writer: FrameWriter, replicasetUuid: string, vclock: Vclock): void {
  writeRow(writer, { type: RequestType.ok, sync: SUBSCRIBE_SYNC }, (out) =>
    writeVclockReply(out, { replicasetUuid, vclock }),
  )
}

/** @param at - milliseconds since 1970 here */
export function encodeHeartbeat(writer: FrameWriter, replicaId: number, at: number): void {
  writeRow(writer, { type: RequestType.ok, replicaId, timestamp: at / 1_000 })
}

export function encodeAcknowledgement(writer: FrameWriter, vclock: Vclock, term: number): void {
  writeRow(writer, { type: RequestType.ok }, (out) => writeApplierHeartbeat(out, { vclock, term, vclockSync: 0 }))
}

/** @throws MalformedFrameError when there is no vclock */
export function decodeAcknowledgement(bodyBytes: Buffer): { vclock: Vclock; term: number } {
  return readApplierHeartbeat(new BodyReader(bodyBytes))
}
