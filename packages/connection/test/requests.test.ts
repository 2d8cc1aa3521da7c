import {
  BoxError,
  decodeValue,
  Decimal,
  encodeValue,
  InvalidArgumentError,
  Key,
  MalformedFrameError,
  RawValue,
  RequestType,
  UnsupportedFeatureError,
} from '@orbweaver/iproto'
import { describe, expect, expectTypeOf, it } from 'vitest'
import type { Connection } from '../src/index.js'
import type { PeerRequest } from '../src/testing/index.js'
import { connected, CountingSink, failure, seeded } from './rig.js'

/** The body of a request as JavaScript values by key number. */
function bodyOf(request: PeerRequest): Record<string, unknown> {
  const names = [
    'spaceId',
    'indexId',
    'limit',
    'offset',
    'iterator',
    'indexBase',
    'fetchPosition',
    'key',
    'tuple',
    'functionName',
    'expr',
    'ops',
    'afterPosition',
    'afterTuple',
    'sqlText',
    'sqlBind',
    'stmtId',
    'spaceName',
    'indexName',
    'eventKey',
  ] as const
  return Object.fromEntries(
    names.filter((name) => request.body.has(Key[name])).map((name) => [name, request.body.value(Key[name])]),
  )
}

interface Case {
  readonly name: string
  readonly run: (connection: Connection) => Promise<unknown>
  readonly type: number
  readonly body: Record<string, unknown>
  readonly answer: unknown[]
  readonly result: unknown
}

const CASES: readonly Case[] = [
  {
    name: 'select',
    run: (c) => c.select(512, [1]),
    type: 1,
    body: { spaceId: 512, limit: 4294967295, key: [1] },
    answer: [[1, 'a']],
    result: [[1, 'a']],
  },
  {
    name: 'select with everything',
    run: (c) => c.select(512, ['x'], { index: 2, iterator: 'GE', offset: 5, limit: 10, after: [7, 'x'] }),
    type: 1,
    body: { spaceId: 512, indexId: 2, limit: 10, offset: 5, iterator: 5, key: ['x'], afterTuple: [7, 'x'] },
    answer: [],
    result: [],
  },
  {
    name: 'get',
    run: (c) => c.get(512, [1]),
    type: 1,
    body: { spaceId: 512, indexId: 0, limit: 2, key: [1] },
    answer: [[1]],
    result: [1],
  },
  {
    name: 'get of nothing',
    run: (c) => c.get(512, [1], { index: 3 }),
    type: 1,
    body: { spaceId: 512, indexId: 3, limit: 2, key: [1] },
    answer: [],
    result: undefined,
  },
  {
    name: 'insert',
    run: (c) => c.insert(512, [1, 'a']),
    type: 2,
    body: { spaceId: 512, tuple: [1, 'a'] },
    answer: [[1, 'a']],
    result: [1, 'a'],
  },
  {
    name: 'replace',
    run: (c) => c.replace(512, new RawValue(encodeValue([1, 'a']))),
    type: 3,
    body: { spaceId: 512, tuple: [1, 'a'] },
    answer: [[1, 'a']],
    result: [1, 'a'],
  },
  {
    name: 'update',
    run: (c) => c.update(512, [1], [['+', 1, 5]], { index: 1, indexBase: 1 }),
    type: 4,
    body: { spaceId: 512, indexId: 1, indexBase: 1, key: [1], tuple: [['+', 1, 5]] },
    answer: [[1, 6]],
    result: [1, 6],
  },
  {
    name: 'update of nothing',
    run: (c) => c.update(512, [9], [['=', 1, 5]]),
    type: 4,
    body: { spaceId: 512, indexId: 0, key: [9], tuple: [['=', 1, 5]] },
    answer: [],
    result: undefined,
  },
  {
    name: 'upsert',
    run: (c) => c.upsert(512, [1, 0], [['+', 1, 5]]),
    type: 9,
    body: { spaceId: 512, tuple: [1, 0], ops: [['+', 1, 5]] },
    answer: [],
    result: undefined,
  },
  {
    name: 'delete',
    run: (c) => c.delete(512, [1]),
    type: 5,
    body: { spaceId: 512, indexId: 0, key: [1] },
    answer: [[1, 'a']],
    result: [1, 'a'],
  },
  {
    name: 'call',
    run: (c) => c.call('f', [1, null]),
    type: 10,
    body: { functionName: 'f', tuple: [1, null] },
    answer: [1, null],
    result: [1, null],
  },
  {
    name: 'call without arguments',
    run: (c) => c.call('a.b:c'),
    type: 10,
    body: { functionName: 'a.b:c', tuple: [] },
    answer: [],
    result: [],
  },
  {
    name: 'eval',
    run: (c) => c.eval('return ...', [5]),
    type: 8,
    body: { expr: 'return ...', tuple: [5] },
    answer: [5],
    result: [5],
  },
]

