/* The end of the proxy and of clients: sections 4 and 21 of the design. */
import { beginRequest, callRequest, pingRequest, RequestType, watchRequest } from '@orbweaver/iproto'
import { afterEach, describe, expect, it } from 'vitest'
import { Scene, type SceneOptions } from './scene.js'

let scene: Scene
afterEach(() => scene.close())

function start(options: SceneOptions = {}): Scene {
  scene = new Scene(options)
  return scene
}

describe('close', () => {
  it('lets clients that watch its end finish, and ends when they have gone', async () => {
    start()
    const client = await scene.login()
    client.send(watchRequest('box.shutdown'), 1)
    await scene.clock.settle()
    client.send(watchRequest('box.shutdown'), 2)
    client.send(callRequest('slow'), 3)
    await scene.clock.settle()
    const closing = scene.proxy.close({ graceMs: 10_000 })
    await scene.clock.advance(2_000)
    expect(client.received.filter(({ type }) => type === RequestType.event)).toHaveLength(2)
    scene.peer().requestsOf(RequestType.call)[0]!.reply(['done'])
    expect((await client.reply(3)).type).toBe(0)
    expect((await client.ask(pingRequest())).type).toBe(0)
    const endsAt = scene.clock.now()
    client.transport.destroy()
    await scene.clock.run(closing)
    expect(scene.clock.now() - endsAt).toBeLessThan(100)
  })

  it('closes idle clients that do not watch after a second, and leaves busy ones', async () => {
    start()
    const [idle, busy] = [await scene.login(), await scene.login()]
    busy.send(callRequest('slow'), 1)
    await scene.clock.settle()
    void scene.proxy.close({ graceMs: 10_000 })
    await scene.clock.advance(1_100)
    expect([idle.isEnded, busy.isEnded]).toEqual([true, false])
    scene.peer().requestsOf(RequestType.call)[0]!.reply(['done'])
    expect((await busy.reply(1)).type).toBe(0)
  })

  it('leaves no request without an answer when the time is over', async () => {
    start()
    const clients = await Promise.all(Array.from({ length: 20 }, () => scene.login()))
    for (const client of clients) client.send(callRequest('slow'), 1)
    await scene.clock.settle()
    scene.proxy.pause()
    for (const client of clients) client.send(callRequest('waiting'), 2)
    const closing = scene.proxy.close({ graceMs: 500 })
    await scene.clock.run(closing)
    for (const client of clients) {
      expect((await client.reply(1)).error.fields.get('sent')).toBe(true)
      expect([(await client.reply(2)).error.boxCode, (await client.reply(2)).error.fields.get('sent')]).toEqual([
        279,
        false,
      ])
      expect(client.isEnded).toBe(true)
    }
    expect(scene.peer().sessions.some(({ open }) => open)).toBe(false)
    expect(scene.clock.pendingTimers).toBe(0)
  })

  it('may be called again, and by a paused proxy that then goes on', async () => {
    start()
    const client = await scene.login()
    scene.proxy.pause()
    client.send(pingRequest(), 1)
    const closing = scene.proxy.close({ graceMs: 5_000 })
    expect(scene.proxy.close()).toBe(closing)
    await scene.clock.advance(200)
    scene.proxy.resume()
    expect((await client.reply(1)).type).toBe(0)
    await scene.clock.run(closing)
  })

  it('leaves no timer and no connection behind', async () => {
    start()
    const client = await scene.login()
    client.send(beginRequest(), 1, 1)
    client.transport.destroy()
    await scene.clock.settle()
    await scene.clock.run(scene.proxy.close({ graceMs: 0 }))
    expect(scene.clock.pendingTimers).toBe(0)
    expect(scene.peer().sessions.some(({ open }) => open)).toBe(false)
  })
})

describe('a client that says it sends no more', () => {
  it('has everything carried out that it had sent completely, and its slots come back', async () => {
    start()
    scene.peer().handle(RequestType.call, (request) => scene.clock.schedule(5, () => request.reply([])))
    for (let round = 1; round <= 100; round++) {
      const client = await scene.client()
      for (let i = 0; i < 20; i++) client.send(callRequest('f'), i)
      client.transport.end()
      await scene.clock.advance(20)
      expect(scene.peer().requestsOf(RequestType.call)).toHaveLength(20 * round)
    }
    expect(scene.proxy.stats()).toMatchObject({ clients: 0, inFlight: 0 })
  })

  it('has also those carried out that were not read yet, because too many were in flight', async () => {
    start({ limits: { maxInflightPerClient: 8 } })
    scene.peer().handle(RequestType.call, (request) => scene.clock.schedule(5, () => request.reply([])))
    const client = await scene.client()
    for (let i = 0; i < 100; i++) client.send(callRequest('f'), i)
    client.transport.end()
    await scene.clock.advance(1_000)
    expect(scene.peer().requestsOf(RequestType.call)).toHaveLength(100)
  })
})
