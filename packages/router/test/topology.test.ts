/* Other replicasets while the router runs: by hand, by a source, and under calls. */
import type { ClusterConfig, ReplicasetConfig } from '@orbweaver/vshard'
import { afterEach, describe, expect, it } from 'vitest'
import type { Router, TopologySource } from '../src/index.js'
import { failure, FakeCluster } from './fake-cluster.js'

let cluster: FakeCluster

afterEach(() => cluster.close())

async function start(options: Parameters<FakeCluster['readyRouter']>[0] = {}): Promise<Router> {
  cluster = new FakeCluster({ a: ['a1', 'a2'], b: ['b1'] }, 20)
  cluster.put('a', 1, 10, 'active')
  cluster.put('b', 11, 20, 'active')
  return cluster.readyRouter(options)
}

const run = <T>(work: Promise<T>): Promise<T> => cluster.clock.run(work)
const withSets = (...replicasets: ReplicasetConfig[]): ClusterConfig => ({ ...cluster.config, replicasets })
const setOf = (id: string): ReplicasetConfig => cluster.config.replicasets.find((set) => set.id === id)!

describe('another configuration', () => {
  it('that is the same, a hundred times, changes nothing and dials nobody', async () => {
    const router = await start()
    const [dials, handles, { generation }] = [new Map(cluster.dials), router.routeAll(), router.stats()]
    for (let i = 0; i < 100; i++) router.reconfigure(structuredClone(cluster.config))
    await cluster.clock.advance(1_000)
    expect(new Map(cluster.dials)).toEqual(dials)
    expect([router.stats().generation, router.info().topologyVersion]).toEqual([generation, 0])
    for (const [id, handle] of router.routeAll()) expect(handle).toBe(handles.get(id))
  })

  it('with one replicaset less makes its buckets unknown at once, and no call goes to it any more', async () => {
    const router = await start()
    const events: object[] = []
    router.on('topology', (event) => events.push(event))
    router.reconfigure(withSets(setOf('b')))
    expect([router.info().known, router.locate(1), router.locate(11)]).toEqual([10, undefined, 'b'])
    cluster.put('a', 1, 10, undefined)
    cluster.put('b', 1, 10, 'active')
    expect(await run(router.callrw(1, 'who'))).toEqual(['b1'])
    expect([cluster.count('call', 'a'), [...router.routeAll().keys()]]).toEqual([0, ['b']])
    expect(events).toEqual([{ router: 'router', version: 1, added: [], removed: ['a'], changed: [] }])
  })

  it('has all the others read again at once', async () => {
    const router = await start({ discoveryMode: 'on' })
    await cluster.clock.advance(1_000)
    cluster.seen.length = 0
    cluster.move(11, 'b', 'a')
    router.reconfigure(withSets({ ...setOf('a'), weight: 2 }, setOf('b')))
    await cluster.clock.advance(100)
    expect([cluster.count('buckets_discovery', 'a'), cluster.count('buckets_discovery', 'b')]).toEqual([1, 1])
    expect(router.locate(11)).toBe('a')
  })

  it('without a replicaset that has calls in flight lets them finish', async () => {
    const router = await start()
    cluster.latencyMs = 200
    const inFlight = router.callrw(1, 'who')
    await cluster.clock.advance(10)
    router.reconfigure(withSets(setOf('b')))
    expect(await run(inFlight)).toEqual(['a1'])
  })

  it('without the replicaset a call waits for sends it where its bucket is now', async () => {
    const router = await start()
    cluster.stop('a1')
    cluster.stop('a2')
    await cluster.clock.advance(100)
    const waiting = router.callrw(1, 'who')
    await cluster.clock.advance(500)
    cluster.put('b', 1, 10, 'active')
    router.reconfigure(withSets(setOf('b')))
    expect(await run(waiting)).toEqual(['b1'])
  })

  it('with the replicaset again, removed before, makes a new one of it', async () => {
    const router = await start()
    const old = router.routeAll().get('a')!
    router.reconfigure(withSets(setOf('b')))
    router.reconfigure(cluster.config)
    await cluster.clock.advance(1_000)
    expect(router.routeAll().get('a')).not.toBe(old)
    expect(await run(router.callrw(1, 'who'))).toEqual(['a1'])
    expect(await run(failure(old.callrw('x')))).toMatchObject({ code: 'ORB_CONNECTION_CLOSED', executed: 'no' })
  })

  it('with another instance and another weight keeps the connections of the rest', async () => {
    const router = await start()
    const dials = new Map(cluster.dials)
    const bigger = cluster.define('a', ['a1', 'a2', 'a3'])
    cluster.put('a', 1, 10, 'active')
    router.reconfigure(withSets({ ...bigger, weight: 5 }, setOf('b')))
    await cluster.clock.advance(500)
    expect(new Map(cluster.dials)).toEqual(new Map([...dials, ['a3', 1]]))
    const readers = new Set<string>()
    for (let i = 0; i < 9; i++) readers.add((await run(router.callbro<[string]>(1, 'who')))[0])
    expect([...readers].toSorted()).toEqual(['a1', 'a2', 'a3'])
    expect([router.config.replicasets[0]!.weight, router.locate(1)]).toEqual([5, 'a'])
  })

  it('with another login connects anew and keeps the routes', async () => {
    const router = await start()
    for (const peer of cluster.peers.values()) peer.users = { ...peer.users, other: 'new' }
    router.reconfigure({ ...cluster.config, user: 'other', password: 'new' })
    expect(router.info().known).toBe(20)
    await cluster.clock.advance(500)
    expect(await run(router.callrw(1, 'who'))).toEqual(['a1'])
    expect(cluster.peers.get('a1')!.session.user).toBe('other')
  })

  it('with other names of the same replicasets keeps their routes: those follow the uuid', async () => {
    const uuids = { a: '11111111-1111-4111-8111-111111111111', b: '22222222-2222-4222-8222-222222222222' }
    cluster = new FakeCluster({ a: ['a1'], b: ['b1'] }, 20)
    cluster.put('a', 1, 10, 'active')
    cluster.put('b', 11, 20, 'active')
    const named = (names: { a: string; b: string }): ClusterConfig =>
      withSets(
        { ...setOf('a'), id: names.a, name: names.a, uuid: uuids.a },
        { ...setOf('b'), id: names.b, name: names.b, uuid: uuids.b },
      )
    const router = await cluster.readyRouter({ config: named({ a: 'a', b: 'b' }) })
    router.reconfigure(named({ a: 'b', b: 'a' }))
    expect([router.locate(1), router.locate(11), router.info().known]).toEqual(['b', 'a', 20])
    expect(await run(router.callrw(1, 'who'))).toEqual(['a1'])
    router.reconfigure(named({ a: 'fresh', b: 'a' }))
    expect([router.locate(1), cluster.dials.get('a1')]).toEqual(['fresh', 1])
    // A storage may name a destination by its uuid.
    cluster.put('a', 1, 1, 'sent', uuids.b)
    cluster.put('b', 1, 1, 'active')
    expect(await run(router.callrw(1, 'who'))).toEqual(['b1'])
    expect(router.stats().lookups).toBe(0)
  })

  it('of another number of buckets is refused, and a wrong one changes nothing', async () => {
    const router = await start()
    expect(() => router.reconfigure({ ...cluster.config, bucketCount: 30 })).toThrow(/bucketCount.*30.*20/)
    expect(() => router.reconfigure(withSets(setOf('a'), setOf('a')))).toThrow(/cluster configuration/)
    expect([router.info().topologyVersion, router.info().known]).toEqual([0, 20])
  })

  it('under calls, again and again, fails none of them', async () => {
    const router = await start()
    cluster.latencyMs = 3
    const bigger = cluster.define('a', ['a1', 'a2', 'a3'])
    cluster.put('a', 1, 10, 'active')
    const configs = [withSets(setOf('a'), setOf('b')), withSets(bigger, setOf('b')), withSets(setOf('b'), bigger)]
    const calls: Promise<unknown>[] = []
    for (let i = 0; i < 300; i++) {
      if (i % 10 === 0) router.reconfigure(configs[(i / 10) % 3]!)
      for (let id = 1; id <= 20; id += 5) calls.push(router.callrw(id, 'echo', [i]), router.callbro(id, 'echo', [i]))
      await cluster.clock.advance(2)
    }
    expect(await run(Promise.all(calls))).toHaveLength(2_400)
  })
})

