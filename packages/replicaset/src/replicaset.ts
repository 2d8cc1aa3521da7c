/** All instances of one replicaset behind one handle. */
import type { Clock, Operations, Stream, TransactionOptions } from '@orbweaver/connection'
import { callRequest, InvalidArgumentError, type OrbweaverError, type Reply, type Request } from '@orbweaver/iproto'
import { EventEmitter } from 'eventemitter3'
import type { Attempt, CallMode, InstanceHandle } from './attempt.js'
import { MasterChanges } from './changes.js'
import { checkDefinition, type ReplicasetDefinition } from './definition.js'
import { log, publishMaster, publishWindow } from './diagnostics.js'
import { Dispatcher } from './dispatcher.js'
import type { MasterChange, ReplicasetEvents, WindowEvent } from './events.js'
import type { WindowEnd, WindowRecord } from './failover-buffer.js'
import type { HoldQueue } from './hold-queue.js'
import type { Instance } from './instance.js'
import { stateOf } from './instance-view.js'
import { lagOf } from './lag.js'
import { whyNotMaster } from './master-rules.js'
import { type ReplicasetOptions, resolveReplicasetOptions, type Settings } from './options.js'
import { RoutedOperations } from './routed-operations.js'
import type { HoldStats, InstanceInfo, ReplicasetInfo, ReplicasetStats } from './stats.js'
import { runTransaction } from './transaction.js'
import {
  type CallOwner,
  type DetailedResult,
  NO_OPTIONS,
  readDetailed,
  readValues,
  type ReplicasetCallOptions,
  startCall,
} from './user-call.js'

/** What layers above need of a replicaset: the path without promises. */
export interface Replicaset {
  /** As in the definition. */
  readonly id: string
  /**
   * Runs the attempt on the instance its mode calls for, now or, where there is none, as soon as there is one: `run` may be
   * called before this returns. `giveUp` follows if it was in vain.
   */
  dispatch(attempt: Attempt, mode: CallMode): void
  /**
   * To be called with every outcome of a `run` that said `sent`.
   * @param epoch - the token `run` was given
   * @returns true: taken back, `run` or `giveUp` has followed or will; false: the outcome is the caller's
   */
  settle(attempt: Attempt, epoch: number, outcome: Reply | OrbweaverError): boolean
  /** Takes back an attempt that waits: neither `run` nor `giveUp` will follow. @returns false: it does not wait */
  withdraw(attempt: Attempt): boolean
  /** Whoever gets writes now; undefined: none is known. */
  master(): InstanceHandle | undefined
  /** Grows with each master that is found, also when it is the same again. Unchanged, with `master()` unchanged: nobody else was master meanwhile. */
  readonly epoch: number
  /**
   * Replaces the members. Instances whose address stays keep their connections, what is known of them, and what is in flight.
   * @throws ConfigError; then nothing has changed
   */
  reconfigure(definition: ReplicasetDefinition): void
  /** The master of this moment, then each change, for `for await`; a slow reader gets the newest. Ends with `close`. */
  changes(): AsyncIterable<{ readonly epoch: number; readonly master: string | undefined }>
}

