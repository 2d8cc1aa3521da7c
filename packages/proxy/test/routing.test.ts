import {
  callRequest,
  deleteRequest,
  encodeValue,
  evalRequest,
  executeRequest,
  FrameWriter,
  insertRequest,
  Key,
  prepareRequest,
  type Request,
  RequestType,
  selectRequest,
  updateRequest,
  watchOnceRequest,
} from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { peekKey, textAt, uintAt } from '../src/peek.js'
import {
  changesSession,
  isSessionSettingsDml,
  isStorageRefCall,
  Kind,
  kindOf,
  ReadRules,
  startsTransaction,
  statementId,
  statementText,
} from '../src/routing.js'

function bodyOf(request: Request): Buffer {
  const writer = new FrameWriter()
  writer.beginFrame()
  request.writeBody(writer)
  writer.end()
  return Buffer.concat(writer.take()).subarray(5)
}

function mapOf(...entries: [key: number, value: unknown][]): Buffer {
  return Buffer.concat([
    Buffer.of(0x80 + entries.length),
    ...entries.flatMap(([key, value]) => [encodeValue(key), encodeValue(value)]),
  ])
}

describe('peekKey', () => {
  it('finds a value in any place of a body', () => {
    const body = mapOf([Key.tuple, [1, [2, { a: 3 }], 'x'.repeat(300)]], [Key.spaceId, 70_000], [Key.indexId, 0])
    expect(uintAt(body, peekKey(body, Key.spaceId))).toBe(70_000)
    expect(uintAt(body, peekKey(body, Key.indexId))).toBe(0)
    expect(peekKey(body, Key.limit)).toBe(-1)
  })

  it('takes the last of equal keys where asked to, as a server does', () => {
    const body = mapOf([Key.spaceId, 512], [Key.tuple, []], [Key.spaceId, 380])
    expect(uintAt(body, peekKey(body, Key.spaceId))).toBe(512)
    expect(uintAt(body, peekKey(body, Key.spaceId, 'last'))).toBe(380)
  })

  it('reads keys in their wide forms, too', () => {
    const body = Buffer.from('81cc10cd017c', 'hex')
    expect(uintAt(body, peekKey(body, Key.spaceId, 'last'))).toBe(380)
  })

  it('finds nothing in what is no body, cut off or not', () => {
    const whole = mapOf([Key.spaceId, 380], [Key.tuple, [1, 2, 3]])
    for (let end = 0; end < whole.length; end++) {
      const at = peekKey(whole.subarray(0, end), Key.tuple, 'last')
      expect(at === -1 || at < end).toBe(true)
    }
    for (const bytes of ['c1', '90', 'c0', 'df', 'dfffffffff', '8f10', 'a3616263']) {
      expect(peekKey(Buffer.from(bytes, 'hex'), Key.spaceId)).toBe(-1)
    }
  })

  it('reads texts of all lengths, and none that runs out of the body', () => {
    for (const length of [0, 5, 31, 32, 300, 70_000]) {
      const encoded = encodeValue('x'.repeat(length))
      expect(textAt(encoded, 0)?.length).toBe(length)
      if (length > 0) expect(textAt(encoded.subarray(0, -1), 0)).toBeUndefined()
    }
  })
})

describe('kinds of requests', () => {
  it.each([
    [RequestType.select, Kind.shared],
    [RequestType.insert, Kind.dml],
    [RequestType.call, Kind.call],
    [RequestType.prepare, Kind.prepare],
    [RequestType.begin, Kind.transaction],
    [RequestType.watch, Kind.watch],
    [RequestType.auth, Kind.login],
    [RequestType.subscribe, Kind.replication],
    [RequestType.watchOnce, Kind.shared],
    [RequestType.event, Kind.unknown],
    [0, Kind.unknown],
    [30, Kind.unknown],
    [200, Kind.unknown],
    [65_535, Kind.unknown],
  ])('type %i is of kind %i', (type, kind) => {
    expect(kindOf(type)).toBe(kind)
  })
})

