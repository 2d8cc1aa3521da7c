import { BoxError, InvalidArgumentError, OrbweaverError } from '@orbweaver/iproto'
import { describe, expect, test } from 'vitest'
import {
  asStorageError,
  asVshardError,
  isStorageTimeout,
  restoreError,
  VSHARD_ERRORS,
  VshardError,
  type VshardErrorName,
} from '../src/index.js'
import { readVectors, valueOf } from './vectors.js'

interface ErrorVector {
  readonly code: number
  readonly name: VshardErrorName
  readonly args: Readonly<Record<string, unknown>>
  readonly object?: Readonly<Record<string, unknown>>
}

const { cases } = readVectors<{ cases: readonly ErrorVector[] }>('errors')
const recorded = cases.filter((entry): entry is Required<ErrorVector> => entry.object !== undefined)

describe('an error made by its name travels as vshard writes it', () => {
  test.each(recorded)('$name', ({ name, code, args, object }) => {
    const error = VshardError.of(name, args)
    expect(error.toWire()).toEqual(object)
    expect(error.vshardCode).toBe(code)
    expect(JSON.parse(error.toWireText())).toEqual(object)
  })

  test.each(Object.entries(VSHARD_ERRORS))('%s can be made without knowing any field', (name, { code }) => {
    const error = VshardError.of(name as VshardErrorName)
    expect(error.vshardCode).toBe(code)
    expect(error.toWire()).toEqual({ type: 'ShardingError', code, name, message: error.message })
    expect(error.message).not.toContain('{')
  })

  test('codes and names are one to one, and 31 is free', () => {
    const codes = Object.values(VSHARD_ERRORS).map(({ code }) => code)
    expect(new Set(codes).size).toBe(codes.length)
    expect(codes.toSorted((a, b) => a - b)).toEqual(
      [...Array.from({ length: 42 }, (_, i) => i + 1)].filter((i) => i !== 31),
    )
  })

  test('an unknown destination is "nil" in the message and absent in the map', () => {
    const error = VshardError.of('TRANSFER_IS_IN_PROGRESS', { bucket_id: 13, destination: undefined })
    expect(error.message).toBe('Bucket 13 is transferring to replicaset nil')
    expect(error.toWire()).not.toHaveProperty('destination')
  })

  test('a reason that is an error shows its message and travels as it is', () => {
    const reason = BoxError.of(3, 'Duplicate key')
    const error = VshardError.of('BUCKET_RECV_DATA_ERROR', { bucket_id: 1, space: 's', tuple: '[1]', reason })
    expect(error.message).toBe('Can not receive the bucket 1 data in space "s" at tuple [1]: Duplicate key')
    expect(error.toWire()['reason']).toBe(reason)
  })

  test('a text to raise can be made of any field', () => {
    const error = VshardError.of('BUCKET_IS_CORRUPTED', { bucket_id: 5n, reason: BoxError.of(1, 'inner') })
    expect(error.message).toBe('Bucket 5 is corrupted: inner')
    expect(JSON.parse(error.toWireText())).toMatchObject({ bucket_id: 5, reason: 'inner' })
  })

  test('a name or a field that is not in the table is refused', () => {
    expect(() => VshardError.of('NO_SUCH_NAME' as VshardErrorName)).toThrow(InvalidArgumentError)
    expect(() => VshardError.of('NON_EMPTY', { reason: 'x' })).toThrow(/^NON_EMPTY has no field reason/)
  })
})

describe('an error in a reply is recognised', () => {
  test.each(recorded)('$name', ({ name, code, object }) => {
    const error = asVshardError(object)
    expect(error).toBeInstanceOf(VshardError)
    expect(error).toBeInstanceOf(OrbweaverError)
    expect(error).toMatchObject({
      code: 'ORB_VSHARD',
      name: 'VshardError',
      vshardName: name,
      vshardCode: code,
      executed: 'no',
    })
    expect(error?.message).toBe(object['message'])
    expect(error?.toWire()).toEqual(object)
  })

  test('the fields that decide what a router does have names of their own', () => {
    const moved = asVshardError(
      VshardError.of('WRONG_BUCKET', { bucket_id: 7, reason: 'r', destination: 'd' }).toWire(),
    )
    expect(moved).toMatchObject({ bucketId: 7, reason: 'r', destination: 'd', master: undefined })
    const demoted = asVshardError(
      VshardError.of('NON_MASTER', { replica: 'a', replicaset: 'rs', master: 'b' }).toWire(),
    )
    expect(demoted).toMatchObject({ replica: 'a', replicaset: 'rs', master: 'b', destination: undefined })
  })

  test('a map with keys of any kind counts too', () => {
    const map = new Map<unknown, unknown>([
      ['type', 'ShardingError'],
      ['code', 10],
      ['message', 'm'],
      [1, 'x'],
    ])
    expect(asVshardError(map)).toMatchObject({ vshardName: 'NON_EMPTY', message: 'm' })
  })

  test('a kind of a newer vshard keeps its name and code', () => {
    const wire = { type: 'ShardingError', code: 77, name: 'SOMETHING_NEW', message: 'm', extra: 1 }
    expect(asVshardError(wire)).toMatchObject({ vshardName: 'SOMETHING_NEW', vshardCode: 77 })
    expect(asVshardError(wire)?.toWire()).toEqual(wire)
    expect(asVshardError({ type: 'ShardingError', code: 77, message: 'm' })?.vshardName).toBe('UNKNOWN_77')
  })

  const strangers: unknown[] = [
    null,
    'text',
    5,
    [],
    {},
    { type: 'ShardingError' },
    { type: 'ShardingError', code: '1', message: 'm' },
    { type: 'ShardingError', code: -1, message: 'm' },
    { type: 'ShardingError', code: 1.5, message: 'm' },
    { type: 'ClientError', code: 1, message: 'm' },
  ]
  test.each(strangers)('%j is no vshard error', (value) => {
    expect(asVshardError(value)).toBeUndefined()
  })
})

