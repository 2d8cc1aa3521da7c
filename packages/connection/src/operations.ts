/** The requests users make, on a connection or in a stream of one. */
import {
  type DecodeOptions,
  callRequest,
  dataSlice,
  decodeData,
  decodeSql,
  deleteRequest,
  ErrorCode,
  BoxError,
  evalRequest,
  Feature,
  insertRequest,
  InvalidArgumentError,
  type IndexRef,
  type IteratorName,
  pingRequest,
  RawValue,
  replaceRequest,
  type Reply,
  type Request,
  type RequestClass,
  RequestType,
  selectRequest,
  type SpaceRef,
  type SqlResult,
  type UpdateOperation,
  updateRequest,
  upsertRequest,
  replyPosition,
} from '@orbweaver/iproto'
import { asOrbweaverError } from './fate.js'
import { DescribeRequest, frozenRequest, LateRequest, type PeerView, requireFeature } from './late-request.js'
import { deadlineOf, refuseUnknownOptions } from './options.js'
import { type IterateOptions, iterateRows, type Page, type PageSource, selectPagesOf } from './pages.js'
import { PushedCall } from './pushed-call.js'
import { PreparedStatement } from './sql.js'
import { executeOf } from './sql-binds.js'
import { type ReadReply, RepeatableRequest, type RepetitionHost, UserRequest } from './user-request.js'

/** Options of every request. */
export interface RequestOptions {
  /** Milliseconds, more than 0; Infinity: none. Default: `requestTimeoutMs` of the connection. */
  readonly timeout?: number
  /** Ends the request with `RequestAbortedError`. What was sent is not undone. */
  readonly signal?: AbortSignal
  /** Running it twice does no harm: it is sent once more if the connection breaks before its answer. Default false. */
  readonly idempotent?: boolean
  /** How values of the answer appear. Default: `decode` of the connection. */
  readonly decode?: DecodeOptions
}

/** Options of `call` and `eval`. */
export interface CallOptions extends RequestOptions {
  /** Leave the returned values undecoded: the promise gives a `RawValue` holding the array of them. Default false. */
  readonly raw?: boolean
  /** Called for each message the function sends with `box.session.push`, in order, before the call ends. */
  readonly onPush?: (value: unknown) => void
}

/** Options of a request about an index. */
export interface IndexOptions extends RequestOptions {
  /** By id or name; default the primary index. */
  readonly index?: IndexRef
}

/** Options of `select`. */
export interface SelectOptions extends IndexOptions {
  /** Default EQ. With an empty key all iterators begin at an end of the index. */
  readonly iterator?: IteratorName | number
  /** Rows to pass over; default 0. */
  readonly offset?: number
  /** Rows to return; default all (4294967295). */
  readonly limit?: number
  /** Go on behind a position (from `selectPage`) or a row. Tarantool 2.11 and newer. */
  readonly after?: string | Uint8Array | readonly unknown[]
}

/** Options of `update` and `upsert`. */
export interface UpdateOptions extends IndexOptions {
  /** What field numbers of the operations count from: 0 (default) or 1, as Lua does. */
  readonly indexBase?: 0 | 1
}

/** What a statement gave, with typed rows. */
export interface SqlRows<Row = unknown[]> extends Omit<SqlResult, 'rows'> {
  readonly rows: Row[]
}

/** What the methods here need of a connection or stream. */
export interface OperationsHost extends RepetitionHost {
  /** Clock of the deadlines. */
  readonly nowMs: number
  readonly requestTimeoutMs: number
  readonly decode: DecodeOptions | undefined
}

/** Reads for which the peer is checked only when the request is written. */
type PeerCheck = (peer: PeerView) => void

export abstract class Operations {
  protected abstract readonly host: OperationsHost

