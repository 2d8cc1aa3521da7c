import { Key, RequestType } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { ConnectionClosedError } from '../src/index.js'
import { connected, dialling, failure, outcome, type Rig } from './rig.js'

function expectReleased(rig: Rig): void {
  expect(rig.connection.state).toBe('closed')
  expect(rig.clock.pendingTimers).toBe(0)
  expect(rig.connection.stats()).toMatchObject({
    inFlight: 0,
    late: 0,
    queued: 0,
    queuedBytes: 0,
    inFlightBytes: 0,
    watchedKeys: 0,
  })
  expect(rig.peer.sessions.some((session) => session.open)).toBe(false)
}

/** Slow calls in flight, waiting requests, an open transaction, three subscriptions. */
async function busy(): Promise<{ rig: Rig; ends: Promise<(string | undefined)[]> }> {
  const rig = await connected({ version: '3.2.1' }, { maxInFlight: 110 })
  const { clock, peer, connection } = rig
  peer.handle(RequestType.call, () => undefined)
  peer.handle(RequestType.begin, (request) => request.ok())
  await clock.run(connection.stream().begin())
  for (const key of ['a', 'b', 'c']) connection.watch(key, () => undefined)
  const calls = Array.from({ length: 120 }, () => outcome(connection.call('slow', [], { timeout: 60_000 })))
  await clock.settle()
  const ends = Promise.all(calls).then((all) =>
    all.map((end) => ('error' in end ? `${end.error.code} ${end.error.executed}` : undefined)),
  )
  return { rig, ends }
}

describe('destroy', () => {
  it('ends everything at once: what was sent as unknown, what waited as not executed', async () => {
    const { rig, ends } = await busy()
    const cause = new Error('enough')
    rig.connection.destroy(cause)
    const all = await rig.clock.run(ends)
    expect(all.filter((end) => end === 'ORB_CONNECTION_CLOSED unknown')).toHaveLength(110)
    expect(all.filter((end) => end === 'ORB_CONNECTION_CLOSED no')).toHaveLength(10)
    await rig.clock.settle()
    expectReleased(rig)
  })

  it('gives its cause to the requests it ended, and rejects later calls at once', async () => {
    const rig = await connected()
    rig.peer.handle(RequestType.call, () => undefined)
    const call = failure(rig.connection.call('f'))
    await rig.clock.settle()
    const cause = new Error('enough')
    rig.connection.destroy(cause)
    rig.connection.destroy(new Error('twice'))
    const error = await rig.clock.run(call)
    expect(error).toBeInstanceOf(ConnectionClosedError)
    expect(error.cause).toBe(cause)
    const before = rig.clock.now()
    expect(await rig.clock.run(failure(rig.connection.ping()))).toBeInstanceOf(ConnectionClosedError)
    expect(await rig.clock.run(failure(rig.connection.connect()))).toBeInstanceOf(ConnectionClosedError)
    expect(() => rig.connection.watch('k', () => undefined)).toThrow(ConnectionClosedError)
    expect(rig.clock.now()).toBe(before)
    expectReleased(rig)
  })
})

