/* What a storage says of its health: in vshard's own shape, with its alerts and thresholds. */
import { readFileSync } from 'node:fs'
import { createConnection } from '@orbweaver/connection'
import type { Environment } from '@orbweaver/connection'
import { VirtualClock } from '@orbweaver/connection/testing'
import type { ReplicasetConfig } from '@orbweaver/vshard'
import { afterEach, describe, expect, it } from 'vitest'
import { createStorage } from '../src/index.js'
import type { Storage } from '../src/index.js'
import { during } from './memory.js'
import { MemoryCluster } from './vshard-cluster.js'

interface Captured {
  readonly name: string
  readonly info: { readonly replication: { readonly lag?: number }; readonly [field: string]: unknown }
}

const { cases } = JSON.parse(readFileSync(new URL('vectors/info.json', import.meta.url), 'utf8')) as {
  cases: readonly Captured[]
}

const SETS: readonly {
  readonly uuid: string
  readonly instances: readonly { readonly uuid: string; readonly port: number }[]
}[] = [
  {
    uuid: 'edce1347-bb2e-428a-8557-69a1ea4c9244',
    instances: [
      { uuid: '14be3eed-c825-4c9c-8c96-85e5ce55226f', port: 33_850 },
      { uuid: '1bfe30d1-a724-4fbb-8da9-04f6e8183598', port: 33_851 },
    ],
  },
  {
    uuid: 'b7cb0f38-c6c7-4160-8680-2f3cd78e75f8',
    instances: [
      { uuid: '6f2bfa8f-3e6a-4f23-80fc-85fd3379ed0f', port: 33_852 },
      { uuid: 'a29c346b-146b-407d-8de9-8c174e9a172f', port: 33_853 },
    ],
  },
]

const CONFIG: readonly ReplicasetConfig[] = SETS.map(({ uuid, instances }) => ({
  id: uuid,
  uuid,
  master: instances[0]!.uuid,
  instances: instances.map((instance) => ({
    id: instance.uuid,
    uuid: instance.uuid,
    uri: `storage:storage@127.0.0.1:${instance.port}`,
  })),
}))

/** The captured cluster, in memory. */
class CapturedCluster {
  readonly clock: VirtualClock = new VirtualClock()
  readonly #storages = new Map<number, Storage>()

  constructor() {
    for (const { uuid, instances } of SETS)
      for (const [i, instance] of instances.entries()) this.#create(uuid, instances, i, instance.port)
  }

  async start(): Promise<this> {
    for (const storage of this.#storages.values()) storage.start()
    await this.clock.advance(200)
    for (const [i, { instances }] of SETS.entries()) {
      const master = this.at(instances[0]!.port)
      await this.wait(master.promote())
      await this.wait(master.call('vshard.storage.bucket_force_create', 1 + 10 * i, 10))
    }
    await this.clock.advance(1_000)
    return this
  }

  at(port: number): Storage {
    return this.#storages.get(port)!
  }

  wait<T>(work: Promise<T>): Promise<T> {
    return during(this.clock, work)
  }

  /** As a client gets it. */
  async info(port: number): Promise<Record<string, unknown>> {
    const connection = createConnection({
      uri: { connect: () => this.at(port).connect({ user: 'storage' }) },
      environment: { clock: this.clock },
    })
    const [info] = await this.wait(connection.call<[Record<string, unknown>]>('vshard.storage.info'))
    connection.destroy()
    return info
  }

  async stop(port: number): Promise<void> {
    await this.wait(this.at(port).close({ graceMs: 0 }))
  }

  async close(): Promise<void> {
    for (const storage of this.#storages.values()) await this.wait(storage.close({ graceMs: 0 }))
  }

  #create(replicasetUuid: string, instances: (typeof SETS)[number]['instances'], i: number, port: number): void {
    const credential = { user: 'storage', password: 'storage' }
    const environment: Partial<Environment> = {
      clock: this.clock,
      random: () => 0.5,
      dial: (address) => Promise.resolve(this.at((address as { port: number }).port).connect()),
    }
    this.#storages.set(
      port,
      createStorage({
        name: `on-${port}`,
        uuid: instances[i]!.uuid,
        replicasetUuid,
        users: { storage: { password: 'storage', rights: 'super' } },
        replication: {
          number: i + 1,
          peers: instances.flatMap((peer, j) =>
            i === j ? [] : [{ number: j + 1, uuid: peer.uuid, address: { host: '127.0.0.1', port: peer.port } }],
          ),
          credential,
        },
        vshard: { bucketCount: 20, replicasets: CONFIG },
        environment,
      }),
    )
  }
}

