/* vshard's own router, in Lua, over embedded storages: bootstrap, calls, map-reduce, and buckets that move under it. */
import { createStorage } from '@orbweaver/storage'
import type { Storage } from '@orbweaver/storage'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { missingLuaClient, runLua } from '../lua-client.js'
import { freePort } from '../tarantool.js'

const luaDir = process.env['VSHARD_LUA']
const missing =
  missingLuaClient() ??
  (luaDir === undefined ? 'no vshard: set VSHARD_LUA to the folder that holds its sources' : undefined)

const BUCKETS = 100
const LOGIN = { user: 'storage', password: 'secret' } as const
const SETS = ['aaaaaaaa-aaaa-4aaa-8aaa-0000000000', 'bbbbbbbb-bbbb-4bbb-8bbb-0000000000'] as const
const setId = (set: number): string => `${SETS[set]!}00`
const instanceId = (set: number): string => `${SETS[set]!}01`

describe.skipIf(missing !== undefined)(
  `vshard's router over embedded storages${missing === undefined ? '' : ` (skipped: ${missing})`}`,
  () => {
    const storages: Storage[] = []
    let ports: number[]

    beforeAll(async () => {
      ports = [await freePort(), await freePort()]
      for (const set of [0, 1]) storages.push(await startStorage(set))
    })

    afterAll(async () => {
      for (const storage of storages) await storage.close({ graceMs: 0 })
    })

    async function startStorage(set: number): Promise<Storage> {
      const storage = createStorage({
        name: `s${set}`,
        uuid: instanceId(set),
        replicasetUuid: setId(set),
        users: { [LOGIN.user]: { password: LOGIN.password, rights: 'super' } },
        vshard: {
          bucketCount: BUCKETS,
          rebalancerMode: 'off',
          credential: LOGIN,
          replicasets: [0, 1].map((other) => ({
            id: setId(other),
            master: 'auto',
            instances: [{ id: instanceId(other), uri: `127.0.0.1:${ports[other]!}` }],
          })),
        },
      })
      await storage.listen({ host: '127.0.0.1', port: ports[set]! })
      storage.start()
      storage.createSpace('s', {
        format: [
          { name: 'id', type: 'unsigned' },
          { name: 'bucket_id', type: 'unsigned' },
        ],
        indexes: [
          { name: 'pk', parts: ['id'] },
          { name: 'bucket_id', parts: ['bucket_id'], isUnique: false },
        ],
      })
      storage.define('who', () => storage.name)
      storage.define('add', (context, id, bucketId) => {
        context.space('s').insert([id, bucketId])
        return true
      })
      storage.define('fail', (context) => context.space('nowhere'))
      storage.define('count', (context) => context.space('s').count())
      storage.define('arguments_by_bucket', (_context, _common, byBucket) =>
        byBucket instanceof Map ? [...(byBucket as Map<unknown, unknown>)] : [],
      )
      return storage
    }

    /** A Lua program with a configured router. */
    function router(script: string): Promise<unknown[][]> {
      const sharding = [0, 1].map(
        (set) =>
          `['${setId(set)}'] = {master = 'auto', replicas = {['${instanceId(set)}'] = {uri = '${LOGIN.user}:${LOGIN.password}@127.0.0.1:${ports[set]!}', name = 's${set}'}}}`,
      )
      return runLua(`
        package.path = '${luaDir ?? ''}/?.lua;${luaDir ?? ''}/?/init.lua;' .. package.path
        fiber = require('fiber')
        vshard = require('vshard')
        vshard.router.cfg({bucket_count = ${BUCKETS}, sharding = {${sharding.join(', ')}}})
        ${script}`)
    }

    it('bootstraps, discovers every bucket, and calls in both modes', async () => {
      const shown = await router(`
        show(vshard.router.bootstrap({timeout = 10}))
        local names = {}
        for id = 1, ${BUCKETS} do
          local name, err = vshard.router.callrw(id, 'who', {}, {timeout = 5})
          if name == nil then show('failed', id, tostring(err)) end
          names[name or 'none'] = (names[name or 'none'] or 0) + 1
          vshard.router.callrw(id, 'add', {id, id}, {timeout = 5})
        end
        show(names)
        show(vshard.router.callro(1, 'who', {}, {timeout = 5}) ~= nil)
        local deadline = fiber.clock() + 10
        while vshard.router.info().bucket.unknown > 0 and fiber.clock() < deadline do fiber.sleep(0.05) end
        show(vshard.router.info().bucket.available_rw)
        local ok, err = vshard.router.bootstrap({timeout = 10})
        show(ok, err.name)`)
      expect(shown).toEqual([[true], [{ s0: BUCKETS / 2, s1: BUCKETS / 2 }], [true], [BUCKETS], [null, 'NON_EMPTY']])
      expect(storages.map((storage) => storage.info().buckets)).toEqual([BUCKETS / 2, BUCKETS / 2])
    })

    it('maps over everything, and over some buckets with arguments of their own', async () => {
      const owned = storages.map((storage) =>
        storage
          .space<[number]>('_bucket')
          .select([], { limit: 2 })
          .map(([id]) => id),
      )
      const [first, second] = [owned[0]![0]!, owned[1]![0]!]
      const shown = await router(`
        local counts, err = vshard.router.map_callrw('count', {}, {timeout = 5})
        local total = 0
        for _, count in pairs(counts or {}) do total = total + count[1] end
        show(total, err)
        local some, err2 = vshard.router.map_callrw('arguments_by_bucket', {'common'}, {
          timeout = 5, bucket_ids = {[${first}] = {'one'}, [${second}] = {'two'}}})
        show(some['${setId(0)}'], some['${setId(1)}'], err2)`)
      expect(shown[0]).toEqual([BUCKETS])
      expect(shown[1]).toEqual([[[[first, ['one']]]], [[[second, ['two']]]]])
      expect(storages.map((storage) => storage.info().storageRefs)).toEqual([0, 0])
    })

    it('gets what a function raised as a real storage tells it: error 32 with the original in details', async () => {
      const shown = await router(`
        local result, err = vshard.router.callrw(1, 'fail', {}, {timeout = 5})
        show(result, err.code, err.message, type(err.details) == 'string' and err.details or err.details.message)
        local _, missing = vshard.router.callrw(1, 'nobody_has_this', {}, {timeout = 5})
        show(missing.code, missing.message)`)
      expect(shown).toEqual([
        [null, 32, "Space 'nowhere' does not exist", "Space 'nowhere' does not exist"],
        [33, "Procedure 'nobody_has_this' is not defined"],
      ])
    })

    it('watches the role and the schema of a storage', async () => {
      const [version, ...events] = await router(`
        local connection = require('net.box').connect('${LOGIN.user}:${LOGIN.password}@127.0.0.1:${ports[0]!}')
        show(connection.schema_version)
        if connection.watch == nil then os.exit(0) end
        for _, key in ipairs({'vshard.storage.election', 'box.schema'}) do
          local seen = fiber.channel(1)
          connection:watch(key, function(_, value) seen:put(value) end)
          show(key, seen:get(5))
        end`)
      // A client before 2.10 has no watchers.
      if (events.length === 0) return
      expect(events).toEqual([
        ['vshard.storage.election', { term: 1, role: 'leader', is_ro: false, leader: 1 }],
        ['box.schema', { version: version![0] }],
      ])
    })

    it('counts every row exactly once while buckets move both ways, and finds them where they went', async () => {
      const over = new AbortController()
      let moves = 0
      const moving = (async () => {
        for (let round = 0; !over.signal.aborted; round++) {
          const [from, to] = round % 2 === 0 ? [0, 1] : [1, 0]
          const [[id] = []] = storages[from]!.space<[number]>('_bucket').select([], { limit: 1, offset: round % 20 })
          if (id === undefined) continue
          await storages[from]!.vshard.sendBucket(id, setId(to), { timeout: 5_000 })
          moves++
        }
      })()
      const shown = await router(`
        local deadline = fiber.clock() + 4
        local good, wrong, failed = 0, 0, 0
        while fiber.clock() < deadline do
          local counts = vshard.router.map_callrw('count', {}, {timeout = 5})
          if counts == nil then failed = failed + 1 else
            local total = 0
            for _, count in pairs(counts) do total = total + count[1] end
            if total == ${BUCKETS} then good = good + 1 else wrong = wrong + 1 end
          end
          for id = 1, 3 do
            if vshard.router.callrw(id, 'who', {}, {timeout = 5}) == nil then failed = failed + 1 end
          end
        end
        show(good, wrong, failed)`)
      over.abort()
      await moving
      const [[good, wrong, failed] = []] = shown as number[][]
      expect(wrong).toBe(0)
      expect(failed).toBe(0)
      expect(good).toBeGreaterThanOrEqual(50)
      expect(moves).toBeGreaterThanOrEqual(50)
    })
  },
)
