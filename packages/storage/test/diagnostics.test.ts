/* What a storage publishes for whoever listens, and that it makes nothing for whoever does not. */
import { channel, subscribe, tracingChannel, unsubscribe } from 'node:diagnostics_channel'
import { BoxError, RequestType } from '@orbweaver/iproto'
import { afterEach, describe, expect, it } from 'vitest'
import { CHANNELS } from '../src/index.js'
import type { BucketChange, RequestTrace, RoleChange } from '../src/index.js'
import { startAlone } from './memory.js'
import { MemoryCluster } from './vshard-cluster.js'

const undo: (() => void)[] = []
afterEach(() => {
  for (const stop of undo.splice(0)) stop()
})

function heard<T>(name: string): T[] {
  const messages: T[] = []
  const keep = (message: unknown): void => void messages.push(structuredClone(message) as T)
  subscribe(name, keep)
  undo.push(() => unsubscribe(name, keep))
  return messages
}

describe('the requests of a storage', () => {
  it('are told from their start to their end, with what was asked for and by whom, and no data', async () => {
    const { storage, connect, clock, wait } = startAlone()
    storage.createSpace('people', { format: [{ name: 'id', type: 'unsigned' }] })
    storage.define('slow', () => new Promise((resolve) => clock.schedule(500, () => resolve('secret answer'))))
    storage.define('broken', () => {
      throw new BoxError(
        [{ type: 'ClientError', code: 1_000, message: 'no', file: '', line: 0, errno: 0, fields: new Map() }],
        { executed: 'yes' },
      )
    })
    const steps: [string, number, RequestTrace][] = []
    const step = (name: string) => (trace: RequestTrace) => void steps.push([name, clock.now(), trace])
    const subscribers = {
      start: step('start'),
      end: step('end'),
      asyncStart: step('asyncStart'),
      asyncEnd: step('asyncEnd'),
      error: step('error'),
    }
    const tracing = tracingChannel<unknown, RequestTrace>(CHANNELS.request)
    tracing.subscribe(subscribers)
    undo.push(() => tracing.unsubscribe(subscribers))
    const client = connect()
    await wait(client.insert('people', [1]))
    const begun = clock.now()
    await wait(client.call('slow', ['secret argument']))
    await wait(client.call('broken').catch(() => undefined))
    await wait(client.stream().ping())
    const inserted = steps.filter(([, , { type }]) => type === RequestType.insert)
    expect(inserted.map(([name]) => name)).toEqual(['start', 'end', 'asyncStart', 'asyncEnd'])
    const [slow, broken] = ['slow', 'broken'].map((called) => steps.filter(([, , trace]) => trace.function === called))
    expect(slow!.map(([name]) => name)).toEqual(['start', 'end', 'asyncStart', 'asyncEnd'])
    expect(slow!.at(-1)![1] - begun).toBe(500)
    expect(new Set(slow!.map(([, , trace]) => trace)).size).toBe(1)
    expect(broken!.map(([name]) => name)).toEqual(['start', 'end', 'error', 'asyncStart', 'asyncEnd'])
    expect(broken!.at(-1)![2]).toMatchObject({
      storage: 'alone',
      user: 'root',
      session: expect.any(Number) as number,
      type: RequestType.call,
      streamId: 0,
      error: { boxCode: 1_000 },
    })
    expect(steps.some(([, , { type, streamId }]) => type === RequestType.ping && streamId !== 0)).toBe(true)
    expect(JSON.stringify(steps)).not.toContain('secret')
    await wait(storage.close({ graceMs: 0 }))
  })
})

