/*
 * Streams of one client. Their numbers are the client's own and two clients may choose the same, so each gets a number of the
 * lane it runs on, and stays on that lane as long as it may hold a transaction.
 *
 * The dangerous corner: a server answers OK to COMMIT in a stream that has no transaction. If a stream's lane was lost and its
 * later requests were simply sent over another one, a client would be told that a transaction was committed of which nothing
 * is left, and its statements would be committed one by one. So a stream that lost its lane is BROKEN: nothing of it reaches a
 * target until the client has heard of the loss.
 */
import type { Clock } from '@orbweaver/connection'
import { type BoxError, ErrorCode, type OrbweaverError, RequestType } from '@orbweaver/iproto'
import type { Lane, LaneAnswer, LaneStream, LaneUser } from './lane.js'
import { proxyErrors } from './errors.js'
import type { QueuedRequest, ReplyNote } from './request-queue.js'
import { startsTransaction, statementText } from './routing.js'

/** `maybe`: code has run in the stream that may have begun a transaction by itself. */
type TransactionState = 'none' | 'open' | 'maybe' | 'broken'

export interface StreamsHost {
  readonly clock: Clock
  readonly idleInTransactionMs: number
  /** A stream can go on that could not before. */
  streamReady(): void
  /** One more stream lost what it held. */
  streamBroken(): void
}

/** What to do with a request of a stream. */
export type StreamVerdict =
  | { readonly do: 'answer'; readonly error: BoxError | undefined }
  /** On this lane, or on any when undefined. */
  | { readonly do: 'send'; readonly lane: Lane | undefined }
  | { readonly do: 'wait' }

export class ClientStreams {
  readonly #host: StreamsHost
  readonly #streams = new Map<bigint | number, Stream>()

  constructor(host: StreamsHost) {
    this.#host = host
  }

  get size(): number {
    return this.#streams.size
  }

