import { InvalidArgumentError } from '@orbweaver/iproto'
import type { InstanceConfig, ReplicasetConfig } from '@orbweaver/vshard'
import type { InstanceSpec } from './engine-driver.js'

/** The instance a spec is about. @throws InvalidArgumentError when its configuration has none of that id */
export function findInstance(spec: InstanceSpec): {
  replicaset: ReplicasetConfig
  instance: InstanceConfig
  number: number
} {
  for (const replicaset of spec.config.replicasets) {
    const index = replicaset.instances.findIndex((instance) => instance.id === spec.id)
    if (index >= 0) return { replicaset, instance: replicaset.instances[index]!, number: index + 1 }
  }
  throw new InvalidArgumentError(`The configuration has no instance '${spec.id}'`)
}
