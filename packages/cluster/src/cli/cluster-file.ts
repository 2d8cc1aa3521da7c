/* The file of a cluster: its topology, and the socket by which it takes commands. */
import { readFile } from 'node:fs/promises'
import { readTopology } from '@orbweaver/vshard'
import type { Topology, TopologyFile } from '@orbweaver/vshard'
import { UsageError } from './usage.js'

export interface ClusterFile {
  readonly topology: Topology
  /** undefined: whoever wrote the file takes no commands (`npm start --topology`). */
  readonly control: string | undefined
}

export type WrittenClusterFile = TopologyFile & { readonly control: string }

/** @throws UsageError when there is none, ConfigError for one that is no topology */
export async function readClusterFile(path: string): Promise<ClusterFile> {
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    throw new UsageError(
      `There is no ${path}: start a cluster with \`orbweaver-cluster up\`, or name its file with --file`,
    )
  }
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw new UsageError(`${path} is no JSON: ${(error as Error).message}`, { cause: error })
  }
  const control = (value as { control?: unknown }).control
  return { topology: readTopology(value), control: typeof control === 'string' ? control : undefined }
}
