/* One suite for the router over storages of either kind, in processes of their own: 2×2 with masters found and masters named, 3×1. */
import { setTimeout as sleep } from 'node:timers/promises'
import { BoxError } from '@orbweaver/iproto'
import { createRouter, openRouter, readAnyConfig, topologyOfStorage } from '@orbweaver/router'
import type { Router } from '@orbweaver/router'
import { writeVshardConfig } from '@orbweaver/vshard'
import type { ClusterConfig } from '@orbweaver/vshard'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { startCluster, tarantoolEngine } from '../../src/index.js'
import type { Cluster, ClusterOptions, EngineDriver } from '../../src/index.js'
import { describeEngines } from '../engines.js'
import { WriteLoad } from './write-load.js'

const BUCKETS = 40
const FUNCTIONS = {
  embedded: { setUp: new URL('../fixtures/router-functions.mjs', import.meta.url).href },
  tarantool: { lua: new URL('../fixtures/router-functions.lua', import.meta.url).href },
} as const

type Row = readonly [id: number, bucketId: number, times: number]

const routers: Router[] = []

afterEach(async () => {
  for (const router of routers.splice(0)) await router.close({ timeout: 0 })
})

async function start(engine: EngineDriver, options: ClusterOptions = {}): Promise<Cluster> {
  return startCluster({
    engine,
    bucketCount: BUCKETS,
    replicasets: 2,
    instances: 2,
    quorum: 1,
    ...FUNCTIONS[engine.name],
    ...options,
  })
}

function route(config: ClusterConfig): Router {
  const router = createRouter({ config })
  routers.push(router)
  return router
}

async function failureOf(work: Promise<unknown>): Promise<unknown> {
  return work.then(
    (value) => {
      throw new Error(`It succeeded with ${JSON.stringify(value)}`)
    },
    (error: unknown) => error,
  )
}

/** Elections of Tarantool need their quorum back before the first write of a new master counts. */
async function prepare(router: Router): Promise<void> {
  for (const set of router.routeAll().values()) await set.callrw('prepare', [], { timeout: 30_000 })
}

/** A candidate of Tarantool may not get its quorum in time beside what else runs here. */
async function promote(cluster: Cluster, id: string): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      await cluster.instance(id).promote()
      return
    } catch (error) {
      if (tries === 5) throw error
    }
  }
}

/** Moves random buckets to and fro until told to end. @returns how many moved */
function moving(router: Router): () => Promise<number> {
  const over = new AbortController()
  let moves = 0
  const run = async (from: string, to: string): Promise<void> => {
    while (!over.signal.aborted) {
      const set = router.routeAll().get(from)!
      try {
        const [ids] = await set.callrw<[number[]]>('bucket_ids')
        const id = ids[Math.floor(Math.random() * ids.length)]
        if (id === undefined) await sleep(10)
        else if ((await set.callrw<[boolean]>('vshard.storage.bucket_send', [id, to, { timeout: 5 }]))[0]) moves++
      } catch {
        // The next one may succeed: what counts is how many did.
        await sleep(10)
      }
    }
  }
  const [a, b] = [...router.routeAll().keys()] as [string, string]
  const runs = [run(a, b), run(b, a)]
  return async () => {
    over.abort()
    await Promise.all(runs)
    return moves
  }
}

