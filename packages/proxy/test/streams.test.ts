/* Transactions over shared lanes: section 9 of the design, with its dangerous corner. */
import {
  beginRequest,
  commitRequest,
  evalRequest,
  executeRequest,
  insertRequest,
  Key,
  pingRequest,
  rollbackRequest,
  RequestType,
  selectRequest,
  watchRequest,
} from '@orbweaver/iproto'
import type { PeerRequest } from '@orbweaver/connection/testing'
import { afterEach, describe, expect, it } from 'vitest'
import { Scene, type SceneOptions } from './scene.js'

let scene: Scene
afterEach(() => scene.close())

/** Streams with a transaction, by session and number: what a server would know. */
let open: Set<string>

function start(options: SceneOptions = {}): Scene {
  scene = new Scene(options)
  open = new Set()
  const key = (request: PeerRequest): string => `${scene.peer().sessions.indexOf(request.session)}:${request.streamId}`
  for (const peer of Object.values(scene.peers)) {
    peer.handle(RequestType.begin, (request) => {
      if (open.has(key(request)))
        return request.error(79, 'Operation is not permitted when there is an active transaction')
      open.add(key(request))
      return request.ok()
    })
    // A server says OK to a COMMIT without a transaction: that is the danger.
    for (const type of [RequestType.commit, RequestType.rollback]) {
      peer.handle(type, (request) => {
        open.delete(key(request))
        request.ok()
      })
    }
    for (const type of [RequestType.insert, RequestType.select]) peer.handle(type, (request) => request.reply([]))
    peer.handle(RequestType.eval, (request) => {
      if (request.body.requireText(Key.expr) === 'box.begin()') open.add(key(request))
      request.reply([])
    })
  }
  return scene
}

describe('streams', () => {
  it('of two clients with one number are two streams', async () => {
    start()
    const [one, two] = [await scene.login(), await scene.login()]
    expect((await one.ask(beginRequest(), 1)).type).toBe(0)
    expect((await two.ask(beginRequest(), 1)).type).toBe(0)
    const ids = scene
      .peer()
      .requestsOf(RequestType.begin)
      .map(({ streamId }) => streamId)
    expect(new Set(ids).size).toBe(2)
    expect((await one.ask(commitRequest(), 1)).type).toBe(0)
    expect((await two.ask(rollbackRequest(), 1)).type).toBe(0)
    expect(open.size).toBe(0)
  })

  it.each([1, 2 ** 32, 2n ** 64n - 1n])('may have the number %s', async (id) => {
    start()
    const client = await scene.login()
    await client.ask(beginRequest(), id)
    await client.ask(insertRequest(512, [1]), id)
    expect(
      new Set(
        scene
          .peer()
          .requests.slice(-2)
          .map(({ streamId }) => streamId),
      ).size,
    ).toBe(1)
    expect((await client.ask(commitRequest(), id)).type).toBe(0)
  })

  it('stay together on the wire when everything is sent at once', async () => {
    start()
    const client = await scene.login()
    client.send(beginRequest(), 1, 5)
    client.send(insertRequest(512, [1]), 2, 5)
    client.send(commitRequest(), 3, 5)
    await client.reply(3)
    const seen = scene.peer().requests.filter(({ streamId }) => streamId !== 0)
    expect(seen.map(({ type }) => type)).toEqual([RequestType.begin, RequestType.insert, RequestType.commit])
    expect(new Set(seen.map(({ streamId }) => streamId)).size).toBe(1)
  })

  it('are not sent to a server that would ignore them', async () => {
    start({ peers: { a: { version: '2.6.0' } } })
    const client = await scene.login()
    expect(client.version).toBe('2.6.0')
    expect((await client.ask(beginRequest(), 1)).error.boxCode).toBe(48)
    expect((await client.ask(insertRequest(512, [1]), 1)).error.boxCode).toBe(5)
    expect(scene.peer().requests.filter(({ type }) => type !== RequestType.ping)).toEqual([])
  })

  it('refuse what a server refuses in them', async () => {
    start()
    const client = await scene.login()
    for (const request of [watchRequest('k'), client.identify([]), client.auth('alice', 'secret')]) {
      expect((await client.ask(request, 1)).error.boxCode).toBe(229)
    }
  })

  it('leave other requests of their client shared', async () => {
    start()
    const [one, two] = [await scene.login(), await scene.login()]
    await one.ask(beginRequest(), 1)
    expect((await one.ask(pingRequest())).type).toBe(0)
    expect((await two.ask(pingRequest())).type).toBe(0)
    expect(scene.proxy.stats().lanes).toBe(1)
  })

  it('are rolled back when their client goes, before and after the answer', async () => {
    start()
    const client = await scene.login()
    await client.ask(beginRequest(), 1)
    client.send(beginRequest(), 900, 2)
    client.send(insertRequest(512, [1]), 901, 2)
    await scene.clock.settle()
    client.transport.destroy()
    await scene.clock.settle()
    expect(open.size).toBe(0)
    expect(scene.proxy.stats()).toMatchObject({ clients: 0, lanes: 1, inFlight: 0 })
  })

  it('are limited in number on one lane', async () => {
    start({ limits: { maxOpenTransactionsPerLane: 2 } })
    const client = await scene.login()
    await client.ask(beginRequest(), 1)
    await client.ask(beginRequest(), 2)
    expect((await client.ask(beginRequest(), 3)).error.boxCode).toBe(5)
    await client.ask(commitRequest(), 1)
    expect((await client.ask(beginRequest(), 3)).type).toBe(0)
  })

  it('are rolled back and broken when nothing comes for too long', async () => {
    start({ limits: { idleInTransactionMs: 2_000 } })
    const client = await scene.login()
    await client.ask(beginRequest(), 1)
    await scene.clock.advance(1_500)
    await client.ask(insertRequest(512, [1]), 1)
    await scene.clock.advance(1_500)
    expect(open.size).toBe(1)
    await scene.clock.advance(1_000)
    expect(open.size).toBe(0)
    expect((await client.ask(commitRequest(), 1)).error.boxCode).toBe(97)
    expect((await client.ask(beginRequest(), 1)).type).toBe(0)
  })
})

