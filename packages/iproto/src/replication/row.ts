import { Key, RequestType, RowFlag } from '../constants.js'
import { MalformedFrameError } from '../errors.js'
import type { FrameWriter } from '../frame-writer.js'
import { join64, UintCursor } from '../header.js'
import type { BodyWriter } from '../msgpack/body-writer.js'

/* A row: what a journal holds and SUBSCRIBE streams. Source: Tarantool src/box/xrow.c, xrow_header_encode, xrow_decode
 *   header  0x00 REQUEST_TYPE uint, 0x01 SYNC uint (of the subscription), 0x02 REPLICA_ID uint, 0x07 GROUP_ID uint, 0x03 LSN uint,
 *           0x04 TIMESTAMP float64, 0x08 TSN uint, 0x09 FLAGS uint; zeros are left out
 *   body    that of the request (DML, RAFT, PROMOTE, …)
 * TSN is written as the distance from the LSN back to the first row of the transaction, and only for transactions of several rows,
 * whose last row has the flag COMMIT. */

/** Header of a row. What is 0 or false is not written. */
export interface RowHeader {
  /** INSERT, REPLACE, UPDATE, DELETE, UPSERT, NOP, RAFT, RAFT_PROMOTE, …; OK is a heartbeat. */
  readonly type: number
  /** Sync of the subscription the row travels in; 0 in a journal. */
  readonly sync: number | bigint
  /** Id of the instance that wrote it. */
  readonly replicaId: number
  /** 0: for all instances, 1: local. */
  readonly groupId: number
  readonly lsn: number
  /** Seconds since 1970, wall clock. */
  readonly timestamp: number
  /** LSN of the first row of its transaction. */
  readonly tsn: number
  /** Whether it is the last row of its transaction. */
  readonly isCommit: boolean
  /** Waits for older synchronous transactions. */
  readonly waitSync: boolean
  /** Waits for a quorum itself. */
  readonly waitAck: boolean
}

/** A row that was read; the body is a slice of the frame, empty when there is none. */
export interface Row extends RowHeader {
  readonly body: Buffer
}

/** Fields of a row that is written: all but the type may be left out. A transaction of one row is the default. */
export type RowFields = Pick<RowHeader, 'type'> & Partial<RowHeader>

/**
 * Writes one row as a frame.
 * @param writeBody - its body, such as `request.writeBody`; absent: none
 * @returns its size in bytes, prefix included
 * @throws InvalidArgumentError or FrameTooLargeError, with nothing written
 */
export function writeRow(out: FrameWriter, row: RowFields, writeBody?: (out: BodyWriter) => void): number {
  const { type, sync = 0, replicaId = 0, groupId = 0, lsn = 0, timestamp = 0, tsn = lsn, isCommit = true } = row
  const isAlone = tsn === lsn && isCommit
  const flags =
    (!isAlone && isCommit ? RowFlag.commit : 0) |
    (row.waitSync === true ? RowFlag.waitSync : 0) |
    (row.waitAck === true ? RowFlag.waitAck : 0)
  const hasSync = sync !== 0 && sync !== 0n
  out.beginFrame()
  try {
    out.mapHeader(
      1 +
        (hasSync ? 1 : 0) +
        (replicaId === 0 ? 0 : 1) +
        (groupId === 0 ? 0 : 1) +
        (lsn === 0 ? 0 : 1) +
        (timestamp === 0 ? 0 : 1) +
        (isAlone ? 0 : 1) +
        (flags === 0 ? 0 : 1),
    )
    writeUint(out, Key.requestType, type)
    if (hasSync) {
      out.uint(Key.sync)
      out.value(sync, 'sync')
    }
    if (replicaId !== 0) writeUint(out, Key.replicaId, replicaId)
    if (groupId !== 0) writeUint(out, Key.groupId, groupId)
    if (lsn !== 0) writeUint(out, Key.lsn, lsn)
    if (timestamp !== 0) {
      out.uint(Key.timestamp)
      out.double(timestamp)
    }
    if (!isAlone) writeUint(out, Key.tsn, lsn - tsn)
    if (flags !== 0) writeUint(out, Key.flags, flags)
    writeBody?.(out)
    return out.end()
  } catch (error) {
    out.abort()
    throw error
  }
}

/**
 * @param frame - a whole frame, prefix included
 * @throws MalformedFrameError when the header is not that of a row, or a number in it is no safe integer
 */
export function readRow(frame: Buffer): Row {
  const cursor = new UintCursor(frame)
  if (cursor.next('frame size') !== frame.length - cursor.at) {
    throw new MalformedFrameError(`A frame of ${frame.length} bytes announces another size`)
  }
  let type: number = RequestType.ok
  let sync: number | bigint = 0
  let replicaId = 0
  let groupId = 0
  let lsn = 0
  let timestamp = 0
  let distance: number | undefined
  let flags = 0
  for (let entries = cursor.mapSize('row header'); entries > 0; entries--) {
    const key = cursor.next('row header key')
    switch (key) {
      case Key.timestamp:
        timestamp = cursor.float64('TIMESTAMP')
        break
      case Key.sync:
        cursor.next('SYNC')
        sync = join64(cursor.high, cursor.low)
        break
      case Key.requestType:
        type = nextSafe(cursor)
        break
      case Key.replicaId:
        replicaId = nextSafe(cursor)
        break
      case Key.groupId:
        groupId = nextSafe(cursor)
        break
      case Key.lsn:
        lsn = nextSafe(cursor)
        break
      case Key.tsn:
        distance = nextSafe(cursor)
        break
      case Key.flags:
        flags = nextSafe(cursor)
        break
      default:
        cursor.skip()
    }
  }
  if (distance !== undefined && distance > lsn)
    throw new MalformedFrameError(`A row of LSN ${lsn} has the TSN distance ${distance}`)
  return {
    type,
    sync,
    replicaId,
    groupId,
    lsn,
    timestamp,
    tsn: lsn - (distance ?? 0),
    isCommit: distance === undefined || (flags & RowFlag.commit) !== 0,
    waitSync: (flags & RowFlag.waitSync) !== 0,
    waitAck: (flags & RowFlag.waitAck) !== 0,
    body: frame.subarray(cursor.at),
  }
}

function nextSafe(cursor: UintCursor): number {
  const value = cursor.next('row header value')
  if (Number.isSafeInteger(value)) return value
  throw new MalformedFrameError(`A row header holds ${value}, which is no safe integer`)
}

function writeUint(out: BodyWriter, key: number, value: number): void {
  out.uint(key)
  out.uint(value)
}