  /** Whether a stream has requests in flight or may hold a transaction. */
  get isBusy(): boolean {
    for (const stream of this.#streams.values()) if (stream.state !== 'broken') return true
    return false
  }

  /**
   * Whether this request may go on while the gate is closed: it belongs to a transaction that was begun before, which has to
   * come to its end for the gate to open. A new BEGIN has to wait.
   */
  passesGate(request: QueuedRequest): boolean {
    return request.type !== RequestType.begin && this.#streams.get(request.streamId)?.mayBeTransaction === true
  }

  judge(request: QueuedRequest): StreamVerdict {
    const stream = this.#streams.get(request.streamId)
    if (stream === undefined) return ANY_LANE
    if (stream.isProbing) return WAIT
    if (stream.state === 'broken') return this.#judgeBroken(stream, request)
    return { do: 'send', lane: stream.lane }
  }

  /** The request goes out on `lane` in this turn: gives it its number there and follows its answer. */
  bind(request: QueuedRequest, lane: Lane): void {
    let stream = this.#streams.get(request.streamId)
    if (stream === undefined) {
      stream = new Stream(request.streamId, lane, this.#host, (ended) => this.#streams.delete(ended.clientId))
      this.#streams.set(request.streamId, stream)
    }
    request.laneStreamId = stream.laneStreamId
    request.note = stream.follow(request, request.note)
  }

  /** Finds out whether streams that ran code hold a transaction; called when somebody waits for the answer. */
  probe(): void {
    for (const stream of this.#streams.values()) stream.probe()
  }

  /** The client has gone: what it left open is rolled back. */
  abandon(): void {
    for (const stream of this.#streams.values()) stream.rollBack()
    this.#streams.clear()
  }

  #judgeBroken(stream: Stream, request: QueuedRequest): StreamVerdict {
    const error = proxyErrors.streamBroken(stream.whyBroken)
    switch (request.type) {
      case RequestType.rollback:
        this.#streams.delete(stream.clientId)
        return { do: 'answer', error: undefined }
      case RequestType.commit:
        this.#streams.delete(stream.clientId)
        return { do: 'answer', error }
      case RequestType.begin:
        this.#streams.delete(stream.clientId)
        return ANY_LANE
      default:
        return { do: 'answer', error }
    }
  }
}

class Stream implements LaneStream, LaneUser {
  readonly clientId: bigint | number
  readonly lane: Lane
  readonly laneStreamId: number
  readonly #host: StreamsHost
  readonly #onEnd: (stream: Stream) => void
  #state: TransactionState = 'none'
  #inFlight = 0
  #beginsInFlight = 0
  #whyBroken = ''
  #cancelTimer: (() => void) | undefined
  /** A request of the proxy's own is in flight in this stream. */
  #asking: 'probe' | 'rollback' | undefined

  constructor(clientId: bigint | number, lane: Lane, host: StreamsHost, onEnd: (stream: Stream) => void) {
    this.clientId = clientId
    this.lane = lane
    this.laneStreamId = lane.newStreamId()
    this.#host = host
    this.#onEnd = onEnd
    lane.streams.add(this)
  }

  get state(): TransactionState {
    return this.#state
  }

  get isTransaction(): boolean {
    return this.#state === 'open' || this.#state === 'maybe'
  }

  /** Open, or about to be: what begins one is in flight. Also broken: its requests are answered here. */
  get mayBeTransaction(): boolean {
    return this.#state !== 'none' || this.#beginsInFlight > 0
  }

  get isProbing(): boolean {
    return this.#asking === 'probe'
  }

  get whyBroken(): string {
    return this.#whyBroken
  }

  follow(request: QueuedRequest, next: ReplyNote | undefined): ReplyNote {
    this.#inFlight++
    this.#stopTimer()
    const effect = effectOf(request)
    const begins = effect === 'begins' || effect === 'unsure' ? 1 : 0
    this.#beginsInFlight += begins
    return {
      answered: (status, frame) => {
        next?.answered(status, frame)
        this.#inFlight--
        this.#beginsInFlight -= begins
        if (this.#state !== 'broken') this.#apply(effect, status)
        this.#settle()
      },
      lost: () => {
        next?.lost()
        this.#inFlight--
        this.#beginsInFlight -= begins
      },
    }
  }

  laneLost(cause: OrbweaverError): void {
    this.#break(`its connection to the target was lost: ${cause.message}`)
  }

  /** Asks the target whether there is a transaction: BEGIN fails with 79 if there is. */
  probe(): void {
    if (this.#state !== 'maybe' || this.#inFlight > 0 || this.#asking !== undefined || this.lane.isClosed) return
    this.#stopTimer()
    this.#ask('probe', RequestType.begin)
  }

  rollBack(): void {
    this.#stopTimer()
    if (this.#state === 'broken' || this.lane.isClosed) return
    if (this.#state === 'none' && this.#inFlight === 0) {
      this.#end()
      return
    }
    this.#ask('rollback', RequestType.rollback)
  }

  // ---- answers to the proxy's own requests ----------------------------------------------------------------------------

  replied(_frame: Buffer, answer: LaneAnswer): void {
    const asked = this.#asking
    this.#asking = undefined
    if (asked === 'probe') {
      const code = answer.status & (RequestType.errorFlag - 1)
      if (answer.status === RequestType.ok) {
        this.#ask('rollback', RequestType.rollback)
      } else {
        // 79: it is open. Anything else is no answer to the question: what may be open counts as open.
        this.#state = code === ErrorCode.activeTransaction ? 'open' : 'maybe'
        this.#watchIdle()
      }
    } else if (this.#state === 'broken') {
      this.lane.streamEnded(this)
    } else {
      this.#state = 'none'
      this.#settle()
    }
    this.#host.streamReady()
  }

  repliedLarge(): undefined {
    return undefined
  }

  lost(): void {
    this.#asking = undefined
  }

  // ---- inside -----------------------------------------------------------------------------------------------------------

  #apply(effect: Effect, status: number): void {
    if (effect === 'begins' && status === RequestType.ok) this.#state = 'open'
    else if (effect === 'ends') this.#state = 'none'
    // Code may end a transaction as well as begin one.
    else if (effect === 'unsure') this.#state = 'maybe'
  }

  /** After an answer: a stream without requests and without a transaction is nothing, here as on the server. */
  #settle(): void {
    if (this.#inFlight > 0 || this.#asking !== undefined) return
    if (this.#state === 'none') this.#end()
    else if (this.#state === 'maybe') this.#cancelTimer = this.#host.clock.schedule(PROBE_AFTER_MS, () => this.probe())
    else this.#watchIdle()
  }

  #watchIdle(): void {
    if (this.#state === 'broken') return
    const { clock, idleInTransactionMs } = this.#host
    this.#stopTimer()
    this.#cancelTimer = clock.schedule(idleInTransactionMs, () => {
      this.#ask('rollback', RequestType.rollback)
      this.#break(`no request came in it for ${idleInTransactionMs} ms`)
    })
  }

  #ask(what: 'probe' | 'rollback', type: number): void {
    if (this.lane.isClosed) return
    this.#asking = what
    this.lane.ask({ type, body: EMPTY_BODY, streamId: this.laneStreamId, isRw: true }, this)
  }

  #break(why: string): void {
    this.#stopTimer()
    if (this.#state === 'broken') return
    this.#state = 'broken'
    this.#whyBroken = why
    this.#host.streamBroken()
    this.#host.streamReady()
  }

  #end(): void {
    this.lane.streamEnded(this)
    this.#onEnd(this)
  }

  #stopTimer(): void {
    this.#cancelTimer?.()
    this.#cancelTimer = undefined
  }
}

/** What an answered request means for the transaction of its stream. */
type Effect = 'begins' | 'ends' | 'unsure' | 'nothing'

function effectOf(request: QueuedRequest): Effect {
  switch (request.type) {
    case RequestType.begin:
      return 'begins'
    case RequestType.commit:
    case RequestType.rollback:
      return 'ends'
    case RequestType.execute: {
      const text = statementText(request.body)
      return text !== undefined && startsTransaction(text) ? 'begins' : 'unsure'
    }
    case RequestType.call:
    case RequestType.call16:
    case RequestType.eval:
      return 'unsure'
    default:
      return 'nothing'
  }
}

const ANY_LANE: StreamVerdict = { do: 'send', lane: undefined }
const WAIT: StreamVerdict = { do: 'wait' }
const EMPTY_BODY: Uint8Array = Uint8Array.of(0x80)
/** How long a stream that ran code may be idle before it is asked whether it holds a transaction. */
const PROBE_AFTER_MS = 1_000
