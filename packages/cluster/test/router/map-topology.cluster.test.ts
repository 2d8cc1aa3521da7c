/* Maps while the router is told of another cluster: every result is of the whole, or there is none. */
import { MapReduceError } from '@orbweaver/router'
import type { Router } from '@orbweaver/router'
import type { Storage } from '@orbweaver/storage'
import type { ClusterConfig, ReplicasetConfig } from '@orbweaver/vshard'
import { afterEach, describe, expect, it } from 'vitest'
import { VirtualCluster } from './virtual-cluster.js'
import type { VirtualClusterOptions } from './virtual-cluster.js'

const LATENCY_MS = 50
/** While references are on their way, and while the function runs. */
const ASKING_MS = 60
const MAPPING_MS = 160

/** All buckets, as texts. */
const EIGHT = ['1', '2', '3', '4', '5', '6', '7', '8']

let cluster: VirtualCluster

afterEach(() => cluster.close())

async function start(options: VirtualClusterOptions): Promise<void> {
  cluster = await new VirtualCluster({ setUp, latencyMs: LATENCY_MS, ...options }).start()
}

function setUp(storage: Storage): void {
  storage.define('ids', (context) =>
    context
      .space('_bucket')
      .select()
      .map(([id]) => id),
  )
  storage.define('slow_who', async () => {
    await new Promise<void>((resolve) => cluster.clock.schedule(100, resolve))
    return storage.name
  })
}

const config = (ids: string, change: (set: ReplicasetConfig) => ReplicasetConfig = (set) => set): ClusterConfig => ({
  ...cluster.router.config,
  replicasets: cluster.replicasets.filter(({ id }) => ids.includes(id)).map(change),
})

/** A router that knows some of the replicasets only, and where their buckets are. */
async function routerOf(ids: string): Promise<Router> {
  const router = cluster.newRouter({ config: config(ids) })
  await cluster.wait(router.ready())
  return router
}

const all = (results: ReadonlyMap<string, unknown[]>): string[] =>
  [...results.values()]
    .flat(2)
    .map(String)
    .toSorted((x, y) => x.localeCompare(y))

describe('a replicaset', () => {
  it.each([
    ['while references are asked for', ASKING_MS, ['a', 'b', 'c']],
    ['while the function runs', MAPPING_MS, ['a', 'b']],
  ])('that is added %s', async (_when, afterMs, mapped) => {
    await start({ spread: [4, 4, 0] })
    const router = await routerOf('ab')
    const map = router.mapCallrw('ids')
    await cluster.clock.advance(afterMs)
    router.reconfigure(config('abc'))
    const results = await cluster.wait(map)
    expect([[...results.keys()], all(results)]).toEqual([mapped, EIGHT])
    expect(cluster.refs).toEqual({})
  })

  it('that is removed while references are asked for', async () => {
    await start({ spread: [4, 4, 0] })
    const router = await routerOf('abc')
    const map = router.mapCallrw('ids')
    await cluster.clock.advance(ASKING_MS)
    router.reconfigure(config('ab'))
    const results = await cluster.wait(map)
    expect([[...results.keys()], all(results)]).toEqual([['a', 'b'], EIGHT])
    await cluster.clock.advance(1_000)
    expect(cluster.refs).toEqual({})
  })

  it('that is removed while it runs the function fails the map: nobody watches its master any more', async () => {
    await start({ spread: [4, 4, 0] })
    const router = await routerOf('abc')
    const map = router.mapCallrw('ids')
    await cluster.clock.advance(MAPPING_MS)
    router.reconfigure(config('ab'))
    expect(await cluster.failure(map)).toMatchObject({ stage: 'map', executed: 'yes', replicasetId: 'c' })
    await cluster.clock.advance(1_000)
    expect(cluster.refs).toEqual({})
    expect(all(await cluster.wait(router.mapCallrw('ids')))).toEqual(EIGHT)
  })

  it('that still has buckets and is removed is missed, and nothing is mapped', async () => {
    await start({ spread: [4, 2, 2] })
    const router = await routerOf('abc')
    const map = router.mapCallrw('ids')
    await cluster.clock.advance(ASKING_MS)
    router.reconfigure(config('ab'))
    const error = await cluster.failure(map)
    expect(error).toBeInstanceOf(MapReduceError)
    expect(error).toMatchObject({ stage: 'check', executed: 'no' })
    expect(String(error)).toContain('The replicasets have 6 buckets together, expected 8')
    await cluster.clock.advance(1_000)
    expect(cluster.refs).toEqual({})
  })

  it('that gets another weight changes nothing, whenever that is', async () => {
    await start({ spread: [4, 4, 0] })
    for (const afterMs of [0, ASKING_MS, MAPPING_MS]) {
      const map = cluster.router.mapCallrw('ids')
      await cluster.clock.advance(afterMs)
      cluster.router.reconfigure(config('abc', (set) => ({ ...set, weight: (set.weight ?? 1) + afterMs })))
      expect(all(await cluster.wait(map))).toEqual(EIGHT)
    }
  })
})

