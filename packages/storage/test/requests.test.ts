import { BoxError, UnsupportedFeatureError } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { createStorage, values } from '../src/index.js'
import { startAlone } from './memory.js'
import type { Alone } from './memory.js'

const PEOPLE = {
  format: [
    { name: 'id', type: 'unsigned' },
    { name: 'name', type: 'string' },
  ],
  indexes: [
    { name: 'id', parts: ['id'] },
    { name: 'name', parts: ['name'], isUnique: false },
  ],
} as const

function start(): Alone {
  const alone = startAlone()
  alone.storage.createSpace('people', PEOPLE)
  return alone
}

function code(work: Promise<unknown>): Promise<number> {
  return work.then(
    (value) => {
      throw new Error(`It succeeded with ${JSON.stringify(value)}`)
    },
    (error: unknown) => {
      if (error instanceof BoxError) return error.boxCode
      throw error
    },
  )
}

describe('a client of an embedded storage', () => {
  it('reads and writes by name', async () => {
    const { connect, wait } = start()
    const client = connect()
    expect(await wait(client.insert('people', [1, 'ann']))).toEqual([1, 'ann'])
    expect(await wait(client.replace('people', [2, 'bob']))).toEqual([2, 'bob'])
    expect(await wait(client.update('people', [1], [['=', 'name', 'anna']]))).toEqual([1, 'anna'])
    await wait(client.upsert('people', [3, 'cid'], [['=', 'name', 'never']]))
    expect(await wait(client.delete('people', [2]))).toEqual([2, 'bob'])
    expect(await wait(client.select('people', []))).toEqual([
      [1, 'anna'],
      [3, 'cid'],
    ])
    expect(await wait(client.select('people', ['cid'], { index: 'name' }))).toEqual([[3, 'cid']])
  })

  it('reads page after page and gets every row once', async () => {
    const { connect, wait, storage } = start()
    for (let id = 1; id <= 25; id++) storage.space('people').insert([id, `n${id % 3}`])
    const ids: number[] = []
    const client = connect()
    const read = async (): Promise<void> => {
      for await (const [id] of client.iterate<[number, string]>('people', [], { index: 'name', pageSize: 4 }))
        ids.push(id)
    }
    await wait(read())
    expect(ids).toHaveLength(25)
    expect(new Set(ids).size).toBe(25)
  })

  it.each<[string, (client: ReturnType<Alone['connect']>) => Promise<unknown>, number]>([
    ['a duplicate key', (client) => client.insert('people', [1, 'x']), 3],
    ['a wrong field', (client) => client.insert('people', [2, 5]), 23],
    ['an unknown function', (client) => client.call('nobody'), 33],
    ['a key that is too long', (client) => client.select('people', [1, 2]), 31],
    [
      'an update through an index that is not unique',
      (client) => client.update('people', ['a'], [['=', 1, 'b']], { index: 'name' }),
      41,
    ],
    ['Lua', (client) => client.eval('return 1'), 5],
    ['a space id that does not exist', (client) => client.select(9_999, []), 36],
  ])('gets the code of Tarantool for %s', async (_what, work, expected) => {
    const { connect, wait, storage } = start()
    storage.space('people').insert([1, 'ann'])
    expect(await wait(code(work(connect())))).toBe(expected)
  })

  it('gets SQL refused by name', async () => {
    const { connect, wait } = start()
    await expect(wait(connect().execute('SELECT 1'))).rejects.toSatisfy(
      (error) => error instanceof UnsupportedFeatureError || (error instanceof BoxError && error.boxCode === 5),
    )
  })

  it('gets all values of a function, and its errors', async () => {
    const { connect, wait, storage } = start()
    storage.define('several', (_context, ...args) => values(...args, null))
    storage.define('nothing', () => undefined)
    storage.define('later', async () => Promise.resolve('done'))
    storage.define('fail', () => {
      throw new Error('it broke')
    })
    storage.define('refuse', () => {
      throw BoxError.of(1_000, 'mine', { boxType: 'CustomError' })
    })
    const client = connect()
    expect(await wait(client.call('several', [1, 'b', { c: [2] }]))).toEqual([1, 'b', { c: [2] }, null])
    expect(await wait(client.call('nothing'))).toEqual([])
    expect(await wait(client.call('later'))).toEqual(['done'])
    expect(await wait(code(client.call('fail')))).toBe(32)
    expect(await wait(code(client.call('refuse')))).toBe(1_000)
  })

  it('is not held up by a slow function', async () => {
    const { connect, wait, storage, clock } = start()
    storage.define('slow', () => new Promise((resolve) => clock.schedule(1_000, () => resolve('slow'))))
    const client = connect()
    const order: string[] = []
    await wait(
      Promise.all([client.call('slow').then(() => order.push('slow')), client.ping().then(() => order.push('ping'))]),
    )
    expect(order).toEqual(['ping', 'slow'])
  })

  it('sees the events of the instance', async () => {
    const { connect, clock, storage } = start()
    const seen: unknown[] = []
    connect().watch('box.status', (value) => seen.push(value))
    await clock.advance(10)
    await storage.demote()
    await clock.advance(10)
    expect(seen).toEqual([
      { is_ro: false, is_ro_cfg: false, status: 'running' },
      { is_ro: true, is_ro_cfg: false, status: 'running' },
    ])
  })

  it('is told of a shutdown and given the time to leave', async () => {
    const { connect, clock, storage, wait } = start()
    const client = connect()
    await clock.advance(10)
    const closing = storage.close({ graceMs: 60_000 })
    await wait(closing)
    expect(clock.now()).toBeLessThan(30_000)
    await wait(client.close())
  })
})

