/* Many clients on one connection: every answer finds the one who asked. Field cases 1 and 2 of the proxy. */
import { callRequest, evalRequest, Key, pingRequest, RequestType } from '@orbweaver/iproto'
import { afterEach, describe, expect, it } from 'vitest'
import { type RawClient, Scene, type SceneOptions } from './scene.js'

let scene: Scene
afterEach(() => scene.close())

function start(options: SceneOptions = {}): Scene {
  scene = new Scene(options)
  return scene
}

/** Makes a scripted server answer CALL with its arguments. */
function echo(name = 'a'): void {
  scene.peer(name).handle(RequestType.call, (request) => request.reply(request.body.requireArray(Key.tuple)))
}

/** A generator of numbers from a seed. */
function seeded(seed: number): () => number {
  let state = seed
  return () => {
    state = (state * 1_103_515_245 + 12_345) & 0x7fff_ffff
    return state / 0x7fff_ffff
  }
}

describe('sharing one connection', () => {
  it('opens one for all clients of a user, and another for another user', async () => {
    start()
    echo()
    for (const user of ['alice', 'alice', 'bob', 'alice']) {
      const client = await scene.login(user)
      await client.ask(callRequest('f', [user]))
    }
    expect(scene.proxy.stats()).toMatchObject({ clients: 4, lanes: 2 })
    // One more: the connection that watches the target.
    expect(scene.peer().sessions.filter(({ open }) => open)).toHaveLength(3)
  })

  it.each([0, 1, 2 ** 32, 2n ** 63n, 2n ** 64n - 1n])(
    'restores the sync %s of two clients that chose the same',
    async (sync) => {
      start()
      echo()
      const [one, two] = [await scene.login(), await scene.login()]
      one.send(callRequest('f', ['one']), sync)
      two.send(callRequest('f', ['two']), sync)
      expect((await one.reply(sync)).body.value(Key.data)).toEqual(['one'])
      expect((await two.reply(sync)).body.value(Key.data)).toEqual(['two'])
    },
  )

  it('lets one client have several requests of one sync in flight', async () => {
    start()
    const client = await scene.login()
    for (const value of [1, 2, 3]) client.send(callRequest('f', [value]), 7)
    await scene.clock.until(() => scene.peer().requestsOf(RequestType.call).length === 3)
    for (const request of scene.peer().requestsOf(RequestType.call).toReversed()) {
      request.reply(request.body.requireArray(Key.tuple))
    }
    await scene.clock.settle()
    expect(client.received.slice(1).map(({ sync, body }) => [sync, body.value(Key.data)])).toEqual([
      [7, [3]],
      [7, [2]],
      [7, [1]],
    ])
  })

  it('delivers pushes in order, before the final reply', async () => {
    start()
    scene.peer().handle(RequestType.eval, (request) => {
      for (const value of [1, 2, 3]) request.push(value)
      request.reply(['done'])
    })
    const client = await scene.login()
    client.send(evalRequest('…'), 5)
    await client.reply(5)
    expect(client.received.slice(1).map(({ type, body }) => [type, body.value(Key.data)])).toEqual([
      [128, [1]],
      [128, [2]],
      [128, [3]],
      [0, ['done']],
    ])
  })

  it('drops the answers of a client that has gone, and nobody else notices', async () => {
    start()
    const [going, staying] = [await scene.login(), await scene.login()]
    for (let i = 0; i < 500; i++) going.send(callRequest('f', [i]))
    await scene.clock.until(() => scene.peer().requestsOf(RequestType.call).length === 500)
    going.transport.destroy()
    await scene.clock.settle()
    expect(scene.proxy.stats()).toMatchObject({ clients: 1, inFlight: 500 })
    staying.send(callRequest('f', ['mine']), 9)
    await scene.clock.settle()
    for (const request of scene.peer().requestsOf(RequestType.call)) request.reply(request.body.requireArray(Key.tuple))
    expect((await staying.reply(9)).body.value(Key.data)).toEqual(['mine'])
    expect(staying.received).toHaveLength(2)
    expect(scene.proxy.stats()).toMatchObject({ inFlight: 0, lanes: 1, unexpectedReplies: 0 })
  })

  it('keeps the lane of clients that come, send and reset all the time', async () => {
    start()
    const random = seeded(7)
    scene.peer().handle(RequestType.call, (request) => {
      if (random() < 0.5) request.reply([])
    })
    const watcher = await scene.login()
    for (let i = 0; i < 200; i++) {
      const client = await scene.login()
      client.send(callRequest('f', [i]))
      if (random() < 0.5) client.send(pingRequest())
      if (random() < 0.5) await scene.clock.settle()
      client.transport.destroy()
    }
    await scene.clock.settle()
    expect(scene.proxy.stats()).toMatchObject({ clients: 1, lanes: 1, lanesOpened: 1 })
    expect((await watcher.ask(pingRequest())).type).toBe(0)
  })

  it('never misdelivers over random delays, disconnects and lost lanes', async () => {
    start({ limits: { connectWaitMs: 100_000 } })
    const random = seeded(42)
    // Answers come in any order, some never; the connection to the server breaks now and then.
    scene.peer().handle(RequestType.call, (request) => {
      scene.clock.schedule(Math.floor(random() * 20), () => request.reply(request.body.requireArray(Key.tuple)))
    })
    const clients: { raw: RawClient; asked: number }[] = []
    let wrong = 0
    let answered = 0
    let lost = 0
    const check = (raw: RawClient, number: number): void => {
      for (const { type, sync, body, frame } of raw.received.splice(0)) {
        if (sync >= 1_000_000) continue
        if (type === 0) {
          answered++
          const [who, which] = body.value(Key.data) as [number, number]
          if (who !== number || which !== sync) wrong++
        } else {
          lost++
          expect(frame.includes('outcome unknown')).toBe(true)
        }
      }
    }
    let next = 0
    const numbers = new Map<RawClient, number>()
    for (let round = 0; round < 300; round++) {
      if (clients.length < 20) {
        const raw = await scene.login()
        numbers.set(raw, next++)
        clients.push({ raw, asked: 0 })
      }
      for (const client of clients) {
        const burst = Math.floor(random() * 4)
        for (let i = 0; i < burst; i++) {
          client.asked++
          client.raw.send(callRequest('f', [numbers.get(client.raw), client.asked]), client.asked)
        }
      }
      await scene.clock.advance(Math.floor(random() * 5))
      if (random() < 0.03) scene.peer().cut()
      if (random() < 0.1) {
        const [gone] = clients.splice(Math.floor(random() * clients.length), 1)
        check(gone!.raw, numbers.get(gone!.raw)!)
        gone!.raw.transport.destroy()
      }
      for (const { raw } of clients) check(raw, numbers.get(raw)!)
    }
    await scene.clock.advance(10_000)
    for (const { raw } of clients) check(raw, numbers.get(raw)!)
    expect(wrong).toBe(0)
    expect(answered).toBeGreaterThan(2_000)
    expect(lost).toBeGreaterThan(0)
    expect(scene.proxy.stats()).toMatchObject({ inFlight: 0, unexpectedReplies: 0 })
  })
})

