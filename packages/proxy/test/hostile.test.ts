/* Broken and hostile input: section 24 of the design. */
import { type Transport, transportPair } from '@orbweaver/connection'
import { uuidOf, type VirtualClock } from '@orbweaver/connection/testing'
import {
  beginRequest,
  callRequest,
  executeRequest,
  formatGreeting,
  FrameHeader,
  FrameReader,
  FrameWriter,
  insertRequest,
  Key,
  pingRequest,
  prepareRequest,
  RequestType,
  selectRequest,
  watchRequest,
} from '@orbweaver/iproto'
import { afterEach, describe, expect, it } from 'vitest'
import { frameOf, Scene, type SceneOptions } from './scene.js'

let scene: Scene
afterEach(() => scene.close())

function start(options: SceneOptions = {}): Scene {
  scene = new Scene(options)
  scene.peer().handle(RequestType.call, (request) => request.reply([1]))
  return scene
}

const hex = (text: string): Buffer => Buffer.from(text.replaceAll(' ', ''), 'hex')

describe('input that is no frame', () => {
  it.each([
    ['a length that is no uint', 'a1 00'],
    ['a length above the limit', 'ce 7f ff ff ff 00'],
  ])('%s is answered with error 20 under sync 0, and the end', async (_name, bytes) => {
    start()
    const client = await scene.client()
    client.raw(hex(bytes))
    await scene.clock.until(() => client.isEnded)
    expect(client.received.map(({ sync, error }) => [sync, error.boxCode])).toEqual([[0, 20]])
  })

  it.each([
    ['TLS', hex('16 03 01 02 00 01 00 01 fc 03 03')],
    ['HTTP', Buffer.from('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n')],
  ])('of %s ends the connection at once', async (_name, bytes) => {
    start()
    const client = await scene.client()
    client.raw(bytes)
    await scene.clock.settle()
    expect([client.isEnded, client.received.length]).toEqual([true, 0])
  })

  it.each([
    ['a header that is no map', 'ce 00 00 00 01 c0'],
    ['a header key that is text', 'ce 00 00 00 04 81 a1 61 01'],
    ['a negative sync', 'ce 00 00 00 05 82 00 40 01 ff'],
    ['a sync that is a float', 'ce 00 00 00 0d 82 00 40 01 cb 00 00 00 00 00 00 00 00'],
    ['an empty frame', 'ce 00 00 00 00'],
  ])('%s is answered with error 20 under sync 0, and the connection stays', async (_name, bytes) => {
    start()
    const client = await scene.client()
    client.raw(hex(bytes))
    expect((await client.reply(0)).error.boxCode).toBe(20)
    expect((await client.ask(pingRequest())).type).toBe(0)
  })

  it('ends the connection when there is too much of it', async () => {
    start()
    const client = await scene.client()
    for (let i = 0; i < 10; i++) client.raw(hex('ce 00 00 00 01 c0'))
    await scene.clock.until(() => client.isEnded)
    expect(client.received).toHaveLength(10)
  })

  it('ends the connection when a frame stays incomplete', async () => {
    start({ limits: { frameTimeoutMs: 30_000 } })
    const client = await scene.client()
    client.raw(hex('ce 00 00 00 10 82'))
    await scene.clock.advance(29_000)
    expect(client.isEnded).toBe(false)
    await scene.clock.advance(2_000)
    expect(client.isEnded).toBe(true)
  })
})

describe('a client that says nothing', () => {
  it('is closed after a minute, unless the options say otherwise', async () => {
    start()
    const client = await scene.client()
    await scene.clock.advance(59_000)
    expect(client.isEnded).toBe(false)
    await scene.clock.advance(2_000)
    expect(client.isEnded).toBe(true)
  })

  it('may stay once it has asked for something', async () => {
    start()
    const client = await scene.client()
    await client.ask(pingRequest())
    await scene.clock.advance(600_000)
    expect((await client.ask(pingRequest())).type).toBe(0)
  })
})

