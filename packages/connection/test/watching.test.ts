import { RequestType, UnsupportedFeatureError } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { connected, dialling, failure } from './rig.js'

describe('watch', () => {
  it('gives the current value at once and then each change', async () => {
    const { clock, peer, connection } = await connected()
    peer.values.set('k', 1)
    const values: unknown[] = []
    connection.watch('k', (value) => values.push(value))
    await clock.settle()
    for (const value of [2, 2, { a: 3 }, undefined]) {
      peer.broadcast('k', value)
      await clock.settle()
    }
    expect(values).toEqual([1, 2, 2, { a: 3 }, undefined])
  })

  it.each(['missing', '', 'box.anything'])('takes the key %j like any other', async (key) => {
    const { clock, peer, connection } = await connected()
    const values: unknown[] = []
    const end = connection.watch(key, (value) => values.push(value))
    await clock.settle()
    peer.broadcast(key, 'set')
    await clock.settle()
    expect(values).toEqual([undefined, 'set'])
    end()
    await clock.settle()
    expect(peer.session.watchedKeys).not.toContain(key)
  })

  it('made before the connection is subscribed to when it comes, and again after each reconnect', async () => {
    const { clock, peer, connection } = dialling()
    peer.values.set('k', 'first')
    const values: unknown[] = []
    connection.watch('k', (value) => values.push(value))
    await clock.run(connection.connect())
    await clock.settle()
    for (const value of ['second', 'third']) {
      peer.values.set('k', value)
      peer.cut()
      await clock.advance(5_000)
    }
    expect(values).toEqual(['first', 'second', 'third'])
  })

  it('acknowledges an event only after the callback returned, so that the server merges what comes meanwhile', async () => {
    const { clock, peer, connection } = await connected()
    const values: unknown[] = []
    connection.watch('k', (value) => {
      values.push(value)
      if (value === 1) for (const next of [2, 3, 4]) peer.broadcast('k', next)
    })
    await clock.settle()
    peer.broadcast('k', 1)
    await clock.settle()
    expect(values).toEqual([undefined, 1, 4])
  })

  it('shares one remote subscription between local watchers, and tells a late one the last value', async () => {
    const { clock, peer, connection } = await connected()
    peer.values.set('k', 1)
    const seen: [who: string, value: unknown][] = []
    const endA = connection.watch('k', (value) => seen.push(['a', value]))
    await clock.settle()
    const bytesForOne = connection.stats().bytesWritten
    const endB = connection.watch('k', (value) => seen.push(['b', value]))
    expect(seen).toEqual([['a', 1]])
    await clock.settle()
    expect(seen).toEqual([
      ['a', 1],
      ['b', 1],
    ])
    expect(connection.stats().bytesWritten).toBe(bytesForOne)
    peer.broadcast('k', 2)
    await clock.settle()
    expect(seen.slice(2)).toEqual([
      ['a', 2],
      ['b', 2],
    ])
    endA()
    endA()
    await clock.settle()
    expect(peer.session.watchedKeys).toContain('k')
    endB()
    await clock.settle()
    expect(peer.session.watchedKeys).not.toContain('k')
  })

  it('calls nobody after the subscription was ended, also from inside a callback', async () => {
    const { clock, peer, connection } = await connected()
    const values: unknown[] = []
    const ends: (() => void)[] = []
    ends.push(connection.watch('k', () => ends.forEach((end) => end())))
    ends.push(connection.watch('k', (value) => values.push(value)))
    await clock.settle()
    peer.broadcast('k', 1)
    await clock.settle()
    expect(values).toEqual([])
    expect(peer.session.watchedKeys).not.toContain('k')
  })

  it('ends with its signal', async () => {
    const { clock, peer, connection } = await connected()
    const controller = new AbortController()
    const values: unknown[] = []
    connection.watch('k', (value) => values.push(value), { signal: controller.signal })
    connection.watch('k', () => expect.unreachable(), { signal: AbortSignal.abort() })
    await clock.settle()
    controller.abort()
    peer.broadcast('k', 1)
    await clock.settle()
    expect(values).toEqual([undefined])
  })

  it('takes numbers and maps as the connection decodes them', async () => {
    const { clock, peer, connection } = await connected({}, { decode: { integers: 'bigint', maps: 'map' } })
    const values: unknown[] = []
    peer.values.set('k', { a: 1 })
    connection.watch('k', (value) => values.push(value))
    await clock.settle()
    expect(values).toEqual([new Map([['a', 1n]])])
  })
})

