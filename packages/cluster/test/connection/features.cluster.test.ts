/* What newer servers add, and what a connection says where it is absent. */
import { type Connection, connect, createConnection } from '@orbweaver/connection'
import { ErrorCode, type OrbweaverError, Tuple, UnsupportedFeatureError } from '@orbweaver/iproto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { isAtLeast, missingTarantool, startTarantool, type TarantoolServer, tarantoolVersion } from '../tarantool.js'
import { SETUP } from './setup.js'

const title = missingTarantool === undefined ? `on Tarantool ${tarantoolVersion}` : `(${missingTarantool})`

describe.skipIf(missingTarantool !== undefined)(`Features ${title}`, () => {
  let server: TarantoolServer
  let connection: Connection
  beforeAll(async () => {
    server = await startTarantool({ lua: SETUP })
    connection = await connect(server.uri)
  })
  afterAll(async () => {
    await connection?.close()
    await server?.stop()
  })

  describe.skipIf(isAtLeast(2, 10))('that this server does not have', () => {
    const absent: readonly [name: string, run: (connection: Connection) => Promise<unknown>][] = [
      ['a stream', (c) => c.stream().select(512)],
      ['a transaction', (c) => c.transaction(() => Promise.resolve(1))],
      ['watchOnce', (c) => c.watchOnce('box.status')],
      ['watch', (c) => Promise.resolve().then(() => c.watch('box.status', () => undefined))],
      ['watchValues', (c) => c.watchValues('box.status').next()],
      ['selectPage', (c) => c.selectPage(512)],
      ['select after a position', (c) => c.select(512, [], { after: 'kQM' })],
      ['paging through another index than the primary', (c) => c.iterate(512, [], { index: 'by_name' }).next()],
      ['a bind that would crash it', (c) => c.execute('SELECT ?', [new Date()])],
    ]
    it.each(absent)('%s is refused by name before anything is sent', async (_name, run) => {
      await connection.ping()
      const { accepted, bytesWritten } = connection.stats()
      const error = await run(connection).then(
        () => undefined,
        (thrown: unknown) => thrown as OrbweaverError,
      )
      expect(error).toBeInstanceOf(UnsupportedFeatureError)
      expect(error?.executed).toBe('no')
      const after = connection.stats()
      // Looking an index up reads the schema; nothing else may be written.
      if (after.accepted - accepted <= 1) expect(after.bytesWritten).toBe(bytesWritten)
      await connection.ping()
    })

    it('a watch made before the connection learns it by onError', async () => {
      const waiting = createConnection({ uri: server.uri })
      const error = await new Promise<OrbweaverError>((resolve) => {
        waiting.watch('box.status', () => undefined, { onError: resolve })
      })
      expect(error).toBeInstanceOf(UnsupportedFeatureError)
      await waiting.close()
    })
  })

  describe.skipIf(!isAtLeast(2, 10))('watchers', () => {
    it('give the current value, then changes, merged for a slow reader', async () => {
      const values: unknown[] = []
      const end = connection.watch('key', (value) => values.push(value))
      await expect.poll(() => values).toEqual([undefined])
      await connection.eval(`box.broadcast('key', 1)`)
      await expect.poll(() => values).toEqual([undefined, 1])
      await connection.eval(`for i = 2, 100 do box.broadcast('key', i) end`)
      await expect.poll(() => values.at(-1)).toBe(100)
      expect(values.length).toBeLessThan(100)
      end()
      await connection.eval(`box.broadcast('key', 'unheard')`)
      await connection.ping()
      expect(values.at(-1)).toBe(100)
    })

    it('know the built-in keys', async () => {
      const status = (await connection.watchOnce('box.status')) as { is_ro: boolean; status: string }
      expect(status).toMatchObject({ is_ro: false, status: 'running' })
      for await (const id of connection.watchValues('box.id')) {
        expect(String((id as { instance_uuid: unknown }).instance_uuid)).toBe(connection.peerUuid)
        break
      }
    })

    it('watchOnce reads what is true now, watched already or not', async () => {
      const values: unknown[] = []
      const end = connection.watch('once', (value) => values.push(value))
      await connection.eval(`box.broadcast('once', 5)`)
      expect(await connection.watchOnce('once')).toBe(5)
      expect(await connection.watchOnce('never set')).toBeUndefined()
      end()
    })
  })

  describe.skipIf(!isAtLeast(2, 10))('transactions', () => {
    it('commit, roll back, and are isolated', async () => {
      await connection.eval('box.space.users:truncate()')
      const result = await connection.transaction(async (stream) => {
        await stream.insert('users', [1, 'ann'])
        expect(await connection.select('users', [1])).toEqual([])
        return stream.select('users', [1])
      })
      expect(result).toEqual([[1, 'ann']])
      await expect(
        connection.transaction(async (stream) => {
          await stream.insert('users', [2, 'bob'])
          throw new Error('changed my mind')
        }),
      ).rejects.toThrow('changed my mind')
      await (async () => {
        await using stream = connection.stream()
        await stream.begin()
        await stream.insert('users', [3, 'cid'])
      })()
      expect(await connection.select('users')).toEqual([[1, 'ann']])
    })

    it('pipeline begin, statements and commit', async () => {
      const stream = connection.stream()
      await Promise.all([stream.begin(), stream.insert(512, [10, 'x']), stream.insert(512, [11, 'y']), stream.commit()])
      expect(await connection.select(512, [10], { iterator: 'GE', limit: 2 })).toEqual([
        [10, 'x'],
        [11, 'y'],
      ])
    })

    it('conflict by error 97, which commit remembers', async () => {
      await connection.replace(512, [20, 'start'])
      const [one, two] = [connection.stream(), connection.stream()]
      await Promise.all([one.begin(), two.begin()])
      await Promise.all([one.select(512, [20]), two.select(512, [20])])
      await one.replace(512, [20, 'one'])
      await two.replace(512, [20, 'two'])
      await one.commit()
      await expect(two.commit()).rejects.toMatchObject({ boxCode: ErrorCode.transactionConflict })
      await expect(two.commit()).rejects.toMatchObject({ boxCode: ErrorCode.transactionConflict })
      expect(await connection.get(512, [20])).toEqual([20, 'one'])
    })

    it('expire by themselves, and say so', async () => {
      const stream = connection.stream()
      await stream.begin({ expire: 50 })
      await stream.replace(512, [30, 'late'])
      await expect
        .poll(() =>
          stream.replace(512, [31, 'later']).then(
            () => 0,
            (error: { boxCode: number }) => error.boxCode,
          ),
        )
        .toBe(ErrorCode.transactionTimeout)
      await expect(stream.commit()).rejects.toMatchObject({ boxCode: ErrorCode.transactionTimeout })
      expect(await connection.get(512, [30])).toBeUndefined()
    })

    it('run prepared statements and SQL', async () => {
      await connection.execute('CREATE TABLE IF NOT EXISTS accounts (id INTEGER PRIMARY KEY, balance INTEGER)')
      const statement = await connection.prepare('INSERT INTO accounts VALUES (?, ?)')
      await connection.transaction(async (stream) => {
        await stream.execute(statement, [1, 10])
        await stream.execute('INSERT INTO accounts VALUES (2, 20)')
      })
      expect((await connection.execute('SELECT balance FROM accounts WHERE id > ?', [0])).rows).toEqual([[10], [20]])
      await statement.release()
    })
  })

  describe.skipIf(!isAtLeast(2, 11))('positions', () => {
    it('page through any tree index', async () => {
      await connection.call('fill', [500])
      const names: string[] = []
      for await (const row of connection.iterate<[number, string]>('users', [], { index: 'by_name', pageSize: 64 }))
        names.push(row[1])
      expect(names).toHaveLength(500)
      expect(names).toEqual([...names].sort())
      const page = await connection.selectPage('users', [], { limit: 2 })
      expect(await connection.select('users', [], { limit: 1, after: page.position as string })).toEqual([
        [3, 'user 3', 3],
      ])
      expect(await connection.select('users', [], { limit: 1, after: [3, 'user 3', 3] })).toEqual([[4, 'user 4', 4]])
    })
  })

  describe.skipIf(!isAtLeast(3, 0))('tuples with field names', () => {
    it('arrive when they are asked for', async () => {
      await connection.replace('users', [900, 'named', 5])
      await using named = await connect(server.uri, { tupleFormats: true })
      const [row] = await named.select<Tuple>('users', [900])
      expect(row).toBeInstanceOf(Tuple)
      expect(row?.toObject()).toEqual({ id: 900, name: 'named', age: 5 })
      const [returned] = await named.eval<[Tuple]>(`return box.space.users:get(900)`)
      expect(returned.toObject()).toEqual({ id: 900, name: 'named', age: 5 })
      expect(await connection.select('users', [900])).toEqual([[900, 'named', 5]])
    })
  })
})
