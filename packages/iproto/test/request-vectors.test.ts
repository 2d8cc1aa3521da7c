import assert from 'node:assert/strict'
import { expect, test } from 'vitest'
import {
  authGuestRequest,
  authRequest,
  beginRequest,
  call16Request,
  callRequest,
  chapSha1,
  commitRequest,
  deleteRequest,
  evalRequest,
  executeRequest,
  type FieldFormat,
  FrameWriter,
  idRequest,
  insertRequest,
  type Isolation,
  papSha256,
  pingRequest,
  prepareRequest,
  rawRequest,
  replaceRequest,
  type Request,
  RequestType,
  rollbackRequest,
  selectRequest,
  type UpdateOperation,
  unwatchRequest,
  updateRequest,
  upsertRequest,
  watchOnceRequest,
  watchRequest,
} from '../src/index.js'
import { allFrames, type DecodedFrame, type Json, valueOf, type Vector } from './vectors.js'

/**
 * Requests that our functions do not write as they were captured, and why: what a client of ours never sends. Everything else must come
 * out byte for byte.
 */
const NOT_OURS: readonly (readonly [name: RegExp, why: string])[] = [
  [/^netbox_/, 'the stock client writes SYNC first and other orders of keys'],
  [/^ping_size_fixint/, 'the prefix is in another form than ours'],
  [/^(bad_size_prefix|header_|body_)/, 'broken on purpose'],
  [/^value_ints_wide_forms/, 'integers in wider forms than needed'],
  [/^value_map_keys/, 'a map with a duplicate key'],
  [/^insert_int64_positive/, 'a positive number in a signed form'],
  [/^auth_ok_bin_scramble/, 'the scramble as bin'],
  [/^tx_begin_(timeout_int|bad_isolation|is_sync_false)|^select_limit_2pow32/, 'values that our functions refuse'],
]

/** Requests whose function always writes a key that is missing here, or no body where this one is an empty map. */
const RAW: ReadonlySet<string> = new Set([
  'unknown_type',
  'auth_missing_tuple',
  'id_empty_map',
  'id_no_body',
  'watch_missing_key',
  'missing_mandatory_key',
  'select_without_body',
  'tx_commit',
  'tx_timed_out_commit',
  'tx_begin_out_of_stream',
  'tx_begin_on_2.6.0',
])

const requests = allFrames().filter(({ vector }) => vector.direction === 'request')

test.each(requests.filter(({ vector }) => !isForeign(vector)))(
  '$title comes out of our own functions byte for byte',
  ({ vector }) => {
    const request = RAW.has(baseName(vector)) ? rawRequestOf(vector) : requestOf(vector)
    assert.equal(frameOf(request, vector.decoded).toString('hex'), vector.hex)
  },
)

test('requests left out are few and each for a reason', () => {
  const leftOut = requests.filter(({ vector }) => isForeign(vector))
  for (const { vector } of leftOut) {
    expect(NOT_OURS.filter(([pattern]) => pattern.test(vector.name))).toHaveLength(1)
  }
  expect(leftOut.length).toBeLessThan(requests.length / 4)
})

function isForeign({ name }: Vector): boolean {
  return NOT_OURS.some(([pattern]) => pattern.test(name))
}

function baseName({ name }: Vector): string {
  return name.replace(/(@.*)?\.request$/, '')
}

function frameOf(request: Request, decoded: DecodedFrame): Buffer {
  const header = Object.fromEntries(Object.entries(decoded.header ?? {}).map(([name, value]) => [name, valueOf(value)]))
  const sync = BigInt((header['SYNC'] ?? 0) as number | bigint)
  const out = new FrameWriter()
  out.beginRequest(
    header['REQUEST_TYPE'] as number,
    Number(sync >> 32n),
    Number(sync & 0xffffffffn),
    (header['STREAM_ID'] ?? 0) as number | bigint,
    (header['SCHEMA_VERSION'] ?? 0) as number,
  )
  request.writeBody(out)
  out.end()
  assert.equal(request.type, header['REQUEST_TYPE'])
  return Buffer.concat(out.take())
}

/** The body as it is on the wire. */
function rawRequestOf({ hex, decoded }: Vector): Request {
  const { REQUEST_TYPE: type, SYNC: sync, STREAM_ID: stream } = decoded.header as Record<string, number>
  const out = new FrameWriter()
  out.beginRequest(type!, 0, sync!, stream ?? 0)
  const headerBytes = out.end()
  return rawRequest(type!, 'session', Buffer.from(hex, 'hex').subarray(headerBytes))
}

