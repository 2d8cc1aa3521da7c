/*
 * The storage side of vshard on one instance: buckets and who uses them, moves, and the jobs that keep the cluster whole. The jobs
 * run on a master only; services answer on every instance.
 */
import type { Environment } from '@orbweaver/connection'
import { ConfigError, shownValue } from '@orbweaver/iproto'
import type { ConfigProblem } from '@orbweaver/iproto'
import { VshardError } from '@orbweaver/vshard'
import { vshardProblems } from '../config.js'
import type { VshardOptions } from '../config.js'
import type { Engine } from '../engine/engine.js'
import type { Transaction } from '../engine/transaction.js'
import { isBucketHeard, publishBucket } from '../diagnostics.js'
import { functionError } from '../function-context.js'
import type { FunctionContext } from '../function-context.js'
import type { StoredFunction } from '../functions.js'
import type { Hooks } from '../hooks.js'
import type { ReplicationOptions } from '../replication/options.js'
import type { Replication } from '../replication/replication.js'
import type { BackgroundService, ServiceInfo } from './background-service.js'
import { BucketEvents } from './bucket-events.js'
import type { BucketEventListener } from './bucket-events.js'
import { BucketGc } from './bucket-gc.js'
import type { BucketRecord, BucketStatus } from './bucket-record.js'
import { BucketRefs, nonMaster } from './bucket-refs.js'
import type { VshardIdentity } from './bucket-refs.js'
import { sendBucket } from './bucket-send.js'
import type { BucketSendOptions } from './bucket-send.js'
import { Buckets } from './buckets.js'
import { ClusterLinks } from './cluster-links.js'
import { alertsOf, worstOf } from './info.js'
import type { HealthStatus } from './info.js'
import { rebalancerState } from './internal-services.js'
import type { MasterUpstream } from './internal-services.js'
import { MasterListeners } from './master-listeners.js'
import { MasterSync } from './master-sync.js'
import { OwnReplicaset } from './own-replicaset.js'
import { Rebalancer } from './rebalancer.js'
import type { RebalancerInfo } from './rebalancer.js'
import { Recovery } from './recovery.js'
import { MoveRefusedError } from './refusals.js'
import { RoutesApplier } from './routes-applier.js'
import { Scheduler } from './scheduler.js'
import type { TurnState } from './scheduler.js'
import { vshardFunctions } from './services.js'
import type { ServiceParts } from './services.js'
import { resolveVshardSettings } from './settings.js'
import type { VshardSettings } from './settings.js'
import { StorageRefs } from './storage-refs.js'
import type { StorageRefInfo } from './storage-refs.js'
import { Transfers } from './transfers.js'
import type { TransferInfo } from './transfers.js'
import { TurnReservations } from './turn-reservations.js'
import { Waiters } from './waiters.js'

/** A background job as its operator handles it. */
export type ServiceControl = Pick<BackgroundService, 'info' | 'pause' | 'resume' | 'wake' | 'isPaused'>

/** References on the whole storage: while there is one, no bucket leaves or arrives. */
export interface StorageRefsControl {
  /**
   * Takes one, for work of this process that must see every bucket in its place. Waits until no bucket is on its way.
   * Disposing of an expired one fails with STORAGE_REF_DEL: buckets may have moved meanwhile.
   * @param options.timeout - how long to wait, in milliseconds
   * @param options.expire - how long it holds at the most, in milliseconds; default: until it is disposed of
   * @throws VshardError NON_MASTER, BoxError 78 when buckets did not come to rest in time
   */
  ref(options: { timeout: number; expire?: number }): Promise<AsyncDisposable & { readonly id: string }>
  /** All that are held now, by whomever, the oldest first. */
  list(): readonly StorageRefInfo[]
  /** Deletes one by its id; a map that runs under it fails. False when there is none. */
  unref(id: string): boolean
  /** Deletes all, for an operator whose rebalancing is stuck behind a forgotten one. @returns how many there were */
  unrefAll(): number
}

