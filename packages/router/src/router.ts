import { resolveEnvironment } from '@orbweaver/connection'
import type { Environment } from '@orbweaver/connection'
import { ConfigError, InvalidArgumentError } from '@orbweaver/iproto'
import type { DecodeOptions } from '@orbweaver/iproto'
import type { CallMode, ReplicasetHandle } from '@orbweaver/replicaset'
import { bucketIdMpcrc32, bucketIdStrcrc32, validateClusterConfig } from '@orbweaver/vshard'
import type { CheckedClusterConfig, ClusterConfig, ShardingKey, Strcrc32Options } from '@orbweaver/vshard'
import { BucketCall } from './call.js'
import type { CallOwner } from './call.js'
import { Discovery } from './discovery.js'
import type { DiscoveryMode, SetDiscovery } from './discovery.js'
import { RouterClosedError } from './errors.js'
import { BucketLookup } from './lookup.js'
import { mapReduce } from './map-reduce.js'
import type { MapOwner } from './map-reduce.js'
import { RefIds } from './ref-ids.js'
import { UNKNOWN } from './route-table.js'
import { RouteWorker } from './route-worker.js'
import type { RouteStats } from './route-worker.js'
import { Topology } from './topology.js'

export interface RouterOptions {
  /** The cluster, as `readTopology` and `readVshardConfig` of `@orbweaver/vshard` make it. */
  readonly config: ClusterConfig
  /** vshard's `discovery_mode`. Default: what the configuration says, else `on`. */
  readonly discoveryMode?: DiscoveryMode
  /** Default of `timeout`, in milliseconds. Default 10,000. */
  readonly callTimeoutMs?: number
  /** How values of answers appear in JavaScript. */
  readonly decode?: DecodeOptions
  readonly environment?: Partial<Environment>
}

export interface RouterCallOptions {
  /** Milliseconds for the whole call, everything included. `Infinity`: none. */
  readonly timeout?: number
  readonly signal?: AbortSignal
}

export interface MapOptions extends RouterCallOptions {
  /** Milliseconds of `timeout` kept for the map itself: references not granted before end the call. Default 0. */
  readonly mapTimeout?: number
  /** Only the replicasets that have these buckets. */
  readonly bucketIds?: Iterable<number>
  /** The same, with an argument for each bucket: every replicaset gets a map of its own buckets' arguments as its last argument. */
  readonly bucketArgs?: ReadonlyMap<number, unknown>
}

export interface RouterInfo {
  readonly bucketCount: number
  /** Buckets whose replicaset is known. */
  readonly known: number
  readonly replicasets: readonly {
    readonly id: string
    /** Id of the master, as far as it is known. */
    readonly master: string | undefined
    /** Buckets known to be there. */
    readonly buckets: number
    readonly discovery: SetDiscovery | undefined
  }[]
  readonly routes: RouteStats
  readonly lookups: number
  readonly retries: number
  readonly hops: number
}

