/*
 * Request type to handler: what stands behind the standard front. Reads and writes answer in the same turn of the loop; a
 * write whose commit must wait for other instances, and a function that waits, answer later. Requests of one stream take turns.
 */
import type { Clock, Transport } from '@orbweaver/connection'
import {
  BodyReader,
  BoxError,
  decodeValue,
  FrameWriter,
  isOrbweaverError,
  IteratorType,
  Key,
  RequestType,
} from '@orbweaver/iproto'
import type { ClientSession, InboundFrame, SessionHandler } from '@orbweaver/server'
import { writeErrorReply } from '@orbweaver/server'
import type { Position, SelectOptions } from './engine/engine.js'
import { encodeKeyParts, partsOf } from './engine/space-index.js'
import type { SpaceIndex } from './engine/space-index.js'
import type { Space } from './engine/space.js'
import { SYSTEM_SPACE, VIEW_OF } from './engine/schema.js'
import type { Transaction } from './engine/transaction.js'
import type { StoredTuple } from './engine/tuple.js'
import { boxErrors } from './errors.js'
import { CallContext, functionError } from './function-context.js'
import type { ContextOwner } from './function-context.js'
import { SessionStreams } from './streams.js'
import type { StreamTurn } from './streams.js'
import type { Users } from './users.js'

