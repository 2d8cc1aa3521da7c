/* The file by which other programs find the cluster: whole or not there. */
import { rename, writeFile } from 'node:fs/promises'
import { parseAddress } from '@orbweaver/connection'
import type { TopologyFile } from '@orbweaver/vshard'
import type { World } from './world.js'

function topologyOf({ cluster, proxyAddress }: World): TopologyFile {
  const { bucketCount, identification, user, password, replicasets } = cluster.config
  return {
    bucketCount,
    identification,
    user,
    password,
    replicasets: replicasets.map((replicaset) => ({
      name: replicaset.name ?? replicaset.id,
      uuid: replicaset.uuid ?? replicaset.id,
      master: 'auto',
      replicas: replicaset.instances.map((instance) => {
        const address = parseAddress(instance.uri)
        if (!('port' in address)) throw new TypeError(`${instance.uri} is no host and port`)
        return {
          name: instance.name ?? instance.id,
          uuid: instance.uuid ?? instance.id,
          host: address.host,
          port: address.port,
        }
      }),
    })),
    proxy: { ...proxyAddress, user, password },
    page: null,
  }
}

/** Written beside its place and moved there: a reader never sees a part. */
export async function writeTopology(path: string, world: World): Promise<void> {
  const beside = `${path}.${process.pid}.tmp`
  await writeFile(beside, `${JSON.stringify(topologyOf(world), null, 2)}\n`)
  await rename(beside, path)
}
