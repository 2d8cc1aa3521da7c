/* A cluster on this machine: its instances, who is master, its buckets. */
import { randomUUID } from 'node:crypto'
import { rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from '@orbweaver/connection'
import { ConfigError, InvalidArgumentError } from '@orbweaver/iproto'
import { bucketForceCreateCall, idealBalance, readBucketForceCreate } from '@orbweaver/vshard'
import type { ClusterConfig, ReplicasetConfig } from '@orbweaver/vshard'
import { validateClusterOptions } from './cluster-options.js'
import type { ClusterOptions } from './cluster-options.js'
import { embeddedEngine } from './embedded-instance.js'
import type { RunningInstance } from './engine-driver.js'
import { layOut, layOutReplicaset } from './layout.js'
import type { LayoutOptions } from './layout.js'
import { ManagedInstance } from './managed-instance.js'
import type { ClusterInstance } from './managed-instance.js'

/** A local cluster: for tests, demos and development. */
export interface Cluster {
  /** Of this moment: `apply` gives it another one. */
  readonly config: ClusterConfig
  readonly instances: readonly ClusterInstance[]
  /** By id or name. @throws InvalidArgumentError */
  instance(ref: string): ClusterInstance
  /** The instance that was made the master of a replicaset last. */
  masterOf(replicasetId: string): ClusterInstance
  /**
   * Hands another configuration to all instances that run; those that are started later begin with it. Replicasets and instances
   * stay the same ones: weights, locks, pins of the rebalancer and vshard's options may change.
   * @throws ConfigError for a configuration of other instances
   */
  apply(config: ClusterConfig): Promise<void>
  /** Starts one more replicaset, whose name is the next letter and which has no buckets: the rebalancer brings it its share. */
  addReplicaset(): Promise<ReplicasetConfig>
  /** How many buckets a replicaset gets beside the others; 0 empties it. @throws InvalidArgumentError for an unknown one */
  setWeight(replicasetId: string, weight: number): Promise<void>
  /** Ends everything and removes what was written. Idempotent. */
  close(): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

/**
 * Starts a cluster: all instances, a master in each replicaset, the buckets spread evenly.
 * @throws ConfigError for options that cannot be right, Error with the instance's own words when one does not start
 */
export async function startCluster(options: ClusterOptions = {}): Promise<Cluster> {
  validateClusterOptions(options)
  options.signal?.throwIfAborted()
  const config = await layOut(layoutOf(options))
  // Made by whoever has something to write, so that a process that is killed leaves nothing empty behind.
  const cluster = new LocalCluster(config, options, join(tmpdir(), `orbweaver-${randomUUID()}`))
  const abort = (): void => void cluster.close()
  options.signal?.addEventListener('abort', abort, { once: true })
  try {
    await cluster.start()
    options.signal?.throwIfAborted()
  } catch (error) {
    await cluster.close()
    throw options.signal?.aborted === true ? options.signal.reason : error
  } finally {
    options.signal?.removeEventListener('abort', abort)
  }
  return cluster
}

function layoutOf(options: ClusterOptions): LayoutOptions {
  return {
    replicasets: options.replicasets ?? 2,
    instances: options.instances ?? 3,
    bucketCount: options.bucketCount ?? 3_000,
    identification: options.identification ?? 'uuid',
    user: options.user ?? 'orbweaver',
    password: options.password ?? 'orbweaver',
    host: options.host ?? '127.0.0.1',
    firstPort: options.firstPort,
    name: 'local',
  }
}

class LocalCluster implements Cluster {
  #instances: readonly ManagedInstance[]
  #config: ClusterConfig
  readonly #options: ClusterOptions
  readonly #dir: string
  readonly #masters = new Map<string, ManagedInstance>()
  #closing: Promise<void> | undefined

  constructor(config: ClusterConfig, options: ClusterOptions, dir: string) {
    this.#config = config
    this.#options = options
    this.#dir = dir
    this.#instances = config.replicasets.flatMap((replicaset) => this.#instancesOf(replicaset))
  }

  get instances(): readonly ManagedInstance[] {
    return this.#instances
  }

  get config(): ClusterConfig {
    return this.#config
  }

  async apply(config: ClusterConfig): Promise<void> {
    const idsOf = ({ replicasets }: ClusterConfig): string =>
      JSON.stringify(replicasets.map(({ id, instances }) => [id, instances.map((instance) => instance.id)]))
    if (idsOf(config) !== idsOf(this.#config) || config.bucketCount !== this.#config.bucketCount) {
      const message = 'is of other instances or of another number of buckets; those of a running cluster stay'
      throw new ConfigError([{ path: 'replicasets', message }], { subject: 'cluster' })
    }
    await this.#hand(config)
  }

  async addReplicaset(): Promise<ReplicasetConfig> {
    const before = this.#config
    const added = await layOutReplicaset(layoutOf(this.#options), before.replicasets.length)
    const instances = this.#instancesOf(added)
    this.#config = { ...before, replicasets: [...before.replicasets, added] }
    this.#instances = [...this.#instances, ...instances]
    try {
      await this.#startAll(instances)
      await instances[0]!.promote()
      await this.#hand(this.#config)
    } catch (error) {
      await Promise.all(instances.map((instance) => instance.close()))
      this.#instances = this.#instances.filter((instance) => !instances.includes(instance))
      this.#config = before
      throw error
    }
    return added
  }

  async setWeight(replicasetId: string, weight: number): Promise<void> {
    const { replicasets } = this.#config
    if (!replicasets.some(({ id }) => id === replicasetId))
      throw new InvalidArgumentError(
        `This cluster has no replicaset '${replicasetId}'; it has ${replicasets.map(({ id }) => id).join(', ')}`,
      )
    if (!(weight >= 0 && weight < Infinity))
      throw new InvalidArgumentError(`The weight is ${weight}, expected a finite number from 0`)
    const changed = replicasets.map((set) => (set.id === replicasetId ? { ...set, weight } : set))
    if (changed.every((set) => set.weight === 0))
      throw new InvalidArgumentError('All replicasets would have the weight 0: one must keep the buckets')
    await this.#hand({ ...this.#config, replicasets: changed })
  }

  async start(): Promise<void> {
    await this.#startAll(this.instances)
    await Promise.all(this.config.replicasets.map((replicaset) => this.instance(replicaset.instances[0]!.id).promote()))
    if (this.#options.vshard !== false) await this.#createBuckets()
  }

  instance(ref: string): ManagedInstance {
    const found = this.instances.find((instance) => instance.id === ref || instance.name === ref)
    if (found === undefined)
      throw new InvalidArgumentError(
        `This cluster has no instance '${ref}'; it has ${this.instances.map(({ name }) => name).join(', ')}`,
      )
    return found
  }

  masterOf(replicasetId: string): ManagedInstance {
    const master = this.#masters.get(replicasetId)
    if (master === undefined)
      throw new InvalidArgumentError(`This cluster has no replicaset '${replicasetId}' with a master`)
    return master
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #close(): Promise<void> {
    await Promise.all(this.instances.map((instance) => instance.close()))
    await rm(this.#dir, { recursive: true, force: true })
  }

  async #hand(config: ClusterConfig): Promise<void> {
    this.#config = config
    await Promise.all(this.instances.map((instance) => instance.apply(config)))
  }

  async #startAll(instances: readonly ManagedInstance[]): Promise<void> {
    let up = 0
    await allOrFirstFailure(
      instances.map(async (instance) => {
        await instance.restart()
        this.#options.onProgress?.(`${instance.name} is up (${++up} of ${instances.length})`)
      }),
    )
  }

  #instancesOf(replicaset: ReplicasetConfig): ManagedInstance[] {
    return replicaset.instances.map(
      (instance) =>
        new ManagedInstance(
          { id: instance.id, name: instance.name ?? instance.id, uri: instance.uri, replicaset },
          this.#driver(instance.id),
          () => this.#promoted(instance.id),
          (ended, how) => this.#options.onExit?.(ended, how),
        ),
    )
  }

  #promoted(id: string): void {
    const instance = this.instance(id)
    this.#masters.set(instance.replicasetId, instance)
  }

  #driver(id: string): () => Promise<RunningInstance> {
    const {
      engine = embeddedEngine,
      inProcess = false,
      vshard = true,
      setUp,
      lua,
      instances = 3,
      durability,
    } = this.#options
    const quorum = this.#options.quorum ?? Math.floor(instances / 2) + 1
    return () =>
      engine.start({
        id,
        config: this.config,
        vshard,
        inProcess,
        dir: join(this.#dir, id),
        quorum,
        ...(durability === undefined ? {} : { durability }),
        ...(setUp === undefined ? {} : { setUp }),
        ...(lua === undefined ? {} : { lua }),
      })
  }

  /** Contiguous ranges, in the order of the replicasets. */
  async #createBuckets(): Promise<void> {
    const { bucketCount, replicasets } = this.config
    const shares = idealBalance(
      new Map(replicasets.map((replicaset) => [replicaset.id, { weight: replicaset.weight ?? 1 }])),
      bucketCount,
    )
    let next = 1
    const ranges = replicasets.map((replicaset) => {
      const count = shares.get(replicaset.id) ?? 0
      const first = next
      next += count
      return { replicaset, first, count }
    })
    await Promise.all(
      ranges
        .filter(({ count }) => count > 0)
        .map(({ replicaset, first, count }) => this.#createRange(replicaset, first, count)),
    )
  }

  async #createRange(replicaset: ReplicasetConfig, first: number, count: number): Promise<void> {
    const { user, password } = this.config
    const connection = await connect({ uri: this.masterOf(replicaset.id).uri, user, password, reconnect: false })
    try {
      const call = bucketForceCreateCall(first, count)
      readBucketForceCreate(await connection.call(call.name, call.args))
    } finally {
      connection.destroy()
    }
  }
}

/** Waits for all of them also when one fails: an instance that is still starting must not be forgotten. */
async function allOrFirstFailure(work: readonly Promise<void>[]): Promise<void> {
  const ended = await Promise.allSettled(work)
  const failed = ended.find((result) => result.status === 'rejected')
  if (failed !== undefined) throw failed.reason
}
