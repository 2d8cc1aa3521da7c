/* One instance requests may be sent to: where it is, how it is, and the lanes to it. */
import {
  type Address,
  type Clock,
  type Credential,
  type Environment,
  type FrameChannel,
  formatAddress,
  openChannel,
  type Transport,
} from '@orbweaver/connection'
import { BodyReader, decodeValue, Feature, featureName, isOrbweaverError, Key, RequestType } from '@orbweaver/iproto'
import type { Lane } from './lane.js'
import { LaneGroup } from './lane-group.js'
import type { ResolvedLimits } from './limits.js'
import type { Login } from './login.js'
import { Meter } from './meter.js'
import { Monitor, type MonitorOwner, type WatchedValue } from './monitor.js'
import type { Embedded, ResolvedTarget } from './options.js'
import { bodyOf } from './reply.js'

/**
 * `unknown`: not reached yet; `up`; `suspect`: gave no sign of life in time; `stopping`: it said that it shuts down;
 * `down`: cannot be reached.
 */
export type TargetState = 'unknown' | 'up' | 'suspect' | 'stopping' | 'down'

/** Told about changes of a target, after they are complete. */
export interface TargetOwner {
  readonly environment: Environment
  readonly limits: ResolvedLimits
  /** Whether somebody may ask for metrics. */
  readonly isMetered: boolean
  targetChanged(target: Target): void
  targetEvent(target: Target, key: string, value: WatchedValue, isFirst: boolean): void
  /** No request that a failover waits for is in flight on one of its lanes. */
  targetQuiet(target: Target): void
  laneOpened(lane: Lane, target: Target): void
  laneClosed(lane: Lane, target: Target, cause: Error): void
}

export class Target implements MonitorOwner {
  readonly name: string
  readonly address: Address
  readonly weight: number
  readonly zone: string | undefined
  readonly embedded: Embedded | undefined
  readonly #owner: TargetOwner
  readonly #groups = new Map<string, LaneGroup>()
  readonly #monitor: Monitor
  readonly #stop = new AbortController()
  #state: TargetState = 'unknown'
  #lastLaneId = 0
  #isRetired = false
  #cancelStopping: (() => void) | undefined
  #isSettled = false
  #whenSettled: (() => void)[] = []
  /** Of the greeting and ID of the last contact; undefined before the first. */
  version: string | undefined
  uuid: string | undefined
  features: ReadonlySet<number> | undefined
  /** What it says of itself; undefined where it cannot say. */
  isReadonly: boolean | undefined
  term: number | undefined
  lastFailure: string | undefined
  /** Of its last reply; 0 before the first. */
  schemaVersion = 0
  readonly meter: Meter | undefined
  /** Instant on the clock at which it came back; -Infinity: it was always here. */
  upSince: number = Number.NEGATIVE_INFINITY

  constructor(name: string, definition: ResolvedTarget, owner: TargetOwner) {
    this.name = name
    this.address = definition.address
    this.weight = definition.weight
    this.zone = definition.zone
    this.embedded = definition.embedded
    this.#owner = owner
    this.meter = owner.isMetered ? new Meter() : undefined
    this.#monitor = new Monitor(this)
  }

  get clock(): Clock {
    return this.#owner.environment.clock
  }

  get random(): () => number {
    return this.#owner.environment.random
  }

  get limits(): ResolvedLimits {
    return this.#owner.limits
  }

  get pingIntervalMs(): number {
    return this.limits.pingIntervalMs
  }

  get pingTimeoutMs(): number {
    return this.limits.pingTimeoutMs
  }

  get state(): TargetState {
    return this.#state
  }

  get monitor(): Monitor {
    return this.#monitor
  }

  /** The first of these features that it lacks, by name; undefined when it has all, or was not reached yet. */
  lacks(features: ReadonlySet<number>): string | undefined {
    if (this.features === undefined) return undefined
    for (const feature of features) if (!this.features.has(feature)) return featureName(feature)
    return undefined
  }

  /** The address for people, without credentials. */
  get uri(): string {
    return formatAddress(this.address)
  }

  start(): void {
    this.#monitor.start()
  }