describeEngines('a router', (engine) => {
  describe.each(['found by themselves', 'named by the configuration'])('with masters %s', (masters) => {
    let cluster: Cluster
    let config: ClusterConfig

    beforeAll(async () => {
      cluster = await start(engine)
      const { replicasets } = cluster.config
      config =
        masters === 'found by themselves'
          ? cluster.config
          : { ...cluster.config, replicasets: replicasets.map((set) => ({ ...set, master: set.instances[0]!.id })) }
      await prepare(route(config))
    }, 60_000)

    afterAll(() => cluster?.close())

    it('learns all routes and calls in every mode', async () => {
      const router = route(config)
      await router.ready()
      expect(router.info()).toMatchObject({ status: 'green', known: BUCKETS, alerts: [] })
      for (const method of ['callrw', 'callro', 'callbro', 'callre', 'callbre'] as const)
        for (const bucketId of [1, BUCKETS])
          expect(await router[method](bucketId, 'echo', ['x', 2])).toEqual([['x', 2]])
      const [masterAnswer] = await router.callrw<[string]>(1, 'who')
      const [replicaAnswer] = await router.callre<[string]>(1, 'who')
      expect(replicaAnswer).not.toBe(masterAnswer)
      expect(router.stats().retries).toBe(0)
    })

    it('is useful at once, with nothing discovered', async () => {
      const router = createRouter({ config, discoveryMode: 'off' })
      routers.push(router)
      expect(await router.callrw(7, 'write', [7, 1_000_001])).toEqual([1])
      const many = Array.from({ length: BUCKETS }, (_, i) => ({ bucketId: i + 1, name: 'echo', args: [i] }))
      expect(await router.callManyRw(many)).toEqual(many.map(({ args }) => ({ ok: true, values: [args] })))
      expect(router.info().known).toBe(BUCKETS)
    })

    it('gives what functions raise as their own error, once', async () => {
      const router = route(config)
      const raised = await failureOf(router.callrw(1, 'fail'))
      expect(raised).toBeInstanceOf(BoxError)
      expect(raised).toMatchObject({ boxCode: 32, executed: 'yes' })
      expect((raised as Error).message).toContain('it broke')
      expect(await failureOf(router.callrw(1, 'no_such_function'))).toMatchObject({ boxCode: 33, executed: 'yes' })
      expect(router.stats().retries).toBe(0)
    })

    it('follows a bucket that moved, and synchronises', async () => {
      const router = route(config)
      await router.ready()
      const [from, to] = [router.locate(3)!, router.locate(BUCKETS)!].sort() as [string, string]
      const [source, target] = router.locate(3) === from ? [from, to] : [to, from]
      await router.callrw(3, 'write', [3, 2_000_003])
      expect(await router.routeAll().get(source)!.callrw('vshard.storage.bucket_send', [3, target])).toEqual([true])
      expect(await router.callro(3, 'rows_of', [3])).toEqual([[[2_000_003, 3, 1]]])
      expect(router.locate(3)).toBe(target)
      expect(await router.callrw(3, 'write', [3, 2_000_003])).toEqual([2])
      await router.sync({ timeout: 5_000 })
      expect(await router.bootstrap({ ifNotBootstrapped: true })).toBe(false)
    })

    it('loses and doubles nothing while buckets move to and fro under it', async () => {
      const router = route(config)
      await router.ready()
      const stopMoving = moving(router)
      const load = new WriteLoad(router, 16)
      await load.more(2_000)
      await sleep(3_000)
      await load.stop()
      const moves = await stopMoving()
      expect(load.errors).toEqual({})
      expect(moves).toBeGreaterThan(3)
      const results = await router.mapCallrw<[Row[]]>('rows', [], { timeout: 20_000 })
      const rows = [...results.values()].flatMap(([list]) => list).filter(([id]) => id < 1_000_000)
      expect(load.faultsIn(rows)).toEqual([])
    }, 60_000)
  })

  it('identifies replicasets by their names', async (context) => {
    if (engine.missing() !== undefined) context.skip()
    let cluster: Cluster
    try {
      cluster = await start(engine, { identification: 'name' })
    } catch (error) {
      // Tarantool 2 knows no names.
      if (error instanceof Error && error.message.includes('knows no names')) return context.skip()
      throw error
    }
    try {
      const router = route(cluster.config)
      await router.ready()
      expect([router.locate(1), router.locate(BUCKETS), [...router.routeAll().keys()]]).toEqual(['a', 'b', ['a', 'b']])
      await prepare(router)
      expect(await router.routeAll().get('a')!.callrw('vshard.storage.bucket_send', [1, 'b'])).toEqual([true])
      expect(await router.callrw(1, 'write', [1, 1])).toEqual([1])
      expect(router.locate(1)).toBe('b')
    } finally {
      await cluster.close()
    }
  }, 60_000)

  it('waits out the death of a master, and loses and doubles nothing', async () => {
    const cluster = await start(engine, { replicasets: 1, instances: 3, quorum: 2 })
    try {
      const router = route(cluster.config)
      await router.ready()
      await prepare(router)
      const load = new WriteLoad(router, 16)
      await load.more(300)
      const [set] = cluster.config.replicasets
      const [first, second, third] = set!.instances
      await promote(cluster, second!.id)
      await load.more(300)
      // What runs when a master turns read-only may meet that, and says so.
      expect(Object.keys(load.errors).filter((error) => !/read-?only/i.test(error))).toEqual([])
      await cluster.instance(second!.id).kill()
      await promote(cluster, third!.id)
      await load.more(300)
      await cluster.instance(second!.id).restart()
      await promote(cluster, first!.id)
      await load.more(300)
      await load.stop()
      const [rows] = await router.routeAll().get(set!.id)!.callrw<[Row[]]>('rows')
      // Without a quorum an asynchronous master takes what it alone acknowledged with it: Tarantool 2.6 here.
      const isQuorum = engine.name === 'embedded'
      if (isQuorum) expect(load.faultsIn(rows)).toEqual([])
      else expect(load.faultsIn(rows).filter((fault) => !fault.endsWith('is lost'))).toEqual([])
    } finally {
      await cluster.close()
    }
  }, 90_000)

  it('finds all others by one seed, and goes where a configuration of vshard says', async () => {
    const cluster = await start(engine, { instances: 1 })
    try {
      const { config } = cluster
      if (engine.name === 'tarantool') {
        const { user, password } = config
        const uris = [cluster.instances[1]!.uri]
        const router = await openRouter({ topology: topologyOfStorage({ uris, user, password }) })
        routers.push(router)
        await router.ready()
        expect(router.info()).toMatchObject({ known: BUCKETS, bucketCount: BUCKETS })
      }
      const asVshard = writeVshardConfig(config)
      const router = await openRouter({ topology: { read: () => Promise.resolve(readAnyConfig(asVshard)) } })
      routers.push(router)
      await router.ready()
      expect(router.info().known).toBe(BUCKETS)
    } finally {
      await cluster.close()
    }
  }, 60_000)
})

