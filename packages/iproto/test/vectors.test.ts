import assert from 'node:assert/strict'
import { describe, expect, it, test } from 'vitest'
import {
  BodyReader,
  BoxError,
  ByteString,
  Datetime,
  Decimal,
  decodeData,
  decodeEvent,
  decodePrepared,
  decodeSql,
  encodeValue,
  Extension,
  FrameHeader,
  FrameReader,
  Interval,
  Key,
  MalformedFrameError,
  parseGreeting,
  readError,
  readReply,
  replyBody,
  RequestType,
  Tuple,
  Uuid,
} from '../src/index.js'
import { allFrames, type DecodedFrame, type Json, loadVectors, type Vector } from './vectors.js'

/** Frames that no reader may accept, and what is wrong with each. */
const BROKEN_HEADERS: ReadonlySet<string> = new Set(['header_not_map', 'header_sync_signed', 'header_type_string'])
const BROKEN_BODIES: ReadonlySet<string> = new Set(['body_not_map', 'body_trailing_bytes'])

describe('every captured frame', () => {
  const frames = allFrames()

  test.each(frames.filter(({ vector }) => baseName(vector) !== 'bad_size_prefix'))(
    '$title arrives whole in any pieces',
    ({ vector }) => {
      const bytes = Buffer.from(vector.hex, 'hex')
      for (const size of [bytes.length, 1, 2, 3, 7]) {
        const reader = new FrameReader({ maxFrameBytes: 65_536 })
        const got: Buffer[] = []
        for (let at = 0; at < bytes.length; at += size) {
          reader.push(bytes.subarray(at, at + size))
          for (let frame = reader.next(); frame !== undefined; frame = reader.next()) got.push(frame)
        }
        assert.deepEqual(got, [bytes], `in pieces of ${size}`)
        assert.equal(reader.bufferedBytes, 0)
      }
    },
  )

  test.each(frames.filter(isSound))('$title says what it is stated to say', ({ vector }) => {
    const frame = Buffer.from(vector.hex, 'hex')
    const header = new FrameHeader()
    header.read(frame)
    checkHeader(header, vector.decoded)
    checkBody(frame, header, vector)
  })

  test.each(frames.filter(({ vector }) => BROKEN_HEADERS.has(baseName(vector))))(
    '$title is refused by its header',
    ({ vector }) => {
      const header = new FrameHeader()
      header.type = 7
      header.syncLow = 7
      expect(() => header.read(Buffer.from(vector.hex, 'hex'))).toThrow(MalformedFrameError)
      expect([header.type, header.sync]).toEqual([0, 0])
    },
  )

  test.each(frames.filter(({ vector }) => BROKEN_BODIES.has(baseName(vector))))(
    '$title is refused by its body',
    ({ vector }) => {
      const frame = Buffer.from(vector.hex, 'hex')
      const header = new FrameHeader()
      header.read(frame)
      expect(header.sync).toBe(7)
      expect(() => new BodyReader(frame.subarray(header.bodyStart, header.bodyEnd))).toThrow(MalformedFrameError)
    },
  )

  it('has a size that is a uint, or is refused at its first byte', () => {
    for (const { vector } of frames.filter(
      ({ vector: { name } }) => name.startsWith('bad_size_prefix') && name.endsWith('request'),
    )) {
      const reader = new FrameReader({ maxFrameBytes: 65_536 })
      reader.push(Buffer.from(vector.hex, 'hex'))
      expect(() => reader.next()).toThrow(MalformedFrameError)
      expect(() => reader.next()).toThrow(MalformedFrameError)
    }
  })
})

test.each(loadVectors('greeting.json'))('$name is parsed', ({ hex, decoded }) => {
  const greeting = parseGreeting(Buffer.from(hex, 'hex'))
  expect(greeting.version).toBe(decoded['version'])
  expect(greeting.protocol).toBe(decoded['protocol'])
  expect(greeting.uuid).toBe(decoded['uuid'])
  expect(Buffer.from(greeting.salt).toString('hex')).toBe(decoded['salt'])
})

function baseName({ name }: Vector): string {
  return name.endsWith('request') ? name.replace(/(@.*)?\.request$/, '') : name
}

function isSound({ vector }: { vector: Vector }): boolean {
  const name = baseName(vector)
  return name !== 'bad_size_prefix' && !BROKEN_HEADERS.has(name) && !BROKEN_BODIES.has(name)
}

function checkHeader(header: FrameHeader, decoded: DecodedFrame): void {
  const stated = decoded.header ?? {}
  same(header.type, stated['REQUEST_TYPE'] ?? 0, 'REQUEST_TYPE')
  same(header.sync, stated['SYNC'] ?? 0, 'SYNC')
  same(header.streamId, stated['STREAM_ID'] ?? 0, 'STREAM_ID')
  if (stated['SCHEMA_VERSION'] === undefined) assert.equal(header.schemaVersion, undefined)
  else same(header.schemaVersion, stated['SCHEMA_VERSION'], 'SCHEMA_VERSION')
}

