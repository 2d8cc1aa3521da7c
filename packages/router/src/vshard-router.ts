import { RequestTimeoutError, resolveEnvironment } from '@orbweaver/connection'
import type { Environment } from '@orbweaver/connection'
import { ConfigError, InvalidArgumentError, shownValue } from '@orbweaver/iproto'
import type { DecodeOptions } from '@orbweaver/iproto'
import type { CallMode, ReplicasetHandle } from '@orbweaver/replicaset'
import { bucketIdMpcrc32, bucketIdStrcrc32, validateClusterConfig, VshardError } from '@orbweaver/vshard'
import type { CheckedClusterConfig, ClusterConfig, ShardingKey, Strcrc32Options } from '@orbweaver/vshard'
import { EventEmitter } from 'eventemitter3'
import { LastingAlerts } from './alerts.js'
import { bootstrapCluster, syncCluster } from './bootstrap.js'
import type { AllSetsRun } from './bootstrap.js'
import { modeOf } from './call-kind.js'
import type { CallKind } from './call-kind.js'
import { BucketCall } from './call.js'
import type { CallCounts, CallOwner } from './call.js'
import { checkCallOptions, checkWait, checkWaitOptions, NO_OPTIONS } from './call-options.js'
import type { RouterCallOptions, RouterWaitOptions } from './call-options.js'
import { log, publishRoutes, traceMap } from './diagnostics.js'
import type { MapTrace } from './diagnostics.js'
import { Discovery } from './discovery.js'
import type { DiscoveryMode } from './discovery.js'
import { RouterClosedError } from './errors.js'
import type { RoutesChange, RouterEvents } from './events.js'
import { BucketLookup } from './lookup.js'
import { checkMany, runMany } from './many-calls.js'
import type { ManyCall, ManyOutcome } from './many-calls.js'
import { holdBuckets, holdDeadline } from './map/hold-buckets.js'
import type { BucketHold, HoldOptions } from './map/hold-buckets.js'
import { startMap } from './map/map-call.js'
import type { MapCall, MapResult } from './map/map-call.js'
import { bucketsOf, checkMapOptions, mapTimeoutOf } from './map/map-options.js'
import type { MapOptions } from './map/map-options.js'
import type { MapOwner, RefRun } from './map/map-owner.js'
import { mapReplicas } from './map/map-replicas.js'
import { mapReduce } from './map/map-run.js'
import type { MapRun } from './map/map-run.js'
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
import { Topology } from './topology.js'
import type { RoutedSet, TopologyChange } from './topology.js'
import { TopologyReader } from './topology-source.js'
import { WrongRoutes } from './wrong-routes.js'

const DEFAULT_TIMEOUT_MS = 10_000
const DEFAULT_TOPOLOGY_INTERVAL_MS = 60_000
const READY_POLL_MS = 5
/** Calls in flight to a replicaset that was removed may take so long. */
const DRAIN_TIMEOUT_MS = 10_000

