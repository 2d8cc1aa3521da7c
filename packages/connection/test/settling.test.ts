import { getEventListeners } from 'node:events'
import { callRequest, Key, type OrbweaverError, RequestType } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import {
  ConnectError,
  ConnectionLostError,
  type ConnectionOptions,
  RequestAbortedError,
  RequestTimeoutError,
} from '../src/index.js'
import type { PeerRequest } from '../src/testing/index.js'
import { connected, CountingSink, dialling, failure, outcome, type Rig, seeded } from './rig.js'

const REFUSED = Object.assign(new Error('connect ECONNREFUSED 127.0.0.1:1'), { code: 'ECONNREFUSED' })

function unreachable(options: Partial<ConnectionOptions> = {}): Rig {
  return dialling({}, options, (peer) => {
    peer.refusal = REFUSED
  })
}

/** Books that must be empty when nobody waits any more. */
function expectIdle(rig: Rig): void {
  const stats = rig.connection.stats()
  expect(stats).toMatchObject({ inFlight: 0, inFlightBytes: 0, late: 0, queued: 0, queuedBytes: 0 })
  expect(stats.accepted).toBe(Object.values(stats.ended).reduce((sum, count) => sum + count, 0))
}

describe('A request to a peer that cannot be reached', () => {
  it.each([
    ['unlimited retries', undefined],
    ['one retry', { retries: 1 }],
    ['no retries', false],
  ] as const)('is rejected within its deadline with the system’s error, with %s', async (_name, reconnect) => {
    const rig = unreachable(reconnect === undefined ? {} : { reconnect })
    const error = await rig.clock.run(failure(rig.connection.ping({ timeout: 2_000 })))
    expect(rig.clock.now()).toBeLessThanOrEqual(2_000)
    expect(error.executed).toBe('no')
    expect(error.message).toContain('ECONNREFUSED 127.0.0.1:1')
    const cause = error instanceof RequestTimeoutError ? error.cause : error
    expect(cause).toBeInstanceOf(ConnectError)
    expect((cause as ConnectError).cause).toBe(REFUSED)
    expectIdle(rig)
  })

  it('makes a handful of attempts with growing pauses in ten seconds', async () => {
    const rig = unreachable()
    const at: number[] = []
    rig.connection.on('connectFailed', () => at.push(rig.clock.now()))
    await rig.clock.advance(10_000)
    expect(at).toEqual([0, 50, 150, 350, 750, 1_550, 3_150, 6_350])
    await rig.clock.run(rig.connection.close())
    expect(rig.clock.pendingTimers).toBe(0)
  })

  it('is refused at once when no attempt is left, and connect() starts again', async () => {
    const rig = unreachable({ reconnect: false })
    expect(await rig.clock.run(failure(rig.connection.connect()))).toBeInstanceOf(ConnectError)
    expect(rig.connection.state).toBe('error')
    const before = rig.clock.now()
    expect(await rig.clock.run(failure(rig.connection.ping()))).toBeInstanceOf(ConnectError)
    expect(rig.clock.now()).toBe(before)
    rig.peer.refusal = undefined
    await rig.clock.run(rig.connection.connect())
    await rig.clock.run(rig.connection.ping())
  })

  it('waits for a connection that comes in time', async () => {
    const rig = unreachable()
    const ping = rig.connection.ping({ timeout: 2_000 })
    await rig.clock.advance(1_000)
    rig.peer.refusal = undefined
    await rig.clock.run(ping)
    expectIdle(rig)
  })
})

