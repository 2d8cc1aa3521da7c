/* Watched keys of many clients over one subscription: section 10 of the design. */
import {
  callRequest,
  decodeEvent,
  FrameHeader,
  Key,
  RequestType,
  unwatchRequest,
  watchRequest,
} from '@orbweaver/iproto'
import { afterEach, describe, expect, it } from 'vitest'
import { type RawClient, Scene, type SceneOptions } from './scene.js'

let scene: Scene
afterEach(() => scene.close())

function start(options: SceneOptions = {}): Scene {
  scene = new Scene(options)
  return scene
}

/** Events a client got, as `[sync, value]`. */
function events(client: RawClient): unknown[] {
  return client.received
    .filter(({ type }) => type === RequestType.event)
    .map(({ frame, sync }) => {
      const header = new FrameHeader()
      header.read(frame)
      return [sync, decodeEvent(frame, header).value]
    })
}

describe('watching', () => {
  it('tells the first value at once, and the next only after the acknowledgement', async () => {
    start()
    scene.peer().broadcast('key', 'v0')
    const client = await scene.client()
    client.send(watchRequest('key'), 1)
    await scene.clock.settle()
    scene.peer().broadcast('key', 'v1')
    scene.peer().broadcast('key', 'v2')
    await scene.clock.settle()
    expect(events(client)).toEqual([[1, 'v0']])
    client.send(watchRequest('key'), 2)
    await scene.clock.settle()
    client.send(watchRequest('key'), 3)
    await scene.clock.settle()
    expect(events(client)).toEqual([
      [1, 'v0'],
      [2, 'v2'],
    ])
    scene.peer().broadcast('key', 'v3')
    await scene.clock.settle()
    expect(events(client).at(-1)).toEqual([3, 'v3'])
  })

  it('tells a second client the value that is known, and both the next one under their own numbers', async () => {
    start()
    const [one, two] = [await scene.client(), await scene.client()]
    scene.peer().broadcast('key', 1)
    one.send(watchRequest('key'), 11)
    await scene.clock.settle()
    two.send(watchRequest('key'), 2n ** 64n - 1n)
    await scene.clock.settle()
    expect(events(two)).toEqual([[2n ** 64n - 1n, 1]])
    one.send(watchRequest('key'), 12)
    two.send(watchRequest('key'), 22)
    scene.peer().broadcast('key', 2)
    await scene.clock.settle()
    expect([events(one).at(-1), events(two).at(-1)]).toEqual([
      [12, 2],
      [22, 2],
    ])
    // One subscription at the server, however many watch here.
    expect(
      scene
        .peer()
        .sessions.flatMap(({ watchedKeys }) => watchedKeys)
        .filter((key) => key === 'key'),
    ).toHaveLength(1)
  })

  it('goes on for the others when one stops, and ends at the server with the last', async () => {
    start()
    const [one, two] = [await scene.client(), await scene.client()]
    for (const client of [one, two]) client.send(watchRequest('key'), 1)
    await scene.clock.settle()
    one.send(unwatchRequest('key'))
    two.send(watchRequest('key'), 2)
    scene.peer().broadcast('key', 'x')
    await scene.clock.settle()
    expect(events(one)).toHaveLength(1)
    expect(events(two).at(-1)).toEqual([2, 'x'])
    two.transport.destroy()
    await scene.clock.settle()
    expect(scene.peer().sessions.flatMap(({ watchedKeys }) => watchedKeys)).not.toContain('key')
    expect(scene.proxy.stats()).toMatchObject({ watchKeys: 0, watchSubscriptions: 0 })
  })

  it('tells a key that was never set, without a value', async () => {
    start()
    const client = await scene.client()
    client.send(watchRequest('nothing'), 1)
    await scene.clock.settle()
    expect(events(client)).toEqual([[1, undefined]])
  })

  it('tells nothing again after the server comes back with the same value, and what has changed', async () => {
    start()
    scene.peer().broadcast('same', 1)
    scene.peer().broadcast('other', 1)
    const client = await scene.client()
    for (const key of ['same', 'other']) client.send(watchRequest(key), 1)
    await scene.clock.settle()
    for (const key of ['same', 'other']) client.send(watchRequest(key), 2)
    await scene.clock.settle()
    scene.peer().cut()
    scene.peer().broadcast('other', 2)
    await scene.clock.advance(1_000)
    expect(events(client)).toEqual([
      [1, 1],
      [1, 1],
      [2, 2],
    ])
  })

  it('tells a value that was broadcast again, though it is equal', async () => {
    start()
    const client = await scene.client()
    client.send(watchRequest('key'), 1)
    await scene.clock.settle()
    for (const sync of [2, 3]) {
      client.send(watchRequest('key'), sync)
      scene.peer().broadcast('key', 'again')
      await scene.clock.settle()
    }
    expect(events(client)).toEqual([
      [1, undefined],
      [2, 'again'],
      [3, 'again'],
    ])
  })

  it('follows the master', async () => {
    start({ peers: { a: {}, b: {} } })
    scene.peer('a').broadcast('box.status', { is_ro: false, name: 'a' })
    scene.peer('b').broadcast('box.status', { is_ro: false, name: 'b' })
    scene.peer('b').broadcast('key', 'of b')
    const client = await scene.client()
    for (const key of ['box.status', 'key']) client.send(watchRequest(key), 1)
    await scene.clock.settle()
    for (const key of ['box.status', 'key']) client.send(watchRequest(key), 2)
    await scene.clock.settle()
    await scene.clock.run(scene.proxy.failOverTo('b'))
    await scene.clock.settle()
    expect(events(client)).toEqual([
      [1, { is_ro: false, name: 'a' }],
      [1, undefined],
      [2, { is_ro: false, name: 'b' }],
      [2, 'of b'],
    ])
    expect(scene.peer('a').sessions.flatMap(({ watchedKeys }) => watchedKeys)).not.toContain('key')
  })

  it('hides that a target shuts down, and tells that the proxy does', async () => {
    start()
    const client = await scene.client()
    client.send(watchRequest('box.shutdown'), 1)
    await scene.clock.settle()
    expect(events(client)).toEqual([[1, undefined]])
    client.send(watchRequest('box.shutdown'), 2)
    scene.peer().broadcast('box.shutdown', true)
    await scene.clock.settle()
    expect(events(client)).toHaveLength(1)
    void scene.proxy.close({ graceMs: 100 })
    await scene.clock.settle()
    expect(events(client).at(-1)).toEqual([2, true])
  })

  it('is refused with the code of a server where it cannot be', async () => {
    start({ peers: { a: { version: '2.6.0' } } })
    const client = await scene.client()
    client.send(watchRequest('key'), 5)
    expect((await client.reply(5)).error.boxCode).toBe(48)
  })

  it('has a limit of keys for each client and of bytes for each value', async () => {
    start({ limits: { maxWatchKeysPerClient: 2, maxEventBytes: 1_000 } })
    const client = await scene.client()
    for (const key of ['a', 'b']) client.send(watchRequest(key), 1)
    client.send(watchRequest('c'), 3)
    expect((await client.reply(3)).error.boxCode).toBe(5)
    client.send(watchRequest('a'), 4)
    scene.peer().broadcast('a', 'x'.repeat(2_000))
    await scene.clock.settle()
    expect(client.isEnded).toBe(true)
  })

  it('needs a key', async () => {
    start()
    const client = await scene.client()
    client.raw(Buffer.from('ce000000058200 4a0109'.replaceAll(' ', ''), 'hex'))
    expect((await client.reply(9)).error.boxCode).toBe(69)
    expect(Key.eventKey).toBe(0x57)
  })
})

