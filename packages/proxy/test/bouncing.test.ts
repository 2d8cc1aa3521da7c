/* Calls that find the replicaset of their bucket: section 20 of the design. */
import { callRequest, FrameWriter, Key, RequestType } from '@orbweaver/iproto'
import { afterEach, describe, expect, it } from 'vitest'
import { bucketCallOf, refusalIn } from '../src/bounce.js'
import type { BounceOptions, BucketLocator } from '../src/index.js'
import { Scene, type SceneOptions } from './scene.js'

let scene: Scene
afterEach(() => scene.close())

/** A map that learns from refusals. */
class Routes implements BucketLocator {
  readonly owners = new Map<number, string>()
  readonly reports: unknown[] = []
  locate(bucketId: number): string | undefined {
    return this.owners.get(bucketId)
  }
  report(fact: { bucketId: number; from: string; destination: string | undefined }): void {
    this.reports.push(fact)
    if (fact.destination === undefined) this.owners.delete(fact.bucketId)
    else this.owners.set(fact.bucketId, fact.destination)
  }
}

/** Where buckets really are, and what else a server would say. */
let owners: Map<number, string>
let refusal: { code: number; name: string } | undefined
let routes: Routes

function start(bounce: Partial<BounceOptions> = {}, options: SceneOptions = {}): Scene {
  routes = new Routes()
  owners = new Map()
  refusal = undefined
  scene = new Scene({
    peers: { a: {}, b: {} },
    bounce: { locator: routes, shards: { ra: { rw: 'a' }, rb: { rw: 'b' } }, ...bounce },
    ...options,
  })
  for (const [name, peer] of Object.entries(scene.peers)) {
    peer.handle(RequestType.call, (request) => {
      if (request.body.requireText(Key.functionName) !== 'vshard.storage.call') return request.reply([name])
      const [bucketId] = request.body.requireArray(Key.tuple) as [number]
      if (refusal !== undefined) return request.reply([null, { type: 'ShardingError', ...refusal }])
      const owner = owners.get(bucketId)
      if (owner === `r${name}`) return request.reply([true, name])
      const destination = owner === undefined ? {} : { destination: owner }
      return request.reply([
        null,
        { type: 'ShardingError', code: 1, name: 'WRONG_BUCKET', bucket_id: bucketId, ...destination },
      ])
    })
  }
  return scene
}

const call = (bucketId: number, mode = 'write'): ReturnType<typeof callRequest> =>
  callRequest('vshard.storage.call', [bucketId, mode, 'f', []])

const calls = (name: string): number => scene.peer(name).requestsOf(RequestType.call).length

