/* What clients are told when a target is lost: the state table of section 14 of the design. */
import { beginRequest, callRequest, executedOf, pingRequest, RequestType } from '@orbweaver/iproto'
import { afterEach, describe, expect, it } from 'vitest'
import { Scene, type SceneOptions } from './scene.js'

let scene: Scene
afterEach(() => scene.close())

function start(options: SceneOptions = {}): Scene {
  scene = new Scene(options)
  return scene
}

describe('a request', () => {
  it('that was sent when its lane is lost is answered with an unknown outcome, once', async () => {
    start()
    const client = await scene.login()
    for (let i = 0; i < 100; i++) client.send(callRequest('f', [i]), i)
    await scene.clock.until(() => scene.peer().requestsOf(RequestType.call).length === 100)
    scene.peer().cut()
    await scene.clock.advance(5_000)
    const answers = client.received.slice(1)
    expect(answers.map(({ sync }) => sync).toSorted((a, b) => Number(a) - Number(b))).toEqual(
      Array.from({ length: 100 }, (_, i) => i),
    )
    for (const { error } of answers) {
      expect([error.boxCode, error.fields.get('sent'), error.fields.get('proxy'), error.fields.get('target')]).toEqual([
        77,
        true,
        'lane_lost',
        'a',
      ])
      expect(error.message).toMatch(/^Connection is not established: /)
      expect(executedOf('dml', error.boxCode, error.fields)).toBe('unknown')
    }
    expect(scene.proxy.stats()).toMatchObject({ unknownOutcomes: 100, inFlight: 0 })
  })

  it('that was not sent waits for the next lane, and is carried out there once', async () => {
    start()
    scene.peer().handle(RequestType.call, (request) => request.reply(['done']))
    const client = await scene.login()
    scene.peer().cut()
    await scene.clock.settle()
    client.send(callRequest('f'), 1)
    expect((await client.reply(1)).type).toBe(0)
    expect(scene.peer().requestsOf(RequestType.call)).toHaveLength(1)
  })

  it('waits a second for a target that cannot be reached, and was surely not executed then', async () => {
    start()
    const client = await scene.login()
    scene.peer().refusal = new Error('connection refused')
    scene.peer().cut()
    await scene.clock.settle()
    const sentAt = scene.clock.now()
    const reply = await client.ask(callRequest('f'))
    expect(scene.clock.now() - sentAt).toBe(1_000)
    expect([reply.error.boxCode, reply.error.fields.get('sent')]).toEqual([77, false])
    expect(executedOf('dml', reply.error.boxCode, reply.error.fields)).toBe('no')
    scene.peer().refusal = undefined
    await scene.clock.advance(6_000)
    expect((await client.ask(pingRequest())).type).toBe(0)
  })

  it('is refused at once when no master is set', async () => {
    start({ peers: { a: {} }, rw: undefined } as unknown as SceneOptions)
    const client = await scene.client()
    expect((await client.ask(pingRequest())).error.boxCode).toBe(77)
  })

  it('of which a push was delivered is answered like any other that was sent', async () => {
    start()
    scene.peer().handle(RequestType.call, (request) => request.push(1))
    const client = await scene.login()
    client.send(callRequest('f'), 1)
    await scene.clock.settle()
    scene.peer().cut()
    expect((await client.reply(1)).error.fields.get('sent')).toBe(true)
    expect(client.received.map(({ type }) => type).slice(1, 2)).toEqual([128])
  })

  it('whose large reply was cut in the middle ends its client, and no other', async () => {
    start()
    const [one, other] = [await scene.login(), await scene.login()]
    one.send(callRequest('f'), 1)
    await scene.clock.settle()
    const head = Buffer.from('ce001000008300ce00000000 01cf0000000000000000 05ce00000050'.replaceAll(' ', ''), 'hex')
    const request = scene.peer().lastRequest
    head.writeBigUInt64BE(BigInt(request.sync), 14)
    request.session.raw(Buffer.concat([head, Buffer.alloc(300_000)]))
    await scene.clock.settle()
    scene.peer().cut()
    await scene.clock.settle()
    expect(one.isEnded).toBe(true)
    expect((await other.ask(pingRequest())).type).toBe(0)
  })

  it('may be given a limit of time; its late answer goes to nobody', async () => {
    start({ limits: { requestTimeoutMs: 500 } })
    const client = await scene.login()
    const reply = await client.ask(callRequest('f'))
    expect([reply.error.boxCode, reply.error.fields.get('sent')]).toEqual([78, true])
    scene.peer().lastRequest.reply(['late'])
    await scene.clock.settle()
    expect(client.received).toHaveLength(2)
    expect(scene.proxy.stats()).toMatchObject({ inFlight: 0, unexpectedReplies: 0 })
  })
})

