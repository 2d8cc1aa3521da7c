/*
 * One client's connection: bytes in, frames to the handler; replies gathered per turn of the loop and written once.
 * Everything a hostile or slow client could make grow is bounded here: partial frames by size and time, unread replies by
 * bytes and time, malformed frames by number.
 */
import type { Clock, Transport, TransportSink } from '@orbweaver/connection'
import {
  BoxError,
  ErrorCode,
  FrameHeader,
  FrameReader,
  FrameTooLargeError,
  type FrameWriter,
  formatGreeting,
  isOrbweaverError,
  MalformedFrameError,
  RequestType,
  writeErrorBody,
} from '@orbweaver/iproto'
import { Inbound } from './inbound.js'
import type { ServerLimits } from './limits.js'
import type { Flushed, FlushQueue } from './flush-queue.js'
import { ReplyBlock } from './reply-block.js'
import type { ReplyTaker, ReplyWriter } from './reply-writer.js'
import type { ClientSession, SessionHandler } from './session.js'
import { strangerOf } from './strangers.js'

export interface SessionOwner {
  readonly replies: ReplyWriter
  readonly flushes: FlushQueue
  readonly clock: Clock
  readonly limits: Required<ServerLimits>
  readonly handler: SessionHandler
  ended(session: SessionShell): void
}

/** How long a closed session waits for its peer to close too. */
const LINGER_MS = 1_000

/** How long the frames of one session may be handled before the others get their turn. */
const LONGEST_TURN_MS = 5
/** Requests that read and write single tuples, mostly: a look at the clock for each would cost more than they do. */
const QUICK = new Uint8Array(256)
for (const type of [
  RequestType.select,
  RequestType.insert,
  RequestType.replace,
  RequestType.update,
  RequestType.delete,
  RequestType.upsert,
  RequestType.ping,
])
  QUICK[type] = 1
const FRAMES_PER_LOOK = 8
const BYTES_PER_LOOK = 65_536

type Stage = 'greeting' | 'open' | 'closing' | 'ended'

export class SessionShell implements ClientSession, TransportSink, ReplyTaker, Flushed {
  readonly id: number
  readonly peer: string
  salt: Uint8Array = new Uint8Array(0)
  features: ReadonlySet<number> = new Set()

  readonly #owner: SessionOwner
  readonly #transport: Transport
  readonly #reader: FrameReader
  readonly #header = new FrameHeader()
  #user = 'guest'
  #stage: Stage = 'greeting'
  #outgoing: Uint8Array[] = []
  #outgoingBytes = 0
  /** Whole frames that came from elsewhere, copied together. */
  readonly #block = new ReplyBlock()
  flushDue: 0 | 1 | 2 = 0
  /** What the transport had not sent yet when this turn's first reply came: it can only have become less. */
  #unsentBytes = 0
  #isCongested = false
  /** Frames handled since the clock was looked at, and the bytes that waited then. */
  #unlooked = 0
  #lookedAtBytes = 0
  #pauses = 0
  #isReadingPaused = false
  /** Frames wait for the next turn of the loop. */
  #isTurnOver = false
  #malformed = 0
  #hasSpoken = false
  #isPeerDone = false
  #cancelFrameTimer: (() => void) | undefined
  #cancelStallTimer: (() => void) | undefined
  /** Bytes the peer still had to take when the stall timer was set: less than that means it moves. */
  #stalledAt = 0

  constructor(id: number, transport: Transport, owner: SessionOwner) {
    this.id = id
    this.peer = transport.peer
    this.#owner = owner
    this.#transport = transport
    this.#reader = new FrameReader({ maxFrameBytes: owner.limits.maxFrameBytesBeforeLogin })
  }