describe('A connection', () => {
  it.each(CASES)('sends and reads $name', async ({ run, type, body, answer, result }) => {
    const { clock, peer, connection } = await connected()
    peer.handle(type, (request) => request.reply(answer))
    expect(await clock.run(run(connection))).toEqual(result)
    expect(bodyOf(peer.lastRequest)).toEqual(body)
  })

  it('pings', async () => {
    const { clock, connection } = await connected()
    expect(await clock.run(connection.ping())).toBeUndefined()
  })

  it('gives the server’s error with its code, fields and whether it ran', async () => {
    const { clock, peer, connection } = await connected()
    peer.handle(RequestType.insert, (request) => request.error(7, 'read-only', new Map([['reason', 'election']])))
    const error = await clock.run(failure(connection.insert(512, [1])))
    expect(error).toBeInstanceOf(BoxError)
    expect(error).toMatchObject({ code: 'ORB_BOX', boxCode: 7, executed: 'no' })
    expect((error as BoxError).fields.get('reason')).toBe('election')
    peer.handle(RequestType.call, (request) => request.error(7, 'read-only'))
    expect(await clock.run(failure(connection.call('f')))).toMatchObject({ executed: 'unknown' })
  })

  it('refuses get() through an index that has several rows for the key', async () => {
    const { clock, peer, connection } = await connected()
    peer.handle(RequestType.select, (request) => request.reply([[1], [2]]))
    expect(await clock.run(failure(connection.get(512, [1])))).toMatchObject({ boxCode: 41 })
  })

  it('leaves values undecoded when asked, ready to be passed on', async () => {
    const { clock, peer, connection } = await connected()
    peer.handle(RequestType.call, (request) => request.reply([{ a: 1 }, 2]))
    const raw = await clock.run(connection.call('f', [], { raw: true }))
    expect(raw).toBeInstanceOf(RawValue)
    expect(decodeValue(Buffer.from(raw.bytes))).toEqual([{ a: 1 }, 2])
    peer.handle(RequestType.eval, (request) => request.ok())
    expect([...(await clock.run(connection.eval('', [], { raw: true }))).bytes]).toEqual([0x90])
  })

  it('decodes as the connection or the call says', async () => {
    const { clock, peer, connection } = await connected({}, { decode: { integers: 'bigint' } })
    peer.handle(RequestType.call, (request) => request.reply([1]))
    expect(await clock.run(connection.call('f'))).toEqual([1n])
    expect(await clock.run(connection.call('f', [], { decode: { integers: 'number' } }))).toEqual([1])
  })

  it('asks for tuples with field names only when told to', async () => {
    const plain = await connected({ version: '3.2.1', features: [0, 1, 2, 3, 4, 5, 6, 7, 8] })
    expect(plain.connection.features.has(7)).toBe(false)
    const named = await connected({ version: '3.2.1', features: [0, 1, 2, 3, 4, 5, 6, 7, 8] }, { tupleFormats: true })
    expect(named.connection.features.has(7)).toBe(true)
    expect(named.connection.features.has(8)).toBe(true)
    named.peer.handle(RequestType.select, (request) =>
      request.replyWith(
        new Map<number, unknown>([
          [Key.data, [[1, 'x']]],
          [Key.tupleFormats, new Map()],
        ]),
      ),
    )
    expect(await named.clock.run(named.connection.select(512))).toEqual([[1, 'x']])
  })

  it('reports an answer that cannot be read as executed, and goes on', async () => {
    const { clock, peer, connection } = await connected()
    peer.handle(RequestType.call, (request) =>
      request.session.frame(0, request.sync, (out) => {
        out.mapHeader(1)
        out.uint(Key.data)
        out.raw(Buffer.from('92c1', 'hex'))
      }),
    )
    const error = await clock.run(failure(connection.call('f')))
    expect(error).toBeInstanceOf(MalformedFrameError)
    expect(error.executed).toBe('yes')
    await clock.run(connection.ping())
  })

  it('rejects arguments without a MessagePack form by name, and harms no neighbour in the same write', async () => {
    const { clock, peer, connection } = await connected()
    peer.handle(RequestType.call, (request) => request.reply([request.body.value(Key.tuple)]))
    const [good, bad, late] = [
      connection.call('f', [1]),
      failure(connection.call('f', [{ items: [1, () => 5] }])),
      connection.call('f', [2]),
    ]
    expect(await clock.run(good)).toEqual([[1]])
    const error = await clock.run(bad)
    expect(error).toBeInstanceOf(InvalidArgumentError)
    expect(error.message).toMatch(/args\[0\]\.items\[1\]/)
    expect(error.executed).toBe('no')
    expect(await clock.run(late)).toEqual([[2]])
    expect(connection.stats()).toMatchObject({ inFlight: 0, inFlightBytes: 0, queued: 0 })
  })

  it.each([
    ['a bad timeout', (c: Connection) => c.ping({ timeout: 0 }), /timeout is 0/],
    ['a timeout in a string', (c: Connection) => c.ping({ timeout: '5' as unknown as number }), /the string "5"/],
    [
      'a misspelt option',
      (c: Connection) => c.select(512, [], { limits: 5 } as object),
      /select has no option "limits"; did you mean "limit"/,
    ],
    ['a number out of range', (c: Connection) => c.select(512, [], { limit: 2 ** 32 }), /limit/],
    ['an unknown iterator', (c: Connection) => c.select(512, [], { iterator: 'EG' as 'GE' }), /iterator/],
    ['an empty name', (c: Connection) => c.select(''), /space name is empty/],
  ])('rejects %s at once and sends nothing', async (_name, run, words) => {
    const { clock, peer, connection } = await connected()
    const error = await clock.run(failure(run(connection)))
    expect(error).toBeInstanceOf(InvalidArgumentError)
    expect(error.message).toMatch(words)
    expect(peer.requests).toEqual([])
  })

  it('reads arguments before the method returns: what the caller changes afterwards is not sent', async () => {
    const { clock, peer, connection } = await connected()
    peer.handle(RequestType.insert, (request) => request.reply([request.body.value(Key.tuple)]))
    const tuple = [0, 'x']
    const inserted = []
    for (let i = 1; i <= 3; i += 1) {
      tuple[0] = i
      inserted.push(connection.insert(512, tuple))
    }
    expect(await clock.run(Promise.all(inserted))).toEqual([
      [1, 'x'],
      [2, 'x'],
      [3, 'x'],
    ])
  })

  it('leaves the connection’s own requests to the connection', async () => {
    const { clock, peer, connection } = await connected()
    const { authGuestRequest, idRequest, watchRequest } = await import('@orbweaver/iproto')
    for (const request of [authGuestRequest(), idRequest({ version: 1, features: [] }), watchRequest('k')]) {
      const sink = new CountingSink()
      connection.send(request, { deadline: 1_000 }, sink)
      await clock.settle()
      expect(sink.errors[0]).toBeInstanceOf(InvalidArgumentError)
    }
    expect(peer.requests).toEqual([])
  })
})

