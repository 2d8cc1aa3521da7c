import type { BodyReader } from '../body-reader.js'
import { Key } from '../constants.js'
import { MalformedFrameError } from '../errors.js'
import type { BodyWriter } from '../msgpack/body-writer.js'
import { type Vclock, vclockOf, writeVclock } from './vclock.js'

/* Rows about who may write. Source: Tarantool 2.6+ src/box/xrow.c, xrow_encode_synchro, xrow_encode_raft
 *   RAFT_PROMOTE (31), RAFT_DEMOTE (32)   0x02 REPLICA_ID uint, 0x03 LSN uint, 0x53 TERM uint, 0x26 VCLOCK map (newer releases)
 *   RAFT_CONFIRM (40), RAFT_ROLLBACK (41) 0x02 REPLICA_ID uint, 0x03 LSN uint
 *   RAFT (30)  0 term uint, 1 vote uint, 2 state uint, 4 leader id uint, 5 is leader seen bool, 3 vclock map; all but the term only
 *              when they are not zero */

/** PROMOTE or DEMOTE: from this row on the synchronous queue belongs to the instance that wrote it, or to nobody. */
export interface Promotion {
  /** Id of the queue's owner until then, 0 for none. */
  readonly previousOwnerId: number
  /** Its rows up to this LSN are confirmed, later ones rolled back. */
  readonly lsn: number
  /** Rows of a lower term are refused from then on. */
  readonly term: number
  /** Confirmed LSNs of all earlier owners. */
  readonly confirmed?: Vclock
}

export function writePromotion(out: BodyWriter, promotion: Promotion): void {
  out.mapHeader(promotion.confirmed === undefined ? 3 : 4)
  out.uint(Key.replicaId)
  out.uint(promotion.previousOwnerId)
  out.uint(Key.lsn)
  out.uint(promotion.lsn)
  out.uint(Key.term)
  out.uint(promotion.term)
  if (promotion.confirmed === undefined) return
  out.uint(Key.vclock)
  writeVclock(out, promotion.confirmed)
}

/** @throws BoxError 20 or 69 when a field is of another kind or missing */
export function readPromotion(body: BodyReader): Promotion {
  const confirmed = body.value(Key.vclock)
  return {
    previousOwnerId: body.requireUint(Key.replicaId),
    lsn: body.requireUint(Key.lsn),
    term: body.requireUint(Key.term),
    ...(confirmed !== undefined && { confirmed: vclockOf(confirmed) }),
  }
}

/** CONFIRM or ROLLBACK of synchronous transactions of one owner. */
export interface Confirmation {
  readonly ownerId: number
  /** CONFIRM: up to and with this LSN; ROLLBACK: from it on. */
  readonly lsn: number
}

export function writeConfirmation(out: BodyWriter, confirmation: Confirmation): void {
  out.mapHeader(2)
  out.uint(Key.replicaId)
  out.uint(confirmation.ownerId)
  out.uint(Key.lsn)
  out.uint(confirmation.lsn)
}

/** @throws BoxError 20 or 69 when a field is of another kind or missing */
export function readConfirmation(body: BodyReader): Confirmation {
  return { ownerId: body.requireUint(Key.replicaId), lsn: body.requireUint(Key.lsn) }
}

/** State of an instance in elections; what is 0 or false is not written. */
export interface RaftState {
  readonly term: number
  /** Replica id this instance voted for in the term. */
  readonly vote?: number
  /** 1 follower, 2 candidate, 3 leader. */
  readonly state?: number
  readonly leaderId?: number
  readonly isLeaderSeen?: boolean
  readonly vclock?: Vclock
}

export function writeRaft(out: BodyWriter, raft: RaftState): void {
  const { term, vote = 0, state = 0, leaderId = 0, isLeaderSeen = false, vclock } = raft
  out.mapHeader(
    1 + [vote !== 0, state !== 0, leaderId !== 0, isLeaderSeen, vclock !== undefined].filter(Boolean).length,
  )
  out.uint(RAFT_TERM)
  out.uint(term)
  for (const [key, value] of [
    [RAFT_VOTE, vote],
    [RAFT_STATE, state],
    [RAFT_LEADER_ID, leaderId],
  ] as const) {
    if (value === 0) continue
    out.uint(key)
    out.uint(value)
  }
  if (isLeaderSeen) {
    out.uint(RAFT_IS_LEADER_SEEN)
    out.bool(true)
  }
  if (vclock === undefined) return
  out.uint(RAFT_VCLOCK)
  writeVclock(out, vclock)
}

/** @throws MalformedFrameError when there is no term, or a field is of another kind */
export function readRaft(body: BodyReader): RaftState {
  const term = body.uint(RAFT_TERM)
  if (term === undefined) throw new MalformedFrameError('A RAFT row has no term')
  const vclock = body.value(RAFT_VCLOCK)
  return {
    term,
    vote: body.uint(RAFT_VOTE) ?? 0,
    state: body.uint(RAFT_STATE) ?? 0,
    leaderId: body.uint(RAFT_LEADER_ID) ?? 0,
    isLeaderSeen: body.bool(RAFT_IS_LEADER_SEEN) ?? false,
    ...(vclock !== undefined && { vclock: vclockOf(vclock) }),
  }
}

const RAFT_TERM = 0
const RAFT_VOTE = 1
const RAFT_STATE = 2
const RAFT_VCLOCK = 3
const RAFT_LEADER_ID = 4
const RAFT_IS_LEADER_SEEN = 5