describe('an instance', () => {
  it('that is removed while the function runs elsewhere is not missed', async () => {
    await start({ spread: [4, 4], instances: 2 })
    const map = cluster.router.mapCallrw('slow_who')
    await cluster.clock.advance(MAPPING_MS)
    cluster.router.reconfigure(config('ab', (set) => ({ ...set, instances: set.instances.slice(0, 1) })))
    expect(all(await cluster.wait(map))).toEqual(['a1', 'b1'])
  })

  it('that is removed while it runs the function takes the map with it', async () => {
    await start({ spread: [4, 4], instances: 2 })
    const map = cluster.router.mapCallrw('slow_who')
    await cluster.clock.advance(MAPPING_MS)
    const without = (id: string): ClusterConfig =>
      config('ab', (set) => ({ ...set, instances: set.instances.filter((instance) => instance.id !== id) }))
    cluster.router.reconfigure(without('a1'))
    expect(await cluster.failure(map)).toMatchObject({
      code: 'ORB_MAP_REDUCE',
      stage: 'map',
      replicasetId: 'a',
      instanceId: 'a1',
    })
    cluster.router.reconfigure(config('ab'))
    expect(all(await cluster.wait(cluster.router.mapCallrw('slow_who')))).toEqual(['a1', 'b1'])
  })
})

it('every map among changes and moves covers each bucket once', async () => {
  await start({ spread: [4, 4, 4], instances: 2, seed: 7 })
  const expected = Array.from({ length: 12 }, (_, i) => i + 1)
  const stop = new AbortController()
  let moves = 0
  const moving = (async () => {
    while (!stop.signal.aborted) {
      const [from, to] = cluster.random() < 0.5 ? ['a', 'b'] : ['b', 'a']
      const bucketIds = cluster.bucketsOf(`${from}1`)
      const bucketId = bucketIds[Math.floor(cluster.random() * bucketIds.length)]
      if (bucketId !== undefined)
        await cluster.move(bucketId, from, to, 2_000).then(
          () => moves++,
          () => undefined,
        )
      await new Promise<void>((resolve) => cluster.clock.schedule(30, resolve))
    }
  })()
  let maps = 0
  const mapping = Array.from({ length: 3 }, async () => {
    while (!stop.signal.aborted) {
      const results = await cluster.router.mapCallrw<[number[]]>('ids', [], { timeout: 60_000 })
      const bucketIds = [...results.values()].flatMap(([ids]) => ids)
      expect(bucketIds.toSorted((x, y) => x - y)).toEqual(expected)
      maps++
    }
  })
  for (let i = 0; i < 60; i++) {
    await cluster.clock.advance(Math.floor(cluster.random() * 300))
    const instances = i % 3 === 0 ? 1 : 2
    cluster.router.reconfigure(
      config('abc', (set) => ({ ...set, weight: 1 + (i % 5), instances: set.instances.slice(0, instances) })),
    )
  }
  stop.abort()
  await cluster.wait(Promise.all([...mapping, moving]))
  expect(Math.min(maps, moves)).toBeGreaterThan(5)
  expect(cluster.refs).toEqual({})
})