describe('Pushed messages', () => {
  it('reach onPush in order before the call ends', async () => {
    const { clock, peer, connection } = await connected()
    peer.handle(RequestType.call, (request) => {
      request.push(1)
      request.push({ step: 2 })
      request.reply(['done'])
    })
    const pushed: unknown[] = []
    expect(await clock.run(connection.call('f', [], { onPush: (value) => pushed.push(value) }))).toEqual(['done'])
    expect(pushed).toEqual([1, { step: 2 }])
  })

  it('are dropped without a listener, and the call goes on', async () => {
    const { clock, peer, connection } = await connected()
    peer.handle(RequestType.call, (request) => {
      request.push(1)
      request.reply(['done'])
    })
    expect(await clock.run(connection.call('f'))).toEqual(['done'])
  })

  it('that cannot be decoded end the call with an error, and nothing else', async () => {
    const { clock, peer, connection } = await connected({}, { decode: { integers: 'number' } })
    peer.handle(RequestType.call, (request) => {
      request.push(2n ** 60n)
      request.reply(['done'])
    })
    const error = await clock.run(failure(connection.call('f', [], { onPush: () => expect.unreachable() })))
    expect(error).toMatchObject({ code: 'ORB_MALFORMED_FRAME', executed: 'yes' })
    await clock.run(connection.ping())
  })

  it('can be read with for await, which ends with the call', async () => {
    const { clock, peer, connection } = await connected()
    peer.handle(RequestType.call, (request) => {
      request.push('a')
      request.push('b')
      request.reply([7])
    })
    const work = connection.callWithPushes('f')
    const seen: unknown[] = []
    await clock.run(
      (async () => {
        for await (const value of work) seen.push(value)
      })(),
    )
    expect(seen).toEqual(['a', 'b'])
    expect(await work.result).toEqual([7])
  })

  it('end the iteration when the call fails; result says how', async () => {
    const { clock, peer, connection } = await connected()
    peer.handle(RequestType.call, (request) => {
      request.push('a')
      request.error(32, 'boom')
    })
    const work = connection.callWithPushes('f')
    const seen: unknown[] = []
    const reading = (async () => {
      for await (const value of work) seen.push(value)
    })()
    expect(await clock.run(failure(work.result))).toMatchObject({ boxCode: 32 })
    await clock.run(reading)
    expect(seen).toEqual(['a'])
  })

  it('wait for a reader only up to a bound', async () => {
    const { clock, peer, connection } = await connected()
    peer.handle(RequestType.call, (request) => {
      for (let i = 0; i < 10_001; i += 1) request.push(i)
      request.reply([])
    })
    const work = connection.callWithPushes('f')
    await clock.run(work.result)
    let read = 0
    const reading = (async () => {
      for await (const value of work) read += value === read ? 1 : 0
    })()
    expect(await clock.run(failure(reading))).toBeInstanceOf(InvalidArgumentError)
    expect(read).toBe(10_000)
  })
})

