/**
 * The driver of one connection: it owns the channel, the timers and the states, and does what `state.ts` decides. The
 * requests themselves go through `request-flow.ts`, what the server sends through `inbound.ts`.
 */
import {
  type BoxError,
  Feature,
  type FrameHeader,
  NO_FEATURES,
  type OrbweaverError,
  type Request,
} from '@orbweaver/iproto'
import { formatAddress } from './address.js'
import { Attempt } from './attempt.js'
import type { FrameChannel } from './channel.js'
import { log } from './diagnostics.js'
import { ConnectionClosedError, ConnectionLostError } from './errors.js'
import { notConnected } from './fate.js'
import { isLoginRefusal } from './handshake.js'
import { Inbound } from './inbound.js'
import type { ResolvedOptions } from './options.js'
import type { PendingRequest, ReplySink, SendOptions } from './pending.js'
import { reconnectDelayMs } from './reconnect.js'
import { type FlowHost, type FlowMode, RequestFlow } from './request-flow.js'
import { Schema } from './schema.js'
import { type ConnectionState, type Effect, type LinkEvent, type StateName, transition } from './state.js'
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

export class Link implements FlowHost {
  readonly schema: Schema = new Schema()
  /** The peer for people. */
  readonly name: string
  readonly flow: RequestFlow
  readonly inbound: Inbound
  generation = 0
  attempts = 0
  readonly #options: ResolvedOptions
  readonly #hooks: LinkHooks
  readonly #features: readonly number[]
  #state: ConnectionState = { name: 'initial', attempt: 0 }
  /** Events that came while one was being worked on. */
  readonly #events: LinkEvent[] = []
  #isDispatching = false
  #attempt: Attempt | undefined
  #channel: FrameChannel | undefined
  #transport: Transport | undefined
  /** Waiting until nothing is outstanding. */
  #isDraining = false
  /** Whether the connection keeps the process alive. */
  #isHolding = true
  #cancelPause: (() => void) | undefined
  #pauseDueMs = 0
  /** Why the last attempt or connection ended, until one succeeds. */
  #lastFailure: OrbweaverError | undefined
  #connectors: { readonly resolve: () => void; readonly reject: (error: OrbweaverError) => void }[] = []
  #closing: Closing | undefined

