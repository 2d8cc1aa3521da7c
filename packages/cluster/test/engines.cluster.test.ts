/* What a cluster does whatever its instances are made of: each in a process of its own. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { connect } from '@orbweaver/connection'
import { createRouter } from '@orbweaver/router'
import { afterEach, expect, it } from 'vitest'
import { startCluster } from '../src/index.js'
import type { Cluster } from '../src/index.js'
import { describeEngines } from './engines.js'

let cluster: Cluster | undefined

afterEach(async () => {
  await cluster?.close()
  cluster = undefined
})

describeEngines('a cluster', (engine) => {
  async function start(options: { replicasets?: number; instances?: number } = {}): Promise<Cluster> {
    cluster = await startCluster({ engine, bucketCount: 20, replicasets: 2, instances: 2, ...options })
    return cluster
  }

  /** How many buckets the master of each replicaset has. */
  async function bucketCounts({ config, masterOf }: Cluster): Promise<number[]> {
    return Promise.all(
      config.replicasets.map(async ({ id }) => {
        const { user, password } = config
        const connection = await connect({ uri: masterOf.call(cluster, id).uri, user, password })
        try {
          const [count] = await connection.call<[number]>('vshard.storage.buckets_count')
          return count
        } finally {
          connection.destroy()
        }
      }),
    )
  }

  it('starts with a master in each replicaset and the buckets spread evenly', async () => {
    expect(await bucketCounts(await start())).toEqual([10, 10])
  })

  it('is switched while a router calls, and takes an instance back that was killed', async () => {
    const { config } = await start({ replicasets: 1, instances: 3 })
    const [set] = config.replicasets
    const router = createRouter({ config })
    try {
      const master = (): string | undefined => router.info().replicasets[0]!.master
      await router.callrw(1, 'vshard.storage.buckets_count')
      expect(master()).toBe(set!.instances[0]!.id)
      await cluster!.instance(set!.instances[1]!.id).promote()
      expect(await router.callrw(1, 'vshard.storage.buckets_count')).toEqual([20])
      expect(master()).toBe(set!.instances[1]!.id)

      await cluster!.instance(set!.instances[1]!.id).kill()
      const answer = router.callrw(1, 'vshard.storage.buckets_count')
      await cluster!.instance(set!.instances[2]!.id).promote()
      expect(await answer).toEqual([20])
      await cluster!.instance(set!.instances[1]!.id).restart()
      await cluster!.instance(set!.instances[1]!.id).promote()
      expect(await router.callrw(1, 'vshard.storage.buckets_count')).toEqual([20])
    } finally {
      await router.close({ timeout: 0 })
    }
  })

  it('takes another configuration: a replicaset of weight 0 is emptied', async () => {
    const { config } = await start({ instances: 1 })
    const [first, second] = config.replicasets
    await cluster!.apply({
      ...config,
      rebalancerMaxSending: 15,
      replicasets: [first!, { ...second!, weight: 0 }],
    })
    expect(cluster!.config.replicasets[1]!.weight).toBe(0)
    await expect.poll(() => bucketCounts(cluster!), { timeout: 25_000, interval: 100 }).toEqual([20, 0])
  })

  it('leaves nothing behind when its process is killed', async () => {
    const main = fileURLToPath(new URL('fixtures/starts-a-cluster.mjs', import.meta.url))
    const parent = spawn(process.execPath, [main, engine.name], { stdio: ['ignore', 'pipe', 'inherit'] })
    let said = ''
    parent.stdout.on('data', (chunk: Buffer) => {
      said += chunk.toString()
    })
    await expect.poll(() => said, { timeout: 25_000 }).toContain('\n')
    const pids = JSON.parse(said) as number[]
    expect(pids).toHaveLength(2)
    expect(pids.every(isAlive)).toBe(true)
    parent.kill('SIGKILL')
    await once(parent, 'exit')
    await expect.poll(() => pids.filter(isAlive), { timeout: 10_000 }).toEqual([])
  })
})

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false // no such process
  }
}