describe('An event whose value cannot be decoded as asked', () => {
  it('is told to onError or the event, and the next one is heard', async () => {
    const { clock, peer, connection } = await connected({}, { decode: { integers: 'number' } })
    const told: string[] = []
    const values: unknown[] = []
    connection.watch('k', (value) => values.push(value), { onError: (error) => told.push(error.code) })
    await clock.settle()
    peer.broadcast('k', 2n ** 60n)
    await clock.settle()
    expect(told).toEqual(['ORB_MALFORMED_FRAME'])
    peer.broadcast('k', 5)
    await clock.settle()
    expect(values).toEqual([undefined, 5])
    expect(connection.generation).toBe(1)
  })
})

describe('On a server without watchers', () => {
  it('watch throws before anything is sent, once that is known', async () => {
    const { clock, peer, connection } = await connected({ version: '2.6.0' })
    expect(() => connection.watch('k', () => undefined)).toThrow(UnsupportedFeatureError)
    await clock.settle()
    expect(peer.requests).toEqual([])
    expect(peer.session.watchedKeys).toEqual([])
  })

  it('a watch made earlier learns it by onError, or by the event, and is served by a later server', async () => {
    const { clock, peer, connection } = dialling({ version: '2.6.0' })
    const told: string[] = []
    const values: unknown[] = []
    connection.watch('mine', (value) => values.push(value), { onError: (error) => told.push(`mine ${error.code}`) })
    connection.watch('theirs', () => undefined)
    connection.on('watchError', (key, error) => told.push(`${key} ${error.code}`))
    await clock.run(connection.connect())
    expect(told).toEqual(['mine ORB_UNSUPPORTED_FEATURE', 'theirs ORB_UNSUPPORTED_FEATURE'])
    peer.version = '2.11.0'
    peer.features = [0, 1, 2, 3, 4]
    peer.cut()
    await clock.advance(100)
    expect(values).toEqual([undefined])
  })

  it('the connection works without its own subscription to box.shutdown', async () => {
    const { clock, connection } = await connected({ version: '2.6.0' })
    const errors: unknown[] = []
    connection.on('watchError', (key) => errors.push(key))
    await clock.run(connection.ping())
    expect(errors).toEqual([])
  })

  it('an error for a WATCH reaches its watcher and ends nothing else', async () => {
    const { clock, peer, connection } = await connected()
    peer.handle(RequestType.watch, (request) => request.error(69, 'Missing mandatory field'))
    const told: string[] = []
    connection.watch('k', () => undefined, { onError: (error) => told.push(error.message) })
    await clock.settle()
    expect(told).toEqual(['Missing mandatory field'])
    await clock.run(connection.ping())
    expect(connection.generation).toBe(1)
  })
})

describe('watchValues', () => {
  it('gives the current value and then the newest each time the loop asks', async () => {
    const { clock, peer, connection } = await connected()
    peer.values.set('k', 1)
    const values = connection.watchValues('k')
    expect(await clock.run(values.next())).toEqual({ done: false, value: 1 })
    for (const value of [2, 3, 4]) {
      peer.broadcast('k', value)
      await clock.settle()
    }
    expect(await clock.run(values.next())).toEqual({ done: false, value: 4 })
    const waiting = values.next()
    await clock.settle()
    peer.broadcast('k', 5)
    expect(await clock.run(waiting)).toEqual({ done: false, value: 5 })
  })

  it('unsubscribes when the loop is left', async () => {
    const { clock, peer, connection } = await connected()
    await clock.run(
      (async () => {
        for await (const value of connection.watchValues('k')) {
          expect(value).toBeUndefined()
          break
        }
      })(),
    )
    await clock.settle()
    expect(peer.session.watchedKeys).not.toContain('k')
  })

  it('ends when the connection is closed or its signal fires', async () => {
    const { clock, connection } = await connected()
    const controller = new AbortController()
    const loop = async (signal?: AbortSignal): Promise<number> => {
      let count = 0
      for await (const value of connection.watchValues('k', signal === undefined ? {} : { signal }))
        count += value === undefined ? 1 : 0
      return count
    }
    const loops = [loop(), loop(controller.signal)]
    await clock.settle()
    controller.abort()
    expect(await clock.run(loops[1] as Promise<number>)).toBe(1)
    connection.destroy()
    expect(await clock.run(loops[0] as Promise<number>)).toBe(1)
  })

  it('throws when the server that is found has no watchers', async () => {
    const { clock, connection } = dialling({ version: '2.6.0' })
    const next = failure(connection.watchValues('k').next())
    expect(await clock.run(next)).toBeInstanceOf(UnsupportedFeatureError)
  })
})

