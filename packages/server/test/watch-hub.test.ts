import { VirtualClock } from '@orbweaver/connection/testing'
import { decodeEvent, decodeValue, encodeValue, FrameHeader } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { createWatchHub } from '../src/index.js'
import type { ClientSession } from '../src/index.js'

/** A session that only keeps the events it was sent: key, value, sync. */
function listener(): { session: ClientSession; events: [string, unknown, number | bigint][] } {
  const events: [string, unknown, number | bigint][] = []
  const header = new FrameHeader()
  const reply = (chunks: readonly Uint8Array[]): boolean => {
    const frame = Buffer.concat(chunks)
    header.read(frame)
    const { key, value } = decodeEvent(frame, header)
    events.push([key, value, header.sync])
    return true
  }
  return { session: { reply } as unknown as ClientSession, events }
}

function start(maxWatchedKeys = 10) {
  const clock = new VirtualClock()
  return { clock, hub: createWatchHub({ clock, maxWatchedKeys }) }
}

describe('the watch hub', () => {
  it('answers a subscription at once, also for a key nobody has set', async () => {
    const { clock, hub } = start()
    const { session, events } = listener()
    hub.broadcast('a', encodeValue(1))
    hub.watch(session, 'a', 0, 11)
    hub.watch(session, 'b', 0, 12)
    await clock.settle()
    expect(events).toEqual([
      ['a', 1, 11],
      ['b', undefined, 12],
    ])
  })

  it('sends nothing until the last event is acknowledged, then only the newest value', async () => {
    const { clock, hub } = start()
    const { session, events } = listener()
    hub.watch(session, 'k', 0, 1)
    await clock.settle()
    hub.broadcast('k', encodeValue('first'))
    hub.broadcast('k', encodeValue('second'))
    await clock.settle()
    expect(events).toHaveLength(1)
    hub.watch(session, 'k', 0, 2)
    await clock.settle()
    expect(events[1]).toEqual(['k', 'second', 2])
  })

  it('is silent for further acknowledgements while nothing changes', async () => {
    const { clock, hub } = start()
    const { session, events } = listener()
    for (let sync = 1; sync <= 4; sync++) {
      hub.watch(session, 'k', 0, sync)
      await clock.settle()
    }
    expect(events).toHaveLength(1)
    hub.broadcast('k', encodeValue(true))
    await clock.settle()
    expect(events[1]).toEqual(['k', true, 4])
  })

  it('tells of an equal value too', async () => {
    const { clock, hub } = start()
    const { session, events } = listener()
    hub.watch(session, 'k', 0, 1)
    await clock.settle()
    hub.watch(session, 'k', 0, 1)
    for (let i = 0; i < 2; i++) {
      hub.broadcast('k', encodeValue('same'))
      await clock.settle()
      hub.watch(session, 'k', 0, 1)
      await clock.settle()
    }
    expect(events.map(([, value]) => value)).toEqual([undefined, 'same', 'same'])
  })

  it('merges a burst within one turn into one event', async () => {
    const { clock, hub } = start()
    const { session, events } = listener()
    hub.watch(session, 'k', 0, 1)
    hub.broadcast('k', encodeValue(1))
    hub.broadcast('k', encodeValue(2))
    await clock.settle()
    expect(events).toEqual([['k', 2, 1]])
  })

  it('carries syncs of 64 bits and long keys unharmed', async () => {
    const { clock, hub } = start()
    const { session, events } = listener()
    const key = 'k'.repeat(1_000)
    hub.watch(session, key, 0xffff_ffff, 0xffff_ffff)
    await clock.settle()
    expect(events).toEqual([[key, undefined, 18_446_744_073_709_551_615n]])
  })

  it('forgets unwatched keys and ended sessions, with everything kept for them', async () => {
    const { clock, hub } = start()
    const { session, events } = listener()
    hub.watch(session, 'a', 0, 1)
    hub.watch(session, 'b', 0, 1)
    await clock.settle()
    hub.unwatch(session, 'a')
    hub.watch(session, 'b', 0, 1)
    hub.drop(session)
    hub.broadcast('a', encodeValue(1))
    hub.broadcast('b', encodeValue(1))
    await clock.settle()
    expect(events).toHaveLength(2)
    expect([hub.watchers('a'), hub.watchers('b')]).toEqual([0, 0])
  })

  it('refuses more keys than a session may watch', () => {
    const { hub } = start(2)
    const { session } = listener()
    hub.watch(session, 'a', 0, 1)
    hub.watch(session, 'b', 0, 1)
    expect(() => hub.watch(session, 'c', 0, 1)).toThrow(/2 keys/)
    hub.unwatch(session, 'a')
    hub.watch(session, 'c', 0, 1)
    expect(hub.watchers('c')).toBe(1)
  })

  it('sends one event for a key that was unwatched and watched again at once', async () => {
    const { clock, hub } = start()
    const { session, events } = listener()
    hub.watch(session, 'k', 0, 1)
    hub.unwatch(session, 'k')
    hub.watch(session, 'k', 0, 2)
    await clock.settle()
    expect(events).toEqual([['k', undefined, 2]])
  })

  it('tells a listener of the process the value of the moment and the newest one after each change', async () => {
    const { clock, hub } = start()
    const seen: unknown[] = []
    const stop = hub.listen('k', (value) => seen.push(value === undefined ? undefined : decodeValue(value)))
    expect(seen).toEqual([])
    await clock.settle()
    hub.broadcast('k', encodeValue(1))
    hub.broadcast('k', encodeValue(2))
    await clock.settle()
    hub.broadcast('k', encodeValue(3))
    stop()
    await clock.settle()
    expect(seen).toEqual([undefined, 2])
    expect(hub.watchers('k')).toBe(0)
  })

  it('keeps a key while somebody of the process listens, and forgets nobody else when that ends twice', async () => {
    const { clock, hub } = start()
    const first = hub.listen('k', () => undefined)
    first()
    const { session, events } = listener()
    hub.watch(session, 'k', 0, 1)
    first()
    await clock.settle()
    hub.watch(session, 'k', 0, 2)
    hub.broadcast('k', encodeValue('still heard'))
    await clock.settle()
    expect(events.at(-1)).toEqual(['k', 'still heard', 2])
  })
})
