/* The file by which other programs find the cluster: whole or not there. */
import { access, constants, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { topologyOf, writeTopologyFile } from '@orbweaver/cluster'
import { UsageError } from './options.js'
import type { World } from './world.js'

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

/** Where everything is: the cluster, and the proxy in front of it. */
export async function writeTopology(path: string, { cluster, proxyAddress }: World): Promise<void> {
  const { user, password } = cluster.config
  await writeTopologyFile(path, topologyOf(cluster.config, { proxy: { ...proxyAddress, user, password } }))
}
