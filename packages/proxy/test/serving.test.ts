/* Calls of `vshard.router.…` answered in this process, as vshard's own router answers them. */
import {
  BoxError,
  callRequest,
  decodeValue,
  ErrorCode,
  InvalidArgumentError,
  Key,
  RawValue,
  RequestType,
} from '@orbweaver/iproto'
import { OrbweaverError } from '@orbweaver/iproto'
import { afterEach, describe, expect, it } from 'vitest'
import type { ServedRouter } from '../src/index.js'
import { type RawClient, Scene, type SceneOptions } from './scene.js'

let scene: Scene
afterEach(() => scene.close())

class WrongBucket extends OrbweaverError {
  readonly code = 'ORB_VSHARD' as const

  toWire(): object {
    return { type: 'ShardingError', code: 1, name: 'WRONG_BUCKET', message: this.message, bucket_id: 5 }
  }
}

interface Asked {
  readonly kind: string
  readonly bucketId: number | undefined
  readonly name: string
  readonly args: unknown[]
  readonly options: Record<string, unknown>
}

/** A router that notes what it is asked and answers what it is told. */
class FakeRouter implements ServedRouter {
  readonly asked: Asked[] = []
  answer: () => Promise<readonly unknown[]> = () => Promise.resolve(['done', 2])
  readonly callrw = this.#bucketCall('callrw')
  readonly callro = this.#bucketCall('callro')
  readonly callbro = this.#bucketCall('callbro')
  readonly callre = this.#bucketCall('callre')
  readonly callbre = this.#bucketCall('callbre')

  #bucketCall(kind: string): ServedRouter['callrw'] {
    return (bucketId, name, args, { signal: _signal, ...options }) => {
      this.asked.push({ kind, bucketId, name, args: decoded(args), options })
      return this.answer()
    }
  }

  mapCallrw(
    name: string,
    args: readonly unknown[],
    { signal: _signal, ...options }: Parameters<ServedRouter['mapCallrw']>[2],
  ): Promise<ReadonlyMap<string, readonly unknown[]>> {
    this.asked.push({ kind: 'map', bucketId: undefined, name, args: decoded(args), options: { ...options } })
    return this.answer().then(
      (values) =>
        new Map<string, readonly unknown[]>([
          ['one', values],
          ['two', [null]],
        ]),
    )
  }

  bucketIdMpcrc32(key: string | number): number {
    return String(key).length
  }

  bucketIdStrcrc32(key: string | number): number {
    return 100 + String(key).length
  }
}

function decoded(args: readonly unknown[]): unknown[] {
  return args.map((arg) => (arg instanceof RawValue ? decodeValue(Buffer.from(arg.bytes)) : arg))
}

let router: FakeRouter

async function start(users = ['alice'], options: SceneOptions = {}): Promise<RawClient> {
  scene = new Scene(options)
  scene.peer().handle(RequestType.call, (request) => request.reply(['the master']))
  router = new FakeRouter()
  scene.proxy.serve(router, { users })
  return scene.login()
}

async function call(client: RawClient, name: string, ...args: unknown[]): Promise<unknown> {
  const reply = await client.ask(callRequest(`vshard.router.${name}`, args))
  return reply.type === 0 ? reply.body.value(Key.data) : reply.error
}

