import assert from 'node:assert/strict'
import { describe, expect, it, test } from 'vitest'
import {
  BoxError,
  ConfigError,
  ErrorCode,
  errorCodeName,
  type Executed,
  executedOf,
  FEATURE_OF_REQUEST,
  Feature,
  featureName,
  FrameTooLargeError,
  InvalidArgumentError,
  isOrbweaverError,
  MalformedFrameError,
  OrbweaverError,
  type RequestClass,
  RequestType,
  UnsupportedFeatureError,
} from '../src/index.js'

const CLASSES: readonly RequestClass[] = ['read', 'dml', 'code', 'sql', 'transaction', 'session', 'watch']

describe('errors', () => {
  test.each([
    [new MalformedFrameError('m'), 'ORB_MALFORMED_FRAME', 'unknown', 'MalformedFrameError'],
    [new MalformedFrameError('m', { executed: 'no' }), 'ORB_MALFORMED_FRAME', 'no', 'MalformedFrameError'],
    [new FrameTooLargeError(2, 1), 'ORB_FRAME_TOO_LARGE', 'unknown', 'FrameTooLargeError'],
    [new UnsupportedFeatureError('streams', 'm'), 'ORB_UNSUPPORTED_FEATURE', 'no', 'UnsupportedFeatureError'],
    [new InvalidArgumentError('m'), 'ORB_INVALID_ARGUMENT', 'no', 'InvalidArgumentError'],
    [new ConfigError([]), 'ORB_CONFIG', 'no', 'ConfigError'],
    [BoxError.of(7, 'm'), 'ORB_BOX', 'yes', 'BoxError'],
    [BoxError.of(7, 'm', { executed: 'no' }), 'ORB_BOX', 'no', 'BoxError'],
  ])('%o has its code, its name and says whether it ran', (error, code, executed, name) => {
    expect(error).toBeInstanceOf(OrbweaverError)
    expect([error.code, error.executed, error.name]).toEqual([code, executed, name])
    expect(isOrbweaverError(error)).toBe(true)
  })

  it('are recognised across two copies of the package', () => {
    expect(isOrbweaverError(Object.assign(new Error('x'), { code: 'ORB_BOX', executed: 'yes' }))).toBe(true)
    for (const other of [
      new Error('x'),
      Object.assign(new Error('x'), { code: 'ENOENT' }),
      { code: 'ORB_BOX', executed: 'no' },
      null,
      'ORB_',
    ]) {
      expect(isOrbweaverError(other)).toBe(false)
    }
  })

  it('carry their facts', () => {
    const { sizeBytes, maxFrameBytes } = new FrameTooLargeError(20, 10)
    expect([sizeBytes, maxFrameBytes]).toEqual([20, 10])
    expect(new UnsupportedFeatureError('streams', 'm').feature).toBe('streams')
    const cause = new Error('c')
    expect(new InvalidArgumentError('m', { cause }).cause).toBe(cause)
  })

  it('list every problem of a configuration with its path', () => {
    const problems = [
      { path: 'replicasets[0].weight', message: 'is -1, expected a number from 0' },
      { path: '', message: 'has no bucketCount' },
    ]
    const error = new ConfigError(problems, { subject: 'router configuration' })
    expect(error.message).toBe(
      'Invalid router configuration: replicasets[0].weight: is -1, expected a number from 0; has no bucketCount',
    )
    expect(error.problems).toEqual(problems)
    expect(new ConfigError(problems).message).toMatch(/^Invalid configuration: /)
  })
})

describe('BoxError', () => {
  it('is its newest entry, with the others as causes', () => {
    const error = BoxError.of(7, 'read-only', {
      cause: BoxError.of(3, 'duplicate', { boxType: 'X', file: 'f', line: 4, errno: 5 }),
    })
    expect([error.message, error.boxCode, error.boxName, error.boxType, error.entries.length]).toEqual([
      'read-only',
      7,
      'READONLY',
      'ClientError',
      2,
    ])
    const cause = error.cause as BoxError
    expect([cause.message, cause.boxCode, cause.boxType, cause.file, cause.line, cause.errno, cause.cause]).toEqual([
      'duplicate',
      3,
      'X',
      'f',
      4,
      5,
      undefined,
    ])
  })

  it('refuses entries that the server would refuse', () => {
    const entry = { type: 't', file: '', line: 0, message: '', errno: 0, code: 1, fields: new Map<string, unknown>() }
    expect(() => new BoxError([], { executed: 'yes' })).toThrow('A BoxError needs at least one entry')
    const many = Array.from({ length: 257 }, () => entry)
    expect(() => new BoxError(many, { executed: 'yes' })).toThrow('at most 256 entries, not 257')
    expect(new BoxError(many.slice(1), { executed: 'yes' }).entries.length).toBe(256)
    for (const [key, value] of [
      ['code', -1],
      ['line', 1.5],
      ['errno', 2 ** 32],
      ['code', Number.NaN],
    ] as const) {
      expect(() => new BoxError([entry, { ...entry, [key]: value }], { executed: 'yes' })).toThrow(
        `entries[1].${key} is ${value}`,
      )
    }
  })
})

