/* A change of the master by hand, in front of a replicaset that replicates. */
import { startCluster, type Cluster } from '../../src/index.js'
import { type Connection, connect } from '@orbweaver/connection'
import { BoxError, hash2Of } from '@orbweaver/iproto'
import { createProxy, type Proxy } from '@orbweaver/proxy'
import type { Storage } from '@orbweaver/storage'
import { afterAll, beforeAll, expect, describe, it } from 'vitest'

describe('a failover by hand in front of three embedded instances', () => {
  let cluster: Cluster
  let proxy: Proxy
  let uri: { host: string; port: number }
  const clients: Connection[] = []

  beforeAll(async () => {
    cluster = await startCluster({
      replicasets: 1,
      instances: 3,
      bucketCount: 10,
      inProcess: true,
      setUp: (storage: Storage) => {
        storage.define('create', () => {
          storage.createSpace('kv', { format: [{ name: 'key', type: 'unsigned' }], ifNotExists: true })
        })
      },
    })
    proxy = createProxy({
      targets: Object.fromEntries(cluster.instances.map(({ id, uri: target }) => [id, { uri: target }])),
      rw: cluster.instances[0]!.id,
      credentials: {
        mode: 'static',
        users: { [cluster.config.user]: Buffer.from(hash2Of(cluster.config.password)).toString('base64') },
      },
    })
    uri = (await proxy.listen({ host: '127.0.0.1', port: 0 })) as { host: string; port: number }
    const first = await login()
    await first.call('create')
  })

  afterAll(async () => {
    for (const client of clients) client.destroy()
    await proxy.close({ graceMs: 0 })
    await cluster.close()
  })

  async function login(): Promise<Connection> {
    const client = await connect({ uri, user: cluster.config.user, password: cluster.config.password })
    clients.push(client)
    return client
  }

  it('loses no acknowledged write, shows no error, and pauses for a moment only, there and back', async () => {
    const all = await Promise.all(Array.from({ length: 8 }, login))
    const acknowledged: number[] = []
    const errors: unknown[] = []
    let next = 0
    const stop = new AbortController()
    const run = async (client: Connection): Promise<void> => {
      while (!stop.signal.aborted) {
        await Promise.all(
          Array.from({ length: 8 }, async () => {
            const key = next++
            try {
              await client.insert('kv', [key])
              acknowledged.push(key)
            } catch (error) {
              errors.push(error)
            }
          }),
        )
      }
    }
    const runs = all.map(run)
    const [a, b] = cluster.instances
    await expect.poll(() => acknowledged.length).toBeGreaterThan(200)
    for (const to of [b!, a!]) {
      const report = await proxy.failOverTo(to.id, { promote: () => to.promote() })
      expect(report).toMatchObject({ to: to.id, outcome: 'ok', drained: true, failedUnknown: 0 })
      expect(report.pauseMs).toBeLessThan(2_000)
      const before = acknowledged.length
      await expect.poll(() => acknowledged.length).toBeGreaterThan(before + 200)
    }
    stop.abort()
    await Promise.all(runs)
    expect(errors).toEqual([])
    const rows = await all[0]!.select<[number]>('kv', [])
    const stored = new Set(rows.map(([key]) => key))
    expect(acknowledged.filter((key) => !stored.has(key))).toEqual([])
    expect(new Set(acknowledged).size).toBe(acknowledged.length)
  })

  it('leaves everything as it is when the new master cannot be promoted', async () => {
    const client = await login()
    const before = proxy.stats().rw
    const other = cluster.instances.find(({ id }) => id !== before)!
    const refusal = proxy.failOverTo(other.id, { promote: () => Promise.reject(new Error('not today')) })
    await expect(refusal).rejects.toThrow(/not today/)
    expect(proxy.stats()).toMatchObject({ rw: before, isPaused: false })
    await expect(client.insert('kv', [0])).rejects.toBeInstanceOf(BoxError)
  })
})
