/* Buckets between a storage of vshard in Lua and an embedded one, in both directions, and what each asks the other meanwhile. */
import { connect } from '@orbweaver/connection'
import type { Connection } from '@orbweaver/connection'
import { createStorage } from '@orbweaver/storage'
import type { Storage } from '@orbweaver/storage'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { freePort, missingTarantool, startTarantool } from '../tarantool.js'
import type { TarantoolServer } from '../tarantool.js'

const luaDir = process.env['VSHARD_LUA']
const missing =
  missingTarantool ??
  (luaDir === undefined ? 'no vshard: set VSHARD_LUA to the folder that holds its sources' : undefined)

const LUA_SET = 'aaaaaaaa-aaaa-4aaa-8aaa-000000000000'
const LUA_INSTANCE = 'aaaaaaaa-aaaa-4aaa-8aaa-000000000001'
const OUR_SET = 'bbbbbbbb-bbbb-4bbb-8bbb-000000000000'
const OUR_INSTANCE = 'bbbbbbbb-bbbb-4bbb-8bbb-000000000001'
const BUCKETS = 20
const HALF = BUCKETS / 2
const LOGIN = { user: 'storage', password: 'secret' } as const

function luaStorage(luaPort: number, ourPort: number): string {
  return `
package.path = '${luaDir ?? ''}/?.lua;${luaDir ?? ''}/?/init.lua;' .. package.path
vshard = require('vshard')
vshard.storage.cfg({
  bucket_count = ${BUCKETS},
  rebalancer_mode = 'off',
  sharding = {
    ['${LUA_SET}'] = {replicas = {['${LUA_INSTANCE}'] = {
      uri = 'storage:secret@127.0.0.1:${luaPort}', name = 'lua', master = true}}},
    ['${OUR_SET}'] = {replicas = {['${OUR_INSTANCE}'] = {
      uri = 'storage:secret@127.0.0.1:${ourPort}', name = 'ours', master = true}}},
  },
}, '${LUA_INSTANCE}')
local s = box.schema.space.create('s', {format = {
  {'id', 'unsigned'}, {'bucket_id', 'unsigned'}, {'value', 'any', is_nullable = true}}})
s:create_index('pk', {parts = {'id'}})
s:create_index('bucket_id', {parts = {'bucket_id'}, unique = false})
vshard.storage.bucket_force_create(1, ${HALF})
for id = 1, ${HALF} do s:insert({id, id, 'row of ' .. id}) end
for i = 1, 2500 do s:insert({1000 + i, 3, i * 1.5}) end
function rows_of(bucket_id) return s.index.bucket_id:select(bucket_id) end
function set_fault(name, value) vshard.storage.internal.errinj[name] = value end
for _, name in pairs({'rows_of', 'set_fault'}) do
  box.schema.func.create(name)
  box.schema.user.grant('storage', 'execute', 'function', name, {if_not_exists = true})
end
box.schema.user.grant('storage', 'read,write', 'universe', nil, {if_not_exists = true})
`
}

