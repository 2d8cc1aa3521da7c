import {
  ConnectError,
  ConnectionClosedError,
  ConnectionLostError,
  QueueFullError,
  RequestAbortedError,
  RequestTimeoutError,
} from '@orbweaver/connection'
import {
  BoxError,
  executedOf,
  FrameHeader,
  FrameWriter,
  InvalidArgumentError,
  Key,
  type OrbweaverError,
  readReply,
  type Reply,
  type RequestClass,
  Uuid,
} from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import type { Attempt, Dialect } from '../src/index.js'
import { readSignal } from '../src/failover-signal.js'

const attempt = (requestClass: RequestClass, idempotent = false): Attempt => ({
  deadline: Infinity,
  bytes: 0,
  requestClass,
  idempotent,
  orderKey: undefined,
  run: () => 'sent',
  giveUp: () => undefined,
})

const box = (code: number, requestClass: RequestClass, fields: ReadonlyMap<string, unknown> = new Map()): BoxError =>
  BoxError.of(code, 'said so', { fields, executed: executedOf(requestClass, code, fields) })

const signal = (requestClass: RequestClass, outcome: OrbweaverError, idempotent = false): string =>
  readSignal(attempt(requestClass, idempotent), outcome, undefined).kind

describe('what an error says about the master', () => {
  it.each<[string, RequestClass, number, boolean, string]>([
    ['read-only to a statement', 'dml', 7, false, 'statementRefused'],
    ['read-only to an SQL statement', 'sql', 7, false, 'statementRefused'],
    ['read-only inside a function', 'code', 7, false, 'codeRefused'],
    ['read-only inside a repeatable function', 'code', 7, true, 'codeRefused'],
    ['loading to a statement', 'dml', 116, false, 'notReady'],
    ['loading to a function: it may be its own word', 'code', 116, false, 'final'],
    ['loading to a repeatable function', 'code', 116, true, 'notReady'],
    ['not configured to a read', 'read', 274, false, 'notReady'],
    ['shutting down to a statement', 'dml', 279, false, 'notReady'],
    ['access denied', 'code', 42, true, 'unusable'],
    ['no such procedure', 'code', 33, true, 'unusable'],
    ['duplicate key', 'dml', 3, false, 'final'],
    ['an error of a function', 'code', 32, true, 'final'],
    ['its own timeout', 'code', 78, true, 'final'],
  ])('%s', (_name, requestClass, code, idempotent, want) => {
    expect(signal(requestClass, box(code, requestClass), idempotent)).toBe(want)
  })

  it('read-only that a proxy passed on after sending proves nothing', () => {
    expect(
      signal(
        'dml',
        box(
          7,
          'dml',
          new Map<string, unknown>([
            ['proxy', 'p'],
            ['sent', true],
          ]),
        ),
      ),
    ).toBe('final')
  })

  it.each<[string, OrbweaverError, string]>([
    ['lost before it was sent', new ConnectionLostError('x', { executed: 'no' }), 'unsent'],
    ['lost after it was sent', new ConnectionLostError('x', { executed: 'unknown' }), 'lost'],
    ['cannot connect', new ConnectError('x', { stage: 'dial', peer: 'p' }), 'unsent'],
    ['its instance was removed before it was sent', new ConnectionClosedError('x', { executed: 'no' }), 'unsent'],
    ['its instance was removed after it was sent', new ConnectionClosedError('x', { executed: 'unknown' }), 'lost'],
    ['no answer in time', new RequestTimeoutError('x', { executed: 'unknown' }), 'timeout'],
    ['aborted by its caller', new RequestAbortedError('x', { executed: 'no' }), 'final'],
    ['our own queue is full', new QueueFullError('x'), 'final'],
    ['not encodable', new InvalidArgumentError('x'), 'final'],
  ])('%s', (_name, error, want) => {
    expect(signal('dml', error)).toBe(want)
  })

  it('takes the term of an election and the leader it names, not the term of a queue', () => {
    const leader = '11111111-2222-4333-8444-555555555555'
    const election = new Map<string, unknown>([
      ['reason', 'election'],
      ['term', 7],
      ['leader_uuid', Uuid.from(leader)],
    ])
    expect(readSignal(attempt('dml'), box(7, 'dml', election), undefined)).toMatchObject({ term: 7, hint: leader })
    const queue = new Map<string, unknown>([
      ['reason', 'synchro'],
      ['term', 7],
      ['queue_owner_uuid', Uuid.from(leader)],
    ])
    expect(readSignal(attempt('dml'), box(7, 'dml', queue), undefined)).toMatchObject({ term: undefined, hint: leader })
    expect(readSignal(attempt('dml'), box(7, 'dml', new Map([['reason', 'config']])), undefined)).toMatchObject({
      term: undefined,
      hint: undefined,
    })
    const odd = new Map<string, unknown>([
      ['reason', 'election'],
      ['term', 'seven'],
      ['leader_uuid', 7],
    ])
    expect(readSignal(attempt('dml'), box(7, 'dml', odd), undefined)).toMatchObject({
      term: undefined,
      hint: undefined,
    })
  })
})

function replyOf(data: unknown): Reply {
  const writer = new FrameWriter()
  writer.beginReply(0, 0, 1, 80)
  writer.mapHeader(1)
  writer.uint(Key.data)
  writer.value(data)
  writer.end()
  const frame = Buffer.concat(writer.take())
  const header = new FrameHeader()
  header.read(frame)
  return readReply(frame, header)
}

describe('what a dialect says', () => {
  const dialect: Dialect = {
    poll: {
      request: () => {
        throw new Error('not asked here')
      },
      read: () => undefined,
    },
    judge: (outcome) => {
      const text = outcome instanceof Error ? outcome.message : outcome.frame.toString('latin1')
      if (text.includes('NON_MASTER')) return { says: 'notMaster', refused: true, hint: 'b' }
      return text.includes('DISABLED') ? { says: 'unusable', reason: 'disabled' } : undefined
    },
    electionKeys: [],
  }

  it.each<[string, Reply | OrbweaverError, object]>([
    ['a value that refuses', replyOf([null, 'NON_MASTER']), { kind: 'notMaster', hint: 'b', error: undefined }],
    ['an error that refuses', BoxError.of(32, 'DISABLED'), { kind: 'unusable', isService: true, reason: 'disabled' }],
    ['a value of the caller', replyOf(['value']), { kind: 'final' }],
    ['an error it does not know', box(7, 'dml'), { kind: 'statementRefused' }],
  ])('%s', (_name, outcome, want) => {
    expect(readSignal(attempt('dml'), outcome, dialect)).toMatchObject(want)
  })
})