describe('SQL', () => {
  it('gives rows with their columns', async () => {
    const { clock, peer, connection } = await connected()
    peer.handle(RequestType.execute, (request) =>
      request.replyWith(
        new Map<number, unknown>([
          [
            Key.metadata,
            [
              new Map<number, unknown>([
                [0, 'ID'],
                [1, 'integer'],
              ]),
            ],
          ],
          [Key.data, [[1], [2]]],
        ]),
      ),
    )
    const result = await clock.run(connection.execute<[id: number]>('SELECT id FROM t WHERE id > ?', [0]))
    expect(result.rows).toEqual([[1], [2]])
    expect(result.columns[0]?.name).toBe('ID')
    expect(bodyOf(peer.lastRequest)).toEqual({ sqlText: 'SELECT id FROM t WHERE id > ?', sqlBind: [0] })
  })

  it.each([
    ['a decimal', Decimal.from('1.5')],
    ['a date', new Date(0)],
    ['a decimal inside a named bind', { ':d': Decimal.from('1') }],
    ['a decimal inside an array', [[Decimal.from('1')]]],
    ['a decimal already encoded', new RawValue(encodeValue(Decimal.from('1')))],
  ])('refuses to bind %s on a server that would crash, before anything is sent', async (_name, bind) => {
    const { clock, peer, connection } = await connected({ version: '2.6.0' })
    const error = await clock.run(failure(connection.execute('SELECT ?', [0, bind])))
    expect(error).toBeInstanceOf(UnsupportedFeatureError)
    expect(error.message).toMatch(/binds\[1\].*2\.6\.0/)
    expect(peer.requests).toEqual([])
  })

  it('binds them from 2.10 on, and plain values everywhere', async () => {
    const newer = await connected({ version: '2.10.0' })
    newer.peer.handle(RequestType.execute, (request) => request.reply([]))
    await newer.clock.run(newer.connection.execute('SELECT ?', [Decimal.from('1.5')]))
    const older = await connected({ version: '2.6.0' })
    older.peer.handle(RequestType.execute, (request) => request.reply([]))
    await older.clock.run(older.connection.execute('SELECT ?', [{ ':a': 1 }, 'x', null, Buffer.from('b')]))
    expect(older.peer.requests).toHaveLength(1)
  })
})

