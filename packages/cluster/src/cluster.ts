import { randomUUID } from 'node:crypto'
import { rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect, systemClock } from '@orbweaver/connection'
import { ConfigError, InvalidArgumentError, isObject, optionProblems, optionRule } from '@orbweaver/iproto'
import type { ConfigProblem, OptionRules } from '@orbweaver/iproto'
import { bucketForceCreateCall, idealBalance, readBucketForceCreate } from '@orbweaver/vshard'
import type { ClusterConfig, ReplicasetConfig } from '@orbweaver/vshard'
import { embeddedEngine } from './embedded-instance.js'
import type { EngineDriver, RunningInstance, SetUp } from './engine-driver.js'
import { layOut } from './layout.js'

export interface ClusterOptions {
  /** Default 2. */
  readonly replicasets?: number
  /** Instances of each replicaset. Default 3. */
  readonly instances?: number
  /** Default 3,000, as vshard's. */
  readonly bucketCount?: number
  /** Whether errors and results call instances by uuid or by name. Default `uuid`. */
  readonly identification?: 'uuid' | 'name'
  /** The login of routers, replicas and tools. Default `orbweaver`. */
  readonly user?: string
  readonly password?: string
  /** Default 127.0.0.1. */
  readonly host?: string
  /** The first of a row of ports. Default: whichever are free. */
  readonly firstPort?: number
  /** All instances in this process. Default false: each in a process of its own. */
  readonly inProcess?: boolean
  /** Instances that must have a write before it is acknowledged. Default: a majority, so that no failover loses one. */
  readonly quorum?: number
  /** `full`: an instance that ends and is started again has everything it acknowledged. Default `none`. */
  readonly durability?: 'none' | 'full'
  /** Run in every instance before it listens: functions and the like. The URL of a module that exports `setUp`, or (inProcess) a function. */
  readonly setUp?: SetUp | string
  /** URL of a Lua file that every Tarantool runs once it is configured: its functions and spaces. */
  readonly lua?: string
  /** Serve `vshard.storage.*` and create the buckets. Default true. */
  readonly vshard?: boolean
  /** Told as instances come up: `a1 is up (3 of 9)`. */
  readonly onProgress?: (text: string) => void
  /** Told when an instance ends that nobody here ended; `how` is its exit code or signal. */
  readonly onExit?: (instance: ClusterInstance, how: number | string) => void
  /** Aborted while the cluster starts: what has started is ended, and `startCluster` rejects with the reason. */
  readonly signal?: AbortSignal
  /** Default: the embedded engine. */
  readonly engine?: EngineDriver
}

/** One instance of a running cluster. */
export interface ClusterInstance {
  readonly id: string
  readonly name: string
  readonly replicasetId: string
  /** `host:port`. */
  readonly uri: string
  readonly isRunning: boolean
  /** Makes it the master of its replicaset: a planned switch when the old one lives, a failover when it does not. */
  promote(): Promise<void>
  /** Ends it at once, as kill -9 does. */
  kill(): Promise<void>
  /** Ends it in order. */
  stop(): Promise<void>
  /** Stops it from doing anything, its sockets stay open. Needs a process of its own. */
  freeze(): void
  thaw(): void
  /** Starts it again after `kill` or `stop`; it catches up from the others. */
  restart(): Promise<void>
}

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
  /** Ends everything and removes what was written. Idempotent. */
  close(): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

/**
 * Starts a cluster: all instances, a master in each replicaset, the buckets spread evenly.
 * @throws ConfigError for options that cannot be right, Error with the instance's own words when one does not start
 */