/** The parts of a router put together; each of them does its own. */
export class VshardRouter implements Router, CallOwner, MapOwner {
  readonly name: string
  readonly clock: Environment['clock']
  readonly random: () => number
  readonly topology: Topology
  readonly routes: RouteWorker
  readonly lookup: BucketLookup
  readonly counts: CallCounts = { calls: 0, retries: 0, hops: 0 }
  readonly #options: RouterOptions
  readonly #discovery: Discovery
  readonly #reader: TopologyReader | undefined
  readonly #refIds: RefIds
  readonly #emitter = new EventEmitter<RouterEvents>()
  readonly #alerts = new LastingAlerts((alert) => {
    log('warn', this.name, 'alert', () => ({ ...alert }))
    this.#tell(() => this.#emitter.emit('alert', alert))
  })
  readonly #wrongRoutes = new WrongRoutes()
  /** Replicasets that were removed and still answer calls. */
  readonly #draining = new Map<ReplicasetHandle, Promise<void>>()
  readonly #readyWaiters = new Set<() => void>()
  #config: CheckedClusterConfig
  #isEnabled = true
  #closing: Promise<void> | undefined

  constructor(options: RouterOptions) {
    validateOptions(options)
    const environment = resolveEnvironment(options.environment)
    this.#config = validateClusterConfig(options.config)
    this.#options = options
    this.name = options.name ?? 'router'
    this.clock = environment.clock
    this.random = environment.random
    this.topology = new Topology(this.#config, environment, options.replicasets)
    this.routes = new RouteWorker(this.#config.bucketCount, this.clock, {
      changed: (changes) => this.#routesChanged(changes),
      isSet: (index) => this.topology.at(index) !== undefined,
      unknownOwner: (destination) => this.#unknownOwner(destination),
      flapping: (bucketId, owners) => this.#flapping(bucketId, owners),
      badBucket: () => undefined,
    })
    this.lookup = new BucketLookup(this.topology, this.routes, this.clock, this.random)
    this.#discovery = new Discovery(
      {
        topology: this.topology,
        routes: this.routes,
        clock: this.clock,
        random: this.random,
        miscounted: (set, bucketId) => this.#miscounted(set, bucketId),
      },
      options.discoveryMode ?? this.#config.discoveryMode,
    )
    this.#refIds = new RefIds(this.random)
    this.#discovery.start()
    if (options.topology !== undefined) {
      this.#reader = new TopologyReader(options.topology, {
        clock: this.clock,
        random: this.random,
        intervalMs: options.topologyIntervalMs ?? DEFAULT_TOPOLOGY_INTERVAL_MS,
        apply: (config) => this.reconfigure(config),
        outcome: (error) => this.#topologyRead(error),
      })
      this.#reader.start()
    }
  }

  get config(): CheckedClusterConfig {
    return this.#config
  }

  // ---- keys ---------------------------------------------------------------------------------------------------------

  bucketId(key: ShardingKey): number {
    return bucketIdMpcrc32(key, this.#config.bucketCount)
  }

  bucketIdMpcrc32(key: ShardingKey): number {
    return bucketIdMpcrc32(key, this.#config.bucketCount)
  }

  bucketIdStrcrc32(key: ShardingKey, options?: Strcrc32Options): number {
    return bucketIdStrcrc32(key, this.#config.bucketCount, options)
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

  mapCallrw<T extends unknown[]>(name: string, args: readonly unknown[] = [], options: MapOptions = {}): MapCall<T> {
    return this.#map('mapCallrw', name, args, options)
  }

  mapCallro<T extends unknown[]>(name: string, args: readonly unknown[] = [], options: MapOptions = {}): MapCall<T> {
    return this.#map('mapCallro', name, args, options)
  }

  async holdBuckets(options: HoldOptions = {}): Promise<BucketHold> {
    this.#assertOpen()
    const { expire = Infinity } = options
    if (typeof expire !== 'number' || !(expire > 0))
      throw new InvalidArgumentError(`expire is ${String(expire)}, expected milliseconds above 0, or Infinity`)
    const run = this.#refRun(options, 0)
    return holdBuckets(this, { ...run, deadline: holdDeadline(run.refDeadline) }, expire)
  }

  selectPages<T extends readonly unknown[]>(
    space: string | number,
    options: SelectPagesOptions = {},
  ): AsyncGenerator<RowPage<T>, void> {
    return selectPages<T>(this, space, options, () => {
      this.#assertOpen()
      return this.#refRun(options, 0)
    })
  }

  #map<T extends unknown[]>(
    kind: MapTrace['kind'],
    name: string,
    args: readonly unknown[],
    options: MapOptions,
  ): MapCall<T> {
    return startMap<T>(async (arrived, left) => {
      this.#assertOpen()
      assertName(name)
      checkMapOptions(options)
      const buckets = bucketsOf(options)
      for (const bucketId of buckets ?? []) this.#assertBucket(bucketId)
      const run: MapRun = {
        ...this.#refRun(options, mapTimeoutOf(options, this.#timeoutOf(options))),
        signal: options.signal === undefined ? left : AbortSignal.any([options.signal, left]),
        functionName: name,
        args,
        isRaw: options.raw === true,
        buckets,
        bucketArgs: options.bucketArgs,
        arrived: arrived as MapRun['arrived'],
      }
      const reduce = kind === 'mapCallrw' ? mapReduce : mapReplicas
      return (await traceMap(this.name, kind, name, () => reduce(this, run))) as MapResult<T>
    })
  }

  #refRun(options: RouterWaitOptions, mapTimeoutMs: number): RefRun {
    checkWait(options)
    const started = this.clock.now()
    const deadline = started + this.#timeoutOf(options)
    return { started, refDeadline: deadline - mapTimeoutMs, deadline, signal: options.signal }
  }

  get decode(): DecodeOptions | undefined {
    return this.#options.decode
  }

  get shardIndex(): string | number {
    return this.#config.shardIndex
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
    const { bucketCount } = this.#config
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
    const isMade = await bootstrapCluster(run, this.#config.bucketCount, ifNotBootstrapped)
    this.#discovery.hurry()
    return isMade
  }

  async sync(options: RouterWaitOptions = NO_OPTIONS): Promise<void> {
    this.#assertOpen()
    checkWaitOptions(options)
    await syncCluster(this.#allSets(options, options.timeout ?? this.#config.syncTimeoutMs))
  }

  #allSets({ signal }: RouterWaitOptions, timeoutMs: number): AllSetsRun {
    return { sets: this.topology.sets, timeoutMs, deadline: this.clock.now() + timeoutMs, signal }
  }

  // ---- configuration ------------------------------------------------------------------------------------------------

  reconfigure(config: ClusterConfig): void {
    if (this.isClosed) throw new RouterClosedError()
    const checked = validateClusterConfig(config)
    const fixed = (['bucketCount', 'shardIndex'] as const).filter((name) => checked[name] !== this.#config[name])
    if (fixed.length > 0)
      throw new ConfigError(
        fixed.map((path) => ({
          path,
          message: `is ${shownValue(checked[path])} and was ${shownValue(this.#config[path])}; it cannot change while the router runs`,
        })),
        { subject: 'cluster configuration' },
      )
    const change = this.topology.apply(checked)
    const { discoveryMode } = this.#config
    this.#config = checked
    this.#retarget(change)
    if (this.#options.discoveryMode === undefined && checked.discoveryMode !== discoveryMode)
      this.#discovery.setMode(checked.discoveryMode)
  }

  /** In this order: no route leads to what is gone, then it may end; whoever waits looks again. */
  #retarget(change: TopologyChange): void {
    const { generation } = this.routes.table
    const gone = change.removed.filter(({ index }) => this.topology.at(index) === undefined)
    const indexOf = (id: string): number | undefined => this.topology.find(id)?.index
    const unresolved = this.routes.retarget(new Set(gone.map(({ index }) => index)), indexOf)
    for (const [destination, buckets] of unresolved)
      this.#raiseUnknownOwner(destination, `${buckets} of its buckets are wanted`)
    for (const { id, index } of this.topology.sets) {
      this.#alerts.clear(`owner ${id}`)
      if (gone.some((set) => set.index === index)) this.#alerts.clear(`count ${index}`)
    }
    const isOther = change.added.length + change.changed.length + change.removed.length > 0
    if (!isOther && this.routes.table.generation === generation) return
    this.lookup.topologyChanged()
    if (!isOther) return
    for (const { replicaset } of change.removed) this.#drain(replicaset)
    this.#discovery.topologyChanged()
    const idsOf = (sets: readonly RoutedSet[]): string[] => sets.map(({ id }) => id)
    const { version } = this.topology
    const event = {
      router: this.name,
      version,
      added: idsOf(change.added),
      removed: idsOf(change.removed),
      changed: idsOf(change.changed),
    }
    log('info', this.name, 'topology', () => ({ ...event }))
    this.#tell(() => this.#emitter.emit('topology', event))
  }

  #drain(replicaset: ReplicasetHandle): void {
    const closing = replicaset.close({ timeout: DRAIN_TIMEOUT_MS }).finally(() => this.#draining.delete(replicaset))
    this.#draining.set(replicaset, closing)
  }

  #topologyRead(error: unknown): void {
    if (error === undefined) {
      this.#alerts.clear('topology')
      return
    }
    const reason = error instanceof Error ? error.message : 'it was refused without an error'
    this.#alerts.raise('topology', {
      name: 'INVALID_CFG',
      message: `The topology cannot be read, the last one stays: ${reason}`,
    })
  }

  #unknownOwner(destination: string): void {
    if (this.#reader === undefined) this.#raiseUnknownOwner(destination, 'the router has no source to ask')
    else this.#reader.want()
  }

  #raiseUnknownOwner(destination: string, what: string): void {
    this.#alerts.raise(`owner ${destination}`, {
      name: 'NO_SUCH_REPLICASET',
      message: `Storages name replicaset ${destination}, which is not configured: ${what}`,
      replicaset: destination,
    })
  }

  #flapping(bucketId: number, owners: readonly number[]): void {
    const ids = owners.map((index) => this.topology.at(index)?.id ?? 'nobody')
    log('warn', this.name, 'flapping bucket', () => ({ bucketId, replicasets: ids }))
    const message = `Bucket ${bucketId} changes its owner all the time, between ${ids.join(' and ')}: do both have it?`
    this.#tell(() => this.#emitter.emit('alert', { name: 'FLAPPING_BUCKET', message }))
    this.#discovery.hurry()
  }

  #miscounted(set: RoutedSet, bucketId: number | undefined): void {
    const subject = `count ${set.index}`
    if (bucketId === undefined) {
      this.#alerts.clear(subject)
      return
    }
    const { bucketCount } = this.#config
    this.#alerts.raise(subject, {
      name: 'INVALID_CFG',
      message: `Replicaset ${set.id} lists bucket ${bucketId}, and this cluster has ${bucketCount}: its pages are not used`,
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
      identification: this.#config.identification,
      bucketCount: table.bucketCount,
      known: table.known,
      topologyVersion: this.topology.version,
      sets: this.topology.sets.map((set) => ({
        definition: set.definition,
        info: set.replicaset.info(),
        buckets: table.countOf(set.index),
        discovery: this.#discovery.stateOf(set),
      })),
      alerts: this.#alerts.all,
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
    this.#emitter.on(event, listener as never)
    return this
  }

  once<E extends keyof RouterEvents>(event: E, listener: RouterEvents[E]): this {
    this.#emitter.once(event, listener as never)
    return this
  }

  off<E extends keyof RouterEvents>(event: E, listener: RouterEvents[E]): this {
    this.#emitter.off(event, listener as never)
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
    this.#reader?.stop()
    this.#discovery.stop()
    this.#wakeReady()
    this.lookup.close()
    for (const replicaset of this.#draining.keys()) replicaset.destroy()
    await Promise.all([...this.#draining.values(), ...this.topology.sets.map((set) => set.replicaset.close(options))])
    this.#tell(() => this.#emitter.emit('close'))
  }

  #routesChanged(changes: number): void {
    this.#wakeReady()
    const { table } = this.routes
    const change: RoutesChange = { router: this.name, generation: table.generation, changes, known: table.known }
    publishRoutes(change)
    if (this.#emitter.listenerCount('routes') > 0) this.#tell(() => this.#emitter.emit('routes', change))
  }

  /** Listeners run when the change is complete, and what they throw changes nothing. */
  #tell(tell: () => void): void {
    queueMicrotask(() => {
      try {
        tell()
      } catch (error) {
        log('error', this.name, 'listener failed', () => ({ error }))
      }
    })
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
