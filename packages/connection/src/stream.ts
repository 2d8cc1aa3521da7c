import {
  beginRequest,
  BoxError,
  commitRequest,
  ErrorCode,
  Feature,
  type Isolation,
  type OrbweaverError,
  type Reply,
  type Request,
  rollbackRequest,
} from '@orbweaver/iproto'
import { log } from './diagnostics.js'
import { ConnectionClosedError, ConnectionLostError } from './errors.js'
import { LateRequest, requireFeature } from './late-request.js'
import { Operations, type OperationsHost, type RequestOptions, type SqlRows } from './operations.js'
import type { ReplySink, SessionPin } from './pending.js'
import type { PreparedStatement } from './sql.js'

/** Options of `begin` and `transaction`; `timeout` and `signal` are those of the BEGIN request. */
export interface TransactionOptions extends Pick<RequestOptions, 'timeout' | 'signal'> {
  /** Milliseconds after which the server rolls the transaction back; default: its own setting. */
  readonly expire?: number
  /** Default: the server's. */
  readonly isolation?: Isolation
  /** Commit synchronously whatever the spaces. Tarantool 3.2 and newer. */
  readonly isSync?: boolean
}

/** What a stream needs of its connection. */
export interface StreamHost extends Omit<OperationsHost, 'send' | 'mayResolveAgain'> {
  send(
    request: Request,
    deadline: number,
    signal: AbortSignal | undefined,
    sink: ReplySink,
    streamId: number,
    pin: SessionPin,
  ): void
  /** The transaction began: the session should not be left before its end. */
  opened(stream: Stream): void
  ended(stream: Stream): void
}

/**
 * A lane of requests that the server runs strictly one after another, and that may hold a transaction (Tarantool 2.10 and
 * newer; memtx needs `memtx_use_mvcc_engine`). Requests may be sent without waiting for each other. It belongs to one
 * session of the server: when the connection breaks the transaction is rolled back by the server, and every further
 * request fails with `ConnectionLostError`; take a new stream then.
 *
 * @example
 * await using stream = connection.stream()
 * await stream.begin()
 * await stream.update('accounts', [1], [['-', 'balance', 10]])
 * await stream.update('accounts', [2], [['+', 'balance', 10]])
 * await stream.commit() // leaving the block without it rolls back
 */
export class Stream extends Operations implements AsyncDisposable {
  readonly id: number
  protected readonly host: OperationsHost
  readonly #streamHost: StreamHost
  readonly #pin: SessionPin = { generation: undefined }
  #transaction: Transaction = NO_TRANSACTION