export interface DispatchParts extends ContextOwner {
  readonly clock: Clock
  readonly users: Users
  /** What the greeting says. */
  readonly version: string
  readonly uuid: string
  newSalt(): Uint8Array
  /** While set, every request but the session's own is refused with it. */
  readonly unavailable: BoxError | undefined
  /** While set, data must not be read and functions of users not be called: this instance lacks what the others have. */
  readonly unreadable: BoxError | undefined
  /** undefined: everything written so far is committed; otherwise when it is. */
  whenCommitted(): Promise<void> | undefined
  /** SUBSCRIBE: the session becomes a one-way stream of rows. */
  subscribe(session: ClientSession, frame: InboundFrame): void
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
  readonly #writer = new FrameWriter({ slabBytes: 64 * 1024 })

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
      this.#fail(session, frame, requestError(error))
    }
  }

  closed(session: ClientSession): void {
    this.#streams.get(session)?.end()
    this.#streams.delete(session)
    this.#parts.sessionClosed(session)
  }

  /** Answers one request; never rejects. */
  #run(session: ClientSession, frame: InboundFrame, turn: StreamTurn | undefined): void | Promise<void> {
    try {
      if (frame.type === RequestType.subscribe) {
        this.#parts.subscribe(session, frame)
        return undefined
      }
      const answer = this.#handle(session, frame, turn)
      if (answer instanceof Promise) return this.#later(session, frame, answer)
      const committed = this.#parts.whenCommitted()
      if (committed !== undefined)
        return this.#later(
          session,
          frame,
          committed.then(() => answer),
        )
      this.#answer(session, frame, answer)
      return undefined
    } catch (error) {
      this.#fail(session, frame, requestError(error))
      return undefined
    }
  }

  async #later(session: ClientSession, frame: InboundFrame, pending: Promise<Answer>): Promise<void> {
    try {
      const answer = await pending
      await this.#parts.whenCommitted()
      this.#answer(session, frame, answer)
    } catch (error) {
      this.#fail(session, frame, requestError(error))
    }
  }

  #handle(session: ClientSession, frame: InboundFrame, turn: StreamTurn | undefined): Answer | Promise<Answer> {
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
    return handler({ parts: this.#parts, session, frame, body: new BodyReader(frame.body), turn })
  }

  #answer(session: ClientSession, frame: InboundFrame, answer: Answer): void {
    const writer = this.#writer
    writer.beginReply(RequestType.ok, frame.syncHigh, frame.syncLow, this.#parts.engine.schema.version)
    try {
      answer(writer)
    } catch (error) {
      writer.abort()
      throw error
    }
    writer.end()
    session.reply(writer.take())
  }

  #fail(session: ClientSession, frame: InboundFrame, error: BoxError): void {
    writeErrorReply(this.#writer, frame, error, this.#parts.engine.schema.version)
    session.reply(this.#writer.take())
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

function valuesBody(list: readonly unknown[]): Answer {
  return (writer) => {
    writer.mapHeader(1)
    writer.uint(Key.data)
    writer.value(list)
  }
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
    const tuple = ownBytes(run.body.requireSlice(Key.tuple))
    return rowBody(inTransaction(run, (transaction) => run.parts.engine.insert(transaction, space, tuple)))
  },
  [RequestType.replace]: (run) => {
    const space = writableSpace(run)
    const tuple = ownBytes(run.body.requireSlice(Key.tuple))
    return rowBody(inTransaction(run, (transaction) => run.parts.engine.replace(transaction, space, tuple)))
  },
  [RequestType.update]: (run) => {
    const { body } = run
    const space = writableSpace(run)
    const key = body.requireSlice(Key.key)
    const operations = body.requireArray(Key.tuple)
    const options = { index: indexOf(body), indexBase: body.uint(Key.indexBase) ?? 0 }
    return rowBody(
      inTransaction(run, (transaction) => run.parts.engine.update(transaction, space, key, operations, options)),
    )
  },
  [RequestType.upsert]: (run) => {
    const { body } = run
    const space = writableSpace(run)
    const tuple = ownBytes(body.requireSlice(Key.tuple))
    const operations = body.requireArray(Key.ops)
    inTransaction(run, (transaction) =>
      run.parts.engine.upsert(transaction, space, tuple, operations, body.uint(Key.indexBase) ?? 0),
    )
    return rowsBody([])
  },
  [RequestType.delete]: (run) => {
    const { body } = run
    const space = writableSpace(run)
    const key = body.requireSlice(Key.key)
    return rowBody(inTransaction(run, (transaction) => run.parts.engine.delete(transaction, space, key, indexOf(body))))
  },
  [RequestType.call]: (run) => {
    const { body, session, parts } = run
    const name = body.requireText(Key.functionName)
    if (parts.unreadable !== undefined && !name.startsWith(OWN_FUNCTIONS)) throw parts.unreadable
    const args = body.array(Key.tuple) ?? []
    parts.users.check(session.user, 'execute', name)
    const context = new CallContext(parts, { id: session.id, user: session.user }, run.turn, body.slice(Key.tuple))
    const results = context.run(name, args)
    return results instanceof Promise ? results.then(valuesBody) : valuesBody(results)
  },
  [RequestType.call16]: () => {
    throw boxErrors.unsupported('Embedded storage', 'CALL_16: use CALL')
  },
  [RequestType.eval]: () => {
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
const OPEN_TO_ALL: ReadonlySet<number> = new Set([
  ...Object.keys(VIEW_OF).map(Number),
  SYSTEM_SPACE.vcollation,
  SYSTEM_SPACE.vspaceSequence,
])
const VIEW_NAMES: ReadonlySet<string> = new Set(['_vspace', '_vindex', '_vuser', '_vcollation', '_vspace_sequence'])

function readableSpace(run: RequestRun): Space {
  const ref = spaceRef(run.body)
  const space = run.parts.engine.schema.get(ref)
  const isOpen = typeof ref === 'number' ? OPEN_TO_ALL.has(ref) : VIEW_NAMES.has(ref)
  if (!isOpen && run.parts.unreadable !== undefined) throw run.parts.unreadable
  if (!isOpen) run.parts.users.check(run.session.user, 'read', space.name)
  return space
}

function writableSpace(run: RequestRun): Space {
  const ref = spaceRef(run.body)
  const space = run.parts.engine.schema.get(ref)
  if (typeof ref === 'number' ? OPEN_TO_ALL.has(ref) : VIEW_NAMES.has(ref))
    throw boxErrors.unsupported(`View '${space.name}'`, 'changes')
  run.parts.users.check(run.session.user, 'write', space.name)
  return space
}

/** What is kept must not hold the whole received chunk in memory. */
function ownBytes(slice: Buffer): StoredTuple {
  return Buffer.from(slice)
}

/* A position is the tree key of the last tuple, as base64 text: opaque to clients, as Tarantool's is. */
function positionAt(index: SpaceIndex, tuple: StoredTuple): string {
  return encodeKeyParts(partsOf(index.keyOf(tuple))).toString('base64')
}

function positionOf(body: BodyReader): Position | undefined {
  if (body.has(Key.afterTuple)) return { tuple: body.requireSlice(Key.afterTuple) }
  const text = body.text(Key.afterPosition)
  if (text === undefined || text === '') return undefined
  try {
    const key = decodeValue(Buffer.from(text, 'base64'))
    if (Array.isArray(key)) return { key }
  } catch (error) {
    if (!isOrbweaverError(error)) throw error
  }
  throw boxErrors.iteratorPosition()
}
