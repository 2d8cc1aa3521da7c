/*
 * Rows from one peer: a connection of its own, a subscription from where this instance is, each transaction applied once and
 * acknowledged. What comes is applied a slice in each turn of the loop, and not read faster than that. Lost links are dialled
 * again with growing pauses, for as long as the instance lives.
 */
import { openChannel, reconnectDelayMs } from '@orbweaver/connection'
import type { Address, ChannelSink, Credential, Environment, FrameChannel } from '@orbweaver/connection'
import { FrameHeader, FrameWriter, MalformedFrameError, readError, readRow, RequestType } from '@orbweaver/iproto'
import type { Row } from '@orbweaver/iproto'
import { Restoration } from '../engine/restoration.js'
import { Slice } from './slice.js'
import { decodeStreamFrame, encodeAcknowledgement, encodeSubscription } from './stream-codec.js'
import type { SnapshotHead, StreamFrame, Subscription } from './stream-codec.js'
import { TransactionReader } from './transaction-reader.js'
import type { Promotion, RowTransaction } from './transaction.js'
import { lsnOf } from './vclock.js'
import type { Vclock } from './vclock.js'

/** What an applier does to its instance. What throws breaks the link: things that must not be taken now, or contradict what is here. */
export interface ApplierTarget {
  subscription(): Subscription
  readonly vclock: Vclock
  /** What of its rows is safe here: what the peer may count on. */
  readonly durableVclock: Vclock
  /** The highest term it has promised: a master of an older one must not count on it any more. */
  readonly promised: number
  transaction(transaction: RowTransaction, peer: number): void
  /** A snapshot begins. @returns false while another one is on its way: this one has to wait */
  snapshotBegins(head: SnapshotHead, peer: number): boolean
  /** The peer's whole state, once it is complete, replaces this instance's. */
  takeOver(state: Restoration, head: SnapshotHead, peer: number): void
  /** A link came up, went down, or told its position. */
  linkChanged(peer: number): void
}

export interface PeerOptions {
  readonly number: number
  readonly address: Address
  readonly credential: Credential | undefined
}

export type LinkState =
  | { readonly name: 'connecting' }
  | { readonly name: 'follow' }
  | { readonly name: 'disconnected'; readonly cause: string }
  | { readonly name: 'stopped' }

/** A link as its operator sees it: how long ago the peer was heard last, and how old its last row was when it came. */
export type LinkInfo = LinkState & {
  /** Milliseconds since anything came; undefined before the first frame. */
  readonly idleMs: number | undefined
  /**
   * Milliseconds between the timestamp (on its maker's clock) of the last row or heartbeat and its arrival here; undefined before
   * the first one.
   */
  readonly lagMs: number | undefined
}

const CONNECT_TIMEOUT_MS = 5_000
/** A link on which nothing came for this long is dead: heartbeats come every second. */
const SILENCE_MS = 5_000
const RECONNECT = { minDelayMs: 50, maxDelayMs: 1_000, jitter: 0.2, retries: Infinity } as const
/** Types of error replies have this bit. */
const ERROR_BIT = 0x8000

/** A snapshot on its way in. */
interface InboundSnapshot {
  readonly vclock: Vclock
  readonly promotions: Promotion[]
  /** undefined until its rows begin. */
  state: Restoration | undefined
  /** When something of it came last. */
  wentOnAt: number
}

export class Applier implements ChannelSink {
  readonly peer: number
  readonly #options: PeerOptions
  readonly #target: ApplierTarget
  readonly #environment: Environment
  readonly #writer = new FrameWriter({ slabBytes: 1024 })
  readonly #slice: Slice
  #state: LinkState = { name: 'connecting' }
  #channel: FrameChannel | undefined
  /** Dials since the link was last of use. */
  #attempt = 0
  #heardAt: number | undefined
  #lagMs: number | undefined
  #cancelTimer: (() => void) | undefined
  #isAckQueued = false
  #transactions = new TransactionReader()
  #snapshot: InboundSnapshot | undefined
  /** Another snapshot is being taken: this link holds still until it is over. */
  #isWaiting = false
  /** Frames that came behind the slice of this turn. */
  #held: Buffer[] = []
  #isTurnBegun = false
  #isTurnOver = false
  /** Where the peer said it is. */
  peerVclock: Vclock = new Map()

  constructor(options: PeerOptions, target: ApplierTarget, environment: Environment) {
    this.peer = options.number
    this.#options = options
    this.#target = target
    this.#environment = environment
    this.#slice = new Slice(environment.clock)
    this.#dial()
  }

  get state(): LinkState {
    return this.#state
  }