describe('rights', () => {
  it.each<[string, object, RegExp]>([
    ['an unknown word', { rights: 'all' }, /users.a.rights is 'all'|users\.a\.rights: is 'all'/],
    [
      'one name in place of a list',
      { rights: { execute: 'f' } },
      /users\.a\.rights\.execute: is 'f', expected a list of names/,
    ],
    [
      'an unknown kind',
      { rights: { call: ['f'] } },
      /users\.a\.rights\.call: is not known; known are execute, read, write, universe/,
    ],
  ])('that are not understood are refused: %s', (_what, user, message) => {
    expect(() => createStorage({ name: 'x', users: { a: user } })).toThrow(message)
  })

  it('are nothing for guest, what was granted for a user, and everything for super', async () => {
    const { connect, wait, storage } = start()
    storage.setUser('clerk', { password: 'c', rights: { execute: ['api.*'], read: ['people'] } })
    storage.define('api.hello', () => 'hello')
    storage.define('secret', () => 'no')
    const guest = connect('guest')
    const clerk = connect('clerk')
    expect(await wait(code(guest.select('people', [])))).toBe(42)
    expect(await wait(code(guest.call('api.hello')))).toBe(42)
    expect(await wait(clerk.call('api.hello'))).toEqual(['hello'])
    expect(await wait(clerk.select('people', []))).toEqual([])
    expect(await wait(code(clerk.insert('people', [1, 'x'])))).toBe(42)
    expect(await wait(code(clerk.call('secret')))).toBe(42)
    expect(await wait(connect().call('secret'))).toEqual(['no'])
  })
})

