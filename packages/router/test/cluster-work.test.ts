/* What a router does beside single calls: many at once, the cluster as a whole, what it tells, what it refuses. */
import { subscribe, unsubscribe, tracingChannel } from 'node:diagnostics_channel'
import { VshardError } from '@orbweaver/vshard'
import { afterEach, describe, expect, it } from 'vitest'
import { CHANNELS } from '../src/index.js'
import type { CallKind, CallTrace, MapTrace, Router, RouterCallOptions, RoutesChange } from '../src/index.js'
import { failure, FakeCluster, Raised } from './fake-cluster.js'

let cluster: FakeCluster

afterEach(() => cluster.close())

async function start(options: Parameters<FakeCluster['readyRouter']>[0] = {}): Promise<Router> {
  cluster = new FakeCluster({ a: ['a1', 'a2'], b: ['b1'] }, 20)
  cluster.put('a', 1, 10, 'active')
  cluster.put('b', 11, 20, 'active')
  return cluster.readyRouter(options)
}

const run = <T>(work: Promise<T>): Promise<T> => cluster.clock.run(work)

describe('many calls at once', () => {
  it('tell how each of them ended, in their order', async () => {
    const router = await start()
    cluster.put('a', 3, 3, 'sent', 'b')
    cluster.put('b', 3, 3, 'active')
    cluster.answer = ({ call, args }) =>
      call === 'call' && args[0] === 5 ? [null, VshardError.of('BUCKET_IS_CORRUPTED').toWire()] : undefined
    const outcomes = await run(
      router.callManyRw(Array.from({ length: 20 }, (_, i) => ({ bucketId: i + 1, name: 'echo', args: [i + 1] }))),
    )
    expect(outcomes).toHaveLength(20)
    for (const [i, outcome] of outcomes.entries())
      if (i === 4) expect(outcome).toMatchObject({ ok: false, error: { vshardName: 'BUCKET_IS_CORRUPTED' } })
      else expect(outcome).toEqual({ ok: true, values: [i + 1] })
  })

  it('go to each replicaset in one write, and a slow one holds up only its own', async () => {
    const router = await start()
    const before = cluster.peers.get('a1')!.session.chunksReceived
    const calls = Array.from({ length: 1_000 }, (_, i) => ({ bucketId: 1 + (i % 20), name: 'who' }))
    expect(await run(router.callManyRw(calls))).toHaveLength(1_000)
    expect(cluster.peers.get('a1')!.session.chunksReceived - before).toBeLessThan(5)
  })

  it('have so many in flight to one replicaset, and more when those end', async () => {
    const router = await start()
    cluster.latencyMs = 10
    const calls = Array.from({ length: 3_000 }, () => ({ bucketId: 1, name: 'who' }))
    const outcome = router.callManyRw(calls)
    await cluster.clock.advance(15)
    expect(cluster.count('call')).toBe(1_024)
    expect(await run(outcome)).toHaveLength(3_000)
  })

  it('none of which was made when one makes no sense', async () => {
    const router = await start()
    for (const calls of [
      [
        { bucketId: 1, name: 'who' },
        { bucketId: 21, name: 'who' },
      ],
      [{ bucketId: 1, name: '' }],
      [null],
      5,
    ])
      expect(await run(failure(router.callManyRw(calls as never)))).toMatchObject({ code: 'ORB_INVALID_ARGUMENT' })
    expect(await run(router.callManyRw([]))).toEqual([])
    expect(cluster.seen).toEqual([])
  })

  it('end together at their deadline', async () => {
    const router = await start()
    cluster.put('a', 1, 1, 'locked')
    const calls = Array.from({ length: 2_000 }, (_, i) => ({ bucketId: i % 2 === 0 ? 1 : 11, name: 'who' }))
    const startMs = cluster.clock.now()
    const outcomes = await run(router.callManyRw(calls, { timeout: 1_000 }))
    expect(cluster.clock.now() - startMs).toBe(1_000)
    expect(outcomes.filter(({ ok }) => ok)).toHaveLength(1_000)
  })
})

it.each<[CallKind, string, string]>([
  ['write', 'write', 'a1'],
  ['read', 'read', 'a1'],
  [{ mode: 'read', preferReplica: true }, 'read', 'a2'],
  [{ mode: 'read', balance: true, preferReplica: true }, 'read', 'a2'],
  [{ preferReplica: true }, 'write', 'a1'],
])('call %j is a %s', async (kind, mode, who) => {
  const router = await start()
  expect(await run(router.call(1, kind, 'who'))).toEqual([who])
  expect(cluster.seen[0]!.args[1]).toBe(mode)
  expect(await run(failure(router.call(1, 'execute' as never, 'who')))).toMatchObject({ code: 'ORB_INVALID_ARGUMENT' })
})

