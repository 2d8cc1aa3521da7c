import { formatGreeting, type OrbweaverError } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import {
  AuthError,
  type ChannelSink,
  ConnectError,
  type FrameChannel,
  type LargeFrame,
  openChannel,
  type Transport,
  transportPair,
} from '../src/index.js'
import { ScriptedPeer, VirtualClock } from '../src/testing/index.js'
import { outcome } from './rig.js'

const FEATURES = [0, 1, 2, 3, 4, 5, 6]

function environment(clock: VirtualClock): {
  clock: VirtualClock
  random: () => number
  dial: () => Promise<Transport>
} {
  return { clock, random: () => 0.5, dial: () => Promise.reject(new Error('not dialled here')) }
}

function dial(peer: ScriptedPeer): Transport {
  if (!('connect' in peer.address)) throw new Error('A scripted peer is reached in memory')
  return peer.address.connect()
}

class Frames implements ChannelSink {
  readonly frames: Buffer[] = []
  cause: OrbweaverError | undefined
  drains = 0

  frame(frame: Buffer): void {
    this.frames.push(frame)
  }

  drain(): void {
    this.drains += 1
  }

  closed(cause: OrbweaverError): void {
    this.cause = cause
  }
}

/** A transport whose peer is bytes: what the test writes into `server`. */
function raw(): { clock: VirtualClock; client: Transport; server: Transport; received: Buffer[] } {
  const clock = new VirtualClock()
  const [client, server] = transportPair(clock)
  const received: Buffer[] = []
  server.attach({
    data: (chunk) => received.push(chunk),
    drain: () => undefined,
    end: () => undefined,
    closed: () => undefined,
  })
  return { clock, client, server, received }
}

const GREETING = formatGreeting({
  version: '2.6.0',
  uuid: '01234567-89ab-4cde-8f01-23456789abcd',
  salt: Buffer.alloc(32, 9),
})

/** A frame of an announced size: a reply in the fixed layout with a body of bin data. */
function bigFrame(bytes: number): Buffer {
  const frame = Buffer.alloc(bytes)
  frame[0] = 0xce
  frame.writeUInt32BE(bytes - 5, 1)
  frame.set([0x82, 0x00, 0x00, 0x01, 0x07], 5)
  frame.set([0x81, 0x30, 0xc6], 10)
  frame.writeUInt32BE(bytes - 17, 13)
  return frame
}