describe('Types', () => {
  it('follow the type arguments of the call', async () => {
    const { connection } = await connected()
    connection.destroy()
    type User = [id: number, name: string]
    expectTypeOf(connection.select<User>).returns.resolves.toEqualTypeOf<User[]>()
    expectTypeOf(connection.get<User>).returns.resolves.toEqualTypeOf<User | undefined>()
    expectTypeOf(() => connection.select('users')).returns.resolves.toEqualTypeOf<unknown[][]>()
    expectTypeOf(() => connection.call<[number]>('f')).returns.resolves.toEqualTypeOf<[number]>()
    expectTypeOf(() => connection.call('f', [], { raw: true })).returns.resolves.toEqualTypeOf<RawValue>()
    expectTypeOf(() => connection.iterate<User>('users')).returns.toEqualTypeOf<AsyncGenerator<User, void>>()
    expectTypeOf(() => connection.execute<User>('SELECT 1'))
      .returns.resolves.toHaveProperty('rows')
      .toEqualTypeOf<User[]>()
    expectTypeOf(() =>
      connection.transaction((stream) => stream.get<User>('users', [1])),
    ).returns.resolves.toEqualTypeOf<User | undefined>()
  })
})

describe('send', () => {
  it('ends each request at its sink exactly once, in the order of the answers', async () => {
    const { clock, peer, connection } = await connected()
    const { pingRequest } = await import('@orbweaver/iproto')
    peer.handle(RequestType.ping, () => undefined)
    const sinks = Array.from({ length: 100 }, () => new CountingSink())
    for (const sink of sinks) connection.send(pingRequest(), { deadline: Number.POSITIVE_INFINITY }, sink)
    expect(sinks.every((sink) => sink.ends === 0)).toBe(true)
    await clock.settle()
    const random = seeded(1)
    for (const request of [...peer.requests].sort(() => random() - 0.5)) request.ok()
    await clock.settle()
    expect(sinks.every((sink) => sink.replies.length === 1 && sink.errors.length === 0)).toBe(true)
  })

  it('never calls back before it returns, whatever is wrong', async () => {
    const { clock, connection } = await connected({}, { maxQueued: 0 })
    const { callRequest, pingRequest } = await import('@orbweaver/iproto')
    const send = (act: (sink: CountingSink) => void): CountingSink => {
      const sink = new CountingSink()
      act(sink)
      expect(sink.ends).toBe(0)
      return sink
    }
    const sinks = [
      send((sink) => connection.send(callRequest('f', [() => 1]), { deadline: 1_000 }, sink)),
      send((sink) => connection.send(pingRequest(), { deadline: -5 }, sink)),
      send((sink) => connection.send(pingRequest(), { deadline: 1_000, signal: AbortSignal.abort('no') }, sink)),
      send((sink) => connection.send(pingRequest(), { deadline: 1_000, pin: { generation: 99 } }, sink)),
    ]
    connection.destroy()
    sinks.push(send((sink) => connection.send(pingRequest(), { deadline: 1_000 }, sink)))
    await clock.settle()
    expect(sinks.map((sink) => sink.errors.map((error) => [error.code, error.executed]))).toEqual([
      [['ORB_INVALID_ARGUMENT', 'no']],
      [['ORB_REQUEST_TIMEOUT', 'no']],
      [['ORB_REQUEST_ABORTED', 'no']],
      [['ORB_CONNECTION_LOST', 'no']],
      [['ORB_CONNECTION_CLOSED', 'no']],
    ])
  })

  it('survives sinks and callbacks that throw: the error surfaces, the connection goes on', async () => {
    const { clock, peer, connection } = await connected()
    const { callRequest, pingRequest } = await import('@orbweaver/iproto')
    const surfaced: unknown[] = []
    const listeners = process.listeners('uncaughtException')
    process.removeAllListeners('uncaughtException')
    process.on('uncaughtException', (error) => surfaced.push(error.message))
    try {
      connection.send(
        pingRequest(),
        { deadline: 1_000 },
        {
          done: () => {
            throw new Error('done')
          },
          failed: () => undefined,
        },
      )
      await clock.settle()
      const failing = { done: () => undefined, failed: () => thrower('failed') }
      connection.send(callRequest('f', [() => 1]), { deadline: 1_000 }, failing)
      peer.handle(RequestType.call, (request) => request.error(1, 'no'))
      connection.send(callRequest('f'), { deadline: 1_000 }, failing)
      await clock.settle()
      connection.watch('k', () => {
        throw new Error('watch')
      })
      connection.on('disconnect', () => {
        throw new Error('event')
      })
      await clock.settle()
      peer.cut()
      await clock.advance(1_000)
      await clock.run(connection.ping())
    } finally {
      process.removeAllListeners('uncaughtException')
      for (const listener of listeners) process.on('uncaughtException', listener)
    }
    expect(surfaced).toEqual(['done', 'failed', 'failed', 'watch', 'event', 'watch'])
  })
})

function thrower(message: string): never {
  throw new Error(message)
}
