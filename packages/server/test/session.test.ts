import { FrameWriter, parseGreeting, RequestType } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { errorCode, KeepingHandler, SALT, startServer } from './harness.js'

function ping(sync: number): Buffer {
  return frame(RequestType.ping, sync)
}

function frame(type: number, sync: number): Buffer {
  const writer = new FrameWriter()
  writer.beginRequest(type, 0, sync)
  writer.end()
  return Buffer.concat(writer.take())
}

describe('a session', () => {
  it('greets at once with the version, uuid and salt of its handler', async () => {
    const { clock, client } = startServer(new KeepingHandler())
    const peer = client()
    await clock.settle()
    const greeting = parseGreeting(peer.greeting)
    expect(greeting).toMatchObject({ version: '2.11.0', uuid: '11111111-1111-4111-8111-111111111111' })
    expect([...greeting.salt]).toEqual([...SALT])
  })

  it.each([1, 2, 7, 1_000])('hands on the same frames when they arrive in pieces of %i bytes', async (size) => {
    const handler = new KeepingHandler()
    const { clock, client } = startServer(handler)
    const peer = client()
    const bytes = Buffer.concat([ping(1), ping(2), ping(3)])
    for (let i = 0; i < bytes.length; i += size) peer.write(bytes.subarray(i, i + size))
    await clock.settle()
    expect(handler.frames.map((frame) => frame.syncLow)).toEqual([1, 2, 3])
  })

  it('takes requests that arrive before its greeting has left', async () => {
    const handler = new KeepingHandler()
    let greet: () => void = () => undefined
    const held = new Promise<void>((resolve) => {
      greet = resolve
    })
    const slow = Object.assign(handler, {
      greet: async () =>
        held.then(() => ({ version: '2.11.0', uuid: '11111111-1111-4111-8111-111111111111', salt: SALT })),
    })
    const { clock, client } = startServer(slow)
    client().write(ping(9))
    await clock.settle()
    expect(handler.frames).toHaveLength(0)
    greet()
    await clock.settle()
    expect(handler.frames.map((frame) => frame.syncLow)).toEqual([9])
  })

  it('closes a connection whose greeting fails or takes too long', async () => {
    const failing = Object.assign(new KeepingHandler(), { greet: () => Promise.reject(new Error('no standby')) })
    const first = startServer(failing)
    const refused = first.client()
    await first.clock.settle()
    expect(refused.ended).not.toBeUndefined()

    const silent = Object.assign(new KeepingHandler(), { greet: () => new Promise<never>(() => undefined) })
    const second = startServer(silent, { greetTimeoutMs: 100 })
    const waiting = second.client()
    await second.clock.advance(99)
    expect(waiting.ended).toBeUndefined()
    await second.clock.advance(2)
    expect(waiting.ended).not.toBeUndefined()
    expect(second.server.sessionCount).toBe(0)
  })

  it.each([
    ['a size that is no unsigned integer', Buffer.from('830001', 'hex')],
    ['a size over the limit', Buffer.from('ce7fffffff', 'hex')],
    ['a size given as text', Buffer.from('a3313233', 'hex')],
  ])('answers %s with error 20, sync 0, and closes', async (_what, bytes) => {
    const handler = new KeepingHandler()
    const { clock, client, server } = startServer(handler)
    const peer = client()
    await clock.settle()
    peer.write(bytes)
    await clock.settle()
    expect(peer.answers.map((answer) => [errorCode(answer), answer.sync])).toEqual([[20, 0]])
    expect(peer.hasEnded).toBe(true)
    expect(server.sessionCount).toBe(0)
    expect(handler.frames).toHaveLength(0)
  })

  it.each([
    ['a header that is no map', 'ce0000000193'],
    ['an empty frame', 'ce00000000'],
    ['a sync in a signed form', 'ce0000000d82004001d30000000000000001'],
    ['a truncated header', 'ce000000028200'],
  ])('answers %s with error 20, sync 0, and serves on', async (_what, hex) => {
    const handler = new KeepingHandler()
    const { clock, client } = startServer(handler)
    const peer = client()
    await clock.settle()
    peer.write(Buffer.from(hex, 'hex'))
    peer.write(ping(5))
    await clock.settle()
    expect(peer.answers.map((answer) => [errorCode(answer), answer.sync])).toEqual([[20, 0]])
    expect(handler.frames.map((frame) => frame.syncLow)).toEqual([5])
  })

  it('closes a client that sends nothing but malformed frames', async () => {
    const { clock, client } = startServer(new KeepingHandler(), { maxMalformedFrames: 3 })
    const peer = client()
    for (let i = 0; i < 5; i++) peer.write(Buffer.from('ce0000000193', 'hex'))
    await clock.settle()
    expect(peer.answers).toHaveLength(3)
    expect(peer.hasEnded).toBe(true)
  })

  it('limits frames to 64 KiB until a user has logged in', async () => {
    const handler = new KeepingHandler()
    const { clock, client } = startServer(handler, { maxFrameBytesBeforeLogin: 100, maxFrameBytes: 1_000 })
    const big = (peer: ReturnType<typeof client>): void =>
      peer.request(RequestType.eval, 1, (out) => {
        out.mapHeader(1)
        out.uint(0x27)
        out.text('x'.repeat(500))
      })
    const stranger = client()
    big(stranger)
    await clock.settle()
    expect(errorCode(stranger.answers[0])).toBe(20)
    expect(stranger.hasEnded).toBe(true)

    const known = client({ user: 'alice' })
    big(known)
    await clock.settle()
    expect(handler.frames).toHaveLength(1)
    expect(handler.sessions[0]!.user).toBe('alice')
  })

  it('cuts a client that leaves a frame incomplete', async () => {
    const handler = new KeepingHandler()
    const { clock, client } = startServer(handler, { frameTimeoutMs: 1_000 })
    const peer = client()
    await clock.settle()
    peer.write(ping(1).subarray(0, 6))
    await clock.advance(999)
    expect(peer.ended).toBeUndefined()
    await clock.advance(2)
    expect(peer.ended).not.toBeUndefined()
    expect(handler.closures[0]?.message).toContain('incomplete')
  })

  it('stops reading a client that does not read, and cuts it when it takes nothing for too long', async () => {
    const handler = new KeepingHandler()
    handler.onFrame = (session) => void session.reply([Buffer.alloc(100_000)])
    const { clock, client } = startServer(handler, { maxPendingBytes: 300_000, stallTimeoutMs: 10_000 })
    const peer = client()
    await clock.settle()
    peer.transport.pauseReading()
    for (let i = 1; i <= 100; i++) peer.write(ping(i))
    await clock.settle()
    expect(handler.frames.length).toBeLessThan(20)
    await clock.advance(21_000)
    expect(handler.closures).toHaveLength(1)
    expect(handler.closures[0]?.message).toContain('took none')
  })

  it('writes everything that was answered in one turn together', async () => {
    const handler = new KeepingHandler()
    const reply = (sync: number): Uint8Array[] => {
      const writer = new FrameWriter()
      writer.beginReply(0, 0, sync, 1)
      writer.mapHeader(0)
      writer.end()
      return writer.take()
    }
    handler.onFrame = (session, frame) => void session.reply(reply(frame.syncLow))
    const { clock, client } = startServer(handler)
    const peer = client()
    await clock.settle()
    peer.write(Buffer.concat([ping(1), ping(2), ping(3)]))
    await clock.settle()
    expect(peer.answers.map((answer) => answer.sync)).toEqual([1, 2, 3])
  })

  it.each([
    ['calls', RequestType.call, 3],
    // Requests that are quick, mostly: the clock is looked at for some of them.
    ['selects', RequestType.select, 9],
  ])(
    'lets the others have their turn between the frames of one that has sent many %s ahead',
    async (_what, type, most) => {
      let nowMs = 0
      const handler = new KeepingHandler()
      const order: string[] = []
      handler.onFrame = (session) => {
        nowMs += 10
        order.push(session.peer + session.id)
      }
      const { clock, client } = startServer(handler)
      clock.now = () => nowMs
      const busy = client()
      const other = client()
      await clock.settle()
      busy.write(Buffer.concat(Array.from({ length: 20 }, (_, i) => frame(type, i + 1))))
      other.write(frame(type, 1))
      await clock.settle()
      expect(handler.frames).toHaveLength(21)
      expect(order.indexOf('in-process2')).toBeLessThan(most)
    },
  )

  it('holds frames while its handler has paused it, and goes on in order', async () => {
    const handler = new KeepingHandler()
    handler.onFrame = (session, frame) => {
      if (frame.syncLow === 1) session.pauseReading()
    }
    const { clock, client } = startServer(handler)
    const peer = client()
    peer.write(Buffer.concat([ping(1), ping(2)]))
    peer.write(ping(3))
    await clock.settle()
    expect(handler.frames.map((frame) => frame.syncLow)).toEqual([1])
    handler.sessions[0]!.resumeReading()
    await clock.settle()
    expect(handler.frames.map((frame) => frame.syncLow)).toEqual([1, 2, 3])
  })

  it('ends with the cause when its handler throws, and the others live on', async () => {
    const handler = new KeepingHandler()
    handler.onFrame = (_session, frame) => {
      if (frame.syncLow === 13) throw new Error('a bug')
    }
    const { clock, client, server } = startServer(handler)
    const unlucky = client()
    const other = client()
    unlucky.write(ping(13))
    other.write(ping(1))
    await clock.settle()
    expect(unlucky.ended).not.toBeUndefined()
    expect(other.ended).toBeUndefined()
    expect(handler.closures.map((cause) => cause?.message)).toEqual(['a bug'])
    expect(server.sessionCount).toBe(1)
  })

  it('delivers what it has answered to a client that has closed its half', async () => {
    const handler = new KeepingHandler()
    handler.onFrame = (session, frame) => {
      const writer = new FrameWriter()
      writer.beginReply(0, 0, frame.syncLow, 1)
      writer.mapHeader(0)
      writer.end()
      session.reply(writer.take())
    }
    const { clock, client, server } = startServer(handler)
    const peer = client()
    peer.write(ping(4))
    peer.transport.end()
    await clock.settle()
    expect(peer.answers.map((answer) => answer.sync)).toEqual([4])
    expect(server.sessionCount).toBe(0)
  })
})