/** A vshard router. Every call names a bucket; the router knows or finds out where it is. */
export interface Router {
  readonly config: CheckedClusterConfig
  /** The bucket of a sharding key: `bucketIdMpcrc32`. */
  bucketId(key: ShardingKey): number
  bucketIdMpcrc32(key: ShardingKey): number
  bucketIdStrcrc32(key: ShardingKey, options?: Strcrc32Options): number
  /** Calls a function on the master of the bucket. @returns the values it returned, at most three */
  callrw<T extends unknown[] = unknown[]>(
    bucketId: number,
    name: string,
    args?: readonly unknown[],
    options?: RouterCallOptions,
  ): Promise<T>
  /** Reads where it is best to read, the master included. */
  callro<T extends unknown[] = unknown[]>(
    bucketId: number,
    name: string,
    args?: readonly unknown[],
    options?: RouterCallOptions,
  ): Promise<T>
  /** Reads in turn from all instances. */
  callbro<T extends unknown[] = unknown[]>(
    bucketId: number,
    name: string,
    args?: readonly unknown[],
    options?: RouterCallOptions,
  ): Promise<T>
  /** Reads from a replica if there is one. */
  callre<T extends unknown[] = unknown[]>(
    bucketId: number,
    name: string,
    args?: readonly unknown[],
    options?: RouterCallOptions,
  ): Promise<T>
  /** Reads in turn from the replicas. */
  callbre<T extends unknown[] = unknown[]>(
    bucketId: number,
    name: string,
    args?: readonly unknown[],
    options?: RouterCallOptions,
  ): Promise<T>
  /**
   * Runs a function on all masters, every bucket counted exactly once. @returns what each returned, by replicaset id
   * @throws MapReduceError naming the stage and the replicaset; after a failure before the map nothing was executed
   */
  mapCallrw<T extends unknown[] = unknown[]>(
    name: string,
    args?: readonly unknown[],
    options?: MapOptions,
  ): Promise<Map<string, T>>
  /** The replicaset that has the bucket. @throws NoRouteError */
  route(bucketId: number, options?: RouterCallOptions): Promise<ReplicasetHandle>
  /** All replicasets by id. */
  routeAll(): ReadonlyMap<string, ReplicasetHandle>
  /** Resolves when every bucket's replicaset is known. */
  ready(options?: RouterCallOptions): Promise<void>
  /** The known replicaset of a bucket, without asking anybody. */
  locate(bucketId: number): string | undefined
  /** Takes note of a bucket's move that somebody else noticed. */
  report(fact: { bucketId: number; from: string; destination: string | undefined }): void
  info(): RouterInfo
  /** Ends it: calls that wait are refused, those sent are waited for as long as `timeout` says. */
  close(options?: { timeout?: number }): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

/** Returns at once; nobody needs to be reachable yet. @throws ConfigError */
export function createRouter(options: RouterOptions): Router {
  return new VshardRouter(options)
}

const DEFAULT_TIMEOUT_MS = 10_000
const READY_POLL_MS = 5
class VshardRouter implements Router, CallOwner, MapOwner {
  readonly config: CheckedClusterConfig
  readonly clock: Environment['clock']
  readonly random: () => number
  readonly topology: Topology
  readonly routes: RouteWorker
  readonly lookup: BucketLookup
  readonly calls = { retries: 0, hops: 0 }
  readonly #options: RouterOptions
  readonly #discovery: Discovery
  readonly #refIds: RefIds
  #isClosed = false
  #readyWaiters = new Set<() => void>()

  constructor(options: RouterOptions) {
    validateOptions(options)
    const environment = resolveEnvironment(options.environment)
    this.config = validateClusterConfig(options.config)
    this.clock = environment.clock
    this.random = environment.random
    this.#options = options
    this.routes = new RouteWorker(this.config.bucketCount, this.clock, () => this.#routesChanged())
    this.topology = new Topology(this.config, environment)
    this.lookup = new BucketLookup(this.topology, this.routes, this.clock)
    this.#discovery = new Discovery(
      this.topology,
      this.routes,
      this.clock,
      options.discoveryMode ?? this.config.discoveryMode,
    )
    this.#refIds = new RefIds(this.random)
    this.#discovery.start()
  }

  // ---- keys ---------------------------------------------------------------------------------------------------------

  bucketId(key: ShardingKey): number {
    return bucketIdMpcrc32(key, this.config.bucketCount)
  }

  bucketIdMpcrc32(key: ShardingKey): number {
    return bucketIdMpcrc32(key, this.config.bucketCount)
  }

  bucketIdStrcrc32(key: ShardingKey, options?: Strcrc32Options): number {
    return bucketIdStrcrc32(key, this.config.bucketCount, options)
  }

  // ---- calls --------------------------------------------------------------------------------------------------------

  callrw<T extends unknown[]>(
    bucketId: number,
    name: string,
    args?: readonly unknown[],
    options?: RouterCallOptions,
  ): Promise<T> {
    return this.#call<T>('rw', bucketId, name, args, options)
  }

  callro<T extends unknown[]>(
    bucketId: number,
    name: string,
    args?: readonly unknown[],
    options?: RouterCallOptions,
  ): Promise<T> {
    return this.#call<T>('ro', bucketId, name, args, options)
  }

  callbro<T extends unknown[]>(
    bucketId: number,
    name: string,
    args?: readonly unknown[],
    options?: RouterCallOptions,
  ): Promise<T> {
    return this.#call<T>('bro', bucketId, name, args, options)
  }