describe('Timeouts', () => {
  it('end a request that was sent as unknown, and drop its late answer in silence', async () => {
    const rig = await connected()
    rig.peer.handle(RequestType.call, () => undefined)
    const error = await rig.clock.run(failure(rig.connection.call('slow', [], { timeout: 300 })))
    expect(error).toBeInstanceOf(RequestTimeoutError)
    expect(error).toMatchObject({ executed: 'unknown', message: 'CALL timed out: no answer from in-process' })
    expect(rig.connection.stats()).toMatchObject({ inFlight: 0, late: 1 })
    rig.peer.lastRequest.push('still at it')
    rig.peer.lastRequest.reply(['too late'])
    await rig.clock.settle()
    expect(rig.connection.stats()).toMatchObject({ late: 0, lateAnswers: 1, ended: { timedOut: 1, answered: 0 } })
    expect(rig.connection.generation).toBe(1)
    expectIdle(rig)
  })

  it('never give the number of a timed-out request to another', async () => {
    const rig = await connected()
    rig.peer.handle(RequestType.call, () => undefined)
    await rig.clock.run(failure(rig.connection.call('slow', [], { timeout: 10 })))
    const slow = rig.peer.lastRequest
    const results: unknown[] = []
    for (let i = 0; i < 500; i += 1) {
      const call = rig.connection.call('f', [i])
      await rig.clock.settle()
      const request = rig.peer.lastRequest
      expect(request.sync).not.toBe(slow.sync)
      if (i === 250) slow.reply(['stale'])
      request.reply(request.body.array(Key.tuple) ?? [])
      results.push(...(await rig.clock.run(call)))
    }
    expect(results).toEqual(Array.from({ length: 500 }, (_, i) => i))
  })

  it('hold each for its own request, whatever order they come in', async () => {
    const rig = await connected()
    rig.peer.handle(RequestType.call, () => undefined)
    const random = seeded(5)
    const timeouts = Array.from({ length: 300 }, () => 1 + Math.floor(random() * 5_000))
    const ends = await rig.clock.run(
      Promise.all(
        timeouts.map(async (timeout) => {
          await outcome(rig.connection.call('f', [], { timeout }))
          return rig.clock.now() - timeout
        }),
      ),
    )
    // All were sent at instant 0; an end is never early and at most one sweep late.
    expect(Math.min(...ends)).toBeGreaterThanOrEqual(0)
    expect(Math.max(...ends)).toBeLessThanOrEqual(10)
  })

  it('Infinity is none, and 10^12 ms does not fire at once', async () => {
    const rig = await connected()
    rig.peer.handle(RequestType.call, () => undefined)
    const calls = [
      rig.connection.call('f', [], { timeout: Number.POSITIVE_INFINITY }),
      rig.connection.call('f', [], { timeout: 1e12 }),
    ]
    await rig.clock.advance(365 * 24 * 3_600_000)
    for (const request of rig.peer.requests) request.reply([1])
    expect(await rig.clock.run(Promise.all(calls))).toEqual([[1], [1]])
  })
})

describe('Abort signals', () => {
  it('end a sent request as unknown, with the reason as cause', async () => {
    const rig = await connected()
    rig.peer.handle(RequestType.call, () => undefined)
    const controller = new AbortController()
    const call = failure(rig.connection.call('f', [], { signal: controller.signal }))
    await rig.clock.settle()
    const reason = new Error('user left')
    controller.abort(reason)
    const error = await rig.clock.run(call)
    expect(error).toBeInstanceOf(RequestAbortedError)
    expect(error).toMatchObject({ executed: 'unknown', cause: reason })
    rig.peer.lastRequest.reply([])
    await rig.clock.settle()
    expectIdle(rig)
  })

  it('keep a request that was not sent yet from being sent, and say so', async () => {
    const rig = await connected()
    const controller = new AbortController()
    rig.peer.handle(RequestType.call, (request) => request.reply(request.body.array(Key.tuple) ?? []))
    const before = rig.connection.call('f', [1])
    const aborted = failure(rig.connection.call('f', [2], { signal: controller.signal }))
    const after = rig.connection.call('f', [3])
    controller.abort()
    expect(await rig.clock.run(aborted)).toMatchObject({ code: 'ORB_REQUEST_ABORTED', executed: 'no' })
    expect(await rig.clock.run(Promise.all([before, after]))).toEqual([[1], [3]])
    expect(rig.peer.requests.map((request) => request.body.value(Key.tuple))).toEqual([[1], [3]])
    expectIdle(rig)
  })

  it('of which one is shared by ten thousand requests carry one listener, and none afterwards', async () => {
    const rig = await connected()
    const { signal } = new AbortController()
    rig.peer.handle(RequestType.ping, (request) => request.ok())
    const pings = Array.from({ length: 10_000 }, () => rig.connection.ping({ signal }))
    expect(getEventListeners(signal, 'abort')).toHaveLength(1)
    await rig.clock.run(Promise.all(pings))
    await rig.clock.settle()
    expect(getEventListeners(signal, 'abort')).toHaveLength(0)
    expectIdle(rig)
  })

  it('that fired already end a request before it is sent', async () => {
    const rig = await connected()
    expect(await rig.clock.run(failure(rig.connection.ping({ signal: AbortSignal.abort('gone') })))).toMatchObject({
      executed: 'no',
      cause: 'gone',
    })
    expect(rig.peer.requests).toEqual([])
  })
})