/** What the storage says of itself; counts of buckets and alerts as vshard's `info`. */
export interface VshardInfo {
  /** 0 green, 1 yellow, 2 orange, 3 red: the worst of the alerts. */
  readonly status: HealthStatus
  /** Name and text of each trouble. */
  readonly alerts: readonly (readonly [name: string, text: string])[]
  readonly isEnabled: boolean
  readonly isMaster: boolean
  /** The master has everything its predecessors did to buckets. */
  readonly isSynced: boolean
  readonly isLocked: boolean
  /** How rows of the master come in; absent on the master itself, and while it is not known. */
  readonly upstream?: MasterUpstream
  readonly bucket: Readonly<Record<BucketStatus | 'total', number>>
  readonly transfers: readonly TransferInfo[]
  readonly storageRefs: number
  readonly scheduler: { readonly ref: TurnState; readonly move: TurnState }
  readonly gc: ServiceInfo
  readonly recovery: ServiceInfo
  readonly masterSync: ServiceInfo
  readonly rebalancer: RebalancerInfo
  /** uuids of instances that are not waited for. */
  readonly writtenOff: readonly string[]
}

/** vshard's local API: what is not reachable by CALL. */
export interface VshardStorage {
  readonly refs: StorageRefsControl
  readonly recovery: ServiceControl
  readonly gc: ServiceControl
  /** Paused: this storage plans nothing, sends nothing by orders, and takes no part in rounds planned elsewhere. */
  readonly rebalancer: ServiceControl
  info(): VshardInfo
  /** While disabled every function of vshard raises STORAGE_IS_DISABLED. */
  enable(): void
  disable(): void
  /** Keeps a bucket where it is. Harmless when it is pinned already. @throws VshardError for a bucket that takes no writes here */
  pinBucket(id: number): void
  unpinBucket(id: number): void
  /**
   * Moves a bucket to another replicaset.
   * @throws VshardError, BoxError: it has not left, or recovery settles where it is
   */
  sendBucket(id: number, destination: string, options?: BucketSendOptions): Promise<void>
  /** Takes another configuration; running moves go on. What is left out stays. @throws ConfigError; nothing is changed then */
  configure(options: Partial<Omit<VshardOptions, 'bucketCount' | 'identification'>>): void
  /** An instance of this replicaset that is gone for good: nobody waits for it any more. @throws InvalidArgumentError for an unknown one */
  setWrittenOff(uuid: string, isWrittenOff: boolean): void
  /** Off: any change of `_bucket` is taken, for repairs by hand. On from the start. */
  setBucketProtection(isOn: boolean): void
  /**
   * Calls `listener` when this instance has become the master (before its jobs start), and at once when it is the master now.
   * It is none before `start`, nor behind `close`. What a listener throws is told on `orbweaver:log`.
   * @returns ends it
   */
  onMasterEnable(listener: () => unknown): () => void
  /** Calls `listener` when this instance has stopped being the master, and at once when it is none now. */
  onMasterDisable(listener: () => unknown): () => void
  /**
   * Calls `listener` first inside each transaction that brings rows of a moving bucket here or removes those of one that has
   * left. What it writes with `storage.space(…)` is a part of that transaction. When it throws the transaction is undone:
   * a move fails, and the collector of garbage tries again and says why in `info().gc`.
   * @returns ends it
   */
  onBucketEvent(listener: BucketEventListener): () => void
}

/** What it needs of its instance. */
export interface VshardHost {
  readonly engine: Engine
  /** As logs call this instance. */
  readonly storageName: string
  readonly environment: Environment
  readonly hooks: Hooks
  /** Runs `work` so that statements on the storage's spaces are a part of `transaction`. */
  within<T>(transaction: Transaction, work: () => T): T
  /** What others are told of this side has changed. */
  announce(): void
  readonly replication: Replication
  readonly replicationOptions: ReplicationOptions
  readonly identity: VshardIdentity
  /** Name of this instance where instances are identified by name. */
  readonly name: string | undefined
  invoke(
    context: FunctionContext,
    name: string,
    args: readonly unknown[],
  ): readonly unknown[] | Promise<readonly unknown[]>
}

export class VshardSide implements VshardStorage {
  readonly buckets: Buckets
  readonly storageRefs: StorageRefs
  readonly refs: StorageRefsControl
  readonly recovery: Recovery
  readonly gc: BucketGc
  readonly rebalancer: Rebalancer
  readonly functions: Readonly<Record<string, StoredFunction>>
  readonly #host: VshardHost
  readonly #parts: ServiceParts
  readonly #masterSync: MasterSync
  readonly #applier: RoutesApplier
  readonly #bucketEvents: BucketEvents
  readonly #masterListeners: MasterListeners
  #options: VshardOptions
  #settings: VshardSettings
  #isEnabled = true
  #isStarted = false

