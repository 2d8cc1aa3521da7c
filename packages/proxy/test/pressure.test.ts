/* Nobody's appetite is anybody else's problem: section 13 of the design, field cases 6 and 7. */
import { callRequest, evalRequest, Key, pingRequest, RequestType } from '@orbweaver/iproto'
import { afterEach, describe, expect, it } from 'vitest'
import { Scene, type SceneOptions } from './scene.js'

let scene: Scene
afterEach(() => scene.close())

function start(options: SceneOptions = {}): Scene {
  scene = new Scene(options)
  return scene
}

describe('a client that sends too fast', () => {
  it('is not read beyond its requests in flight, and loses none of them', async () => {
    start({ limits: { maxInflightPerClient: 100 } })
    const client = await scene.login()
    for (let i = 0; i < 1_000; i++) client.send(callRequest('f', [i]), i)
    await scene.clock.advance(100)
    expect(scene.peer().requestsOf(RequestType.call).length).toBeLessThanOrEqual(110)
    scene.peer().handle(RequestType.call, (request) => request.reply([]))
    for (const request of scene.peer().requestsOf(RequestType.call)) request.reply([])
    await client.reply(999)
    expect(client.received.slice(1).map(({ sync }) => sync)).toEqual(Array.from({ length: 1_000 }, (_, i) => i))
  })

  it('waits no longer for its turn beside others than they do', async () => {
    start()
    const [greedy, modest] = [await scene.login(), await scene.login()]
    for (let i = 0; i < 500; i++) greedy.send(callRequest('greedy', [i]))
    await scene.clock.settle()
    modest.send(callRequest('modest'))
    await scene.clock.settle()
    expect(
      scene
        .peer()
        .requests.some(
          (request) => request.type === RequestType.call && request.body.text(Key.functionName) === 'modest',
        ),
    ).toBe(true)
  })

  it('gets no more of a full lane than the others', async () => {
    start({ limits: { maxInflightPerLane: 16 } })
    const [greedy, modest] = [await scene.login(), await scene.login()]
    const seen: string[] = []
    scene.peer().handle(RequestType.call, (request) => {
      seen.push(request.body.requireText(Key.functionName))
      scene.clock.schedule(1, () => request.reply([]))
    })
    for (let i = 0; i < 400; i++) greedy.send(callRequest('greedy'), i)
    for (let i = 0; i < 40; i++) modest.send(callRequest('modest'), i)
    await modest.reply(39)
    // One of each in turn: when the modest one is done, the greedy one has had about as many.
    expect(seen.filter((name) => name === 'greedy').length).toBeLessThan(40 + 40 + 16)
    await greedy.reply(399)
  })
})

describe('a large request', () => {
  it('does not hold up the small ones of others', async () => {
    start({ limits: { maxBacklogBytes: 64_000_000 } })
    const [large, small] = [await scene.login(), await scene.login()]
    const order: string[] = []
    scene.peer().handle(RequestType.call, (request) => {
      order.push(request.body.requireText(Key.functionName))
      request.reply([])
    })
    // Both have something to send all the time.
    for (let i = 0; i < 10; i++) large.send(callRequest('large', [Buffer.alloc(1_000_000)]), i)
    for (let i = 0; i < 200; i++) small.send(callRequest('small'), i)
    await Promise.all([small.reply(199), large.reply(9)])
    const lastSmall = order.lastIndexOf('small')
    expect(order.slice(0, lastSmall).filter((name) => name === 'large').length).toBeLessThan(6)
  })

  it('opens another lane while one is not enough, which goes when it is idle', async () => {
    start({ limits: { laneIdleMs: 5_000 } })
    const clients = await Promise.all(Array.from({ length: 4 }, () => scene.login()))
    for (const client of clients) for (let i = 0; i < 4; i++) client.send(callRequest('f', [Buffer.alloc(10_000)]), i)
    await scene.clock.advance(400)
    expect(scene.proxy.stats().lanes).toBeGreaterThan(1)
    expect(scene.proxy.stats().lanes).toBeLessThanOrEqual(8)
    for (const request of scene.peer().requestsOf(RequestType.call)) request.reply([])
    await scene.clock.advance(6_000)
    expect(scene.proxy.stats().lanes).toBe(0)
  })
})

describe('a huge reply', () => {
  it('opens another lane at once, so that others need not wait behind it', async () => {
    start()
    const [one, other] = [await scene.login(), await scene.login()]
    one.send(callRequest('huge'), 1)
    await scene.clock.settle()
    const request = scene.peer().lastRequest
    const head = Buffer.from('ce0060000083 00ce00000000 01cf0000000000000000 05ce00000050'.replaceAll(' ', ''), 'hex')
    head.writeBigUInt64BE(BigInt(request.sync), 14)
    request.session.raw(Buffer.concat([head, Buffer.alloc(300_000)]))
    await scene.clock.settle()
    expect(scene.proxy.stats().lanes).toBe(2)
    expect((await other.ask(pingRequest())).type).toBe(0)
    expect(scene.peer().requestsOf(RequestType.ping).at(-1)!.session).not.toBe(request.session)
  })
})

