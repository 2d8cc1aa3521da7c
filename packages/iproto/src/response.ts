import { Key, RequestType } from './constants.js'
import { BoxError, type BoxErrorEntry, MalformedFrameError } from './errors.js'
import { BodyReader } from './body-reader.js'
import { executedOf, type RequestClass } from './executed.js'
import { readErrorStack, writeErrorStack } from './ext/error.js'
import type { FieldFormat } from './ext/tuple.js'
import { FrameHeader } from './header.js'
import type { BodyWriter } from './msgpack/body-writer.js'
import type { DecodeOptions } from './msgpack/decode-options.js'
import { decodeWithFormats } from './msgpack/decoder.js'
import { skipValue } from './msgpack/skip.js'
import { ByteString } from './msgpack/wrappers.js'

/* Replies. Source: Tarantool src/box/xrow.c, iproto_reply_*
 *   success  0x30 DATA array, 0x60 TUPLE_FORMATS map, 0x35 POSITION str; {} when there is no data
 *   SQL      0x32 METADATA, 0x30 DATA | 0x42 SQL_INFO | 0x43 STMT_ID, 0x34 BIND_COUNT, 0x33 BIND_METADATA, 0x32 METADATA
 *   error    0x31 ERROR_24 str, 0x52 ERROR {0: stack} (2.4.1+)
 *   EVENT    0x57 EVENT_KEY str, 0x58 EVENT_DATA any */

/** A reply whose data is still bytes. A kept slice keeps the received chunk alive. */
export interface Reply {
  readonly frame: Buffer
  /** Range of the value of DATA in the frame; empty when there is none. */
  readonly dataStart: number
  readonly dataEnd: number
  /** 0 when the frame has none. */
  readonly schemaVersion: number
}

/**
 * The reply in a frame whose header is read; for errors (`type & 0x8000`) use `readError`.
 * @throws MalformedFrameError when the body is not a map
 */
export function readReply(frame: Buffer, header: FrameHeader): Reply {
  const { bodyStart, bodyEnd } = header
  const schemaVersion = header.schemaVersion ?? 0
  // A body of DATA alone: that its value ends with the frame is checked when it is decoded.
  if (frame[bodyStart] === 0x81 && frame[bodyStart + 1] === Key.data && bodyEnd > bodyStart + 2) {
    return { frame, dataStart: bodyStart + 2, dataEnd: bodyEnd, schemaVersion }
  }
  const data = findData(frame, bodyStart, bodyEnd)
  return { frame, dataStart: data, dataEnd: data === 0 ? 0 : skipValue(frame, data, bodyEnd), schemaVersion }
}

/**
 * The error in a frame whose header is read. The code is that of the newest entry, since the header loses bits; servers before 2.4.1 send
 * only a message, for which the header has to do.
 * @throws MalformedFrameError when the body is no error
 */
export function readError(frame: Buffer, header: FrameHeader, requestClass: RequestClass): BoxError {
  const body = new BodyReader(frame.subarray(header.bodyStart, header.bodyEnd))
  const entries = body.has(Key.error) ? readErrorStack(body.value(Key.error)) : undefined
  const stack = entries ?? [legacyEntry(header.type, body)]
  const { code, fields } = stack[0]!
  return new BoxError(stack, { executed: executedOf(requestClass, code, fields) })
}

/**
 * DATA, decoded; `[]` when there is none. Extension 7 becomes Tuple with the formats of this reply.
 * @throws MalformedFrameError when it is no array, or cannot be decoded, or not as the options ask
 */
export function decodeData<T = unknown[]>(reply: Reply, options: DecodeOptions = {}): T {
  if (reply.dataStart === reply.dataEnd) return [] as T
  const data = decodeWithFormats(reply.frame, reply.dataStart, reply.dataEnd, options, () => tupleFormats(reply))
  if (!Array.isArray(data)) throw new MalformedFrameError('DATA of a reply is not an array')
  return data as T
}

/** DATA as it came, a slice of the frame; empty when there is none. */
export function dataSlice(reply: Reply): Buffer {
  return reply.frame.subarray(reply.dataStart, reply.dataEnd)
}

