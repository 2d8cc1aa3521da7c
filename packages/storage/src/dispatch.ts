/*
 * Request type to handler: what stands behind the standard front. Reads and writes answer in the same turn of the loop; a
 * write whose commit must wait for other instances, and a function that waits, answer later. Requests of one stream take turns.
 */
import type { Clock, Transport } from '@orbweaver/connection'
import {
  BodyReader,
  BoxError,
  decodeValue,
  Feature,
  type FrameWriter,
  isOrbweaverError,
  IteratorType,
  Key,
  RequestType,
} from '@orbweaver/iproto'
import type { ClientSession, InboundFrame, SessionHandler } from '@orbweaver/server'
import { replyError } from '@orbweaver/server'
import type { Position, SelectOptions } from './engine/engine.js'
import { UNUSUAL } from './engine/space-index.js'
import type { SpaceIndex } from './engine/space-index.js'
import type { Space, SpaceChange } from './engine/space.js'
import { LAST_SYSTEM_SPACE, SYSTEM_SPACE } from './engine/schema.js'
import type { Transaction } from './engine/transaction.js'
import type { StoredTuple } from './engine/tuple.js'
import { isRequestTraced, traceAnswer, traceRequest } from './diagnostics.js'
import type { RequestTrace } from './diagnostics.js'
import { boxErrors } from './errors.js'
import { CallContext, functionError } from './function-context.js'
import type { ContextOwner } from './function-context.js'
import { PEER_REQUESTS } from './replication/relays.js'
import { PlainPut } from './plain-put.js'
import { PointSelect } from './point-select.js'
import { SessionStreams } from './streams.js'
import type { StreamTurn } from './streams.js'
import type { Users } from './users.js'

export interface DispatchParts extends ContextOwner {
  readonly clock: Clock
  /** Of the storage, as traces and logs call it. */
  readonly name: string
  readonly users: Users
  /** What the greeting says. */
  readonly version: string
  readonly uuid: string
  newSalt(): Uint8Array
  /** While set, every request but the session's own is refused with it. */
  readonly unavailable: BoxError | undefined
  /** While set, data must not be read and functions of users not be called: this instance lacks what the others have. */
  readonly unreadable: BoxError | undefined
  /** Everything written so far is committed. */
  readonly isCommitted: boolean
  /** undefined: as `isCommitted`; otherwise when it is. */
  whenCommitted(): Promise<void> | undefined
  /** What only peers ask; with JOIN and SUBSCRIBE the session becomes a one-way stream of rows. */
  servePeer(session: ClientSession, frame: InboundFrame): void | Promise<void>
  /** A frame of a session that has subscribed; false when it has not. */
  acknowledge(session: ClientSession, frame: InboundFrame): boolean
  sessionClosed(session: ClientSession): void
}

type Answer = (writer: FrameWriter) => void
type Handler = (run: RequestRun) => Answer | Promise<Answer>

interface RequestRun {
  readonly parts: DispatchParts
  readonly session: ClientSession
  readonly frame: InboundFrame
  readonly body: BodyReader
  readonly turn: StreamTurn | undefined
  readonly trace: RequestTrace | undefined
}

/** What waits for the commit of what was written before it. */
interface ReadyAnswer {
  readonly session: ClientSession
  readonly frame: InboundFrame
  readonly trace: RequestTrace | undefined
  readonly answer: Answer
}

/** Types a stream may carry (others: 229), as Tarantool has them. */
const IN_STREAM: ReadonlySet<number> = new Set([
  RequestType.select,
  RequestType.insert,
  RequestType.replace,
  RequestType.update,
  RequestType.upsert,
  RequestType.delete,
  RequestType.call,
  RequestType.call16,
  RequestType.eval,
  RequestType.execute,
  RequestType.prepare,
  RequestType.ping,
  RequestType.begin,
  RequestType.commit,
  RequestType.rollback,
])

const TRANSACTION_TYPES: Readonly<Record<number, string>> = {
  [RequestType.begin]: 'BEGIN',
  [RequestType.commit]: 'COMMIT',
  [RequestType.rollback]: 'ROLLBACK',
}

