/**
 * A transport past its handshake: whole frames in, chunks out. The connection is built on it; the proxy uses it directly,
 * for its lanes have queues of their own.
 */
import { FrameReader, GREETING_BYTES, OrbweaverError } from '@orbweaver/iproto'
import { AuthError, ConnectError, ConnectionLostError, type ConnectStage } from './errors.js'
import type { Environment } from './environment.js'
import { type Credential, Handshake, type HandshakeResult } from './handshake.js'
import type { Transport, TransportSink } from './transport.js'

/** Who listens to a channel. Without `largeFrame` every frame is collected whole; with it, those above 256 KiB arrive in pieces. */
export interface ChannelSink {
  /** One whole frame, length prefix included. The buffer is the receiver's. */
  frame(frame: Buffer): void
  /** In the place of `frame`, without a slice of its own: the frame is [start, end) of memory that it shares with its neighbours. */
  frameIn?(bytes: Buffer, start: number, end: number): void
  /**
   * A large frame begins. `head` holds its first bytes, the header at least; what follows goes to the returned receiver.
   * @param frameBytes - the whole frame, prefix included
   */
  largeFrame?(head: Buffer, frameBytes: number): LargeFrame
  /** After a `write` that returned false: go on. */
  drain(): void
  /** The last event. */
  closed(cause: OrbweaverError): void
}

/** Receives the rest of a large frame: `end` after its last piece, or `cut` when the channel closed before. */
export interface LargeFrame {
  chunk(bytes: Buffer): void
  end(): void
  cut(): void
}

export interface ChannelOptions {
  /** Absent: the session stays guest's. */
  readonly credential?: Credential
  /** Feature numbers to ask for, see `Feature` of `@orbweaver/iproto`. */
  readonly features: readonly number[]
  /** Instant on the clock by which the handshake must be over; Infinity: none. */
  readonly deadline: number
  /** Largest frame that is accepted, without its prefix. Default 256 MiB. */
  readonly maxFrameBytes?: number
  /** Told when the handshake begins to wait for another step. */
  readonly onStage?: (stage: ConnectStage) => void
}

/** A transport past its handshake. */
export interface FrameChannel {
  /** Of the server, from its greeting: `3.2.1`. */
  readonly version: string
  readonly instanceUuid: string
  /** What this connection was greeted with. */
  readonly salt: Uint8Array
  /** What both sides have. */
  readonly features: ReadonlySet<number>
  /** The other end for people. */
  readonly peer: string
  /** Called once; no event comes before it, none inside `write`. */
  attach(sink: ChannelSink): void
  /** @returns false: stop and wait for `drain`; the chunks were taken nevertheless */
  write(chunks: readonly Uint8Array[]): boolean
  readonly pendingBytes: number
  pauseReading(): void
  resumeReading(): void
  /** Closes now; `closed` follows. Harmless when repeated. */
  destroy(cause?: Error): void
}

/**
 * Runs the handshake on a fresh transport: greeting, ID, login. On failure the transport is destroyed: a server goes on
 * serving a connection whose login it refused, as guest, and nothing may run in that session.
 * @throws ConnectError when the peer is no Tarantool, refuses, breaks off, or `deadline` passes; it names the stage
 * @throws AuthError when the login is refused
 */
export function openChannel(
  transport: Transport,
  options: ChannelOptions,
  environment: Environment,
): Promise<FrameChannel> {
  return new Promise((resolve, reject) => {
    new Channel(transport, options, environment, resolve, reject).start()
  })
}

class Channel implements FrameChannel, TransportSink {
  readonly #transport: Transport
  readonly #environment: Environment
  readonly #options: ChannelOptions
  readonly #handshake: Handshake
  readonly #reader: FrameReader
  readonly #maxFrameBytes: number
  #resolve: ((channel: FrameChannel) => void) | undefined
  #reject: ((error: unknown) => void) | undefined
  #cancelDeadline: (() => void) | undefined
  #stage: ConnectStage = 'dial'
  /** Bytes of the greeting so far. */
  #beginning: Buffer = Buffer.alloc(0)
  #result: HandshakeResult | undefined
  #sink: ChannelSink | undefined
  #large: LargeFrame | undefined
  #isClosed = false
  /** Why the channel ends, once that is decided; later reasons are consequences. */
  #cause: OrbweaverError | undefined