it('stable reads of a bucket go to the same instance from every router, and to another one while it is away', async () => {
  cluster = new FakeCluster({ a: ['a1', 'a2', 'a3'] }, 20)
  cluster.put('a', 1, 20, 'active')
  const [set] = cluster.config.replicasets
  const first = await cluster.readyRouter()
  const second = await cluster.readyRouter({
    config: { ...cluster.config, replicasets: [{ ...set!, instances: set!.instances.toReversed() }] },
  })
  const chosen = new Map<number, string>()
  for (let id = 1; id <= 20; id++) {
    const [name] = await run(first.callro<[string]>(id, 'who', [], { prefer: 'stable' }))
    expect(await run(second.callro(id, 'who', [], { prefer: 'stable' }))).toEqual([name])
    chosen.set(id, name)
  }
  expect(new Set(chosen.values()).size).toBe(3)
  cluster.stop('a2')
  await cluster.clock.advance(100)
  for (const [id, name] of chosen) {
    const [now] = await run(first.callro<[string]>(id, 'who', [], { prefer: 'stable' }))
    if (name !== 'a2') expect(now).toBe(name)
    else expect(now).not.toBe('a2')
  }
})

describe('options of a call', () => {
  it.each<[RouterCallOptions, RegExp]>([
    [{ retries: 3 } as never, /no option 'retries'; it has timeout/],
    [{ timeout: 0 }, /timeout is 0/],
    [{ timeout: Number.NaN }, /timeout is NaN/],
    [{ timeout: '5' as never }, /timeout is '5'/],
    [{ signal: {} as never }, /signal is an object/],
    [{ requestTimeout: -1 }, /requestTimeout is -1/],
    [{ prefer: 'nearest' as never }, /prefer is 'nearest'/],
    [{ raw: 1 as never }, /raw is 1/],
    [{ idempotent: 'yes' as never }, /idempotent is 'yes'/],
    [{ maxLagMs: -1 }, /maxLagMs is -1/],
    [5 as never, /an object/],
  ])('%j are refused before anything is sent', async (options, message) => {
    const router = await start()
    const error = await run(failure(router.callro(1, 'who', [], options)))
    expect(error).toMatchObject({ code: 'ORB_INVALID_ARGUMENT', executed: 'no' })
    expect((error as Error).message).toMatch(message)
    expect(cluster.seen).toEqual([])
  })

  it('that are for reads are refused of writes, and others of everything that waits', async () => {
    const router = await start()
    for (const options of [{ requestTimeout: 5 }, { prefer: 'stable' }, { maxLagMs: 5 }] as const)
      expect(await run(failure(router.callrw(1, 'who', [], options)))).toMatchObject({ code: 'ORB_INVALID_ARGUMENT' })
    for (const method of ['ready', 'sync', 'bootstrap'] as const)
      expect(await run(failure(router[method]({ raw: true } as never)))).toMatchObject({ code: 'ORB_INVALID_ARGUMENT' })
  })
})

describe('the cluster as a whole', () => {
  it('is bootstrapped by weights, and its buckets are found', async () => {
    cluster = new FakeCluster({ a: ['a1'], b: ['b1'] }, 30)
    const [a, b] = cluster.config.replicasets
    const router = cluster.router({
      discoveryMode: 'on',
      config: { ...cluster.config, replicasets: [{ ...a!, weight: 2 }, b!] },
    })
    await cluster.clock.advance(10_000)
    const startMs = cluster.clock.now()
    expect(await run(router.bootstrap())).toBe(true)
    await run(router.ready())
    expect(cluster.clock.now() - startMs).toBeLessThan(50)
    expect(router.info().replicasets.map(({ id, buckets }) => [id, buckets])).toEqual([
      ['a', 20],
      ['b', 10],
    ])
    expect(await run(router.bootstrap({ ifNotBootstrapped: true }))).toBe(false)
    expect(await run(failure(router.bootstrap()))).toMatchObject({ vshardName: 'NON_EMPTY' })
  })

  it('is not bootstrapped where one storage cannot say whether it has buckets', async () => {
    cluster = new FakeCluster({ a: ['a1'], b: ['b1'] }, 30)
    const router = cluster.router()
    cluster.answer = ({ call, who }) =>
      call === 'buckets_count' && who === 'b1' ? new Raised(32, 'not now') : undefined
    const error = await run(failure(router.bootstrap({ ifNotBootstrapped: true })))
    expect(error).toMatchObject({ code: 'ORB_CLUSTER', executed: 'yes' })
    expect((error as Error).message).toContain('b: not now')
    expect(cluster.count('bucket_force_create')).toBe(0)
  })

  it('synchronises all, and names who could not', async () => {
    const router = await start()
    await run(router.sync())
    expect(cluster.seen.map(({ who, args }) => [who, args])).toEqual([
      ['a1', [1]],
      ['b1', [1]],
    ])
    const timeout = { type: 'ClientError', code: 78, message: 'Timeout exceeded', base_type: 'ClientError', trace: [] }
    cluster.answer = ({ call, who }) => (call === 'sync' && who === 'b1' ? [null, timeout] : undefined)
    const error = await run(failure(router.sync({ timeout: 50 })))
    expect((error as Error).message).toBe('Not every replicaset could synchronise (b: Timeout exceeded)')
  })

  it('shows where its buckets are', async () => {
    const router = await start()
    cluster.stop('b1')
    await cluster.clock.advance(100)
    router.forgetRoutes()
    await run(router.callrw(10, 'who'))
    expect(router.bucketsInfo({ offset: 9, limit: 2 })).toEqual([
      { bucketId: 10, replicaset: 'a', availability: 'availableRw' },
      { bucketId: 11, replicaset: undefined, availability: 'unknown' },
    ])
    expect(router.bucketsInfo()).toHaveLength(20)
  })
})