  /** Made by `connection.stream`. */
  constructor(id: number, host: StreamHost) {
    super()
    this.id = id
    this.#streamHost = host
    this.host = new StreamRequests(host, (request, deadline, signal, sink) => {
      host.send(request, deadline, signal, this.#watched(sink), this.id, this.#pin)
    })
  }

  /** Whether a transaction was begun here and has not ended. */
  get isOpen(): boolean {
    return this.#transaction.name === 'open'
  }

  /** Begins a transaction. @throws UnsupportedFeatureError before anything is sent when the server has none */
  async begin(options: TransactionOptions = {}): Promise<void> {
    const { expire, isolation, isSync, timeout, signal } = options
    const request = beginRequest({
      ...(expire === undefined ? {} : { timeout: expire }),
      ...(isolation === undefined ? {} : { isolation }),
      ...(isSync === undefined ? {} : { isSync }),
    })
    const begun: Transaction = { name: 'open' }
    this.#become(begun)
    try {
      await this.run(isSync === true ? needingIsSync(request) : request, requestOptions(timeout, signal), readNothing)
    } catch (error) {
      if (this.#transaction === begun) this.#become(NO_TRANSACTION)
      throw error
    }
  }

  /**
   * Commits. After a statement or an earlier commit made the transaction fail for good (97, 154, 231), rolls back what the
   * server still holds and rejects with that error: the server itself would report success for the nothing that is left.
   * `executed: 'unknown'` means that it may have been committed.
   */
  async commit(options: RequestOptions & { readonly isSync?: boolean } = {}): Promise<void> {
    const failure = this.#transaction.name === 'failed' ? this.#transaction.cause : undefined
    if (failure !== undefined) {
      await this.#rollBackQuietly()
      this.#transaction = { name: 'failed', cause: failure }
      throw failure
    }
    const { isSync, ...rest } = options
    const request = commitRequest(isSync === undefined ? {} : { isSync })
    try {
      await this.run(isSync === true ? needingIsSync(request) : request, rest, readNothing)
      if (this.#transaction.name === 'open') this.#become(NO_TRANSACTION)
    } catch (error) {
      this.#become({ name: 'failed', cause: error as OrbweaverError })
      throw error
    }
  }

  /** Rolls back. Succeeds when there is nothing (left) to roll back, also because the connection broke. */
  async rollback(options: RequestOptions = {}): Promise<void> {
    try {
      await this.run(rollbackRequest(), options, readNothing)
    } catch (error) {
      // Without its session the transaction is gone, which is what was asked for.
      if (!isSessionGone(error)) throw error
    } finally {
      this.#become(NO_TRANSACTION)
    }
  }

  /** Rolls back a transaction that is open. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#transaction.name !== 'none') await this.#rollBackQuietly()
  }

  /** For the connection: the session this stream belonged to is gone. */
  lost(cause: OrbweaverError): void {
    if (this.#transaction.name === 'open') this.#transaction = { name: 'failed', cause }
  }

  /** By id while this session knows it, else by its text: waiting for PREPARE would let later requests overtake. */
  protected async executePrepared<Row>(
    statement: PreparedStatement,
    binds: readonly unknown[],
    options: RequestOptions,
  ): Promise<SqlRows<Row>> {
    const prepared = statement.current
    if (
      prepared === undefined ||
      (this.#pin.generation !== undefined && prepared.pin.generation !== this.#pin.generation)
    ) {
      return this.executeRaw<Row>(statement.text, binds, options)
    }
    const wasOpen = this.isOpen
    try {
      return await this.executeRaw<Row>(prepared.info.id, binds, options)
    } catch (error) {
      // Inside a transaction later statements may have run already: sending this one again would change their order.
      if (wasOpen || this.isOpen || !statement.isForgotten(error, prepared)) throw error
      return this.executeRaw<Row>(statement.text, binds, options)
    }
  }

  async #rollBackQuietly(): Promise<void> {
    try {
      await this.rollback()
    } catch (error) {
      // Whatever led here says more. The server ends the transaction by its own timeout, or with the session.
      log('warn', 'rollback failed', () => ({ streamId: this.id, error }))
    }
  }

  #watched(sink: ReplySink): ReplySink {
    return this.#transaction.name === 'open' ? new StatementSink(sink, (error) => this.#statementFailed(error)) : sink
  }

  #statementFailed(error: OrbweaverError): void {
    if (this.#transaction.name !== 'open') return
    if (error instanceof BoxError ? TRANSACTION_ENDS.has(error.boxCode) : isSessionGone(error)) {
      this.#become({ name: 'failed', cause: error })
    }
  }

  #become(transaction: Transaction): void {
    const wasOpen = this.isOpen
    this.#transaction = transaction
    if (!wasOpen && this.isOpen) this.#streamHost.opened(this)
    if (wasOpen && !this.isOpen) this.#streamHost.ended(this)
  }
}

type Transaction =
  | { readonly name: 'none' }
  | { readonly name: 'open' }
  /** It cannot be committed any more. */
  | { readonly name: 'failed'; readonly cause: OrbweaverError }

const NO_TRANSACTION: Transaction = { name: 'none' }

/** The host of a stream's requests: its connection's, with every request sent into the stream. */
class StreamRequests implements OperationsHost {
  /** What was sent behind a refused request may have run: names are not looked up again. */
  readonly mayResolveAgain: boolean = false
  readonly send: OperationsHost['send']
  readonly #host: StreamHost

  constructor(host: StreamHost, send: OperationsHost['send']) {
    this.#host = host
    this.send = send
  }

  get nowMs(): number {
    return this.#host.nowMs
  }

  get requestTimeoutMs(): number {
    return this.#host.requestTimeoutMs
  }

  get decode(): OperationsHost['decode'] {
    return this.#host.decode
  }

  isSchemaStale(): boolean {
    return this.#host.isSchemaStale()
  }
}

/** Looks at the errors of statements on their way to whoever waits for them. */
class StatementSink implements ReplySink {
  readonly #sink: ReplySink
  readonly #failed: (error: OrbweaverError) => void

  constructor(sink: ReplySink, failed: (error: OrbweaverError) => void) {
    this.#sink = sink
    this.#failed = failed
  }

  done(reply: Reply): void {
    this.#sink.done(reply)
  }

  failed(error: OrbweaverError): void {
    this.#failed(error)
    this.#sink.failed(error)
  }

  push(reply: Reply): void {
    this.#sink.push?.(reply)
  }
}

function needingIsSync(request: Request): Request {
  return new LateRequest({
    type: request.type,
    requestClass: request.requestClass,
    args: [],
    build: () => request,
    check: (peer) => requireFeature(peer, Feature.isSync, 'isSync'),
  })
}

function requestOptions(timeout: number | undefined, signal: AbortSignal | undefined): RequestOptions {
  return { ...(timeout === undefined ? {} : { timeout }), ...(signal === undefined ? {} : { signal }) }
}

function isSessionGone(error: unknown): boolean {
  return error instanceof ConnectionLostError || error instanceof ConnectionClosedError
}

function readNothing(): void {}

/** Conflict, yield without MVCC, timeout: what follows in the transaction is refused, and COMMIT has nothing to commit. */
const TRANSACTION_ENDS: ReadonlySet<number> = new Set([
  ErrorCode.transactionConflict,
  ErrorCode.transactionYield,
  ErrorCode.transactionTimeout,
])
