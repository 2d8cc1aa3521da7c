/* What tests of maps ask of two replicasets of vshard in Lua. */
import { connect } from '@orbweaver/connection'
import type { Connection } from '@orbweaver/connection'
import type { ClusterConfig } from '@orbweaver/vshard'
import { startCluster, tarantoolEngine } from '../../src/index.js'
import type { Cluster } from '../../src/index.js'

/** Why there are none here, in words for the title of a skipped suite. */
export const missingLuaStorages: string | undefined = tarantoolEngine().missing()

type Name = 'a1' | 'a2' | 'b1' | 'b2'

export class LuaCluster {
  readonly #cluster: Cluster
  readonly #clients = new Map<string, Connection>()

  private constructor(cluster: Cluster) {
    this.#cluster = cluster
  }

  /** @param options.masters - chosen by themselves, or named by the configuration */
  static async start(options: { bucketCount: number; masters: 'auto' | 'static' }): Promise<LuaCluster> {
    const lua = new URL('../fixtures/map-functions.lua', import.meta.url).href
    const cluster = await startCluster({
      engine: tarantoolEngine(),
      instances: 2,
      bucketCount: options.bucketCount,
      lua,
    })
    const started = new LuaCluster(cluster)
    try {
      const { config } = cluster
      if (options.masters === 'static') {
        const replicasets = config.replicasets.map((set) => ({ ...set, master: set.instances[0]!.id }))
        await cluster.apply({ ...config, replicasets })
      }
      const { password, user } = config
      for (const { name, uri } of cluster.instances) started.#clients.set(name, await connect({ uri, user, password }))
      for (const name of ['a1', 'b1'] as const) await started.#synced(name)
    } catch (error) {
      await started.stop()
      throw error
    }
    return started
  }

  get config(): ClusterConfig {
    return this.#cluster.config
  }

  /** Id of a replicaset. */
  setId(set: 'a' | 'b'): string {
    return this.#cluster.instance(`${set}1`).replicasetId
  }

  /** Id of an instance. */
  id(name: Name): string {
    return this.#cluster.instance(name).id
  }

  /** Values of a Lua chunk. */
  eval<T extends unknown[]>(name: Name, lua: string, args: readonly unknown[] = []): Promise<T> {
    return this.#at(name).eval<T>(lua, args)
  }

  promote(name: Name): Promise<void> {
    return this.#cluster.instance(name).promote()
  }

  /** @returns what `bucket_send` says */
  async move(bucketId: number, from: Name, to: 'a' | 'b', timeout = 10): Promise<unknown[]> {
    const args = [bucketId, this.setId(to), { timeout }]
    return this.#at(from).call('vshard.storage.bucket_send', args, { timeout: 60_000 })
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
    await this.#cluster.close()
  }

  #at(name: Name): Connection {
    return this.#clients.get(name)!
  }

  /** A new master moves no buckets before it has heard of all other instances. */
  async #synced(name: Name): Promise<void> {
    for (;;) {
      const [, error] = await this.#at(name).call('vshard.storage._call', ['recovery_bucket_stat', 0])
      if (error === undefined || error === null) return
      await new Promise<void>((resolve) => setTimeout(resolve, 20))
    }
  }
}
