/** The cluster of real storages that routers are measured on. */
import { readdirSync, readFileSync } from 'node:fs'
import { type Cluster, startCluster, tarantoolEngine } from '@orbweaver/cluster'
import type { ClusterConfig } from '@orbweaver/vshard'
import type { Placement } from '../placement.js'

/** Why there can be none here, as a sentence. */
export function missingVshard(): string | undefined {
  return tarantoolEngine().missing()
}

/** One cluster at a time; the next case keeps it while it wants as many buckets. */
export class Clusters {
  readonly #placement: Placement
  #cluster: Cluster | undefined

  constructor(placement: Placement) {
    this.#placement = placement
  }

  async withBuckets(bucketCount: number): Promise<ClusterConfig> {
    if (this.#cluster?.config.bucketCount !== bucketCount) {
      await this.close()
      this.#cluster = await startVshardCluster(bucketCount, this.#placement)
    }
    return this.#cluster.config
  }

  async close(): Promise<void> {
    await this.#cluster?.close()
    this.#cluster = undefined
  }
}

async function startVshardCluster(bucketCount: number, placement: Placement): Promise<Cluster> {
  const cluster = await startCluster({
    engine: tarantoolEngine(),
    replicasets: 2,
    instances: 1,
    bucketCount,
    lua: new URL('../../src/lua/storage.lua', import.meta.url).href,
  })
  for (const pid of childrenOf(process.pid)) placement.move(pid)
  return cluster
}

function childrenOf(parent: number): number[] {
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => pid > 0 && isChild(pid, parent))
}

function isChild(pid: number, parent: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/status`, 'utf8').includes(`\nPPid:\t${parent}\n`)
  } catch (error) {
    if (error instanceof Error && 'code' in error) return false // it has just ended
    throw error
  }
}