describe('an event', () => {
  it('never comes in the middle of a large reply that is being passed on', async () => {
    start()
    const client = await scene.login()
    client.send(watchRequest('key'), 1)
    client.send(callRequest('f'), 2)
    await scene.clock.settle()
    client.send(watchRequest('key'), 3)
    const request = scene.peer().requestsOf(RequestType.call)[0]!
    const bytes = 1_000_000
    const head = Buffer.from(
      'ce000f426083 00ce00000000 01cf0000000000000000 05ce00000050 8130dd00000001c6000f4240'.replaceAll(' ', ''),
      'hex',
    )
    head.writeUInt32BE(head.length - 5 + bytes, 1)
    head.writeBigUInt64BE(BigInt(request.sync), 14)
    request.session.raw(Buffer.concat([head, Buffer.alloc(bytes / 2, 7)]))
    await scene.clock.settle()
    scene.peer().broadcast('key', 'x')
    await scene.clock.settle()
    request.session.raw(Buffer.alloc(bytes / 2, 7))
    const [blob] = (await client.reply(2)).body.value(Key.data) as [Buffer]
    expect(blob.equals(Buffer.alloc(bytes, 7))).toBe(true)
    await scene.clock.settle()
    expect(events(client).at(-1)).toEqual([3, 'x'])
  })
})
