/* Storages of vshard in Lua: two replicasets of two instances each, as processes. */
import { connect, systemClock } from '@orbweaver/connection'
import type { Connection } from '@orbweaver/connection'
import type { ClusterConfig } from '@orbweaver/vshard'
import { freePort, isAtLeast, missingTarantool, startTarantool } from '../tarantool.js'
import type { TarantoolServer } from '../tarantool.js'

const luaDir = process.env['VSHARD_LUA']

/** Why there are none here, in words for the title of a skipped suite. */
export const missingLuaStorages: string | undefined =
  missingTarantool ??
  (luaDir === undefined ? 'no vshard: set VSHARD_LUA to the folder that holds its sources' : undefined)

const SETS = ['aaaaaaaa', 'bbbbbbbb'] as const
export const setId = (set: 'a' | 'b'): string => uuidOf(set, 0)
const uuidOf = (set: 'a' | 'b', number: number): string =>
  `${SETS[set === 'a' ? 0 : 1]}-0000-4000-8000-00000000000${number}`

const LOGIN = { user: 'storage', password: 'secret' } as const
type Name = 'a1' | 'a2' | 'b1' | 'b2'
const NAMES: readonly Name[] = ['a1', 'a2', 'b1', 'b2']
const setOf = (name: Name): 'a' | 'b' => name[0] as 'a' | 'b'
const idOf = (name: Name): string => uuidOf(setOf(name), Number(name[1]))

export interface LuaClusterOptions {
  readonly bucketCount: number
  readonly masters: 'auto' | 'static'
  /** Run on the masters, with `vshard` and the user `storage` there. */
  readonly lua: string
}

export class LuaCluster {
  readonly config: ClusterConfig
  readonly #servers = new Map<Name, TarantoolServer>()
  readonly #clients = new Map<Name, Connection>()

  private constructor(config: ClusterConfig) {
    this.config = config
  }

  static async start(options: LuaClusterOptions): Promise<LuaCluster> {
    const ports = new Map<Name, number>()
    for (const name of NAMES) ports.set(name, await freePort())
    const uriOf = (name: Name): string => `127.0.0.1:${ports.get(name)!}`
    const cluster = new LuaCluster({
      bucketCount: options.bucketCount,
      identification: 'uuid',
      ...LOGIN,
      replicasets: (['a', 'b'] as const).map((set) => ({
        id: setId(set),
        master: options.masters === 'auto' ? 'auto' : idOf(`${set}1`),
        instances: ([`${set}1`, `${set}2`] as const).map((name) => ({ id: idOf(name), uri: uriOf(name) })),
      })),
    })
    try {
      for (const name of NAMES) await cluster.#start(name, options, uriOf, ports.get(name)!)
      for (const [i, set] of (['a', 'b'] as const).entries()) {
        const half = options.bucketCount / 2
        await cluster.at(`${set}1`).call('vshard.storage.bucket_force_create', [i * half + 1, half])
      }
      for (const name of ['a1', 'b1'] as const) await cluster.#synced(name)
    } catch (error) {
      await cluster.stop()
      throw error
    }
    return cluster
  }

  at(name: Name): Connection {
    return this.#clients.get(name)!
  }

  /** Values of a Lua chunk. */
  eval<T extends unknown[]>(name: Name, lua: string, args: readonly unknown[] = []): Promise<T> {
    return this.at(name).eval<T>(lua, args)
  }

  /** For masters chosen by themselves: makes the other instance of a replicaset its master. */
  async switchMaster(from: Name, to: Name): Promise<void> {
    await this.eval(from, 'box.cfg{read_only = true}')
    await this.eval(to, 'box.cfg{read_only = false}')
  }

  /** @returns what `bucket_send` says */
  async move(bucketId: number, from: Name, to: 'a' | 'b', timeout = 10): Promise<unknown[]> {
    return this.at(from).call('vshard.storage.bucket_send', [bucketId, setId(to), { timeout }], { timeout: 60_000 })
  }

  async bucketsOf(name: Name): Promise<number[]> {
    const [ids] = await this.eval<[number[]]>(
      name,
      `local r = {} for _, t in box.space._bucket.index.status:pairs('active') do table.insert(r, t.id) end return r`,
    )
    return ids
  }

  /** References a storage holds. */
  async refsOf(name: Name): Promise<number> {
    const [count] = await this.eval<[number]>(name, `return require('vshard.storage.ref').count`)
    return count
  }

  async stop(): Promise<void> {
    for (const client of this.#clients.values()) client.destroy()
    for (const server of this.#servers.values()) await server.stop()
  }

  /** A new master moves no buckets before it has heard of all other instances. */
  async #synced(name: Name): Promise<void> {
    for (;;) {
      const [, error] = await this.at(name).call('vshard.storage._call', ['recovery_bucket_stat', 0])
      if (error === undefined || error === null) return
      await new Promise<void>((resolve) => systemClock.schedule(20, resolve))
    }
  }

  async #start(name: Name, options: LuaClusterOptions, uriOf: (name: Name) => string, port: number): Promise<void> {
    const isMaster = name.endsWith('1')
    const uri = (other: Name): string => `${LOGIN.user}:${LOGIN.password}@${uriOf(other)}`
    const first: Name = `${setOf(name)}1`
    const replication = isMaster ? [] : [uri(first), uri(name)]
    const strategy = isAtLeast(3, 0) ? `bootstrap_strategy = 'legacy',` : ''
    const server = await startTarantool({
      port,
      walMode: 'write',
      listensFirst: true,
      cfg: `instance_uuid = '${idOf(name)}', replicaset_uuid = '${setId(setOf(name))}', read_only = ${String(!isMaster)},
        ${strategy} replication_connect_quorum = 0, replication_timeout = 0.3,
        ${replication.length === 0 ? '' : `replication = {${replication.map((each) => `'${each}'`).join(', ')}}`}`,
      lua: `
package.path = '${luaDir ?? ''}/?.lua;${luaDir ?? ''}/?/init.lua;' .. package.path
vshard = require('vshard')
fiber = require('fiber')
vshard.storage.cfg({
  bucket_count = ${options.bucketCount},
  rebalancer_mode = 'off',
  replication_connect_quorum = 0,
  sharding = {${(['a', 'b'] as const)
    .map(
      (set) =>
        `['${setId(set)}'] = {${options.masters === 'auto' ? `master = 'auto', ` : ''}replicas = {${(
          [`${set}1`, `${set}2`] as const
        )
          .map(
            (each) =>
              `['${idOf(each)}'] = {uri = '${uri(each)}', name = '${each}'${
                options.masters === 'static' && each.endsWith('1') ? ', master = true' : ''
              }}`,
          )
          .join(', ')}}}`,
    )
    .join(', ')}},
}, '${idOf(name)}')
function who() return '${name}' end
function count() return box.space.s:count() end
function nothing() end
function fail() error('it broke') end
function slow_count(seconds) fiber.sleep(seconds) return box.space.s:count() end
function own(common, by_bucket) local ids = {} for id in pairs(by_bucket) do table.insert(ids, id) end table.sort(ids) return {common, ids} end
if not box.info.ro then
  box.schema.user.grant('storage', 'super', nil, nil, {if_not_exists = true})
  ${options.lua}
end
`,
    })
    this.#servers.set(name, server)
    this.#clients.set(name, await connect({ uri: uriOf(name), ...LOGIN }))
  }
}
