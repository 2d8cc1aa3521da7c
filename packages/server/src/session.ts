import type { Transport } from '@orbweaver/connection'
import type { LargeFrame } from '@orbweaver/connection'
import type { FrameWriter } from '@orbweaver/iproto'

/**
 * One request as it arrived. Valid during the call, except `body`, which may be kept (it keeps the received chunk alive).
 * The sync stays in two halves of 32 bits: it may be any unsigned 64-bit value and is only ever echoed.
 */
export interface InboundFrame {
  readonly type: number
  readonly syncHigh: number
  readonly syncLow: number
  /** 0 when the request belongs to no stream. */
  readonly streamId: bigint | number
  /** undefined when the client did not ask for a check. */
  readonly schemaVersion: number | undefined
  /** Made when it is asked for: whoever needs only some of its bytes finds them in `bytes`. */
  readonly body: Buffer
  /** Memory in which the body is [bodyStart, bodyEnd). Other frames may be in it, and all of it stays as long as any part is kept. */
  readonly bytes: Buffer
  readonly bodyStart: number
  readonly bodyEnd: number
}

/** The server's side of one client's connection. */
export interface ClientSession {
  /** Unique in this server, from 1, never reused. */
  readonly id: number
  /** Who it is, for people: `127.0.0.1:41234`, or what the transport calls itself. */
  readonly peer: string
  /** The 32 bytes its greeting carried. */
  readonly salt: Uint8Array
  /** `guest` until a login succeeds. Setting another user lifts the frame limit to the one of logged-in sessions. */
  user: string
  /** What ID agreed on; empty before. */
  features: ReadonlySet<number>
  /**
   * Queues whole frames; everything queued in one turn of the loop is written together in `clock.soon`.
   * Chunks belong to the session from now on. After the session ended they are dropped.
   * @returns false when the peer reads slower than it asks: wait for `drain`
   */
  reply(chunks: readonly Uint8Array[]): boolean
  /**
   * The way for small replies, in memory that all sessions share: write a whole frame, end it, and say so by `written`. A frame
   * that is not ended in the same breath must be aborted.
   */
  writer(): FrameWriter
  /** @param bytes - what `end()` of the writer said @returns as `reply` */
  written(bytes: number): boolean
  /**
   * A whole frame that lies in memory received from elsewhere, [start, end) of `bytes`: copied when it is small.
   * @param isMoreComing - more replies are on their way to this session: this one may wait a turn of the loop for them
   * @returns as `reply`
   */
  forward(bytes: Buffer, start: number, end: number, isMoreComing: boolean): boolean
  /** Bytes queued or handed to the transport and not yet taken by the peer. */
  readonly pendingBytes: number
  /** Counts, so two callers may pause independently; frames already received are held too. */
  pauseReading(): void
  resumeReading(): void
  /** Ends the session behind what was replied so far. */
  close(): void
  /** Ends it now. */
  destroy(cause?: Error): void
}

/** What stands behind the sessions of a server: a storage, a proxy, or a front before one of them. */
export interface SessionHandler {
  /** What the greeting says. A rejection closes the connection without a greeting. */
  greet(transport: Transport): Promise<{ version: string; uuid: string; salt: Uint8Array }>
  /** Once per session, when it has been greeted and before its first frame. */
  opened?(session: ClientSession): void
  /** One request with an understood header. May throw: the session is then destroyed with that cause. */
  frame(session: ClientSession, frame: InboundFrame): void
  /** Called instead of `frame` for bodies above the size from which the server delivers in pieces. */
  largeFrame?(session: ClientSession, head: InboundFrame, bodyBytes: number): LargeFrame
  drain?(session: ClientSession): void
  /** Once per session, after which nothing else is called for it. */
  closed(session: ClientSession, cause: Error | undefined): void
}
