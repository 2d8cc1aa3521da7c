/* A configuration of ours in vshard's own shape: what `vshard.router.cfg` and `vshard.storage.cfg` take. */
import { InvalidArgumentError } from '@orbweaver/iproto'
import type { ClusterConfig, InstanceConfig, ReplicasetConfig } from './config.js'
import { OPTION_RULES } from './config-options.js'
import { decodeUri } from './config-uri.js'

/**
 * The reverse of {@link readVshardConfig}: a plain object for JSON, with the cluster's login in every address that has none.
 * Times are in seconds; an infinite one is left out, which is vshard's way to say it.
 * @throws InvalidArgumentError for an address that is none
 */
export function writeVshardConfig(config: ClusterConfig): Record<string, unknown> {
  const isNamed = config.identification === 'name'
  return {
    ...config.boxOptions,
    bucket_count: config.bucketCount,
    identification_mode: isNamed ? 'name_as_key' : 'uuid_as_key',
    sharding: Object.fromEntries(config.replicasets.map((set) => [set.id, writeReplicaset(config, set, isNamed)])),
    ...defined({ zone: config.zone, weights: config.weights?.map(({ from, to, weight }) => [from, to, weight]) }),
    ...Object.fromEntries(
      OPTION_RULES.flatMap(({ name, vshardName, isTime }) => {
        const value = config[name]
        if (value === undefined || value === Infinity) return []
        return [[vshardName, isTime && typeof value === 'number' ? value / 1000 : value]]
      }),
    ),
  }
}

function writeReplicaset(config: ClusterConfig, set: ReplicasetConfig, isNamed: boolean): Record<string, unknown> {
  const { weight, lock, rebalancer, master, uuid, instances } = set
  return defined({
    weight,
    lock,
    rebalancer,
    master: master === 'auto' ? master : undefined,
    uuid: isNamed ? uuid : undefined,
    replicas: Object.fromEntries(
      instances.map((instance) => [instance.id, writeInstance(config, instance, isNamed, master === instance.id)]),
    ),
  })
}

function writeInstance(
  { user, password }: ClusterConfig,
  instance: InstanceConfig,
  isNamed: boolean,
  isMaster: boolean,
): Record<string, unknown> {
  const { uri, name, uuid, zone, rebalancer, boxOptions } = instance
  const address = decodeUri(uri)
  if (address === undefined) throw new InvalidArgumentError(`The address '${uri}' of ${instance.id} is none`)
  const login = `${encodeURIComponent(user)}:${encodeURIComponent(password)}@`
  return {
    ...boxOptions,
    uri: address.user === undefined && user !== 'guest' ? `${login}${address.uri}` : address.uri,
    ...defined({ name: isNamed ? undefined : name, uuid: isNamed ? uuid : undefined, zone, rebalancer }),
    ...(isMaster ? { master: true } : {}),
  }
}

function defined(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined))
}