/** The other keys of a reply: POSITION, METADATA, STMT_ID, … */
export function replyBody(reply: Reply): BodyReader {
  const header = new FrameHeader()
  header.read(reply.frame)
  return new BodyReader(reply.frame.subarray(header.bodyStart, header.bodyEnd))
}

/** POSITION of a page, to pass as `after`; undefined on an empty page: keep the last one. */
export function replyPosition(reply: Reply): string | undefined {
  return replyBody(reply).text(Key.position)
}

/** What a server answered to ID. */
export interface IdReply {
  readonly version: number
  readonly features: readonly number[]
  /** Default method of authentication, from 2.11 on. */
  readonly authType: string | undefined
}

/** The reply to ID. @throws MalformedFrameError when a key is missing or of another kind */
export function decodeId(reply: Reply): IdReply {
  const body = replyBody(reply)
  const version = body.value(Key.version)
  const features = body.value(Key.features)
  if (typeof version !== 'number' || !isNumbers(features))
    throw new MalformedFrameError('The reply to ID has no version and features')
  return { version, features, authType: body.text(Key.authType) }
}

/** A column of a result, or a bind parameter. The optional fields need the session setting `sql_full_metadata`. */
export interface SqlColumn {
  /** Upper-cased by 2.x unless quoted; `COLUMN_1` without a name; `?` or `:name` for a bind. */
  readonly name: string
  /** `integer`, `string`, `ANY`, … */
  readonly type: string
  readonly collation?: string
  readonly isNullable?: boolean
  readonly isAutoincrement?: boolean
  /** The expression as it was written; the name when the server leaves it out. */
  readonly span?: string
}

/** What EXECUTE gave. */
export interface SqlResult {
  /** Empty for statements that return no rows. */
  readonly columns: readonly SqlColumn[]
  readonly rows: unknown[][]
  /** Rows affected; for a query the number of rows. */
  readonly rowCount: number
  /** Generated by this statement; may be negative. */
  readonly autoincrementIds: readonly (number | bigint)[]
}

/** The reply to EXECUTE. @throws MalformedFrameError when a key is of another kind */
export function decodeSql(reply: Reply, options: DecodeOptions = {}): SqlResult {
  const body = replyBody(reply)
  const rows = decodeData(reply, options)
  if (!isRows(rows)) throw new MalformedFrameError('A row of a result is not an array')
  const info = body.value(Key.sqlInfo, { maps: 'map' })
  const columns = decodeColumns(body.value(Key.metadata, { maps: 'map' }))
  const entries: ReadonlyMap<unknown, unknown> = info instanceof Map ? info : new Map()
  const ids = entries.get(SQL_INFO_AUTOINCREMENT_IDS)
  const count = entries.get(SQL_INFO_ROW_COUNT)
  return {
    columns,
    rows,
    rowCount: typeof count === 'number' ? count : rows.length,
    autoincrementIds: Array.isArray(ids) ? (ids as (number | bigint)[]) : [],
  }
}

/** What PREPARE gave. */
export interface PreparedInfo {
  /** Depends on the text only, but is valid only in the session that prepared it. */
  readonly id: number
  readonly bindCount: number
  readonly binds: readonly SqlColumn[]
  /** Empty for statements that return no rows. */
  readonly columns: readonly SqlColumn[]
}

/** The reply to PREPARE. @throws MalformedFrameError when it has no statement id */
export function decodePrepared(reply: Reply): PreparedInfo {
  const body = replyBody(reply)
  const id = body.value(Key.stmtId)
  const bindCount = body.value(Key.bindCount) ?? 0
  if (typeof id !== 'number' || typeof bindCount !== 'number')
    throw new MalformedFrameError('The reply to PREPARE has no statement id')
  return {
    id,
    bindCount,
    binds: decodeColumns(body.value(Key.bindMetadata, { maps: 'map' })),
    columns: decodeColumns(body.value(Key.metadata, { maps: 'map' })),
  }
}

/** A value of a watched key. */
export interface EventFrame {
  readonly key: string
  /** undefined when the key was never set or was set to nil. */
  readonly value: unknown
}