export class Dispatch implements SessionHandler {
  readonly #parts: DispatchParts
  readonly #streams = new Map<ClientSession, SessionStreams>()
  #ready: ReadyAnswer[] = []
  readonly #point = new PointSelect()
  readonly #put = new PlainPut()

  constructor(parts: DispatchParts) {
    this.#parts = parts
  }

  greet(_transport: Transport): Promise<{ version: string; uuid: string; salt: Uint8Array }> {
    const { version, uuid } = this.#parts
    return Promise.resolve({ version, uuid, salt: this.#parts.newSalt() })
  }

  frame(session: ClientSession, frame: InboundFrame): void {
    if (this.#parts.acknowledge(session, frame)) return
    if (frame.streamId === 0) {
      const pending = this.#run(session, frame, undefined)
      if (pending !== undefined) void pending
      return
    }
    let streams = this.#streams.get(session)
    if (streams === undefined) {
      streams = new SessionStreams(this.#parts.engine, this.#parts.clock)
      this.#streams.set(session, streams)
    }
    try {
      if (!IN_STREAM.has(frame.type)) throw boxErrors.notInStream(frame.type)
      streams.enter(session, frame, (next, turn) => this.#run(session, next, turn))
    } catch (error) {
      this.#fail(session, frame, this.#trace(session, frame), requestError(error))
    }
  }

  closed(session: ClientSession): void {
    this.#streams.get(session)?.end()
    this.#streams.delete(session)
    this.#parts.sessionClosed(session)
  }

  /** Answers one request; never rejects. */
  #run(session: ClientSession, frame: InboundFrame, turn: StreamTurn | undefined): void | Promise<void> {
    const trace = this.#trace(session, frame)
    try {
      if (PEER_REQUESTS.has(frame.type)) {
        return this.#parts
          .servePeer(session, frame)
          ?.catch((error: unknown) => this.#fail(session, frame, trace, requestError(error)))
      }
      if (turn === undefined && trace === undefined && this.#answerQuickly(session, frame)) return undefined
      const answer = this.#handle(session, frame, turn, trace)
      if (answer instanceof Promise) return this.#later(session, frame, trace, answer)
      if (this.#parts.isCommitted) this.#answer(session, frame, trace, answer)
      // The next request of a stream waits for the answer to this one.
      else if (turn !== undefined) return this.#later(session, frame, trace, answer)
      else this.#whenCommitted({ session, frame, trace, answer })
      return undefined
    } catch (error) {
      this.#fail(session, frame, trace, requestError(error))
      return undefined
    }
  }

  /** Answers the commonest requests with next to nothing made on the way. @returns false: it takes the way of all requests */
  #answerQuickly(session: ClientSession, frame: InboundFrame): boolean {
    const { type, schemaVersion } = frame
    const isSelect = type === RequestType.select
    if (!isSelect && type !== RequestType.replace && type !== RequestType.insert) return false
    const { engine, unavailable } = this.#parts
    if (unavailable !== undefined) return false
    if (schemaVersion !== undefined && schemaVersion !== 0 && schemaVersion !== engine.schema.version) return false
    return isSelect ? this.#answerPoint(session, frame) : this.#answerPut(session, frame)
  }

  #answerPoint(session: ClientSession, frame: InboundFrame): boolean {
    const { engine, users, isCommitted, unreadable } = this.#parts
    const { bytes } = frame
    const point = this.#point
    if (!isCommitted || unreadable !== undefined) return false
    if (!point.read(bytes, frame.bodyStart, frame.bodyEnd) || point.spaceId <= LAST_SYSTEM_SPACE) return false
    const space = engine.schema.find(point.spaceId)
    const index = space?.indexes[point.indexId]
    if (space === undefined || index?.definition.id !== point.indexId) return false
    const ref = index.findPoint(bytes, point.keyStart, point.keyEnd)
    if (ref === UNUSUAL) return false
    users.check(session.user, 'read', space.name)
    const writer = session.writer()
    writer.beginReply(RequestType.ok, frame.syncHigh, frame.syncLow, engine.schema.version)
    writer.mapHeader(1)
    writer.uint(Key.data)
    writer.arrayHeader(ref === undefined ? 0 : 1)
    if (ref !== undefined) index.writeTuple(writer, ref)
    session.written(writer.end())
    return true
  }

  #answerPut(session: ClientSession, frame: InboundFrame): boolean {
    const { engine, users } = this.#parts
    const { bytes } = frame
    const put = this.#put
    if (!put.read(bytes, frame.bodyStart, frame.bodyEnd) || put.spaceId <= LAST_SYSTEM_SPACE) return false
    const space = engine.schema.find(put.spaceId)
    if (space === undefined) return false
    users.check(session.user, 'write', space.name)
    const tuple = bytes.subarray(put.tupleStart, put.tupleEnd)
    const stored =
      frame.type === RequestType.replace
        ? engine.replace(undefined, space, tuple)
        : engine.insert(undefined, space, tuple)
    const answer = rowBody(stored)
    if (this.#parts.isCommitted) this.#answer(session, frame, undefined, answer)
    else this.#whenCommitted({ session, frame, trace: undefined, answer })
    return true
  }

  /** Answers that are ready together wait together: a promise for each would cost more than the request. */
  #whenCommitted(ready: ReadyAnswer): void {
    if (this.#ready.push(ready) > 1) return
    queueMicrotask(() => {
      const together = this.#ready
      this.#ready = []
      const committed = this.#parts.whenCommitted()
      if (committed === undefined) this.#answerAll(together)
      else
        committed.then(
          () => this.#answerAll(together),
          (error: unknown) => {
            const failure = requestError(error)
            for (const { session, frame, trace } of together) this.#fail(session, frame, trace, failure)
          },
        )
    })
  }

  #answerAll(together: readonly ReadyAnswer[]): void {
    for (const { session, frame, trace, answer } of together) {
      try {
        this.#answer(session, frame, trace, answer)
      } catch (error) {
        this.#fail(session, frame, trace, requestError(error))
      }
    }
  }

  async #later(
    session: ClientSession,
    frame: InboundFrame,
    trace: RequestTrace | undefined,
    pending: Answer | Promise<Answer>,
  ): Promise<void> {
    try {
      const answer = await pending
      await this.#parts.whenCommitted()
      this.#answer(session, frame, trace, answer)
    } catch (error) {
      this.#fail(session, frame, trace, requestError(error))
    }
  }

  /** Tells the start of a request; undefined when nobody listens. */
  #trace({ id, user }: ClientSession, { type, streamId }: InboundFrame): RequestTrace | undefined {
    if (!isRequestTraced()) return undefined
    return traceRequest({ storage: this.#parts.name, session: id, user, type, streamId })
  }

  #handle(
    session: ClientSession,
    frame: InboundFrame,
    turn: StreamTurn | undefined,
    trace: RequestTrace | undefined,
  ): Answer | Promise<Answer> {
    const { unavailable, engine } = this.#parts
    if (unavailable !== undefined) throw unavailable
    const handler = HANDLERS[frame.type]
    if (handler === undefined) throw boxErrors.unknownRequestType(frame.type)
    if (
      frame.schemaVersion !== undefined &&
      frame.schemaVersion !== 0 &&
      frame.schemaVersion !== engine.schema.version
    ) {
      throw boxErrors.wrongSchemaVersion(engine.schema.version, frame.schemaVersion)
    }
    const body = new BodyReader(frame.bytes, frame.bodyStart, frame.bodyEnd)
    return handler({ parts: this.#parts, session, frame, body, turn, trace })
  }

  #answer(session: ClientSession, frame: InboundFrame, trace: RequestTrace | undefined, answer: Answer): void {
    const writer = session.writer()
    writer.beginReply(RequestType.ok, frame.syncHigh, frame.syncLow, this.#parts.engine.schema.version)
    try {
      answer(writer)
    } catch (error) {
      writer.abort()
      throw error
    }
    if (trace !== undefined) traceAnswer(trace, undefined)
    session.written(writer.end())
  }

  #fail(session: ClientSession, frame: InboundFrame, trace: RequestTrace | undefined, error: BoxError): void {
    if (trace !== undefined) traceAnswer(trace, error)
    replyError(session, frame, error, this.#parts.engine.schema.version)
  }
}

/** Faults of the request become its error reply; so does a fault of ours, as error 32: one request must not end the process. */
function requestError(error: unknown): BoxError {
  if (error instanceof BoxError) return error
  if (isOrbweaverError(error) && error.code === 'ORB_MALFORMED_FRAME') return boxErrors.invalidMsgpack(error.message)
  return functionError(error)
}

const emptyBody: Answer = (writer) => writer.mapHeader(0)

function rowsBody(rows: readonly StoredTuple[], position?: string): Answer {
  return (writer) => {
    writer.mapHeader(position === undefined ? 1 : 2)
    writer.uint(Key.data)
    writer.arrayHeader(rows.length)
    for (const row of rows) writer.raw(row)
    if (position === undefined) return
    writer.uint(Key.position)
    writer.text(position)
  }
}

function rowBody(row: StoredTuple | undefined): Answer {
  return rowsBody(row === undefined ? [] : [row])
}

/** Errors among the values travel as errors to those who agreed on it, and as their texts to the others. */
function valuesBody(list: readonly unknown[], session: ClientSession): Answer {
  return (writer) => {
    writer.mapHeader(1)
    writer.uint(Key.data)
    writer.value(session.features.has(Feature.errorExtension) ? list : withoutErrors(list))
  }
}

/** Whether there is something to replace: hardly ever, so nothing is made to find that out. */
function holdsError(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false
  if (value instanceof BoxError) return true
  if (Array.isArray(value)) {
    for (const item of value) if (holdsError(item)) return true
    return false
  }
  if (value instanceof Map) {
    for (const item of value.values()) if (holdsError(item)) return true
    return false
  }
  if (Object.getPrototypeOf(value) !== Object.prototype) return false
  for (const name in value) if (holdsError((value as Record<string, unknown>)[name])) return true
  return false
}

function withoutErrors(value: unknown): unknown {
  if (!holdsError(value)) return value
  if (value instanceof BoxError) return value.message
  if (Array.isArray(value)) return value.map(withoutErrors)
  if (value instanceof Map) return new Map([...value].map(([key, item]) => [key, withoutErrors(item)]))
  return Object.fromEntries(Object.entries(value as object).map(([key, item]) => [key, withoutErrors(item)]))
}

/** One statement in the stream's transaction, or on its own. */
function inTransaction<T>(run: RequestRun, work: (transaction: Transaction | undefined) => T): T {
  if (run.turn === undefined) return work(undefined)
  const transaction = run.turn.enter()
  try {
    return work(transaction)
  } finally {
    run.turn.leave()
  }
}

/** A statement that writes. A change of a definition takes a right of its own; the statement is undone when it is missing. */
function writing<T>(run: RequestRun, space: Space, work: (transaction: Transaction | undefined) => T): T {
  if (!isDefinition(space)) return inTransaction(run, work)
  const { engine } = run.parts
  return inTransaction(run, (transaction) =>
    engine.run(transaction, (own) => {
      const first = own.changes.length
      const result = work(own)
      for (const change of own.changes.slice(first)) checkDefinition(run, change)
      return result
    }),
  )
}

/** Its tuples make spaces and indexes. */
function isDefinition({ id }: Space): boolean {
  return id === SYSTEM_SPACE.space || id === SYSTEM_SPACE.index
}

/** @throws BoxError 42 naming the space that is made, changed or removed */
function checkDefinition(
  { parts, session }: RequestRun,
  { space, before, after }: Pick<SpaceChange, 'space' | 'before' | 'after'>,
): void {
  const access = before === undefined ? 'create' : after === undefined ? 'drop' : 'alter'
  const [id, , name] = decodeValue(before ?? after!) as [number, unknown, string]
  const defined = space.id === SYSTEM_SPACE.space ? name : (parts.engine.schema.find(id)?.name ?? String(id))
  parts.users.check(session.user, access, defined)
}

const NO_LIMIT = 0xffff_ffff
/** What instances ask each other. */
const OWN_FUNCTIONS = 'orbweaver.'

/* Bodies: iproto.md 3 and 4. */
const HANDLERS: Readonly<Record<number, Handler>> = {
  [RequestType.ping]: () => emptyBody,
  [RequestType.select]: (run) => {
    const { body } = run
    const space = readableSpace(run)
    const index = body.has(Key.indexName) ? body.requireText(Key.indexName) : (body.uint(Key.indexId) ?? 0)
    const after = positionOf(body)
    const options: SelectOptions = {
      index,
      iterator: body.uint(Key.iterator) ?? IteratorType.eq,
      key: body.requireSlice(Key.key),
      offset: body.uint(Key.offset) ?? 0,
      limit: body.has(Key.limit) ? body.requireUint(Key.limit) : NO_LIMIT,
      ...(after === undefined ? {} : { after }),
    }
    const wantsPosition = body.bool(Key.fetchPosition) === true
    if ((wantsPosition || after !== undefined) && space.index(index).definition.type !== 'tree') {
      throw boxErrors.unsupportedIterator(String(index), 'HASH', space.name, 'pagination')
    }
    const rows = inTransaction(run, (transaction) => run.parts.engine.select(transaction, space, options))
    const last = rows.at(-1)
    return rowsBody(rows, wantsPosition && last !== undefined ? positionAt(space.index(index), last) : undefined)
  },
  [RequestType.insert]: (run) => {
    const space = writableSpace(run)
    const tuple = run.body.requireSlice(Key.tuple)
    return rowBody(writing(run, space, (transaction) => run.parts.engine.insert(transaction, space, tuple)))
  },
  [RequestType.replace]: (run) => {
    const space = writableSpace(run)
    const tuple = run.body.requireSlice(Key.tuple)
    return rowBody(writing(run, space, (transaction) => run.parts.engine.replace(transaction, space, tuple)))
  },
  [RequestType.update]: (run) => {
    const { body } = run
    const space = writableSpace(run)
    const key = body.requireSlice(Key.key)
    const operations = body.requireArray(Key.tuple)
    const options = { index: indexOf(body), indexBase: body.uint(Key.indexBase) ?? 0 }
    return rowBody(
      writing(run, space, (transaction) => run.parts.engine.update(transaction, space, key, operations, options)),
    )
  },
  [RequestType.upsert]: (run) => {
    const { body } = run
    const space = writableSpace(run)
    const tuple = body.requireSlice(Key.tuple)
    const operations = body.requireArray(Key.ops)
    writing(run, space, (transaction) =>
      run.parts.engine.upsert(transaction, space, tuple, operations, body.uint(Key.indexBase) ?? 0),
    )
    return rowsBody([])
  },
  [RequestType.delete]: (run) => {
    const { body } = run
    const space = writableSpace(run)
    const key = body.requireSlice(Key.key)
    return rowBody(
      writing(run, space, (transaction) => {
        // Whether a definition may be removed is asked before whether it can be.
        const found = isDefinition(space) ? run.parts.engine.get(transaction, space, key, indexOf(body)) : undefined
        if (found !== undefined) checkDefinition(run, { space, before: found, after: undefined })
        return run.parts.engine.delete(transaction, space, key, indexOf(body))
      }),
    )
  },
  [RequestType.call]: (run) => {
    const { body, session, parts } = run
    const name = body.requireText(Key.functionName)
    if (run.trace !== undefined) run.trace.function = name
    if (parts.unreadable !== undefined && !name.startsWith(OWN_FUNCTIONS)) throw parts.unreadable
    const args = body.array(Key.tuple) ?? []
    parts.users.check(session.user, 'execute', name)
    const context = new CallContext(parts, { id: session.id, user: session.user }, run.turn, body.slice(Key.tuple))
    const results = context.run(name, args)
    return results instanceof Promise ? results.then((list) => valuesBody(list, session)) : valuesBody(results, session)
  },
  [RequestType.call16]: () => {
    throw boxErrors.unsupported('Embedded storage', 'CALL_16: use CALL')
  },
  [RequestType.eval]: ({ parts, session }) => {
    parts.users.checkUniverse(session.user, 'execute')
    throw boxErrors.unsupported('Embedded storage', 'EVAL: it runs no Lua; define a function and CALL it')
  },
  [RequestType.execute]: () => {
    throw boxErrors.unsupported('Embedded storage', 'SQL')
  },
  [RequestType.prepare]: () => {
    throw boxErrors.unsupported('Embedded storage', 'SQL')
  },
  [RequestType.begin]: (run) => {
    const turn = requireTurn(run)
    if (run.body.has(Key.timeout) && run.body.double(Key.timeout) === undefined)
      throw boxErrors.invalidMsgpack('packet body')
    const seconds = run.body.double(Key.timeout) ?? 0
    if (seconds < 0) throw boxErrors.illegalParams('timeout must be a number greater than 0')
    turn.begin(seconds * 1000)
    return emptyBody
  },
  [RequestType.commit]: (run) => {
    requireTurn(run).commit()
    return emptyBody
  },
  [RequestType.rollback]: (run) => {
    requireTurn(run).rollback()
    return emptyBody
  },
  [RequestType.join]: () => {
    throw boxErrors.unsupported('Embedded storage', 'JOIN: its rows are for embedded storages')
  },
}

function requireTurn(run: RequestRun): StreamTurn {
  if (run.turn === undefined) throw boxErrors.outOfStream(TRANSACTION_TYPES[run.frame.type] ?? String(run.frame.type))
  return run.turn
}

function indexOf(body: BodyReader): number | string {
  return body.has(Key.indexName) ? body.requireText(Key.indexName) : (body.uint(Key.indexId) ?? 0)
}

function spaceRef(body: BodyReader): number | string {
  return body.has(Key.spaceName) ? body.requireText(Key.spaceName) : body.requireUint(Key.spaceId)
}

/** The views may be read by anybody, as in Tarantool: they show definitions, not data. */
const VIEWS: ReadonlyMap<number, string> = new Map([
  [SYSTEM_SPACE.vspace, '_vspace'],
  [SYSTEM_SPACE.vindex, '_vindex'],
  [SYSTEM_SPACE.vuser, '_vuser'],
  [SYSTEM_SPACE.vcollation, '_vcollation'],
  [SYSTEM_SPACE.vspaceSequence, '_vspace_sequence'],
])
const VIEW_NAMES: ReadonlySet<string> = new Set(VIEWS.values())

function viewName(ref: number | string): string | undefined {
  if (typeof ref === 'number') return VIEWS.get(ref)
  return VIEW_NAMES.has(ref) ? ref : undefined
}

function readableSpace(run: RequestRun): Space {
  const ref = spaceRef(run.body)
  const space = run.parts.engine.schema.get(ref)
  const isOpen = viewName(ref) !== undefined
  if (!isOpen && run.parts.unreadable !== undefined) throw run.parts.unreadable
  if (!isOpen) run.parts.users.check(run.session.user, 'read', space.name)
  return space
}

function writableSpace(run: RequestRun): Space {
  const ref = spaceRef(run.body)
  const space = run.parts.engine.schema.get(ref)
  const view = viewName(ref)
  run.parts.users.check(run.session.user, 'write', view ?? space.name)
  if (view !== undefined) throw boxErrors.viewReadonly(view)
  return space
}

/* A position is the tree key of the last tuple, as base64 text: opaque to clients, as Tarantool's is. */
function positionAt(index: SpaceIndex, tuple: StoredTuple): string {
  return index.treeKeyOf(tuple).toString('base64')
}

function positionOf(body: BodyReader): Position | undefined {
  if (body.has(Key.afterTuple)) return { tuple: body.requireSlice(Key.afterTuple) }
  const text = body.text(Key.afterPosition)
  if (text === undefined || text === '') return undefined
  try {
    const key = Buffer.from(text, 'base64')
    if (Array.isArray(decodeValue(key))) return { key }
  } catch (error) {
    if (!isOrbweaverError(error)) throw error
  }
  throw boxErrors.iteratorPosition()
}
