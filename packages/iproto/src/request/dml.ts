import { type IteratorName, IteratorType, Key, RequestType } from '../constants.js'
import { InvalidArgumentError } from '../errors.js'
import type { BodyWriter } from '../msgpack/body-writer.js'
import { RawValue } from '../msgpack/wrappers.js'
import { assertArray, assertText, assertUint32, type Request } from './request.js'
import { assertIndex, assertSpace, type IndexRef, type SpaceRef, writeIndex, writeSpace } from './space.js'

/* Data requests. Source: Tarantool src/box/xrow.c, request_body_key_map
 *   SELECT  (1)  0x10 SPACE_ID uint | 0x5e SPACE_NAME str, 0x11 INDEX_ID uint | 0x5f INDEX_NAME str, 0x12 LIMIT uint, 0x13 OFFSET uint,
 *                0x14 ITERATOR uint, 0x20 KEY array, 0x1f FETCH_POSITION bool, 0x2e AFTER_POSITION str, 0x2f AFTER_TUPLE array
 *   INSERT  (2), REPLACE (3)  space, 0x21 TUPLE array
 *   UPDATE  (4)  space, index, 0x15 INDEX_BASE uint, 0x20 KEY array, 0x21 TUPLE array of operations
 *   DELETE  (5)  space, index, 0x20 KEY array
 *   UPSERT  (9)  space, 0x15 INDEX_BASE uint, 0x21 TUPLE array, 0x28 OPS array
 * A key that is left out counts as 0 on the server, so what the caller leaves out is not written, LIMIT excepted (it is mandatory). */

/** No limit: the largest number that servers do not cut. */
export const NO_LIMIT = 4_294_967_295

/** What {@link selectRequest} takes. */
export interface SelectOptions {
  readonly space: SpaceRef
  /** Default: the primary index. */
  readonly index?: IndexRef
  /** Parts of the key, may be fewer than the index has on a tree; default `[]`: everything. */
  readonly key?: readonly unknown[]
  /** Default `EQ`. */
  readonly iterator?: IteratorName | number
  /** 0..4294967295, default 0. */
  readonly offset?: number
  /** 0..4294967295, default 4294967295: no limit. */
  readonly limit?: number
  /** Ask for POSITION in the reply (feature `pagination`; older servers ignore it and repeat page one for ever). */
  readonly fetchPosition?: boolean
  /** Where to go on: the position of the last reply, or the last tuple. Same index, iterator and key as before. */
  readonly after?: string | Uint8Array | readonly unknown[]
}

/**
 * `[operator, field, ...arguments]`, as in Tarantool: `['=', 2, value]`, `['+', 'count', 1]`, `[':', 3, position, cut, text]`.
 * A field is a number (relative to `indexBase`, negative from the end), a name, or a JSON path.
 */
export type UpdateOperation = readonly [op: string, field: number | string, ...args: unknown[]]

/** SELECT. @throws InvalidArgumentError when a number is out of range or the iterator is unknown */
export function selectRequest(options: SelectOptions): Request {
  const { space, index, key = [], offset, limit = NO_LIMIT, fetchPosition = false, after } = options
  assertSpace(space)
  assertIndex(index)
  assertArray(key, 'key')
  assertUint32(limit, 'limit')
  if (offset !== undefined) assertUint32(offset, 'offset')
  const iterator = options.iterator === undefined ? undefined : iteratorNumber(options.iterator)
  const optional = [index, offset, iterator, after].filter((value) => value !== undefined).length
  const size = 3 + optional + (fetchPosition ? 1 : 0)
  return {
    type: RequestType.select,
    requestClass: 'read',
    writeBody(out) {
      out.mapHeader(size)
      writeSpace(out, space)
      writeIndex(out, index)
      out.uint(Key.limit)
      out.uint(limit)
      if (offset !== undefined) {
        out.uint(Key.offset)
        out.uint(offset)
      }
      if (iterator !== undefined) {
        out.uint(Key.iterator)
        out.uint(iterator)
      }
      out.uint(Key.key)
      out.value(key, 'key')
      if (fetchPosition) {
        out.uint(Key.fetchPosition)
        out.bool(true)
      }
      writeAfter(out, after)
    },
  }
}

/** INSERT: error 3 when the key exists. */
export function insertRequest(space: SpaceRef, tuple: readonly unknown[] | RawValue): Request {
  return tupleRequest(RequestType.insert, space, tuple)
}

/** REPLACE: inserts or overwrites by primary key. */
export function replaceRequest(space: SpaceRef, tuple: readonly unknown[] | RawValue): Request {
  return tupleRequest(RequestType.replace, space, tuple)
}

/** What {@link updateRequest} takes. */
export interface UpdateOptions {
  readonly space: SpaceRef
  /** A unique index; default: the primary one. */
  readonly index?: IndexRef
  /** The whole key. */
  readonly key: readonly unknown[]
  /** At most 4000. */
  readonly operations: readonly UpdateOperation[]
  /** Number of the first field in the operations, 0 (default) or 1. */
  readonly indexBase?: number
}

