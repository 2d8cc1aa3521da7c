/** Requests to one instance that is known to be reachable, or a refusal: nothing waits for a connection here. */
import {
  type Clock,
  type Connection,
  ConnectionLostError,
  type PendingRequest,
  type ReplySink,
  type SendOptions,
  type SessionPin,
} from '@orbweaver/connection'
import type { OrbweaverError, Request } from '@orbweaver/iproto'
import type { PinnedSession } from './attempt.js'

/** One connection of one generation. */
export class Session implements PinnedSession {
  readonly #connection: Connection
  readonly #pin: SessionPin
  readonly #clock: Clock

  constructor(connection: Connection, clock: Clock) {
    this.#connection = connection
    this.#pin = { generation: isServed(connection) ? connection.generation : NO_GENERATION }
    this.#clock = clock
  }

  get lost(): boolean {
    return this.#pin.generation !== this.#connection.generation || !isServed(this.#connection)
  }

  get features(): ReadonlySet<number> {
    return this.#connection.features
  }

  send(request: Request, options: SendOptions, sink: ReplySink): PendingRequest {
    if (this.lost) return new RefusedRequest(this.#connection.peer, sink, this.#clock)
    const { deadline, streamId, signal } = options
    if (streamId === undefined && signal === undefined)
      return this.#connection.send(request, { deadline, pin: this.#pin }, sink)
    return this.#connection.send(request, { ...options, pin: this.#pin }, sink)
  }
}

/** Whether requests of the session of this moment are still taken. */
export function isServed(connection: Connection): boolean {
  const { state } = connection
  return state === 'active' || state === 'graceful_shutdown'
}

/** A request to a session that is gone: it fails right after `send` returned. */
export class RefusedRequest implements PendingRequest {
  readonly written: boolean = false
  #sink: ReplySink | undefined

  constructor(peer: string, sink: ReplySink, clock: Clock) {
    this.#sink = sink
    clock.soon(() => this.abandon(new ConnectionLostError(`The session at ${peer} is gone`, { executed: 'no' })))
  }

  abandon(cause: OrbweaverError): void {
    const sink = this.#sink
    this.#sink = undefined
    sink?.failed(cause)
  }
}

const NO_GENERATION = -1