describe('a stream whose lane was lost', () => {
  async function broken(): Promise<Awaited<ReturnType<Scene['login']>>> {
    start()
    const client = await scene.login()
    await client.ask(beginRequest(), 1)
    await client.ask(insertRequest(512, [1]), 1)
    scene.peer().cut()
    await scene.clock.advance(500)
    return client
  }

  it('never says that its transaction was committed', async () => {
    const client = await broken()
    const reply = await client.ask(commitRequest(), 1)
    expect(reply.error.boxCode).toBe(97)
    expect(reply.error.message).toMatch(/^Transaction has been aborted by conflict/)
    expect(scene.peer().requestsOf(RequestType.commit)).toEqual([])
  })

  it('sends nothing of it to a server until the client has heard of it', async () => {
    const client = await broken()
    expect((await client.ask(insertRequest(512, [2]), 1)).error.boxCode).toBe(97)
    expect((await client.ask(selectRequest({ space: 512 }), 1)).error.boxCode).toBe(97)
    expect(scene.peer().requestsOf(RequestType.insert)).toHaveLength(1)
  })

  it('says OK to ROLLBACK, and begins afresh', async () => {
    const client = await broken()
    expect((await client.ask(rollbackRequest(), 1)).type).toBe(0)
    expect(scene.peer().requestsOf(RequestType.rollback)).toEqual([])
    expect((await client.ask(beginRequest(), 1)).type).toBe(0)
    expect((await client.ask(commitRequest(), 1)).type).toBe(0)
  })

  it('begins afresh with BEGIN alone', async () => {
    const client = await broken()
    expect((await client.ask(beginRequest(), 1)).type).toBe(0)
    expect((await client.ask(commitRequest(), 1)).type).toBe(0)
    expect(scene.peer().requestsOf(RequestType.commit)).toHaveLength(1)
  })

  it('is broken however soon the server is back, and with requests still in the proxy', async () => {
    start()
    const client = await scene.login()
    await client.ask(beginRequest(), 1)
    scene.peer().session.destroy()
    for (const session of scene.peer().sessions) session.destroy()
    client.send(insertRequest(512, [2]), 10, 1)
    client.send(commitRequest(), 11, 1)
    expect((await client.reply(10)).error.boxCode).toBeOneOf([77, 97])
    expect((await client.reply(11)).error.boxCode).toBeOneOf([77, 97])
    expect(scene.peer().requestsOf(RequestType.commit)).toEqual([])
  })

  it('answers with an unknown outcome what had been sent', async () => {
    start()
    scene.peer().handle(RequestType.commit, () => undefined)
    const client = await scene.login()
    await client.ask(beginRequest(), 1)
    client.send(commitRequest(), 20, 1)
    await scene.clock.settle()
    scene.peer().cut()
    const reply = await client.reply(20)
    expect([reply.error.boxCode, reply.error.fields.get('sent')]).toEqual([77, true])
  })
})

describe('a transaction that code began', () => {
  it('is found by asking the server, and not broken up', async () => {
    start()
    const client = await scene.login()
    await client.ask(evalRequest('box.begin()'), 1)
    await scene.clock.advance(1_500)
    expect(open.size).toBe(1)
    await client.ask(insertRequest(512, [1]), 1)
    scene.peer().cut()
    await scene.clock.settle()
    expect((await client.ask(commitRequest(), 1)).error.boxCode).toBe(97)
  })

  it('leaves nothing behind when there was none', async () => {
    start()
    const client = await scene.login()
    await client.ask(evalRequest('return 1'), 1)
    await scene.clock.advance(1_500)
    expect(open.size).toBe(0)
    expect(scene.peer().requestsOf(RequestType.rollback)).toHaveLength(1)
    scene.peer().cut()
    await scene.clock.advance(500)
    expect((await client.ask(evalRequest('return 1'), 1)).type).toBe(0)
  })

  it('may also begin by SQL', async () => {
    start()
    scene.peer().handle(RequestType.execute, (request) => {
      open.add(`${scene.peer().sessions.indexOf(request.session)}:${request.streamId}`)
      request.ok()
    })
    const client = await scene.login()
    await client.ask(executeRequest('START TRANSACTION'), 1)
    scene.peer().cut()
    await scene.clock.settle()
    expect((await client.ask(commitRequest(), 1)).error.boxCode).toBe(97)
  })
})