  callre<T extends unknown[]>(
    bucketId: number,
    name: string,
    args?: readonly unknown[],
    options?: RouterCallOptions,
  ): Promise<T> {
    return this.#call<T>('re', bucketId, name, args, options)
  }

  callbre<T extends unknown[]>(
    bucketId: number,
    name: string,
    args?: readonly unknown[],
    options?: RouterCallOptions,
  ): Promise<T> {
    return this.#call<T>('bre', bucketId, name, args, options)
  }

  #call<T extends unknown[]>(
    mode: CallMode,
    bucketId: number,
    name: string,
    args: readonly unknown[] = [],
    options: RouterCallOptions = {},
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#assertBucket(bucketId)
      this.#assertOpen()
      assertCall(name, options)
      const timeoutMs = this.#timeoutOf(options)
      const call = new BucketCall(
        this,
        bucketId,
        name,
        args,
        {
          mode,
          timeoutMs,
          deadline: this.clock.now() + timeoutMs,
          signal: options.signal,
          decode: this.#options.decode,
        },
        resolve as (values: unknown[]) => void,
        reject,
      )
      call.start()
    })
  }

  async mapCallrw<T extends unknown[]>(
    name: string,
    args: readonly unknown[] = [],
    options: MapOptions = {},
  ): Promise<Map<string, T>> {
    this.#assertOpen()
    assertCall(name, options)
    const timeoutMs = this.#timeoutOf(options)
    const { mapTimeout = 0, bucketIds, bucketArgs } = options
    if (bucketIds !== undefined && bucketArgs !== undefined)
      throw new InvalidArgumentError('Give bucketIds or bucketArgs, not both: the arguments name the buckets')
    if (!(mapTimeout >= 0) || mapTimeout > timeoutMs)
      throw new InvalidArgumentError(
        `mapTimeout is ${mapTimeout}, expected 0 to ${timeoutMs}, the timeout of the whole call`,
      )
    const buckets =
      bucketArgs === undefined ? (bucketIds === undefined ? undefined : new Set(bucketIds)) : new Set(bucketArgs.keys())
    for (const bucketId of buckets ?? []) this.#assertBucket(bucketId)
    const results = await mapReduce(this, {
      functionName: name,
      args,
      deadline: this.clock.now() + timeoutMs,
      mapTimeoutMs: mapTimeout,
      signal: options.signal,
      buckets,
      bucketArgs,
    })
    return results as Map<string, T>
  }

  nextRefId(): number {
    return this.#refIds.next()
  }

  // ---- routes -------------------------------------------------------------------------------------------------------

  async route(bucketId: number, options: RouterCallOptions = {}): Promise<ReplicasetHandle> {
    this.#assertBucket(bucketId)
    this.#assertOpen()
    const known = this.topology.at(this.routes.table.lookup(bucketId))
    const set = known ?? (await this.lookup.find(bucketId, this.clock.now() + this.#timeoutOf(options)))
    return set.replicaset
  }

  routeAll(): ReadonlyMap<string, ReplicasetHandle> {
    return new Map(this.topology.sets.map((set) => [set.id, set.replicaset]))
  }

  async ready(options: RouterCallOptions = {}): Promise<void> {
    this.#assertOpen()
    const deadline = this.clock.now() + this.#timeoutOf(options)
    while (this.routes.table.known < this.config.bucketCount) {
      options.signal?.throwIfAborted()
      this.#assertOpen()
      const left = deadline - this.clock.now()
      if (left <= 0)
        throw new InvalidArgumentError(
          `${this.config.bucketCount - this.routes.table.known} of ${this.config.bucketCount} buckets are not known yet${this.#whyUnknown()}`,
        )
      await this.#nextChange(left)
    }
  }

  locate(bucketId: number): string | undefined {
    if (!this.#isBucket(bucketId)) return undefined
    return this.topology.at(this.routes.table.lookup(bucketId))?.id
  }

  report(fact: { bucketId: number; from: string; destination: string | undefined }): void {
    const from = this.topology.find(fact.from)
    if (from === undefined) return
    this.routes.report({
      kind: 'moved',
      bucketId: fact.bucketId,
      from: from.index,
      owner: this.topology.find(fact.destination)?.index ?? UNKNOWN,
      sent: this.routes.tick(),
    })
  }

  info(): RouterInfo {
    const { table } = this.routes
    return {
      bucketCount: table.bucketCount,
      known: table.known,
      replicasets: this.topology.sets.map((set) => ({
        id: set.id,
        master: set.replicaset.master()?.id,
        buckets: table.countOf(set.index),
        discovery: this.#discovery.state.get(set.id),
      })),
      routes: this.routes.stats,
      lookups: this.lookup.rounds,
      retries: this.calls.retries,
      hops: this.calls.hops,
    }
  }

  async close(options: { timeout?: number } = {}): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#discovery.stop()
    this.#routesChanged()
    await Promise.all(this.topology.sets.map((set) => set.replicaset.close(options)))
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  // ---- inside -------------------------------------------------------------------------------------------------------

  #routesChanged(): void {
    const waiters = [...this.#readyWaiters]
    this.#readyWaiters.clear()
    for (const wake of waiters) wake()
  }

  #nextChange(timeoutMs: number): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        cancel()
        this.#readyWaiters.delete(wake)
        resolve()
      }
      const cancel = this.clock.schedule(Math.max(timeoutMs, READY_POLL_MS), wake)
      this.#readyWaiters.add(wake)
    })
  }

  #whyUnknown(): string {
    const reasons = [...this.#discovery.state].flatMap(([id, { lastError }]) =>
      lastError === undefined ? [] : [`${id}: ${lastError}`],
    )
    return reasons.length === 0 ? '' : ` (${reasons.join('; ')})`
  }

  #isBucket(bucketId: number): boolean {
    return Number.isInteger(bucketId) && bucketId >= 1 && bucketId <= this.config.bucketCount
  }

  #assertBucket(bucketId: number): void {
    if (!this.#isBucket(bucketId))
      throw new InvalidArgumentError(`Bucket id ${String(bucketId)} is not an integer in 1..${this.config.bucketCount}`)
  }

  #assertOpen(): void {
    if (this.#isClosed) throw new RouterClosedError()
  }

  #timeoutOf(options: RouterCallOptions): number {
    const timeout = options.timeout ?? this.#options.callTimeoutMs ?? DEFAULT_TIMEOUT_MS
    if (typeof timeout !== 'number' || !(timeout > 0))
      throw new InvalidArgumentError(`timeout is ${String(timeout)}, expected milliseconds above 0, or Infinity`)
    return timeout
  }
}

