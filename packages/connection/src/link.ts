/**
 * The driver of one connection: it owns the channel, the timers and the requests under way, and does what `state.ts`
 * decides. Requests are encoded when they are sent (the caller may change its arguments afterwards) and everything of one
 * turn of the event loop leaves in one write. Nothing here is a promise except `connect` and `close`.
 */
import {
  type BoxError,
  Feature,
  FEATURE_OF_REQUEST,
  FrameHeader,
  FrameWriter,
  InvalidArgumentError,
  isOrbweaverError,
  NO_FEATURES,
  type OrbweaverError,
  readError,
  readReply,
  type Request,
  RequestType,
} from '@orbweaver/iproto'
import { AbortListeners } from './aborts.js'
import { formatAddress } from './address.js'
import { Attempt } from './attempt.js'
import type { FrameChannel } from './channel.js'
import { cutRanges } from './cut-ranges.js'
import { DeadlineSweep } from './deadline-sweep.js'
import { isRequestTraced, log, traceRequest } from './diagnostics.js'
import {
  ConnectionClosedError,
  ConnectionLostError,
  QueueFullError,
  RequestAbortedError,
  RequestTimeoutError,
} from './errors.js'
import { abortedError, asOrbweaverError, notConnected, requestName, SharedFate, timeoutError } from './fate.js'
import { isLoginRefusal } from './handshake.js'
import { frozenRequest, LateRequest, type PeerView, requireFeature } from './late-request.js'
import type { ResolvedOptions } from './options.js'
import { Pending, type PendingOwner, type PendingRequest, type ReplySink, type SendOptions } from './pending.js'
import { Pipeline } from './pipeline.js'
import { reconnectDelayMs } from './reconnect.js'
import { Schema } from './schema.js'
import { type ConnectionState, type Effect, type LinkEvent, transition, type TransitionContext } from './state.js'
import { surface } from './surface.js'
import type { Transport } from './transport.js'

/** What the link tells the parts around it. */
export interface LinkHooks {
  stateChanged(state: ConnectionState, previous: ConnectionState): void
  /** A new generation is up; what these hooks write goes before the requests that wait. */
  begun(): void
  /** The generation is over. */
  ended(cause: OrbweaverError | undefined): void
  /** An EVENT frame. The header is valid during the call. */
  event(frame: Buffer, header: FrameHeader): void
  /** An error for a WATCH with this sync. @returns whether it was one */
  watchFailed(sync: number, error: BoxError): boolean
  /** Requests wait for the schema. */
  schemaWanted(): void
  /** Whether something that is no request (an open transaction) still needs this session. */
  isSessionNeeded(): boolean
  /** Everything was released. */
  finished(): void
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

export class Link implements PendingOwner, PeerView {
  readonly schema: Schema = new Schema()
  readonly name: string
  readonly ended: EndedCounts = { answered: 0, refused: 0, timedOut: 0, aborted: 0, lost: 0, closed: 0, other: 0 }
  generation = 0
  accepted = 0
  writes = 0
  bytesWritten = 0
  bytesRead = 0
  lateAnswers = 0
  connects = 0
  attempts = 0
  readonly #options: ResolvedOptions
  readonly #hooks: LinkHooks
  readonly #features: readonly number[]
  readonly #pipeline: Pipeline
  readonly #writer = new FrameWriter()
  readonly #header = new FrameHeader()
  readonly #aborts: AbortListeners
  #state: ConnectionState = { name: 'initial', attempt: 0 }
  /** Events that came while one was being worked on. */
  readonly #events: LinkEvent[] = []
  #isDispatching = false
  #attempt: Attempt | undefined
  #channel: FrameChannel | undefined
  #transport: Transport | undefined
  /** The channel, when requests may be written to it right now. */
  #writable: FrameChannel | undefined
  /** Whether a new request may be written at once, too: not while closing. */
  #isAccepting = false
  #isBlocked = false
  #isDraining = false
  #isHolding = true
  /** Encoded and not handed over yet, in order. */
  #unflushed: Pending[] = []
  /** Among them, those that ended before they left: their bytes are cut out. */
  #cuts: Pending[] = []
  #isFlushDue = false
  /** Requests that fail at the next flush: nobody is called back before `send` returns. */
  #failures: { readonly pending: Pending; readonly error: OrbweaverError }[] = []
  #cancelPause: (() => void) | undefined
  #pauseDueMs = 0
  readonly #sweep: DeadlineSweep
  /** Why the last attempt or connection ended, until one succeeds. */
  #lastFailure: OrbweaverError | undefined
  #connectors: { readonly resolve: () => void; readonly reject: (error: OrbweaverError) => void }[] = []
  #closing: Closing | undefined

