import type { OrbweaverError, Reply, Request } from '@orbweaver/iproto'

/** Who is told how a request ends: exactly one of `done` and `failed`, once. The layers above are their own request objects. */
export interface ReplySink {
  /** The final answer, undecoded. */
  done(reply: Reply): void
  failed(error: OrbweaverError): void
  /** An out-of-band message of `box.session.push`, before the end. Without it pushes are dropped. */
  push?(reply: Reply): void
}

export interface SendOptions {
  /** Instant on the connection's clock; Infinity: none. */
  readonly deadline: number
  /** Nonzero: the stream the request belongs to. */
  readonly streamId?: number
  readonly signal?: AbortSignal
  /** Ties the request to one generation of the connection. */
  readonly pin?: SessionPin
}

/**
 * Ties requests to one session of the server: streams, prepared statements and vshard's refs live in it. With
 * `generation` undefined the first request that is written sets it; from then on requests of this pin fail with
 * `ConnectionLostError` (`executed: 'no'`) instead of being written on another generation.
 */
export interface SessionPin {
  generation: number | undefined
}

/** What the sender keeps of a request that is under way. */
export interface PendingRequest {
  /**
   * Ends the request now: its sink gets `failed(cause)` before this returns. What was written is not undone, and a late
   * answer is dropped. Does nothing after the end.
   */
  abandon(cause: OrbweaverError): void
  /** Whether it was handed to the transport: then the server may execute it. */
  readonly written: boolean
}

/** Where a request is in its life. It only moves forward, except that a request which was not written may wait again. */
export type PendingStage = 'waiting' | 'parked' | 'encoded' | 'written' | 'ended'

/** What a request asks of the connection that owns it. */
export interface PendingOwner {
  abandon(pending: Pending, cause: OrbweaverError): void
}

/** A request under way. Fields belong to the pipeline and the link; senders see `PendingRequest`. */
export class Pending implements PendingRequest {
  /** undefined once it is encoded. */
  request: Request | undefined
  readonly type: number
  readonly requestClass: Request['requestClass']
  readonly sink: ReplySink
  readonly deadline: number
  readonly streamId: number
  readonly signal: AbortSignal | undefined
  readonly pin: SessionPin | undefined
  stage: PendingStage = 'waiting'
  /** Stays true after the end. */
  written = false
  /** 0 until it is encoded. */
  sync = 0
  /** Size of its frame once encoded, of its body while it waits. */
  bytes = 0
  /** Where its frame begins among the bytes that were not handed over yet. */
  offset = 0
  /** How many schema refreshes had begun when it came: a name is missing for good only after one that began later. */
  schemaSeen = 0
  readonly #owner: PendingOwner

  constructor(owner: PendingOwner, request: Request, options: SendOptions, sink: ReplySink) {
    this.#owner = owner
    this.request = request
    this.type = request.type
    this.requestClass = request.requestClass
    this.sink = sink
    this.deadline = options.deadline
    this.streamId = options.streamId ?? 0
    this.signal = options.signal
    this.pin = options.pin
  }

  abandon(cause: OrbweaverError): void {
    this.#owner.abandon(this, cause)
  }
}
