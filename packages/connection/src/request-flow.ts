/**
 * The way of requests through a connection: encoded when they are sent (the caller may change its arguments afterwards),
 * all of one turn of the event loop handed over in one write, and ended exactly once. Whether a connection exists is
 * decided elsewhere (`link.ts`); this part is told the mode and the channel.
 */
import {
  Feature,
  FEATURE_OF_REQUEST,
  FrameWriter,
  InvalidArgumentError,
  type OrbweaverError,
  type Request,
  RequestType,
} from '@orbweaver/iproto'
import { AbortListeners } from './aborts.js'
import type { FrameChannel } from './channel.js'
import type { Clock } from './clock.js'
import { cutRanges } from './cut-ranges.js'
import { DeadlineSweep } from './deadline-sweep.js'
import { isRequestTraced, traceRequest } from './diagnostics.js'
import {
  ConnectionClosedError,
  ConnectionLostError,
  QueueFullError,
  RequestAbortedError,
  RequestTimeoutError,
} from './errors.js'
import { abortedError, asOrbweaverError, requestName, SharedFate, timeoutError } from './fate.js'
import { frozenRequest, LateRequest, type PeerView, requireFeature } from './late-request.js'
import { Pending, type PendingOwner, type PendingRequest, type ReplySink, type SendOptions } from './pending.js'
import { Pipeline, type PipelineLimits } from './pipeline.js'
import { surface } from './surface.js'

/**
 * What may be written: nothing; everything; what was taken before but nothing new (closing); only what belongs to this
 * session (the server is about to leave).
 */
export type FlowMode = 'down' | 'open' | 'finishing' | 'leaving'

/** What the flow needs of the connection. */
export interface FlowHost extends PeerView {
  readonly generation: number
  /** Why a request is not even kept waiting in this state; undefined: it may wait. */
  refusal(): OrbweaverError | undefined
  /** Why requests wait, in words, and the failure behind it if there is one. */
  obstacle(): { readonly words: string; readonly cause: OrbweaverError | undefined }
  /** Requests wait for the schema. */
  schemaWanted(): void
  /** A request ended. */
  settled(): void
}

/** How requests ended, by reason. Law: accepted = queued + inFlight + the sum of these. */
export interface EndedCounts {
  answered: number
  refused: number
  timedOut: number
  aborted: number
  lost: number
  closed: number
  /** Abandoned by the layer above, refused by the queue, not encodable, or not possible on this server. */
  other: number
}

export class RequestFlow implements PendingOwner {
  readonly ended: EndedCounts = { answered: 0, refused: 0, timedOut: 0, aborted: 0, lost: 0, closed: 0, other: 0 }
  accepted = 0
  writes = 0
  bytesWritten = 0
  lateAnswers = 0
  readonly #host: FlowHost
  readonly #clock: Clock
  readonly #pipeline: Pipeline
  readonly #writer = new FrameWriter()
  readonly #aborts: AbortListeners
  readonly #sweep: DeadlineSweep
  #mode: FlowMode = 'down'
  #channel: FrameChannel | undefined
  /** The transport said stop; `drain` will follow. */
  #isBlocked = false
  /** Whether what waits may be written now, and whether what is new may. Follow from mode, channel and `#isBlocked`. */
  #isWritable = false
  #isAccepting = false
  /** Encoded and not handed over yet, in order. */
  #unflushed: Pending[] = []
  /** Among them, those that ended before they left: their bytes are cut out. */
  #cuts: Pending[] = []
  #isFlushDue = false
  /** Requests that fail at the next flush: nobody is called back before `send` returns. */
  #failures: { readonly pending: Pending; readonly error: OrbweaverError }[] = []

