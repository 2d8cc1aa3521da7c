import { RequestTimeoutError, resolveEnvironment } from '@orbweaver/connection'
import type { Environment } from '@orbweaver/connection'
import { InvalidArgumentError, shownValue } from '@orbweaver/iproto'
import type { DecodeOptions } from '@orbweaver/iproto'
import type { CallMode, ReplicasetHandle } from '@orbweaver/replicaset'
import { bucketIdMpcrc32, bucketIdStrcrc32, validateClusterConfig, VshardError } from '@orbweaver/vshard'
import type { CheckedClusterConfig, ClusterConfig, ShardingKey, Strcrc32Options } from '@orbweaver/vshard'
import { bootstrapCluster, syncCluster } from './bootstrap.js'
import type { AllSetsRun } from './bootstrap.js'
import { modeOf } from './call-kind.js'
import type { CallKind } from './call-kind.js'
import { BucketCall } from './call.js'
import type { CallCounts, CallOwner } from './call.js'
import { checkCallOptions, checkWait, checkWaitOptions, NO_OPTIONS } from './call-options.js'
import type { RouterCallOptions, RouterWaitOptions } from './call-options.js'
import type { MapTrace } from './diagnostics.js'
import { Discovery } from './discovery.js'
import type { DiscoveryMode } from './discovery.js'
import { RouterClosedError } from './errors.js'
import type { RouterEvents } from './events.js'
import { BucketLookup } from './lookup.js'
import { checkMany, runMany } from './many-calls.js'
import type { ManyCall, ManyOutcome } from './many-calls.js'
import { holdBuckets, holdDeadline } from './map/hold-buckets.js'
import type { BucketHold, HoldOptions } from './map/hold-buckets.js'
import { MapArguments } from './map/map-arguments.js'
import { startMap } from './map/map-call.js'
import type { MapCall } from './map/map-call.js'
import { bucketsOf, checkMapOptions, mapTimeoutOf, NO_MAP_OPTIONS } from './map/map-options.js'
import type { MapOptions } from './map/map-options.js'
import type { MapOwner, RefRun } from './map/map-owner.js'
import { MapReduce } from './map/map-reduce.js'
import type { MapRun } from './map/map-reduce.js'
import { MapOnReplicas } from './map/map-replicas.js'
import { MasterWatch } from './map/master-watch.js'
import { TimeSweep } from './map/time-sweep.js'
import { selectPages } from './pages/select-pages.js'
import type { RowPage, SelectPagesOptions } from './pages/select-pages.js'
import { RefIds } from './ref-ids.js'
import { UNKNOWN } from './route-table.js'
import { RouteWorker } from './route-worker.js'
import type { BucketPlace, Router, RouterStats } from './router.js'
import { availabilityOf, describeRouter } from './router-info.js'
import type { RouterInfo } from './router-info.js'
import { validateOptions } from './router-options.js'
import type { RouterOptions } from './router-options.js'
import { RouterVoice } from './router-voice.js'
import { Topology } from './topology.js'
import type { RoutedSet } from './topology.js'
import { TopologyKeeper } from './topology-keeper.js'
import { WrongRoutes } from './wrong-routes.js'

const DEFAULT_TIMEOUT_MS = 10_000
const DEFAULT_TOPOLOGY_INTERVAL_MS = 60_000
const READY_POLL_MS = 5

/** The parts of a router put together; each of them does its own. */
export class VshardRouter implements Router, CallOwner, MapOwner {
  readonly name: string
  readonly clock: Environment['clock']
  readonly random: () => number
  readonly topology: Topology
  readonly routes: RouteWorker
  readonly lookup: BucketLookup
  readonly counts: CallCounts = { calls: 0, retries: 0, hops: 0 }
  readonly masterWatch: MasterWatch
  readonly mapTimes: TimeSweep
  readonly #options: RouterOptions
  readonly #discovery: Discovery
  readonly #refIds: RefIds
  readonly #voice: RouterVoice
  readonly #keeper: TopologyKeeper
  readonly #wrongRoutes = new WrongRoutes()
  readonly #readyWaiters = new Set<() => void>()
  #isEnabled = true
  #closing: Promise<void> | undefined