  constructor(options: VshardOptions, host: VshardHost) {
    this.#options = options
    this.#settings = resolveVshardSettings(options)
    this.#host = host
    const { clock } = host.environment
    const { schedRefQuota, schedMoveQuota } = this.#settings
    this.buckets = new Buckets(host.engine, clock)
    this.#masterListeners = new MasterListeners(host.storageName)
    this.#bucketEvents = new BucketEvents(host.storageName, (transaction, work) => host.within(transaction, work))
    const scheduler = new Scheduler({ ref: schedRefQuota, move: schedMoveQuota })
    this.storageRefs = new StorageRefs(clock, this.buckets, scheduler)
    this.#parts = this.#makeParts(scheduler)
    const parts = this.#parts
    this.buckets.observe({
      changed: (id, record, before) => {
        parts.bucketRefs.note(id, record)
        if (isBucketHeard()) this.#publish(id, record, before)
      },
      replaced: () => parts.bucketRefs.noteAll(),
      countersOf: (id) => parts.bucketRefs.of(id),
    })
    parts.cluster.configure(this.#settings)
    this.#masterSync = new MasterSync(parts, this.#masterState())
    this.recovery = new Recovery(parts)
    this.gc = new BucketGc(parts)
    this.#applier = new RoutesApplier(parts, () => this.rebalancer.isPaused)
    this.rebalancer = new Rebalancer(parts, this.#applier, () => parts.rebalancerState())
    this.buckets.onChange(() => this.#wakeJobs())
    this.functions = vshardFunctions(parts)
    this.refs = {
      ref: (refOptions) => this.#ref(refOptions),
      list: () => this.storageRefs.list(),
      unref: (id) => this.storageRefs.unref(id),
      unrefAll: () => this.storageRefs.unrefAll(),
    }
  }

  /** From now on the jobs run where this instance is the master. */
  start(): void {
    this.#isStarted = true
    this.roleChanged()
    this.#host.announce()
  }

  /** The role, the term or the position in the replicaset changed. */
  roleChanged(): void {
    this.#parts.role.wake()
    if (!this.#isStarted) return
    this.#masterListeners.now(this.#host.identity.isMaster)
    const jobs = [this.#masterSync, this.recovery, this.gc, this.rebalancer]
    if (!this.#host.identity.isMaster) {
      for (const job of jobs) job.stop()
      return
    }
    for (const job of jobs) {
      job.start()
      job.wake()
    }
  }

  /**
   * Before a planned change of masters: refuses new writes to buckets, and waits for those that run, up to a bound. Then `giveUp` is
   * called, whatever still runs.
   */
  async settleWrites(timeoutMs: number, giveUp: () => void): Promise<void> {
    const { bucketRefs, clock } = this.#parts
    bucketRefs.setClosedToWrites(true)
    try {
      await bucketRefs.writesEnded(clock.now() + timeoutMs)
      giveUp()
    } finally {
      bucketRefs.setClosedToWrites(false)
    }
  }

  close(): void {
    this.#isStarted = false
    this.#masterListeners.now(false)
    for (const job of [this.#masterSync, this.recovery, this.gc, this.rebalancer]) job.stop()
    this.#applier.stop()
    this.#parts.reservations.close()
    this.storageRefs.close()
    this.#parts.cluster.close()
    this.#parts.own.close()
  }

  // ---- the local API ------------------------------------------------------------------------------------------------

  enable(): void {
    this.#isEnabled = true
  }

  disable(): void {
    this.#isEnabled = false
  }

  pinBucket(id: number): void {
    this.#setPin(id, 'pinned')
  }

  unpinBucket(id: number): void {
    this.#setPin(id, 'active')
  }

  sendBucket(id: number, destination: string, options: BucketSendOptions = {}): Promise<void> {
    return sendBucket(this.#parts, id, destination, options)
  }

  configure(options: Partial<Omit<VshardOptions, 'bucketCount' | 'identification'>>): void {
    const next = { ...this.#options, ...options }
    const problems = [...vshardProblems(next), ...this.#fixedProblems(next)]
    if (problems.length > 0) throw new ConfigError(problems, { subject: 'storage' })
    this.#options = next
    this.#settings = resolveVshardSettings(this.#options)
    const { schedRefQuota, schedMoveQuota } = this.#settings
    this.#parts.cluster.configure(this.#settings)
    this.#parts.scheduler.configure({ ref: schedRefQuota, move: schedMoveQuota })
    this.recovery.wake()
    this.rebalancer.wake()
    this.#host.announce()
  }

  /**
   * Whether the configuration names this instance as the master; undefined where masters are promoted.
   * It says nothing before the storage is started.
   */
  get isMasterByConfiguration(): boolean | undefined {
    const { replicasetId, instanceId } = this.#host.identity
    const master = this.#settings.replicasets.get(replicasetId)?.master
    return master === undefined || master === 'auto' ? undefined : master === instanceId
  }

  get isStarted(): boolean {
    return this.#isStarted
  }

  onMasterEnable(listener: () => unknown): () => void {
    return this.#masterListeners.add('onMasterEnable', listener)
  }

  onMasterDisable(listener: () => unknown): () => void {
    return this.#masterListeners.add('onMasterDisable', listener)
  }

  onBucketEvent(listener: BucketEventListener): () => void {
    return this.#bucketEvents.add(listener)
  }

  /** What a storage is born with: without types it might be given another. */
  #fixedProblems(next: VshardOptions): ConfigProblem[] {
    return (['bucketCount', 'identification'] as const).flatMap((name) =>
      next[name] === this.#options[name]
        ? []
        : [{ path: `vshard.${name}`, message: `is ${shownValue(next[name])}, and cannot be another than it was` }],
    )
  }

  setWrittenOff(uuid: string, isWrittenOff: boolean): void {
    this.#parts.own.setWrittenOff(uuid, isWrittenOff)
    this.#masterSync.wake()
    this.gc.wake()
  }

  setBucketProtection(isOn: boolean): void {
    this.buckets.isProtected = isOn
  }

  info(): VshardInfo {
    const { own, scheduler, transfers } = this.#parts
    const alerts = alertsOf(this.#parts)
    const upstream = this.#host.identity.isMaster ? undefined : this.#masterUpstream()
    const count = (status: BucketStatus): number => this.buckets.count(status)
    return {
      status: worstOf(alerts),
      alerts: alerts.map(({ name, text }) => [name, text] as const),
      isEnabled: this.#isEnabled,
      isMaster: this.#host.identity.isMaster,
      isSynced: this.#masterSync.isSynced,
      isLocked: this.#parts.isLocked,
      ...(upstream === undefined ? {} : { upstream }),
      bucket: {
        total: this.buckets.size,
        active: count('active') + count('pinned'),
        pinned: count('pinned'),
        readonly: count('readonly'),
        sending: count('sending'),
        sent: count('sent'),
        receiving: count('receiving'),
        garbage: count('garbage'),
      },
      transfers: transfers.list(),
      storageRefs: this.storageRefs.size,
      scheduler: { ref: scheduler.state('ref'), move: scheduler.state('move') },
      gc: this.gc.info,
      recovery: this.recovery.info,
      masterSync: this.#masterSync.info,
      rebalancer: this.rebalancer.rebalancerInfo,
      writtenOff: own.writtenOff,
    }
  }

  // ---- inside -------------------------------------------------------------------------------------------------------

  #makeParts(scheduler: Scheduler): ServiceParts {
    const { environment, engine, hooks, identity, name, replication, replicationOptions, storageName } = this.#host
    const { clock, random } = environment
    const { buckets, storageRefs } = this
    const settings = (): VshardSettings => this.#settings
    const isEnabled = (): boolean => this.#isEnabled
    return {
      clock,
      storageName,
      random,
      engine,
      buckets,
      bucketEvents: this.#bucketEvents,
      replicaCount: replicationOptions.peers.length,
      bucketRefs: new BucketRefs(buckets, identity, clock),
      storageRefs,
      scheduler,
      transfers: new Transfers(buckets, { clock, storageName }),
      reservations: new TurnReservations(clock, scheduler),
      own: new OwnReplicaset(replication, replicationOptions, environment),
      cluster: new ClusterLinks(environment, () => identity.replicasetId),
      identity,
      name,
      role: new Waiters(clock),
      get settings() {
        return settings()
      },
      get isLocked() {
        return settings().replicasets.get(identity.replicasetId)?.lock === true
      },
      get isEnabled() {
        return isEnabled()
      },
      committed: () => replication.whenCommitted() ?? Promise.resolve(),
      assertMaster: () => assertMaster(identity),
      assertSynced: () => {
        assertMaster(identity)
        if (!this.#masterSync.isSynced) throw notSynced(identity)
      },
      beforeMove: async (bucketId, destination, boundMs) => {
        const refusals = await hooks.run('move', { bucketId, destination }, boundMs)
        if (refusals.length > 0) throw new MoveRefusedError(bucketId, destination, functionError(refusals[0]))
      },
      invoke: (context, functionName, args) => this.#host.invoke(context, functionName, args),
      masterUpstream: () => this.#masterUpstream(),
      vclock: () => replication.vclock,
      rebalancerState: () => rebalancerState(this.#parts, !this.rebalancer.isPaused && !this.#applier.isRunning),
      applyRoutes: (routes) => this.#applyRoutes(routes),
    }
  }

  #masterState(): { term: number; isMaster: boolean; vclock: ReadonlyMap<number, number>; hasQuorum: boolean } {
    const { identity, replication, replicationOptions } = this.#host
    return {
      get term() {
        return replication.term
      },
      get isMaster() {
        return identity.isMaster
      },
      get vclock() {
        return replication.vclock
      },
      // Alone there is nobody to ask, and nobody before it.
      hasQuorum: (replicationOptions.quorum ?? 1) > 1 || replicationOptions.peers.length === 0,
    }
  }

  #wakeJobs(): void {
    const count = (status: BucketStatus): number => this.buckets.count(status)
    if (count('sent') + count('garbage') > 0 || this.gc.info.problem !== undefined) this.gc.wake()
    if (count('readonly') + count('sending') + count('receiving') > 0 || this.recovery.info.problem !== undefined)
      this.recovery.wake()
  }

  async #ref(options: { timeout: number; expire?: number }): Promise<AsyncDisposable & { readonly id: string }> {
    assertMaster(this.#host.identity)
    const ref = await this.storageRefs.addLocal(options)
    if (this.#host.identity.isMaster) return ref
    await ref[Symbol.asyncDispose]()
    throw nonMaster(this.#host.identity)
  }

  #setPin(id: number, status: 'pinned' | 'active'): void {
    const unwritable = this.#parts.bucketRefs.unwritable(id)
    if (unwritable !== undefined) throw unwritable
    this.#parts.assertSynced()
    const record = this.buckets.get(id)!
    if (record.status !== status) this.buckets.put({ ...record, status })
  }

  #applyRoutes(routes: ReadonlyMap<string, number>): void {
    if (this.#parts.isLocked) throw VshardError.of('REPLICASET_IS_LOCKED')
    this.#parts.assertSynced()
    if (!this.rebalancer.isPaused) this.#applier.apply(routes)
  }

  #masterUpstream(): MasterUpstream | undefined {
    const { replication } = this.#host
    const link = replication.links.get(replication.leader)
    if (link === undefined) return undefined
    const { name, idleMs, lagMs } = link
    return {
      // Tarantool's word for it.
      status: name === 'connecting' ? 'connect' : name,
      ...(idleMs === undefined ? {} : { idleMs }),
      ...(lagMs === undefined ? {} : { lagMs: Math.max(0, lagMs) }), // clocks differ
    }
  }

  #publish(bucketId: number, record: BucketRecord | undefined, before: BucketRecord | undefined): void {
    publishBucket({
      storage: this.#host.storageName,
      bucketId,
      from: before?.status,
      to: record?.status,
      destination: (record ?? before)?.destination,
      generation: (record ?? before)?.generation ?? 0,
    })
  }
}

function assertMaster(identity: VshardIdentity): void {
  if (!identity.isMaster) throw nonMaster(identity)
}

function notSynced({ instanceId, replicasetId }: VshardIdentity): VshardError {
  return VshardError.of('MASTER_NOT_SYNCED', { replica: instanceId, replicaset: replicasetId })
}