function requestOf({ decoded, inputs }: Vector): Request {
  const type = (decoded.header as Record<string, number>)['REQUEST_TYPE']!
  const body = Object.fromEntries(Object.entries(decoded.body ?? {}).map(([name, value]) => [name, valueOf(value)]))
  const place = {
    space: (body['SPACE_NAME'] ?? body['SPACE_ID']) as number | string,
    ...given('index', body['INDEX_NAME'] ?? body['INDEX_ID']),
    ...given('indexBase', body['INDEX_BASE']),
  }
  const tuple = body['TUPLE'] as unknown[]
  const key = body['KEY'] as unknown[]
  switch (type) {
    case RequestType.select:
      return selectRequest({
        ...place,
        key,
        limit: body['LIMIT'] as number,
        ...given('offset', body['OFFSET']),
        ...given('iterator', body['ITERATOR']),
        ...given('fetchPosition', body['FETCH_POSITION']),
        ...given('after', body['AFTER_POSITION'] ?? body['AFTER_TUPLE']),
      })
    case RequestType.insert:
      return insertRequest(place.space, tuple)
    case RequestType.replace:
      return replaceRequest(place.space, tuple)
    case RequestType.update:
      return updateRequest({ ...place, key, operations: tuple as unknown as UpdateOperation[] })
    case RequestType.upsert:
      return upsertRequest({ ...place, tuple, operations: body['OPS'] as UpdateOperation[] })
    case RequestType.delete:
      return deleteRequest({ ...place, key })
    case RequestType.call:
      return callRequest(body['FUNCTION_NAME'] as string, tuple, formatsOf(decoded.body?.['TUPLE_FORMATS']))
    case RequestType.call16:
      return call16Request(body['FUNCTION_NAME'] as string, tuple)
    case RequestType.eval:
      return evalRequest(body['EXPR'] as string, tuple)
    case RequestType.execute:
      return executeRequest((body['SQL_TEXT'] ?? body['STMT_ID']) as string | number, body['SQL_BIND'] as unknown[])
    case RequestType.prepare:
      return prepareRequest(body['SQL_TEXT'] as string)
    case RequestType.begin:
      return beginRequest({
        ...given(
          'timeout',
          body['TIMEOUT'] === undefined ? undefined : (body['TIMEOUT'] as { value: number }).value * 1000,
        ),
        ...given('isolation', ISOLATIONS[body['TXN_ISOLATION'] as number]),
        ...given('isSync', body['IS_SYNC']),
      })
    case RequestType.commit:
      return commitRequest()
    case RequestType.rollback:
      return rollbackRequest()
    case RequestType.ping:
      return pingRequest()
    case RequestType.id:
      return idRequest({ version: body['VERSION'] as number, features: body['FEATURES'] as number[] })
    case RequestType.auth:
      return authOf(inputs!, tuple)
    case RequestType.watch:
      return watchRequest(body['EVENT_KEY'] as string)
    case RequestType.unwatch:
      return unwatchRequest(body['EVENT_KEY'] as string)
    case RequestType.watchOnce:
      return watchOnceRequest(body['EVENT_KEY'] as string)
    default:
      return assert.fail(`no function writes type ${type}`)
  }
}

const ISOLATIONS: readonly Isolation[] = ['default', 'read-committed', 'read-confirmed', 'best-effort', 'linearizable']

/** Scrambles are computed from the password and the salt, not copied. */
function authOf({ user, password, method, salt_hex }: NonNullable<Vector['inputs']>, tuple: unknown[]): Request {
  if (tuple.length === 0) return authGuestRequest()
  if (method === 'pap-sha256') return authRequest(user, method, papSha256(password))
  return authRequest(user, 'chap-sha1', chapSha1(Buffer.from(salt_hex, 'hex'), password))
}

function formatsOf(stated: Json | undefined): ReadonlyMap<number, readonly FieldFormat[]> | undefined {
  if (stated === undefined) return undefined
  const { $map } = stated as unknown as { $map: [number, { name: string; type: string; is_nullable?: boolean }[]][] }
  return new Map(
    $map.map(([id, fields]) => [
      id,
      fields.map(({ name, type, is_nullable = false }) => ({ name, type, isNullable: is_nullable })),
    ]),
  )
}

/** A property only when there is a value for it. */
function given<Name extends string, T>(name: Name, value: T | undefined): Record<Name, NonNullable<T> & never> {
  return (value === undefined ? {} : { [name]: value }) as Record<Name, NonNullable<T> & never>
}