/** A source a test holds the handle of. */
class HandSource implements TopologySource {
  reads = 0
  failure: Error | undefined
  config: ClusterConfig
  changed: () => void = () => undefined
  isWatched = false

  constructor(config: ClusterConfig) {
    this.config = config
  }

  async read(): Promise<ClusterConfig> {
    this.reads++
    if (this.failure !== undefined) throw this.failure
    return this.config
  }

  watch(changed: () => void): () => void {
    this.changed = changed
    this.isWatched = true
    return () => {
      this.isWatched = false
    }
  }
}

describe('a source of configurations', () => {
  async function startWith(): Promise<{ router: Router; source: HandSource; third: ReplicasetConfig }> {
    cluster = new FakeCluster({ a: ['a1'], b: ['b1'] }, 20)
    cluster.put('a', 1, 10, 'active')
    cluster.put('b', 11, 20, 'active')
    const source = new HandSource(cluster.config)
    const router = await cluster.readyRouter({ topology: source })
    return { router, source, third: cluster.define('c', ['c1']) }
  }

  it('is read from time to time, and when it says that it changed', async () => {
    const { router, source, third } = await startWith()
    await cluster.clock.advance(200_000)
    expect(source.reads).toBeGreaterThanOrEqual(2)
    expect(source.reads).toBeLessThanOrEqual(4)
    source.config = withSets(setOf('a'), setOf('b'), third)
    source.changed()
    await cluster.clock.advance(100)
    expect([...router.routeAll().keys()]).toEqual(['a', 'b', 'c'])
    await run(router.close({ timeout: 0 }))
    expect(source.isWatched).toBe(false)
  })

  it('is asked when a storage names an owner nobody knows: the call waits for it and goes there', async () => {
    const { router, source, third } = await startWith()
    cluster.put('a', 1, 1, 'sent', 'c')
    cluster.putOn('c1', 1, 1, 'active')
    const before = source.reads
    const calls = Array.from({ length: 50 }, () => router.callrw(1, 'who', [], { timeout: 5_000 }))
    const startMs = cluster.clock.now()
    cluster.clock.schedule(1_000, () => {
      source.config = withSets(setOf('a'), setOf('b'), third)
      source.changed()
    })
    for (const values of await run(Promise.all(calls))) expect(values).toEqual(['c1'])
    // At once: searches that pause do not sleep on.
    expect(cluster.clock.now() - startMs).toBeLessThan(1_100)
    expect(source.reads - before).toBeLessThanOrEqual(2)
    expect(router.locate(1)).toBe('c')
    expect(router.info().alerts).toEqual([])
  })

  it('that never has the owner leaves the call to its deadline, with one warning', async () => {
    const { router, source } = await startWith()
    cluster.put('a', 1, 1, 'sent', 'c')
    const alerts: string[] = []
    router.on('alert', ({ name }) => alerts.push(name))
    const before = source.reads
    const error = await run(failure(router.callrw(1, 'who', [], { timeout: 7_000 })))
    expect(error).toMatchObject({ code: 'ORB_NO_ROUTE', executed: 'no', cause: { vshardName: 'WRONG_BUCKET' } })
    expect(alerts).toEqual(['NO_SUCH_REPLICASET'])
    expect(source.reads - before).toBeLessThanOrEqual(4)
  })

  it('is not asked more often than every two seconds, however many calls find the unknown owner', async () => {
    const { router, source } = await startWith()
    cluster.put('a', 1, 10, 'sent', 'c')
    const before = source.reads
    const calls: Promise<unknown>[] = []
    for (let i = 0; i < 100; i++) {
      calls.push(failure(router.callrw(1 + (i % 10), 'who', [], { timeout: 300 })))
      await cluster.clock.advance(100)
    }
    await run(Promise.all(calls))
    expect(source.reads - before).toBeGreaterThanOrEqual(4)
    expect(source.reads - before).toBeLessThanOrEqual(6)
  })

  it('that fails leaves the last good configuration in place, and an alert says so until it is back', async () => {
    const { router, source } = await startWith()
    source.failure = new Error('the file is empty')
    source.changed()
    await cluster.clock.advance(100)
    expect(router.info().alerts).toEqual([
      { name: 'INVALID_CFG', message: 'The topology cannot be read, the last one stays: the file is empty' },
    ])
    expect(await run(router.callrw(1, 'who'))).toEqual(['a1'])
    source.failure = undefined
    source.config = { ...cluster.config, bucketCount: 7 }
    source.changed()
    await cluster.clock.advance(100)
    expect(router.info().alerts[0]!.message).toContain('bucketCount')
    source.config = cluster.config
    source.changed()
    await cluster.clock.advance(100)
    expect(router.info().alerts).toEqual([])
  })
})

it('several routers in one process know nothing of each other', async () => {
  const first = await start()
  const second = cluster.router({ name: 'second' })
  await cluster.clock.advance(200)
  first.disable()
  expect(await run(failure(first.callrw(1, 'who')))).toMatchObject({ vshardName: 'ROUTER_IS_DISABLED', executed: 'no' })
  expect(await run(second.callrw(1, 'who'))).toEqual(['a1'])
  expect([first.info().known, second.info().known]).toEqual([20, 1])
  expect([first.info().isEnabled, second.info().isEnabled, second.info().name]).toEqual([false, true, 'second'])
  first.enable()
  expect(await run(first.callrw(1, 'who'))).toEqual(['a1'])
  await run(second.close({ timeout: 0 }))
  expect(await run(first.callrw(11, 'who'))).toEqual(['b1'])
})

it('a router that is disabled lets finish what is in flight', async () => {
  const router = await start()
  cluster.latencyMs = 100
  const inFlight = router.callrw(1, 'who')
  await cluster.clock.advance(10)
  router.disable()
  expect(await run(inFlight)).toEqual(['a1'])
})
