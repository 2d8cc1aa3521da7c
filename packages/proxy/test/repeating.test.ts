/* Reads that are sent once more, and writes that are not sent at all. */
import { callRequest, ErrorCode, insertRequest, Key, pingRequest, RequestType, selectRequest } from '@orbweaver/iproto'
import { afterEach, describe, expect, it } from 'vitest'
import { Scene, type SceneOptions } from './scene.js'

let scene: Scene
afterEach(() => scene.close())

const read = selectRequest({ space: 512 })

function start(options: SceneOptions = {}): Scene {
  scene = new Scene(options)
  for (const [name, peer] of Object.entries(scene.peers)) {
    for (const type of [RequestType.select, RequestType.call, RequestType.insert, RequestType.eval]) {
      peer.handle(type, (request) => request.reply([name]))
    }
  }
  return scene
}

describe('a read that a replica cannot serve', () => {
  it('is served by the master, once', async () => {
    start({ peers: { a: {}, b: {} }, ro: ['b'], split: { enabled: true } })
    await scene.clock.settle()
    scene.peer('b').handle(RequestType.select, (request) => request.error(ErrorCode.loading, 'Instance bootstrap'))
    const client = await scene.login()
    const reply = await client.ask(read)
    expect(reply.body.value(Key.data)).toEqual(['a'])
    expect(scene.peer('b').requestsOf(RequestType.select)).toHaveLength(1)
    expect(scene.peer('a').requestsOf(RequestType.select)).toHaveLength(1)
    expect(client.received.filter(({ sync }) => sync === reply.sync)).toHaveLength(1)
  })

  it('gives the error of the master when that cannot serve it either', async () => {
    start({ peers: { a: {}, b: {} }, ro: ['b'], split: { enabled: true } })
    await scene.clock.settle()
    for (const name of ['a', 'b'])
      scene.peer(name).handle(RequestType.select, (request) => request.error(ErrorCode.loading, `Instance ${name}`))
    const client = await scene.login()
    expect((await client.ask(read)).error.message).toBe('Instance a')
  })

  it('keeps any other error', async () => {
    start({ peers: { a: {}, b: {} }, ro: ['b'], split: { enabled: true } })
    await scene.clock.settle()
    scene.peer('b').handle(RequestType.select, (request) => request.error(ErrorCode.noSuchSpace, 'No space'))
    const client = await scene.login()
    expect((await client.ask(read)).error.boxCode).toBe(ErrorCode.noSuchSpace)
    expect(scene.peer('a').requestsOf(RequestType.select)).toHaveLength(0)
  })
})

describe('a read whose connection is lost', () => {
  it.each([
    ['SELECT', read, RequestType.select],
    ['a call of a function that only reads', callRequest('get'), RequestType.call],
  ])('is sent once more where that is wanted: %s', async (_what, request, type) => {
    start({ retry: { reads: true }, split: { readFunctions: ['get'] } })
    const client = await scene.login()
    let asked = 0
    scene.peer().handle(type, (received) => {
      if (++asked === 1) scene.peer().cut()
      else received.reply(['again'])
    })
    client.send(request, 7)
    expect((await client.reply(7)).body.value(Key.data)).toEqual(['again'])
    expect(asked).toBe(2)
    expect(scene.proxy.stats()).toMatchObject({ unknownOutcomes: 0, inFlight: 0 })
  })

  it('is not sent a third time', async () => {
    start({ retry: { reads: true } })
    const client = await scene.login()
    let asked = 0
    scene.peer().handle(RequestType.select, () => {
      asked++
      scene.peer().cut()
    })
    client.send(read, 7)
    expect((await client.reply(7)).error.boxCode).toBe(ErrorCode.noConnection)
    expect(asked).toBe(2)
  })

  it.each([
    ['unless it was asked for', {}, read],
    ['when it may write', { retry: { reads: true } }, insertRequest(512, [1])],
    ['when it calls what is not known to read only', { retry: { reads: true } }, callRequest('put')],
  ] as const)('is answered with an unknown outcome %s', async (_when, options, request) => {
    start(options)
    const client = await scene.login()
    scene.peer().handle(request.type, () => scene.peer().cut())
    client.send(request, 7)
    const { error } = await client.reply(7)
    expect([error.boxCode, error.fields.get('sent')]).toEqual([ErrorCode.noConnection, true])
    expect(scene.peer().requestsOf(request.type)).toHaveLength(1)
  })
})

describe('a read whose answer has begun', () => {
  it('is not sent once more', async () => {
    start({ retry: { reads: true }, split: { readFunctions: ['get'] } })
    const client = await scene.login()
    scene.peer().handle(RequestType.call, (request) => {
      request.push('part')
      scene.clock.schedule(10, () => scene.peer().cut())
    })
    client.send(callRequest('get'), 7)
    expect((await client.reply(7)).error.boxCode).toBe(ErrorCode.noConnection)
    expect(scene.peer().requestsOf(RequestType.call)).toHaveLength(1)
  })
})

describe('a read of a replica whose connection is lost', () => {
  it.each([
    [false, ErrorCode.noConnection, 0],
    [true, 0, 1],
  ])('goes to the master where reads are sent again: %s', async (reads, code, atMaster) => {
    start({ peers: { a: {}, b: {} }, ro: ['b'], split: { enabled: true }, retry: { reads } })
    await scene.clock.settle()
    const client = await scene.login()
    scene.peer('b').handle(RequestType.select, () => scene.peer('b').cut())
    client.send(read, 7)
    const reply = await client.reply(7)
    expect(reply.type === 0 ? 0 : reply.error.boxCode).toBe(code)
    expect(scene.peer('a').requestsOf(RequestType.select)).toHaveLength(atMaster)
  })
})

describe('while the master says that it is read-only', () => {
  it('writes are refused here where that is wanted, and reads go on', async () => {
    start({ rejectWhenReadOnly: true, split: { readFunctions: ['get'] } })
    const client = await scene.login()
    scene.peer().broadcast('box.status', new Map([['is_ro', true]]))
    await scene.clock.settle()
    const before = scene.peer().requests.length
    for (const request of [insertRequest(512, [1]), callRequest('put')]) {
      const { error } = await client.ask(request)
      expect([error.boxCode, error.fields.get('proxy'), error.fields.get('sent')]).toEqual([7, 'readonly', false])
    }
    expect(scene.peer().requests).toHaveLength(before)
    for (const request of [read, callRequest('get')]) expect((await client.ask(request)).type).toBe(0)
    expect((await client.ask(pingRequest())).type).toBe(0)
    scene.peer().broadcast('box.status', new Map([['is_ro', false]]))
    await scene.clock.settle()
    expect((await client.ask(insertRequest(512, [1]))).type).toBe(0)
  })

  it('the master refuses them by itself otherwise', async () => {
    start()
    const client = await scene.login()
    scene.peer().broadcast('box.status', new Map([['is_ro', true]]))
    await scene.clock.settle()
    expect((await client.ask(insertRequest(512, [1]))).type).toBe(0)
  })
})
