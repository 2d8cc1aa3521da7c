/* Tarantool's own client, which knows routers by their Lua names, and a router of this process behind the proxy. */
import { createProxy, type Proxy } from '@orbweaver/proxy'
import { createRouter, type Router } from '@orbweaver/router'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Cluster, embeddedEngine, startCluster } from '../../src/index.js'
import { missingLuaClient, runLua } from '../lua-client.js'

const BUCKETS = 20
const missing = missingLuaClient()

describe.skipIf(missing !== undefined)(
  `net.box and a served router${missing === undefined ? '' : ` (skipped: ${missing})`}`,
  () => {
    let cluster: Cluster
    let router: Router
    let proxy: Proxy
    let uri: string

    beforeAll(async () => {
      cluster = await startCluster({
        engine: embeddedEngine,
        instances: 1,
        bucketCount: BUCKETS,
        setUp: new URL('../fixtures/router-functions.mjs', import.meta.url).href,
      })
      router = createRouter({ config: cluster.config })
      await router.ready()
      for (const { id } of cluster.config.replicasets) await router.routeAll().get(id)!.callrw('prepare')
      proxy = createProxy({ targets: { one: { uri: addressOf(cluster) } }, rw: 'one' })
      proxy.serve(router, { users: ['guest'] })
      const address = await proxy.listen({ host: '127.0.0.1', port: 0 })
      uri = 'port' in address ? `127.0.0.1:${address.port}` : ''
    }, 30_000)

    afterAll(async () => {
      await proxy?.close({ graceMs: 0 })
      await router?.close({ timeout: 0 })
      await cluster?.close()
    })

    it('calls functions where their buckets are, and gets errors as vshard gives them', async () => {
      const shown = await runLua(`
local c = net.connect('${uri}')
show(c:call('vshard.router.callrw', {3, 'write', {3, 33}, {timeout = 5}}))
show(c:call('vshard.router.callrw', {3, 'write', {3, 33}}))
show(c:call('vshard.router.callro', {3, 'rows_of', {3}}))
show(c:call('vshard.router.callbre', {4, 'echo', {{a = 1}, 'x'}}))
show(c:call('vshard.router.callro', {4, 'echo', {1, 'x'}, {return_raw = true}}))
local values, err = c:call('vshard.router.callrw', {3, 'fail'})
show(values, type(err), err.type, err.message:match('it broke') ~= nil)
local _, missing = c:call('vshard.router.callrw', {3, 'no_such_function'})
show(missing.code)
show(try(c.call, c, 'vshard.router.callrw', {${BUCKETS + 1}, 'echo'}))
local found = c:call('vshard.router.map_callrw', {'who', {}, {timeout = 5}})
local names = {}
for _, values in pairs(found) do table.insert(names, values[1]) end
table.sort(names)
show(names)
show(c:call('vshard.router.bucket_id_strcrc32', {'key'}))
`)
      expect(shown.slice(0, 5)).toEqual([[1], [2], [[[33, 3, 2]]], [[{ a: 1 }, 'x']], [[[1, 'x']]]])
      expect(shown[5]).toEqual([null, 'table', 'ClientError', true])
      expect(shown[6]).toEqual([33])
      expect(shown[7]?.slice(0, 2)).toEqual([false, 32])
      expect(shown[8]?.[0]).toHaveLength(cluster.config.replicasets.length)
      expect(shown[9]).toEqual([router.bucketIdStrcrc32('key')])
    })
  },
)

function addressOf({ config }: Cluster): string {
  const { uri } = config.replicasets[0]!.instances[0]!
  return uri.slice(uri.lastIndexOf('@') + 1)
}
