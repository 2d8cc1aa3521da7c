/* The file by which other programs find a local cluster: whole or not there. */
import { rename, writeFile } from 'node:fs/promises'
import { parseAddress } from '@orbweaver/connection'
import { InvalidArgumentError } from '@orbweaver/iproto'
import type { ClusterConfig, TopologyFile } from '@orbweaver/vshard'

/**
 * What a topology file says of a cluster; `readTopology` of `@orbweaver/vshard` reads it.
 * @throws InvalidArgumentError for an instance that is not at a host and port
 */
export function topologyOf(
  config: ClusterConfig,
  around: Partial<Pick<TopologyFile, 'proxy' | 'page'>> = {},
): TopologyFile {
  const { bucketCount, identification, user, password, replicasets } = config
  return {
    bucketCount,
    identification,
    user,
    password,
    replicasets: replicasets.map((replicaset) => ({
      name: replicaset.name ?? replicaset.id,
      uuid: replicaset.uuid ?? replicaset.id,
      master: 'auto',
      replicas: replicaset.instances.map(({ id, name = id, uuid = id, uri }) => {
        const address = parseAddress(uri)
        if (!('port' in address))
          throw new InvalidArgumentError(`Instance ${name} is at ${uri}, which is no host and port`)
        return { name, uuid, host: address.host, port: address.port }
      }),
    })),
    proxy: around.proxy ?? null,
    page: around.page ?? null,
  }
}

/** Written beside its place and moved there: a reader never sees a part. */
export async function writeTopologyFile(path: string, topology: TopologyFile): Promise<void> {
  const beside = `${path}.${process.pid}.tmp`
  await writeFile(beside, `${JSON.stringify(topology, null, 2)}\n`, { mode: 0o600 })
  await rename(beside, path)
}
