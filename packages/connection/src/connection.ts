/** The handle users hold: one connection to one instance, like Tarantool's own net.box. */
import {
  BodyReader,
  type DecodeOptions,
  decodeData,
  decodePrepared,
  Feature,
  type FrameHeader,
  Key,
  type OrbweaverError,
  type PreparedInfo,
  prepareRequest,
  type Reply,
  type Request,
  unprepareRequest,
  UnsupportedFeatureError,
  watchOnceRequest,
  InvalidArgumentError,
} from '@orbweaver/iproto'
import { EventEmitter } from 'eventemitter3'
import type { Connected, ConnectionEvents } from './connection-events.js'
import { ConnectionClosedError, ConnectionLostError } from './errors.js'
import { asOrbweaverError } from './fate.js'
import { LatestValues } from './latest-values.js'
import { unsupported } from './late-request.js'
import { Link } from './link.js'
import { Operations, type OperationsHost, readSql, type RequestOptions, type SqlRows } from './operations.js'
import { type ReadReply, UserRequest } from './user-request.js'
import { closeTimeoutOf, type ConnectionOptions, deadlineOf, resolveOptions, type ResolvedOptions } from './options.js'
import type { PendingRequest, ReplySink, SendOptions, SessionPin } from './pending.js'
import type { EndedCounts } from './request-flow.js'
import { SchemaLoader } from './schema-loader.js'
import { type Prepared, PreparedStatement, type StatementHost } from './sql.js'
import { executeOf } from './sql-binds.js'
import type { ConnectionState, StateName } from './state.js'
import { Stream, type StreamHost, type TransactionOptions } from './stream.js'
import { surface } from './surface.js'
import { waitFor } from './wait-for.js'
import { Watchers } from './watchers.js'

/** Options of `watch`. */
export interface WatchOptions {
  /** Told when this server cannot serve the subscription; it stays for the next connection. Default: the event `watchError`. */
  readonly onError?: (error: OrbweaverError) => void
  /** Ends the subscription. */
  readonly signal?: AbortSignal
}

/** Numbers of a connection. Law: accepted = queued + inFlight + the sum of ended. */
export interface ConnectionStats {
  /** Requests given to the connection. */
  readonly accepted: number
  /** Waiting for room, for the connection, or for the schema. */
  readonly queued: number
  readonly queuedBytes: number
  /** Sent, or being sent, and waited for. */
  readonly inFlight: number
  /** Bytes of what the server has or may have, late ones included. */
  readonly inFlightBytes: number
  /** Ended early; the answer, which will be dropped, has not come. */
  readonly late: number
  readonly ended: Readonly<EndedCounts>
  readonly lateAnswers: number
  readonly writes: number
  readonly bytesWritten: number
  readonly bytesRead: number
  readonly attempts: number
  readonly connects: number
  /** Keys subscribed to, the connection's own included. */
  readonly watchedKeys: number
}

/**
 * Connects and waits until the connection is usable.
 * @param target - an address as `parseUri` takes it, or all options
 * @param options - further options, with an address string
 * @throws ConfigError for options that make no sense; ConnectError, AuthError when the first attempt fails: then everything
 * is closed again. Later losses are repaired in the background.
 * @example
 * await using connection = await connect('app:secret@localhost:3301')
 * const rows = await connection.select('users', [1])
 */
export async function connect(
  target: string | ConnectionOptions,
  options: Omit<ConnectionOptions, 'uri'> = {},
): Promise<Connection> {
  const connection = createConnection(typeof target === 'string' ? { ...options, uri: target } : target)
  try {
    await connection.connect()
  } catch (error) {
    connection.destroy()
    throw error
  }
  return connection
}

/**
 * A connection that dials in the background, again and again until it is closed. Requests may be made at once; they wait
 * for the connection within their timeouts.
 * @throws ConfigError for options that make no sense
 */
export function createConnection(options: ConnectionOptions): Connection {
  return new Connection(resolveOptions(options))
}

/**
 * One connection to one instance, which reconnects by itself. All requests are pipelined: call in parallel and they leave
 * in one write. An open connection keeps the process alive unless `unref` was called.
 */