  get isWaiting(): boolean {
    return this.#isWaiting
  }

  get info(): LinkInfo {
    const idleMs = this.#heardAt === undefined ? undefined : this.#environment.clock.now() - this.#heardAt
    return { ...this.#state, idleMs, lagMs: this.#lagMs }
  }

  stop(): void {
    this.#state = { name: 'stopped' }
    this.#cancelTimer?.()
    this.#channel?.destroy()
    this.#channel = undefined
  }

  /** Breaks the link and subscribes again: where it continues has changed. */
  resubscribe(why: string): void {
    this.#attempt = 0
    this.#channel?.destroy(new Error(why))
  }

  /** Tells the peer what is safe here: one frame per turn of the loop, however many transactions came. */
  acknowledge(): void {
    if (this.#isAckQueued || this.#channel === undefined) return
    this.#isAckQueued = true
    this.#environment.clock.soon(() => {
      this.#isAckQueued = false
      if (this.#channel === undefined) return
      encodeAcknowledgement(this.#writer, this.#target.durableVclock, this.#target.promised)
      this.#channel.write(this.#writer.take())
    })
  }

  // ---- the channel's events -----------------------------------------------------------------------------------------

  frame(frame: Buffer): void {
    this.#heardAt = this.#environment.clock.now()
    if (this.#isTurnOver || this.#isWaiting) this.#held.push(frame)
    else this.#handle(frame)
  }

  drain(): void {
    return // acknowledgements are small and gathered: nothing waits for room
  }

  closed(cause: Error): void {
    if (this.#state.name === 'stopped') return
    this.#lost(cause.message)
  }

  // ---- inside: turns ------------------------------------------------------------------------------------------------

  #handle(frame: Buffer): void {
    if (!this.#isTurnBegun) this.#beginTurn()
    try {
      this.#take(frame)
    } catch (error) {
      this.#channel?.destroy(error instanceof Error ? error : new Error(String(error)))
      return
    }
    if (!this.#slice.spend(frame.length)) return
    this.#isTurnOver = true
    this.#channel?.pauseReading()
  }

  #beginTurn(): void {
    this.#isTurnBegun = true
    this.#slice.begin()
    this.#environment.clock.soon(() => this.#nextTurn(this.#channel))
  }

  /** What was held, then what has not been read yet. */
  #nextTurn(channel: FrameChannel | undefined): void {
    this.#isTurnBegun = false
    if (!this.#isTurnOver || channel === undefined || channel !== this.#channel) return
    this.#isTurnOver = false
    const held = this.#held
    this.#held = []
    for (const [i, frame] of held.entries()) {
      if (this.#channel !== channel) return
      if (this.#isTurnOver || this.#isWaiting) {
        this.#held = held.slice(i)
        return
      }
      this.#handle(frame)
    }
    if (!this.#isTurnOver && !this.#isWaiting) channel.resumeReading()
  }

  // ---- inside: the link ---------------------------------------------------------------------------------------------

  #dial(): void {
    this.#state = { name: 'connecting' }
    const { clock, dial } = this.#environment
    const deadline = clock.now() + CONNECT_TIMEOUT_MS
    const abort = new AbortController()
    const cancel = clock.schedule(CONNECT_TIMEOUT_MS, () =>
      abort.abort(new Error(`No connection within ${CONNECT_TIMEOUT_MS} ms`)),
    )
    const { address, credential } = this.#options
    dial(address, abort.signal)
      .then((transport) =>
        openChannel(
          transport,
          { features: [], deadline, ...(credential === undefined ? {} : { credential }) },
          this.#environment,
        ),
      )
      .then(
        (channel) => {
          cancel()
          if (this.#state.name === 'stopped') channel.destroy()
          else this.#opened(channel)
        },
        (error: unknown) => {
          cancel()
          if (this.#state.name !== 'stopped') this.#lost(error instanceof Error ? error.message : String(error))
        },
      )
  }

  #opened(channel: FrameChannel): void {
    this.#channel = channel
    this.#transactions = new TransactionReader()
    channel.attach(this)
    encodeSubscription(this.#writer, this.#target.subscription())
    channel.write(this.#writer.take())
    this.#watchSilence(this.#environment.clock.now())
  }

  #lost(cause: string): void {
    this.#channel = undefined
    this.#snapshot = undefined
    this.#isWaiting = false
    this.#isTurnOver = false
    this.#held = []
    this.#cancelTimer?.()
    this.#state = { name: 'disconnected', cause }
    const delay = reconnectDelayMs(this.#attempt++, this.#environment.random(), RECONNECT)
    this.#cancelTimer = this.#environment.clock.schedule(delay, () => this.#dial())
    this.#target.linkChanged(this.peer)
  }

  /** One timer for as long as the link lives, not one a frame. */
  #watchSilence(since: number, afterMs: number = SILENCE_MS): void {
    const { clock } = this.#environment
    this.#cancelTimer?.()
    this.#cancelTimer = clock.schedule(afterMs, () => {
      const quietMs = clock.now() - Math.max(since, this.#heardAt ?? since)
      // What is not read cannot be heard.
      if (this.#isWaiting || this.#isTurnOver) this.#watchSilence(since)
      else if (quietMs < SILENCE_MS) this.#watchSilence(since, SILENCE_MS - quietMs)
      else this.#channel?.destroy(new Error(`Nothing heard for ${SILENCE_MS} ms`))
    })
  }

  // ---- inside: frames -----------------------------------------------------------------------------------------------

  #take(frame: Buffer): void {
    const row = readRow(frame)
    if ((row.type & ERROR_BIT) !== 0) throw errorIn(frame)
    if (row.timestamp !== 0) this.#lagMs = this.#environment.clock.wallNow() - row.timestamp * 1_000
    // Rows come from every peer; a promotion tells something even where its number is known.
    if (row.lsn > 0 && row.type !== RequestType.raftPromote && this.#isKnown(row)) {
      this.#transactions.forget()
      return
    }
    this.#takeFrame(decodeStreamFrame(row), row)
  }

  #isKnown({ replicaId, lsn }: Row): boolean {
    return lsn <= lsnOf(this.#target.vclock, replicaId)
  }

  #takeFrame(frame: StreamFrame, row: Row): void {
    if (this.#snapshot !== undefined) {
      this.#takeSnapshotFrame(this.#snapshot, frame)
      return
    }
    switch (frame.is) {
      case 'position':
        this.peerVclock = frame.vclock
        this.#state = { name: 'follow' }
        // Where it continues may not be safe here yet: a subscription acknowledges nothing.
        this.acknowledge()
        this.#target.linkChanged(this.peer)
        return
      case 'heartbeat':
        this.#attempt = 0
        this.acknowledge()
        return
      case 'snapshotHead':
        this.#snapshot = { vclock: frame.vclock, promotions: [], state: undefined, wentOnAt: this.#heardAt! }
        return
      case 'promotion':
        this.#apply(this.#transactions.promotion(row, frame.promotion))
        return
      case 'row': {
        if (frame.isLocal) throw new MalformedFrameError('A row of a local space is streamed')
        const transaction = this.#transactions.add(row, frame.row)
        if (transaction !== undefined) this.#apply(transaction)
        return
      }
      case 'snapshotRows':
      case 'vote':
        throw new MalformedFrameError(`A frame of kind '${frame.is}' comes where none may be`)
    }
  }

  #takeSnapshotFrame(snapshot: InboundSnapshot, frame: StreamFrame): void {
    const now = this.#heardAt!
    if (frame.is !== 'heartbeat') snapshot.wentOnAt = now
    switch (frame.is) {
      case 'heartbeat':
        // A peer whose disk hangs never ends it; others may wait for their turn.
        if (now - snapshot.wentOnAt >= SILENCE_MS) throw new Error(`The snapshot has not gone on for ${SILENCE_MS} ms`)
        return
      case 'promotion':
        snapshot.promotions.push(frame.promotion)
        return
      case 'snapshotRows':
        if (this.#target.snapshotBegins(snapshot, this.peer)) snapshot.state = new Restoration()
        else this.#wait()
        return
      case 'row':
        snapshot.state?.add(frame.row)
        return
      case 'position':
        if (snapshot.state === undefined) throw new MalformedFrameError('A snapshot ends that never began')
        this.#snapshot = undefined
        this.#target.takeOver(snapshot.state, snapshot, this.peer)
        this.#attempt = 0
        this.acknowledge()
        return
      case 'snapshotHead':
      case 'vote':
        throw new MalformedFrameError(`A frame of kind '${frame.is}' comes in a snapshot`)
    }
  }

  #apply(transaction: RowTransaction): void {
    this.#target.transaction(transaction, this.peer)
    this.#attempt = 0
    this.acknowledge()
  }

  /** Until the instance subscribes again, which is when the other snapshot is over. */
  #wait(): void {
    this.#isWaiting = true
    this.#snapshot = undefined
    this.#channel?.pauseReading()
  }
}

function errorIn(frame: Buffer): Error {
  const header = new FrameHeader()
  header.read(frame)
  return readError(frame, header, 'session')
}