  constructor(options: ResolvedOptions, hooks: LinkHooks) {
    this.#options = options
    this.#hooks = hooks
    this.#features = options.tupleFormats ? [...BASE_FEATURES, ...TUPLE_FEATURES] : BASE_FEATURES
    this.#pipeline = new Pipeline(options.limits)
    this.name = formatAddress(options.address)
    const { clock } = options.environment
    this.#aborts = new AbortListeners(
      (pending, reason) => this.#abortedBy(pending, reason),
      (task) => clock.soon(task),
    )
    this.#sweep = new DeadlineSweep(clock, (nowMs) => this.#endOverdue(nowMs))
  }

  get state(): ConnectionState {
    return this.#state
  }

  get features(): ReadonlySet<number> {
    return this.#channel?.features ?? NO_FEATURES
  }

  get version(): string {
    return this.#channel?.version ?? ''
  }

  get peerUuid(): string | undefined {
    return this.#channel?.instanceUuid
  }

  get pipeline(): Readonly<Pick<Pipeline, 'inFlight' | 'inFlightBytes' | 'late' | 'queued' | 'queuedBytes'>> {
    return this.#pipeline
  }

  get nowMs(): number {
    return this.#options.environment.clock.now()
  }

  /** Dials for the first time. */
  start(): void {
    this.#run({ do: 'dial' })
  }

  /** See `Connection.send`. */
  send(request: Request, options: SendOptions, sink: ReplySink): PendingRequest {
    this.accepted += 1
    const told = isRequestTraced()
      ? traceRequest({ peer: this.name, type: request.type, streamId: options.streamId ?? 0 }, sink)
      : sink
    const pending = new Pending(this, request, options, told)
    pending.schemaSeen = this.schema.begun
    const { signal } = pending
    if (signal !== undefined) {
      if (signal.aborted) {
        this.#failSoon(pending, abortedError(request.type, signal.reason, false))
        return pending
      }
      this.#aborts.add(signal, pending)
    }
    if (this.#sweep.isOver(pending.deadline)) {
      this.#failSoon(pending, timeoutError(pending, this.name, 'its deadline had passed', undefined))
      return pending
    }
    const mayGo = this.#isAccepting && this.#pipeline.sendable === 0 && this.#pipeline.hasRoom
    const isTaken = mayGo && !this.#mustFollowParked(pending) ? this.#encode(pending) : this.#wait(pending)
    if (isTaken) this.#sweep.watch(pending.deadline)
    return pending
  }

  /** Writes a request that has no reply (WATCH, UNWATCH) under a sync of its own. Only between `begun` and `ended`. */
  tell(request: Request, sync: number): void {
    if (this.#channel === undefined) return
    this.#writer.request(request, sync)
    this.#scheduleFlush()
  }

  /** Whether a channel is up. */
  get isUp(): boolean {
    return this.#channel !== undefined
  }

  abandon(pending: Pending, cause: OrbweaverError): void {
    if (this.#settle(pending)) {
      this.ended.other += 1
      this.#fail(pending, cause)
    }
  }

  /** The schema was refreshed: requests that waited for it go on. */
  schemaLoaded(): void {
    for (const pending of this.#pipeline.takeParked()) this.#resume(pending)
    this.#scheduleFlush()
  }

  /** The schema could not be refreshed: requests that waited for it fail. */
  schemaFailed(error: OrbweaverError): void {
    for (const pending of this.#pipeline.takeParked()) {
      this.#settle(pending)
      this.ended.other += 1
      this.#fail(pending, error)
    }
  }

  /** The server announced its shutdown. */
  serverShutdown(): void {
    this.#dispatch({
      type: 'serverShutdown',
      cause: new ConnectionLostError(`${this.name} is shutting down`, { executed: 'unknown' }),
    })
  }