  /**
   * Rows of an index in its order.
   * @param key - parts of the index's key, maybe fewer than it has; `[]` (default) for all
   * @throws BoxError, NoSuchSpaceError, NoSuchIndexError, RequestTimeoutError and the other errors of a connection
   * @example const [row] = await connection.select<[id: number, name: string]>('users', [1])
   */
  select<T = unknown[]>(
    space: SpaceRef,
    key: readonly unknown[] = [],
    options: SelectOptions = NO_OPTIONS,
  ): Promise<T[]> {
    return this.#run(readRows<T>, options, SELECT_NAMES, 'select', () =>
      this.#selectRequest(space, key, options, false),
    )
  }

  /**
   * The one row with this key, or undefined.
   * @throws BoxError 41 when the index has several
   */
  get<T = unknown[]>(
    space: SpaceRef,
    key: readonly unknown[],
    options: IndexOptions = NO_OPTIONS,
  ): Promise<T | undefined> {
    return this.#run(readOnlyRow<T>, options, INDEX_NAMES, 'get', () =>
      this.#selectRequest(space, key, { ...options, limit: 2 }, false),
    )
  }

  /** One page of a select and the position behind it. Tarantool 2.11 and newer; see `selectPages` for the loop. */
  selectPage<T = unknown[]>(
    space: SpaceRef,
    key: readonly unknown[] = [],
    options: SelectOptions = NO_OPTIONS,
  ): Promise<Page<T>> {
    return this.#run(readPage<T>, options, SELECT_NAMES, 'selectPage', () =>
      this.#selectRequest(space, key, options, true),
    )
  }

  /**
   * A large select in pages: each is asked for when it is wanted, so memory holds one page. Rows written meanwhile may or
   * may not appear; none appears twice or is passed over. Where the server has no positions (before 2.11) the pages go on
   * behind the last primary key, which works on the primary index, with an empty key or an ordering iterator.
   * @throws UnsupportedFeatureError at the first page when this select cannot be paged on this server
   */
  selectPages<T = unknown[]>(
    space: SpaceRef,
    key: readonly unknown[] = [],
    options: IterateOptions = NO_OPTIONS,
  ): AsyncGenerator<T[], void> {
    return selectPagesOf<T>(this.#pageSource(options), space, key, options)
  }

  /** As `selectPages`, row by row. */
  iterate<T = unknown[]>(
    space: SpaceRef,
    key: readonly unknown[] = [],
    options: IterateOptions = NO_OPTIONS,
  ): AsyncGenerator<T, void> {
    return iterateRows<T>(this.#pageSource(options), space, key, options)
  }

  /** @returns the row as stored; undefined only when a trigger of the space put nothing there */
  insert<T = unknown[]>(
    space: SpaceRef,
    tuple: readonly unknown[] | RawValue,
    options: RequestOptions = NO_OPTIONS,
  ): Promise<T | undefined> {
    return this.#run(readFirst<T>, options, REQUEST_NAMES, 'insert', () =>
      typeof space === 'number'
        ? insertRequest(space, tuple)
        : this.#named(RequestType.insert, 'dml', space, 0, [tuple], buildInsert),
    )
  }

  /** @returns the row as stored; undefined only when a trigger of the space put nothing there */
  replace<T = unknown[]>(
    space: SpaceRef,
    tuple: readonly unknown[] | RawValue,
    options: RequestOptions = NO_OPTIONS,
  ): Promise<T | undefined> {
    return this.#run(readFirst<T>, options, REQUEST_NAMES, 'replace', () =>
      typeof space === 'number'
        ? replaceRequest(space, tuple)
        : this.#named(RequestType.replace, 'dml', space, 0, [tuple], buildReplace),
    )
  }

  /** @returns the row afterwards, or undefined when no row has this key */
  update<T = unknown[]>(
    space: SpaceRef,
    key: readonly unknown[],
    operations: readonly UpdateOperation[],
    options: UpdateOptions = NO_OPTIONS,
  ): Promise<T | undefined> {
    return this.#run(readFirst<T>, options, UPDATE_NAMES, 'update', () => {
      const { index = 0, indexBase } = options
      return this.#named(RequestType.update, 'dml', space, index, [key, operations, indexBase], buildUpdate)
    })
  }

  /** Inserts the tuple, or applies the operations to the row that has its primary key. Tells not which. */
  upsert(
    space: SpaceRef,
    tuple: readonly unknown[],
    operations: readonly UpdateOperation[],
    options: Omit<UpdateOptions, 'index'> = NO_OPTIONS,
  ): Promise<void> {
    return this.#run(readNothing, options, UPSERT_NAMES, 'upsert', () =>
      this.#named(RequestType.upsert, 'dml', space, 0, [tuple, operations, options.indexBase], buildUpsert),
    )
  }

  /** @returns the deleted row, or undefined when no row has this key */
  delete<T = unknown[]>(
    space: SpaceRef,
    key: readonly unknown[],
    options: IndexOptions = NO_OPTIONS,
  ): Promise<T | undefined> {
    return this.#run(readFirst<T>, options, INDEX_NAMES, 'delete', () =>
      this.#named(RequestType.delete, 'dml', space, options.index ?? 0, [key], buildDelete),
    )
  }

  /**
   * Calls a stored function: `f`, `module.f` or `object:method`.
   * @returns all values the function returned, as an array: `return 1, nil` is `[1, null]`, `return` is `[]`
   */
  call(
    name: string,
    args: readonly unknown[] | undefined,
    options: CallOptions & { readonly raw: true },
  ): Promise<RawValue>
  call<T = unknown[]>(name: string, args?: readonly unknown[], options?: CallOptions): Promise<T>
  call(name: string, args: readonly unknown[] = [], options: CallOptions = NO_OPTIONS): Promise<unknown> {
    return this.#runCode(options, 'call', () => callRequest(name, args))
  }

  /** Runs a Lua chunk; `...` in it are the arguments. Result as with `call`. */
  eval(
    expression: string,
    args: readonly unknown[] | undefined,
    options: CallOptions & { readonly raw: true },
  ): Promise<RawValue>
  eval<T = unknown[]>(expression: string, args?: readonly unknown[], options?: CallOptions): Promise<T>
  eval(expression: string, args: readonly unknown[] = [], options: CallOptions = NO_OPTIONS): Promise<unknown> {
    return this.#runCode(options, 'eval', () => evalRequest(expression, args))
  }

  /**
   * As `call`, with the messages of `box.session.push` as an async iterable; `result` is the call's own promise.
   * @example const report = connection.callWithPushes('build_report'); for await (const step of report) show(step); await report.result
   */
  callWithPushes<T = unknown[]>(
    name: string,
    args: readonly unknown[] = [],
    options: Omit<CallOptions, 'onPush'> = NO_OPTIONS,
  ): PushedCall<T> {
    const pushed = new PushedCall<T>()
    return pushed.follow(this.call<T>(name, args, { ...options, onPush: (value) => pushed.offer(value) }))
  }

  /** Asks the server for a sign of life; nothing but the connection is needed for the answer. */
  ping(options: RequestOptions = NO_OPTIONS): Promise<void> {
    return this.#run(readNothing, options, REQUEST_NAMES, 'ping', pingRequest)
  }

  /**
   * Runs an SQL statement, given as text or prepared.
   * @param binds - positional values, or objects of one entry for named ones: `{ ':name': value }`
   * @throws UnsupportedFeatureError for decimals, uuids and other extension values on servers before 2.10, which crash on them
   */
  execute<Row = unknown[]>(
    statement: string | PreparedStatement,
    binds: readonly unknown[] = [],
    options: RequestOptions = NO_OPTIONS,
  ): Promise<SqlRows<Row>> {
    if (statement instanceof PreparedStatement) return this.executePrepared<Row>(statement, binds, options)
    return this.executeRaw<Row>(statement, binds, options)
  }

  /** Statements prepared on the connection renew themselves; a stream decides for itself whether that is safe. */
  protected abstract executePrepared<Row>(
    statement: PreparedStatement,
    binds: readonly unknown[],
    options: RequestOptions,
  ): Promise<SqlRows<Row>>

  /** For the parts of this package: EXECUTE of a text or of a statement id. */
  protected executeRaw<Row>(
    statement: string | number,
    binds: readonly unknown[],
    options: RequestOptions,
  ): Promise<SqlRows<Row>> {
    return this.#run(readSql<Row>, options, REQUEST_NAMES, 'execute', () => executeOf(statement, binds))
  }

  /** For the parts of this package: any request as a promise. */
  protected run<T>(request: Request, options: RequestOptions, read: ReadReply<T>): Promise<T> {
    return this.#run(read, options, undefined, '', () => request)
  }

  #runCode(options: CallOptions, method: string, build: () => Request): Promise<unknown> {
    const read: ReadReply<unknown> = options.raw === true ? readRaw : readValues
    return this.#run(read, options, CALL_NAMES, method, build)
  }

  /** The promise of a request. What is thrown on the way (options, arguments) rejects it: these methods never throw. */
  #run<T>(
    read: ReadReply<T>,
    options: CallOptions,
    names: ReadonlySet<string> | undefined,
    method: string,
    build: () => Request,
  ): Promise<T> {
    const { host } = this
    const promise = new Promise<unknown>(keepSettlers)
    const { resolve, reject } = settlers
    try {
      if (options !== NO_OPTIONS && names !== undefined) refuseUnknownOptions(options, names, method)
      const deadline = deadlineOf(host.nowMs, options.timeout, host.requestTimeoutMs)
      const { signal, idempotent: isIdempotent = false } = options
      const decode = options.decode ?? host.decode
      let request = build()
      let sink: UserRequest<T>
      if (request instanceof LateRequest || isIdempotent) {
        if (isIdempotent) request = frozenRequest(request).request
        const repeatable = new RepeatableRequest<T>(resolve, reject, read, decode)
        repeatable.repetition = { host, request, deadline, signal, isIdempotent }
        sink = repeatable
      } else {
        sink = new UserRequest<T>(resolve, reject, read, decode)
      }
      sink.onPush = options.onPush
      host.send(request, deadline, signal, sink)
    } catch (error) {
      reject(asOrbweaverError(error))
    }
    return promise as Promise<T>
  }

  #pageSource(options: RequestOptions): PageSource {
    const { timeout, signal } = options
    const limits = { ...(timeout === undefined ? {} : { timeout }), ...(signal === undefined ? {} : { signal }) }
    return {
      operations: this,
      describeIndex: async (space, index) => {
        const request = new DescribeRequest({ space, index })
        await this.run(request, limits, readNothing)
        return request.definition
      },
    }
  }

  #selectRequest(space: SpaceRef, key: readonly unknown[], options: SelectOptions, fetchPosition: boolean): Request {
    // Most selects are by id and key alone: they need none of what follows.
    if (options === NO_OPTIONS && typeof space === 'number' && !fetchPosition) return selectRequest({ space, key })
    const { index = 0, iterator, offset, limit, after } = options
    const check = fetchPosition || after !== undefined ? requirePagination : undefined
    const args: SelectArgs = [key, iterator, offset, limit, after, fetchPosition]
    return this.#named(RequestType.select, 'read', space, index, args, buildSelect, check)
  }

  /** By numbers at once; by names, or with something to check, when the peer is known. */
  #named<Args extends readonly unknown[]>(
    type: number,
    requestClass: RequestClass,
    space: SpaceRef,
    index: IndexRef,
    args: Args,
    build: (space: SpaceRef, index: IndexRef, args: Args) => Request,
    check?: PeerCheck,
  ): Request {
    if (typeof space === 'number' && typeof index === 'number' && check === undefined) return build(space, index, args)
    if (space === '' || index === '') {
      throw new InvalidArgumentError(`The ${space === '' ? 'space' : 'index'} name is empty`)
    }
    const checksVersion = this.host.mayResolveAgain
    return new LateRequest<Args>({ type, requestClass, args, build, target: { space, index }, checksVersion, check })
  }
}