export class Connection extends Operations implements AsyncDisposable {
  protected readonly host: OperationsHost
  readonly #options: ResolvedOptions
  readonly #link: Link
  readonly #watchers: Watchers
  readonly #events = new EventEmitter<ConnectionEvents>()
  readonly #iterators = new Set<LatestValues>()
  readonly #streams: StreamHost
  readonly #statements: StatementHost
  /** With a transaction that has begun: a server that shuts down is not left before they end. */
  readonly #openStreams = new Set<Stream>()
  #lastStreamId = 0

  /** Made by `connect` and `createConnection`. */
  constructor(options: ResolvedOptions) {
    super()
    this.#options = options
    const link = new Link(options, {
      stateChanged: (state, previous) => this.#stateChanged(state, previous),
      begun: () => this.#begun(),
      ended: (cause) => this.#ended(cause),
      event: (frame, header) => this.#event(frame, header),
      watchFailed: (sync, error) => this.#watchers.failed(sync, error),
      schemaWanted: () => loader.want(),
      isSessionNeeded: () => this.#openStreams.size > 0,
      finished: () => this.#finished(),
    })
    const loader = new SchemaLoader(link, options.requestTimeoutMs)
    this.#link = link
    this.#watchers = new Watchers({
      get isUp() {
        return link.isUp
      },
      refusal: () =>
        link.features.has(Feature.watchers) ? undefined : unsupported(link, Feature.watchers, 'A watcher'),
      tell: (request, sync) => link.flow.tell(request, sync),
      soon: (task) => options.environment.clock.soon(task),
      unheard: (key, error) => this.#emit('watchError', key, error),
    })
    this.host = new ConnectionRequests(link, options)
    this.#streams = this.#streamHost()
    this.#statements = this.#statementHost()
    // Unless it is subscribed to and acknowledged, a server that shuts down cuts the connection at once.
    this.#watchers.add(SHUTDOWN_KEY, {
      isOptional: true,
      onError: undefined,
      onValue: (value) => {
        if (value === true) this.#serverShutdown()
      },
    })
    link.start()
  }

  /** Where the connection is in its life; `stateDetails` says more. */
  get state(): StateName {
    return this.#link.state.name
  }

  get stateDetails(): ConnectionState {
    return this.#link.state
  }

  /** One more with each successful connect; 0 before the first. */
  get generation(): number {
    return this.#link.generation
  }

  /** What this connection's server and this package have in common; empty while there is no connection. */
  get features(): ReadonlySet<number> {
    return this.#link.features
  }

  /** Of the instance at the other end, from its greeting; undefined while there is no connection. */
  get peerUuid(): string | undefined {
    return this.#link.peerUuid
  }

  /** Version of the server, from its greeting; undefined while there is no connection. */
  get serverVersion(): string | undefined {
    return this.#link.isUp ? this.#link.version : undefined
  }

  /** The address as people write it, without credentials. */
  get peer(): string {
    return this.#link.name
  }

  /**
   * Sends a request of `@orbweaver/iproto` as it is: the path without promises, for layers above. Never throws for the
   * state of the link and never calls the sink before it returns. While there is no connection the request waits, within
   * its deadline. Arguments are read before this returns.
   */
  send(request: Request, options: SendOptions, sink: ReplySink): PendingRequest {
    return this.#link.send(request, options, sink)
  }

  /**
   * Subscribes to a key of the server (`box.broadcast`, or a built-in one such as `box.status`). The callback gets the
   * current value at once (undefined: never set) and then each change; while it runs, newer values replace each other on
   * the server. After a reconnect the first call says the value of that moment.
   * @returns ends the subscription; harmless when repeated
   * @throws UnsupportedFeatureError when the connection is up and its server has no watchers (before 2.10);
   * ConnectionClosedError after `close`
   */
  watch(key: string, onValue: (value: unknown) => void, options: WatchOptions = {}): () => void {
    const { onError, signal } = options
    if (typeof onValue !== 'function')
      throw new InvalidArgumentError(`onValue of watch('${key}') is a ${typeof onValue}, expected a function`)
    this.#refuseClosed()
    if (signal?.aborted === true) return nothingToEnd
    const remove = this.#watchers.add(key, { onValue, onError })
    if (signal === undefined) return remove
    const end = (): void => {
      signal.removeEventListener('abort', end)
      remove()
    }
    signal.addEventListener('abort', end, { once: true })
    return end
  }

  /**
   * As `watch`, for `for await`: the current value, then the newest each time the loop asks. The loop ends when the
   * connection is closed or the signal fires, and throws when the server cannot serve it.
   * @example for await (const status of connection.watchValues('box.status')) console.log(status)
   */
  watchValues(key: string, options: Pick<WatchOptions, 'signal'> = {}): AsyncIterableIterator<unknown> {
    this.#refuseClosed()
    const values = new LatestValues()
    const { signal } = options
    let remove = nothingToEnd
    try {
      remove = this.#watchers.add(key, {
        onValue: (value) => values.offer(value),
        onError: (error) => values.fail(error),
      })
    } catch (error) {
      // What a loop waits for rejects; nothing is thrown before it begins.
      values.fail(asOrbweaverError(error))
    }
    const finish = (): void => values.finish()
    signal?.addEventListener('abort', finish, { once: true })
    this.#iterators.add(values)
    values.bind(() => {
      signal?.removeEventListener('abort', finish)
      this.#iterators.delete(values)
      remove()
    })
    if (signal?.aborted === true) finish()
    return values
  }

  /**
   * The value of a key at this moment, after everything the server sent before on this connection. By WATCH_ONCE from 3.0
   * on, by subscribing anew on 2.10 and 2.11.
   * @returns undefined when the key was never set
   * @throws UnsupportedFeatureError on older servers
   */
  async watchOnce(key: string, options: RequestOptions = {}): Promise<unknown> {
    try {
      const [value] = await this.run(watchOnceRequest(key), options, readValues)
      return value
    } catch (error) {
      if (!(error instanceof UnsupportedFeatureError) || !this.features.has(Feature.watchers)) throw error
    }
    return this.#fence(key, options)
  }

  /** A lane of requests with an order of its own and room for a transaction; costs nothing until it is used. */
  stream(): Stream {
    this.#lastStreamId += 1
    return new Stream(this.#lastStreamId, this.#streams)
  }

  /**
   * Runs `work` in a transaction: commits when it resolves, rolls back and rejects when it rejects. Nothing is repeated;
   * after a conflict (`BoxError` 97) the caller may call again.
   * @throws UnsupportedFeatureError on servers before 2.10, before anything is sent
   */
  async transaction<T>(work: (stream: Stream) => Promise<T>, options: TransactionOptions = {}): Promise<T> {
    await using stream = this.stream()
    await stream.begin(options)
    const result = await work(stream)
    await stream.commit()
    return result
  }

  /** Prepares an SQL statement. It stays usable across schema changes and reconnects. */
  async prepare(text: string, options: Pick<RequestOptions, 'timeout' | 'signal'> = {}): Promise<PreparedStatement> {
    return new PreparedStatement(text, await this.#prepare(text, options), this.#statements)
  }

  /**
   * Waits until the connection is usable. All callers share one attempt: it rejects with what made that attempt fail
   * (`ConnectError`, `AuthError`), while later attempts go on in the background.
   */
  connect(): Promise<void> {
    return this.#link.connect()
  }

  /**
   * Takes no more requests, waits for those under way, then closes. What has not ended after the timeout is ended with
   * `ConnectionClosedError`, as is at once what was never sent because there is no connection. May be called at any time
   * and again; a shorter timeout then counts.
   * @param options.timeout - milliseconds from 0 on; default `closeTimeoutMs`
   */
  async close(options: { readonly timeout?: number } = {}): Promise<void> {
    await this.#link.close(closeTimeoutOf(options.timeout, this.#options.closeTimeoutMs))
  }

  /** Closes now: every request ends with `ConnectionClosedError`, whose `cause` this is. */
  destroy(cause?: Error): void {
    this.#link.destroy(cause)
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  /** Lets the connection keep the process alive again, which is the default. */
  ref(): this {
    this.#link.setHolding(true)
    return this
  }

  /**
   * Stops the connection, its timers and its requests from keeping the process alive. An attempt to connect that is under
   * way still does, until it ends (at most `connectTimeoutMs`).
   */
  unref(): this {
    this.#link.setHolding(false)
    return this
  }

  on<E extends keyof ConnectionEvents>(event: E, listener: ConnectionEvents[E]): this {
    this.#events.on(event, listener as never)
    return this
  }

  once<E extends keyof ConnectionEvents>(event: E, listener: ConnectionEvents[E]): this {
    this.#events.once(event, listener as never)
    return this
  }

  off<E extends keyof ConnectionEvents>(event: E, listener: ConnectionEvents[E]): this {
    this.#events.off(event, listener as never)
    return this
  }

  stats(): ConnectionStats {
    const { flow, inbound, attempts, generation } = this.#link
    const { inFlight, inFlightBytes, late, queued, queuedBytes } = flow.counts
    const { accepted, lateAnswers, writes, bytesWritten } = flow
    return {
      accepted,
      queued,
      queuedBytes,
      inFlight,
      inFlightBytes,
      late,
      ended: { ...flow.ended },
      lateAnswers,
      writes,
      bytesWritten,
      bytesRead: inbound.bytesRead,
      attempts,
      connects: generation,
      watchedKeys: this.#watchers.size,
    }
  }

  protected executePrepared<Row>(
    statement: PreparedStatement,
    binds: readonly unknown[],
    options: RequestOptions,
  ): Promise<SqlRows<Row>> {
    return statement.execute<Row>(binds, options)
  }

  async #prepare(text: string, options: RequestOptions): Promise<Prepared> {
    const pin: SessionPin = { generation: undefined }
    const { info, schemaVersion } = await this.#pinned(prepareRequest(text), options, pin, readPrepared)
    return { info, schemaVersion, pin }
  }

  /** A request that belongs to one session of the server, as a promise. */
  #pinned<T>(request: Request, options: RequestOptions, pin: SessionPin, read: ReadReply<T>): Promise<T> {
    const link = this.#link
    return new Promise<T>((resolve, reject) => {
      const deadline = deadlineOf(link.nowMs, options.timeout, this.#options.requestTimeoutMs)
      const { signal } = options
      const sink = new UserRequest<T>(resolve, reject, read, options.decode ?? this.#options.decode)
      link.send(request, { deadline, pin, ...(signal === undefined ? {} : { signal }) }, sink)
    })
  }

  #fence(key: string, options: RequestOptions): Promise<unknown> {
    const { clock } = this.#options.environment
    const deadline = deadlineOf(clock.now(), options.timeout, this.#options.requestTimeoutMs)
    let remove = nothingToEnd
    const value = new Promise<unknown>((resolve, reject) => {
      remove = this.#watchers.fence(key, resolve, reject)
    })
    return waitFor(value, `Reading the key '${key}'`, clock, deadline, options.signal).finally(() => remove())
  }

  #begun(): void {
    this.#watchers.begun()
  }

  #ended(cause: OrbweaverError | undefined): void {
    const lost = cause ?? new ConnectionLostError(`The connection to ${this.peer} ended`, { executed: 'no' })
    for (const stream of this.#openStreams) stream.lost(lost)
    this.#openStreams.clear()
    this.#watchers.ended(lost)
    this.#emit('disconnect', cause)
  }

  #finished(): void {
    this.#watchers.clear()
    for (const values of [...this.#iterators]) values.finish()
    this.#emit('close')
  }

  #event(frame: Buffer, header: FrameHeader): void {
    const { decode } = this.#options
    const body = new BodyReader(frame.subarray(header.bodyStart, header.bodyEnd))
    const sync = header.syncHigh * 0x1_0000_0000 + header.syncLow
    const key = body.requireText(Key.eventKey)
    let value: unknown
    try {
      value = body.value(Key.eventData, decode)
    } catch (error) {
      // Not a reason to break off: the same value would come again with the next connection.
      this.#watchers.unreadable(key, asOrbweaverError(error), sync)
      return
    }
    this.#watchers.event(key, value, sync)
  }

  #serverShutdown(): void {
    this.#emit('shutdown')
    this.#link.serverShutdown()
  }

  #stateChanged(state: ConnectionState, previous: ConnectionState): void {
    this.#emit('state', state, previous)
    const wasConnecting = previous.name === 'initial' || previous.name === 'auth'
    if (wasConnecting && (state.name === 'error_reconnect' || state.name === 'error'))
      this.#emit('connectFailed', state.cause)
    if (state.name !== 'active') return
    const connected: Connected = {
      generation: this.generation,
      version: this.#link.version,
      instanceUuid: this.#link.peerUuid ?? '',
      features: this.features,
    }
    this.#emit('connect', connected)
  }

  #emit<E extends keyof ConnectionEvents>(event: E, ...args: Parameters<ConnectionEvents[E]>): void {
    try {
      this.#events.emit(event, ...(args as never))
    } catch (error) {
      surface(error)
    }
  }

  #refuseClosed(): void {
    const { name } = this.#link.state
    if (name === 'closed' || name === 'closing') {
      throw new ConnectionClosedError(`The connection to ${this.peer} was closed by its owner`, { executed: 'no' })
    }
  }

  #streamHost(): StreamHost {
    const link = this.#link
    const { host } = this
    return {
      get nowMs() {
        return link.nowMs
      },
      requestTimeoutMs: host.requestTimeoutMs,
      decode: host.decode,
      isSchemaStale: () => host.isSchemaStale(),
      send: (request, deadline, signal, sink, streamId, pin) => {
        link.send(request, { deadline, streamId, pin, ...(signal === undefined ? {} : { signal }) }, sink)
      },
      opened: (stream) => this.#openStreams.add(stream),
      ended: (stream) => {
        this.#openStreams.delete(stream)
        link.sessionFreed()
      },
    }
  }

  #statementHost(): StatementHost {
    const link = this.#link
    const { requestTimeoutMs, environment } = this.#options
    return {
      clock: environment.clock,
      requestTimeoutMs,
      get generation() {
        return link.generation
      },
      get schemaVersion() {
        return link.schema.newestVersion
      },
      prepareNow: (text) => this.#prepare(text, {}),
      executeNow: <Row>(prepared: Prepared, binds: readonly unknown[], options: RequestOptions) =>
        this.#pinned(executeOf(prepared.info.id, binds), options, prepared.pin, readSql<Row>),
      unprepareNow: (prepared) => this.#pinned(unprepareRequest(prepared.info.id), {}, prepared.pin, readNothing),
    }
  }
}

/** How the methods of `Operations` reach the link. */
class ConnectionRequests implements OperationsHost {
  readonly requestTimeoutMs: number
  readonly decode: DecodeOptions | undefined
  readonly mayResolveAgain: boolean = true
  readonly #link: Link

  constructor(link: Link, options: ResolvedOptions) {
    this.#link = link
    this.requestTimeoutMs = options.requestTimeoutMs
    this.decode = options.decode
  }

  get nowMs(): number {
    return this.#link.nowMs
  }

  isSchemaStale(): boolean {
    return this.#link.schema.isStale
  }

  send(request: Request, deadline: number, signal: AbortSignal | undefined, sink: ReplySink): void {
    this.#link.send(request, signal === undefined ? { deadline } : { deadline, signal }, sink)
  }
}

function readPrepared(reply: Reply): { readonly info: PreparedInfo; readonly schemaVersion: number } {
  return { info: decodePrepared(reply), schemaVersion: reply.schemaVersion }
}

function readValues(reply: Reply, decode: DecodeOptions | undefined): unknown[] {
  return decodeData(reply, decode)
}

function readNothing(): void {}

function nothingToEnd(): void {}

const SHUTDOWN_KEY = 'box.shutdown'
