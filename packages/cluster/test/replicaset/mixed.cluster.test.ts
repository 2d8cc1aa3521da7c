/*
 * One replicaset of a Tarantool and an embedded storage: with Debian's 2.6.0 one of them has to be polled and the other one tells
 * its role by events; with a newer server both tell. They do not replicate; who is master is all this is about.
 */
import { connect, type Connection } from '@orbweaver/connection'
import { createReplicaset, type ReplicasetHandle } from '@orbweaver/replicaset'
import { createStorage, type Storage } from '@orbweaver/storage'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { freePort, isAtLeast, missingTarantool, startTarantool, type TarantoolServer } from '../tarantool.js'

const REPLICASET = '5ba7a7f4-6b7e-4a6c-9a5e-0c1d2e3f4a5c'
const LUA = `
box.schema.user.grant('guest', 'super', nil, nil, {if_not_exists = true})
function switch(is_ro) box.cfg{read_only = is_ro} end
function who() return 'server' end
`

describe.skipIf(missingTarantool !== undefined)(
  `a replicaset of two kinds of servers${missingTarantool === undefined ? '' : ` (${missingTarantool})`}`,
  () => {
    let server: TarantoolServer
    let admin: Connection
    let storage: Storage
    let replicaset: ReplicasetHandle

    beforeAll(async () => {
      server = await startTarantool({ lua: LUA, cfg: `replicaset_uuid = '${REPLICASET}'` })
      admin = await connect(server.uri)
      storage = createStorage({ name: 'storage', replicasetUuid: REPLICASET })
      storage.setUser('guest', { rights: 'super' })
      storage.define('who', () => 'storage')
      const port = await freePort()
      await storage.listen(`127.0.0.1:${port}`)
      storage.start()
      await storage.demote()
      replicaset = createReplicaset({
        definition: {
          id: 'mixed',
          instances: [
            { id: 'server', uri: server.uri },
            { id: 'storage', uri: `127.0.0.1:${port}` },
          ],
        },
        pollIntervalMs: 50,
        pollSearchIntervalMs: 50,
      })
    })

    afterAll(async () => {
      await replicaset?.close({ timeout: 0 })
      admin?.destroy()
      await storage?.close({ graceMs: 0 })
      await server?.stop()
    })

    it('is written to where the master is, whichever kind it is, through switches in both directions', async () => {
      expect(await replicaset.callrw('who')).toEqual(['server'])
      // One that must be polled makes it the mode of the whole; the other one's events are used all the same.
      await expect.poll(() => replicaset.info().mode).toBe(isAtLeast(2, 10) ? 'events' : 'polling')
      for (let round = 0; round < 3; round++) {
        await admin.call('switch', [true])
        const toStorage = replicaset.callrw('who')
        await storage.promote()
        // The first may have been on its way when the server turned read-only, where a function that only reads may run.
        expect(['server', 'storage']).toContain((await toStorage)[0])
        await expect.poll(() => replicaset.master()?.id, { timeout: 10_000 }).toBe('storage')
        expect(await replicaset.callrw('who')).toEqual(['storage'])

        await storage.demote()
        const toServer = replicaset.callrw('who')
        await admin.call('switch', [false])
        expect(['server', 'storage']).toContain((await toServer)[0])
        await expect.poll(() => replicaset.master()?.id, { timeout: 10_000 }).toBe('server')
        expect(await replicaset.callrw('who')).toEqual(['server'])
      }
    })
  },
)
