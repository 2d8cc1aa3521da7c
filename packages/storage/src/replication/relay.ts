/*
 * Rows to one subscriber: from where it is to the end of the log, then as they come, no faster than it reads and a slice in each
 * turn of the loop. One that is too far behind, has rows that are not part of history, or asks for it, gets a snapshot first.
 */
import type { Clock } from '@orbweaver/connection'
import { FrameWriter } from '@orbweaver/iproto'
import type { ClientSession } from '@orbweaver/server'
import type { RowBody } from '../engine/engine.js'
import type { History } from './history.js'
import type { RowLog } from './row-log.js'
import { Slice, SLICE_BYTES } from './slice.js'
import {
  encodeAnswer,
  encodeHeartbeat,
  encodeSnapshotEnd,
  encodeSnapshotHead,
  encodeSnapshotRow,
} from './stream-codec.js'
import type { SnapshotHead, Subscription } from './stream-codec.js'
import { covers } from './vclock.js'
import type { Vclock } from './vclock.js'

/** What a relay reads of its instance. */
export interface RelaySource {
  readonly number: number
  readonly replicasetUuid: string
  readonly log: RowLog
  readonly history: History
  readonly vclock: Vclock
  readonly term: number
  /** What would still be here after a restart of the instance. */
  readonly durableVclock: Vclock
  readonly clock: Clock
  /** Everything of this moment, to be taken slowly. */
  snapshot(): Iterator<RowBody>
}

/** A snapshot on its way. */
interface SnapshotTransfer {
  readonly rows: Iterator<RowBody>
  readonly head: SnapshotHead
  /** Where the log goes on behind it. */
  readonly next: number
  areRowsSent: boolean
}

export class Relay {
  readonly replicaId: number
  /** What the subscriber said is safe there. */
  acknowledged: Vclock = new Map()
  readonly #source: RelaySource
  readonly #session: ClientSession
  readonly #writer = new FrameWriter({ slabBytes: 64 * 1024 })
  readonly #slice: Slice
  /** The next transaction to send. */
  #next: number
  #isCongested = false
  #snapshot: SnapshotTransfer | undefined
  #isWaitingForTurn = false
  #isStopped = false

  constructor(source: RelaySource, session: ClientSession, replicaId: number, from: Subscription['from']) {
    this.#source = source
    this.#session = session
    this.#slice = new Slice(source.clock)
    this.replicaId = replicaId
    encodeAnswer(this.#writer, source.replicasetUuid, source.vclock)
    session.reply(this.#writer.take())
    const position =
      from !== undefined && source.history.includes(from.vclock, from.term)
        ? source.log.positionFor(from.vclock)
        : undefined
    this.#next = position ?? source.log.end
    if (position === undefined) this.#beginSnapshot()
    this.pump()
  }

  /** Sends what is there, as far as the subscriber takes it. */
  pump(): void {
    if (this.#isCongested || this.#isWaitingForTurn || this.#isStopped) return
    if (this.#snapshot === undefined && this.#next < this.#source.log.start) this.#beginSnapshot()
    if (this.#snapshot === undefined) this.#sendRows()
    else this.#sendSnapshot(this.#snapshot)
  }

  drained(): void {
    if (!this.#isCongested) return
    this.#isCongested = false
    this.pump()
  }

  /** Tells that the link lives. While rows wait to be taken, nothing is to be told. */
  heartbeat(): void {
    if (this.#isCongested) return
    encodeHeartbeat(this.#writer, this.#source.number, this.#source.clock.wallNow())
    this.#reply(this.#writer.take())
  }

  /** Sends no more; with a cause the subscriber is cut off, and subscribes again from where it is then. */
  stop(cause?: Error): void {
    this.#isStopped = true
    if (cause !== undefined) this.#session.destroy(cause)
  }

  #sendRows(): void {
    const { log } = this.#source
    const chunks: Buffer[] = []
    let bytes = 0
    while (bytes < SLICE_BYTES) {
      const entry = log.at(this.#next)
      if (entry === undefined) break
      for (const chunk of entry.chunks) append(chunks, chunk)
      bytes += entry.bytes
      this.#next++
    }
    if (chunks.length === 0) return
    this.#reply(chunks)
    if (bytes >= SLICE_BYTES) this.#continue()
  }

  #beginSnapshot(): void {
    const { vclock, history, log } = this.#source
    this.#snapshot = {
      rows: this.#source.snapshot(),
      head: { vclock, promotions: [...history.promotions] },
      next: log.end,
      areRowsSent: false,
    }
    encodeSnapshotHead(this.#writer, this.#snapshot.head)
  }

  #sendSnapshot(snapshot: SnapshotTransfer): void {
    this.#slice.begin()
    for (let isOver = false; !isOver && !snapshot.areRowsSent;) {
      const row = snapshot.rows.next()
      if (row.done === true) snapshot.areRowsSent = true
      else {
        const before = this.#writer.pendingBytes
        encodeSnapshotRow(this.#writer, row.value)
        isOver = this.#slice.spend(this.#writer.pendingBytes - before)
      }
    }
    // Its end makes it valid: not before this instance itself can no longer lose what is in it. `pump` comes again then.
    const isComplete = snapshot.areRowsSent && covers(this.#source.durableVclock, snapshot.head.vclock)
    if (isComplete) {
      encodeSnapshotEnd(this.#writer, snapshot.head)
      this.#snapshot = undefined
      this.#next = snapshot.next
    }
    const chunks = this.#writer.take()
    if (chunks.length > 0) this.#reply(chunks)
    if (isComplete || !snapshot.areRowsSent) this.#continue()
  }

  #reply(chunks: readonly Buffer[]): void {
    this.#isCongested = !this.#session.reply(chunks) || this.#isCongested
  }

  /** The rest when the subscriber has room and other requests have had their turn. */
  #continue(): void {
    this.#isWaitingForTurn = true
    this.#source.clock.soon(() => {
      this.#isWaitingForTurn = false
      this.pump()
    })
  }
}

/** Neighbours in memory become one chunk: thousands of small ones would cost more than their bytes. */
function append(chunks: Buffer[], chunk: Buffer): void {
  const last = chunks.at(-1)
  if (last !== undefined && last.buffer === chunk.buffer && last.byteOffset + last.length === chunk.byteOffset)
    chunks[chunks.length - 1] = Buffer.from(chunk.buffer, last.byteOffset, last.length + chunk.length)
  else chunks.push(chunk)
}
