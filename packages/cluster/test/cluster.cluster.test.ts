/* A local cluster of embedded storages, each in a process of its own. */
import { connect } from '@orbweaver/connection'
import type { Connection } from '@orbweaver/connection'
import { BoxError } from '@orbweaver/iproto'
import type { ReplicasetDefinition } from '@orbweaver/replicaset'
import type { ReplicasetConfig } from '@orbweaver/vshard'
import { afterEach, describe, expect, expectTypeOf, it } from 'vitest'
import { startCluster } from '../src/index.js'
import type { Cluster, ClusterOptions } from '../src/index.js'

let cluster: Cluster | undefined
const connections: Connection[] = []

afterEach(async () => {
  for (const connection of connections.splice(0)) connection.destroy()
  await cluster?.close()
  cluster = undefined
})

async function start(options: ClusterOptions): Promise<Cluster> {
  cluster = await startCluster({ replicasets: 1, instances: 3, bucketCount: 10, identification: 'name', ...options })
  return cluster
}

async function clientOf(name: string): Promise<Connection> {
  const { user, password } = cluster!.config
  const connection = await connect({ uri: cluster!.instance(name).uri, user, password })
  connections.push(connection)
  return connection
}

describe.each([true, false])('a cluster with inProcess %s', (inProcess) => {
  it('starts with a master in each replicaset and all buckets spread evenly', async () => {
    const started: string[] = []
    const { config } = await start({ replicasets: 2, inProcess, onProgress: (text) => started.push(text) })
    expect(config.replicasets.map((replicaset) => replicaset.id)).toEqual(['a', 'b'])
    expect(started.at(-1)).toMatch(/\(6 of 6\)$/)
    for (const name of ['a1', 'b1'])
      expect(await (await clientOf(name)).call('vshard.storage.buckets_count')).toEqual([5])
    expect(await (await clientOf('b1')).call('vshard.storage.buckets_discovery', [{ from: 1 }])).toEqual([
      { buckets: [6, 7, 8, 9, 10] },
    ])
  })

  it('fails over by promotion, with everything that was acknowledged', async () => {
    await start({ inProcess })
    await (await clientOf('a1')).replace('_bucket', [1, 'pinned'])
    await cluster!.instance('a1').kill()
    expect(cluster!.instance('a1').isRunning).toBe(false)
    await cluster!.instance('a3').promote()
    expect(cluster!.masterOf('a').name).toBe('a3')
    const master = await clientOf('a3')
    expect(await master.select('_bucket', [1])).toEqual([[1, 'pinned']])
    await master.replace('_bucket', [2, 'pinned'])

    await cluster!.instance('a1').restart()
    const back = await clientOf('a1')
    await expect.poll(() => back.select('_bucket', [2]), { timeout: 10_000 }).toEqual([[2, 'pinned']])
    await expect(back.replace('_bucket', [3, 'pinned'])).rejects.toSatisfy(
      (error) => error instanceof BoxError && error.boxCode === 7,
    )
  })
})

describe('a cluster in processes of their own', () => {
  it('lets an instance be frozen: it answers nothing, and everything when it thaws', async () => {
    await start({})
    const client = await clientOf('a1')
    cluster!.instance('a1').freeze()
    await expect(client.ping({ timeout: 200 })).rejects.toMatchObject({ code: 'ORB_REQUEST_TIMEOUT' })
    cluster!.instance('a1').thaw()
    await client.ping({ timeout: 10_000 })
  })

  it('tells of an instance that ends by itself, and not of those that are ended', async () => {
    const ended: [string, number | string][] = []
    const dies = `data:text/javascript,export const setUp = (storage) => storage.define('die', () => process.exit(7))`
    await start({ setUp: dies, onExit: ({ name }, how) => void ended.push([name, how]) })
    await cluster!.instance('a2').kill()
    await cluster!.instance('a2').restart()
    expect(ended).toEqual([])
    const client = await clientOf('a3')
    client.call('die').catch(() => undefined)
    await expect.poll(() => ended, { timeout: 10_000 }).toEqual([['a3', 7]])
    expect(cluster!.instance('a3').isRunning).toBe(false)
  })

  it('ends what has started when it is aborted', async () => {
    const abort = new AbortController()
    const progress: string[] = []
    const starting = startCluster({
      replicasets: 2,
      instances: 2,
      signal: abort.signal,
      onProgress: (text) => {
        progress.push(text)
        abort.abort(new Error('enough'))
      },
    })
    await expect(starting).rejects.toThrow('enough')
    expect(progress).toHaveLength(1)
    await expect(startCluster({ signal: abort.signal })).rejects.toThrow('enough')
  })

  it('says in plain words why an instance does not start', async () => {
    const taken = await start({ instances: 1 })
    const port = Number(taken.instances[0]!.uri.split(':')[1])
    await expect(startCluster({ replicasets: 1, instances: 1, firstPort: port })).rejects.toThrow(
      /did not start: .*EADDRINUSE/,
    )
  })

  it('says which set-up module cannot be used', async () => {
    await expect(
      startCluster({ replicasets: 1, instances: 1, setUp: new URL('no-such-module.js', import.meta.url).href }),
    ).rejects.toThrow(/no-such-module/)
  })
})

it('refuses options that cannot be right, all at once', async () => {
  await expect(startCluster({ replicasets: 0, instances: 2, quorum: 3, firstPort: 70_000 })).rejects.toThrow(
    /replicasets[\s\S]*firstPort[\s\S]*quorum/,
  )
})

it.each([
  [{ replicaset: 1 }, /replicaset: is not known; known are replicasets, /],
  [{ host: 5 }, /host: is 5, expected a non-empty string/],
  [{ engine: 'tarantool' }, /engine: is 'tarantool', expected an engine/],
  [{ setUp: 5 }, /setUp: is 5, expected a function, or the URL/],
  [{ lua: 'functions.lua' }, /lua: is 'functions.lua', expected the URL of a Lua file/],
  [{ firstPort: 65_531 }, /the last instance would need port 65536/],
  [5, /is 5, expected an object/],
])('refuses %j', async (options, message) => {
  await expect(startCluster(options as ClusterOptions)).rejects.toThrow(message)
})

it('has configurations of replicasets that the replicaset package takes as they are', () => {
  expectTypeOf<ReplicasetConfig>().toExtend<ReplicasetDefinition>()
})