  constructor(host: FlowHost, clock: Clock, limits: PipelineLimits) {
    this.#host = host
    this.#clock = clock
    this.#pipeline = new Pipeline(limits)
    this.#aborts = new AbortListeners(
      (pending, reason) => this.#abortedBy(pending, reason),
      (task) => clock.soon(task),
    )
    this.#sweep = new DeadlineSweep(clock, (nowMs) => this.#endOverdue(nowMs))
  }

  get counts(): Readonly<Pick<Pipeline, 'inFlight' | 'inFlightBytes' | 'late' | 'queued' | 'queuedBytes'>> {
    return this.#pipeline
  }

  /** Whether somebody waits for an answer, or for an error that is on its way. */
  get isBusy(): boolean {
    return this.#pipeline.inFlight > 0 || this.#failures.length > 0
  }

  /** See `Connection.send`. */
  send(request: Request, options: SendOptions, sink: ReplySink): PendingRequest {
    this.accepted += 1
    const { name: peer, schema } = this.#host
    const told = isRequestTraced()
      ? traceRequest({ peer, type: request.type, streamId: options.streamId ?? 0 }, sink)
      : sink
    const pending = new Pending(this, request, options, told)
    pending.schemaSeen = schema.begun
    const { signal } = pending
    if (signal !== undefined) {
      if (signal.aborted) {
        this.#failSoon(pending, abortedError(request.type, signal.reason, false))
        return pending
      }
      this.#aborts.add(signal, pending)
    }
    if (this.#sweep.isOver(pending.deadline)) {
      this.#failSoon(pending, timeoutError(pending, peer, 'its deadline had passed', undefined))
      return pending
    }
    const mayGo = this.#isAccepting && this.#pipeline.sendable === 0 && this.#pipeline.hasRoom
    const isTaken = mayGo && !this.#mustFollowParked(pending) ? this.#encode(pending) : this.#wait(pending)
    if (isTaken) this.#sweep.watch(pending.deadline)
    return pending
  }

  /** Writes a request that has no reply (WATCH, UNWATCH) under a sync of its own; nothing without a channel. */
  tell(request: Request, sync: number): void {
    if (this.#channel === undefined) return
    this.#writer.request(request, sync)
    this.#scheduleFlush()
  }

  abandon(pending: Pending, cause: OrbweaverError): void {
    if (!this.#settle(pending)) return
    this.ended.other += 1
    this.#fail(pending, cause)
  }

  // ---- told by the connection

  setMode(mode: FlowMode): void {
    this.#mode = mode
    this.#updateWritable()
  }

  /** A channel is up; what waits follows at the end of this turn. */
  begin(channel: FrameChannel): void {
    this.#channel = channel
    this.#isBlocked = false
    this.#updateWritable()
    this.#scheduleFlush()
  }

  /** The transport takes more again. */
  drain(): void {
    this.#isBlocked = false
    this.#updateWritable()
    this.#scheduleFlush()
  }

  /** The channel is gone. What waits goes on waiting; what was in flight is for `failInFlight`. */
  end(): void {
    this.#channel = undefined
    this.#updateWritable()
    this.#writer.take()
    this.#unflushed = []
    this.#cuts = []
    // Requests that wait for the schema were never sent: the next connection resolves them anew.
    for (const pending of this.#pipeline.takeParked()) {
      pending.schemaSeen = this.#host.schema.begun
      if (!this.#pipeline.enqueue(pending, pending.bytes)) this.#failSoon(pending, this.#queueFull())
    }
  }

  failInFlight(cause: OrbweaverError): void {
    const taken = this.#pipeline.takeInFlight()
    for (const pending of taken) {
      pending.stage = 'ended'
      if (pending.signal !== undefined) this.#aborts.remove(pending.signal, pending)
    }
    this.#failAll(taken, cause)
  }

  failWaiting(cause: OrbweaverError): void {
    this.#failAll(
      this.#pipeline.takeQueued().filter((pending) => this.#settle(pending)),
      cause,
    )
  }

  /** The schema was refreshed: requests that waited for it go on. */
  schemaLoaded(): void {
    for (const pending of this.#pipeline.takeParked()) this.#resume(pending)
    this.#scheduleFlush()
  }

  /** The schema could not be refreshed: requests that waited for it fail. */
  schemaFailed(error: OrbweaverError): void {
    for (const pending of this.#pipeline.takeParked()) {
      if (!this.#settle(pending)) continue
      this.ended.other += 1
      this.#fail(pending, error)
    }
  }

  /** No timer is left behind. */
  stop(): void {
    this.#sweep.stop()
  }

  /** Whether the timer of the deadlines keeps the process alive. */
  hold(ref: boolean): void {
    this.#sweep.hold(ref)
  }

  // ---- told by the frames that come in

  /** The request with this number, if somebody waits for it. */
  find(sync: number): Pending | undefined {
    return this.#pipeline.find(sync)
  }

  /** The final answer of a request came; telling its sink is the caller's. */
  answered(pending: Pending): void {
    this.#pipeline.release(pending)
    pending.stage = 'ended'
    if (pending.signal !== undefined) this.#aborts.remove(pending.signal, pending)
    if (this.#pipeline.sendable > 0) this.#scheduleFlush()
    this.#host.settled()
  }

  /** Whether the number is that of a request that ended early. */
  isLate(sync: number): boolean {
    return this.#pipeline.isLate(sync)
  }

  /** The answer of a request that ended early came: its number and its room are free. */
  lateAnswer(sync: number): void {
    this.lateAnswers += 1
    this.#pipeline.releaseLate(sync)
    if (this.#pipeline.sendable > 0) this.#scheduleFlush()
  }

  // ---- out

  /** Encodes it, or parks it until the schema is known. @returns false when it is refused: it fails at the next flush */
  #encode(pending: Pending): boolean {
    const request = pending.request
    if (request === undefined) return false
    const writer = this.#writer
    const offset = writer.pendingBytes
    try {
      const ready = this.#ready(pending, request)
      if (ready === undefined) return this.#park(pending, request)
      const sync = this.#pipeline.nextSync()
      const schemaVersion = request instanceof LateRequest ? request.schemaVersion : 0
      const bytes = writer.request(ready, sync, pending.streamId, schemaVersion)
      this.#pipeline.occupy(pending, sync, bytes)
    } catch (error) {
      return this.#failSoon(pending, asOrbweaverError(error))
    }
    pending.request = undefined
    pending.offset = offset
    pending.stage = 'encoded'
    this.#unflushed.push(pending)
    if (!this.#isFlushDue) this.#scheduleFlush()
    return true
  }

  /** The request in the form this peer takes; undefined: the schema must come first. @throws what refuses it before it is sent */
  #ready(pending: Pending, request: Request): Request | undefined {
    if (pending.pin !== undefined) this.#checkPin(pending.pin)
    if (pending.streamId !== 0) requireFeature(this.#host, Feature.streams, 'A stream')
    if (request.type > LAST_OLD_TYPE || request.type === RequestType.auth) this.#checkType(request.type)
    return request instanceof LateRequest ? request.resolve(this.#host, pending.schemaSeen) : request
  }

  #checkPin(pin: { generation: number | undefined }): void {
    const { generation, name } = this.#host
    if (pin.generation === undefined) pin.generation = generation
    else if (pin.generation !== generation) {
      throw new ConnectionLostError(`The session at ${name} that this request belongs to is gone`, { executed: 'no' })
    }
  }

  #checkType(type: number): void {
    if (SESSION_TYPES.has(type)) {
      throw new InvalidArgumentError(
        `${requestName(type)} belongs to the connection itself: it would change or end its session`,
      )
    }
    const feature = FEATURE_OF_REQUEST.get(type)
    if (feature !== undefined) requireFeature(this.#host, feature, requestName(type))
  }

  #park(pending: Pending, request: Request): boolean {
    const frozen = frozenRequest(request)
    pending.request = frozen.request
    if (!this.#pipeline.park(pending, frozen.bytes)) return this.#failSoon(pending, this.#queueFull())
    this.#host.schemaWanted()
    return true
  }

  /** Keeps a request that cannot be written now. @returns false when it is refused: it fails at the next flush */
  #wait(pending: Pending): boolean {
    const refusal = this.#host.refusal()
    if (refusal !== undefined) return this.#failSoon(pending, refusal)
    if (this.#mode === 'leaving' && pending.pin?.generation === this.#host.generation && !this.#isBlocked) {
      // The session is still served, and only it can finish what it began.
      return this.#encode(pending)
    }
    const request = pending.request
    if (request === undefined) return false
    try {
      const frozen = frozenRequest(request)
      pending.request = frozen.request
      const isTaken = this.#mustFollowParked(pending)
        ? this.#pipeline.park(pending, frozen.bytes)
        : this.#pipeline.enqueue(pending, frozen.bytes)
      return isTaken || this.#failSoon(pending, this.#queueFull())
    } catch (error) {
      return this.#failSoon(pending, asOrbweaverError(error))
    }
  }

  /** Requests of a stream keep their order: none overtakes one that waits for the schema. */
  #mustFollowParked(pending: Pending): boolean {
    return pending.streamId !== 0 && this.#pipeline.parked > 0
  }

  #resume(pending: Pending): void {
    if (this.#mustFollowParked(pending)) this.#pipeline.park(pending, pending.bytes)
    else if (this.#isWritable && this.#pipeline.hasRoom) this.#encode(pending)
    else if (!this.#pipeline.enqueue(pending, pending.bytes)) this.#failSoon(pending, this.#queueFull())
  }

  #queueFull(): QueueFullError {
    const { queued, queuedBytes } = this.#pipeline
    return new QueueFullError(
      `${String(queued)} requests of ${String(queuedBytes)} bytes wait already: ${this.#host.obstacle().words}`,
    )
  }

  #updateWritable(): void {
    const mode = this.#mode
    this.#isWritable = this.#channel !== undefined && !this.#isBlocked && (mode === 'open' || mode === 'finishing')
    this.#isAccepting = this.#isWritable && mode === 'open'
  }

  #scheduleFlush(): void {
    if (this.#isFlushDue) return
    this.#isFlushDue = true
    queueMicrotask(this.#flushAfterMicrotasks)
  }

  /**
   * Still in this turn, but behind every microtask of it: requests sent from promise chains of different depths (a burst of
   * answers sets off many) then share one write. A tick queued by a microtask runs when no microtask is left.
   */
  readonly #flushAfterMicrotasks = (): void => {
    process.nextTick(this.#flush)
  }

  readonly #flush = (): void => {
    this.#isFlushDue = false
    if (this.#failures.length > 0) this.#tellFailures()
    if (this.#isWritable && this.#pipeline.sendable > 0) this.#pump()
    this.#writeOut()
  }

  /** Encodes what waits, as far as there is room; the rest of a long queue follows in the next turn. */
  #pump(): void {
    while (this.#isWritable && this.#pipeline.hasRoom && this.#writer.pendingBytes < MAX_WRITE_BYTES) {
      const pending = this.#pipeline.dequeue()
      if (pending === undefined) return
      if (this.#mustFollowParked(pending)) this.#pipeline.park(pending, pending.bytes)
      else this.#encode(pending)
    }
  }

  #writeOut(): void {
    const channel = this.#channel
    const writer = this.#writer
    if (writer.pendingBytes === 0 || channel === undefined) return
    const bytes = writer.pendingBytes
    let chunks: readonly Uint8Array[] = writer.take()
    const unflushed = this.#unflushed
    this.#unflushed = []
    if (this.#cuts.length > 0) {
      chunks = cutRanges(chunks, this.#cuts)
      this.#cuts = []
    }
    for (const pending of unflushed) {
      if (pending.stage !== 'encoded') continue
      pending.stage = 'written'
      pending.written = true
    }
    this.writes += 1
    this.bytesWritten += bytes
    if (!channel.write(chunks)) {
      this.#isBlocked = true
      this.#updateWritable()
    } else if (this.#isWritable && this.#pipeline.sendable > 0 && this.#pipeline.hasRoom) {
      this.#clock.soon(() => this.#scheduleFlush())
    }
  }

  // ---- ends

  /** Takes a request out of wherever it is. @returns false when it has ended already */
  #settle(pending: Pending): boolean {
    const { stage } = pending
    if (stage === 'ended') return false
    if (stage === 'written') {
      this.#pipeline.retire(pending)
    } else if (stage === 'encoded') {
      this.#pipeline.release(pending)
      this.#cuts.push(pending)
    } else {
      this.#pipeline.unqueue(pending)
    }
    pending.stage = 'ended'
    pending.request = undefined
    if (pending.signal !== undefined) this.#aborts.remove(pending.signal, pending)
    this.#host.settled()
    return true
  }

  #fail(pending: Pending, error: OrbweaverError): void {
    try {
      pending.sink.failed(error)
    } catch (thrown) {
      surface(thrown)
    }
  }

  #failAll(taken: readonly Pending[], cause: OrbweaverError): void {
    const fate = new SharedFate(cause, this.#host.name)
    for (const pending of taken) {
      const error = fate.of(pending)
      this.#count(error)
      this.#fail(pending, error)
    }
  }

  #failSoon(pending: Pending, error: OrbweaverError): false {
    this.#failures.push({ pending, error })
    this.#scheduleFlush()
    return false
  }

  #tellFailures(): void {
    const failures = this.#failures
    this.#failures = []
    for (const { pending, error } of failures) {
      if (!this.#settle(pending)) continue
      this.#count(error)
      this.#fail(pending, error)
    }
  }

  #count(error: OrbweaverError): void {
    if (error instanceof ConnectionClosedError) this.ended.closed += 1
    else if (error instanceof ConnectionLostError) this.ended.lost += 1
    else if (error instanceof RequestAbortedError) this.ended.aborted += 1
    else if (error instanceof RequestTimeoutError) this.ended.timedOut += 1
    else this.ended.other += 1
  }

  #abortedBy(pending: Pending, reason: unknown): void {
    const error = abortedError(pending.type, reason, pending.written)
    if (!this.#settle(pending)) return
    this.ended.aborted += 1
    this.#fail(pending, error)
  }

  /** @returns the earliest deadline that is left */
  #endOverdue(nowMs: number): number {
    const overdue: Pending[] = []
    let next = Number.POSITIVE_INFINITY
    for (const pending of this.#pipeline.live()) {
      if (pending.deadline <= nowMs) overdue.push(pending)
      else if (pending.deadline < next) next = pending.deadline
    }
    const { words, cause } = this.#host.obstacle()
    for (const pending of overdue) {
      const error = timeoutError(pending, this.#host.name, words, cause)
      if (!this.#settle(pending)) continue
      this.ended.timedOut += 1
      this.#fail(pending, error)
    }
    return next
  }
}

/** Requests up to this type exist on every server. */
const LAST_OLD_TYPE = RequestType.prepare
/** Requests that would change the session, turn it into a stream of rows, or have no reply. */
const SESSION_TYPES: ReadonlySet<number> = new Set([
  RequestType.auth,
  RequestType.id,
  RequestType.watch,
  RequestType.unwatch,
  RequestType.join,
  RequestType.subscribe,
  RequestType.fetchSnapshot,
  RequestType.register,
])
/** One write does not grow beyond this by what waited; the rest of a long queue follows. */
const MAX_WRITE_BYTES = 1_048_576
