/* Every kind of request on a real server. */
import { type Connection, connect, NoSuchIndexError, NoSuchSpaceError } from '@orbweaver/connection'
import { BoxError, type ByteString, Datetime, Decimal, Double, ErrorCode, Interval, Uuid } from '@orbweaver/iproto'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { isAtLeast, missingTarantool, startTarantool, type TarantoolServer, tarantoolVersion } from '../tarantool.js'
import { SETUP } from './setup.js'

const title = missingTarantool === undefined ? `on Tarantool ${tarantoolVersion}` : `(${missingTarantool})`
const USERS = 512

type User = [id: number, name: string, age?: number | null]

describe.skipIf(missingTarantool !== undefined)(`Requests ${title}`, () => {
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
  beforeEach(async () => {
    await connection.eval('box.space.users:truncate() box.space.hashed:truncate()')
  })

  describe.each([
    ['by id', USERS, 1],
    ['by name', 'users', 'by_name'],
  ] as const)('%s', (_how, space, byName) => {
    it('writes and reads rows', async () => {
      expect(await connection.insert<User>(space, [1, 'ann', 30])).toEqual([1, 'ann', 30])
      expect(await connection.replace<User>(space, [1, 'anna', 31])).toEqual([1, 'anna', 31])
      expect(await connection.get<User>(space, [1])).toEqual([1, 'anna', 31])
      expect(await connection.get<User>(space, [2])).toBeUndefined()
      expect(
        await connection.update<User>(
          space,
          [1],
          [
            ['+', 2, 1],
            ['=', 1, 'hanna'],
          ],
        ),
      ).toEqual([1, 'hanna', 32])
      expect(await connection.update<User>(space, [1], [['+', 3, 1]], { indexBase: 1 })).toEqual([1, 'hanna', 33])
      expect(await connection.update<User>(space, [9], [['+', 2, 1]])).toBeUndefined()
      await connection.upsert(space, [2, 'bob', 1], [['+', 2, 1]])
      await connection.upsert(space, [2, 'bob', 1], [['+', 2, 1]])
      expect(await connection.select<User>(space, [2])).toEqual([[2, 'bob', 2]])
      expect(await connection.delete<User>(space, [2])).toEqual([2, 'bob', 2])
      expect(await connection.delete<User>(space, [2])).toBeUndefined()
    })

    it('selects by iterator, offset, limit and index', async () => {
      for (let id = 1; id <= 10; id += 1) await connection.insert(space, [id, id % 2 === 0 ? 'even' : 'odd', null])
      const ids = async (
        ...args: Parameters<Connection['select']> extends [unknown, ...infer Rest] ? Rest : never
      ): Promise<number[]> => (await connection.select<User>(space, ...args)).map(([id]) => id)
      expect(await ids([], { limit: 3 })).toEqual([1, 2, 3])
      expect(await ids([5], { iterator: 'GE', limit: 2 })).toEqual([5, 6])
      expect(await ids([5], { iterator: 'GT', offset: 1, limit: 2 })).toEqual([7, 8])
      expect(await ids([5], { iterator: 'LE' })).toEqual([5, 4, 3, 2, 1])
      expect(await ids([5], { iterator: 'LT', limit: 1 })).toEqual([4])
      expect(await ids([], { iterator: 'REQ', limit: 2 })).toEqual([10, 9])
      expect(await ids(['odd'], { index: byName })).toEqual([1, 3, 5, 7, 9])
      await expect(connection.get(space, ['odd'], { index: byName })).rejects.toMatchObject({
        boxCode: ErrorCode.moreThanOneTuple,
      })
    })

    it('gives the server’s errors', async () => {
      await connection.insert(space, [1, 'ann'])
      await expect(connection.insert(space, [1, 'ann'])).rejects.toMatchObject({
        code: 'ORB_BOX',
        boxCode: ErrorCode.tupleFound,
        executed: 'yes',
      })
      await expect(connection.insert(space, ['x', 'ann'])).rejects.toMatchObject({ boxCode: ErrorCode.fieldType })
      await expect(connection.select(space, ['x'])).rejects.toMatchObject({ boxCode: ErrorCode.keyPartType })
    })

    it('iterates over many rows by pages, each once', async () => {
      await connection.call('fill', [2_500])
      const seen: number[] = []
      for await (const [id] of connection.iterate<User>(space, [], { pageSize: 1_000 })) seen.push(id)
      expect(seen).toEqual(Array.from({ length: 2_500 }, (_, i) => i + 1))
      const down: number[] = []
      for await (const page of connection.selectPages<User>(space, [100], { iterator: 'LT', pageSize: 30 }))
        down.push(...page.map(([id]) => id))
      expect(down).toEqual(Array.from({ length: 99 }, (_, i) => 99 - i))
    })
  })

  it('numbers beyond 32 and 53 bits are exact in keys, fields and arguments', async () => {
    for (const id of [
      4_294_967_296,
      1_503_000_000_000,
      9_007_199_254_740_991,
      86_699_530_287_996_692n,
      18_446_744_073_709_551_615n,
    ]) {
      expect(await connection.insert(USERS, [id, 'big'])).toEqual([id, 'big'])
      expect(await connection.get(USERS, [id])).toEqual([id, 'big'])
      expect(await connection.call('echo', [id])).toEqual([id])
    }
    await using exact = await connect(server.uri, { decode: { integers: 'bigint' } })
    expect(await exact.call('echo', [1])).toEqual([1n])
  })

  it('calls and evals give every returned value', async () => {
    expect(await connection.call('echo', [1, null, 'x', [1, { a: true }]])).toEqual([1, null, 'x', [1, { a: true }]])
    expect(await connection.eval('return')).toEqual([])
    expect(await connection.eval('return nil')).toEqual([null])
    expect(await connection.eval('return 1, nil')).toEqual([1, null])
    expect(await connection.eval('return ...', [new Double(1.5), 'ю'])).toEqual([1.5, 'ю'])
  })

  it('values of extension types survive the way there and back', async () => {
    const values: unknown[] = [Decimal.from('-12.345'), Decimal.from('0.00')]
    if (isAtLeast(2, 10))
      values.push(
        Uuid.from('01234567-89ab-4cde-8f01-23456789abcd'),
        Datetime.from('2024-07-01T00:00:00Z'),
        new Interval({ day: 1 }),
      )
    const echoed = await connection.call('echo', values)
    expect(echoed.map(String)).toEqual(values.map(String))
  })

  it('strings that are no UTF-8 are kept', async () => {
    const [value] = await connection.eval<[ByteString]>(`return '\\255\\254'`)
    expect([...value.bytes]).toEqual([0xff, 0xfe])
    expect(await connection.eval(`return #..., ...`, [value])).toEqual([2, value])
  })

  it('pushed messages arrive before the result', async () => {
    const pushed: unknown[] = []
    expect(await connection.call('pushes', [3], { onPush: (value) => pushed.push(value) })).toEqual(['done'])
    expect(pushed).toEqual([1, 2, 3])
    const work = connection.callWithPushes('pushes', [2])
    const seen: unknown[] = []
    for await (const value of work) seen.push(value)
    expect([seen, await work.result]).toEqual([[1, 2], ['done']])
  })

  it('errors of user code carry their code, type and stack', async () => {
    const error = await connection.call('refuse').then(
      () => undefined,
      (thrown: unknown) => thrown as BoxError,
    )
    expect(error).toBeInstanceOf(BoxError)
    expect(error).toMatchObject({ boxCode: 4711, message: 'said so', executed: 'yes' })
    await expect(connection.call('no_such_function')).rejects.toMatchObject({ boxCode: ErrorCode.noSuchProc })
    await expect(connection.eval('error("plain")')).rejects.toMatchObject({ boxCode: ErrorCode.procLua })
  })

  it('requests of a user without rights are refused as not executed', async () => {
    await using limited = await connect(server.uri, { user: 'limited', password: 'limited' })
    await expect(limited.insert(USERS, [1, 'x'])).rejects.toMatchObject({
      boxCode: ErrorCode.accessDenied,
      executed: 'no',
    })
    // A name the user may not see does not exist for it; ids need no schema.
    await expect(limited.insert('users', [1, 'x'])).rejects.toMatchObject({ executed: 'no' })
  })

  it('names follow the schema: created, dropped, created anew', async () => {
    await expect(connection.insert('fresh', [1])).rejects.toBeInstanceOf(NoSuchSpaceError)
    await connection.call('create_space', ['fresh'])
    expect(await connection.insert('fresh', [1])).toEqual([1])
    await expect(connection.select('fresh', [], { index: 'nope' })).rejects.toBeInstanceOf(NoSuchIndexError)
    await connection.call('drop_space', ['fresh'])
    await expect(connection.insert('fresh', [1])).rejects.toBeInstanceOf(NoSuchSpaceError)
    await connection.call('create_space', ['fresh'])
    expect(await Promise.all(Array.from({ length: 20 }, (_, i) => connection.insert('fresh', [i])))).toHaveLength(20)
    await connection.call('drop_space', ['fresh'])
  })

  it('names dropped and made by somebody else reach no wrong space', async () => {
    await using other = await connect(server.uri)
    await other.call('create_space', ['theirs'])
    await connection.insert('theirs', [1])
    await other.call('drop_space', ['theirs'])
    await other.call('create_space', ['another'])
    await expect(connection.insert('theirs', [2])).rejects.toBeInstanceOf(NoSuchSpaceError)
    expect(await other.select('another')).toEqual([])
    await other.call('drop_space', ['another'])
  })

  it('a thousand slow and quick requests are answered in whatever order they finish', async () => {
    const order: number[] = []
    const slow = connection.call('sleep', [0.1, 'slow']).then((value) => {
      order.push(0)
      return value
    })
    const quick = Array.from({ length: 1_000 }, async (_, i) => {
      expect(await connection.call('echo', [i])).toEqual([i])
      order.push(i + 1)
    })
    await Promise.all(quick)
    expect(order).toHaveLength(1_000)
    expect(await slow).toEqual(['slow'])
  })

  it('64 workers with replies of 300 rows all complete', async () => {
    await connection.call('fill', [300])
    const workers = Array.from({ length: 64 }, async () => {
      let rows = 0
      for (let i = 0; i < 5; i += 1) rows += (await connection.select(USERS, [], { limit: 300 })).length
      return rows
    })
    expect(new Set(await Promise.all(workers))).toEqual(new Set([1_500]))
  })

  it('replies and requests of megabytes pass', async () => {
    const text = 'x'.repeat(3_000_000)
    const [echoed] = await connection.call<[string]>('echo', [text])
    expect(echoed === text).toBe(true)
  })

  it('a request that timed out still runs, and its late answer is dropped', async () => {
    await expect(connection.call('sleep', [0.2, 'late'], { timeout: 30 })).rejects.toMatchObject({
      code: 'ORB_REQUEST_TIMEOUT',
      executed: 'unknown',
    })
    await expect.poll(() => connection.stats().late).toBe(0)
    expect(connection.generation).toBe(1)
    await connection.ping()
  })

  it('an aborted call runs on, one aborted in the same turn never starts', async () => {
    const controller = new AbortController()
    const [before] = await connection.call<[number]>('counted')
    const call = connection.call('increment', [], { signal: controller.signal })
    controller.abort()
    await expect(call).rejects.toMatchObject({ code: 'ORB_REQUEST_ABORTED', executed: 'no' })
    expect(await connection.call('counted')).toEqual([before])
  })

  describe('SQL', () => {
    beforeAll(async () => {
      await connection.execute('CREATE TABLE numbers (id INTEGER PRIMARY KEY AUTOINCREMENT, word TEXT)')
    })

    it('executes statements with binds of both kinds', async () => {
      const inserted = await connection.execute('INSERT INTO numbers (word) VALUES (?), (:word)', [
        'one',
        { ':word': 'two' },
      ])
      expect(inserted.rowCount).toBe(2)
      expect(inserted.autoincrementIds).toHaveLength(2)
      const found = await connection.execute<[number, string]>('SELECT id, word FROM numbers WHERE id = ?', [
        inserted.autoincrementIds[1],
      ])
      expect(found.rows).toEqual([[inserted.autoincrementIds[1], 'two']])
      expect(found.columns.map((column) => column.name.toLowerCase())).toEqual(['id', 'word'])
      await expect(connection.execute('SELEKT')).rejects.toBeInstanceOf(BoxError)
    })

    it('prepares, and renews a statement that the schema change of another session made the server forget', async () => {
      const statement = await connection.prepare('SELECT ? + 1')
      expect((await statement.execute([1])).rows).toEqual([[2]])
      expect(statement.bindCount).toBe(1)
      await using other = await connect(server.uri)
      await other.call('create_space', ['migration'])
      await other.call('drop_space', ['migration'])
      const results = await Promise.all(
        Array.from({ length: 100 }, (_, i) => connection.execute<[number]>(statement, [i])),
      )
      expect(results.map(({ rows }) => rows[0]?.[0])).toEqual(Array.from({ length: 100 }, (_, i) => i + 1))
      await Promise.all([statement.release(), statement.release()])
      expect((await statement.execute([1])).rows).toEqual([[2]])
      await statement.release()
    })
  })
})