describe.skipIf(missing !== undefined)(
  `buckets between Lua storages and embedded ones${missing === undefined ? '' : ` (skipped: ${missing})`}`,
  () => {
    let server: TarantoolServer
    let ours: Storage
    let lua: Connection

    beforeAll(async () => {
      const [luaPort, ourPort] = [await freePort(), await freePort()]
      ours = createStorage({
        name: 'ours',
        uuid: OUR_INSTANCE,
        replicasetUuid: OUR_SET,
        users: { storage: { password: LOGIN.password, rights: 'super' } },
        vshard: {
          bucketCount: BUCKETS,
          rebalancerMode: 'off',
          credential: LOGIN,
          replicasets: [
            { id: LUA_SET, master: LUA_INSTANCE, instances: [{ id: LUA_INSTANCE, uri: `127.0.0.1:${luaPort}` }] },
            { id: OUR_SET, master: OUR_INSTANCE, instances: [{ id: OUR_INSTANCE, uri: `127.0.0.1:${ourPort}` }] },
          ],
        },
      })
      await ours.listen({ host: '127.0.0.1', port: ourPort })
      ours.start()
      ours.createSpace('s', {
        format: [
          { name: 'id', type: 'unsigned' },
          { name: 'bucket_id', type: 'unsigned' },
          { name: 'value', type: 'any', isNullable: true },
        ],
        indexes: [
          { name: 'pk', parts: ['id'] },
          { name: 'bucket_id', parts: ['bucket_id'], isUnique: false },
        ],
      })
      ours.define('echo_id', (_context, id) => id)
      await ours.call('vshard.storage.bucket_force_create', HALF + 1, HALF)
      for (let id = HALF + 1; id <= BUCKETS; id++) ours.space('s').insert([id, id, `row of ${id}`])
      server = await startTarantool({
        port: luaPort,
        walMode: 'write', // 2.6.0 runs the triggers of vshard with a journal only
        cfg: `instance_uuid = '${LUA_INSTANCE}', replicaset_uuid = '${LUA_SET}'`,
        lua: luaStorage(luaPort, ourPort),
      })
      lua = await connect({ uri: `127.0.0.1:${luaPort}`, ...LOGIN })
    })

    afterAll(async () => {
      await lua?.close()
      await server?.stop()
      await ours?.close({ graceMs: 0 })
    })

    /** Waits until a storage has no record of a bucket any more: it was collected. */
    async function gone(stat: () => Promise<readonly unknown[]>): Promise<void> {
      for (;;) {
        const [record] = await stat()
        if (record === null || record === undefined) return
        await new Promise((resolve) => setTimeout(resolve, 20))
      }
    }

    /** Waits until Lua serves a bucket: its recovery looks every five seconds. */
    async function activeInLua(id: number): Promise<void> {
      for (;;) {
        const [stat] = await lua.call<[Map<unknown, unknown> | null]>('vshard.storage.bucket_stat', [id])
        if (stat?.get('status') === 'active') return
        await new Promise((resolve) => setTimeout(resolve, 20))
      }
    }

    it('takes a bucket of several messages from Lua, with every row in the form it had', async () => {
      expect(await lua.call('vshard.storage.bucket_send', [3, OUR_SET, { timeout: 20 }])).toEqual([true])
      expect((await ours.call('vshard.storage.bucket_stat', 3))[0]).toEqual(
        new Map<unknown, unknown>([
          [1, 3],
          [2, 'active'],
          ['id', 3],
          ['status', 'active'],
          [4, { generation: 1 }],
          ['opts', { generation: 1 }],
        ]),
      )
      const rows = ours.space('s').select([3], { index: 'bucket_id' })
      expect(rows).toHaveLength(2_501)
      expect(rows[0]).toEqual([3, 3, 'row of 3'])
      expect(rows[2_500]).toEqual([3_500, 3, 3_750])
      await gone(() => lua.call('vshard.storage.bucket_stat', [3]))
      expect(await lua.call('rows_of', [3])).toEqual([[]])
    })

    it('gives it back, and leaves nothing behind', async () => {
      await ours.vshard.sendBucket(3, LUA_SET, { timeout: 20_000 })
      const [stat] = await lua.call<[{ get?: unknown }]>('vshard.storage.bucket_stat', [3])
      expect(stat).toBeInstanceOf(Map)
      expect((stat as unknown as Map<unknown, unknown>).get('status')).toBe('active')
      expect((stat as unknown as Map<unknown, unknown>).get('opts')).toEqual({ generation: 2 })
      const [rows] = await lua.call<[unknown[]]>('rows_of', [3])
      expect(rows).toHaveLength(2_501)
      expect(rows[1]).toEqual([1_001, 3, 1.5])
      await gone(() => ours.call('vshard.storage.bucket_stat', 3))
      expect(ours.space('s').select([3], { index: 'bucket_id' })).toEqual([])
    })

    it('gives a bucket of its own to Lua, an empty one too', async () => {
      ours.space('s').delete([HALF + 2])
      for (const id of [HALF + 1, HALF + 2]) await ours.vshard.sendBucket(id, LUA_SET, { timeout: 20_000 })
      expect(await lua.call('rows_of', [HALF + 1])).toEqual([[[HALF + 1, HALF + 1, `row of ${HALF + 1}`]]])
      const [stat] = await lua.call<[Map<unknown, unknown>]>('vshard.storage.bucket_stat', [HALF + 2])
      expect(stat.get('status')).toBe('active')
    })

    it('answers Lua that maps stand in the way, and lets the bucket come when they have ended', async () => {
      const ref = await ours.ref({ timeout: 1_000 })
      const sending = lua.call('vshard.storage.bucket_send', [4, OUR_SET, { timeout: 20 }])
      for (;;) {
        const [stat] = await lua.call<[Map<unknown, unknown>]>('vshard.storage.bucket_stat', [4])
        if (stat.get('status') === 'sending') break
        await new Promise((resolve) => setTimeout(resolve, 10))
      }
      expect(ours.info().buckets).toBe(HALF - 2)
      await ref[Symbol.asyncDispose]()
      expect(await sending).toEqual([true])
    })

    it('tries a move to Lua again when maps over there have ended, and takes writes meanwhile', async () => {
      const session = await connect({ uri: server.uri, ...LOGIN })
      const [counted] = await session.call<[number]>('vshard.storage._call', ['storage_ref', 1, 30])
      expect(counted).toBeGreaterThan(0)
      const sending = ours.vshard.sendBucket(HALF + 3, LUA_SET, { timeout: 20_000 })
      await new Promise((resolve) => setTimeout(resolve, 700))
      expect(await session.call('vshard.storage._call', ['storage_unref', 1])).toEqual([true])
      await sending
      await session.close()
      expect(await lua.call('rows_of', [HALF + 3])).toEqual([[[HALF + 3, HALF + 3, `row of ${HALF + 3}`]]])
    })

    it('settles with Lua what a late last message left: the receiver serves the bucket', async () => {
      const id = HALF + 4
      await lua.call('set_fault', ['ERRINJ_LAST_RECEIVE_DELAY', true])
      await expect(ours.vshard.sendBucket(id, LUA_SET, { chunkTimeout: 500 })).rejects.toThrow(/Timeout/)
      expect((await ours.call('vshard.storage.bucket_stat', id))[1]).toMatchObject({ destination: LUA_SET })
      await lua.call('set_fault', ['ERRINJ_LAST_RECEIVE_DELAY', false])
      await gone(() => ours.call('vshard.storage.bucket_stat', id))
      await activeInLua(id)
      expect(await lua.call('rows_of', [id])).toEqual([[[id, id, `row of ${id}`]]])
    })

    it('stays with the sender when the receiver fails in the middle, on either side', async () => {
      const id = HALF + 5
      await lua.call('set_fault', ['ERRINJ_RECEIVE_PARTIALLY', true])
      await expect(ours.vshard.sendBucket(id, LUA_SET, { timeout: 20_000 })).rejects.toThrow(/received partially/)
      await lua.call('set_fault', ['ERRINJ_RECEIVE_PARTIALLY', false])
      await gone(() => lua.call('vshard.storage.bucket_stat', [id]))
      for (;;) {
        const [reply] = await ours.call('vshard.storage.call', id, 'write', 'echo_id', [id])
        if (reply === true) break
        await new Promise((resolve) => setTimeout(resolve, 20))
      }
      ours.space('s').insert([1_001, 14, 'in the way of a row of bucket 3'])
      const [nothing, error] = await lua.call<[null, Record<string, unknown>]>('vshard.storage.bucket_send', [
        3,
        OUR_SET,
        { timeout: 20 },
      ])
      expect(nothing).toBeNull()
      expect(error).toMatchObject({ name: 'BUCKET_RECV_DATA_ERROR', bucket_id: 3, space: 's' })
      await gone(() => ours.call('vshard.storage.bucket_stat', 3))
      expect(ours.space('s').select([3], { index: 'bucket_id' })).toEqual([])
      await activeInLua(3)
    })
  },
)