/** UPDATE of the one tuple with this key; none is no error. */
export function updateRequest(options: UpdateOptions): Request {
  const { space, index, key, operations, indexBase } = options
  assertSpace(space)
  assertIndex(index)
  assertArray(key, 'key')
  assertOperations(operations)
  if (indexBase !== undefined) assertUint32(indexBase, 'indexBase')
  const size = 3 + (index === undefined ? 0 : 1) + (indexBase === undefined ? 0 : 1)
  return {
    type: RequestType.update,
    requestClass: 'dml',
    writeBody(out) {
      out.mapHeader(size)
      writeSpace(out, space)
      writeIndex(out, index)
      writeIndexBase(out, indexBase)
      out.uint(Key.key)
      out.value(key, 'key')
      out.uint(Key.tuple)
      out.value(operations, 'operations')
    },
  }
}

/** What {@link upsertRequest} takes. */
export interface UpsertOptions {
  readonly space: SpaceRef
  /** Inserted when there is none with its primary key. */
  readonly tuple: readonly unknown[] | RawValue
  /** Applied otherwise; at most 4000. */
  readonly operations: readonly UpdateOperation[]
  /** Number of the first field in the operations, 0 (default) or 1. */
  readonly indexBase?: number
}

/** UPSERT: the reply is always empty. */
export function upsertRequest(options: UpsertOptions): Request {
  const { space, tuple, operations, indexBase } = options
  assertSpace(space)
  assertTuple(tuple)
  assertOperations(operations)
  if (indexBase !== undefined) assertUint32(indexBase, 'indexBase')
  return {
    type: RequestType.upsert,
    requestClass: 'dml',
    writeBody(out) {
      out.mapHeader(indexBase === undefined ? 3 : 4)
      writeSpace(out, space)
      writeIndexBase(out, indexBase)
      out.uint(Key.tuple)
      out.value(tuple, 'tuple')
      out.uint(Key.ops)
      out.value(operations, 'operations')
    },
  }
}

/** What {@link deleteRequest} takes. */
export interface DeleteOptions {
  readonly space: SpaceRef
  /** A unique index; default: the primary one. */
  readonly index?: IndexRef
  /** The whole key. */
  readonly key: readonly unknown[]
}

/** DELETE of the one tuple with this key; none is no error. */
export function deleteRequest(options: DeleteOptions): Request {
  const { space, index, key } = options
  assertSpace(space)
  assertIndex(index)
  assertArray(key, 'key')
  return {
    type: RequestType.delete,
    requestClass: 'dml',
    writeBody(out) {
      out.mapHeader(index === undefined ? 2 : 3)
      writeSpace(out, space)
      writeIndex(out, index)
      out.uint(Key.key)
      out.value(key, 'key')
    },
  }
}

const ITERATORS: ReadonlyMap<string, number> = new Map<IteratorName, number>([
  ['EQ', IteratorType.eq],
  ['REQ', IteratorType.req],
  ['ALL', IteratorType.all],
  ['LT', IteratorType.lt],
  ['LE', IteratorType.le],
  ['GE', IteratorType.ge],
  ['GT', IteratorType.gt],
  ['BITS_ALL_SET', IteratorType.bitsAllSet],
  ['BITS_ANY_SET', IteratorType.bitsAnySet],
  ['BITS_ALL_NOT_SET', IteratorType.bitsAllNotSet],
  ['OVERLAPS', IteratorType.overlaps],
  ['NEIGHBOR', IteratorType.neighbor],
  ['NP', IteratorType.np],
  ['PP', IteratorType.pp],
])

function iteratorNumber(iterator: IteratorName | number): number {
  if (typeof iterator === 'number') {
    assertUint32(iterator, 'iterator')
    return iterator
  }
  const number = ITERATORS.get(iterator)
  if (number === undefined) {
    throw new InvalidArgumentError(
      `iterator is ${JSON.stringify(iterator)}, expected one of ${[...ITERATORS.keys()].join(', ')}`,
    )
  }
  return number
}

function tupleRequest(type: number, space: SpaceRef, tuple: readonly unknown[] | RawValue): Request {
  assertSpace(space)
  assertTuple(tuple)
  return {
    type,
    requestClass: 'dml',
    writeBody(out) {
      out.mapHeader(2)
      writeSpace(out, space)
      out.uint(Key.tuple)
      out.value(tuple, 'tuple')
    },
  }
}

function assertTuple(tuple: readonly unknown[] | RawValue): void {
  if (!(tuple instanceof RawValue)) assertArray(tuple, 'tuple')
}

function assertOperations(operations: readonly UpdateOperation[]): void {
  assertArray(operations, 'operations')
  for (const [i, operation] of operations.entries()) {
    assertArray(operation, `operations[${i}]`)
    const [op, field] = operation
    assertText(op, `operations[${i}][0]`)
    if (typeof field !== 'string' && !Number.isInteger(field)) {
      throw new InvalidArgumentError(`operations[${i}][1] is ${String(field)}, expected a field number, name or path`)
    }
  }
}

function writeIndexBase(out: BodyWriter, indexBase: number | undefined): void {
  if (indexBase === undefined) return
  out.uint(Key.indexBase)
  out.uint(indexBase)
}

function writeAfter(out: BodyWriter, after: SelectOptions['after']): void {
  if (after === undefined) return
  if (typeof after === 'string') {
    out.uint(Key.afterPosition)
    out.text(after)
  } else if (after instanceof Uint8Array) {
    out.uint(Key.afterPosition)
    out.rawText(after)
  } else {
    out.uint(Key.afterTuple)
    out.value(after, 'after')
  }
}