describe('watchOnce', () => {
  it.each([['3.2.1'], ['2.11.0']])('reads the value of this moment on %s, watched already or not', async (version) => {
    const { clock, peer, connection } = await connected({ version })
    expect(await clock.run(connection.watchOnce('k'))).toBeUndefined()
    peer.values.set('k', 1)
    expect(await clock.run(connection.watchOnce('k'))).toBe(1)
    const values: unknown[] = []
    connection.watch('k', (value) => values.push(value))
    await clock.settle()
    peer.values.set('k', 2)
    expect(await clock.run(connection.watchOnce('k'))).toBe(2)
    peer.broadcast('k', 3)
    await clock.settle()
    expect(values.at(-1)).toBe(3)
    expect(peer.session.watchedKeys).toContain('k')
  })

  it('leaves no subscription behind on 2.11', async () => {
    const { clock, peer, connection } = await connected({ version: '2.11.0' })
    await clock.run(connection.watchOnce('k'))
    await clock.settle()
    expect(peer.session.watchedKeys).toEqual(['box.shutdown'])
    expect(connection.stats().watchedKeys).toBe(1)
  })

  it('waits for the connection like any request', async () => {
    const { clock, peer, connection } = dialling({ version: '2.11.0' })
    peer.values.set('k', 1)
    expect(await clock.run(connection.watchOnce('k'))).toBe(1)
  })

  it('fails within its timeout, and when the connection breaks', async () => {
    const { clock, peer, connection } = await connected({ version: '2.11.0' })
    peer.handle(RequestType.watch, () => undefined)
    expect(await clock.run(failure(connection.watchOnce('k', { timeout: 100 })))).toMatchObject({
      code: 'ORB_REQUEST_TIMEOUT',
    })
    const broken = failure(connection.watchOnce('k', { timeout: 60_000 }))
    await clock.settle()
    peer.cut()
    expect(await clock.run(broken)).toMatchObject({ code: 'ORB_CONNECTION_LOST' })
    expect(connection.stats().watchedKeys).toBe(1)
  })

  it('is refused before anything is sent on 2.6', async () => {
    const { clock, peer, connection } = await connected({ version: '2.6.0' })
    expect(await clock.run(failure(connection.watchOnce('k')))).toBeInstanceOf(UnsupportedFeatureError)
    expect(peer.requests).toEqual([])
  })
})

describe('box.shutdown', () => {
  it('is acknowledged, so that the server tells', async () => {
    const { clock, peer } = await connected()
    await clock.settle()
    expect(peer.session.watchedKeys).toEqual(['box.shutdown'])
  })

  it('lets what is under way finish, keeps new requests for the next connection, then reconnects', async () => {
    const { clock, peer, connection } = await connected()
    const events: string[] = []
    connection.on('shutdown', () => events.push('shutdown'))
    peer.handle(RequestType.call, () => undefined)
    const slow = connection.call('slow')
    await clock.settle()
    const before = peer.session
    peer.broadcast('box.shutdown', true)
    await clock.settle()
    expect([connection.state, events]).toEqual(['graceful_shutdown', ['shutdown']])
    const later = connection.call('later')
    await clock.advance(500)
    expect(peer.requestsOf(RequestType.call)).toHaveLength(1)
    peer.values.delete('box.shutdown')
    peer.handle(RequestType.call, (request) => request.reply(['on the next']))
    peer.requestsOf(RequestType.call)[0]?.reply(['finished'])
    expect(await clock.run(slow)).toEqual(['finished'])
    await clock.settle()
    expect(before.open).toBe(false)
    expect(await clock.run(later)).toEqual(['on the next'])
    expect(connection.generation).toBe(2)
  })

  it('lets an open transaction end in its session', async () => {
    const { clock, peer, connection } = await connected()
    for (const type of [RequestType.begin, RequestType.commit]) peer.handle(type, (request) => request.ok())
    peer.handle(RequestType.insert, (request) => request.reply([[1]]))
    const stream = connection.stream()
    await clock.run(stream.begin())
    const before = peer.session
    peer.broadcast('box.shutdown', true)
    await clock.settle()
    expect(before.open).toBe(true)
    await clock.run(stream.insert(512, [1]))
    await clock.run(stream.commit())
    expect(peer.requestsOf(RequestType.commit)[0]?.session).toBe(before)
    await clock.settle()
    expect(before.open).toBe(false)
    connection.destroy()
  })

  it('loses only what the server cuts off', async () => {
    const { clock, peer, connection } = await connected()
    peer.handle(RequestType.call, () => undefined)
    const slow = failure(connection.call('slow', [], { timeout: 60_000 }))
    await clock.settle()
    peer.broadcast('box.shutdown', true)
    await clock.advance(3_000)
    peer.values.clear()
    peer.cut()
    expect(await clock.run(slow)).toMatchObject({ code: 'ORB_CONNECTION_LOST', executed: 'unknown' })
    await clock.run(connection.ping())
  })
})