  constructor(options: RouterOptions) {
    validateOptions(options)
    const environment = resolveEnvironment(options.environment)
    const config = validateClusterConfig(options.config)
    this.#options = options
    this.name = options.name ?? 'router'
    this.clock = environment.clock
    this.random = environment.random
    this.#voice = new RouterVoice(this.name)
    this.topology = new Topology(config, environment, options.replicasets)
    this.routes = new RouteWorker(config.bucketCount, this.clock, {
      changed: (changes) => this.#routesChanged(changes),
      isSet: (index) => this.topology.at(index) !== undefined,
      unknownOwner: (destination) => this.unknownOwner(destination),
      flapping: (bucketId, owners) => this.#flapping(bucketId, owners),
      badBucket: () => undefined,
    })
    this.lookup = new BucketLookup(this.topology, this.routes, this.clock, this.random, (destination) =>
      this.unknownOwner(destination),
    )
    this.#discovery = new Discovery(
      {
        topology: this.topology,
        routes: this.routes,
        clock: this.clock,
        random: this.random,
        miscounted: (set, bucketId) => this.#miscounted(set, bucketId),
      },
      options.discoveryMode ?? config.discoveryMode,
    )
    this.masterWatch = new MasterWatch(this.topology)
    this.mapTimes = new TimeSweep(this.clock)
    this.#keeper = new TopologyKeeper(config, {
      topology: this.topology,
      routes: this.routes,
      lookup: this.lookup,
      discovery: this.#discovery,
      voice: this.#voice,
      followsDiscoveryMode: options.discoveryMode === undefined,
    })
    this.#refIds = new RefIds(this.random)
    this.#discovery.start()
    if (options.topology !== undefined)
      this.#keeper.follow(options.topology, {
        clock: this.clock,
        random: this.random,
        intervalMs: options.topologyIntervalMs ?? DEFAULT_TOPOLOGY_INTERVAL_MS,
      })
  }

  get config(): CheckedClusterConfig {
    return this.#keeper.config
  }

  // ---- keys ---------------------------------------------------------------------------------------------------------

  bucketId(key: ShardingKey): number {
    return bucketIdMpcrc32(key, this.routes.table.bucketCount)
  }

  bucketIdMpcrc32(key: ShardingKey): number {
    return bucketIdMpcrc32(key, this.routes.table.bucketCount)
  }

  bucketIdStrcrc32(key: ShardingKey, options?: Strcrc32Options): number {
    return bucketIdStrcrc32(key, this.routes.table.bucketCount, options)
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

  async call<T extends unknown[]>(
    bucketId: number,
    kind: CallKind,
    name: string,
    args?: readonly unknown[],
    options?: RouterCallOptions,
  ): Promise<T> {
    const mode = modeOf(kind)
    if (mode === undefined)
      throw new InvalidArgumentError(`The mode of a call is ${shownValue(kind)}, expected read or write`)
    return this.#call<T>(mode, bucketId, name, args, options)
  }

  async callManyRw<T extends unknown[]>(
    calls: readonly ManyCall[],
    options: RouterCallOptions = NO_OPTIONS,
  ): Promise<ManyOutcome<T>[]> {
    this.#assertOpen()
    checkCallOptions('rw', options)
    checkMany(calls)
    for (const { bucketId, name } of calls) {
      this.#assertBucket(bucketId)
      assertName(name)
    }
    const deadline = this.clock.now() + this.#timeoutOf(options)
    const { table } = this.routes
    const outcomes = await runMany(
      calls,
      ({ bucketId }) => table.lookup(bucketId),
      ({ bucketId, name, args = NO_ARGS }, resolve, reject) =>
        new BucketCall(this, 'rw', bucketId, name, args, options, deadline - this.clock.now(), resolve, reject).start(),
    )
    return outcomes as ManyOutcome<T>[]
  }

  #call<T extends unknown[]>(
    mode: CallMode,
    bucketId: number,
    name: string,
    args: readonly unknown[] = NO_ARGS,
    options: RouterCallOptions = NO_OPTIONS,
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#assertBucket(bucketId)
      this.#assertOpen()
      assertName(name)
      checkCallOptions(mode, options)
      new BucketCall(
        this,
        mode,
        bucketId,
        name,
        args,
        options,
        this.#timeoutOf(options),
        resolve as (values: unknown[]) => void,
        reject,
      ).start()
    })
  }

  wrongRoute(): void {
    if (this.#wrongRoutes.note(this.counts.calls, this.clock.now())) this.#discovery.hurry()
  }

  mapCallrw<T extends unknown[]>(name: string, args?: readonly unknown[], options?: MapOptions): MapCall<T> {
    return this.#map('mapCallrw', name, args, options)
  }

  mapCallro<T extends unknown[]>(name: string, args?: readonly unknown[], options?: MapOptions): MapCall<T> {
    return this.#map('mapCallro', name, args, options)
  }

  async holdBuckets(options: HoldOptions = {}): Promise<BucketHold> {
    this.#assertOpen()
    const { expire = Infinity } = options
    if (typeof expire !== 'number' || !(expire > 0))
      throw new InvalidArgumentError(`expire is ${String(expire)}, expected milliseconds above 0, or Infinity`)
    const run = this.#refRun(options)
    return holdBuckets(this, { ...run, deadline: holdDeadline(run.refDeadline) }, expire)
  }

  selectPages<T extends readonly unknown[]>(
    space: string | number,
    options: SelectPagesOptions = {},
  ): AsyncGenerator<RowPage<T>, void> {
    return selectPages<T>(this, space, options, () => {
      this.#assertOpen()
      return this.#refRun(options)
    })
  }

  #map<T extends unknown[]>(
    kind: MapTrace['kind'],
    name: string,
    args: readonly unknown[] = NO_ARGS,
    options: MapOptions = NO_MAP_OPTIONS,
  ): MapCall<T> {
    return startMap<T>(this.name, kind, name, (arrivals, resolve, reject) => {
      this.#assertOpen()
      assertName(name)
      checkMapOptions(options)
      checkWait(options)
      const buckets = bucketsOf(options)
      if (buckets !== undefined) for (const bucketId of buckets) this.#assertBucket(bucketId)
      const timeoutMs = this.#timeoutOf(options)
      const started = this.clock.now()
      const run: MapRun = {
        started,
        refDeadline: started + timeoutMs - mapTimeoutOf(options, timeoutMs),
        deadline: started + timeoutMs,
        signal: options.signal,
        functionName: name,
        args: new MapArguments(args, options.bucketArgs),
        isRaw: options.raw === true,
        buckets,
      }
      const Kind = kind === 'mapCallrw' ? MapReduce : MapOnReplicas
      return new Kind(this, run, arrivals, resolve, reject).start()
    })
  }

  #refRun(options: RouterWaitOptions): RefRun {
    checkWait(options)
    const started = this.clock.now()
    const deadline = started + this.#timeoutOf(options)
    return { started, refDeadline: deadline, deadline, signal: options.signal }
  }

  get decode(): DecodeOptions | undefined {
    return this.#options.decode
  }

  get shardIndex(): string | number {
    return this.config.shardIndex
  }

  get isClosed(): boolean {
    return this.#closing !== undefined
  }

  nextRefId(): number {
    return this.#refIds.next()
  }

  // ---- routes -------------------------------------------------------------------------------------------------------

  async route(bucketId: number, options: RouterWaitOptions = NO_OPTIONS): Promise<ReplicasetHandle> {
    this.#assertBucket(bucketId)
    this.#assertOpen()
    checkWaitOptions(options)
    const known = this.topology.at(this.routes.table.lookup(bucketId))
    const set = known ?? (await this.lookup.find(bucketId, this.clock.now() + this.#timeoutOf(options)))
    return set.replicaset
  }

  routeAll(): ReadonlyMap<string, ReplicasetHandle> {
    return new Map(this.topology.sets.map((set) => [set.id, set.replicaset]))
  }

  async ready(options: RouterWaitOptions = NO_OPTIONS): Promise<void> {
    this.#assertOpen()
    checkWaitOptions(options)
    const deadline = this.clock.now() + this.#timeoutOf(options)
    const { bucketCount } = this.routes.table
    while (this.routes.table.known < bucketCount) {
      options.signal?.throwIfAborted()
      this.#assertOpen()
      const left = deadline - this.clock.now()
      if (left <= 0)
        throw new RequestTimeoutError(
          `${bucketCount - this.routes.table.known} of ${bucketCount} buckets are not known yet${this.#whyUnknown()}`,
          { executed: 'no' },
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
      destination: fact.destination,
      sent: this.routes.tick(),
    })
  }

  setDiscoveryMode(mode: DiscoveryMode): void {
    this.#assertOpen()
    validateOptions({ ...this.#options, discoveryMode: mode })
    this.#discovery.setMode(mode)
  }

  forgetRoutes(): void {
    this.routes.forget()
    this.#discovery.hurry()
  }

  // ---- the cluster as a whole ---------------------------------------------------------------------------------------

  bucketsInfo(options: { readonly offset?: number; readonly limit?: number } = {}): BucketPlace[] {
    const { offset = 0, limit = Infinity } = options
    const { table } = this.routes
    const availability = new Map(this.topology.sets.map((set) => [set.index, availabilityOf(set.replicaset.info())]))
    const places: BucketPlace[] = []
    const last = Math.min(table.bucketCount, offset + limit)
    for (let bucketId = Math.max(0, offset) + 1; bucketId <= last; bucketId++) {
      const index = table.lookup(bucketId)
      places.push({
        bucketId,
        replicaset: this.topology.at(index)?.id,
        availability: availability.get(index) ?? 'unknown',
      })
    }
    return places
  }

  async bootstrap(options: RouterWaitOptions & { readonly ifNotBootstrapped?: boolean } = {}): Promise<boolean> {
    this.#assertOpen()
    const { ifNotBootstrapped = false, ...wait } = options
    checkWaitOptions(wait)
    const run = this.#allSets(wait, this.#timeoutOf(wait))
    const isMade = await bootstrapCluster(run, this.routes.table.bucketCount, ifNotBootstrapped)
    this.#discovery.hurry()
    return isMade
  }

  async sync(options: RouterWaitOptions = NO_OPTIONS): Promise<void> {
    this.#assertOpen()
    checkWaitOptions(options)
    await syncCluster(this.#allSets(options, options.timeout ?? this.config.syncTimeoutMs))
  }

  #allSets({ signal }: RouterWaitOptions, timeoutMs: number): AllSetsRun {
    return { sets: this.topology.sets, timeoutMs, deadline: this.clock.now() + timeoutMs, signal }
  }

  // ---- configuration ------------------------------------------------------------------------------------------------

  reconfigure(config: ClusterConfig): void {
    if (this.isClosed) throw new RouterClosedError()
    this.#keeper.apply(config)
  }

  unknownOwner(destination: string): void {
    this.#keeper.unknownOwner(destination)
  }

  #flapping(bucketId: number, owners: readonly number[]): void {
    const ids = owners.map((index) => this.topology.at(index)?.id ?? 'nobody')
    const message = `Bucket ${bucketId} changes its owner all the time, between ${ids.join(' and ')}: do both have it?`
    this.#voice.alert({ name: 'FLAPPING_BUCKET', message })
    this.#discovery.hurry()
  }

  #miscounted(set: RoutedSet, bucketId: number | undefined): void {
    const subject = `count ${set.index}`
    if (bucketId === undefined) {
      this.#voice.alerts.clear(subject)
      return
    }
    this.#voice.alerts.raise(subject, {
      name: 'INVALID_CFG',
      message: `Replicaset ${set.id} lists bucket ${bucketId}, and this cluster has ${this.routes.table.bucketCount}: its pages are not used`,
      replicaset: set.id,
    })
  }

  disable(): void {
    this.#isEnabled = false
  }

  enable(): void {
    this.#isEnabled = true
  }

  // ---- what it tells ------------------------------------------------------------------------------------------------

  info(): RouterInfo {
    const { table } = this.routes
    return describeRouter({
      name: this.name,
      isEnabled: this.#isEnabled && !this.isClosed,
      identification: this.config.identification,
      bucketCount: table.bucketCount,
      known: table.known,
      topologyVersion: this.topology.version,
      sets: this.topology.sets.map((set) => ({
        definition: set.definition,
        info: set.replicaset.info(),
        buckets: table.countOf(set.index),
        discovery: this.#discovery.stateOf(set),
      })),
      alerts: this.#voice.alerts.all,
    })
  }

  stats(): RouterStats {
    const { pages, rounds, size } = this.lookup
    return {
      ...this.counts,
      lookups: rounds,
      lookupPages: pages,
      searching: size,
      generation: this.routes.table.generation,
      routes: this.routes.stats,
    }
  }

  on<E extends keyof RouterEvents>(event: E, listener: RouterEvents[E]): this {
    this.#voice.on(event, listener)
    return this
  }

  once<E extends keyof RouterEvents>(event: E, listener: RouterEvents[E]): this {
    this.#voice.once(event, listener)
    return this
  }

  off<E extends keyof RouterEvents>(event: E, listener: RouterEvents[E]): this {
    this.#voice.off(event, listener)
    return this
  }

  close(options: { readonly timeout?: number } = {}): Promise<void> {
    this.#closing ??= this.#close(options)
    return this.#closing
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  // ---- inside -------------------------------------------------------------------------------------------------------

  async #close(options: { readonly timeout?: number }): Promise<void> {
    this.#keeper.stop()
    this.#discovery.stop()
    this.#wakeReady()
    this.lookup.close()
    this.mapTimes.close()
    await Promise.all([this.#keeper.drained(), ...this.topology.sets.map((set) => set.replicaset.close(options))])
    this.#voice.closed()
  }

  #routesChanged(changes: number): void {
    this.#wakeReady()
    const { generation, known } = this.routes.table
    this.#voice.routes({ generation, changes, known })
  }

  #wakeReady(): void {
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
    const reasons = this.topology.sets.flatMap((set) => {
      const lastError = this.#discovery.stateOf(set)?.lastError
      return lastError === undefined ? [] : [`${set.id}: ${lastError}`]
    })
    return reasons.length === 0 ? '' : ` (${reasons.join('; ')})`
  }

  #isBucket(bucketId: number): boolean {
    return Number.isInteger(bucketId) && bucketId >= 1 && bucketId <= this.routes.table.bucketCount
  }

  #assertBucket(bucketId: number): void {
    if (!this.#isBucket(bucketId))
      throw new InvalidArgumentError(
        `Bucket id ${String(bucketId)} is not an integer in 1..${this.routes.table.bucketCount}`,
      )
  }

  #assertOpen(): void {
    if (this.#closing !== undefined) throw new RouterClosedError()
    if (!this.#isEnabled) throw VshardError.of('ROUTER_IS_DISABLED', { reason: 'router is disabled explicitly' })
  }

  #timeoutOf({ timeout }: RouterWaitOptions): number {
    return timeout ?? this.#options.callTimeoutMs ?? DEFAULT_TIMEOUT_MS
  }
}

function assertName(name: unknown): void {
  if (typeof name !== 'string' || name === '')
    throw new InvalidArgumentError(`The name of the function is ${shownValue(name)}, expected a text`)
}

const NO_ARGS: readonly unknown[] = []