/* info.json: what vshard's router says in the same situations. */
describe('info', () => {
  const shortly = (router: Router): unknown => {
    const { alerts, buckets, status } = router.info()
    return {
      status,
      buckets,
      alerts: alerts.map(({ name, replicaset }) => (replicaset === undefined ? name : `${name} ${replicaset}`)),
    }
  }
  const places = (availableRw: number, availableRo: number, unreachable: number, unknown: number): object => ({
    availableRw,
    availableRo,
    unreachable,
    unknown,
  })

  it('undiscovered: nothing is known', async () => {
    await start()
    const router = cluster.router()
    await cluster.clock.advance(200)
    expect(shortly(router)).toEqual({ status: 'yellow', buckets: places(0, 0, 0, 20), alerts: ['UNKNOWN_BUCKETS'] })
    expect(router.info().alerts[0]!.message).toBe('20 buckets are not discovered')
  })

  it('healthy: everything is known, everybody is up', async () => {
    const router = await start()
    expect(shortly(router)).toEqual({ status: 'green', buckets: places(20, 0, 0, 0), alerts: [] })
    expect(router.info()).toMatchObject({ isEnabled: true, identification: 'name', known: 20, bucketCount: 20 })
    expect(router.info().replicasets[0]).toMatchObject({ id: 'a', master: 'a1', replica: 'a1', buckets: 10 })
  })

  it('replica-down: nothing is lost', async () => {
    const router = await start()
    cluster.stop('a2')
    await cluster.clock.advance(5_000)
    expect(shortly(router)).toEqual({ status: 'green', buckets: places(20, 0, 0, 0), alerts: [] })
  })

  it('master-down: its buckets can be read, from an instance that is not the nearest', async () => {
    const router = await start()
    cluster.stop('a1')
    await cluster.clock.advance(5_000)
    expect(shortly(router)).toEqual({
      status: 'orange',
      buckets: places(10, 10, 0, 0),
      alerts: ['MISSING_MASTER a', 'SUBOPTIMAL_REPLICA a'],
    })
  })

  it('replicaset-down: its buckets are out of reach', async () => {
    const router = await start()
    cluster.stop('a1')
    cluster.stop('a2')
    await cluster.clock.advance(5_000)
    expect(shortly(router)).toMatchObject({
      status: 'red',
      buckets: places(10, 0, 10, 0),
      alerts: ['MISSING_MASTER a', 'UNREACHABLE_REPLICASET a'],
    })
  })

  it('bucket-count-too-small: the router knows fewer buckets than the storages have', async () => {
    await start()
    const router = cluster.router({ discoveryMode: 'on', config: { ...cluster.config, bucketCount: 10 } })
    await cluster.clock.advance(1_000)
    expect(shortly(router)).toEqual({ status: 'yellow', buckets: places(10, 0, 0, 0), alerts: ['INVALID_CFG b'] })
  })
})

