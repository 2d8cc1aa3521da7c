/* Map-reduce, holds and pages on real storages of vshard. */
import { createRouter, MapReduceError } from '@orbweaver/router'
import type { Router, SelectPagesOptions } from '@orbweaver/router'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { LuaCluster, missingLuaStorages } from './lua-cluster.js'

const BUCKETS = 40
const ROWS = 1_200

const kindOf = (id: number): number => id % 3
// Never whole: on 2.6.0 vshard moves those of a field of doubles as integers, which the receiver refuses.
const weightOf = (id: number): number => (id % 4) / 2 + 0.25
const MIXED = [null, 1.5, 'a', true, -3, 'Z', 2]
const FILL = `
local bucket_count, rows = ...
for id = 1, rows do
  local bucket_id = (id % bucket_count) + 1
  if box.space._bucket:get(bucket_id) ~= nil then
    local mixed = ({box.NULL, 1.5, 'a', true, -3, 'Z', 2})[id % 7 + 1]
    box.space.s:insert({id, bucket_id, id % 3, (id % 4) / 2 + 0.25, mixed, 'n' .. id})
  end
end`

describe.each(['auto', 'static'] as const)('storages in Lua with %s masters', (masters) => {
  describe.skipIf(missingLuaStorages !== undefined)(
    `of vshard${missingLuaStorages === undefined ? '' : ` (skipped: ${missingLuaStorages})`}`,
    () => {
      let cluster: LuaCluster
      let router: Router

      beforeAll(async () => {
        cluster = await LuaCluster.start({ bucketCount: BUCKETS, masters })
        for (const name of ['a1', 'b1'] as const) await cluster.eval(name, FILL, [BUCKETS, ROWS])
        router = createRouter({ config: cluster.config })
        await router.ready()
      }, 60_000)

      afterAll(async () => {
        await router?.close({ timeout: 0 })
        await cluster?.stop()
      })

      /** What no map, hold or page may leave behind. */
      async function expectNoRefs(): Promise<void> {
        await expect.poll(async () => [await cluster.refsOf('a1'), await cluster.refsOf('b1')]).toEqual([0, 0])
      }

      /** Moves random buckets to and fro until it is told to end. */
      function moving(): () => Promise<number> {
        const stop = new AbortController()
        let moves = 0
        const run = async (from: 'a' | 'b', to: 'a' | 'b'): Promise<void> => {
          while (!stop.signal.aborted) {
            const ids = await cluster.bucketsOf(`${from}1`)
            const id = ids[Math.floor(Math.random() * ids.length)]
            if (id !== undefined && (await cluster.move(id, `${from}1`, to))[0] === true) moves++
          }
        }
        const runs = [run('a', 'b'), run('b', 'a')]
        return async () => {
          stop.abort()
          await Promise.all(runs)
          return moves
        }
      }

      async function pagesOf(options: SelectPagesOptions): Promise<number[][]> {
        const pages: number[][] = []
        for await (const { rows } of router.selectPages<[number]>('s', { timeout: 30_000, ...options }))
          pages.push(rows.map(([id]) => id))
        return pages
      }

      const sorted = (by: (id: number) => readonly number[]): number[] =>
        Array.from({ length: ROWS }, (_, i) => i + 1).toSorted(
          (a, b) =>
            by(a)
              .map((value, i) => value - by(b)[i]!)
              .find((order) => order !== 0) ?? 0,
        )

      it('map all, some, and none', async () => {
        const all = await router.mapCallrw<[number]>('count')
        expect([...all.keys()]).toEqual([cluster.setId('a'), cluster.setId('b')])
        expect([...all.values()].reduce((sum, [count]) => sum + count, 0)).toBe(ROWS)
        expect([...(await router.mapCallrw('nothing')).values()]).toEqual([[], []])
        expect(Object.fromEntries(await router.mapCallrw('who', [], { bucketIds: [1] }))).toEqual({
          [cluster.setId('a')]: [cluster.id('a1')],
        })
      })

      it('follow a bucket that has moved, and get the arguments of their own buckets', async () => {
        expect(await cluster.move(1, 'a1', 'b')).toEqual([true])
        const bucketArgs = new Map([1, 2, BUCKETS].map((id) => [id, [`for ${id}`]]))
        const results = await router.mapCallrw('own', ['common'], { bucketArgs })
        expect(Object.fromEntries(results)).toEqual({
          [cluster.setId('a')]: [['common', [2]]],
          [cluster.setId('b')]: [['common', [1, BUCKETS]]],
        })
        expect(await cluster.move(1, 'b1', 'a')).toEqual([true])
      })

      it('say what failed, and where', async () => {
        const error = (await router.mapCallrw('fail').then(undefined, (reason: unknown) => reason)) as MapReduceError
        expect(error).toBeInstanceOf(MapReduceError)
        expect(error).toMatchObject({ stage: 'map', executed: 'yes' })
        expect(error.message).toContain('it broke')
        await expectNoRefs()
      })

      it('count every row once while buckets move', async () => {
        const stop = moving()
        const counts = new Set<number>()
        const until = Date.now() + 3_000
        let maps = 0
        while (Date.now() < until) {
          const results = await router.mapCallrw<[number]>('slow_count', [0.01], { timeout: 30_000 })
          counts.add([...results.values()].reduce((sum, [count]) => sum + count, 0))
          maps++
        }
        expect(await stop()).toBeGreaterThan(0)
        expect(maps).toBeGreaterThan(0)
        expect(counts).toEqual(new Set([ROWS]))
        await expectNoRefs()
      }, 60_000)

      it('tell who waits for what when a reference is not given in time', async () => {
        const [id] = await cluster.bucketsOf('b1')
        await cluster.eval(
          'b1',
          `local M = vshard.storage.internal
           M.rebalancer_transfering_buckets[...] = true box.space._bucket:update(..., {{'=', 2, 'readonly'}})`,
          [id],
        )
        try {
          const error = (await router
            .mapCallrw('count', [], { timeout: 1_500 })
            .then(undefined, (reason: unknown) => reason)) as MapReduceError
          expect(error).toMatchObject({ stage: 'ref', executed: 'no' })
          expect(error.obstacles.get(cluster.setId('b'))).toContain(`it waits for bucket ${id} (readonly)`)
        } finally {
          await cluster.eval(
            'b1',
            `local M = vshard.storage.internal
             box.space._bucket:update(..., {{'=', 2, 'active'}}) M.rebalancer_transfering_buckets[...] = nil`,
            [id],
          )
        }
      })

      it('hold their buckets as long as they are asked to, and no longer than the router lives', async () => {
        const id = (await cluster.bucketsOf('a1'))[0]!
        const hold = await router.holdBuckets()
        expect((await cluster.move(id, 'a1', 'b', 0.5))[0]).not.toBe(true)
        expect([await cluster.refsOf('a1'), await cluster.refsOf('b1')]).toEqual([1, 1])
        await hold.release()
        expect(await cluster.move(id, 'a1', 'b')).toEqual([true])
        const other = createRouter({ config: cluster.config })
        await other.holdBuckets()
        expect((await cluster.move(id, 'b1', 'a', 0.5))[0]).not.toBe(true)
        await other.close({ timeout: 0 })
        expect(await cluster.move(id, 'b1', 'a')).toEqual([true])
        await expectNoRefs()
      }, 60_000)

      it('map on replicas, which have everything by then', async () => {
        const readers = [...(await router.mapCallro<[string]>('who')).values()].flat()
        expect(new Set(readers)).toEqual(new Set([cluster.id('a2'), cluster.id('b2')]))
        const results = await router.mapCallro<[number]>('count')
        expect([...results.values()].reduce((sum, [count]) => sum + count, 0)).toBe(ROWS)
      })

      it('give pages in one order, whatever the index', async () => {
        const byId = sorted((id) => [id])
        expect((await pagesOf({ pageSize: 500 })).flat()).toEqual(byId)
        const byKind = sorted((id) => [kindOf(id), id])
        expect((await pagesOf({ index: 'kind', pageSize: 100 })).flat()).toEqual(byKind)
        expect((await pagesOf({ index: 'kind', iterator: 'LE', pageSize: 333 })).flat()).toEqual(byKind.toReversed())
        expect((await pagesOf({ index: 'kind', key: [1], pageSize: 90 })).flat()).toEqual(
          byKind.filter((id) => kindOf(id) === 1),
        )
        const byWeight = sorted((id) => [weightOf(id), kindOf(id), id])
        expect((await pagesOf({ index: 'weight', pageSize: 70 })).flat()).toEqual(byWeight)
        const { value: page } = await router.selectPages('s', { index: 'weight', pageSize: 700 }).next()
        const last = page!.rows.at(-1)!
        expect((await pagesOf({ index: 'weight', after: last, pageSize: 700 })).flat()).toEqual(byWeight.slice(700))
        expect((await pagesOf({ index: 'weight', before: last, pageSize: 50, limit: 50 })).flat()).toEqual(
          byWeight.slice(649, 699),
        )
      }, 60_000)

      it('give values of all types in the order of the server', async () => {
        const ids = (await pagesOf({ index: 'mixed', pageSize: 130 })).flat()
        const order = [null, true, -3, 1.5, 2, 'Z', 'a'].map((value) => MIXED.indexOf(value))
        expect(ids).toEqual(sorted((id) => [order.indexOf(id % 7), id]))
      })

      it('give each row once while buckets move', async () => {
        const stop = moving()
        const ids = (await pagesOf({ index: 'kind', pageSize: 25 })).flat()
        expect(await stop()).toBeGreaterThan(0)
        expect(ids).toEqual(sorted((id) => [kindOf(id), id]))
        await expectNoRefs()
      }, 120_000)

      it.each([
        ['s', 'folded', /Index 'folded' of space 's' has the collation 2/],
        ['odd', 'many', /Index 'many' of space 'odd' is multikey/],
        ['odd', 'functional', /Index 'functional' of space 'odd' is functional/],
      ])('refuse pages of space %s by the index %s', async (space, index, message) => {
        await expect(router.selectPages(space, { index }).next()).rejects.toThrow(message)
      })

      it.skipIf(masters === 'static')(
        'do not promise to keep references: a map across a change of master fails',
        async () => {
          const mapping = router
            .mapCallrw('slow_count', [1.5], { timeout: 20_000 })
            .then(undefined, (reason: unknown) => reason)
          await expect.poll(async () => [await cluster.refsOf('a1'), await cluster.refsOf('b1')]).toEqual([1, 1])
          await cluster.promote('a2')
          try {
            const error = await mapping
            expect(error).toMatchObject({ stage: 'map', executed: 'yes', replicasetId: cluster.setId('a') })
            expect(String(error)).toMatch(/The master of replicaset .* changed during the map/)
            const results = await router.mapCallrw('who', [], { timeout: 20_000 })
            expect([...results.values()].flat()).toEqual([cluster.id('a2'), cluster.id('b1')])
          } finally {
            await cluster.promote('a1')
            await expect
              .poll(() => router.routeAll().get(cluster.setId('a'))?.master()?.id, { timeout: 10_000 })
              .toBe(cluster.id('a1'))
          }
        },
        60_000,
      )
    },
  )
})