/** Times differ from run to run: that there is one is what is compared. */
function comparable(info: Record<string, unknown>): Record<string, unknown> {
  const replication = info['replication'] as Record<string, unknown>
  return {
    ...info,
    replication: { ...replication, ...('lag' in replication ? { lag: typeof replication['lag'] } : {}) },
  }
}

describe('vshard.storage.info', () => {
  const wanted = (name: string): Record<string, unknown> =>
    comparable(cases.find((candidate) => candidate.name === name)!.info)

  it('is what a real storage says: on a master, on a replica, and when the replica is down', async () => {
    const cluster = await new CapturedCluster().start()
    expect(comparable(await cluster.info(33_850))).toEqual(wanted('storage-master'))
    expect(comparable(await cluster.info(33_851))).toEqual(wanted('storage-replica'))
    await cluster.stop(33_851)
    await cluster.clock.advance(100)
    expect(comparable(await cluster.info(33_850))).toEqual(wanted('storage-master-replica-down'))
    await cluster.close()
  })

  it('is answered by a disabled storage, too, and says so', async () => {
    const cluster = await new CapturedCluster().start()
    cluster.at(33_850).vshard.disable()
    expect(await cluster.info(33_850)).toMatchObject({ is_enabled: false })
    await cluster.close()
  })

  it('counts buckets that have left as garbage and pinned ones as active, as vshard does', async () => {
    const cluster = await new CapturedCluster().start()
    const { vshard } = cluster.at(33_850)
    vshard.pinBucket(1)
    vshard.gc.pause()
    await cluster.wait(vshard.sendBucket(2, SETS[1]!.uuid))
    expect(await cluster.info(33_850)).toMatchObject({
      bucket: { total: 10, active: 9, pinned: 1, readonly: 0, sending: 0, receiving: 0, garbage: 1 },
    })
    await cluster.close()
  })
})

describe('a replica', () => {
  let cluster: MemoryCluster
  afterEach(() => cluster.close())
  const replica = () => cluster.at('a2').vshard.info()

  it('tells how long it has not heard the master, and is alarmed after 5 and 10 seconds', async () => {
    cluster = await new MemoryCluster({ replicasets: 1, instances: 2 }).start()
    await cluster.clock.advance(3_000)
    expect(replica()).toMatchObject({ status: 0, alerts: [], upstream: { status: 'follow' } })
    expect(replica().upstream!.idleMs).toBeLessThanOrEqual(1_100)
    const [answer] = await cluster.wait(
      cluster
        .connect('a2')
        .call<[{ health: { master_upstream: { idle: number; lag: number } } }]>('vshard.storage._call', [
          'info',
          { with_health: true },
        ]),
    )
    const { idle, lag } = answer.health.master_upstream
    expect(idle).toBeCloseTo(replica().upstream!.idleMs! / 1000, 1)
    expect(lag).toBeLessThan(0.1)
    cluster.isolate('a2')
    await cluster.clock.advance(2_000)
    expect(replica()).toMatchObject({ status: 1, alerts: [['UNREACHABLE_MASTER', expect.any(String)]] })
    await cluster.clock.advance(5_000)
    expect(replica().status).toBe(2)
    await cluster.clock.advance(5_000)
    expect(replica().status).toBe(3)
    expect(replica().upstream!.idleMs).toBeGreaterThan(10_000)
    cluster.rejoin('a2')
    await cluster.clock.advance(3_000)
    expect(replica()).toMatchObject({ status: 0, alerts: [], upstream: { status: 'follow' } })
  })

  it.each([
    [2_000, 1, 'HIGH_REPLICATION_LAG'],
    [7_000, 2, 'HIGH_REPLICATION_LAG'],
    [15_000, 3, 'OUT_OF_SYNC'],
  ])('whose rows come %i ms late has status %i, until it has caught up', async (lateMs, status, alert) => {
    cluster = await new MemoryCluster({ replicasets: 1, instances: 2 }).start()
    cluster.isolate('a2')
    cluster.at('a1').space('s').insert([500, 1, 'late'])
    await cluster.clock.advance(lateMs)
    cluster.rejoin('a2')
    await cluster.clock.until(() => cluster.at('a2').space('s').get([500]) !== undefined)
    expect(replica()).toMatchObject({ status, alerts: [[alert, expect.any(String)]] })
    expect(replica().upstream!.lagMs).toBeGreaterThanOrEqual(lateMs)
    await cluster.clock.advance(2_000)
    expect(replica()).toMatchObject({ status: 0, alerts: [] })
  })
})