describe('a client that reads too slowly', () => {
  it('is not read while its replies wait, and closed when too many do; others go on', async () => {
    start({ limits: { clientOutSoftBytes: 1_000_000, clientOutHardBytes: 5_000_000 } })
    scene.peer().handle(RequestType.eval, (request) => request.reply([Buffer.alloc(100_000)]))
    const [slow, other] = [await scene.login(), await scene.login()]
    slow.transport.pauseReading()
    for (let i = 0; i < 40; i++) slow.send(evalRequest('big'), i)
    await scene.clock.advance(100)
    const served = scene.peer().requestsOf(RequestType.eval).length
    expect(served).toBeLessThanOrEqual(40)
    for (let i = 40; i < 80; i++) slow.send(evalRequest('big'), i)
    await scene.clock.advance(100)
    // Its requests are read no further: nothing more was asked for it.
    expect(scene.peer().requestsOf(RequestType.eval)).toHaveLength(served)
    expect((await other.ask(pingRequest())).type).toBe(0)
    slow.transport.resumeReading()
    await slow.reply(79)
    expect(slow.received).toHaveLength(81)
    slow.transport.pauseReading()
    scene.peer().handle(RequestType.eval, (request) => request.reply([Buffer.alloc(6_000_000)]))
    slow.send(evalRequest('bigger'), 100)
    await scene.clock.settle()
    expect(scene.proxy.stats()).toMatchObject({ clients: 1, slowReadersClosed: 1 })
    expect((await other.ask(pingRequest())).type).toBe(0)
  })

  it('gets a connection of its own, whose replies stay with the server, and stays', async () => {
    start({ limits: { clientOutSoftBytes: 100_000, clientOutPinBytes: 300_000, stallTimeoutMs: 1_000_000 } })
    scene.peer().handle(RequestType.eval, (request) => request.reply([Buffer.alloc(100_000)]))
    const [slow, other] = [await scene.login(), await scene.login()]
    slow.transport.pauseReading()
    for (let i = 0; i < 10; i++) slow.send(evalRequest('big'), i)
    await scene.clock.advance(100)
    expect(scene.proxy.stats().clientsBy.pinned).toBe(1)
    slow.transport.resumeReading()
    await slow.reply(9)
    slow.transport.pauseReading()
    scene.peer().handle(RequestType.eval, (request) => request.reply([Buffer.alloc(200_000)]))
    for (let i = 10; i < 60; i++) slow.send(evalRequest('big'), i)
    // Far longer than what counts as a sign of life: a server that is not read owes none.
    await scene.clock.advance(60_000)
    expect((await other.ask(pingRequest())).type).toBe(0)
    slow.transport.resumeReading()
    await slow.reply(59)
    expect(slow.received).toHaveLength(61)
    // Fast for long enough, it shares a connection again, and what it asks for works there.
    expect(scene.proxy.stats()).toMatchObject({ clientsBy: { pinned: 1 }, lanes: 2 })
    await scene.clock.advance(55_000)
    expect(scene.proxy.stats()).toMatchObject({ clientsBy: { pinned: 0 }, lanes: 1 })
    expect((await slow.ask(pingRequest())).type).toBe(0)
    expect(scene.proxy.stats().lanes).toBe(1)
  })

  it('is closed after a while without taking anything', async () => {
    start({ limits: { stallTimeoutMs: 10_000 } })
    scene.peer().handle(RequestType.eval, (request) => request.reply([Buffer.alloc(400_000)]))
    const slow = await scene.login()
    slow.transport.pauseReading()
    slow.send(evalRequest('big'), 1)
    await scene.clock.advance(25_000)
    expect(scene.proxy.stats().clients).toBe(0)
  })

  it('goes first when all together hold too much', async () => {
    start({ limits: { totalOutBytes: 3_000_000 } })
    scene
      .peer()
      .handle(RequestType.eval, (request) => request.reply([Buffer.alloc(Number(request.body.requireText(Key.expr)))]))
    const [small, large] = [await scene.login(), await scene.login()]
    for (const client of [small, large]) client.transport.pauseReading()
    small.send(evalRequest('1000000'), 1)
    large.send(evalRequest('2500000'), 1)
    await scene.clock.advance(1_000)
    expect(scene.proxy.stats().clients).toBe(1)
    small.transport.resumeReading()
    expect((await small.reply(1)).type).toBe(0)
  })
})

describe('too many clients', () => {
  it('of one user are refused at their login, and stay guests', async () => {
    start({ limits: { maxClientsPerUser: 2 } })
    await scene.login()
    const second = await scene.login()
    const third = await scene.client()
    expect((await third.ask(third.auth('alice', 'secret'))).error.boxCode).toBe(5)
    second.transport.destroy()
    await scene.clock.settle()
    expect((await third.ask(third.auth('alice', 'secret'))).type).toBe(0)
  })

  it('in all are refused, and those that are there do not notice', async () => {
    start({ limits: { maxClients: 2 } })
    const one = await scene.login()
    const two = await scene.client()
    const surplus = await scene.client()
    await scene.clock.until(() => surplus.isEnded)
    expect(surplus.received.map(({ sync, error }) => [sync, error.boxCode])).toEqual([[0, 5]])
    expect((await one.ask(pingRequest())).type).toBe(0)
    two.transport.destroy()
    await scene.clock.settle()
    expect((await (await scene.client()).ask(pingRequest())).type).toBe(0)
  })
})
