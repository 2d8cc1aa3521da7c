/** Every operation of a connection (select, insert, SQL …), sent to whoever serves a call mode. */
import {
  type Clock,
  Operations,
  type OperationsHost,
  type PreparedStatement,
  type ReplySink,
  type RequestOptions,
  type SqlRows,
} from '@orbweaver/connection'
import type { DecodeOptions, OrbweaverError, Reply, Request, RequestClass } from '@orbweaver/iproto'
import type { Attempt, CallMode, InstanceHandle } from './attempt.js'
import type { Dispatcher } from './dispatcher.js'

/**
 * The operations of a connection, with the choice of instance, the waiting and the repeating of a replicaset.
 * @example const [user] = await replicaset.using('ro').select('users', [1])
 */
export class RoutedOperations extends Operations {
  protected readonly host: OperationsHost

  /** Made by `replicaset.using`. */
  constructor(dispatcher: Dispatcher, mode: CallMode, clock: Clock, requestTimeoutMs: number) {
    super()
    this.host = new RoutedHost(dispatcher, mode, clock, requestTimeoutMs)
  }

  /** By its text: the statement was prepared on one connection, and this may go to another. */
  protected executePrepared<Row>(
    statement: PreparedStatement,
    binds: readonly unknown[],
    options: RequestOptions,
  ): Promise<SqlRows<Row>> {
    return this.executeRaw<Row>(statement.text, binds, options)
  }
}

class RoutedHost implements OperationsHost {
  readonly requestTimeoutMs: number
  readonly decode: DecodeOptions | undefined = undefined
  readonly mayResolveAgain: boolean = true
  readonly #dispatcher: Dispatcher
  readonly #mode: CallMode
  readonly #clock: Clock

  constructor(dispatcher: Dispatcher, mode: CallMode, clock: Clock, requestTimeoutMs: number) {
    this.#dispatcher = dispatcher
    this.#mode = mode
    this.#clock = clock
    this.requestTimeoutMs = requestTimeoutMs
  }

  get nowMs(): number {
    return this.#clock.now()
  }

  isSchemaStale(): boolean {
    return false
  }

  send(request: Request, deadline: number, signal: AbortSignal | undefined, sink: ReplySink): void {
    this.#dispatcher.dispatch(
      new RoutedRequest(this.#dispatcher, this.#mode, request, deadline, signal, sink),
      this.#mode,
    )
  }
}

class RoutedRequest implements Attempt, ReplySink {
  readonly deadline: number
  readonly bytes: number = ESTIMATED_BYTES
  readonly requestClass: RequestClass
  readonly idempotent: boolean
  readonly orderKey: string | undefined = undefined
  readonly signal: AbortSignal | undefined
  readonly #dispatcher: Dispatcher
  readonly #request: Request
  readonly #sink: ReplySink
  #token = 0

  constructor(
    dispatcher: Dispatcher,
    mode: CallMode,
    request: Request,
    deadline: number,
    signal: AbortSignal | undefined,
    sink: ReplySink,
  ) {
    this.#dispatcher = dispatcher
    this.#request = request
    this.#sink = sink
    this.deadline = deadline
    this.signal = signal
    this.requestClass = request.requestClass
    this.idempotent = mode !== 'rw' || request.requestClass === 'read'
  }

  run(instance: InstanceHandle, token: number): 'sent' {
    this.#token = token
    const { deadline, signal } = this
    instance.send(this.#request, signal === undefined ? { deadline } : { deadline, signal }, this)
    return 'sent'
  }

  giveUp(error: OrbweaverError): void {
    this.#sink.failed(error)
  }

  done(reply: Reply): void {
    if (!this.#dispatcher.settle(this, this.#token, reply)) this.#sink.done(reply)
  }

  failed(error: OrbweaverError): void {
    if (!this.#dispatcher.settle(this, this.#token, error)) this.#sink.failed(error)
  }

  push(reply: Reply): void {
    this.#sink.push?.(reply)
  }
}

/** Names may have to be looked up first, so the body does not exist yet while it waits. */
const ESTIMATED_BYTES = 1_024