/** All instances of one replicaset, as users hold it. */
export interface ReplicasetHandle extends Replicaset, AsyncDisposable {
  /**
   * Calls a function at the master. While there is none the call waits, within its limits.
   * @returns everything the function returned
   * @throws the errors of a connection; NoMasterError, MasterConflictError, BufferFullError, BufferEvictedError,
   * BufferWindowError: nothing was executed
   * @example const [balance] = await replicaset.callrw<[number]>('add_money', ['alice', 10])
   */
  callrw<T = unknown[]>(name: string, args?: readonly unknown[], options?: ReplicasetCallOptions): Promise<T>
  /** Calls a function that only reads at the nearest instance, or at another if that cannot serve. @throws NoInstanceError, the errors of a connection */
  callro<T = unknown[]>(name: string, args?: readonly unknown[], options?: ReplicasetCallOptions): Promise<T>
  /** As `callro`, at all instances in turn. */
  callbro<T = unknown[]>(name: string, args?: readonly unknown[], options?: ReplicasetCallOptions): Promise<T>
  /** As `callro`, at the nearest instance that is not the master; at the master if there is no other. */
  callre<T = unknown[]>(name: string, args?: readonly unknown[], options?: ReplicasetCallOptions): Promise<T>
  /** As `callre`, at all that are not the master in turn. */
  callbre<T = unknown[]>(name: string, args?: readonly unknown[], options?: ReplicasetCallOptions): Promise<T>
  /** Sends any request of `@orbweaver/iproto` and gives the decoded DATA of its answer. */
  request<T = unknown[]>(mode: CallMode, request: Request, options?: ReplicasetCallOptions): Promise<T>
  /** As `request`, and tells who answered. */
  requestDetailed<T = unknown[]>(
    mode: CallMode,
    request: Request,
    options?: ReplicasetCallOptions,
  ): Promise<DetailedResult<T>>
  /** All operations of a connection (`select`, `insert`, `execute` …) for a call mode; reads are repeated elsewhere, writes wait for a master. */
  using(mode: CallMode): Operations
  /**
   * Runs `work` in a transaction at the master: commits when it resolves, rolls back when it rejects. It stays at the master
   * of its start and is never repeated; only its start waits for a master. `timeout` limits the start.
   * @throws UnsupportedFeatureError on servers before 2.10
   */
  transaction<T>(work: (stream: Stream) => Promise<T>, options?: TransactionOptions): Promise<T>
  /** All members, nearest first. */
  instances(): readonly InstanceHandle[]
  /**
   * An outside orchestrator has just promoted this instance: it is believed at once and checked right after. Ends the window
   * of this replicaset, and of no other.
   * @throws InvalidArgumentError when it is no member
   */
  announceMaster(instanceId: string): void
  info(): ReplicasetInfo
  stats(): ReplicasetStats
  on<E extends keyof ReplicasetEvents>(event: E, listener: ReplicasetEvents[E]): this
  once<E extends keyof ReplicasetEvents>(event: E, listener: ReplicasetEvents[E]): this
  off<E extends keyof ReplicasetEvents>(event: E, listener: ReplicasetEvents[E]): this
  /** Ends what waits with `ConnectionClosedError`, lets what is in flight finish for at most `timeout` (default 5,000), then closes the connections. */
  close(options?: { readonly timeout?: number }): Promise<void>
  /** Closes now. */
  destroy(cause?: Error): void
}

/**
 * Makes a replicaset and begins to connect to all its instances. Returns at once: nobody needs to be reachable.
 * @throws ConfigError with every problem and its path
 * @example
 * await using replicaset = createReplicaset({
 *   definition: { id: 'storage-1', instances: [{ id: 'a', uri: 'localhost:3301' }, { id: 'b', uri: 'localhost:3302' }] },
 *   user: 'app', password: 'secret',
 * })
 * await replicaset.callrw('add_money', ['alice', 10])
 */
export function createReplicaset(options: ReplicasetOptions): ReplicasetHandle {
  return new LiveReplicaset(resolveReplicasetOptions(options))
}

class LiveReplicaset implements ReplicasetHandle {
  readonly #settings: Settings
  readonly #clock: Clock
  readonly #dispatcher: Dispatcher
  readonly #owner: CallOwner
  readonly #emitter = new EventEmitter<ReplicasetEvents>()
  readonly #changes: MasterChanges
  readonly #operations = new Map<CallMode, Operations>()
  /** Told after the change that made them is complete. */
  #untold: (() => void)[] = []
  #lastMaster: string | undefined
  #closing: Promise<void> | undefined