function checkBody(frame: Buffer, header: FrameHeader, { direction, decoded }: Vector): void {
  if (decoded.body === null || decoded.body === undefined) {
    assert.equal(header.bodyStart, header.bodyEnd)
    return
  }
  const body = new BodyReader(frame.subarray(header.bodyStart, header.bodyEnd))
  for (const [name, stated] of Object.entries(decoded.body)) {
    if (!SPELLED_OUT.has(name)) same(body.value(keyNumber(name)), stated, name)
  }
  if (direction === 'event') {
    const event = decodeEvent(frame, header)
    same(event.key, decoded.body['EVENT_KEY']!, 'EVENT_KEY')
    if (decoded.body['EVENT_DATA'] === undefined) assert.equal(event.value, undefined)
  } else if (direction === 'response') {
    if ((header.type & RequestType.errorFlag) === 0) checkReply(frame, header, decoded.body)
    else checkError(readError(frame, header, 'read'), decoded.body['ERROR'] as { stack: Json[] })
  }
}

function checkReply(frame: Buffer, header: FrameHeader, stated: Record<string, Json>): void {
  const reply = readReply(frame, header)
  same(decodeData(reply), stated['DATA'] ?? [], 'DATA')
  if (stated['TUPLE_FORMATS'] !== undefined) checkFormats(decodeData(reply), stated['TUPLE_FORMATS'])
  if (stated['STMT_ID'] !== undefined) {
    const prepared = decodePrepared(reply)
    same(prepared.id, stated['STMT_ID'], 'STMT_ID')
    checkColumns(prepared.columns, stated['METADATA'] ?? [])
    checkColumns(prepared.binds, stated['BIND_METADATA'] ?? [])
  } else if (stated['METADATA'] !== undefined || stated['SQL_INFO'] !== undefined) {
    const result = decodeSql(reply)
    checkColumns(result.columns, stated['METADATA'] ?? [])
    const info = (stated['SQL_INFO'] ?? { row_count: (stated['DATA'] as Json[]).length }) as Record<string, Json>
    same(result.rowCount, info['row_count']!, 'row_count')
    same(result.autoincrementIds, info['autoincrement_ids'] ?? [], 'autoincrement_ids')
  }
  assert.equal(replyBody(reply).has(Key.data), stated['DATA'] !== undefined)
}

function checkError(error: BoxError, stated: { stack: Json[] }): void {
  assert.equal(error.entries.length, stated.stack.length)
  let current: unknown = error
  for (const entry of stated.stack as Record<string, Json>[]) {
    assert(current instanceof BoxError)
    same(current.boxType, entry['type']!, 'type')
    same(current.file, entry['file']!, 'file')
    same(current.line, entry['line']!, 'line')
    same(current.message, entry['message']!, 'message')
    same(current.errno, entry['errno']!, 'errno')
    same(current.boxCode, entry['code']!, 'code')
    same(Object.fromEntries(current.fields), entry['fields'] ?? {}, 'fields')
    current = current.cause
  }
  assert.equal(current, undefined)
}

function checkColumns(columns: readonly object[], stated: Json): void {
  const expected = (stated as Record<string, Json>[]).map((column) => ({
    name: column['name'],
    type: column['type'],
    ...(column['collation'] !== undefined && { collation: column['collation'] }),
    ...(column['is_nullable'] !== undefined && { isNullable: column['is_nullable'] }),
    ...(column['is_autoincrement'] !== undefined && { isAutoincrement: column['is_autoincrement'] }),
    ...(column['span'] !== undefined && { span: column['span'] ?? column['name'] }),
  }))
  assert.deepEqual(columns, expected)
}

/** Each Tuple in the data has the format that the reply states; fields are compared by name. */
function checkFormats(data: unknown, stated: Json): void {
  const formats = Object.fromEntries(
    ((stated as { $map?: [number, Json[]][] }).$map ?? []).map(([id, fields]) => [id, fields]),
  )
  const tuples = (data as unknown[]).flat().filter((value) => value instanceof Tuple)
  for (const tuple of tuples) {
    const [expected] = Object.values(formats) as Record<string, Json>[][]
    assert.deepEqual(
      tuple.format,
      expected!.map(({ name, type, is_nullable }) => ({ name, type, isNullable: is_nullable === true })),
    )
    assert.deepEqual(
      Object.keys(tuple.toObject()),
      expected!.map(({ name }) => name),
    )
  }
}

/** Keys whose values the vectors spell out by names of their own. */
const SPELLED_OUT: ReadonlySet<string> = new Set(['ERROR', 'METADATA', 'BIND_METADATA', 'SQL_INFO'])