describe('a served router', () => {
  it.each(['callrw', 'callro', 'callbro', 'callre', 'callbre'])('answers %s with the first value', async (kind) => {
    const client = await start()
    expect(await call(client, kind, 5, 'f', [1, 'two', { three: 3 }], { timeout: 2 })).toEqual(['done'])
    expect(router.asked).toEqual([
      { kind, bucketId: 5, name: 'f', args: [1, 'two', { three: 3 }], options: { timeout: 2_000, raw: true } },
    ])
    expect(scene.peer().requestsOf(RequestType.call)).toHaveLength(0)
  })

  it.each([
    ['read', 'callro'],
    ['write', 'callrw'],
    [null, 'callrw'],
    [{ mode: 'read', prefer_replica: true }, 'callre'],
    [{ mode: 'read', balance: true }, 'callbro'],
    [{ mode: 'read', balance: true, prefer_replica: true }, 'callbre'],
    [{ balance: true }, 'callrw'],
  ])('understands call by %j', async (how, kind) => {
    const client = await start()
    expect(await call(client, 'call', 5, how, 'f')).toEqual(['done'])
    expect(router.asked).toMatchObject([{ kind, args: [], options: { timeout: 500 } }])
  })

  it('gives nil for no value, and all of them where they are wanted raw', async () => {
    const client = await start()
    router.answer = () => Promise.resolve([])
    expect(await call(client, 'callrw', 5, 'f')).toEqual([null])
    router.answer = () => Promise.resolve([1, [2], null])
    expect(await call(client, 'callrw', 5, 'f', [], { return_raw: true })).toEqual([[1, [2], null]])
  })

  it('answers map_callrw by replicaset, without those that returned nil', async () => {
    const client = await start()
    expect(await call(client, 'map_callrw', 'f', [7], { bucket_ids: [1, 2] })).toEqual([{ one: ['done'] }])
    expect(router.asked).toMatchObject([{ kind: 'map', name: 'f', args: [7], options: { bucketIds: [1, 2] } }])
    const args = new Map([
      [1, ['a']],
      [2, ['b']],
    ])
    await call(client, 'map_callrw', 'f', [], { bucket_ids: args })
    expect(router.asked[1]?.options['bucketArgs']).toEqual(args)
  })

  it('answers bucket ids', async () => {
    const client = await start()
    expect(await call(client, 'bucket_id_mpcrc32', 'four')).toEqual([4])
    expect(await call(client, 'bucket_id', 'four')).toEqual([104])
  })

  it.each([
    [
      'of vshard',
      new WrongBucket('Not found', { executed: 'no' }),
      { type: 'ShardingError', code: 1, name: 'WRONG_BUCKET', message: 'Not found', bucket_id: 5 },
    ],
    [
      'of the function',
      BoxError.of(ErrorCode.tupleFound, 'Duplicate key'),
      { type: 'ClientError', code: ErrorCode.tupleFound, message: 'Duplicate key' },
    ],
  ])('gives back errors %s as nil and a map', async (_whose, error, wire) => {
    const client = await start()
    router.answer = () => Promise.reject(error)
    expect(await call(client, 'callrw', 5, 'f')).toEqual([null, wire])
  })

  it('raises what is used wrongly', async () => {
    const client = await start()
    for (const args of [[], ['five', 'f'], [5], [5, 'f', 'no list'], [5, 'f', [], { timeout: 'x' }]]) {
      const error = await call(client, 'callrw', ...args)
      expect(error).toBeInstanceOf(BoxError)
      expect((error as BoxError).boxCode).toBe(ErrorCode.procLua)
    }
    router.answer = () => Promise.reject(new InvalidArgumentError('Bucket 99 is none'))
    expect(((await call(client, 'callrw', 99, 'f')) as BoxError).message).toBe('Bucket 99 is none')
  })

  it('is there only for users that were named, and until it is taken away', async () => {
    const client = await start(['bob'])
    expect(await call(client, 'callrw', 5, 'f')).toEqual(['the master'])
    const bob = await scene.login('bob')
    expect(await call(bob, 'callrw', 5, 'f')).toEqual(['done'])
    const stop = scene.proxy.serve(router, { users: ['alice'] })
    expect(await call(client, 'callrw', 5, 'f')).toEqual(['done'])
    stop()
    expect(await call(client, 'callrw', 5, 'f')).toEqual(['the master'])
  })

  it('leaves what it does not know, and everything else, to the master', async () => {
    const client = await start()
    expect(await call(client, 'cfg')).toEqual(['the master'])
    expect((await client.ask(callRequest('f'))).body.value(Key.data)).toEqual(['the master'])
  })

  it('holds up nobody while it waits, and counts what is under way', async () => {
    const client = await start()
    let finish: (values: unknown[]) => void = () => undefined
    router.answer = () => new Promise((resolve) => (finish = resolve))
    client.send(callRequest('vshard.router.callrw', [5, 'f']), 1)
    expect((await client.ask(callRequest('f'))).type).toBe(0)
    expect(scene.proxy.clients()[0]).toMatchObject({ activity: 'active', inFlight: 1 })
    finish(['late'])
    expect((await client.reply(1)).body.value(Key.data)).toEqual(['late'])
    expect(scene.proxy.clients()[0]).toMatchObject({ activity: 'idle', inFlight: 0 })
  })
})