describe('A connection that breaks', () => {
  it('settles everything in flight once, and what is sent from the rejections belongs to the next connection', async () => {
    const random = seeded(11)
    const rig = await connected({}, { reconnect: { minDelayMs: 1 } })
    for (let round = 0; round < 40; round += 1) {
      const answered = Math.floor(random() * 250)
      let seen = 0
      rig.peer.handle(RequestType.call, (request: PeerRequest) => {
        seen += 1
        const [number] = request.body.array(Key.tuple) ?? []
        // An answer names the generation of its session, so that a mix-up would show.
        if (seen <= answered || request.session !== session)
          request.reply([number, rig.peer.sessions.indexOf(request.session)])
      })
      const { session } = rig.peer
      const index = rig.peer.sessions.length - 1
      let settled = 0
      const again: Promise<void>[] = []
      const calls = Array.from({ length: 250 }, async (_, i) => {
        const end = await outcome(rig.connection.call('f', [i], { timeout: 60_000 }))
        settled += 1
        if ('value' in end) expect(end.value).toEqual([i, index])
        else {
          expect(end.error).toBeInstanceOf(ConnectionLostError)
          expect(end.error.executed).toBe('unknown')
          again.push(
            rig.connection.call('f', [-i], { timeout: 60_000 }).then((value) => expect(value).toEqual([-i, index + 1])),
          )
        }
      })
      await rig.clock.settle()
      session.destroy()
      await rig.clock.run(Promise.all(calls))
      await rig.clock.run(Promise.all(again))
      expect([settled, again.length]).toEqual([250, 250 - answered])
      expectIdle(rig)
      rig.peer.requests.length = 0
      await rig.clock.advance(2_000)
    }
  })

  it('in the middle of a frame matches nothing of it to the next connection', async () => {
    const rig = await connected({}, { reconnect: { minDelayMs: 1 } })
    rig.peer.handle(RequestType.call, () => undefined)
    const lost = failure(rig.connection.call('f', [1], { timeout: 60_000 }))
    await rig.clock.settle()
    // The first half of an answer, then the end.
    rig.peer.session.raw(Buffer.from('ce0000001a8300ce0000000001cf00000000', 'hex'))
    await rig.clock.settle()
    rig.peer.cut()
    expect(await rig.clock.run(lost)).toMatchObject({ executed: 'unknown' })
    rig.peer.handle(RequestType.call, (request) => request.reply(['fresh']))
    expect(await rig.clock.run(rig.connection.call('f', [2]))).toEqual(['fresh'])
    expectIdle(rig)
  })

  it('shares its errors: one for what was sent, one for what was not', async () => {
    const rig = await connected({}, { reconnect: false, maxInFlight: 2 })
    rig.peer.handle(RequestType.call, () => undefined)
    const ends = Array.from({ length: 4 }, () => failure(rig.connection.call('f')))
    await rig.clock.settle()
    rig.peer.cut()
    const errors = await rig.clock.run(Promise.all(ends))
    expect(errors.map((error) => error.executed)).toEqual(['unknown', 'unknown', 'no', 'no'])
    expect(errors[0]).toBe(errors[1])
    expect(errors[2]).toBe(errors[3])
  })
})

