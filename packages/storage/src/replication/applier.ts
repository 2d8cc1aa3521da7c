/*
 * Rows from one peer: a connection of its own, SUBSCRIBE from where this instance is, each transaction applied once and
 * acknowledged. Lost links are dialled again with growing pauses, for as long as the instance lives.
 */
import { openChannel, reconnectDelayMs } from '@orbweaver/connection'
import type { Address, ChannelSink, Credential, Environment, FrameChannel } from '@orbweaver/connection'
import { FrameHeader, FrameWriter, MalformedFrameError } from '@orbweaver/iproto'
import type { RowBody } from '../engine/engine.js'
import { Restoration } from '../engine/restoration.js'
import { decodeStreamFrame, encodePosition, encodeSubscribe } from './row-codec.js'
import type { SnapshotEnd, StreamFrame, Subscription } from './row-codec.js'
import type { LoggedTransaction } from './row-log.js'
import type { Vclock } from './vclock.js'

/** What an applier does to its instance. */
export interface ApplierTarget {
  subscription(): Subscription
  /** What of its rows is safe here: what the peer may count on. */
  readonly durableVclock: Vclock
  readonly term: number
  /** Throws to break the link: rows that must not be taken now, or that contradict what is here. */
  transaction(transaction: LoggedTransaction, peer: number): void
  /** The peer's whole state, once it is complete, replaces this instance's. */
  takeOver(state: Restoration, end: SnapshotEnd): void
  /** A link came up, went down (why), or told its position. */
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

const CONNECT_TIMEOUT_MS = 5_000
/** A link on which nothing came for this long is dead: heartbeats come every second. */
const SILENCE_MS = 5_000
const RECONNECT = { minDelayMs: 50, maxDelayMs: 1_000, jitter: 0.2, retries: Infinity } as const

export class Applier implements ChannelSink {
  readonly peer: number
  readonly #options: PeerOptions
  readonly #target: ApplierTarget
  readonly #environment: Environment
  readonly #header = new FrameHeader()
  readonly #writer = new FrameWriter({ slabBytes: 1024 })
  #state: LinkState = { name: 'connecting' }
  #channel: FrameChannel | undefined
  #attempt = 0
  #cancelTimer: (() => void) | undefined
  #isAckQueued = false
  #rows: RowBody[] = []
  #snapshot: Restoration | undefined
  /** Where the peer said it is. */
  peerVclock: Vclock = new Map()

  constructor(options: PeerOptions, target: ApplierTarget, environment: Environment) {
    this.peer = options.number
    this.#options = options
    this.#target = target
    this.#environment = environment
    this.#dial()
  }

  get state(): LinkState {
    return this.#state
  }

  stop(): void {
    this.#state = { name: 'stopped' }
    this.#cancelTimer?.()
    this.#channel?.destroy()
    this.#channel = undefined
  }

  /** Breaks the link and subscribes again: where it continues has changed. */
  resubscribe(): void {
    this.#channel?.destroy(new Error('Subscribing again'))
  }

  // ---- the channel's events -----------------------------------------------------------------------------------------

  frame(frame: Buffer): void {
    this.#watchSilence()
    try {
      this.#header.read(frame)
      this.#take(decodeStreamFrame(frame, this.#header))
    } catch (error) {
      this.#channel?.destroy(error instanceof Error ? error : new Error(String(error)))
    }
  }

  drain(): void {
    return // acknowledgements are small and gathered: nothing waits for room
  }

  closed(cause: Error): void {
    if (this.#state.name === 'stopped') return
    this.#lost(cause.message)
  }

  // ---- inside -------------------------------------------------------------------------------------------------------

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
    this.#rows = []
    this.#snapshot = undefined
    channel.attach(this)
    encodeSubscribe(this.#writer, this.#target.subscription())
    channel.write(this.#writer.take())
    this.#watchSilence()
  }

  #lost(cause: string): void {
    this.#channel = undefined
    this.#cancelTimer?.()
    this.#state = { name: 'disconnected', cause }
    const delay = reconnectDelayMs(this.#attempt++, this.#environment.random(), RECONNECT)
    this.#cancelTimer = this.#environment.clock.schedule(delay, () => this.#dial())
    this.#target.linkChanged(this.peer)
  }

  #take(frame: StreamFrame): void {
    switch (frame.is) {
      case 'position':
        this.peerVclock = frame.vclock
        this.#attempt = 0
        if (this.#state.name !== 'follow') this.#state = { name: 'follow' }
        this.#target.linkChanged(this.peer)
        return
      case 'snapshotStart':
        this.#snapshot = new Restoration()
        return
      case 'snapshotRow':
        this.#snapshot?.add(frame.row)
        return
      case 'snapshotEnd': {
        const state = this.#snapshot
        this.#snapshot = undefined
        if (state === undefined) throw new MalformedFrameError('A snapshot ends that never began')
        this.#target.takeOver(state, frame.end)
        this.acknowledge()
        return
      }
      case 'row': {
        if (frame.row !== undefined) this.#rows.push(frame.row)
        if (!frame.isLast) return
        const rows = this.#rows
        this.#rows = []
        this.#target.transaction({ ...frame.place, rows }, this.peer)
        this.acknowledge()
        return
      }
    }
  }

  /** Tells the peer what is safe here: one frame per turn of the loop, however many transactions came. */
  acknowledge(): void {
    if (this.#isAckQueued || this.#channel === undefined) return
    this.#isAckQueued = true
    this.#environment.clock.soon(() => {
      this.#isAckQueued = false
      if (this.#channel === undefined) return
      encodePosition(this.#writer, 0, this.#target.durableVclock, this.#target.term)
      this.#channel.write(this.#writer.take())
    })
  }

  #watchSilence(): void {
    this.#cancelTimer?.()
    this.#cancelTimer = this.#environment.clock.schedule(SILENCE_MS, () =>
      this.#channel?.destroy(new Error(`Nothing heard for ${SILENCE_MS} ms`)),
    )
  }
}