describe('any error of a storage becomes an error object', () => {
  test('an unpacked box error keeps type, code, name and fields', () => {
    const error = asStorageError({
      type: 'ClientError',
      base_type: 'ClientError',
      code: 33,
      name: 'NO_SUCH_PROC',
      message: 'm',
      func: 'f',
    })
    expect(error).toMatchObject({ code: 'ORB_BOX', boxType: 'ClientError', boxCode: 33, message: 'm', executed: 'yes' })
    expect((error as BoxError).fields.get('func')).toBe('f')
    expect((error as BoxError).fields.get('name')).toBe('NO_SUCH_PROC')
  })

  test('the original error that Tarantool 3 keeps in details is the cause', () => {
    const wire = valueOf({
      ...{ type: 'ClientError', code: 32, name: 'PROC_LUA', message: "Space 'nowhere' does not exist" },
      details: {
        $error: [
          { type: 'ClientError', line: 1, file: '[C]', message: "Space 'nowhere' does not exist", errno: 0, code: 36 },
        ],
      },
    })
    expect(asStorageError(wire)).toMatchObject({ boxCode: 32, cause: { code: 'ORB_BOX', boxCode: 36 } })
  })

  test('details that are a text stay a field', () => {
    const error = asStorageError({ type: 'ClientError', code: 32, message: 'm', details: 'was this' })
    expect(error.cause).toBeUndefined()
    expect((error as BoxError).fields.get('details')).toBe('was this')
  })

  test('the failure inside a corrupted bucket is its cause', () => {
    const wire = {
      ...VshardError.of('BUCKET_IS_CORRUPTED', { bucket_id: 1, reason: 'no refs' }).toWire(),
      prev: { type: 'LuajitError', code: 32, message: 'boom' },
    }
    expect(asStorageError(wire)).toMatchObject({
      vshardName: 'BUCKET_IS_CORRUPTED',
      cause: { boxCode: 32, message: 'boom' },
    })
  })

  test('an error object is taken with the executed of its place', () => {
    const inner = BoxError.of(3, 'Duplicate key')
    expect(asStorageError(inner, { executed: 'no' })).toMatchObject({ boxCode: 3, executed: 'no' })
  })

  test.each([
    ['plain text', 'PROC_LUA', 'plain text'],
    [null, 'UNKNOWN', 'No error object, but nil'],
    [42, 'UNKNOWN', 'No error object, but a number'],
    [{ a: 1 }, 'UNKNOWN', 'No error object, but a value without type, code and message'],
  ])('%j becomes a box error', (value, boxName, message) => {
    expect(asStorageError(value)).toMatchObject({ code: 'ORB_BOX', boxName, message })
  })
})

describe('an error raised as JSON text is restored', () => {
  const raised = (message: string, boxType = 'LuajitError'): BoxError =>
    BoxError.of(32, message, { boxType, executed: 'yes' })

  test('a disabled storage did not run anything', () => {
    const text = VshardError.of('STORAGE_IS_DISABLED', { reason: 'storage is disabled explicitly' }).toWireText()
    expect(restoreError(raised(text))).toMatchObject({
      ...{ vshardName: 'STORAGE_IS_DISABLED', vshardCode: 33, executed: 'no' },
      message: 'Storage is disabled: storage is disabled explicitly',
    })
    expect(restoreError(raised(text, 'ClientError'))).toMatchObject({ vshardCode: 33 })
  })

  test('others are as executed as the error that carried them', () => {
    const text = VshardError.of('BUCKET_INVALID_UPDATE', { bucket_id: 2501, reason: 'r' }).toWireText()
    expect(restoreError(raised(text))).toMatchObject({ vshardName: 'BUCKET_INVALID_UPDATE', executed: 'yes' })
  })

  test('a box error as JSON is a box error again', () => {
    expect(restoreError(raised('{"type":"ClientError","code":78,"message":"Timeout exceeded"}'))).toMatchObject({
      boxCode: 78,
    })
  })

  const whole = VshardError.of('NON_EMPTY').toWireText()
  test.each([
    ['a text of Lua', raised('init.lua:1: Unknown mode')],
    ['a text that was cut', raised(whole.slice(0, -5))],
    ['a map without a code', raised('{"type":"x","message":"m"}')],
    ['another type of error', raised(whole, 'AccessDeniedError')],
  ])('%s is not restored', (_, error) => {
    expect(restoreError(error)).toBeUndefined()
  })
})

test.each([
  ['code 78', BoxError.of(78, 'Timeout exceeded'), true],
  ['the type TimedOut', BoxError.of(0, 'timed out', { boxType: 'TimedOut' }), true],
  ['the text in error 32', BoxError.of(32, 'Timeout exceeded'), true],
  ['another error 32', BoxError.of(32, 'attempt to call a nil value'), false],
  ['a vshard error', VshardError.of('NON_EMPTY'), false],
])('whether %s is a timeout: %#', (_, error, isTimeout) => {
  expect(isStorageTimeout(error)).toBe(isTimeout)
})
