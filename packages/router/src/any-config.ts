import { isObject } from '@orbweaver/iproto'
import { readTopology, readVshardConfig, validateClusterConfig } from '@orbweaver/vshard'
import type { ClusterConfig } from '@orbweaver/vshard'

/** A cluster's configuration in whichever of the three shapes it has. @throws ConfigError */
export function readAnyConfig(value: unknown): ClusterConfig {
  if (value instanceof Map ? value.has('sharding') : isObject(value) && value['sharding'] !== undefined)
    return readVshardConfig(value)
  const isTopologyFile =
    isObject(value) &&
    Array.isArray(value['replicasets']) &&
    value['replicasets'].some((set) => isObject(set) && set['replicas'] !== undefined)
  return isTopologyFile ? readTopology(value) : validateClusterConfig(value)
}
