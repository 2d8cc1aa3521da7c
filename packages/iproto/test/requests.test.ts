import { describe, expect, it, test } from 'vitest'
import {
  authRequest,
  beginRequest,
  BodyReader,
  callRequest,
  chapSha1,
  chapSha1FromHash1,
  commitRequest,
  deleteRequest,
  evalRequest,
  executeRequest,
  FrameHeader,
  FrameWriter,
  hash1Of,
  hash2Of,
  idRequest,
  insertRequest,
  InvalidArgumentError,
  type IteratorName,
  IteratorType,
  Key,
  NO_LIMIT,
  pingRequest,
  prepareRequest,
  RawValue,
  replaceRequest,
  type Request,
  selectRequest,
  unprepareRequest,
  updateRequest,
  upsertRequest,
  verifyChapSha1,
  watchRequest,
} from '../src/index.js'

function bodyOf(request: Request): BodyReader {
  const writer = new FrameWriter()
  writer.request(request, 1)
  const frame = Buffer.concat(writer.take())
  const header = new FrameHeader()
  header.read(frame)
  expect(header.type).toBe(request.type)
  return new BodyReader(frame.subarray(header.bodyStart, header.bodyEnd))
}

describe('requests', () => {
  test.each(Object.entries(IteratorType))('select with the iterator %s sends %d', (name, number) => {
    const iterator = name.replaceAll(/[A-Z]/g, '_$&').toUpperCase() as IteratorName
    expect(bodyOf(selectRequest({ space: 1, iterator })).uint(Key.iterator)).toBe(number)
    expect(bodyOf(selectRequest({ space: 1, iterator: number })).uint(Key.iterator)).toBe(number)
  })

  it('select everything by default, without a limit', () => {
    const body = bodyOf(selectRequest({ space: 512 }))
    expect([body.uint(Key.limit), body.array(Key.key), body.has(Key.iterator)]).toEqual([NO_LIMIT, [], false])
  })

  it('go on behind a position given as text or bytes, or behind a tuple', () => {
    for (const after of ['kQM', Buffer.from('kQM')])
      expect(bodyOf(selectRequest({ space: 1, after })).text(Key.afterPosition)).toBe('kQM')
    expect(bodyOf(selectRequest({ space: 1, after: [3, 'x'] })).array(Key.afterTuple)).toEqual([3, 'x'])
  })

  it('name spaces and indexes by id or by name', () => {
    const byName = bodyOf(deleteRequest({ space: 'kv', index: 'pk', key: [1] }))
    expect([byName.text(Key.spaceName), byName.text(Key.indexName), byName.has(Key.spaceId)]).toEqual([
      'kv',
      'pk',
      false,
    ])
    const byId = bodyOf(updateRequest({ space: 512, index: 1, key: [1], operations: [] }))
    expect([byId.uint(Key.spaceId), byId.uint(Key.indexId), byId.has(Key.spaceName)]).toEqual([512, 1, false])
  })

  it('carry tuples and arguments that are encoded already', () => {
    const raw = new RawValue(Buffer.from('920102', 'hex'))
    for (const request of [
      insertRequest(1, raw),
      replaceRequest(1, raw),
      callRequest('f', raw),
      upsertRequest({ space: 1, tuple: raw, operations: [] }),
    ]) {
      expect(bodyOf(request).array(Key.tuple)).toEqual([1, 2])
    }
  })

  it('can be written more than once, each time with the values of then', () => {
    const args = [1]
    const request = callRequest('f', args)
    const first = bodyOf(request).array(Key.tuple)
    args.push(2)
    expect([first, bodyOf(request).array(Key.tuple)]).toEqual([[1], [1, 2]])
  })

  it('know their class', () => {
    const classes = [
      selectRequest({ space: 1 }),
      insertRequest(1, []),
      callRequest('f'),
      evalRequest(''),
      executeRequest(''),
      prepareRequest(''),
      unprepareRequest(1),
      beginRequest(),
      pingRequest(),
      watchRequest('k'),
      idRequest({ version: 1, features: [] }),
    ]
    expect(classes.map(({ requestClass }) => requestClass)).toEqual([
      'read',
      'dml',
      'code',
      'code',
      'sql',
      'sql',
      'sql',
      'transaction',
      'read',
      'watch',
      'session',
    ])
  })

  it('send times as seconds in a float64, and only what was asked for', () => {
    const body = bodyOf(beginRequest({ timeout: 3000, isolation: 'linearizable', isSync: true }))
    expect([body.double(Key.timeout), body.uint(Key.txnIsolation), body.bool(Key.isSync)]).toEqual([3, 4, true])
    expect(bodyOf(beginRequest({ isSync: false })).has(Key.isSync)).toBe(false)
    expect(bodyOf(beginRequest({ timeout: 0 })).double(Key.timeout)).toBe(0)
    expect(bodyOf(commitRequest({ isSync: true })).bool(Key.isSync)).toBe(true)
  })

  it('forget a prepared statement by its id', () => {
    const body = bodyOf(unprepareRequest(2_020_303_591))
    expect([body.uint(Key.stmtId), body.has(Key.sqlText)]).toEqual([2_020_303_591, false])
  })

  it('ask for a method of authentication when told to', () => {
    expect(bodyOf(idRequest({ version: 9, features: [0, 3], authType: 'pap-sha256' })).text(Key.authType)).toBe(
      'pap-sha256',
    )
  })

  test.each<[string, () => unknown]>([
    ['limit is 4294967296', () => selectRequest({ space: 1, limit: 2 ** 32 })],
    ['limit is -1', () => selectRequest({ space: 1, limit: -1 })],
    ['offset is 1.5', () => selectRequest({ space: 1, offset: 1.5 })],
    ['space is 4294967808', () => insertRequest(2 ** 32 + 512, [])],
    ['space is NaN', () => deleteRequest({ space: Number.NaN, key: [] })],
    ['space is undefined', () => selectRequest({} as { space: number })],
    ['index is -1', () => deleteRequest({ space: 1, index: -1, key: [] })],
    ['index is null', () => selectRequest({ space: 1, index: null as unknown as number })],
    [
      'iterator is "BETWEEN", expected one of EQ, REQ',
      () => selectRequest({ space: 1, iterator: 'BETWEEN' as IteratorName }),
    ],
    ['iterator is -1', () => selectRequest({ space: 1, iterator: -1 })],
    ['key is a number, expected an array', () => selectRequest({ space: 1, key: 1 as unknown as [] })],
    [
      'key is a string, expected an array',
      () => updateRequest({ space: 1, key: 'x' as unknown as [], operations: [] }),
    ],
    ['tuple is an object (Object), expected an array', () => insertRequest(1, {} as unknown as [])],
    ['args is null, expected an array', () => callRequest('f', null as unknown as [])],
    ['binds is a string, expected an array', () => executeRequest('', 'x' as unknown as [])],
    ['name is a number, expected a string', () => callRequest(1 as unknown as string)],
    ['expression is undefined', () => evalRequest(undefined as unknown as string)],
    ['statement is -1', () => executeRequest(-1)],
    ['text is a number', () => prepareRequest(1 as unknown as string)],
    ['id is 4294967296', () => unprepareRequest(2 ** 32)],
    ['key is a symbol, expected a string', () => watchRequest(Symbol('k') as unknown as string)],
    ['user is undefined', () => authRequest(undefined as unknown as string, 'chap-sha1', '')],
    [
      'operations[1] is a string, expected an array',
      () => updateRequest({ space: 1, key: [], operations: [['=', 0, 1], '=' as unknown as ['=', 0]] }),
    ],
    [
      'operations[0][0] is a number, expected a string',
      () => updateRequest({ space: 1, key: [], operations: [[1 as unknown as string, 0]] }),
    ],
    [
      'operations[0][1] is 1.5, expected a field number',
      () => upsertRequest({ space: 1, tuple: [], operations: [['=', 1.5, 1]] }),
    ],
    ['indexBase is -1', () => upsertRequest({ space: 1, tuple: [], operations: [], indexBase: -1 })],
    ['timeout is -1, expected milliseconds', () => beginRequest({ timeout: -1 })],
    ['timeout is Infinity', () => beginRequest({ timeout: Number.POSITIVE_INFINITY })],
    ['timeout is NaN', () => beginRequest({ timeout: Number.NaN })],
    ['isolation is "snapshot", expected one of default', () => beginRequest({ isolation: 'snapshot' as 'default' })],
    ['features[1] is -1', () => idRequest({ version: 1, features: [0, -1] })],
  ])('are refused on the spot when %s', (message, act) => {
    expect(act).toThrow(InvalidArgumentError)
    expect(act).toThrow(message)
  })
})

