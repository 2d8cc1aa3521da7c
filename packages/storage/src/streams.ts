/*
 * Streams of one session: requests with one stream id run strictly one after another, and may hold a transaction between
 * them. The transaction is out of sight while no request of its stream runs.
 */
import type { ClientSession, InboundFrame } from '@orbweaver/server'
import type { Clock } from '@orbweaver/connection'
import type { Engine } from './engine/engine.js'
import { Transaction } from './engine/transaction.js'
import { boxErrors } from './errors.js'

/** Streams with a request or a transaction, of one session. */
const MAX_STREAMS = 10_000
/** Requests waiting in one stream. */
const MAX_QUEUE = 100_000

interface Stream {
  readonly queue: InboundFrame[]
  isBusy: boolean
  transaction: Transaction | undefined
  /** The transaction ended by itself; every further statement and the next COMMIT say so, then the stream is clean. */
  isTimedOut: boolean
  cancelTimeout: (() => void) | undefined
}

export class SessionStreams {
  readonly #streams = new Map<number | bigint, Stream>()
  readonly #engine: Engine
  readonly #clock: Clock

  constructor(engine: Engine, clock: Clock) {
    this.#engine = engine
    this.#clock = clock
  }

  /**
   * Takes a request into its stream and runs it when its turn comes.
   * @param run - handles one request; its promise ends the turn
   * @throws BoxError 1 when the session has too many streams or requests in one
   */
  enter(
    session: ClientSession,
    frame: InboundFrame,
    run: (frame: InboundFrame, stream: StreamTurn) => void | Promise<void>,
  ): void {
    let stream = this.#streams.get(frame.streamId)
    if (stream === undefined) {
      if (this.#streams.size >= MAX_STREAMS)
        throw boxErrors.illegalParams(`A session may use ${MAX_STREAMS} streams at a time`)
      stream = emptyStream()
      this.#streams.set(frame.streamId, stream)
    }
    if (stream.queue.length >= MAX_QUEUE)
      throw boxErrors.illegalParams(`${MAX_QUEUE} requests wait in stream ${frame.streamId}`)
    stream.queue.push(frame)
    if (!stream.isBusy) void this.#drain(session, frame.streamId, stream, run)
  }

  /** Rolls back what the session left open. */
  end(): void {
    for (const stream of this.#streams.values()) {
      stream.cancelTimeout?.()
      stream.queue.length = 0
      // A busy stream rolls back when its request has ended: it finds itself forgotten then.
      if (stream.transaction !== undefined && !stream.isBusy) this.#engine.rollback(stream.transaction)
    }
    this.#streams.clear()
  }

  async #drain(
    session: ClientSession,
    id: number | bigint,
    stream: Stream,
    run: (frame: InboundFrame, turn: StreamTurn) => void | Promise<void>,
  ): Promise<void> {
    stream.isBusy = true
    for (let frame = stream.queue.shift(); frame !== undefined; frame = stream.queue.shift()) {
      const pending = run(frame, new StreamTurn(this.#engine, this.#clock, stream))
      if (pending !== undefined) await pending
    }
    stream.isBusy = false
    if (stream.transaction !== undefined && this.#streams.get(id) !== stream) {
      // The session ended while the request ran.
      this.#engine.rollback(stream.transaction)
      stream.transaction = undefined
    }
    if (stream.transaction === undefined && !stream.isTimedOut && this.#streams.get(id) === stream)
      this.#streams.delete(id)
  }
}

function emptyStream(): Stream {
  return { queue: [], isBusy: false, transaction: undefined, isTimedOut: false, cancelTimeout: undefined }
}

/** One request's hold on its stream. */
export class StreamTurn {
  readonly #engine: Engine
  readonly #clock: Clock
  readonly #stream: Stream

  constructor(engine: Engine, clock: Clock, stream: Stream) {
    this.#engine = engine
    this.#clock = clock
    this.#stream = stream
  }

  /** For a call outside any stream: a stream that nobody else has, and that ends with the call. */
  static ofCall(engine: Engine, clock: Clock): StreamTurn {
    return new StreamTurn(engine, clock, emptyStream())
  }

  /** A transaction was begun, and neither committed nor rolled back; its timeout may have ended it. */
  get hasTransaction(): boolean {
    return this.#stream.transaction !== undefined || this.#stream.isTimedOut
  }

  /** @throws BoxError 79 */
  begin(timeoutMs: number): void {
    const stream = this.#stream
    if (stream.transaction !== undefined) throw boxErrors.activeTransaction()
    stream.isTimedOut = false
    const transaction = new Transaction({ isInteractive: true })
    transaction.suspend()
    stream.transaction = transaction
    if (timeoutMs > 0) {
      stream.cancelTimeout = this.#clock.schedule(timeoutMs, () => {
        if (stream.transaction !== transaction) return
        this.#engine.rollback(transaction)
        stream.transaction = undefined
        stream.isTimedOut = true
      })
    }
  }

  /** The open transaction, in sight; call `leave` when the statement is done. @throws BoxError 231, 97 */
  enter(): Transaction | undefined {
    if (this.#stream.isTimedOut) throw boxErrors.transactionTimeout()
    const { transaction } = this.#stream
    try {
      transaction?.resume()
    } catch (error) {
      this.#forget()
      throw error
    }
    return transaction
  }

  leave(): void {
    this.#stream.transaction?.suspend()
  }

  /** @throws BoxError 231, 97; the transaction is over in any case */
  commit(): void {
    const { transaction, isTimedOut } = this.#stream
    this.#forget()
    if (isTimedOut) {
      this.#stream.isTimedOut = false
      throw boxErrors.transactionTimeout()
    }
    if (transaction === undefined) return
    transaction.resume()
    this.#engine.commit(transaction)
  }

  rollback(): void {
    const { transaction } = this.#stream
    this.#forget()
    this.#stream.isTimedOut = false
    if (transaction !== undefined) this.#engine.rollback(transaction)
  }

  #forget(): void {
    this.#stream.cancelTimeout?.()
    this.#stream.cancelTimeout = undefined
    this.#stream.transaction = undefined
  }
}
