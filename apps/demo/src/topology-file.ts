/* The file by which other programs find the cluster: whole or not there. */
import { access, constants, rename, stat, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { parseAddress } from '@orbweaver/connection'
import type { TopologyFile } from '@orbweaver/vshard'
import { UsageError } from './options.js'
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

/** Found out before anything is started. @throws UsageError */
export async function assertWritable(path: string): Promise<void> {
  const folder = dirname(path)
  try {
    await access(folder, constants.W_OK)
    if ((await stat(path)).isDirectory())
      throw new UsageError(`--topology '${path}' is a folder, expected the path of a file`)
  } catch (error) {
    if (error instanceof UsageError) throw error
    const { code } = error as NodeJS.ErrnoException
    const isMissingFile = code === 'ENOENT' && (await isFolder(folder))
    if (!isMissingFile)
      throw new UsageError(`--topology '${path}' cannot be written: ${(error as Error).message}`, { cause: error })
  }
}

async function isFolder(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isDirectory()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false
    throw error
  }
}

/** Written beside its place and moved there: a reader never sees a part. */
export async function writeTopology(path: string, world: World): Promise<void> {
  const beside = `${path}.${process.pid}.tmp`
  await writeFile(beside, `${JSON.stringify(topologyOf(world), null, 2)}\n`)
  await rename(beside, path)
}