describe('openChannel', () => {
  it('gives a channel that knows the peer', async () => {
    const clock = new VirtualClock()
    const peer = new ScriptedPeer({ clock, version: '3.2.1', users: { alice: 'secret' } })
    const channel = await clock.run(
      openChannel(
        dial(peer),
        { features: FEATURES, credential: { user: 'alice', password: 'secret' }, deadline: 5_000 },
        environment(clock),
      ),
    )
    expect([channel.version, channel.instanceUuid, [...channel.features], [...channel.salt], channel.peer]).toEqual([
      '3.2.1',
      peer.uuid,
      FEATURES,
      [...peer.session.salt],
      'in-process',
    ])
    expect(peer.session.user).toBe('alice')
    expect(clock.pendingTimers).toBe(0)
  })

  it.each([1, 2, 7, 127, 128, 129, 1_000])('does not care that bytes arrive in pieces of %i', async (size) => {
    const { clock, client, server } = raw()
    const opening = openChannel(client, { features: FEATURES, deadline: 5_000 }, environment(clock))
    const frames = [bigFrame(40), bigFrame(300)]
    const bytes = Buffer.concat([GREETING, ...frames])
    for (let at = 0; at < bytes.length; at += size) {
      server.write([bytes.subarray(at, at + size)])
      await clock.settle()
    }
    const channel = await clock.run(opening)
    const sink = new Frames()
    channel.attach(sink)
    expect(sink.frames).toEqual([])
    await clock.settle()
    expect(sink.frames).toEqual(frames)
  })

  const stalls: readonly [step: 'greeting' | 'half-greeting' | 'id' | 'auth', stage: string, words: RegExp][] = [
    ['greeting', 'greeting', /its greeting/],
    ['half-greeting', 'greeting', /its greeting/],
    ['id', 'id', /its answer to ID/],
    ['auth', 'auth', /its answer to the login/],
  ]
  it.each(stalls)(
    'fails at the deadline when the peer falls silent at %s, naming the stage',
    async (step, stage, words) => {
      const clock = new VirtualClock()
      const peer = new ScriptedPeer({ clock, users: { alice: 'p' } })
      peer.silentFrom = step
      const result = await clock.run(
        outcome(
          openChannel(
            dial(peer),
            { features: FEATURES, credential: { user: 'alice', password: 'p' }, deadline: 500 },
            environment(clock),
          ),
        ),
      )
      expect(result).toMatchObject({
        error: { code: 'ORB_CONNECT', stage, executed: 'no', message: expect.stringMatching(words) as string },
      })
      expect(clock.now()).toBe(500)
      await clock.settle()
      expect(peer.session.open).toBe(false)
      expect(clock.pendingTimers).toBe(0)
    },
  )

  it('closes the transport when the login is refused', async () => {
    const clock = new VirtualClock()
    const peer = new ScriptedPeer({ clock, users: { alice: 'right' } })
    const opening = openChannel(
      dial(peer),
      { features: [], credential: { user: 'alice', password: 'wrong' }, deadline: 500 },
      environment(clock),
    )
    const result = await clock.run(outcome(opening))
    expect(result).toMatchObject({ error: { code: 'ORB_AUTH', user: 'alice', cause: { boxCode: 47 } } })
    expect('error' in result && result.error).toBeInstanceOf(AuthError)
    await clock.settle()
    expect(peer.session.open).toBe(false)
  })

  it.each([
    ['', /without a greeting/],
    [GREETING.subarray(0, 127), /127 of the 128 bytes/],
  ])('says how far a peer came that closed', async (bytes, words) => {
    const { clock, client, server } = raw()
    const opening = outcome(openChannel(client, { features: [], deadline: 5_000 }, environment(clock)))
    if (bytes.length > 0) server.write([Buffer.from(bytes)])
    server.end()
    const result = await clock.run(opening)
    expect(result).toMatchObject({ error: { message: expect.stringMatching(words) as string, stage: 'greeting' } })
  })

  it('never writes a byte to a peer that is no Tarantool', async () => {
    const { clock, client, server, received } = raw()
    const opening = outcome(openChannel(client, { features: FEATURES, deadline: 5_000 }, environment(clock)))
    server.write([Buffer.from('HTTP/1.1 200 OK\r\n\r\nTarantool!')])
    const result = await clock.run(opening)
    expect('error' in result && result.error).toBeInstanceOf(ConnectError)
    expect(received).toEqual([])
  })

  it('refuses an answer of the handshake that announces more than such an answer can be', async () => {
    const { clock, client, server } = raw()
    const opening = outcome(
      openChannel(
        client,
        { features: [], credential: { user: 'a', password: 'b' }, deadline: 5_000 },
        environment(clock),
      ),
    )
    server.write([GREETING, Buffer.from('ce40000000', 'hex')])
    expect(await clock.run(opening)).toMatchObject({
      error: { code: 'ORB_CONNECT', cause: { code: 'ORB_FRAME_TOO_LARGE' } },
    })
  })
})

async function opened(
  options: { maxFrameBytes?: number } = {},
): Promise<ReturnType<typeof raw> & { channel: FrameChannel }> {
  const parts = raw()
  const opening = openChannel(parts.client, { features: [], deadline: 5_000, ...options }, environment(parts.clock))
  parts.server.write([GREETING])
  return { ...parts, channel: await parts.clock.run(opening) }
}

