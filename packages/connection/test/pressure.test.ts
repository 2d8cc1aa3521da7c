import { Key, RequestType } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { QueueFullError } from '../src/index.js'
import { connected, dialling, failure, outcome } from './rig.js'

describe('One write per turn', () => {
  it('carries everything that was sent in the turn, by whichever path and however deep in promises', async () => {
    const { clock, peer, connection } = await connected()
    await clock.settle()
    peer.handle(RequestType.call, (request) => request.reply([]))
    const before = peer.session.chunksReceived
    const deep = (depth: number): Promise<unknown> =>
      depth === 0 ? connection.call('f') : Promise.resolve(depth - 1).then(deep)
    const calls = [
      connection.call('f'),
      deep(1),
      deep(5),
      deep(20),
      ...Array.from({ length: 100 }, () => connection.call('f')),
    ]
    await clock.run(Promise.all(calls))
    expect(peer.session.chunksReceived - before).toBe(1)
  })

  it('holds for requests that answers of one turn set off', async () => {
    const { clock, peer, connection } = await connected()
    await clock.settle()
    peer.handle(RequestType.call, () => undefined)
    const first = Array.from({ length: 50 }, () => connection.call('f').then(() => connection.call('g')))
    await clock.settle()
    const before = peer.session.chunksReceived
    for (const request of peer.requests.slice()) request.reply([])
    await clock.settle()
    for (const request of peer.requests.slice(50)) request.reply([])
    await clock.run(Promise.all(first))
    // The peer answers each in a chunk of its own, but they arrive in one turn of its clock.
    expect(peer.session.chunksReceived - before).toBeLessThanOrEqual(50)
    expect(connection.stats().writes).toBeLessThanOrEqual(53)
  })
})

describe('A peer that does not read', () => {
  it('stops the writing; what is sent meanwhile waits, within bounds, and follows in order', async () => {
    const { clock, peer, connection } = await connected({}, { maxQueued: 50, maxInFlight: 1_000 })
    await clock.settle()
    peer.handle(RequestType.call, (request) => request.reply([(request.body.array(Key.tuple) ?? [])[0]]))
    peer.session.transport.pauseReading()
    const payload = 'x'.repeat(100_000)
    const calls: Promise<unknown>[] = []
    for (let i = 0; i < 60; i += 1) {
      calls.push(outcome(connection.call('f', [i, payload], { timeout: 60_000 })))
      await clock.settle()
    }
    const { inFlight, queued } = connection.stats()
    expect([inFlight, queued]).toEqual([3, 50])
    peer.session.transport.resumeReading()
    const ends = await clock.run(Promise.all(calls))
    const values = ends.flatMap((end) => ('value' in (end as object) ? [(end as { value: unknown[] }).value[0]] : []))
    expect(values).toEqual(Array.from({ length: 53 }, (_, i) => i))
    const refused = ends.filter((end) => 'error' in (end as object)) as { error: unknown }[]
    expect(refused).toHaveLength(7)
    expect(refused.every(({ error }) => error instanceof QueueFullError && error.executed === 'no')).toBe(true)
    expect(connection.stats()).toMatchObject({ inFlight: 0, queued: 0, queuedBytes: 0, inFlightBytes: 0 })
  })

  it('does not keep a timeout from ending what waits', async () => {
    const { clock, peer, connection } = await connected()
    await clock.settle()
    peer.session.transport.pauseReading()
    const first = failure(connection.call('f', ['x'.repeat(300_000)], { timeout: 500 }))
    await clock.settle()
    const second = failure(connection.call('g', [], { timeout: 200 }))
    expect(await clock.run(second)).toMatchObject({ code: 'ORB_REQUEST_TIMEOUT', executed: 'no' })
    expect(await clock.run(first)).toMatchObject({ code: 'ORB_REQUEST_TIMEOUT', executed: 'unknown' })
  })
})

describe('Limits', () => {
  it('of requests in flight keep the rest waiting, in order', async () => {
    const { clock, peer, connection } = await connected({}, { maxInFlight: 10 })
    peer.handle(RequestType.call, () => undefined)
    const calls = Array.from({ length: 25 }, (_, i) => connection.call('f', [i]))
    await clock.settle()
    expect(peer.requests).toHaveLength(10)
    const seen: unknown[] = []
    peer.handle(RequestType.call, (request) => {
      seen.push((request.body.array(Key.tuple) ?? [])[0])
      request.reply([])
    })
    for (const request of peer.requests.slice()) request.reply([])
    await clock.run(Promise.all(calls))
    expect(seen).toEqual(Array.from({ length: 15 }, (_, i) => i + 10))
  })

  it('of bytes in flight count bodies, and let a single large request go alone', async () => {
    const { clock, peer, connection } = await connected({}, { maxInFlightBytes: 10_000 })
    peer.handle(RequestType.call, () => undefined)
    const large = connection.call('f', ['x'.repeat(50_000)])
    const small = connection.call('f', [])
    await clock.settle()
    expect(peer.requests).toHaveLength(1)
    peer.lastRequest.reply([])
    await clock.run(large)
    await clock.settle()
    peer.lastRequest.reply([])
    await clock.run(small)
  })

  it('of the queue hold while there is no connection', async () => {
    const { clock, peer, connection } = dialling({}, { maxQueued: 100, maxQueuedBytes: 5_000 }, (silent) => {
      silent.silentFrom = 'greeting'
    })
    const ends = Array.from({ length: 200 }, () => outcome(connection.call('f', ['x'.repeat(90)], { timeout: 60_000 })))
    await clock.settle()
    const { queued, queuedBytes } = connection.stats()
    expect(queued).toBeLessThanOrEqual(100)
    expect(queuedBytes).toBeLessThanOrEqual(5_000)
    peer.silentFrom = undefined
    peer.handle(RequestType.call, (request) => request.reply([]))
    const results = await clock.run(Promise.all(ends))
    expect(results.filter((end) => 'value' in end)).toHaveLength(queued)
    expect(results.filter((end) => 'error' in end && end.error instanceof QueueFullError)).toHaveLength(200 - queued)
  })

  it('let a long queue leave in several writes, not in one of any size', async () => {
    const { clock, peer, connection } = dialling({}, {})
    peer.handle(RequestType.call, (request) => request.reply([]))
    const calls = Array.from({ length: 60 }, () => connection.call('f', ['x'.repeat(100_000)]))
    await clock.run(Promise.all(calls))
    expect(connection.stats().writes).toBeGreaterThanOrEqual(6)
  })
})
