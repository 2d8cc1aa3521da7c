/* Reads at replicas: section 16 of the design, field case 9. */
import { callRequest, insertRequest, Key, RequestType, selectRequest } from '@orbweaver/iproto'
import { afterEach, describe, expect, it } from 'vitest'
import { type RawClient, Scene, type SceneOptions } from './scene.js'

let scene: Scene
afterEach(() => scene.close())

function start(options: SceneOptions = {}): Scene {
  scene = new Scene({
    peers: { a: {}, b: {}, c: {} },
    ro: ['b', 'c'],
    split: { enabled: true, readFunctions: ['get'] },
    ...options,
  })
  for (const [name, peer] of Object.entries(scene.peers)) {
    for (const type of [RequestType.select, RequestType.call, RequestType.insert]) {
      peer.handle(type, (request) => request.reply([name]))
    }
  }
  return scene
}

const read = selectRequest({ space: 512 })
const write = insertRequest(512, [1])

async function where(client: RawClient, request = read): Promise<unknown> {
  return ((await client.ask(request)).body.value(Key.data) as unknown[])[0]
}

describe('with split on', () => {
  it('reads go to replicas in turn, and everything else to the master', async () => {
    start()
    await scene.clock.settle()
    const client = await scene.login()
    const seen = new Set<unknown>()
    for (let i = 0; i < 10; i++) seen.add(await where(client))
    expect(seen).toEqual(new Set(['b', 'c']))
    expect(await where(client, callRequest('get'))).not.toBe('a')
    expect(await where(client, callRequest('put'))).toBe('a')
  })

  it('a client reads its own writes: for a while from the master', async () => {
    start()
    await scene.clock.settle()
    const client = await scene.login()
    expect(await where(client, write)).toBe('a')
    expect(await where(client)).toBe('a')
    await scene.clock.advance(1_100)
    expect(await where(client)).not.toBe('a')
  })

  it('a read behind a write in flight goes after it', async () => {
    start({ split: { enabled: true, readAfterWriteMs: 1 } })
    await scene.clock.settle()
    scene.peer('a').handle(RequestType.insert, () => undefined)
    const client = await scene.login()
    client.send(write, 1)
    expect(await where(client)).toBe('a')
  })

  it('reads go to the master when no replica can serve them', async () => {
    start()
    await scene.clock.settle()
    const client = await scene.login()
    for (const name of ['b', 'c']) {
      scene.peer(name).refusal = new Error('connection refused')
      scene.peer(name).cut()
    }
    await scene.clock.settle()
    expect(await where(client)).toBe('a')
    scene.proxy.setRo([])
    expect(await where(client)).toBe('a')
  })

  it('go on while the master is being changed', async () => {
    start()
    await scene.clock.settle()
    const client = await scene.login()
    scene.proxy.pause()
    expect(await where(client)).not.toBe('a')
    expect(scene.proxy.stats().isPaused).toBe(true)
  })

  it('and reads of a stream stay with the master', async () => {
    start()
    await scene.clock.settle()
    const client = await scene.login()
    const reply = await client.ask(read, 1)
    expect(reply.body.value(Key.data)).toEqual(['a'])
  })
})

describe('schema versions', () => {
  it('are those of the master, whoever answers: nothing to reload for without a change', async () => {
    start({ peers: { a: { schemaVersion: 80 }, b: { schemaVersion: 90 }, c: { schemaVersion: 91 } } })
    await scene.clock.settle()
    const client = await scene.login()
    await client.ask(write)
    await scene.clock.advance(1_100)
    // With each request the version that the client has seen.
    for (let i = 0; i < 6; i++) {
      client.send(read, i, 0, 80)
      const reply = await client.reply(i)
      expect([reply.type, reply.schemaVersion, (reply.body.value(Key.data) as string[])[0] === 'a']).toEqual([
        0,
        80,
        false,
      ])
    }
    const asked = [...scene.peer('b').requestsOf(RequestType.select), ...scene.peer('c').requestsOf(RequestType.select)]
    for (const request of asked) expect(request.schemaVersion).toBeOneOf([0, undefined, 90, 91])
  })

  it('that are not those of the master are judged by the master', async () => {
    start({ peers: { a: { schemaVersion: 80 }, b: { schemaVersion: 79 }, c: { schemaVersion: 79 } } })
    await scene.clock.settle()
    const client = await scene.login()
    await client.ask(write)
    await scene.clock.advance(1_100)
    client.send(read, 1, 0, 79)
    await client.reply(1)
    expect(
      scene
        .peer('a')
        .requestsOf(RequestType.select)
        .map(({ schemaVersion }) => schemaVersion),
    ).toEqual([79])
  })

  it('change once when the master does', async () => {
    start({ peers: { a: { schemaVersion: 80 }, b: { schemaVersion: 90 }, c: { schemaVersion: 91 } } })
    await scene.clock.settle()
    const client = await scene.login()
    await client.ask(write)
    const before = (await client.ask(write)).schemaVersion
    await scene.clock.run(scene.proxy.failOverTo('b'))
    const after: (number | undefined)[] = []
    for (let i = 0; i < 4; i++) after.push((await client.ask(i === 0 ? write : read)).schemaVersion)
    await scene.clock.advance(1_100)
    for (let i = 0; i < 4; i++) after.push((await client.ask(read)).schemaVersion)
    expect([before, ...new Set(after)]).toEqual([80, 90])
  })
})