describe('what changes a session', () => {
  it.each([
    ['SET SESSION "sql_default_engine" = \'vinyl\'', true],
    ['  set  session "x" = 1', true],
    ['/* a */ -- b\n SET SESSION "x" = 1', true],
    ['UPDATE "_session_settings" SET "value" = true', true],
    ['SELECT * FROM "_session_settings"', false],
    ["INSERT INTO t VALUES ('SET SESSION')", false],
    ['SELECT 1', false],
  ])('%s: %s', (text, changes) => {
    expect(changesSession(text)).toBe(changes)
  })

  it('is DML on the settings, by number or name, however the body hides it', () => {
    expect(isSessionSettingsDml(bodyOf(updateRequest({ space: 380, key: ['x'], operations: [['=', 1, true]] })))).toBe(
      true,
    )
    expect(
      isSessionSettingsDml(bodyOf(updateRequest({ space: '_session_settings', key: ['x'], operations: [] }))),
    ).toBe(true)
    expect(isSessionSettingsDml(bodyOf(insertRequest(512, [380])))).toBe(false)
    expect(isSessionSettingsDml(mapOf([Key.spaceId, 512], [Key.tuple, []], [Key.spaceId, 380]))).toBe(true)
    expect(isSessionSettingsDml(Buffer.alloc(0))).toBe(false)
  })

  it('is a call of a storage that takes, uses or gives back a ref', () => {
    for (const service of ['storage_ref', 'storage_ref_make', 'storage_map', 'storage_unref']) {
      expect(isStorageRefCall(bodyOf(callRequest('vshard.storage._call', [service, 1, 2])))).toBe(true)
    }
    expect(isStorageRefCall(bodyOf(callRequest('vshard.storage._call', ['info'])))).toBe(false)
    expect(isStorageRefCall(bodyOf(callRequest('vshard.storage._call', [])))).toBe(false)
    expect(isStorageRefCall(bodyOf(callRequest('vshard.storage.call', ['storage_ref'])))).toBe(false)
    expect(isStorageRefCall(bodyOf(callRequest('echo', ['storage_ref'])))).toBe(false)
  })

  it('is not the start of a transaction', () => {
    expect(startsTransaction('start transaction')).toBe(true)
    expect(startsTransaction("SELECT 'START TRANSACTION'")).toBe(false)
  })
})

describe('statements', () => {
  it('are named by text or by number', () => {
    expect(statementText(bodyOf(executeRequest('SELECT 1', [])))).toBe('SELECT 1')
    expect(statementId(bodyOf(executeRequest('SELECT 1', [])))).toBeUndefined()
    expect(statementId(bodyOf(executeRequest(1_048_800_012, [1])))).toBe(1_048_800_012)
    expect(statementText(bodyOf(prepareRequest('SELECT 2')))).toBe('SELECT 2')
  })
})

describe('ReadRules', () => {
  const rules = new ReadRules({
    enabled: true,
    readFunctions: ['get', 'app.read.*'],
    masterSpaces: [512, 'ledger'],
    sql: true,
  })

  it.each<[string, Request, boolean]>([
    ['SELECT', selectRequest({ space: 600 }), true],
    ['SELECT of a space that stays on the master', selectRequest({ space: 512 }), false],
    ['SELECT of such a space by name', selectRequest({ space: 'ledger' }), false],
    ['WATCH_ONCE', watchOnceRequest('key'), true],
    ['CALL of a function that reads', callRequest('get'), true],
    ['CALL of a function with such a prefix', callRequest('app.read.user', [1]), true],
    ['CALL of another function', callRequest('put'), false],
    ['vshard.storage.call to read', callRequest('vshard.storage.call', [17, 'read', 'f', []]), true],
    ['vshard.storage.call to write', callRequest('vshard.storage.call', [70_000, 'write', 'f', []]), false],
    ['vshard.storage.call without arguments', callRequest('vshard.storage.call'), false],
    ['EVAL', evalRequest('return 1'), false],
    ['INSERT', insertRequest(600, [1]), false],
    ['DELETE', deleteRequest({ space: 600, key: [1] }), false],
    ['EXECUTE of a query', executeRequest(' select * from t'), true],
    ['EXECUTE of EXPLAIN', executeRequest('EXPLAIN SELECT 1'), true],
    ['EXECUTE of a query with more behind it', executeRequest('SELECT 1; DELETE FROM t'), false],
    ['EXECUTE of a change', executeRequest('UPDATE t SET a = 1'), false],
    ['PREPARE', prepareRequest('SELECT 1'), false],
  ])('%s', (_name, request, isRead) => {
    expect(rules.isRead(request.type, bodyOf(request))).toBe(isRead)
  })

  it('knows EXECUTE by number from the text that was prepared', () => {
    expect(rules.isRead(RequestType.execute, bodyOf(executeRequest(7)), 'SELECT 1')).toBe(true)
    expect(rules.isRead(RequestType.execute, bodyOf(executeRequest(7)), 'DELETE FROM t')).toBe(false)
  })

  it('is off unless enabled', () => {
    expect(new ReadRules().isEnabled).toBe(false)
  })
})