describe('a transaction in a stream', () => {
  it('is invisible to others until its commit, and visible to itself', async () => {
    const { connect, wait } = start()
    const client = connect()
    const stream = client.stream()
    await wait(stream.begin())
    await wait(stream.insert('people', [1, 'ann']))
    expect(await wait(stream.select('people', []))).toEqual([[1, 'ann']])
    expect(await wait(client.select('people', []))).toEqual([])
    await wait(stream.commit())
    expect(await wait(client.select('people', []))).toEqual([[1, 'ann']])
  })

  it('leaves nothing after a rollback or a lost connection', async () => {
    const { connect, wait, storage, clock } = start()
    const first = connect().stream()
    await wait(first.begin())
    await wait(first.insert('people', [1, 'ann']))
    await wait(first.rollback())
    const second = connect()
    const lost = second.stream()
    await wait(lost.begin())
    await wait(lost.insert('people', [2, 'bob']))
    second.destroy()
    await clock.advance(10)
    expect(storage.space('people').select()).toEqual([])
  })

  it('fails at commit with 97 when another one has changed what it read or wrote', async () => {
    const { connect, wait, storage } = start()
    storage.space('people').insert([1, 'ann'])
    const one = connect().stream()
    const two = connect().stream()
    await wait(one.begin())
    await wait(two.begin())
    await wait(one.update('people', [1], [['=', 'name', 'one']]))
    await wait(two.update('people', [1], [['=', 'name', 'two']]))
    await wait(one.commit())
    expect(await wait(code(two.commit()))).toBe(97)
    expect(storage.space('people').select()).toEqual([[1, 'one']])
  })

  it('goes on after a statement that failed', async () => {
    const { connect, wait, storage } = start()
    storage.space('people').insert([1, 'ann'])
    const stream = connect().stream()
    await wait(stream.begin())
    await wait(stream.insert('people', [2, 'bob']))
    expect(await wait(code(stream.insert('people', [1, 'again'])))).toBe(3)
    await wait(stream.commit())
    expect(storage.space('people').count()).toBe(2)
  })

  it('ends by its timeout, says so once, and leaves the stream clean', async () => {
    const { connect, wait, storage, clock } = start()
    const stream = connect().stream()
    await wait(stream.begin({ expire: 500 }))
    await wait(stream.insert('people', [1, 'ann']))
    await clock.advance(600)
    expect(await wait(code(stream.insert('people', [2, 'bob'])))).toBe(231)
    expect(await wait(code(stream.commit()))).toBe(231)
    await wait(stream.begin())
    await wait(stream.insert('people', [3, 'cid']))
    await wait(stream.commit())
    expect(storage.space('people').select()).toEqual([[3, 'cid']])
  })

  it('holds what a function does in it, also when the function waits', async () => {
    const { connect, wait, storage, clock } = start()
    storage.define('slow_insert', async (context, id) => {
      context.space('people').insert([id, 'before'])
      await new Promise<void>((resolve) => clock.schedule(100, resolve))
      context.space('people').update([id], [['=', 'name', 'after']])
      return true
    })
    const stream = connect().stream()
    await wait(stream.begin())
    const calling = stream.call('slow_insert', [1])
    await clock.advance(50)
    expect(storage.space('people').select()).toEqual([])
    await wait(calling)
    expect(storage.space('people').select()).toEqual([])
    await wait(stream.commit())
    expect(storage.space('people').select()).toEqual([[1, 'after']])
  })
})

describe('an answer that cannot be encoded', () => {
  const half = '\ud800'

  it.each<[string, (alone: Alone) => void]>([
    [
      'an error whose text is half a surrogate pair',
      ({ storage }) =>
        storage.define('odd', () => {
          throw new Error(half)
        }),
    ],
    [
      'the same from a function that waits',
      ({ storage }) => storage.define('odd', () => Promise.reject(new Error(half))),
    ],
    ['a value that is a function', ({ storage }) => storage.define('odd', () => () => 1)],
    ['a text that is half a surrogate pair', ({ storage }) => storage.define('odd', () => half)],
  ])('%s is an error of that request alone', async (_what, define) => {
    const alone = start()
    define(alone)
    alone.storage.define('fine', () => 1)
    const client = alone.connect()
    const other = alone.connect()
    expect(await alone.wait(code(client.call('odd')))).toBe(32)
    expect(await alone.wait(client.call('fine'))).toEqual([1])
    expect(await alone.wait(other.call('fine'))).toEqual([1])
  })

  it('a request type beyond all numbers is 48, and nobody else notices', async () => {
    const alone = start()
    const transport = alone.storage.connect()
    let answered = 0
    transport.attach({
      data: (chunk) => {
        answered += chunk.length
      },
      drain: () => undefined,
      end: () => undefined,
      closed: () => undefined,
    })
    await alone.clock.advance(10)
    const greeted = answered
    transport.write([Buffer.from('ce0000000e8200cf010281570000000001028080', 'hex')])
    await alone.clock.advance(10)
    expect(answered).toBeGreaterThan(greeted)
    expect(await alone.wait(alone.connect().select('people', []))).toEqual([])
  })

  it('a space with indexes cannot be removed by its definition alone', async () => {
    const alone = start()
    const client = alone.connect()
    const [[id]] = (await alone.wait(client.select<[number]>('_space', ['people'], { index: 'name' }))) as [[number]]
    expect(await alone.wait(code(client.delete('_space', [id])))).toBe(11)
    expect(await alone.wait(client.select('people', []))).toEqual([])
  })
})