describe('what it tells', () => {
  it('events: routes, and the close as the last one', async () => {
    const router = await start()
    const told: unknown[] = []
    router.on('routes', ({ changes, known }) => told.push(['routes', changes, known]))
    router.on('close', () => told.push(['close']))
    router.on('routes', () => {
      throw new Error('a listener that fails')
    })
    cluster.move(1, 'a', 'b')
    await run(router.callrw(1, 'who'))
    await run(router.close({ timeout: 0 }))
    expect(told).toEqual([['routes', 1, 20], ['close']])
  })

  it('a trace of each call, from its start to its end', async () => {
    const router = await start({ name: 'mine' })
    const traces: [string, CallTrace][] = []
    const hear = (phase: string) => (trace: unknown) => void traces.push([phase, { ...(trace as CallTrace) }])
    const handlers = {
      start: hear('start'),
      end: hear('end'),
      asyncStart: hear('asyncStart'),
      asyncEnd: hear('asyncEnd'),
      error: hear('error'),
    }
    const channel = tracingChannel<object, CallTrace>(CHANNELS.call)
    channel.subscribe(handlers)
    cluster.move(1, 'a', 'b')
    await run(router.callrw(1, 'who', ['secret']))
    cluster.answer = () => [
      false,
      { type: 'ClientError', code: 32, message: 'broke', base_type: 'ClientError', trace: [] },
    ]
    await run(failure(router.callro(2, 'who')))
    channel.unsubscribe(handlers)
    await run(failure(router.callro(2, 'who')))
    const base = { router: 'mine', mode: 'rw', bucketId: 1, function: 'who' }
    expect(traces.map(([phase]) => phase)).toEqual([
      ...['start', 'end', 'asyncStart', 'asyncEnd'],
      ...['start', 'end', 'error', 'asyncStart', 'asyncEnd'],
    ])
    expect(traces[0]![1]).toEqual(base)
    expect(traces[3]![1]).toEqual({ ...base, replicaset: 'b', instance: 'b1', tries: 2 })
    expect(traces[8]![1]).toMatchObject({
      mode: 'ro',
      replicaset: 'a',
      instance: 'a1',
      tries: 1,
      error: { boxCode: 32 },
    })
    expect(JSON.stringify(traces)).not.toContain('secret')
  })

  it('a trace of each map, each table of routes, and warnings as log records', async () => {
    const router = await start()
    const heard: [string, unknown][] = []
    const hear = (name: string) => (message: unknown) => void heard.push([name, message])
    const [onRoutes, onLog] = [hear('routes'), hear('log')]
    subscribe(CHANNELS.routes, onRoutes)
    subscribe(CHANNELS.log, onLog)
    const map = tracingChannel<object, MapTrace>(CHANNELS.map)
    const handlers = {
      start: hear('start'),
      end: hear('end'),
      asyncStart: hear('asyncStart'),
      asyncEnd: hear('asyncEnd'),
      error: hear('error'),
    }
    map.subscribe(handlers)
    await run(failure(router.mapCallrw('who', [], { timeout: 100 })))
    cluster.move(1, 'a', 'b')
    cluster.put('b', 1, 1, 'sent', 'nowhere')
    cluster.latencyMs = 1
    await run(failure(router.callrw(1, 'who', [], { timeout: 100 })))
    map.unsubscribe(handlers)
    unsubscribe(CHANNELS.routes, onRoutes)
    unsubscribe(CHANNELS.log, onLog)
    const phases = heard.map(([name]) => name)
    expect(phases.filter((name) => !['routes', 'log'].includes(name))).toEqual([
      'start',
      'end',
      'error',
      'asyncStart',
      'asyncEnd',
    ])
    expect(heard.find(([name]) => name === 'start')![1]).toMatchObject({
      router: 'router',
      kind: 'mapCallrw',
      function: 'who',
    })
    expect(heard.find(([name]) => name === 'routes')![1] as RoutesChange).toMatchObject({
      router: 'router',
      changes: 1,
    })
    expect(heard.filter(([name]) => name === 'log').map(([, record]) => record)).toContainEqual(
      expect.objectContaining({ level: 'warn', package: 'router', event: 'alert', name: 'NO_SUCH_REPLICASET' }),
    )
  })
})

it('the bucket of a key depends on its value alone', () => {
  cluster = new FakeCluster({ a: ['a1'] }, 30_000)
  const router = cluster.router()
  const numbers: [number | bigint, number][] = [
    [0, 2255],
    [1, 7614],
    [123, 13_097],
    [-1, 7216],
    [2_147_483_648, 2511],
    [4_294_967_296, 25_980],
    [9_007_199_254_740_992, 3467],
    [922_337_203_685_477_580n, 20_992],
    [18_446_744_073_709_551_615n, 6283],
  ]
  for (const [key, bucketId] of numbers) {
    expect(router.bucketId(key)).toBe(bucketId)
    expect(router.bucketId(BigInt(key))).toBe(bucketId)
  }
  const others: [Parameters<Router['bucketId']>[0], number][] = [
    ['1', 12_477],
    ['', 17_296],
    ['abc', 6121],
    ['Привет', 10_608],
    [true, 19_055],
    [[1, 2], 21_934],
    [[1, 'a'], 27_452],
    [[], 17_296],
  ]
  for (const [key, bucketId] of others) expect(router.bucketId(key)).toBe(bucketId)
})
