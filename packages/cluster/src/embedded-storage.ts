/* One embedded storage from a cluster's configuration: the same in this process and in a child. */
import { mkdir } from 'node:fs/promises'
import { parseAddress } from '@orbweaver/connection'
import type { Environment } from '@orbweaver/connection'
import { InvalidArgumentError } from '@orbweaver/iproto'
import { createStorage } from '@orbweaver/storage'
import type { Storage, VshardOptions } from '@orbweaver/storage'
import type { ClusterConfig } from '@orbweaver/vshard'
import type { InstanceSpec, SetUp } from './engine-driver.js'
import { findInstance } from './find-instance.js'

/** Starts it: set up, listening, connected to its peers. */
export async function startEmbeddedStorage(spec: InstanceSpec, environment?: Partial<Environment>): Promise<Storage> {
  const { replicaset, instance, number } = findInstance(spec)
  const { user, password, bucketCount, identification } = spec.config
  const peers = replicaset.instances.flatMap((peer, i) =>
    i + 1 === number ? [] : [{ number: i + 1, uuid: peer.uuid ?? peer.id, address: parseAddress(peer.uri) }],
  )
  const storage = createStorage({
    name: instance.name ?? instance.id,
    uuid: instance.uuid ?? instance.id,
    ...(replicaset.uuid === undefined ? {} : { replicasetUuid: replicaset.uuid }),
    ...(replicaset.name === undefined ? {} : { replicasetName: replicaset.name }),
    users: { [user]: { password, rights: 'super' } },
    replication: { number, peers, credential: { user, password }, quorum: spec.quorum },
    ...(spec.durability === 'full' ? { durability: 'full', dir: spec.dir } : {}),
    ...(spec.vshard ? { vshard: { ...vshardOptions(spec.config), bucketCount, identification } } : {}),
    ...(environment === undefined ? {} : { environment }),
  })
  try {
    const setUp = await loadSetUp(spec.setUp)
    if (spec.durability === 'full') await mkdir(spec.dir, { recursive: true })
    await storage.open()
    await setUp?.(storage, { id: instance.id, name: storage.name, replicasetId: replicaset.id })
    await storage.listen(parseAddress(instance.uri))
  } catch (error) {
    await storage.close({ graceMs: 0 })
    throw error
  }
  storage.start()
  return storage
}

/** A storage that is already a part of a cluster takes another configuration of it. */
export function applyConfig(storage: Storage | undefined, config: ClusterConfig): void {
  storage?.vshard.configure(vshardOptions(config))
}

/** What the configuration says of vshard's storage side; the login is the cluster's. */
function vshardOptions(config: ClusterConfig): Partial<VshardOptions> {
  const { user, password, replicasets } = config
  const given = OPTION_NAMES.flatMap((name) => (config[name] === undefined ? [] : [[name, config[name]]]))
  return { ...(Object.fromEntries(given) as Partial<VshardOptions>), replicasets, credential: { user, password } }
}

const OPTION_NAMES = [
  'shardIndex',
  'schedRefQuota',
  'schedMoveQuota',
  'rebalancerMode',
  'rebalancerDisbalanceThreshold',
  'rebalancerMaxReceiving',
  'rebalancerMaxSending',
  'rebalancerBucketSendTimeoutMs',
  'syncTimeoutMs',
] as const

async function loadSetUp(setUp: SetUp | string | undefined): Promise<SetUp | undefined> {
  if (typeof setUp !== 'string') return setUp
  const module = (await import(setUp)) as { setUp?: SetUp }
  if (typeof module.setUp !== 'function')
    throw new InvalidArgumentError(`${setUp} does not export a function setUp(storage, instance)`)
  return module.setUp
}