// Arguments beside space and index, in the order of the lists that `#named` is given.

type Tuple = readonly unknown[] | RawValue

function buildInsert(space: SpaceRef, _index: IndexRef, [tuple]: readonly [Tuple]): Request {
  return insertRequest(space, tuple)
}

function buildReplace(space: SpaceRef, _index: IndexRef, [tuple]: readonly [Tuple]): Request {
  return replaceRequest(space, tuple)
}

function buildDelete(space: SpaceRef, index: IndexRef, [key]: readonly [readonly unknown[]]): Request {
  return deleteRequest({ space, index, key })
}

type UpdateArgs<First> = readonly [First, operations: readonly UpdateOperation[], indexBase: 0 | 1 | undefined]

function buildUpdate(space: SpaceRef, index: IndexRef, args: UpdateArgs<readonly unknown[]>): Request {
  const [key, operations, indexBase] = args
  return updateRequest({ space, index, key, operations, ...(indexBase === undefined ? {} : { indexBase }) })
}

function buildUpsert(space: SpaceRef, _index: IndexRef, args: UpdateArgs<readonly unknown[]>): Request {
  const [tuple, operations, indexBase] = args
  return upsertRequest({ space, tuple, operations, ...(indexBase === undefined ? {} : { indexBase }) })
}