describe('At most once', () => {
  it('a call whose answer was cut off moved the counter once, and the caller learns that nobody knows', async () => {
    const rig = await connected({}, { reconnect: { minDelayMs: 1 } })
    let counter = 0
    rig.peer.handle(RequestType.call, (request) => {
      counter += 1
      request.session.destroy()
    })
    const error = await rig.clock.run(failure(rig.connection.call('increment')))
    await rig.clock.advance(1_000)
    expect([error.code, error.executed, counter]).toEqual(['ORB_CONNECTION_LOST', 'unknown', 1])
  })

  it('a call that never left goes out on the next connection, once', async () => {
    const rig = await connected({}, { reconnect: { minDelayMs: 1 }, maxInFlight: 1 })
    let counter = 0
    rig.peer.handle(RequestType.call, () => undefined)
    const first = failure(rig.connection.call('increment'))
    const second = rig.connection.call('increment')
    await rig.clock.settle()
    rig.peer.handle(RequestType.call, (request) => {
      counter += 1
      request.reply([counter])
    })
    rig.peer.cut()
    expect(await rig.clock.run(first)).toMatchObject({ executed: 'unknown' })
    expect(await rig.clock.run(second)).toEqual([1])
  })

  it('a request declared idempotent is sent once more, with the arguments it had, and not a third time', async () => {
    const rig = await connected({}, { reconnect: { minDelayMs: 1 } })
    const seen: unknown[] = []
    let isHelpful = false
    rig.peer.handle(RequestType.call, (request) => {
      seen.push(request.body.value(Key.tuple))
      if (isHelpful) request.reply(['ok'])
      else request.session.destroy()
      isHelpful = true
    })
    const args = [1]
    const call = rig.connection.call('f', args, { idempotent: true })
    args[0] = 2
    expect(await rig.clock.run(call)).toEqual(['ok'])
    expect(seen).toEqual([[1], [1]])
    rig.peer.handle(RequestType.call, (request) => {
      seen.push('again')
      request.session.destroy()
    })
    expect(await rig.clock.run(failure(rig.connection.call('f', [], { idempotent: true })))).toMatchObject({
      executed: 'unknown',
    })
    expect(seen).toEqual([[1], [1], 'again', 'again'])
  })
})

describe('Answers that belong to nobody', () => {
  it.each([
    [
      'an error with sync 0',
      (rig: Rig) =>
        rig.peer.session.frame(0x8014, 0, (out) => {
          out.mapHeader(1)
          out.uint(Key.error24)
          out.text('Invalid MsgPack - packet header')
        }),
    ],
    ['an answer with an unknown sync', (rig: Rig) => rig.peer.session.frame(0, 4711, (out) => out.mapHeader(0))],
    ['an answer with a huge sync', (rig: Rig) => rig.peer.session.frame(0, 2n ** 64n - 1n, (out) => out.mapHeader(0))],
    [
      'a frame of an unknown type',
      (rig: Rig) => rig.peer.session.frame(5, rig.peer.lastRequest.sync, (out) => out.mapHeader(0)),
    ],
    ['a header that is no map', (rig: Rig) => rig.peer.session.raw(Buffer.from('ce0000000190', 'hex'))],
    [
      'a body that is no map',
      (rig: Rig) => rig.peer.session.frame(0, rig.peer.lastRequest.sync, (out) => out.arrayHeader(0)),
    ],
    ['bytes that are no frame', (rig: Rig) => rig.peer.session.raw(Buffer.from('c1c1c1', 'hex'))],
  ])('%s ends the connection instead of leaving a request without an end', async (_name, misbehave) => {
    const rig = await connected({}, { reconnect: { minDelayMs: 1 } })
    rig.peer.handle(RequestType.call, () => undefined)
    const call = failure(rig.connection.call('f', [], { timeout: 60_000 }))
    await rig.clock.settle()
    misbehave(rig)
    const error = await rig.clock.run(call)
    expect(error).toBeInstanceOf(ConnectionLostError)
    expect(error.executed).toBe('unknown')
    expect(rig.clock.now()).toBeLessThan(100)
    await rig.clock.run(rig.connection.ping())
    expect(rig.connection.generation).toBe(2)
    expectIdle(rig)
  })
})