describe('the buckets of a storage', () => {
  it('tell each change of theirs, on every instance of the replicaset', async () => {
    const cluster = await new MemoryCluster({ replicasets: 2, instances: 2 }).start()
    const changes = heard<BucketChange>(CHANNELS.bucket)
    await cluster.wait(cluster.at('a1').vshard.sendBucket(3, 'b'))
    await cluster.clock.advance(1_000)
    const of = (name: string): unknown[] =>
      changes
        .filter(({ storage }) => storage === name)
        .map(({ from, to, destination, generation }) => [from, to, destination, generation])
    const source = [
      ['active', 'readonly', undefined, 0],
      ['readonly', 'sending', 'b', 1],
      ['sending', 'sent', 'b', 1],
      ['sent', 'garbage', 'b', 1],
      ['garbage', undefined, 'b', 1],
    ]
    expect([of('a1'), of('a2')]).toEqual([source, source])
    const target = [
      [undefined, 'receiving', 'a', 1],
      ['receiving', 'active', undefined, 1],
    ]
    expect([of('b1'), of('b2')]).toEqual([target, target])
    expect(new Set(changes.map(({ bucketId }) => bucketId))).toEqual(new Set([3]))
    await cluster.close()
  })
})

describe('the role of a storage', () => {
  it('is told when it changes', async () => {
    const cluster = await new MemoryCluster({ replicasets: 1, instances: 2 }).start()
    const changes = heard<RoleChange>(CHANNELS.role)
    await cluster.wait(cluster.at('a2').promote())
    await cluster.clock.advance(200)
    const last = (name: string): RoleChange | undefined => changes.findLast(({ storage }) => storage === name)
    expect(last('a1')).toEqual({
      storage: 'a1',
      status: 'running',
      role: 'follower',
      isReadonly: true,
      term: 3,
      leader: 2,
    })
    expect(last('a2')).toEqual({
      storage: 'a2',
      status: 'running',
      role: 'leader',
      isReadonly: false,
      term: 3,
      leader: 2,
    })
    const count = changes.length
    await cluster.wait(cluster.at('a2').promote())
    await cluster.clock.advance(200)
    expect(changes).toHaveLength(count)
    await cluster.close()
  })
})

describe('the log of a storage', { timeout: 30_000 }, () => {
  it('mentions that moves are throttled once a minute, with the number of times', async () => {
    const lines = heard<{ package: string; event: string; storage: string; times: number; destination: string }>(
      'orbweaver:log',
    )
    const cluster = await new MemoryCluster({
      replicasets: 2,
      bucketCount: 200,
      vshard: { rebalancerMode: 'auto', rebalancerMaxSending: 15, rebalancerMaxReceiving: 1 },
    }).start([200, 0])
    // Each message takes a while, so that those that wait ask again and again.
    for (const called of ['vshard.storage.bucket_recv'])
      cluster.intercept('b1', called, async (run) => {
        await new Promise<void>((resolve) => cluster.clock.schedule(500, resolve))
        return run()
      })
    const begun = cluster.clock.now()
    await cluster.clock.until(() => cluster.side('b1').buckets.count('active') >= 90)
    const minutes = (cluster.clock.now() - begun) / 60_000
    const throttled = lines.filter(({ event }) => event === 'moves throttled')
    expect(minutes).toBeGreaterThan(1)
    expect(throttled.length).toBeGreaterThan(1)
    expect(throttled.length).toBeLessThanOrEqual(Math.ceil(minutes))
    expect(throttled[0]).toMatchObject({ package: 'storage', storage: 'a1', destination: 'b', times: 1 })
    const { throttled: times } = cluster.at('a1').vshard.info().rebalancer.sending
    expect(times).toBeGreaterThan(100)
    await cluster.close()
  })
})

describe('a channel without subscribers', () => {
  it('costs nothing: no message is made for it', async () => {
    for (const name of [CHANNELS.bucket, CHANNELS.role, CHANNELS.log]) expect(channel(name).hasSubscribers).toBe(false)
    const { start, end, asyncStart, asyncEnd, error } = tracingChannel(CHANNELS.request)
    for (const each of [start, end, asyncStart, asyncEnd, error]) expect(each.hasSubscribers).toBe(false)
    const { storage, connect, wait } = startAlone()
    storage.define('echo', (_context, value) => value)
    expect(await wait(connect().call('echo', [1]))).toEqual([1])
    await wait(storage.close({ graceMs: 0 }))
  })
})