/** The body of an EVENT frame whose header is read. @throws MalformedFrameError when it has no key */
export function decodeEvent(frame: Buffer, header: FrameHeader): EventFrame {
  const body = new BodyReader(frame.subarray(header.bodyStart, header.bodyEnd))
  const key = body.value(Key.eventKey)
  if (typeof key !== 'string') throw new MalformedFrameError('An EVENT has no key that is text')
  return { key, value: body.value(Key.eventData) }
}

/** Writes the body of an error reply: `{0x31: message, 0x52: {0: [entries]}}`. */
export function writeErrorBody(out: BodyWriter, error: BoxError): void {
  out.mapHeader(2)
  out.uint(Key.error24)
  out.text(error.message)
  out.uint(Key.error)
  writeErrorStack(out, error.entries, (value, name) => out.value(value, name))
}

const SQL_INFO_ROW_COUNT = 0
const SQL_INFO_AUTOINCREMENT_IDS = 1

/** Where the value of DATA starts, or 0 when there is none. */
function findData(frame: Buffer, start: number, end: number): number {
  if (start === end) return 0
  let found = 0
  const first = frame[start]!
  let at = start + 1
  let size = first & 0x0f
  if (first < 0x80 || first >= 0x90) {
    const width = first === 0xde ? 2 : first === 0xdf ? 4 : 0
    if (width === 0 || at + width > end) throw new MalformedFrameError('The body of a reply is not a map')
    size = frame.readUIntBE(at, width)
    at += width
  }
  for (; size > 0; size--) {
    const value = skipValue(frame, at, end)
    if (frame[at] === Key.data) found = value
    at = skipValue(frame, value, end)
  }
  if (at !== end) throw new MalformedFrameError(`${end - at} bytes are left behind the body of a reply`)
  return found
}

function legacyEntry(type: number, body: BodyReader): BoxErrorEntry {
  const message = body.value(Key.error24)
  if (typeof message !== 'string' && !(message instanceof ByteString)) {
    throw new MalformedFrameError('An error frame has neither an error nor a message')
  }
  return {
    type: 'ClientError',
    file: '',
    line: 0,
    message: message.toString(),
    errno: 0,
    code: type & (RequestType.errorFlag - 1),
    fields: new Map(),
  }
}

function tupleFormats(reply: Reply): ReadonlyMap<number, readonly FieldFormat[]> {
  const formats = replyBody(reply).value(Key.tupleFormats, { maps: 'map' })
  const known = new Map<number, readonly FieldFormat[]>()
  if (!(formats instanceof Map)) return known
  for (const [id, fields] of formats) {
    if (typeof id === 'number' && Array.isArray(fields)) known.set(id, fields.map(fieldFormat))
  }
  return known
}

function fieldFormat(field: unknown): FieldFormat {
  const entries: ReadonlyMap<unknown, unknown> = field instanceof Map ? field : new Map()
  return {
    name: textOr(entries.get('name'), ''),
    type: textOr(entries.get('type'), 'any'),
    isNullable: entries.get('is_nullable') === true,
  }
}

function decodeColumns(value: unknown): SqlColumn[] {
  if (!Array.isArray(value)) return []
  return value.map((column: unknown) => {
    const entries: ReadonlyMap<unknown, unknown> = column instanceof Map ? column : new Map()
    const name = textOr(entries.get(0), '')
    const collation = entries.get(2)
    const isNullable = entries.get(3)
    const span = entries.get(5)
    return {
      name,
      type: textOr(entries.get(1), ''),
      ...(typeof collation === 'string' && { collation }),
      ...(typeof isNullable === 'boolean' && { isNullable }),
      ...(entries.get(4) === true && { isAutoincrement: true }),
      ...(span !== undefined && { span: textOr(span, name) }),
    }
  })
}

function textOr(value: unknown, otherwise: string): string {
  return typeof value === 'string' ? value : otherwise
}

function isRows(value: unknown[]): value is unknown[][] {
  return value.every((row) => Array.isArray(row))
}

function isNumbers(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((item) => typeof item === 'number')
}
