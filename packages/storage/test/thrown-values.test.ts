/* A function that throws something that is no error: the client learns what it was. */
import { BoxError } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { startAlone } from './memory.js'

const circular: Record<string, unknown> = { name: 'loop' }
circular['self'] = circular

describe('a function that throws an error which cannot be sent', () => {
  it.each([
    ['a field', BoxError.of(1_000, 'odd', { fields: new Map([['f', () => 1]]) }), 'odd'],
    ['its text', BoxError.of(1_000, 'half of a pair: \ud800'), 'half of a pair: \ufffd'],
  ])('for %s is answered all the same, on a bucket, too', async (_what, thrown, message) => {
    const { storage, connect, wait } = startAlone({ vshard: { bucketCount: 1 } })
    await wait(storage.call('vshard.storage.bucket_force_create', 1, 1))
    storage.define('odd', () => {
      throw thrown
    })
    const client = connect()
    expect(await wait(client.call('vshard.storage.call', [1, 'read', 'odd', []]))).toMatchObject([
      false,
      { code: 32, message, details: { boxCode: 1_000, message } },
    ])
    expect(await wait(client.call('vshard.storage._call', ['storage_ref', 1, 10]))).toEqual([1])
    expect(await wait(client.call('vshard.storage._call', ['storage_map', 1, 'odd', []]))).toMatchObject([
      null,
      { code: 32, message },
    ])
    await wait(storage.close({ graceMs: 0 }))
  })
})

describe('a function that throws', () => {
  it.each<[string, unknown, string, unknown]>([
    ['a text', 'out of stock', 'out of stock', undefined],
    [
      'an object',
      { code: 7, message: 'out of stock' },
      "{ code: 7, message: 'out of stock' }",
      { code: 7, message: 'out of stock' },
    ],
    ['a list', [1, 'two'], "[ 1, 'two' ]", [1, 'two']],
    ['a number', 42, '42', 42],
    ['null', null, 'null', null],
    ['what cannot be sent', () => 1, '[Function (anonymous)]', undefined],
    ['a loop', circular, "<ref *1> { name: 'loop', self: [Circular *1] }", undefined],
    ['an error', new TypeError('no such thing'), 'no such thing', undefined],
  ])('%s', async (_what, thrown, message, details) => {
    const { storage, connect, wait } = startAlone()
    storage.define('now', () => {
      throw thrown
    })
    storage.define('later', () => Promise.reject(thrown))
    for (const name of ['now', 'later']) {
      const error = (await wait(
        connect()
          .call(name)
          .catch((cause: unknown) => cause),
      )) as BoxError
      expect([error.boxCode, error.boxType, error.message]).toEqual([32, 'LuajitError', message])
      expect(error.fields.get('details')).toEqual(details)
    }
    await wait(storage.close({ graceMs: 0 }))
  })
})