function assertCall(name: unknown, { signal }: RouterCallOptions): void {
  if (typeof name !== 'string' || name === '')
    throw new InvalidArgumentError(`The name of the function is ${describe(name)}, expected a text`)
  if (signal !== undefined && !(signal instanceof AbortSignal))
    throw new InvalidArgumentError(`signal is ${describe(signal)}, expected an AbortSignal`)
}

function describe(value: unknown): string {
  return typeof value === 'string' ? `the text '${value}'` : `a value of type ${typeof value}`
}

const OPTION_NAMES: ReadonlySet<string> = new Set<keyof RouterOptions>([
  'config',
  'discoveryMode',
  'callTimeoutMs',
  'decode',
  'environment',
])
const DISCOVERY_MODES: readonly unknown[] = ['on', 'once', 'off', undefined]

/** @throws ConfigError with every problem; those of `config` come from the check of the configuration itself */
function validateOptions(options: RouterOptions): void {
  if (typeof options !== 'object' || options === null) {
    throw new ConfigError([{ path: '', message: 'expected an object with config' }], { subject: 'router options' })
  }
  const { callTimeoutMs, discoveryMode } = options
  const problems = Object.keys(options)
    .filter((name) => !OPTION_NAMES.has(name))
    .map((path) => ({ path, message: `is no option; known are ${[...OPTION_NAMES].join(', ')}` }))
  if (callTimeoutMs !== undefined && !(typeof callTimeoutMs === 'number' && callTimeoutMs > 0)) {
    problems.push({
      path: 'callTimeoutMs',
      message: `is ${String(callTimeoutMs)}, expected milliseconds above 0, or Infinity`,
    })
  }
  if (!DISCOVERY_MODES.includes(discoveryMode)) {
    problems.push({ path: 'discoveryMode', message: `is '${String(discoveryMode)}', expected on, once or off` })
  }
  if (problems.length > 0) throw new ConfigError(problems, { subject: 'router options' })
}