describe('a reply', () => {
  it('of a size that comes in pieces is whole again at the client, and others wait behind it', async () => {
    start()
    const large = Buffer.alloc(3_000_000, 7)
    scene.peer().handle(RequestType.call, (request) => request.reply([request.body.requireArray(Key.tuple)[0], large]))
    const client = await scene.login()
    client.send(callRequest('f', [1]), 1)
    client.send(callRequest('f', [2]), 2)
    client.send(pingRequest(), 3)
    for (const sync of [1, 2]) {
      const [number, bytes] = (await client.reply(sync)).body.value(Key.data) as [number, Buffer]
      expect([number, large.equals(bytes)]).toEqual([sync, true])
    }
    expect((await client.reply(3)).type).toBe(0)
  })

  it('nobody asked for is dropped, and too many of them end the lane', async () => {
    start()
    const client = await scene.login()
    await client.ask(pingRequest())
    const lane = scene.peer().session
    for (let i = 0; i < 10; i++) lane.frame(0, 12_345 + i, (out) => out.mapHeader(0))
    await scene.clock.settle()
    expect(scene.proxy.stats().unexpectedReplies).toBe(10)
    expect(client.received).toHaveLength(2)
    for (let i = 0; i < 10; i++) lane.frame(0, 12_345 + i, (out) => out.mapHeader(0))
    await scene.clock.settle()
    expect(lane.open).toBe(false)
    expect((await client.ask(pingRequest())).type).toBe(0)
  })

  it('keeps its order where a client writes and then reads', async () => {
    start()
    const client = await scene.login()
    for (let i = 0; i < 100; i++) client.send(callRequest('f', [i]), i)
    await scene.clock.until(() => scene.peer().requestsOf(RequestType.call).length === 100)
    const order = scene
      .peer()
      .requestsOf(RequestType.call)
      .map((request) => request.body.requireArray(Key.tuple)[0])
    expect(order).toEqual(Array.from({ length: 100 }, (_, i) => i))
  })
})