describe('close', () => {
  it('waits for what is under way, sends what waited, takes nothing new, then closes', async () => {
    const { rig, ends } = await busy()
    const closing = rig.connection.close()
    const order: string[] = []
    void closing.then(() => order.push('closed'))
    void ends.then(() => order.push('ended'))
    expect(await rig.clock.run(failure(rig.connection.ping()))).toBeInstanceOf(ConnectionClosedError)
    await rig.clock.advance(1_000)
    expect(rig.connection.state).toBe('closing')
    rig.peer.handle(RequestType.call, (request) => request.reply([1]))
    for (const request of rig.peer.requestsOf(RequestType.call)) request.reply([1])
    await rig.clock.run(closing)
    expect((await ends).every((end) => end === undefined)).toBe(true)
    await rig.clock.settle()
    expect(order).toEqual(['ended', 'closed'])
    expectReleased(rig)
  })

  it('takes nothing new from the moment it is called, also where there is room', async () => {
    const rig = await connected()
    rig.peer.handle(RequestType.call, () => undefined)
    const slow = rig.connection.call('slow')
    const closing = rig.connection.close()
    const refused = failure(rig.connection.ping())
    expect(await rig.clock.run(refused)).toMatchObject({ code: 'ORB_CONNECTION_CLOSED', executed: 'no' })
    rig.peer.lastRequest.reply([1])
    expect(await rig.clock.run(slow)).toEqual([1])
    await rig.clock.run(closing)
    expect(rig.peer.requestsOf(RequestType.ping)).toEqual([])
  })

  it('ends what is left at its limit', async () => {
    const { rig, ends } = await busy()
    await rig.clock.run(rig.connection.close({ timeout: 300 }))
    expect(rig.clock.now()).toBe(300)
    expect(new Set(await ends)).toEqual(new Set(['ORB_CONNECTION_CLOSED unknown', 'ORB_CONNECTION_CLOSED no']))
    await rig.clock.settle()
    expectReleased(rig)
  })

  it('with a timeout of 0 waits for nothing', async () => {
    const { rig, ends } = await busy()
    await rig.clock.run(rig.connection.close({ timeout: 0 }))
    expect(rig.clock.now()).toBe(0)
    await ends
    await rig.clock.settle()
    expectReleased(rig)
  })

  it('may be called again, also with less patience, and by several', async () => {
    const { rig, ends } = await busy()
    const closings = [
      rig.connection.close({ timeout: 5_000 }),
      rig.connection.close({ timeout: Number.POSITIVE_INFINITY }),
      rig.connection.close({ timeout: 100 }),
    ]
    await rig.clock.run(Promise.all(closings))
    expect(rig.clock.now()).toBe(100)
    await rig.clock.run(rig.connection.close())
    await ends
    await rig.clock.settle()
    expectReleased(rig)
  })

  it('ends with destroy when that comes in between', async () => {
    const { rig, ends } = await busy()
    const closing = rig.connection.close()
    rig.connection.destroy()
    await rig.clock.run(closing)
    await ends
    await rig.clock.settle()
    expectReleased(rig)
  })

  it.each(['greeting', 'half-greeting', 'id', 'auth'] as const)(
    'while a peer stalls at %s ends the attempt and what waits, as never sent',
    async (step) => {
      const rig = dialling({ users: { a: 'b' } }, { user: 'a', password: 'b' }, (peer) => {
        peer.silentFrom = step
      })
      const queued = Array.from({ length: 10 }, () => failure(rig.connection.ping()))
      const connecting = failure(rig.connection.connect())
      await rig.clock.settle()
      await rig.clock.run(rig.connection.close())
      const errors = await rig.clock.run(Promise.all([...queued, connecting]))
      expect(errors.every((error) => error instanceof ConnectionClosedError && error.executed === 'no')).toBe(true)
      expect(rig.clock.now()).toBe(0)
      await rig.clock.settle()
      expectReleased(rig)
    },
  )

  it('between two attempts ends at once', async () => {
    const rig = dialling({}, {}, (peer) => {
      peer.refusal = new Error('no')
    })
    await rig.clock.advance(200)
    const waiting = failure(rig.connection.ping())
    await rig.clock.run(rig.connection.close())
    expect(await rig.clock.run(waiting)).toBeInstanceOf(ConnectionClosedError)
    expectReleased(rig)
  })

  it('does not outlive a connection that breaks meanwhile', async () => {
    const { rig, ends } = await busy()
    const closing = rig.connection.close()
    await rig.clock.settle()
    rig.peer.cut()
    await rig.clock.run(closing)
    expect(new Set(await ends)).toEqual(new Set(['ORB_CONNECTION_LOST unknown', 'ORB_CONNECTION_LOST no']))
    await rig.clock.advance(10_000)
    expectReleased(rig)
  })

  const places: readonly [name: string, arm: (rig: Rig, close: () => void) => void][] = [
    ['a watcher', (rig, close) => void rig.connection.watch('k', close)],
    ['the event connect', (rig, close) => void rig.connection.on('connect', close)],
    ['the event state', (rig, close) => void rig.connection.on('state', close)],
    [
      'the event disconnect',
      (rig, close) => {
        rig.connection.on('disconnect', close)
        void rig.clock.schedule(5, () => rig.peer.cut())
      },
    ],
    [
      'a rejection',
      (rig, close) => {
        rig.peer.handle(RequestType.call, (request) => request.error(32, 'x'))
        void rig.connection.call('f').catch(close)
      },
    ],
    [
      'onPush',
      (rig, close) => {
        rig.peer.handle(RequestType.call, (request) => request.push(1))
        void rig.connection.call('f', [], { onPush: close }).catch(() => undefined)
      },
    ],
  ]
  describe.each(['close', 'destroy'] as const)('%s may be called', (how) => {
    it.each(places)('from %s', async (_name, arm) => {
      const rig = dialling()
      const closed = new Promise<void>((resolve) => rig.connection.on('close', resolve))
      arm(rig, () => {
        if (how === 'close') void rig.connection.close({ timeout: 50 })
        else rig.connection.destroy()
      })
      await rig.clock.run(closed)
      await rig.clock.settle()
      expectReleased(rig)
    })
  })

  it('happens at the end of an await using block', async () => {
    const rig = await connected()
    rig.peer.handle(RequestType.call, (request) => request.reply([request.body.value(Key.functionName)]))
    const work = (async () => {
      await using connection = rig.connection
      return await connection.call('f')
    })()
    expect(await rig.clock.run(work)).toEqual(['f'])
    await rig.clock.settle()
    expectReleased(rig)
  })

  it('refuses a timeout that makes no sense', async () => {
    const rig = await connected()
    expect(await rig.clock.run(failure(rig.connection.close({ timeout: -1 })))).toMatchObject({
      code: 'ORB_INVALID_ARGUMENT',
    })
    expect(rig.connection.state).toBe('active')
  })
})