describe('Books', () => {
  it('are exact after a thousand cycles of fifty requests that end in every possible way under a limit of ten', async () => {
    const random = seeded(23)
    const rig = await connected({}, { maxInFlight: 10, maxQueued: 30, reconnect: { minDelayMs: 1 } })
    const held: PeerRequest[] = []
    rig.peer.handle(RequestType.call, (request) => {
      const fate = random()
      if (fate < 0.5) request.reply([])
      else if (fate < 0.7) request.error(32, 'boom')
      else if (fate < 0.995) held.push(request)
      else request.session.destroy()
    })
    for (let cycle = 0; cycle < 1_000; cycle += 1) {
      const sinks: CountingSink[] = []
      const controller = new AbortController()
      for (let i = 0; i < 50; i += 1) {
        const sink = new CountingSink()
        sinks.push(sink)
        const way = random()
        const args = way < 0.05 ? [() => 1] : [i]
        const deadline = rig.clock.now() + (way < 0.3 ? 5 : 60_000)
        const pending = rig.connection.send(
          callRequest('f', args),
          { deadline, ...(way > 0.6 && { signal: controller.signal }) },
          sink,
        )
        if (way > 0.95) pending.abandon(new RequestAbortedError('dropped', { executed: 'no' }))
      }
      if (cycle % 3 === 0) controller.abort()
      await rig.clock.settle()
      controller.abort()
      for (const request of held.splice(0)) if (request.session.open) request.reply([])
      const { inFlight, late, queued, inFlightBytes } = rig.connection.stats()
      expect(inFlight + late).toBeLessThanOrEqual(10)
      expect(Math.min(inFlight, late, queued, inFlightBytes)).toBeGreaterThanOrEqual(0)
      await rig.clock.advance(20)
      for (const request of held.splice(0)) if (request.session.open) request.reply([])
      await rig.clock.settle()
      while (sinks.some((sink) => sink.ends === 0)) {
        for (const request of held.splice(0)) if (request.session.open) request.reply([])
        await rig.clock.advance(20)
      }
      expect(sinks.every((sink) => sink.ends === 1)).toBe(true)
    }
    for (const request of held.splice(0)) request.reply([])
    await rig.clock.settle()
    expectIdle(rig)
    rig.peer.handle(RequestType.call, (request) => held.push(request))
    const last = Array.from({ length: 11 }, () => rig.connection.call('f'))
    await rig.clock.settle()
    expect(held).toHaveLength(10)
    for (const request of held) request.reply([])
    rig.peer.handle(RequestType.call, (request) => request.reply([]))
    await rig.clock.run(Promise.all(last))
    expectIdle(rig)
  }, 60_000)

  it('tell errors by reason', async () => {
    const rig = await connected()
    rig.peer.handle(RequestType.call, (request) => request.error(32, 'boom'))
    const controller = new AbortController()
    const ends: Promise<OrbweaverError>[] = [
      failure(rig.connection.call('f')),
      failure(rig.connection.call('f', [Symbol('no')])),
      failure(rig.connection.ping({ signal: AbortSignal.abort() })),
    ]
    await rig.clock.run(Promise.all(ends))
    controller.abort()
    rig.connection.destroy()
    await rig.clock.run(failure(rig.connection.ping()))
    expect(rig.connection.stats().ended).toEqual({
      answered: 0,
      refused: 1,
      timedOut: 0,
      aborted: 1,
      lost: 0,
      closed: 1,
      other: 1,
    })
  })
})