export async function startCluster(options: ClusterOptions = {}): Promise<Cluster> {
  validate(options)
  options.signal?.throwIfAborted()
  const config = await layOut({
    replicasets: options.replicasets ?? 2,
    instances: options.instances ?? 3,
    bucketCount: options.bucketCount ?? 3_000,
    identification: options.identification ?? 'uuid',
    user: options.user ?? 'orbweaver',
    password: options.password ?? 'orbweaver',
    host: options.host ?? '127.0.0.1',
    firstPort: options.firstPort,
    name: 'local',
  })
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

function validate(options: ClusterOptions): void {
  const problems = optionProblems('', options, CLUSTER)
  if (isObject(options)) problems.push(...contradictionsIn(options))
  if (problems.length > 0) throw new ConfigError(problems, { subject: 'cluster' })
}

/** What no option says by itself. (Comparisons with what is no number are false: that was told already.) */
function contradictionsIn({
  replicasets = 2,
  instances = 3,
  quorum = 1,
  firstPort = 1,
}: ClusterOptions): ConfigProblem[] {
  const problems: ConfigProblem[] = []
  if (quorum > instances) {
    const message = `is ${quorum}, more than the ${instances} instances of a replicaset`
    problems.push({ path: 'quorum', message })
  }
  const last = firstPort + replicasets * instances - 1
  if (firstPort <= LAST_PORT && last > LAST_PORT)
    problems.push({ path: 'firstPort', message: `is ${firstPort}, and the last instance would need port ${last}` })
  return problems
}

const LAST_PORT = 65_535

const CLUSTER: OptionRules = {
  replicasets: optionRule.positiveInteger,
  instances: optionRule.positiveInteger,
  bucketCount: optionRule.positiveInteger,
  quorum: optionRule.positiveInteger,
  identification: optionRule.oneOf('uuid', 'name'),
  user: optionRule.text,
  password: { expected: 'a string', fits: (value) => typeof value === 'string', isSecret: true },
  host: optionRule.text,
  firstPort: optionRule.integer(1, LAST_PORT),
  inProcess: optionRule.flag,
  durability: optionRule.oneOf('none', 'full'),
  setUp: {
    expected: 'a function, or the URL of a module that exports setUp',
    fits: (value) => typeof value === 'function' || optionRule.text.fits(value),
  },
  lua: { expected: 'the URL of a Lua file', fits: (value) => typeof value === 'string' && URL.canParse(value) },
  vshard: optionRule.flag,
  onProgress: optionRule.function,
  onExit: optionRule.function,
  signal: { expected: 'an AbortSignal', fits: (value) => value instanceof AbortSignal },
  engine: {
    expected: 'an engine: embeddedEngine, or what tarantoolEngine() returns',
    fits: (value) => isObject(value) && typeof value['start'] === 'function',
  },
}

class LocalCluster implements Cluster {
  readonly instances: readonly ManagedInstance[]
  #config: ClusterConfig
  readonly #options: ClusterOptions
  readonly #dir: string
  readonly #masters = new Map<string, ManagedInstance>()
  #closing: Promise<void> | undefined

  constructor(config: ClusterConfig, options: ClusterOptions, dir: string) {
    this.#config = config
    this.#options = options
    this.#dir = dir
    this.instances = config.replicasets.flatMap((replicaset) =>
      replicaset.instances.map(
        (instance) =>
          new ManagedInstance(
            { id: instance.id, name: instance.name ?? instance.id, uri: instance.uri, replicaset },
            this.#driver(instance.id),
            () => this.#promoted(instance.id),
            (ended, how) => this.#options.onExit?.(ended, how),
          ),
      ),
    )
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
    this.#config = config
    await Promise.all(this.instances.map((instance) => instance.apply(config)))
  }

  async start(): Promise<void> {
    let up = 0
    await allOrFirstFailure(
      this.instances.map(async (instance) => {
        await instance.restart()
        this.#options.onProgress?.(`${instance.name} is up (${++up} of ${this.instances.length})`)
      }),
    )
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

type Starter = () => Promise<RunningInstance>

class ManagedInstance implements ClusterInstance {
  readonly id: string
  readonly name: string
  readonly uri: string
  readonly replicasetId: string
  readonly #starter: Starter
  readonly #onPromoted: () => void
  readonly #onExit: (instance: ClusterInstance, how: number | string) => void
  #running: RunningInstance | undefined
  #isClosed = false
  /** Its end was asked for. */
  #isEnding = false

  constructor(
    what: { id: string; name: string; uri: string; replicaset: ReplicasetConfig },
    starter: Starter,
    onPromoted: () => void,
    onExit: (instance: ClusterInstance, how: number | string) => void,
  ) {
    this.id = what.id
    this.name = what.name
    this.uri = what.uri
    this.replicasetId = what.replicaset.id
    this.#starter = starter
    this.#onPromoted = onPromoted
    this.#onExit = onExit
  }

  get isRunning(): boolean {
    return this.#running !== undefined
  }

  async restart(): Promise<void> {
    if (this.#isClosed) throw new InvalidArgumentError('The cluster is closed')
    if (this.#running !== undefined) throw new InvalidArgumentError(`Instance ${this.name} is running`)
    const running = await this.#starter()
    if (this.#isClosed) {
      // Closed while it started.
      running.signal('SIGKILL')
      await running.exited
      throw new InvalidArgumentError('The cluster is closed')
    }
    this.#isEnding = false
    this.#running = running
    void running.exited.then((how) => {
      if (this.#running !== running) return
      this.#running = undefined
      if (!this.#isEnding) this.#onExit(this, how)
    })
  }

  async promote(): Promise<void> {
    const running = this.#require()
    await new Promise<void>((resolve, reject) => {
      const cancel = systemClock.schedule(PROMOTE_TIMEOUT_MS, () =>
        reject(new Error(`Instance ${this.name} did not answer its promotion within ${PROMOTE_TIMEOUT_MS} ms`)),
      )
      running.promote().then(
        () => {
          cancel()
          resolve()
        },
        (error: unknown) => {
          cancel()
          reject(error instanceof Error ? error : new Error(String(error)))
        },
      )
    })
    this.#onPromoted()
  }

  async apply(config: ClusterConfig): Promise<void> {
    await this.#running?.apply(config)
  }

  /** Ends it for good: it cannot be started again. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.stop()
  }

  async kill(): Promise<void> {
    await this.#end('SIGKILL')
  }

  async stop(): Promise<void> {
    const running = this.#running
    if (running === undefined) return
    this.#isEnding = true
    // A frozen process takes its SIGTERM only when it runs; one that does not end in time is killed.
    running.signal('SIGTERM')
    const cancel = systemClock.schedule(STOP_TIMEOUT_MS, () => running.signal('SIGKILL'))
    await running.exited
    cancel()
    this.#running = undefined
  }

  freeze(): void {
    this.#require().signal('SIGSTOP')
  }

  thaw(): void {
    this.#require().signal('SIGCONT')
  }

  async #end(signal: 'SIGKILL'): Promise<void> {
    const running = this.#running
    if (running === undefined) return
    this.#isEnding = true
    running.signal(signal)
    await running.exited
    this.#running = undefined
  }

  #require(): RunningInstance {
    if (this.#running === undefined) throw new InvalidArgumentError(`Instance ${this.name} is not running`)
    return this.#running
  }
}

const STOP_TIMEOUT_MS = 5_000
/** Longer than an instance itself tries. */
const PROMOTE_TIMEOUT_MS = 15_000