describe('a target', () => {
  it('that says nothing any more is found out by its silence, and its lanes are closed', async () => {
    start()
    const client = await scene.login()
    scene.peer().handle(RequestType.ping, () => undefined)
    client.send(callRequest('f'), 1)
    const sentAt = scene.clock.now()
    const reply = await client.reply(1)
    expect(reply.error.fields.get('proxy')).toBe('lane_lost')
    expect(scene.clock.now() - sentAt).toBeLessThan(3_000 * 2 + 1_500)
    expect(scene.proxy.stats().targets[0]!.state).not.toBe('up')
    scene.peer().handle(RequestType.ping, undefined)
    await scene.clock.advance(10_000)
    expect(scene.proxy.stats().targets[0]!.state).toBe('up')
    expect((await client.ask(pingRequest())).type).toBe(0)
  })

  it('that greets with something else, in part, or not at all counts as not reached', async () => {
    start()
    const client = await scene.login()
    for (const step of ['greeting', 'half-greeting', 'id', 'auth'] as const) {
      scene.peer().silentFrom = step
      scene.peer().cut()
      await scene.clock.settle()
      expect((await client.ask(callRequest('f'))).error.fields.get('sent')).toBe(false)
    }
    scene.peer().silentFrom = undefined
    await scene.clock.advance(20_000)
    expect((await client.ask(pingRequest())).type).toBe(0)
  })

  it('that shuts down is left when all is answered, and what comes waits for its return', async () => {
    start()
    const client = await scene.login()
    client.send(callRequest('slow'), 1)
    await scene.clock.settle()
    scene.peer().broadcast('box.shutdown', true)
    await scene.clock.settle()
    client.send(pingRequest(), 2)
    await scene.clock.advance(500)
    expect(scene.proxy.stats()).toMatchObject({ isPaused: true, buffered: 1 })
    const sessions = scene.peer().sessions.slice()
    scene.peer().values.delete('box.shutdown')
    scene.peer().requestsOf(RequestType.call)[0]!.reply(['answered'])
    expect((await client.reply(1)).type).toBe(0)
    // Nobody of ours keeps the server from going, the watching connection neither.
    await scene.clock.settle()
    expect(sessions.some(({ open }) => open)).toBe(false)
    expect((await client.reply(2)).type).toBe(0)
  })

  it('that shuts down and does not answer in time is left nevertheless', async () => {
    start()
    const client = await scene.login()
    client.send(callRequest('slow'), 1)
    await scene.clock.settle()
    const startedAt = scene.clock.now()
    scene.peer().broadcast('box.shutdown', true)
    const reply = await client.reply(1)
    expect(reply.error.fields.get('sent')).toBe(true)
    expect(scene.clock.now() - startedAt).toBe(2_500)
  })

  it('that is down costs one attempt at a time, whoever waits for it', async () => {
    start({ limits: { connectWaitMs: 60_000 } })
    const clients = [await scene.login(), await scene.login('bob'), await scene.client()]
    let dials = 0
    const { address } = scene.peer()
    if (!('connect' in address)) throw new TypeError('A scripted peer is reached by a function')
    scene.peer().refusal = new Error('connection refused')
    const refusal = scene.peer().refusal!
    Object.defineProperty(scene.peer(), 'refusal', {
      configurable: true,
      get: () => {
        dials++
        return refusal
      },
    })
    scene.peer().cut()
    for (const client of clients) client.send(beginRequest(), 1, 1)
    await scene.clock.advance(30_000)
    // 100 ms doubled to 5 s: about ten attempts of the watching connection, and one of each login before that was known.
    expect(dials).toBeLessThan(30)
  })
})