  /** Resolves with the first success or failure of reaching it. */
  settled(): Promise<void> {
    if (this.#isSettled) return Promise.resolve()
    return new Promise((resolve) => this.#whenSettled.push(resolve))
  }

  /**
   * The lanes for clients of this login and mask.
   * @param owner - set: lanes of one client alone, by a name of that client's; end them with `dissolve`
   */
  group(login: Login, mask: readonly number[], owner = ''): LaneGroup {
    const key = `${login.id}|${mask.join()}|${owner}`
    let group = this.#groups.get(key)
    if (group === undefined) {
      group = new LaneGroup(this, login, mask, owner === '')
      this.#groups.set(key, group)
    }
    return group
  }

  /** Ends the lanes of one client alone, at once. */
  dissolve(group: LaneGroup, why: Error): void {
    for (const [key, known] of this.#groups) if (known === group) this.#groups.delete(key)
    group.close(why)
  }

  groups(): LaneGroup[] {
    return [...this.#groups.values()]
  }

  *lanes(): Generator<Lane> {
    for (const group of this.#groups.values()) yield* group.lanes
  }

  /** Requests in flight. */
  get inFlight(): number {
    let count = 0
    for (const lane of this.lanes()) count += lane.slots.used
    return count
  }

  /** Nothing that a failover waits for is in flight, and no transaction is open. */
  get isQuiet(): boolean {
    for (const lane of this.lanes()) if (lane.rwInFlight > 0 || lane.streams.size > 0) return false
    return true
  }

  /** The secret of a login is gone: nothing can be opened with it any more. */
  forget(login: Login, cause: Error): void {
    for (const [key, group] of this.#groups) {
      if (group.login !== login) continue
      this.#groups.delete(key)
      group.close(cause)
    }
  }

  /** Nothing new comes to it: its lanes end when they have answered everything, and then it is closed. */
  retire(why: Error): void {
    this.#monitor.stop()
    this.#isRetired = true
    for (const group of this.#groups.values()) group.drainAndClose(why)
    this.#closeIfRetired()
  }

  #closeIfRetired(): void {
    if (!this.#isRetired) return
    for (const _lane of this.lanes()) return
    this.close(new Error(`target ${this.name} is configured no longer`))
  }

  close(cause: Error): void {
    this.#stop.abort(cause)
    this.#cancelStopping?.()
    this.#monitor.stop()
    for (const group of this.#groups.values()) group.close(cause)
    this.#settle()
  }

  // ---- connecting ---------------------------------------------------------------------------------------------------

  openMonitor(signal: AbortSignal): Promise<FrameChannel> {
    return this.#connect(undefined, ALL_FEATURES, signal)
  }

  /** @throws AuthError, ConnectError */
  openLane(credential: Credential | undefined, mask: readonly number[]): Promise<FrameChannel> {
    return this.#connect(credential, [...HARMLESS_FEATURES, ...mask], this.#stop.signal)
  }

  nextLaneId(): number {
    return ++this.#lastLaneId
  }

  async #connect(
    credential: Credential | undefined,
    features: readonly number[],
    signal: AbortSignal,
  ): Promise<FrameChannel> {
    const { environment, limits } = this.#owner
    const deadline = environment.clock.now() + limits.connectTimeoutMs
    const transport = await this.#dial(limits.connectTimeoutMs, signal)
    return openChannel(
      transport,
      { features, deadline, maxFrameBytes: limits.maxReplyBytes, ...(credential === undefined ? {} : { credential }) },
      environment,
    )
  }

  async #dial(timeoutMs: number, signal: AbortSignal): Promise<Transport> {
    const { environment } = this.#owner
    const attempt = new AbortController()
    const abort = (): void => attempt.abort(signal.reason)
    const cancel = environment.clock.schedule(timeoutMs, () =>
      attempt.abort(new Error(`${this.uri} did not accept a connection within ${timeoutMs} ms`)),
    )
    signal.addEventListener('abort', abort, { once: true })
    try {
      signal.throwIfAborted()
      return await environment.dial(this.address, attempt.signal)
    } finally {
      cancel()
      signal.removeEventListener('abort', abort)
    }
  }

  // ---- what the monitor and the lanes report ------------------------------------------------------------------------

  monitorUp(channel: FrameChannel): void {
    this.version = channel.version
    this.uuid = channel.instanceUuid
    this.features = channel.features
    this.isReadonly = this.term = undefined
    this.#become('up')
    for (const group of this.#groups.values()) group.targetUp()
    this.#settle()
  }

  monitorDown(cause: unknown): void {
    this.lastFailure = cause instanceof Error ? cause.message : String(cause)
    this.isReadonly = undefined
    this.#become('down')
    this.#settle()
  }

  monitorSuspect(isSuspect: boolean): void {
    if (isSuspect && this.#state === 'up') this.#become('suspect')
    if (!isSuspect && this.#state === 'suspect') this.#become('up')
  }

  monitorEvent(key: string, value: WatchedValue, isFirst: boolean): void {
    const before = [this.isReadonly, this.term, this.#state] as const
    if (key === 'box.status') this.isReadonly = booleanField(value, 'is_ro') ?? this.isReadonly
    if (key === 'box.election') this.term = numberField(value, 'term') ?? this.term
    if (key === 'box.shutdown' && value.bytes?.[0] === MSGPACK_TRUE) this.#stopping()
    const isChanged = before[0] !== this.isReadonly || before[1] !== this.term || before[2] !== this.#state
    if (isChanged) this.#owner.targetChanged(this)
    this.#owner.targetEvent(this, key, value, isFirst)
  }

  connectFailed(error: unknown): void {
    this.lastFailure = error instanceof Error ? error.message : String(error)
    if (this.#state === 'up') this.#become('suspect')
  }

  laneOpened(lane: Lane): void {
    // A server waits for the sessions that watch this key before it exits, and drops the requests of all others at once.
    if (lane.channel.features.has(Feature.watchers)) lane.tell(RequestType.watch, WATCH_SHUTDOWN)
    this.#owner.laneOpened(lane, this)
  }

  laneEvent(lane: Lane, body: Buffer): void {
    try {
      const event = new BodyReader(body)
      if (event.text(Key.eventKey) !== 'box.shutdown') return
      lane.tell(RequestType.watch, WATCH_SHUTDOWN)
      if (event.value(Key.eventData) === true) this.#stopping()
    } catch (error) {
      if (!isOrbweaverError(error)) throw error
      lane.destroy(error)
    }
  }

  laneClosed(lane: Lane, cause: Error): void {
    this.#owner.laneClosed(lane, this, cause)
    this.#leaveIfDone()
    this.#closeIfRetired()
  }

  laneQuiet(): void {
    this.#owner.targetQuiet(this)
  }

  /** It shuts down and serves what it has: nothing new goes there, and it may go when that is done. */
  #stopping(): void {
    if (this.#state === 'stopping') return
    this.#become('stopping')
    const why = new Error(`target ${this.name} is shutting down`)
    for (const group of this.#groups.values()) group.drainAndClose(why)
    this.#cancelStopping = this.clock.schedule(this.limits.backendStopMs, () => {
      if (this.#state !== 'stopping') return
      for (const group of this.#groups.values()) group.destroyLanes(why)
    })
    this.#leaveIfDone()
  }

  /** The server waits for every session that watches its end, the monitor's too. */
  #leaveIfDone(): void {
    if (this.#state !== 'stopping') return
    for (const _lane of this.lanes()) return
    this.#monitor.leave()
  }

  #become(state: TargetState): void {
    if (this.#state === state) return
    // Not the first time: it has to warm up again.
    if (state === 'up' && this.#state !== 'unknown') this.upSince = this.clock.now()
    this.#state = state
    this.#owner.targetChanged(this)
  }

  #settle(): void {
    this.#isSettled = true
    for (const resolve of this.#whenSettled.splice(0)) resolve()
  }
}

function booleanField(value: WatchedValue, name: string): boolean | undefined {
  const field = fieldOf(value, name)
  return typeof field === 'boolean' ? field : undefined
}

function numberField(value: WatchedValue, name: string): number | undefined {
  const field = fieldOf(value, name)
  return typeof field === 'number' ? field : undefined
}

function fieldOf(value: WatchedValue, name: string): unknown {
  if (value.bytes === undefined) return undefined
  try {
    const map = decodeValue(value.bytes, { maps: 'map' })
    return map instanceof Map ? map.get(name) : undefined
  } catch (error) {
    if (!isOrbweaverError(error)) throw error
    return undefined
  }
}

/** Features that change nothing in what a server sends: every lane asks for them. */
const HARMLESS_FEATURES: readonly number[] = [
  Feature.streams,
  Feature.transactions,
  Feature.watchers,
  Feature.pagination,
  Feature.names,
  Feature.watchOnce,
  Feature.callArgumentTupleExtension,
  Feature.isSync,
]
/** Features that do: clients that differ in one of them cannot share a lane. */
export const ENCODING_FEATURES: readonly number[] = [
  Feature.errorExtension,
  Feature.dmlTupleExtension,
  Feature.callReturnTupleExtension,
]
const ALL_FEATURES: readonly number[] = Object.values(Feature)
const MSGPACK_TRUE = 0xc3
const WATCH_SHUTDOWN = bodyOf((out) => {
  out.mapHeader(1)
  out.uint(Key.eventKey)
  out.text('box.shutdown')
})