type SelectArgs = readonly [
  key: readonly unknown[],
  iterator: SelectOptions['iterator'],
  offset: number | undefined,
  limit: number | undefined,
  after: SelectOptions['after'],
  fetchPosition: boolean,
]

function buildSelect(space: SpaceRef, index: IndexRef, args: SelectArgs): Request {
  const [key, iterator, offset, limit, after, fetchPosition] = args
  return selectRequest({
    space,
    index,
    key,
    fetchPosition,
    ...(iterator === undefined ? {} : { iterator }),
    ...(offset === undefined ? {} : { offset }),
    ...(limit === undefined ? {} : { limit }),
    ...(after === undefined ? {} : { after }),
  })
}

function readRows<T>(reply: Reply, decode: DecodeOptions | undefined): T[] {
  return decodeData<T[]>(reply, decode)
}

function readFirst<T>(reply: Reply, decode: DecodeOptions | undefined): T | undefined {
  return decodeData<T[]>(reply, decode)[0]
}

function readOnlyRow<T>(reply: Reply, decode: DecodeOptions | undefined): T | undefined {
  const rows = decodeData<T[]>(reply, decode)
  if (rows.length > 1)
    throw BoxError.of(ErrorCode.moreThanOneTuple, 'More than one tuple has this key: get() needs a unique index')
  return rows[0]
}