  constructor(
    transport: Transport,
    options: ChannelOptions,
    environment: Environment,
    resolve: (channel: FrameChannel) => void,
    reject: (error: unknown) => void,
  ) {
    this.#transport = transport
    this.#environment = environment
    this.#options = options
    this.#resolve = resolve
    this.#reject = reject
    this.#maxFrameBytes = options.maxFrameBytes ?? DEFAULT_MAX_FRAME_BYTES
    this.#reader = new FrameReader({
      maxFrameBytes: Math.min(MAX_HANDSHAKE_FRAME_BYTES, this.#maxFrameBytes),
      largeFrameBytes: LARGE_FRAME_BYTES,
    })
    this.#handshake = new Handshake({
      credential: options.credential,
      features: options.features,
      encrypted: transport.encrypted,
      peer: transport.peer,
    })
  }

  start(): void {
    const leftMs = this.#options.deadline - this.#environment.clock.now()
    this.#cancelDeadline = this.#environment.clock.schedule(leftMs, () => this.#tooLate())
    this.#tellStage()
    this.#transport.attach(this)
  }

  get version(): string {
    return this.#result?.greeting.version ?? ''
  }

  get instanceUuid(): string {
    return this.#result?.greeting.uuid ?? ''
  }

  get salt(): Uint8Array {
    return this.#result?.greeting.salt ?? NO_SALT
  }

  get features(): ReadonlySet<number> {
    return this.#result?.features ?? NO_FEATURES
  }

  get peer(): string {
    return this.#transport.peer
  }

  get pendingBytes(): number {
    return this.#transport.pendingBytes
  }

  attach(sink: ChannelSink): void {
    if (this.#sink !== undefined) throw new Error('This channel already has a sink')
    this.#sink = sink
    // What came behind the handshake's last answer waits in the reader; and the end may have come already.
    const wasClosed = this.#isClosed
    this.#environment.clock.soon(() => {
      if (wasClosed) sink.closed(this.#cause ?? this.#lost(undefined))
      else if (!this.#isClosed) this.#deliver(sink)
    })
  }

  write(chunks: readonly Uint8Array[]): boolean {
    return this.#transport.write(chunks)
  }

  pauseReading(): void {
    this.#transport.pauseReading()
  }

  resumeReading(): void {
    this.#transport.resumeReading()
  }

  destroy(cause?: Error): void {
    if (this.#cause === undefined) this.#cause = cause instanceof OrbweaverError ? cause : this.#lost(cause)
    this.#transport.destroy(cause)
  }

  data(chunk: Buffer): void {
    if (this.#cause !== undefined) return
    if (this.#result === undefined) {
      this.#shakeHands(chunk)
      return
    }
    this.#reader.push(chunk)
    if (this.#sink !== undefined) this.#deliver(this.#sink)
  }

  drain(): void {
    if (this.#cause === undefined) this.#sink?.drain()
  }

  end(): void {
    if (this.#result === undefined) this.#fail(this.#handshake.cutShort(this.#beginning.length))
    else this.destroy(new ConnectionLostError(`${this.peer} closed the connection`, { executed: 'unknown' }))
  }

  closed(cause: Error | undefined): void {
    this.#isClosed = true
    if (this.#result === undefined) {
      this.#fail(cause === undefined ? this.#handshake.cutShort(this.#beginning.length) : this.#failedBy(cause))
      return
    }
    this.#cause ??= cause instanceof OrbweaverError ? cause : this.#lost(cause)
    this.#large?.cut()
    this.#large = undefined
    this.#sink?.closed(this.#cause)
  }

  #shakeHands(chunk: Buffer): void {
    try {
      if (this.#handshake.stage === 'greeting') {
        this.#beginning = this.#beginning.length === 0 ? chunk : Buffer.concat([this.#beginning, chunk])
        this.#handshake.checkBeginning(this.#beginning)
        if (this.#beginning.length < GREETING_BYTES) return
        this.#say(this.#handshake.greeting(this.#beginning.subarray(0, GREETING_BYTES)))
        this.#reader.push(this.#beginning.subarray(GREETING_BYTES))
        this.#beginning = NO_BYTES
      } else {
        this.#reader.push(chunk)
      }
      while (this.#handshake.result === undefined) {
        this.#tellStage()
        const frame = this.#reader.next()
        if (frame === undefined) return
        this.#say(this.#handshake.frame(frame))
      }
      this.#finish(this.#handshake.result)
    } catch (error) {
      this.#fail(this.#failedBy(error))
    }
  }

  #say(chunks: Buffer[]): void {
    if (chunks.length > 0) this.#transport.write(chunks)
  }

  #tellStage(): void {
    const stage = this.#handshake.stage
    if (stage === this.#stage) return
    this.#stage = stage
    this.#options.onStage?.(stage)
  }

  #finish(result: HandshakeResult): void {
    this.#result = result
    this.#reader.maxFrameBytes = this.#maxFrameBytes
    this.#cancelDeadline?.()
    this.#resolve?.(this)
    this.#resolve = this.#reject = undefined
  }

  #deliver(sink: ChannelSink): void {
    const reader = this.#reader
    try {
      while (this.#cause === undefined) {
        if (reader.advance()) {
          if (sink.frameIn === undefined) sink.frame(reader.bytes.subarray(reader.start, reader.end))
          else sink.frameIn(reader.bytes, reader.start, reader.end)
        } else if (reader.large === undefined || !this.#deliverLarge(sink)) return
      }
    } catch (error) {
      // Only the reader throws here (a sink must not): the stream cannot be understood any further.
      this.destroy(error instanceof OrbweaverError ? error : this.#lost(error))
    }
  }

  /** @returns whether the large frame is complete */
  #deliverLarge(sink: ChannelSink): boolean {
    const reader = this.#reader
    const progress = reader.large
    if (progress === undefined) return true
    this.#large ??=
      sink.largeFrame === undefined
        ? new CollectedFrame(progress.head, (frame) => sink.frame(frame))
        : sink.largeFrame(progress.head, progress.frameBytes)
    for (let piece = reader.nextLarge(); piece !== undefined; piece = reader.nextLarge()) {
      this.#large.chunk(piece)
      if (this.#cause !== undefined) return false
    }
    if (reader.large !== undefined) return false
    const finished = this.#large
    this.#large = undefined
    finished.end()
    return true
  }

  #tooLate(): void {
    const { stage } = this.#handshake
    this.#fail(
      new ConnectError(`Cannot connect to ${this.peer}: no answer in time while waiting for ${STAGE_WORDS[stage]}`, {
        stage,
        peer: this.peer,
      }),
    )
  }

  #fail(error: OrbweaverError): void {
    if (this.#reject === undefined) return
    this.#cause = error
    this.#cancelDeadline?.()
    this.#transport.destroy(error)
    this.#reject(error)
    this.#resolve = this.#reject = undefined
  }

  #failedBy(cause: unknown): OrbweaverError {
    if (cause instanceof ConnectError || cause instanceof AuthError) return cause
    const text = cause instanceof Error ? cause.message : String(cause)
    return new ConnectError(`Cannot connect to ${this.peer}: ${text}`, {
      stage: this.#handshake.stage,
      peer: this.peer,
      cause,
    })
  }

  #lost(cause: unknown): ConnectionLostError {
    const why = cause instanceof Error ? `: ${cause.message}` : ''
    return new ConnectionLostError(`The connection to ${this.peer} broke${why}`, { executed: 'unknown', cause })
  }
}

