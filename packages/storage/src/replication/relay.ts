/*
 * Rows to one subscriber: from where it is to the end of the log, then as they come, no faster than it reads. A subscriber that
 * is too far behind, or has rows that are not part of history, gets a snapshot first.
 */
import { FrameWriter } from '@orbweaver/iproto'
import type { ClientSession } from '@orbweaver/server'
import type { RowBody } from '../engine/engine.js'
import {
  encodePosition,
  encodeSnapshotEnd,
  encodeSnapshotRow,
  encodeSnapshotStart,
  encodeTransaction,
} from './row-codec.js'
import type { SnapshotEnd, Subscription } from './row-codec.js'
import type { RowLog } from './row-log.js'
import { covers, lsnOf } from './vclock.js'
import type { Vclock } from './vclock.js'

/** What a relay reads of its instance. */
export interface RelaySource {
  readonly log: RowLog
  readonly vclock: Vclock
  readonly term: number
  readonly leader: number
  readonly promotions: SnapshotEnd['promotions']
  /** What would still be here after a restart of the instance. */
  readonly durableVclock: Vclock
  /** Everything of this moment, to be taken slowly. */
  snapshot(): Iterator<RowBody>
  /** Runs in another turn of the loop. */
  soon(task: () => void): void
}

/** A snapshot on its way. */
interface SnapshotTransfer {
  readonly rows: Iterator<RowBody>
  readonly end: SnapshotEnd
  /** Where the log goes on behind it. */
  readonly next: number
  readonly generation: number
  areRowsSent: boolean
}

export class Relay {
  readonly replicaId: number
  /** What the subscriber said it has. */
  acknowledged: Vclock
  readonly #source: RelaySource
  readonly #session: ClientSession
  readonly #writer = new FrameWriter({ slabBytes: 64 * 1024 })
  /** The next transaction to send. */
  #next: number
  #isCongested = false
  #snapshot: SnapshotTransfer | undefined
  #isWaitingForTurn = false

  constructor(source: RelaySource, session: ClientSession, subscription: Subscription) {
    this.#source = source
    this.#session = session
    this.replicaId = subscription.replicaId
    this.acknowledged = subscription.vclock
    encodePosition(this.#writer, 1, source.vclock, source.term)
    session.reply(this.#writer.take())
    const position = isPartOfHistory(subscription, source)
      ? source.log.positionFor(subscription.vclock, source.vclock)
      : undefined
    this.#next = position ?? source.log.end
    if (position === undefined) this.#beginSnapshot()
    this.pump()
  }

  /** Sends what is there, as far as the subscriber takes it. */
  pump(): void {
    if (this.#isCongested || this.#isWaitingForTurn) return
    const { log } = this.#source
    if (this.#snapshot === undefined ? this.#next < log.start : this.#snapshot.generation !== log.generation)
      this.#beginSnapshot()
    if (this.#snapshot !== undefined) {
      this.#sendSlice(this.#snapshot)
      return
    }
    for (let sent = 0; sent < BATCH; sent++) {
      const transaction = log.at(this.#next)
      if (transaction === undefined) break
      encodeTransaction(this.#writer, transaction)
      this.#next++
    }
    const chunks = this.#writer.take()
    if (chunks.length === 0) return
    this.#isCongested = !this.#session.reply(chunks)
    if (!this.#isCongested) this.pump()
  }

  drained(): void {
    if (!this.#isCongested) return
    this.#isCongested = false
    this.pump()
  }

  /** Tells how far this instance is, so that the subscriber knows its lag and that the link lives. */
  heartbeat(): void {
    encodePosition(this.#writer, 0, this.#source.vclock, this.#source.term)
    this.#isCongested = !this.#session.reply(this.#writer.take()) || this.#isCongested
  }

  #beginSnapshot(): void {
    const { vclock, term, leader, promotions, log } = this.#source
    this.#snapshot = {
      rows: this.#source.snapshot(),
      end: { vclock, term, leader, promotions: [...promotions] },
      next: log.end,
      generation: log.generation,
      areRowsSent: false,
    }
    encodeSnapshotStart(this.#writer)
  }

  /** Some rows, and the rest when the subscriber has room and other requests have had their turn. */
  #sendSlice(snapshot: SnapshotTransfer): void {
    while (!snapshot.areRowsSent && this.#writer.pendingBytes < SLICE_BYTES) {
      const row = snapshot.rows.next()
      if (row.done === true) snapshot.areRowsSent = true
      else encodeSnapshotRow(this.#writer, row.value)
    }
    // Its end makes it valid: not before this instance itself can no longer lose what is in it. `pump` comes again then.
    const isComplete = snapshot.areRowsSent && covers(this.#source.durableVclock, snapshot.end.vclock)
    if (isComplete) {
      encodeSnapshotEnd(this.#writer, snapshot.end)
      this.#snapshot = undefined
      this.#next = snapshot.next
    }
    const chunks = this.#writer.take()
    if (chunks.length > 0) this.#isCongested = !this.#session.reply(chunks)
    if (snapshot.areRowsSent && !isComplete) return
    this.#isWaitingForTurn = true
    this.#source.soon(() => {
      this.#isWaitingForTurn = false
      this.pump()
    })
  }
}

/** Bytes of a snapshot in one turn of the loop. */
const SLICE_BYTES = 256 * 1024
/** Transactions per write. */
const BATCH = 1_000

/**
 * A subscriber of an older term may hold rows its master made after the next one had taken over. The first promotion after its
 * term tells: whatever it has beyond that position never happened.
 */
function isPartOfHistory(subscription: Subscription, source: RelaySource): boolean {
  if (subscription.term >= source.term) return true
  const next = source.promotions.find((promotion) => promotion.term > subscription.term)
  if (next === undefined) return false
  return [...subscription.vclock].every(([origin, lsn]) => lsn <= lsnOf(next.vclock, origin))
}