function keyNumber(name: string): number {
  const special: Record<string, number> = { ERROR_24: Key.error24 }
  const camel = name.toLowerCase().replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase())
  const number = special[name] ?? Key[camel as keyof typeof Key]
  assert.notEqual(number, undefined, `no key is called ${name}`)
  return number
}

/** Whether a decoded value is what the vector states, in the vectors' own notation. */
function same(actual: unknown, stated: Json, where: string): void {
  if (stated === null || typeof stated !== 'object') {
    assert.ok(Object.is(actual, stated), `${where}: ${String(actual)} instead of ${String(stated)}`)
  } else if (Array.isArray(stated)) {
    assert.ok(Array.isArray(actual), `${where} is no array`)
    assert.equal(actual.length, stated.length, where)
    for (const [i, item] of stated.entries()) same(actual[i], item as Json, `${where}[${i}]`)
  } else {
    sameTagged(actual, stated as { readonly [key: string]: Json }, where)
  }
}

function sameTagged(actual: unknown, stated: { readonly [key: string]: Json }, where: string): void {
  if ('$int' in stated) assert.equal(actual, BigInt(stated['$int'] as string), where)
  else if ('$double' in stated) assert.ok(Object.is(actual, Number(stated['$double'])), where)
  else if ('$float' in stated) assert.ok(Object.is(actual, Number(stated['$float'])), where)
  else if ('$bin' in stated) {
    assert.ok(actual instanceof Uint8Array, where)
    assert.equal(Buffer.from(actual).toString('hex'), stated['$bin'], where)
  } else if ('$strhex' in stated) {
    assert.ok(actual instanceof ByteString, where)
    assert.equal(Buffer.from(actual.bytes).toString('hex'), stated['$strhex'], where)
  } else if ('$ext' in stated) sameExtension(actual, stated, where)
  else if ('$map' in stated) {
    assert.ok(actual instanceof Map || typeof actual === 'object', where)
    const entries = actual instanceof Map ? [...actual] : Object.entries(actual as object)
    const pairs = withoutDuplicates(stated['$map'] as unknown as [Json, Json][])
    assert.equal(entries.length, pairs.length, where)
    for (const [i, [key, value]] of pairs.entries()) {
      const entry = entries[i] as [unknown, unknown]
      same(entry[0], key, `key ${i} of ${where}`)
      same(entry[1], value, `${where}[${JSON.stringify(key)}]`)
    }
  } else {
    assert.ok(typeof actual === 'object' && actual !== null && !(actual instanceof Map), `${where} is no object`)
    assert.deepEqual(Object.keys(actual), Object.keys(stated), where)
    for (const [key, value] of Object.entries(stated))
      same((actual as Record<string, unknown>)[key], value, `${where}.${key}`)
  }
}

/** Of duplicate keys the last value wins, in the place of the first. */
function withoutDuplicates(pairs: [Json, Json][]): [Json, Json][] {
  const last = new Map(pairs.map(([key, value]) => [JSON.stringify(key), [key, value] as [Json, Json]]))
  return [...last.values()]
}

function sameExtension(actual: unknown, stated: { readonly [key: string]: Json }, where: string): void {
  const type = stated['$ext'] as number
  const payload = Buffer.from(stated['hex'] as string, 'hex')
  if (stated['decode_error'] !== undefined) assert.ok(actual instanceof Extension, where)
  else if (type === 7) {
    const { fields } = stated['tuple'] as unknown as { fields: Json }
    assert.ok(actual instanceof Tuple, where)
    same(actual.values, fields, where)
    return
  } else if (type === 1) {
    assert.ok(actual instanceof Decimal, where)
    assert.equal(actual.toString(), Decimal.from(stated['decimal'] as string).toString(), where)
  } else if (type === 2) {
    assert.ok(actual instanceof Uuid, where)
    assert.equal(actual.toString(), stated['uuid'], where)
  } else if (type === 3) {
    assert.ok(actual instanceof BoxError, where)
    checkError(actual, stated['error'] as unknown as { stack: Json[] })
  } else if (type === 4) {
    assert.ok(actual instanceof Datetime, where)
    const { seconds, nsec, tzoffset, tzindex } = actual
    for (const [name, value] of Object.entries({ seconds, nsec, tzoffset, tzindex })) {
      same(value, (stated['datetime'] as Record<string, Json>)[name]!, `${where}.${name}`)
    }
  } else if (type === 6) {
    assert.ok(actual instanceof Interval, where)
    const { adjust = 0, ...units } = stated['interval'] as Record<string, Json>
    assert.equal(actual.adjust, ['excess', 'none', 'last'][adjust as number], where)
    for (const [unit, value] of Object.entries(units)) same(actual[unit as 'year'], value, `${where}.${unit}`)
  } else assert.ok(actual instanceof Extension && actual.type === type, where)
  assert.equal(
    encodeValue(actual).toString('hex'),
    encodeValue(new Extension(type, payload)).toString('hex'),
    `${where} goes back`,
  )
}