  /** Greets and starts to serve. */
  start(as: { user: string } | undefined): void {
    if (as !== undefined) this.user = as.user
    this.#transport.attach(this)
    const cancel = this.#owner.clock.schedule(this.#owner.limits.greetTimeoutMs, () =>
      this.destroy(new Error(`No greeting within ${this.#owner.limits.greetTimeoutMs} ms`)),
    )
    this.#owner.handler.greet(this.#transport).then(
      (greeting) => {
        cancel()
        if (this.#stage !== 'greeting') return
        this.salt = greeting.salt
        this.#stage = 'open'
        this.#transport.write([formatGreeting(greeting)])
        this.#owner.handler.opened?.(this)
        this.#deliver()
      },
      (cause: unknown) => {
        cancel()
        this.destroy(cause instanceof Error ? cause : new Error(`Greeting failed: ${String(cause)}`))
      },
    )
  }

  get user(): string {
    return this.#user
  }

  set user(name: string) {
    this.#user = name
    const limits = this.#owner.limits
    this.#reader.maxFrameBytes = name === 'guest' ? limits.maxFrameBytesBeforeLogin : limits.maxFrameBytes
  }

  get pendingBytes(): number {
    return this.#outgoingBytes + this.#transport.pendingBytes
  }

  reply(chunks: readonly Uint8Array[]): boolean {
    this.#owner.replies.collect(this)
    this.#block.moveTo(this.#outgoing)
    let bytes = 0
    for (const chunk of chunks) {
      this.#outgoing.push(chunk)
      bytes += chunk.length
    }
    return this.written(bytes)
  }

  forward(bytes: Buffer, start: number, end: number, isMoreComing: boolean): boolean {
    this.#owner.replies.collect(this)
    this.#block.append(bytes, start, end, this.#outgoing)
    return this.#queued(end - start, isMoreComing && this.#outgoingBytes < MAX_WAITING_BYTES)
  }

  writer(): FrameWriter {
    return this.#owner.replies.of(this)
  }

  taken(chunks: readonly Uint8Array[]): void {
    this.#block.moveTo(this.#outgoing)
    for (const chunk of chunks) this.#outgoing.push(chunk)
  }

  written(bytes: number): boolean {
    return this.#queued(bytes, false)
  }

  #queued(bytes: number, mayWait: boolean): boolean {
    if (this.#stage === 'ended' || this.#stage === 'closing') {
      this.#dropOutgoing()
      return true
    }
    this.#outgoingBytes += bytes
    const { flushes, limits } = this.#owner
    if (this.flushDue === 0) this.#unsentBytes = this.#transport.pendingBytes
    if (mayWait) flushes.later(this)
    else flushes.soon(this)
    if (!this.#isCongested && this.#outgoingBytes + this.#unsentBytes > limits.maxPendingBytes) {
      this.#isCongested = true
      this.#updateReading()
      this.#watchStall()
    }
    return !this.#isCongested
  }

  pauseReading(): void {
    this.#pauses++
    this.#updateReading()
  }

  resumeReading(): void {
    if (this.#pauses === 0) return
    this.#pauses--
    this.#updateReading()
  }

  close(): void {
    if (this.#stage === 'ended' || this.#stage === 'closing') return
    this.flush()
    this.#stage = 'closing'
    this.#cancelFrameTimer?.()
    this.#cancelStallTimer?.()
    // Reading goes on, into nothing: the peer's end of the connection is seen only behind what it still sends.
    this.#updateReading()
    this.#transport.end()
    this.#cancelStallTimer = this.#owner.clock.schedule(LINGER_MS, () => this.destroy())
  }

  destroy(cause?: Error): void {
    if (this.#stage === 'ended') return
    this.#transport.destroy(cause)
    this.#finish(cause)
  }

  // ---- what the transport says -------------------------------------------------------------------------------------

  data(chunk: Buffer): void {
    if (this.#stage === 'ended' || this.#stage === 'closing') return
    if (!this.#hasSpoken) {
      this.#hasSpoken = true
      const stranger = strangerOf(chunk)
      if (stranger !== undefined) {
        this.destroy(new Error(`${this.peer} seems to be ${stranger}`))
        return
      }
    }
    this.#reader.push(chunk)
    this.#deliver()
  }

  drain(): void {
    if (this.#stage === 'ended' || this.#stage === 'closing') return
    this.#watchStall()
    if (!this.#relieve()) this.#owner.handler.drain?.(this)
  }

  /** The client writes no more: what it sent completely was handed on; answers that are ready still go out. */
  end(): void {
    if (this.#stage === 'ended') return
    this.#isPeerDone = true
    this.#owner.clock.soon(() => this.#closeWhenDelivered())
  }

  closed(cause: Error | undefined): void {
    this.#finish(cause)
  }

  // ---- inside -------------------------------------------------------------------------------------------------------

  #deliver(): void {
    if (this.#isTurnOver) return
    const { clock } = this.#owner
    const turnEnds = clock.now() + LONGEST_TURN_MS
    while (this.#stage === 'open' && !this.#isReadingPaused) {
      let isWhole: boolean
      try {
        isWhole = this.#reader.advance()
      } catch (error) {
        this.#refuseStream(error)
        return
      }
      if (!isWhole) break
      if (this.#cancelFrameTimer !== undefined) {
        this.#cancelFrameTimer()
        this.#cancelFrameTimer = undefined
      }
      this.#frame(this.#reader.bytes, this.#reader.start, this.#reader.end)
      if (++this.#unlooked < FRAMES_PER_LOOK && !this.#mayTakeLong()) continue
      this.#unlooked = 0
      this.#lookedAtBytes = this.#outgoingBytes
      if (clock.now() < turnEnds) continue
      // The others' turn: what one client has sent ahead must not hold up everybody.
      this.#isTurnOver = true
      clock.soon(() => {
        this.#isTurnOver = false
        this.#deliver()
      })
      return
    }
    this.#watchPartialFrame()
    if (this.#isPeerDone && this.#stage === 'open') this.#closeWhenDelivered()
  }

  /** Whether the frame just handled may have taken so long that the clock must be looked at: code runs, or much was read. */
  #mayTakeLong(): boolean {
    return QUICK[this.#header.type] !== 1 || this.#outgoingBytes - this.#lookedAtBytes > BYTES_PER_LOOK
  }

  #frame(bytes: Buffer, start: number, end: number): void {
    const header = this.#header
    try {
      header.read(bytes, start, end)
    } catch (error) {
      // Its sync is not known, so it can be told only with sync 0; the frame's end is known, so the connection stays.
      this.#malformed++
      this.#refuse(error)
      if (this.#malformed >= this.#owner.limits.maxMalformedFrames) this.close()
      return
    }
    try {
      this.#owner.handler.frame(this, new Inbound(bytes, header))
    } catch (error) {
      this.destroy(error instanceof Error ? error : new Error(`Request failed: ${String(error)}`))
    }
  }

  /** The end of a frame is not known any more: an error with sync 0, then the end, as Tarantool does. */
  #refuseStream(error: unknown): void {
    this.#refuse(error)
    this.close()
  }

  #refuse(error: unknown): void {
    if (!(error instanceof MalformedFrameError || error instanceof FrameTooLargeError || isOrbweaverError(error)))
      throw error
    const writer = this.writer()
    writer.beginReply(RequestType.errorFlag | ErrorCode['invalidMsgpack'], 0, 0, 1)
    writeErrorBody(writer, BoxError.of(ErrorCode['invalidMsgpack'], `Invalid MsgPack - ${error.message}`))
    this.written(writer.end())
  }

  flush(): void {
    this.flushDue = 0
    this.#owner.replies.collect(this)
    this.#block.moveTo(this.#outgoing)
    if (this.#outgoing.length === 0 || this.#stage === 'ended') return
    const chunks = this.#outgoing
    this.#outgoing = []
    this.#outgoingBytes = 0
    if (!this.#transport.write(joined(chunks))) this.#watchStall()
    // The system may have taken all of it at once: then no drain will come to say so.
    else if (this.#isCongested) this.#awaitRelief()
  }

  #dropOutgoing(): void {
    this.#owner.replies.collect(this)
    this.#block.drop()
    this.#outgoing = []
    this.#outgoingBytes = 0
  }

  #awaitRelief(): void {
    this.#owner.clock.soon(() => {
      if (!this.#isCongested || this.#stage === 'ended' || this.#relieve()) return
      this.#owner.clock.schedule(RELIEF_POLL_MS, () => this.#awaitRelief())
    })
  }

  /** Reads on when the peer has taken enough. @returns whether it does now */
  #relieve(): boolean {
    if (!this.#isCongested || this.pendingBytes > this.#owner.limits.maxPendingBytes / 2) return false
    this.#isCongested = false
    this.#updateReading()
    this.#owner.handler.drain?.(this)
    return true
  }

  /** Whole frames that wait because reading is paused were sent before the end: they are handed on first. */
  #closeWhenDelivered(): void {
    if (!this.#isReadingPaused || this.#reader.bufferedBytes === 0) this.close()
  }

  #updateReading(): void {
    const isPaused = this.#stage !== 'closing' && (this.#pauses > 0 || this.#isCongested)
    if (isPaused === this.#isReadingPaused || this.#stage === 'ended') return
    this.#isReadingPaused = isPaused
    if (isPaused) {
      this.#transport.pauseReading()
      return
    }
    this.#transport.resumeReading()
    // Frames already received wait in the reader; not from within the caller's frame, which would reorder them.
    this.#owner.clock.soon(() => this.#deliver())
  }

  #watchPartialFrame(): void {
    if (this.#stage !== 'open' || this.#isReadingPaused || this.#reader.bufferedBytes === 0) {
      this.#cancelFrameTimer?.()
      this.#cancelFrameTimer = undefined
      return
    }
    const { frameTimeoutMs } = this.#owner.limits
    this.#cancelFrameTimer ??= this.#owner.clock.schedule(frameTimeoutMs, () =>
      this.destroy(new Error(`${this.peer} left a frame incomplete for ${frameTimeoutMs} ms`)),
    )
  }

  #watchStall(): void {
    this.#cancelStallTimer?.()
    this.#cancelStallTimer = undefined
    const pending = this.pendingBytes
    if (pending === 0) return
    this.#stalledAt = pending
    const { stallTimeoutMs } = this.#owner.limits
    this.#cancelStallTimer = this.#owner.clock.schedule(stallTimeoutMs, () => {
      const left = this.pendingBytes
      if (left > 0 && left < this.#stalledAt) this.#watchStall()
      else this.destroy(new Error(`${this.peer} took none of ${left} waiting bytes for ${stallTimeoutMs} ms`))
    })
  }

  #finish(cause: Error | undefined): void {
    if (this.#stage === 'ended') return
    this.#stage = 'ended'
    this.#cancelFrameTimer?.()
    this.#cancelStallTimer?.()
    this.#dropOutgoing()
    this.#owner.handler.closed(this, cause)
    this.#owner.ended(this)
  }
}

/**
 * Many small replies as few chunks: a chunk costs the system more than copying it does.
 * Chunks above a size go on as they are.
 */
function joined(chunks: readonly Uint8Array[]): readonly Uint8Array[] {
  if (chunks.length < 3) return chunks
  const result: Uint8Array[] = []
  let run: Uint8Array[] = []
  let runBytes = 0
  const endRun = (): void => {
    if (run.length === 1) result.push(run[0]!)
    else if (run.length > 1) result.push(Buffer.concat(run, runBytes))
    run = []
    runBytes = 0
  }
  for (const chunk of chunks) {
    if (chunk.length > MAX_COPIED_BYTES) {
      endRun()
      result.push(chunk)
    } else {
      run.push(chunk)
      runBytes += chunk.length
    }
  }
  endRun()
  return result
}

/** From this size on, replies do not wait for others on their way. */
const MAX_WAITING_BYTES = 16_384
/** How often a peer that takes its replies, but has not taken enough, is looked at. */
const RELIEF_POLL_MS = 20
/** Up to this size a reply is copied rather than passed on by itself. */
const MAX_COPIED_BYTES = 4_096