describe('a server', () => {
  it('refuses connections above its limit and after it was closed', async () => {
    const { clock, client, server } = startServer(new KeepingHandler(), { maxSessions: 1 })
    const first = client()
    const second = client()
    await clock.settle()
    expect(second.ended).not.toBeUndefined()
    expect(first.ended).toBeUndefined()
    const closing = server.close()
    await clock.advance(10)
    await closing
    expect(first.hasEnded).toBe(true)
    const late = client()
    await clock.settle()
    expect(late.ended).not.toBeUndefined()
    await server.close()
  })

  it('does not wait for a peer that never closes its end', async () => {
    const { clock, client, server } = startServer(new KeepingHandler())
    const peer = client()
    await clock.settle()
    peer.transport.pauseReading()
    const closing = server.close()
    await clock.advance(1_100)
    await closing
    expect(server.sessionCount).toBe(0)
    expect(clock.pendingTimers).toBe(0)
  })

  it('names every limit that cannot be right', () => {
    const limits = { maxSessions: 0, frameTimeoutMs: Number.NaN, frames: 3 } as object
    expect(() => startServer(new KeepingHandler(), limits)).toThrow(
      /limits.maxSessions[\s\S]*limits.frameTimeoutMs[\s\S]*limits.frames/,
    )
  })
})