  /** Something that needed the session (`isSessionNeeded`) is over. */
  sessionFreed(): void {
    if (this.#isDraining) this.#checkDrained()
  }

  connect(): Promise<void> {
    const { name } = this.#state
    if (name === 'active') return Promise.resolve()
    if (name === 'closing' || name === 'closed') return Promise.reject(this.#closedError())
    return new Promise((resolve, reject) => {
      this.#connectors.push({ resolve, reject })
      this.#dispatch({ type: 'wanted' })
    })
  }

  close(timeoutMs: number): Promise<void> {
    if (this.#state.name === 'closed') return this.#closing?.promise ?? Promise.resolve()
    const closing = this.#closingPromise()
    closing.timeoutMs = timeoutMs
    if (this.#state.name === 'closing') this.#limitClosing()
    else this.#dispatch({ type: 'close' })
    return closing.promise
  }

  destroy(cause: Error | undefined): void {
    this.#dispatch({ type: 'destroy', cause: this.#closedError(cause) })
  }

  setHolding(isHolding: boolean): void {
    if (this.#isHolding === isHolding) return
    this.#isHolding = isHolding
    this.#holdTransport()
    // Timers keep the way they were made, so those that run are made again.
    if (this.#cancelPause !== undefined) this.#pause(Math.max(0, this.#pauseDueMs - this.nowMs))
    this.#sweep.hold(isHolding)
  }

  // ---- what comes in

  #frame(frame: Buffer): void {
    this.bytesRead += frame.length
    const header = this.#header
    try {
      header.read(frame)
      const { type, schemaVersion } = header
      if (schemaVersion !== undefined) this.schema.observe(schemaVersion)
      if (type === RequestType.event) {
        this.#hooks.event(frame, header)
        return
      }
      const sync = header.syncHigh * 0x1_0000_0000 + header.syncLow
      const pending = this.#pipeline.find(sync)
      if (pending === undefined) {
        this.#unmatched(frame, sync)
      } else if (type === RequestType.ok) {
        const reply = readReply(frame, header)
        this.#answered(pending)
        this.ended.answered += 1
        try {
          pending.sink.done(reply)
        } catch (error) {
          surface(error)
        }
      } else if ((type & RequestType.errorFlag) !== 0) {
        const error = readError(frame, header, pending.requestClass)
        this.#answered(pending)
        this.ended.refused += 1
        this.#fail(pending, error)
      } else if (type === RequestType.chunk) {
        const reply = readReply(frame, header)
        try {
          pending.sink.push?.(reply)
        } catch (error) {
          surface(error)
        }
      } else {
        this.#breakOff(
          new ConnectionLostError(`${this.name} answered with a frame of the unknown type ${String(type)}`, {
            executed: 'unknown',
          }),
        )
      }
    } catch (error) {
      // The stream is not understood any more: what follows could be attributed to the wrong requests.
      this.#breakOff(
        isOrbweaverError(error)
          ? error
          : new ConnectionLostError(`A frame of ${this.name} cannot be read`, { executed: 'unknown', cause: error }),
      )
    }
  }

  #drained(): void {
    this.#isBlocked = false
    this.#updateWritable()
    this.#scheduleFlush()
  }

  // ---- sending

  /** Requests of a stream keep their order: none overtakes one that waits for the schema. */
  #mustFollowParked(pending: Pending): boolean {
    return pending.streamId !== 0 && this.#pipeline.parked > 0
  }

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
    if (pending.streamId !== 0) requireFeature(this, Feature.streams, 'A stream')
    if (request.type > LAST_OLD_TYPE || request.type === RequestType.auth) this.#checkType(request.type)
    return request instanceof LateRequest ? request.resolve(this, pending.schemaSeen) : request
  }