/** A large frame for a sink that wants it whole: joined once, when all of it is here. */
class CollectedFrame implements LargeFrame {
  readonly #pieces: Buffer[]
  readonly #whole: (frame: Buffer) => void

  constructor(head: Buffer, whole: (frame: Buffer) => void) {
    this.#pieces = [head]
    this.#whole = whole
  }

  chunk(bytes: Buffer): void {
    this.#pieces.push(bytes)
  }

  end(): void {
    this.#whole(Buffer.concat(this.#pieces))
  }

  cut(): void {
    this.#pieces.length = 0
  }
}

/** The step a stalled handshake was waiting for, in words. */
export const STAGE_WORDS: Readonly<Record<ConnectStage, string>> = {
  dial: 'the connection itself',
  greeting: 'its greeting',
  id: 'its answer to ID',
  auth: 'its answer to the login',
}

const DEFAULT_MAX_FRAME_BYTES = 268_435_456
/** Answers of a handshake are small; a peer that announces more is not what it claims. */
const MAX_HANDSHAKE_FRAME_BYTES = 65_536
/** Frames from this size on arrive in pieces. */
const LARGE_FRAME_BYTES = 262_144
const NO_BYTES: Buffer = Buffer.alloc(0)
const NO_SALT: Uint8Array = new Uint8Array(0)
const NO_FEATURES: ReadonlySet<number> = new Set()