  constructor(options: ResolvedOptions, hooks: LinkHooks) {
    this.#options = options
    this.#hooks = hooks
    this.#features = options.tupleFormats ? [...BASE_FEATURES, ...TUPLE_FEATURES] : BASE_FEATURES
    this.name = formatAddress(options.address)
    this.flow = new RequestFlow(this, options.environment.clock, options.limits)
    this.inbound = new Inbound(
      {
        name: this.name,
        schema: this.schema,
        event: (frame, header) => hooks.event(frame, header),
        watchFailed: (sync, error) => hooks.watchFailed(sync, error),
        breakOff: (cause) => this.#breakOff(cause),
      },
      this.flow,
    )
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

  get nowMs(): number {
    return this.#options.environment.clock.now()
  }

  /** Whether a channel is up. */
  get isUp(): boolean {
    return this.#channel !== undefined
  }

  /** Dials for the first time. */
  start(): void {
    this.#run({ do: 'dial' })
  }

  /** See `Connection.send`. */
  send(request: Request, options: SendOptions, sink: ReplySink): PendingRequest {
    return this.flow.send(request, options, sink)
  }

  /** The server announced its shutdown. */
  serverShutdown(): void {
    const cause = new ConnectionLostError(`${this.name} is shutting down`, { executed: 'unknown' })
    this.#dispatch({ type: 'serverShutdown', cause })
  }

  /** Something that needed the session (`isSessionNeeded`) is over. */
  sessionFreed(): void {
    this.settled()
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
    this.#closing ??= new Closing()
    this.#closing.timeoutMs = timeoutMs
    if (this.#state.name === 'closing') this.#limitClosing(this.#closing)
    else this.#dispatch({ type: 'close' })
    return this.#closing.promise
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
    this.flow.hold(isHolding)
  }

  // ---- asked by the flow of requests

  refusal(): OrbweaverError | undefined {
    const state = this.#state
    if (state.name === 'closed' || state.name === 'closing') return this.#closedError()
    if (state.name === 'error') return notConnected(this.name, state.cause)
    // A rotated secret must not pile up requests: they learn it at once, and the next login is under way.
    if (state.name === 'error_reconnect' && isLoginRefusal(state.cause)) return state.cause
    return undefined
  }

  obstacle(): { readonly words: string; readonly cause: OrbweaverError | undefined } {
    const words = this.isUp ? `${this.name} takes no more` : `not connected to ${this.name} yet (${this.#state.name})`
    return { words, cause: this.#lastFailure }
  }

  schemaWanted(): void {
    this.#hooks.schemaWanted()
  }

  settled(): void {
    if (this.#isDraining) this.#options.environment.clock.soon(() => this.#checkDrained())
  }

  // ---- states

  /** One event at a time: what happens while one is worked on (a callback that closes) comes after it. */
  #dispatch(event: LinkEvent): void {
    this.#events.push(event)
    if (this.#isDispatching) return
    this.#isDispatching = true
    for (let next = this.#events.shift(); next !== undefined; next = this.#events.shift()) this.#step(next)
    this.#isDispatching = false
  }

  #step(event: LinkEvent): void {
    const previous = this.#state
    const { state, effects } = transition(previous, event, {
      nowMs: this.nowMs,
      policy: this.#options.reconnect,
      isLoginRefusal,
      closedByCaller: () => this.#closedError(),
    })
    this.#state = state
    this.flow.setMode(MODES[state.name])
    for (const effect of effects) this.#run(effect)
    if (state === previous) return
    log('debug', 'state', () => ({ peer: this.name, state: state.name, previous: previous.name }))
    this.#hooks.stateChanged(state, previous)
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
        this.flow.failInFlight(effect.cause)
        return
      case 'failWaiting':
        this.flow.failWaiting(effect.cause)
        return
      case 'tellConnectors':
        this.#tellConnectors(effect.cause)
        return
      case 'drain':
        this.#isDraining = true
        if (this.#closing !== undefined && this.#state.name === 'closing') this.#limitClosing(this.#closing)
        this.settled()
        return
      case 'finish':
        this.#finish()
    }
  }

  #dial(): void {
    this.attempts += 1
    const attempt = 'attempt' in this.#state ? this.#state.attempt : 0
    this.#attempt = new Attempt(this.#options, this.#features, attempt, {
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
    this.#attempt.start()
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
    const channel = this.#channel
    if (channel === undefined) return
    this.generation += 1
    this.#lastFailure = undefined
    this.#isDraining = false
    this.schema.forget()
    this.#holdTransport()
    channel.attach({
      frame: (frame) => this.inbound.frame(frame),
      drain: () => this.flow.drain(),
      // A channel that was hung up reports its end later, when another may be up.
      closed: (cause) => {
        if (this.#channel === channel) this.#dispatch({ type: 'lost', cause })
      },
    })
    this.flow.begin(channel)
    this.#hooks.begun()
  }

  #hangUp(cause: OrbweaverError | undefined): void {
    this.#cancelPause?.()
    this.#cancelPause = undefined
    this.#attempt?.cancel(cause)
    this.#attempt = undefined
    this.#isDraining = false
    const channel = this.#channel
    if (channel === undefined) return
    if (cause !== undefined) this.#lastFailure = cause
    this.#channel = undefined
    this.#transport = undefined
    this.flow.end()
    channel.destroy(cause)
    this.#hooks.ended(cause)
  }

  #tellConnectors(cause: OrbweaverError | undefined): void {
    const connectors = this.#connectors
    this.#connectors = []
    for (const { resolve, reject } of connectors) {
      if (cause === undefined) resolve()
      else reject(cause)
    }
  }

  #checkDrained(): void {
    const { flow } = this
    if (!this.#isDraining || flow.isBusy) return
    // A closing connection still sends what waits; one that the server is leaving keeps it for the next connection.
    if (this.#state.name === 'closing' ? flow.counts.queued > 0 : this.#hooks.isSessionNeeded()) return
    this.#dispatch({ type: 'drained' })
  }

  #limitClosing(closing: Closing): void {
    closing.cancelTimer?.()
    closing.cancelTimer = this.#schedule(closing.timeoutMs, () => this.destroy(undefined))
  }

  #finish(): void {
    this.flow.stop()
    this.#closing?.cancelTimer?.()
    this.#hooks.finished()
    this.#closing?.resolve()
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

/** What may be written in which state. */
const MODES: Readonly<Record<StateName, FlowMode>> = {
  initial: 'down',
  auth: 'down',
  active: 'open',
  graceful_shutdown: 'leaving',
  error_reconnect: 'down',
  error: 'down',
  closing: 'finishing',
  closed: 'down',
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