describe('FrameChannel', () => {
  it('delivers whole frames, also large ones for a sink that does not ask for pieces', async () => {
    const { clock, server, channel } = await opened()
    const sink = new Frames()
    channel.attach(sink)
    const frames = [bigFrame(50), bigFrame(1_000_000), bigFrame(60)]
    const bytes = Buffer.concat(frames)
    for (let at = 0; at < bytes.length; at += 65_536) server.write([bytes.subarray(at, at + 65_536)])
    await clock.settle()
    expect(sink.frames.map((frame) => frame.length)).toEqual([50, 1_000_000, 60])
    expect(Buffer.concat(sink.frames).equals(bytes)).toBe(true)
  })

  it('delivers frames above 256 KiB in pieces to a sink that asks for them', async () => {
    const { clock, server, channel } = await opened()
    const pieces: Buffer[] = []
    let announced = 0
    let ended = 0
    const large: LargeFrame = {
      chunk: (bytes) => pieces.push(bytes),
      end: () => (ended += 1),
      cut: () => expect.unreachable(),
    }
    const sink = Object.assign(new Frames(), {
      largeFrame: (head: Buffer, frameBytes: number) => {
        pieces.push(head)
        announced = frameBytes
        return large
      },
    })
    channel.attach(sink)
    const frame = bigFrame(700_000)
    const bytes = Buffer.concat([bigFrame(50), frame, bigFrame(60)])
    for (let at = 0; at < bytes.length; at += 50_000) server.write([bytes.subarray(at, at + 50_000)])
    await clock.settle()
    expect([announced, ended, sink.frames.length]).toEqual([700_000, 1, 2])
    expect(Buffer.concat(pieces).equals(frame)).toBe(true)
  })

  it('cuts a large frame off when the connection ends in the middle of it', async () => {
    const { clock, server, channel } = await opened()
    let cuts = 0
    const large: LargeFrame = { chunk: () => undefined, end: () => expect.unreachable(), cut: () => (cuts += 1) }
    const sink = Object.assign(new Frames(), { largeFrame: () => large })
    channel.attach(sink)
    server.write([bigFrame(700_000).subarray(0, 300_000)])
    await clock.settle()
    server.destroy()
    await clock.settle()
    expect([cuts, sink.cause?.code]).toEqual([1, 'ORB_CONNECTION_LOST'])
  })

  it('closes before it buffers a frame above its limit', async () => {
    const { clock, server, channel } = await opened({ maxFrameBytes: 1_000 })
    const sink = new Frames()
    channel.attach(sink)
    server.write([bigFrame(1_100).subarray(0, 20)])
    await clock.settle()
    expect(sink.cause?.code).toBe('ORB_FRAME_TOO_LARGE')
  })

  it('says that the peer closed the connection, and closes its own side', async () => {
    const { clock, server, channel } = await opened()
    const sink = new Frames()
    channel.attach(sink)
    server.write([bigFrame(50)])
    server.end()
    await clock.settle()
    expect(sink.frames).toHaveLength(1)
    expect(sink.cause?.message).toMatch(/in-process closed the connection/)
  })

  it('passes back-pressure on', async () => {
    const { clock, server, channel } = await opened()
    const sink = new Frames()
    channel.attach(sink)
    server.pauseReading()
    expect(channel.write([Buffer.alloc(300_000)])).toBe(false)
    await clock.settle()
    expect([sink.drains, channel.pendingBytes]).toEqual([0, 300_000])
    server.resumeReading()
    await clock.settle()
    expect([sink.drains, channel.pendingBytes]).toEqual([1, 0])
  })

  it('reports its end to a sink that is attached after it', async () => {
    const { clock, server, channel } = await opened()
    server.destroy()
    await clock.settle()
    const sink = new Frames()
    channel.attach(sink)
    await clock.settle()
    expect(sink.cause?.code).toBe('ORB_CONNECTION_LOST')
  })
})