describe('a call of a bucket', () => {
  it('goes to the replicaset that has it, whatever the master is', async () => {
    start()
    routes.owners.set(7, 'rb')
    owners.set(7, 'rb')
    const client = await scene.login()
    expect((await client.ask(call(7))).body.value(Key.data)).toEqual([true, 'b'])
    expect([calls('a'), calls('b')]).toEqual([0, 1])
    expect((await client.ask(callRequest('other'))).body.value(Key.data)).toEqual(['a'])
  })

  it('follows the owner that a refusal names, and remembers it', async () => {
    start()
    routes.owners.set(70_000, 'ra')
    owners.set(70_000, 'rb')
    const client = await scene.login()
    expect((await client.ask(call(70_000))).body.value(Key.data)).toEqual([true, 'b'])
    expect(routes.reports).toEqual([{ bucketId: 70_000, from: 'ra', destination: 'rb' }])
    await client.ask(call(70_000))
    expect([calls('a'), calls('b')]).toEqual([1, 2])
    expect(scene.proxy.stats().bounces).toBe(1)
  })

  it('waits while the bucket is on its way, with pauses that grow', async () => {
    start()
    routes.owners.set(7, 'ra')
    owners.set(7, 'ra')
    refusal = { code: 7, name: 'TRANSFER_IS_IN_PROGRESS' }
    const client = await scene.login()
    client.send(call(7), 1)
    await scene.clock.advance(100)
    expect(calls('a')).toBeGreaterThan(1)
    expect(calls('a')).toBeLessThan(6)
    refusal = undefined
    expect((await client.reply(1)).body.value(Key.data)).toEqual([true, 'a'])
  })

  it('gives up after a while, and passes on the last refusal as it was', async () => {
    start({ bounceTimeoutMs: 500 })
    routes.owners.set(7, 'ra')
    refusal = { code: 22, name: 'BUCKET_IS_LOCKED' }
    const client = await scene.login()
    const startedAt = scene.clock.now()
    const [nothing, error] = (await client.ask(call(7))).body.value(Key.data) as [null, { code: number }]
    expect([nothing, error.code]).toEqual([null, 22])
    expect(scene.clock.now() - startedAt).toBeLessThan(800)
    expect(calls('a')).toBeLessThanOrEqual(9)
  })

  it('finds a bucket nobody knows by asking', async () => {
    start()
    owners.set(9, 'rb')
    const client = await scene.login()
    expect((await client.ask(call(9))).body.value(Key.data)).toEqual([true, 'b'])
    expect((await client.ask(call(9))).body.value(Key.data)).toEqual([true, 'b'])
  })

  it('is never sent again after user code ran, or for any other refusal', async () => {
    start()
    for (const reply of [
      [false, { message: 'user error' }],
      [null, { type: 'ShardingError', code: 16 }],
      [null, { type: 'ClientError', code: 1 }],
      [true, null],
    ]) {
      scene.peer('a').handle(RequestType.call, (request) => request.reply(reply))
      routes.owners.set(7, 'ra')
      const client = await scene.login()
      const before = calls('a')
      expect((await client.ask(call(7))).body.value(Key.data)).toEqual(reply)
      expect(calls('a')).toBe(before + 1)
    }
  })

  it('of a user who goes without stays with the master', async () => {
    start({ declinedUsers: ['bob'] })
    routes.owners.set(7, 'rb')
    owners.set(7, 'rb')
    const client = await scene.login('bob')
    const [nothing, error] = (await client.ask(call(7))).body.value(Key.data) as [null, { code: number }]
    expect([nothing, error.code, calls('b')]).toEqual([null, 1, 0])
  })

  it('has an unknown outcome when its lane is lost, and is not sent again', async () => {
    start()
    routes.owners.set(7, 'rb')
    scene.peer('b').handle(RequestType.call, () => undefined)
    const client = await scene.login()
    client.send(call(7), 1)
    await scene.clock.settle()
    scene.peer('b').cut()
    expect((await client.reply(1)).error.fields.get('sent')).toBe(true)
    expect(calls('b')).toBe(1)
  })

  it('waits while the proxy is paused', async () => {
    start()
    routes.owners.set(7, 'rb')
    owners.set(7, 'rb')
    const client = await scene.login()
    scene.proxy.pause()
    client.send(call(7), 1)
    await scene.clock.advance(200)
    expect(calls('b')).toBe(0)
    scene.proxy.resume()
    expect((await client.reply(1)).body.value(Key.data)).toEqual([true, 'b'])
  })
})

describe('what is looked at', () => {
  const bodyOf = (name: string, args: unknown[]): Buffer => {
    const writer = new FrameWriter()
    writer.beginFrame()
    callRequest(name, args).writeBody(writer)
    writer.end()
    return Buffer.concat(writer.take()).subarray(5)
  }

  it.each([
    [['vshard.storage.call', [7, 'write', 'f', []]], { bucketId: 7, mode: 'write' }],
    [['vshard.storage.call', [200, 'read', 'f']], { bucketId: 200, mode: 'read' }],
    [['vshard.storage.call', [2 ** 40, 'read', 'f']], { bucketId: 2 ** 40, mode: 'read' }],
    [['vshard.storage.call', ['7', 'write', 'f']], undefined],
    [['vshard.storage.call', [7, 'other', 'f']], undefined],
    [['vshard.storage.call', [0, 'write']], undefined],
    [['vshard.storage.call', [7]], undefined],
    [['vshard.storage.call', []], undefined],
    [['vshard.storage._call', [7, 'write']], undefined],
  ] as const)('of the call %j is %j', ([name, args], want) => {
    expect(bucketCallOf(bodyOf(name, [...args]))).toEqual(want)
  })

  it.each([
    [[null, { type: 'ShardingError', code: 1, destination: 'rb' }], { code: 1, destination: 'rb' }],
    [[null, { type: 'ShardingError', code: 2 }], { code: 2, destination: undefined }],
    [[null, { type: 'ShardingError', code: 3 }], undefined],
    [[null, 'text'], undefined],
    [[null], undefined],
    [[], undefined],
    [[false, { type: 'ShardingError', code: 1 }], undefined],
    [[true, 1], undefined],
  ])('of the reply %j is %j', (data, want) => {
    const writer = new FrameWriter()
    writer.beginReply(0, 1, 2, 80)
    writer.mapHeader(1)
    writer.uint(Key.data)
    writer.value(data)
    writer.end()
    expect(refusalIn(Buffer.concat(writer.take()))).toEqual(want)
  })
})