  #checkPin(pin: { generation: number | undefined }): void {
    if (pin.generation === undefined) pin.generation = this.generation
    else if (pin.generation !== this.generation) {
      throw new ConnectionLostError(`The session at ${this.name} that this request belongs to is gone`, {
        executed: 'no',
      })
    }
  }

  #checkType(type: number): void {
    if (SESSION_TYPES.has(type)) {
      throw new InvalidArgumentError(
        `${requestName(type)} belongs to the connection itself: it would change or end its session`,
      )
    }
    const feature = FEATURE_OF_REQUEST.get(type)
    if (feature !== undefined) requireFeature(this, feature, requestName(type))
  }

  #park(pending: Pending, request: Request): boolean {
    const frozen = frozenRequest(request)
    pending.request = frozen.request
    if (!this.#pipeline.park(pending, frozen.bytes)) return this.#failSoon(pending, this.#queueFull())
    this.#hooks.schemaWanted()
    return true
  }

  /** Keeps a request that cannot be written now. @returns false when it is refused: it fails at the next flush */
  #wait(pending: Pending): boolean {
    const refusal = this.#refusal()
    if (refusal !== undefined) return this.#failSoon(pending, refusal)
    if (this.#state.name === 'graceful_shutdown' && pending.pin?.generation === this.generation && !this.#isBlocked) {
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

  /** Why a request is not even queued in this state. */
  #refusal(): OrbweaverError | undefined {
    const state = this.#state
    if (state.name === 'closed' || state.name === 'closing') return this.#closedError()
    if (state.name === 'error') return notConnected(this.name, state.cause)
    // A rotated secret must not pile up requests: they learn it at once, and the next login is under way.
    if (state.name === 'error_reconnect' && isLoginRefusal(state.cause)) return state.cause
    return undefined
  }

  #queueFull(): QueueFullError {
    const { queued, queuedBytes } = this.#pipeline
    return new QueueFullError(
      `${String(queued)} requests of ${String(queuedBytes)} bytes wait for ${this.name} already (state ${this.#state.name})`,
    )
  }

  #resume(pending: Pending): void {
    if (this.#mustFollowParked(pending)) this.#pipeline.park(pending, pending.bytes)
    else if (this.#writable !== undefined && this.#pipeline.hasRoom) this.#encode(pending)
    else if (!this.#pipeline.enqueue(pending, pending.bytes)) this.#failSoon(pending, this.#queueFull())
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
    if (this.#writable !== undefined && this.#pipeline.sendable > 0) this.#pump()
    this.#writeOut()
  }

  /** Encodes what waits, as far as there is room; the rest of a long queue follows in the next turn. */
  #pump(): void {
    while (this.#writable !== undefined && this.#pipeline.hasRoom && this.#writer.pendingBytes < MAX_WRITE_BYTES) {
      const pending = this.#pipeline.dequeue()
      if (pending === undefined) return
      if (this.#mustFollowParked(pending)) this.#pipeline.park(pending, pending.bytes)
      else this.#encode(pending)
    }
  }

  #writeOut(): void {
    const channel = this.#channel
    const bytes = this.#writer.pendingBytes
    if (bytes === 0 || channel === undefined) return
    let chunks: readonly Uint8Array[] = this.#writer.take()
    const unflushed = this.#unflushed
    this.#unflushed = []
    if (this.#cuts.length > 0) {
      chunks = cutRanges(chunks, this.#cuts)
      this.#cuts = []
    }
    for (const pending of unflushed) {
      if (pending.stage !== 'encoded') continue
      pending.stage = 'written'
      pending.wasWritten = true
    }
    this.writes += 1
    this.bytesWritten += bytes
    if (!channel.write(chunks)) {
      this.#isBlocked = true
      this.#updateWritable()
    } else if (this.#writable !== undefined && this.#pipeline.sendable > 0 && this.#pipeline.hasRoom) {
      this.#options.environment.clock.soon(() => this.#scheduleFlush())
    }
  }

  // ---- how requests end

  #answered(pending: Pending): void {
    this.#pipeline.release(pending)
    pending.stage = 'ended'
    if (pending.signal !== undefined) this.#aborts.remove(pending.signal, pending)
    if (this.#pipeline.sendable > 0) this.#scheduleFlush()
    if (this.#isDraining) this.#checkDrainedSoon()
  }

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
    if (this.#isDraining) this.#checkDrainedSoon()
    return true
  }

  #fail(pending: Pending, error: OrbweaverError): void {
    try {
      pending.sink.failed(error)
    } catch (thrown) {
      surface(thrown)
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
    const error = abortedError(pending.type, reason, pending.wasWritten)
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
    for (const pending of overdue) {
      const error = timeoutError(pending, this.name, this.#obstacle(), this.#lastFailure)
      if (!this.#settle(pending)) continue
      this.ended.timedOut += 1
      this.#fail(pending, error)
    }
    return next
  }

  /** Why a request that waits is waiting, when no failure explains it. */
  #obstacle(): string {
    return this.#channel === undefined
      ? `not connected to ${this.name} yet (${this.#state.name})`
      : `${this.name} takes no more`
  }

  // ---- states

  #dispatch(event: LinkEvent): void {
    this.#events.push(event)
    if (this.#isDispatching) return
    this.#isDispatching = true
    for (let next = this.#events.shift(); next !== undefined; next = this.#events.shift()) this.#step(next)
    this.#isDispatching = false
  }

  #step(event: LinkEvent): void {
    const previous = this.#state
    const { state, effects } = transition(previous, event, this.#context())
    this.#state = state
    this.#updateWritable()
    for (const effect of effects) this.#run(effect)
    if (state !== previous) {
      log('debug', 'state', () => ({ peer: this.name, state: state.name, previous: previous.name }))
      this.#hooks.stateChanged(state, previous)
    }
  }

  #context(): TransitionContext {
    return {
      nowMs: this.nowMs,
      policy: this.#options.reconnect,
      isLoginRefusal,
      closedByCaller: () => this.#closedError(),
    }
  }

  #run(effect: Effect): void {
    switch (effect.do) {
      case 'dial':
        this.#dial()
        return
      case 'pause': {
        const { environment, reconnect } = this.#options
        this.#pause(reconnectDelayMs(effect.attempt, environment.random(), reconnect))
        return
      }
      case 'begin':
        this.#begin()
        return
      case 'hangUp':
        this.#hangUp(effect.cause)
        return
      case 'failInFlight':
        this.#failInFlight(effect.cause)
        return
      case 'failWaiting':
        this.#failWaiting(effect.cause)
        return
      case 'tellConnectors': {
        const connectors = this.#connectors
        this.#connectors = []
        for (const { resolve, reject } of connectors) {
          if (effect.cause === undefined) resolve()
          else reject(effect.cause)
        }
        return
      }
      case 'drain':
        this.#isDraining = true
        if (this.#state.name === 'closing') this.#limitClosing()
        this.#checkDrainedSoon()
        return
      case 'finish':
        this.#finish()
    }
  }

  #dial(): void {
    this.attempts += 1
    const attempt = new Attempt(this.#options, this.#features, 'attempt' in this.#state ? this.#state.attempt : 0, {
      loginSent: () => this.#dispatch({ type: 'loginSent' }),
      opened: (channel, transport) => {
        this.#attempt = undefined
        this.#channel = channel
        this.#transport = transport
        this.#dispatch({ type: 'opened' })
      },
      failed: (cause) => {
        this.#attempt = undefined
        this.#lastFailure = cause
        log('warn', 'connect failed', () => ({ peer: this.name, error: cause }))
        this.#dispatch({ type: 'attemptFailed', cause })
      },
    })
    this.#attempt = attempt
    attempt.start()
  }

  #pause(delayMs: number): void {
    this.#cancelPause?.()
    this.#pauseDueMs = this.nowMs + delayMs
    this.#cancelPause = this.#schedule(delayMs, () => {
      this.#cancelPause = undefined
      this.#dispatch({ type: 'retryDue' })
    })
  }

  #begin(): void {
    this.generation += 1
    this.connects += 1
    this.#lastFailure = undefined
    this.#isBlocked = false
    this.#isDraining = false
    this.schema.forget()
    this.#holdTransport()
    const channel = this.#channel
    channel?.attach({
      frame: (frame) => this.#frame(frame),
      drain: () => this.#drained(),
      // A channel that was hung up reports its end later, when another may be up.
      closed: (cause) => {
        if (this.#channel === channel) this.#dispatch({ type: 'lost', cause })
      },
    })
    this.#updateWritable()
    this.#hooks.begun()
    this.#scheduleFlush()
  }

  #hangUp(cause: OrbweaverError | undefined): void {
    this.#cancelPause?.()
    this.#cancelPause = undefined
    this.#attempt?.cancel(cause)
    this.#attempt = undefined
    const channel = this.#channel
    this.#isDraining = false
    if (channel === undefined) return
    if (cause !== undefined) this.#lastFailure = cause
    this.#channel = undefined
    this.#transport = undefined
    this.#updateWritable()
    this.#writer.take()
    this.#unflushed = []
    this.#cuts = []
    channel.destroy(cause)
    // Requests that wait for the schema were never sent: the next connection resolves them anew.
    for (const pending of this.#pipeline.takeParked()) {
      pending.schemaSeen = this.schema.begun
      if (!this.#pipeline.enqueue(pending, pending.bytes)) this.#failSoon(pending, this.#queueFull())
    }
    this.#hooks.ended(cause)
  }

  #failInFlight(cause: OrbweaverError): void {
    const fate = new SharedFate(cause, this.name)
    const taken = this.#pipeline.takeInFlight()
    for (const pending of taken) {
      pending.stage = 'ended'
      if (pending.signal !== undefined) this.#aborts.remove(pending.signal, pending)
    }
    for (const pending of taken) {
      const error = fate.of(pending)
      this.#count(error)
      this.#fail(pending, error)
    }
  }

  #failWaiting(cause: OrbweaverError): void {
    const fate = new SharedFate(cause, this.name)
    for (const pending of this.#pipeline.takeQueued()) {
      if (!this.#settle(pending)) continue
      const error = fate.of(pending)
      this.#count(error)
      this.#fail(pending, error)
    }
  }

  #finish(): void {
    this.#sweep.stop()
    const closing = this.#closingPromise()
    closing.cancelTimer?.()
    this.#hooks.finished()
    closing.resolve()
  }

  #updateWritable(): void {
    const { name } = this.#state
    const mayWrite = (name === 'active' || name === 'closing') && !this.#isBlocked
    this.#writable = mayWrite ? this.#channel : undefined
    this.#isAccepting = this.#writable !== undefined && name === 'active'
  }

  #checkDrainedSoon(): void {
    this.#options.environment.clock.soon(() => this.#checkDrained())
  }

  #checkDrained(): void {
    if (!this.#isDraining || this.#pipeline.inFlight > 0 || this.#failures.length > 0) return
    // A closing connection still sends what waits; one that the server is leaving keeps it for the next connection.
    if (this.#state.name === 'closing' ? this.#pipeline.queued > 0 : this.#hooks.isSessionNeeded()) return
    this.#dispatch({ type: 'drained' })
  }

  #unmatched(frame: Buffer, sync: number): void {
    const { type } = this.#header
    if (this.#pipeline.isLate(sync)) {
      if (type === RequestType.chunk) return
      this.lateAnswers += 1
      this.#pipeline.releaseLate(sync)
      if (this.#pipeline.sendable > 0) this.#scheduleFlush()
      return
    }
    if ((type & RequestType.errorFlag) === 0) {
      this.#breakOff(
        new ConnectionLostError(`${this.name} answered the request ${String(sync)}, which nobody sent`, {
          executed: 'unknown',
        }),
      )
      return
    }
    const error = readError(frame, this.#header, 'session')
    if (this.#hooks.watchFailed(sync, error)) return
    // The server could not tell whose request it refuses: one of ours will never be answered.
    this.#breakOff(
      new ConnectionLostError(`${this.name} refused something without saying what: ${error.message}`, {
        executed: 'unknown',
        cause: error,
      }),
    )
  }

  #breakOff(cause: OrbweaverError): void {
    log('error', 'protocol violation', () => ({ peer: this.name, error: cause }))
    this.#channel?.destroy(cause)
  }

  #closedError(cause?: Error): ConnectionClosedError {
    return new ConnectionClosedError(`The connection to ${this.name} was closed by its owner`, {
      executed: 'no',
      ...(cause === undefined ? {} : { cause }),
    })
  }

  #closingPromise(): Closing {
    this.#closing ??= new Closing()
    return this.#closing
  }

  #limitClosing(): void {
    const closing = this.#closingPromise()
    closing.cancelTimer?.()
    closing.cancelTimer = this.#schedule(closing.timeoutMs, () => this.destroy(undefined))
  }

  #schedule(delayMs: number, task: () => void): () => void {
    return this.#options.environment.clock.schedule(delayMs, task, { ref: this.#isHolding })
  }

  #holdTransport(): void {
    if (this.#isHolding) this.#transport?.ref?.()
    else this.#transport?.unref?.()
  }
}

/** A close under way. */
class Closing {
  readonly promise: Promise<void>
  timeoutMs = 0
  cancelTimer: (() => void) | undefined
  #resolve: (() => void) | undefined

  constructor() {
    this.promise = new Promise((resolve) => {
      this.#resolve = resolve
    })
  }

  resolve(): void {
    this.#resolve?.()
  }
}

/** Everything that changes nothing unless it is used. */
const BASE_FEATURES: readonly number[] = [
  Feature.streams,
  Feature.transactions,
  Feature.errorExtension,
  Feature.watchers,
  Feature.pagination,
  Feature.names,
  Feature.watchOnce,
  Feature.isSync,
]
/** These change how rows arrive. */
const TUPLE_FEATURES: readonly number[] = [Feature.dmlTupleExtension, Feature.callReturnTupleExtension]
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