function readPage<T>(reply: Reply, decode: DecodeOptions | undefined): Page<T> {
  return { rows: decodeData<T[]>(reply, decode), position: replyPosition(reply) }
}

/** For the parts of this package. */
export function readSql<Row>(reply: Reply, decode: DecodeOptions | undefined): SqlRows<Row> {
  return decodeSql(reply, decode) as unknown as SqlRows<Row>
}

function readValues(reply: Reply, decode: DecodeOptions | undefined): unknown {
  return decodeData(reply, decode)
}

function readRaw(reply: Reply): RawValue {
  const data = dataSlice(reply)
  return new RawValue(data.length === 0 ? EMPTY_ARRAY : data)
}

function readNothing(): void {}

/**
 * What settles the newest promise. One executor serves all of them, since a closure for each would be the largest part of
 * what a request allocates here; a promise calls its executor before the constructor returns.
 */
const settlers: { resolve: (value: unknown) => void; reject: (error: unknown) => void } = {
  resolve: readNothing,
  reject: readNothing,
}

function keepSettlers(resolve: (value: unknown) => void, reject: (error: unknown) => void): void {
  settlers.resolve = resolve
  settlers.reject = reject
}

function requirePagination(peer: PeerView): void {
  requireFeature(peer, Feature.pagination, 'A select with positions')
}

const NO_OPTIONS: Readonly<Record<string, never>> = Object.freeze({})
const EMPTY_ARRAY: Uint8Array = Uint8Array.of(0x90)
const REQUEST_NAMES: ReadonlySet<string> = new Set([
  'timeout',
  'signal',
  'idempotent',
  'decode',
] satisfies (keyof RequestOptions)[])
const CALL_NAMES: ReadonlySet<string> = new Set([...REQUEST_NAMES, 'raw', 'onPush'])
const INDEX_NAMES: ReadonlySet<string> = new Set([...REQUEST_NAMES, 'index'])
const SELECT_NAMES: ReadonlySet<string> = new Set([...INDEX_NAMES, 'iterator', 'offset', 'limit', 'after'])
const UPDATE_NAMES: ReadonlySet<string> = new Set([...INDEX_NAMES, 'indexBase'])
const UPSERT_NAMES: ReadonlySet<string> = new Set([...REQUEST_NAMES, 'indexBase'])