describe('a frame', () => {
  it.each([
    '03 81 00 40',
    'cc 03 81 00 40',
    'cd 00 03 81 00 40',
    'ce 00 00 00 03 81 00 40',
    'cf 00 00 00 00 00 00 00 03 81 00 40',
  ])('may have its length in any form: %s', async (bytes) => {
    start()
    const client = await scene.client()
    client.raw(hex(bytes))
    expect((await client.reply(0)).type).toBe(0)
  })

  it('may have its header in any order and form, and only what a server knows goes on', async () => {
    start()
    const client = await scene.client()
    // sync in eight bytes first, an unknown key, a schema version, the type last
    client.raw(hex('ce 00 00 00 13 84 01 cf 00 00 00 00 00 00 00 07 7e c0 05 50 00 cc 0a 80'))
    await client.reply(7)
    const [request] = scene.peer().requestsOf(RequestType.call)
    expect(request!.schemaVersion).toBe(80)
    expect(request!.frame.includes(0x7e)).toBe(false)
  })

  it('with a body that is none goes on: its server refuses it, and can say to whom', async () => {
    start()
    const client = await scene.login()
    const other = await scene.login()
    scene.peer().handle(RequestType.select, (request) => request.error(20, 'Invalid MsgPack - packet body'))
    client.raw(hex('ce 00 00 00 05 82 00 01 01 09'))
    expect((await client.reply(9)).error.boxCode).toBe(20)
    expect((await other.ask(pingRequest())).type).toBe(0)
  })
})

describe('mutated frames', () => {
  it('never break the proxy, its lanes, or another client', async () => {
    const backend = new CarelessServer()
    start({
      limits: { maxMalformedFrames: 1_000_000 },
      others: { careless: () => backend.accept(scene.clock) },
      rw: 'careless',
    })
    const other = await scene.client()
    const valid = [
      frameOf(callRequest('f', [1, 'two', [3]]), 5),
      frameOf(insertRequest(512, [1, 'x']), 2n ** 63n),
      frameOf(selectRequest({ space: 512 }), 77, 3),
      frameOf(beginRequest(), 78, 3),
      frameOf(prepareRequest('SELECT 1'), 79),
      frameOf(executeRequest(5), 80),
      frameOf(watchRequest('key'), 81),
      frameOf(callRequest('vshard.storage._call', ['storage_ref', 1]), 82),
      frameOf(other.identify([0, 1, 2]), 83),
      frameOf(other.auth('alice', 'secret'), 84),
      frameOf(pingRequest(), 0),
    ].map((chunks) => Buffer.concat(chunks))
    const random = seeded(20)
    const pick = (below: number): number => Math.floor(random() * below)
    for (let run = 0; run < ROUNDS; run++) {
      const client = await scene.client()
      const frames: Buffer[] = []
      for (let i = 0; i < FRAMES_PER_ROUND; i++) {
        const frame = Buffer.from(valid[pick(valid.length)]!)
        for (let n = pick(4); n > 0; n--)
          frame[random() < 0.9 ? 5 + pick(frame.length - 5) : pick(frame.length)] = pick(256)
        frames.push(frame)
      }
      const bytes = Buffer.concat(frames)
      const cut = pick(bytes.length)
      client.raw(bytes.subarray(0, cut))
      client.raw(bytes.subarray(cut))
      await scene.clock.settle()
      client.transport.destroy()
      const reply = await other.ask(pingRequest())
      expect(reply.type).toBe(0)
    }
    await scene.clock.advance(3_000)
    expect(scene.proxy.stats()).toMatchObject({ clients: 1, unexpectedReplies: 0, inFlight: 0, watchKeys: 0 })
    expect(backend.frames).toBeGreaterThan(ROUNDS)
  })
})

const ROUNDS = 500
const FRAMES_PER_ROUND = 100

function seeded(seed: number): () => number {
  let state = seed
  return () => (state = (state * 1_103_515_245 + 12_345) & 0x7fff_ffff) / 0x7fff_ffff
}

/** Answers everything with an empty success, looking at headers only. */
class CarelessServer {
  frames = 0

  accept(clock: VirtualClock): Transport {
    const [client, server] = transportPair(clock)
    const reader = new FrameReader({ maxFrameBytes: 1 << 26 })
    const header = new FrameHeader()
    const writer = new FrameWriter()
    server.attach({
      data: (chunk) => {
        reader.push(chunk)
        for (let frame = reader.next(); frame !== undefined; frame = reader.next()) {
          this.frames++
          header.read(frame)
          if (header.type === RequestType.watch || header.type === RequestType.unwatch) continue
          writer.beginReply(RequestType.ok, header.syncHigh, header.syncLow, 7)
          const isId = header.type === RequestType.id
          writer.mapHeader(isId ? 2 : 0)
          if (isId) {
            writer.uint(Key.version)
            writer.uint(7)
            writer.uint(Key.features)
            writer.value([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
          }
          writer.end()
        }
        server.write(writer.take())
      },
      drain: () => undefined,
      end: () => server.end(),
      closed: () => undefined,
    })
    server.write([formatGreeting({ version: '3.2.1', uuid: uuidOf('careless'), salt: Buffer.alloc(32, 1) })])
    return client
  }
}
