/* Storages in processes of their own; buckets move all the time, masters change every few seconds, and clients never stop. */
import { setTimeout as sleep } from 'node:timers/promises'
import { createRouter } from '@orbweaver/router'
import type { Router } from '@orbweaver/router'
import { expect, it } from 'vitest'
import { startCluster } from '../../src/index.js'
import type { Cluster } from '../../src/index.js'
import { WriteLoad } from './write-load.js'

/** Longer by hand: `CONSISTENCY_SECONDS=60`. */
const SECONDS = Number(process.env['CONSISTENCY_SECONDS'] ?? 10)
const BUCKETS = 60
const CLIENTS = 16
const SETTLE_MS = 60_000

type Row = readonly [id: number, bucketId: number, times: number]
type Cover = readonly [bucketId: number, rows: number]

it(
  'loses no acknowledged write and doubles none, and every map that succeeds covers each bucket once',
  async () => {
    await using cluster = await startCluster({
      replicasets: 2,
      instances: 3,
      bucketCount: BUCKETS,
      // One that is killed must not forget what it has acknowledged and promised.
      durability: 'full',
      setUp: new URL('../fixtures/router-functions.mjs', import.meta.url).href,
    })
    // More failovers than any cluster has: calls wait for all of them.
    const buffer = { maxWindowsPerMinute: 1_000 }
    await using router = createRouter({ config: cluster.config, replicasets: { buffer } })
    for (const set of router.routeAll().values()) await set.callrw('prepare')
    await router.ready()

    const load = new WriteLoad(router, CLIENTS)
    const run = new Run(cluster, router)
    const beside = Promise.all([run.moving(), run.failing(), run.mapping(undefined), run.mapping(10)])
    await sleep(SECONDS * 1_000)
    run.isOver = true
    await beside
    await load.stop()

    const covers = await router.mapCallrw<[Cover[]]>('covers', [], { timeout: SETTLE_MS })
    expect(bucketsIn(covers)).toEqual(Array.from({ length: BUCKETS }, (_, i) => i + 1))
    const results = await router.mapCallrw<[Row[]]>('rows', [], { timeout: SETTLE_MS })
    const rows = [...results.values()].flatMap(([list]) => list)
    // What a longer run by hand is for.
    if (SECONDS > 10) console.log({ ...run.counts, acknowledged: load.acknowledged.size, errors: load.errors })
    expect(load.faultsIn(rows)).toEqual([])
    expect(run.wrong).toEqual([])
    expect(load.acknowledged.size).toBeGreaterThan(100 * SECONDS)
    expect(run.counts.moves).toBeGreaterThan(SECONDS / 2)
    expect(run.counts.failovers).toBeGreaterThanOrEqual(Math.floor(SECONDS / 5))
    expect(Math.min(run.counts.maps, run.counts.partialMaps)).toBeGreaterThan(SECONDS)
  },
  (SECONDS + 120) * 1_000,
)

const bucketsIn = (results: ReadonlyMap<string, [Cover[]]>): number[] =>
  [...results.values()].flatMap(([list]) => list.map(([bucketId]) => bucketId)).toSorted((a, b) => a - b)

class Run {
  isOver = false
  /** Maps that did not cover each bucket once. */
  readonly wrong: string[] = []
  readonly counts = {
    moves: 0,
    refusedMoves: 0,
    failovers: 0,
    failedPromotions: 0,
    maps: 0,
    partialMaps: 0,
    failedMaps: 0,
  }
  readonly #cluster: Cluster
  readonly #router: Router

  constructor(cluster: Cluster, router: Router) {
    this.#cluster = cluster
    this.#router = router
  }

  async moving(): Promise<void> {
    const ids = [...this.#router.routeAll().keys()]
    while (!this.isOver) {
      const from = ids[Math.floor(Math.random() * ids.length)]!
      const to = ids.find((id) => id !== from)!
      const set = this.#router.routeAll().get(from)!
      try {
        const [buckets] = await set.callrw<[number[]]>('bucket_ids', [], { timeout: 3_000 })
        const bucketId = buckets[Math.floor(Math.random() * buckets.length)]
        if (bucketId === undefined) continue
        const [isMoved] = await set.callrw('vshard.storage.bucket_send', [bucketId, to, { timeout: 3 }])
        if (isMoved === true) this.counts.moves++
        else this.counts.refusedMoves++
      } catch {
        this.counts.refusedMoves++
      }
    }
  }

  /** In turn a planned switch, and the death of a master. */
  async failing(): Promise<void> {
    for (let i = 0; !this.isOver; i++) {
      await sleep(2_000)
      const { replicasets } = this.#cluster.config
      const { id, instances } = replicasets[i % replicasets.length]!
      const old = this.#cluster.masterOf(id)
      const others = instances.filter((instance) => instance.id !== old.id).map((instance) => instance.id)
      const isDeath = i % 4 >= 2
      if (isDeath) await old.kill()
      // One of them may lack rows that only the others have: then it is not let.
      for (let at = 0; !(await this.#promotes(others[at % others.length]!)); at++) await sleep(100)
      if (isDeath) await old.restart()
      this.counts.failovers++
    }
  }

  async #promotes(id: string): Promise<boolean> {
    try {
      await this.#cluster.instance(id).promote()
      return true
    } catch {
      this.counts.failedPromotions++
      return false
    }
  }

  /** @param wanted - buckets of a partial map; undefined: all */
  async mapping(wanted: number | undefined): Promise<void> {
    while (!this.isOver) {
      const first = 1 + Math.floor(Math.random() * (BUCKETS - (wanted ?? 0)))
      const bucketIds = wanted === undefined ? undefined : Array.from({ length: wanted }, (_, i) => first + i)
      try {
        const options = { timeout: 5_000, ...(bucketIds === undefined ? {} : { bucketIds }) }
        const results = await this.#router.mapCallrw<[Cover[]]>('covers', [], options)
        const expected = bucketIds ?? Array.from({ length: BUCKETS }, (_, i) => i + 1)
        const covered = bucketsIn(results).filter((id) => expected.includes(id))
        if (covered.join() !== expected.join()) this.wrong.push(covered.join())
        if (wanted === undefined) this.counts.maps++
        else this.counts.partialMaps++
      } catch {
        this.counts.failedMaps++
      }
      await sleep(5)
    }
  }
}