describe('chap-sha1', () => {
  const salt = Uint8Array.from({ length: 32 }, (_, i) => i)

  test.each(['secret', '', 'пароль ✓ :@/?#%', 'x'.repeat(1000)])(
    'a proof of %j is accepted against its hash and gives the hash a proxy needs',
    (password) => {
      const proof = chapSha1(salt, password)
      const hash1 = verifyChapSha1(salt, hash2Of(password), proof)
      expect(proof.length).toBe(20)
      expect(hash1).toEqual(hash1Of(password))
      const otherSalt = salt.map((byte) => byte ^ 0xff)
      expect(chapSha1FromHash1(otherSalt, hash1!)).toEqual(chapSha1(otherSalt, password))
    },
  )

  it('uses the first 20 bytes of the salt', () => {
    expect(chapSha1(salt.subarray(0, 20), 'a')).toEqual(chapSha1(salt, 'a'))
    expect(() => chapSha1(salt.subarray(0, 19), 'a')).toThrow('A salt has at least 20 bytes, not 19')
    expect(() => chapSha1FromHash1(salt, new Uint8Array(19))).toThrow(InvalidArgumentError)
  })

  it('refuses every wrong proof', () => {
    const hash2 = hash2Of('secret')
    const proof = chapSha1(salt, 'secret')
    for (let bit = 0; bit < 160; bit++) {
      const wrong = Uint8Array.from(proof)
      wrong[bit >> 3]! ^= 1 << (bit & 7)
      expect(verifyChapSha1(salt, hash2, wrong)).toBeUndefined()
    }
    for (const other of [
      chapSha1(salt, 'Secret'),
      new Uint8Array(0),
      proof.subarray(1),
      Uint8Array.from([...proof, 0]),
    ]) {
      expect(verifyChapSha1(salt, hash2, other)).toBeUndefined()
    }
    expect(verifyChapSha1(salt, hash2.subarray(1), proof)).toBeUndefined()
  })
})