describe('error codes', () => {
  test.each([
    [ErrorCode.readonly, 7, 'READONLY'],
    [ErrorCode.tupleFound, 3, 'TUPLE_FOUND'],
    [ErrorCode.accessDenied, 42, 'ACCESS_DENIED'],
    [ErrorCode.credsMismatch, 47, 'CREDS_MISMATCH'],
    [ErrorCode.unableToProcessOutOfStream, 230, 'UNABLE_TO_PROCESS_OUT_OF_STREAM'],
    [ErrorCode.sqlExecute, 159, 'SQL_EXECUTE'],
    [ErrorCode.shutdown, 279, 'SHUTDOWN'],
  ])('%i is %i, %s', (code, number, name) => {
    expect(code).toBe(number)
    expect(errorCodeName(number)).toBe(name)
  })

  it('have distinct numbers, and foreign ones have no name', () => {
    const numbers = Object.values(ErrorCode)
    expect(new Set(numbers).size).toBe(numbers.length)
    for (const [name, code] of Object.entries(ErrorCode)) {
      expect(errorCodeName(code).replaceAll('_', '').toLowerCase()).toBe(name.toLowerCase())
    }
    expect(errorCodeName(100_000)).toBe('UNKNOWN')
  })
})

describe('executedOf', () => {
  const NONE = new Map<string, unknown>()

  test.each([20, 48, 69, 109, 229, 230, 258, 274, 279])(
    '%i never ran, but in code another server may have raised it',
    (code) => {
      for (const requestClass of CLASSES) {
        const expected: Executed = requestClass !== 'code' ? 'no' : code === 279 ? 'unknown' : 'yes'
        assert.equal(executedOf(requestClass, code, NONE), expected, requestClass)
      }
    },
  )

  test.each([7, 35, 36, 42, 116, 148, 226, 227, 228])('%i refuses a statement, and only a statement', (code) => {
    for (const requestClass of ['read', 'dml', 'sql'] as const) expect(executedOf(requestClass, code, NONE)).toBe('no')
    for (const requestClass of ['transaction', 'session', 'watch'] as const)
      expect(executedOf(requestClass, code, NONE)).toBe('yes')
    expect(executedOf('code', code, NONE)).toBe(code === 7 || code === 116 ? 'unknown' : 'yes')
  })

  test.each([77, 78])('%i in code says nothing of what the function did', (code) => {
    expect(executedOf('code', code, NONE)).toBe('unknown')
    expect(executedOf('dml', code, NONE)).toBe('yes')
  })

  test.each([216, 217, 225])('%i leaves the outcome of a COMMIT open', (code) => {
    expect(executedOf('transaction', code, NONE)).toBe('unknown')
    expect(executedOf('read', code, NONE)).toBe('yes')
    expect(executedOf('code', code, NONE)).toBe('yes')
  })

  it('takes any other code for the final answer of a request that ran', () => {
    for (const requestClass of CLASSES)
      for (const code of [1, 3, 32, 97, 231, 70_000]) expect(executedOf(requestClass, code, NONE)).toBe('yes')
  })

  test.each([
    [
      'beside',
      (sent: unknown) =>
        new Map<string, unknown>([
          ['proxy', 'lane lost'],
          ['sent', sent],
        ]),
    ],
    ['inside', (sent: unknown) => new Map<string, unknown>([['proxy', { sent }]])],
    ['inside a Map', (sent: unknown) => new Map<string, unknown>([['proxy', new Map([['sent', sent]])]])],
  ])('believes a proxy that says whether it sent the request (%s)', (_, fields) => {
    for (const requestClass of CLASSES) {
      expect(executedOf(requestClass, 77, fields(true))).toBe('unknown')
      expect(executedOf(requestClass, 20, fields(true))).toBe('unknown')
      expect(executedOf(requestClass, 77, fields(false))).toBe(requestClass === 'code' ? 'unknown' : 'no')
    }
  })

  it('does not believe fields of another type', () => {
    for (const fields of [
      new Map([['sent', true]]),
      new Map<string, unknown>([
        ['proxy', 1],
        ['sent', 'yes'],
      ]),
      new Map([['proxy', null]]),
      new Map([['proxy', Object.create({ sent: true }) as unknown]]),
    ]) {
      expect(executedOf('dml', 77, fields)).toBe('yes')
    }
  })
})

describe('features', () => {
  it('name themselves and the requests that need them', () => {
    expect(featureName(Feature.pagination)).toBe('pagination')
    expect(featureName(99)).toBe('feature 99')
    expect(FEATURE_OF_REQUEST.get(RequestType.begin)).toBe(Feature.transactions)
    expect(FEATURE_OF_REQUEST.get(RequestType.watchOnce)).toBe(Feature.watchOnce)
    expect(FEATURE_OF_REQUEST.get(RequestType.select)).toBeUndefined()
  })
})