/* Storages of 2.6 become storages of 3.x one by one, under calls. */
const OLD = process.env['TARANTOOL_OLD']
const oldEngine = tarantoolEngine(OLD === undefined ? {} : { program: OLD })
const missing =
  OLD === undefined
    ? 'set TARANTOOL_OLD to a Tarantool 2, beside TARANTOOL and VSHARD_LUA'
    : (oldEngine.missing() ?? tarantoolEngine().missing())

describe.skipIf(missing !== undefined)(
  `a rolling upgrade${missing === undefined ? '' : ` (skipped: ${missing})`}`,
  () => {
    it('fails no call', async () => {
      const upgraded = new Set<string>()
      const newEngine = tarantoolEngine({ elections: false })
      const engine: EngineDriver = {
        name: 'tarantool',
        missing: () => undefined,
        start: (spec) => (upgraded.has(spec.id) ? newEngine : oldEngine).start(spec),
      }
      const cluster = await start(engine)
      try {
        const router = route(cluster.config)
        await router.ready()
        await prepare(router)
        // Without elections a master turns read-only under the functions that run.
        const load = new WriteLoad(router, 16, { idempotent: true })
        const versions = (): (string | undefined)[] =>
          router.info().replicasets.flatMap(({ instances }) => instances.map(({ version }) => version))
        await load.more(200)
        for (const { instances } of cluster.config.replicasets) {
          // The replica first, then it takes over, then the old master.
          for (const { id } of instances.toReversed()) {
            upgraded.add(id)
            const instance = cluster.instance(id)
            const other = instances.find((each) => each.id !== id)!
            if (cluster.masterOf(instance.replicasetId).id === id) await cluster.instance(other.id).promote()
            await load.more(50)
            await instance.stop()
            await instance.restart()
            await load.more(100)
          }
        }
        await load.more(200)
        await load.stop()
        expect(load.errors).toEqual({})
        await expect.poll(() => versions().map((version) => version?.split('.')[0])).toEqual(['3', '3', '3', '3'])
        const results = await router.mapCallrw<[Row[]]>('rows', [], { timeout: 20_000 })
        expect(load.faultsIn([...results.values()].flatMap(([list]) => list))).toEqual([])
      } finally {
        await cluster.close()
      }
    }, 120_000)
  },
)
