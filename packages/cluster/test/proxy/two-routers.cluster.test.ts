/* Two routers of one user behind the same proxies, one proxy in front of each replicaset, while buckets move. */
import { connect } from '@orbweaver/connection'
import type { Connection } from '@orbweaver/connection'
import { hash2Of } from '@orbweaver/iproto'
import { createProxy } from '@orbweaver/proxy'
import type { Proxy } from '@orbweaver/proxy'
import { createRouter } from '@orbweaver/router'
import type { Router } from '@orbweaver/router'
import type { ClusterConfig } from '@orbweaver/vshard'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { startCluster } from '../../src/index.js'
import type { Cluster } from '../../src/index.js'
import { describeEngines } from '../engines.js'

const BUCKETS = 40
const ROWS = 400
/** So many of each router, and so many moves, at least. */
const MAPS = 50
const MOVES = 20
/** Maps each router has under way at a time. */
const AT_ONCE = 4

type Cover = readonly [bucketId: number, rows: number]
const ALL_BUCKETS = Array.from({ length: BUCKETS }, (_, i) => i + 1)

describeEngines('two routers behind the same proxies', (engine) => {
  let cluster: Cluster
  const proxies: Proxy[] = []
  const masters: Connection[] = []
  const routers: Router[] = []

  beforeAll(async () => {
    cluster = await startCluster({
      engine,
      instances: 1,
      bucketCount: BUCKETS,
      ...(engine.name === 'tarantool'
        ? { lua: new URL('../fixtures/router-functions.lua', import.meta.url).href }
        : { setUp: new URL('../fixtures/router-functions.mjs', import.meta.url).href }),
    })
    const { password, replicasets, user } = cluster.config
    for (const { instances } of replicasets) {
      const master = await connect({ uri: instances[0]!.uri, user, password })
      masters.push(master)
      await master.call('prepare')
      const [bucketIds] = await master.call<[number[]]>('bucket_ids')
      for (let id = 1; id <= ROWS; id++)
        if (bucketIds.includes((id % BUCKETS) + 1)) await master.call('write', [(id % BUCKETS) + 1, id])
    }
    const config = await behindProxies(cluster.config)
    for (let i = 0; i < 2; i++) routers.push(createRouter({ config }))
    for (const router of routers) await router.ready()
  }, 60_000)

  afterAll(async () => {
    for (const router of routers) await router.close({ timeout: 0 })
    for (const proxy of proxies) await proxy.close({ graceMs: 0 })
    for (const master of masters) master.destroy()
    await cluster?.close()
  })

  /** The same cluster as those see it who know nothing but a proxy of each replicaset. */
  async function behindProxies(config: ClusterConfig): Promise<ClusterConfig> {
    const users = { [config.user]: Buffer.from(hash2Of(config.password)).toString('base64') }
    const replicasets = []
    for (const { id, instances } of config.replicasets) {
      const proxy = createProxy({
        targets: { master: { uri: instances[0]!.uri } },
        rw: 'master',
        credentials: { mode: 'static', users },
      })
      proxies.push(proxy)
      const { host, port } = (await proxy.listen({ host: '127.0.0.1', port: 0 })) as { host: string; port: number }
      replicasets.push({ id, master: 'auto', instances: [{ id: `proxy of ${id}`, uri: `${host}:${port}` }] })
    }
    return { ...config, replicasets }
  }

  async function move(from: number, bucketId: number, timeout: number): Promise<boolean> {
    const { id } = cluster.config.replicasets[1 - from]!
    const [isMoved] = await masters[from]!.call('vshard.storage.bucket_send', [bucketId, id, { timeout }], {
      timeout: 30_000,
    })
    return isMoved === true
  }

  it('map each bucket and each row once, at the same time', async () => {
    const wrong: unknown[] = []
    const maps = routers.map(() => 0)
    let moves = 0
    const isOver = (): boolean => Math.min(...maps) >= MAPS && moves >= MOVES
    const mapping = async (router: Router, i: number): Promise<void> => {
      while (!isOver()) {
        const results = await router.mapCallrw<[Cover[]]>('covers', [], { timeout: 60_000 })
        const covers = [...results.values()].flatMap(([list]) => list)
        const bucketIds = covers.map(([bucketId]) => bucketId).toSorted((a, b) => a - b)
        const rows = covers.reduce((sum, [, count]) => sum + count, 0)
        if (bucketIds.join() !== ALL_BUCKETS.join() || rows !== ROWS) wrong.push({ bucketIds, rows })
        maps[i]!++
      }
    }
    // In one direction at a time: two moves against each other keep maps on vshard's storages from their references.
    const moving = async (): Promise<void> => {
      for (let i = 0; !isOver(); i++) {
        const from = Math.floor(i / 5) % 2
        const [bucketIds] = await masters[from]!.call<[number[]]>('bucket_ids')
        const bucketId = bucketIds[Math.floor(Math.random() * bucketIds.length)]
        if (bucketId !== undefined && (await move(from, bucketId, 5))) moves++
      }
    }
    const mappings = routers.flatMap((router, i) => Array.from({ length: AT_ONCE }, () => mapping(router, i)))
    await Promise.all([...mappings, moving()])
    expect(wrong).toEqual([])
  }, 120_000)

  it('keep their own holds: the release of one leaves the other its buckets', async () => {
    const [first, second] = routers as [Router, Router]
    const holds = [await first.holdBuckets(), await second.holdBuckets()] as const
    const [[bucketId]] = (await masters[0]!.call<[number[]]>('bucket_ids')) as [[number]]
    await holds[0].release()
    expect(await move(0, bucketId, 0.5)).toBe(false)
    await holds[1].release()
    await expect.poll(() => move(0, bucketId, 5), { timeout: 20_000 }).toBe(true)
  }, 60_000)
})