  constructor(settings: Settings) {
    this.#settings = settings
    this.#clock = settings.environment.clock
    this.#dispatcher = new Dispatcher(settings, {
      master: (instance) => this.#masterChanged(instance),
      window: (window, end) => this.#windowChanged(window, end),
      alert: (alert) => {
        this.#tell(() => this.#emitter.emit('alert', alert))
        if (alert.code === 'conflict') this.#tell(() => this.#emitter.emit('conflict', alert.instances))
      },
    })
    this.#changes = new MasterChanges(() => this.#state())
    this.#owner = {
      id: settings.definition.id,
      clock: this.#clock,
      dispatcher: this.#dispatcher,
      requestTimeoutMs: settings.requestTimeoutMs,
    }
  }

  get id(): string {
    return this.#dispatcher.discovery.definition.id
  }

  dispatch(attempt: Attempt, mode: CallMode): void {
    this.#dispatcher.dispatch(attempt, mode)
  }

  settle(attempt: Attempt, epoch: number, outcome: Reply | OrbweaverError): boolean {
    return this.#dispatcher.settle(attempt, epoch, outcome)
  }

  withdraw(attempt: Attempt): boolean {
    return this.#dispatcher.withdraw(attempt)
  }

  get epoch(): number {
    return this.#dispatcher.discovery.epoch
  }

  master(): InstanceHandle | undefined {
    return this.#dispatcher.discovery.master
  }

  instances(): readonly InstanceHandle[] {
    return [...this.#dispatcher.discovery.instances]
  }

  callrw<T = unknown[]>(
    name: string,
    args: readonly unknown[] = NO_ARGS,
    options: ReplicasetCallOptions = NO_OPTIONS,
  ): Promise<T> {
    return this.request<T>('rw', callRequest(name, args), options)
  }

  callro<T = unknown[]>(
    name: string,
    args: readonly unknown[] = NO_ARGS,
    options: ReplicasetCallOptions = NO_OPTIONS,
  ): Promise<T> {
    return this.request<T>('ro', callRequest(name, args), options)
  }

  callbro<T = unknown[]>(
    name: string,
    args: readonly unknown[] = NO_ARGS,
    options: ReplicasetCallOptions = NO_OPTIONS,
  ): Promise<T> {
    return this.request<T>('bro', callRequest(name, args), options)
  }

  callre<T = unknown[]>(
    name: string,
    args: readonly unknown[] = NO_ARGS,
    options: ReplicasetCallOptions = NO_OPTIONS,
  ): Promise<T> {
    return this.request<T>('re', callRequest(name, args), options)
  }

  callbre<T = unknown[]>(
    name: string,
    args: readonly unknown[] = NO_ARGS,
    options: ReplicasetCallOptions = NO_OPTIONS,
  ): Promise<T> {
    return this.request<T>('bre', callRequest(name, args), options)
  }

  request<T = unknown[]>(mode: CallMode, request: Request, options: ReplicasetCallOptions = NO_OPTIONS): Promise<T> {
    return startCall<T>(this.#owner, mode, request, options, readValues)
  }

  requestDetailed<T = unknown[]>(
    mode: CallMode,
    request: Request,
    options: ReplicasetCallOptions = NO_OPTIONS,
  ): Promise<DetailedResult<T>> {
    return startCall<DetailedResult<T>>(this.#owner, mode, request, options, readDetailed)
  }

  using(mode: CallMode): Operations {
    let operations = this.#operations.get(mode)
    if (operations === undefined) {
      operations = new RoutedOperations(this.#dispatcher, mode, this.#clock, this.#settings.requestTimeoutMs)
      this.#operations.set(mode, operations)
    }
    return operations
  }

  transaction<T>(work: (stream: Stream) => Promise<T>, options: TransactionOptions = {}): Promise<T> {
    return runTransaction(this.#dispatcher, this.#clock, this.#settings.requestTimeoutMs, work, options)
  }

  announceMaster(instanceId: string): void {
    const { discovery } = this.#dispatcher
    const instance = discovery.find(instanceId)
    if (instance === undefined) {
      const known = discovery.instances.map(({ id }) => id).join(', ')
      throw new InvalidArgumentError(`"${instanceId}" is no instance of replicaset ${this.id} (${known})`)
    }
    discovery.announce(instance)
  }

  reconfigure(definition: ReplicasetDefinition): void {
    this.#dispatcher.discovery.reconfigure(checkDefinition(definition, ''))
  }

  changes(): AsyncIterable<{ readonly epoch: number; readonly master: string | undefined }> {
    return this.#changes
  }

  on<E extends keyof ReplicasetEvents>(event: E, listener: ReplicasetEvents[E]): this {
    this.#emitter.on(event, listener as never)
    return this
  }

  once<E extends keyof ReplicasetEvents>(event: E, listener: ReplicasetEvents[E]): this {
    this.#emitter.once(event, listener as never)
    return this
  }

  off<E extends keyof ReplicasetEvents>(event: E, listener: ReplicasetEvents[E]): this {
    this.#emitter.off(event, listener as never)
    return this
  }

  close(options: { readonly timeout?: number } = {}): Promise<void> {
    this.#closing ??= this.#close(options.timeout ?? CLOSE_TIMEOUT_MS)
    return this.#closing
  }

  destroy(cause?: Error): void {
    this.#dispatcher.close()
    for (const instance of this.#dispatcher.discovery.instances) instance.destroy(cause)
    this.#closing ??= this.#close(0)
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  info(): ReplicasetInfo {
    const { discovery, buffer } = this.#dispatcher
    const nowMs = this.#clock.now()
    const { window } = buffer
    return {
      id: this.id,
      state: discovery.state,
      mode: discovery.mode,
      epoch: discovery.epoch,
      master: discovery.master?.id,
      term: discovery.maxTerm,
      instances: discovery.instances.map((instance) => this.#instanceInfo(instance, nowMs)),
      alerts: discovery.alerts(),
      window:
        window === undefined
          ? undefined
          : { reason: window.reason, ms: nowMs - window.openedMs, waiting: buffer.queue.length },
      cooldownMs: Math.max(0, buffer.cooldownUntilMs - nowMs),
    }
  }

  stats(): ReplicasetStats {
    const { discovery, buffer, reads, parked, share, counts } = this.#dispatcher
    return {
      masterChanges: discovery.counts.masterChanges,
      epoch: discovery.epoch,
      mode: discovery.mode,
      conflict: discovery.conflict.length,
      windows: { ...buffer.counts.windows },
      windowEnds: { ...buffer.counts.windowEnds },
      windowMs: buffer.counts.windowMs,
      buffered: {
        ...holdStats(buffer.queue),
        asked: buffer.counts.asked,
        skipped: { ...buffer.counts.skipped },
        bytes: share.bytes,
        draining: buffer.draining,
      },
      waitingReads: holdStats(reads.queue),
      waitingForFence: holdStats(parked),
      resentOldEpoch: counts.resentOldEpoch,
      rereads: counts.rereads,
      fences: { ...discovery.counts.fences },
      polls: discovery.counts.polls,
      liars: discovery.counts.liars,
      staleClaims: discovery.counts.staleClaims,
      badEvents: discovery.counts.badEvents,
      hints: discovery.counts.hints,
      hintsIgnored: discovery.counts.hintsIgnored,
      dispatched: { ...counts.dispatched },
    }
  }

  #instanceInfo(instance: Instance, nowMs: number): InstanceInfo {
    const { discovery } = this.#dispatcher
    const { view, definition } = instance
    return {
      id: instance.id,
      uuid: instance.uuid,
      peer: instance.peer,
      zone: definition.zone,
      state: stateOf(view),
      stateMs: nowMs - view.sinceMs,
      isMaster: instance === discovery.master,
      generation: view.generation,
      term: view.term,
      version: instance.serverVersion,
      reason: whyNotMaster(view, discovery.maxTerm, nowMs),
      stopping: view.stopping,
      silent: view.silent,
      refused: view.refused,
      restMs: Math.max(0, instance.restUntilMs - nowMs),
      restReason: instance.restUntilMs > nowMs ? instance.restReason : undefined,
      lagMs: instance === discovery.master ? 0 : lagOf(instance, discovery.master?.uuid),
      pingMs: instance.pingMs,
    }
  }

  #state(): { readonly epoch: number; readonly master: string | undefined } {
    const { epoch, master } = this.#dispatcher.discovery
    return { epoch, master: master?.id }
  }

  #masterChanged(instance: Instance | undefined): void {
    const { epoch } = this.#dispatcher.discovery
    const previous = this.#lastMaster
    this.#lastMaster = instance?.id
    const change: MasterChange = {
      replicaset: this.id,
      epoch,
      master: instance?.id,
      previous,
      term: instance?.view.term,
    }
    log('info', 'master', () => ({ ...change }))
    this.#tell(() => {
      publishMaster(change)
      this.#changes.offer({ epoch, master: change.master })
      this.#emitter.emit('master', change)
    })
  }

  #windowChanged(window: WindowRecord, end: { readonly why: WindowEnd; readonly ms: number } | undefined): void {
    const event: WindowEvent = {
      set: this.id,
      reason: window.reason,
      T0: window.T0,
      M0: window.M0,
      end: end === undefined ? undefined : this.#dispatcher.discovery.master?.id,
      why: end?.why,
      entries: window.entries,
      ms: end?.ms ?? 0,
    }
    log('warn', end === undefined ? 'window opened' : 'window ended', () => ({ ...event }))
    this.#tell(() => {
      publishWindow(event)
      this.#emitter.emit('window', event)
    })
  }

  /** Listeners run when the change is complete, and what they throw changes nothing. */
  #tell(tell: () => void): void {
    this.#untold.push(tell)
    if (this.#untold.length > 1) return
    queueMicrotask(() => {
      const all = this.#untold
      this.#untold = []
      for (const each of all) {
        try {
          each()
        } catch (error) {
          log('error', 'listener failed', () => ({ replicaset: this.id, error }))
        }
      }
    })
  }

  async #close(timeoutMs: number): Promise<void> {
    this.#dispatcher.close()
    await Promise.all(this.#dispatcher.discovery.instances.map((instance) => instance.close(timeoutMs)))
    this.#tell(() => {
      this.#changes.finish()
      this.#emitter.emit('close')
    })
  }
}

function holdStats({ length, counts }: HoldQueue): HoldStats {
  return { now: length, ...counts }
}

const NO_ARGS: readonly unknown[] = []
const CLOSE_TIMEOUT_MS = 5_000
