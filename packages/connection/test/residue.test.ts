import { getEventListeners } from 'node:events'
import { RequestType } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { connect, createConnection } from '../src/index.js'
import { ScriptedPeer, VirtualClock } from '../src/testing/index.js'
import { connected, outcome, type Rig } from './rig.js'

/** Heap growth is only visible where the collector can be asked; everything else is counted. */
const collect = (globalThis as { gc?: () => void }).gc

function heapBytes(): number {
  collect?.()
  return process.memoryUsage().heapUsed
}

/** Runs a step a hundred times, then many times more, and compares what is left. */
async function repeat(step: () => Promise<void>, times: number, left: () => unknown): Promise<void> {
  for (let i = 0; i < 100; i += 1) await step()
  const before = left()
  const heapBefore = heapBytes()
  for (let i = 0; i < times; i += 1) await step()
  expect(left()).toEqual(before)
  if (collect !== undefined) expect(heapBytes() - heapBefore).toBeLessThan(4_000_000)
}

const TIMES = 1_000

function booksOf({ clock, peer, connection }: Rig): unknown {
  const { inFlight, inFlightBytes, late, queued, queuedBytes, watchedKeys } = connection.stats()
  return {
    inFlight,
    inFlightBytes,
    late,
    queued,
    queuedBytes,
    watchedKeys,
    timers: clock.pendingTimers,
    keys: peer.session.watchedKeys,
  }
}

describe('Nothing accumulates', () => {
  it('by connecting, pinging and closing', async () => {
    const clock = new VirtualClock()
    const peer = new ScriptedPeer({ clock })
    await repeat(
      async () => {
        const connection = await clock.run(connect({ uri: peer.address, environment: { clock, random: () => 0.5 } }))
        await clock.run(connection.ping())
        await clock.run(connection.close())
        peer.sessions.length = 0
        peer.requests.length = 0
      },
      TIMES,
      () => clock.pendingTimers,
    )
    expect(clock.pendingTimers).toBe(0)
  })

  it('by connections that are refused', async () => {
    const clock = new VirtualClock()
    const peer = new ScriptedPeer({ clock })
    peer.refusal = new Error('connect ECONNREFUSED')
    await repeat(
      async () => {
        await clock.run(outcome(connect({ uri: peer.address, environment: { clock, random: () => 0.5 } })))
      },
      TIMES,
      () => clock.pendingTimers,
    )
  })

  it('by attempts of one connection that fail', async () => {
    const clock = new VirtualClock()
    const peer = new ScriptedPeer({ clock })
    peer.refusal = new Error('connect ECONNREFUSED')
    const connection = createConnection({ uri: peer.address, environment: { clock, random: () => 0.5 } })
    await repeat(
      () => clock.advance(5_000),
      TIMES,
      () => clock.pendingTimers,
    )
    connection.destroy()
    await clock.settle()
    expect(clock.pendingTimers).toBe(0)
  })

  it('by requests that time out, answered late or never', async () => {
    const rig = await connected({}, { maxInFlight: 100 })
    rig.peer.handle(RequestType.call, () => undefined)
    let turn = 0
    await repeat(
      async () => {
        await rig.clock.run(outcome(rig.connection.call('f', [], { timeout: 10 })))
        turn += 1
        if (turn % 50 === 0) for (const request of rig.peer.requests.splice(0)) request.reply([])
        await rig.clock.settle()
      },
      TIMES,
      () => booksOf(rig),
    )
  })

  it('by requests that time out on a peer that never answers: they are bounded', async () => {
    const rig = await connected({}, { maxInFlight: 50 })
    rig.peer.handle(RequestType.call, () => undefined)
    await repeat(
      async () => {
        await rig.clock.run(outcome(rig.connection.call('f', [], { timeout: 10 })))
        rig.peer.requests.length = 0
      },
      TIMES,
      () => booksOf(rig),
    )
    expect(rig.connection.stats().late).toBe(50)
  })

  it('by requests aborted through one shared signal, or through one each', async () => {
    const rig = await connected()
    rig.peer.handle(RequestType.call, () => undefined)
    const shared = new AbortController()
    await repeat(
      async () => {
        const own = new AbortController()
        const calls = [
          outcome(rig.connection.call('f', [], { signal: own.signal })),
          outcome(rig.connection.call('f', [], { signal: shared.signal })),
        ]
        await rig.clock.settle()
        own.abort()
        for (const request of rig.peer.requests.splice(0)) request.reply([])
        await rig.clock.run(Promise.all(calls))
        await rig.clock.settle()
        expect(getEventListeners(own.signal, 'abort')).toHaveLength(0)
      },
      TIMES,
      () => [booksOf(rig), getEventListeners(shared.signal, 'abort').length],
    )
  })

  it('by subscribing and unsubscribing', async () => {
    const rig = await connected()
    const { signal } = new AbortController()
    await repeat(
      async () => {
        const end = rig.connection.watch('k', () => undefined, { signal })
        const values = rig.connection.watchValues('l', { signal })
        await rig.clock.run(values.next())
        end()
        if (values.return !== undefined) await rig.clock.run(values.return())
      },
      TIMES,
      () => [booksOf(rig), getEventListeners(signal, 'abort').length],
    )
  })

  it('by streams and transactions', async () => {
    const rig = await connected()
    for (const type of [RequestType.begin, RequestType.commit]) rig.peer.handle(type, (request) => request.ok())
    await repeat(
      async () => {
        await rig.clock.run(rig.connection.transaction(() => Promise.resolve(1)))
        rig.peer.requests.length = 0
      },
      TIMES,
      () => booksOf(rig),
    )
  })

  it('by waits of several callers for one connection', async () => {
    const rig = await connected()
    await repeat(
      async () => {
        await rig.clock.run(Promise.all([rig.connection.connect(), rig.connection.connect()]))
      },
      TIMES,
      () => booksOf(rig),
    )
  })
})
