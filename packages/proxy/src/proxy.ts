import { randomBytes } from 'node:crypto'
import {
  type Address,
  type Clock,
  type Environment,
  listen,
  parseAddress,
  type SocketListener,
  type Transport,
  transportPair,
} from '@orbweaver/connection'
import { ConfigError, isOrbweaverError } from '@orbweaver/iproto'
import {
  type ClientSession,
  createServer,
  type InboundFrame,
  type Server,
  type SessionHandler,
} from '@orbweaver/server'
import { agreementOf, type Agreement } from './agreement.js'
import { Authenticator, type CredentialSource, staticCredentials } from './auth.js'
import { Client } from './client.js'
import type { ClientHost } from './client-host.js'
import { ControlQueue } from './control-queue.js'
import { Counters } from './counters.js'
import { publishFailover, publishLog } from './diagnostics.js'
import { proxyErrors, UnknownTargetError } from './errors.js'
import {
  Failover,
  type FailoverHost,
  type FailoverOptions,
  type FailoverReport,
  type FailoverStep,
} from './failover.js'
import { Gate } from './gate.js'
import type { Lane } from './lane.js'
import type { ResolvedLimits } from './limits.js'
import { LearnCredentials } from './learn-credentials.js'
import { Logins } from './login.js'
import type { WatchedValue } from './monitor.js'
import {
  type Embedded,
  type ProxyOptions,
  type ResolvedOptions,
  type ResolvedTarget,
  resolveOptions,
  targetAt,
} from './options.js'
import { Pulse, type PulseHost } from './pulse.js'
import { QueryCredentials } from './query-credentials.js'
import type { ReadRules } from './routing.js'
import { proxyStats, type ProxyStats } from './stats.js'
import { Target, type TargetOwner } from './target.js'
import { WatchRelay } from './watch-relay.js'

/** Where masters become known: a replicaset is one, its instance ids being names of targets. */
export interface MasterSource {
  changes(): AsyncIterable<{ readonly master: string | undefined }>
}

/**
 * A proxy: clients connect to it as to a server, and do not see which instance answers, nor that another one does later.
 * It elects nobody: the master is who it is told.
 */
export interface Proxy extends Embedded {
  /**
   * Accepts clients at an address; without one, at those of the options. May be called several times.
   * @returns the (last) address in use: with port 0 the one the system chose
   * @throws the system's error when an address cannot be taken; nothing of this call stays open then
   */
  listen(address?: Address | string): Promise<Address>
  /** The client's end of a connection without a socket. */
  connect(): Transport
  /**
   * Changes the master at once, for requests that are not sent yet; what is in flight ends where it is. For instances that
   * are all writable; where one has to stop writing first, `failOverTo` is the safe way. Waits its turn behind a failover.
   * @param target - a name of the options, or an address, which becomes a target by that name
   * @throws UnknownTargetError
   */
  setRw(target: string): void
  /** Changes who serves reads. @throws UnknownTargetError */
  setRo(targets: readonly string[]): void
  /**
   * Changes the master safely: requests wait while those in flight end, the old master is demoted and the new one promoted
   * by the given callbacks, and go on at the new one. A second call for the same target joins the first, for another it waits.
   * @throws TargetUnavailableError when the target cannot be used (nothing was paused), FailoverError with a report otherwise
   */
  failOverTo(target: string, options?: FailoverOptions): Promise<FailoverReport>
  /** Requests for the master wait from now on, within the limits of `pauseMax…`. */
  pause(): void
  /** They go on. During a failover: cancels it, while its old master can still write. */
  resume(): void
  /** Lets the master follow a source until the returned function is called. Nothing follows anything by itself. */
  follow(source: MasterSource): () => void
  /** What it is doing, in numbers. */
  stats(): ProxyStats
  /**
   * Ends: no new clients; those that watch `box.shutdown` are told, the others may finish; after `graceMs` (default 10,000)
   * what is left is answered with error 279 and closed. Idempotent.
   */
  close(options?: { readonly graceMs?: number }): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

/** @throws ConfigError with all problems of the options */
export function createProxy(options: ProxyOptions = {}): Proxy {
  return new ProxyShell(resolveOptions(options))
}

class ProxyShell implements Proxy, ClientHost, TargetOwner, FailoverHost, PulseHost, SessionHandler {
  readonly environment: Environment
  readonly limits: ResolvedLimits
  readonly counters: Counters = new Counters()
  readonly gate: Gate
  readonly relay: WatchRelay
  readonly rules: ReadRules
  readonly logins: Logins
  readonly authenticator: Authenticator
  isPauseFull = false
  readonly #options: ResolvedOptions
  readonly #credentials: CredentialSource
  readonly #targets = new Map<string, Target>()
  readonly #clients = new Map<ClientSession, Client>()
  readonly #server: Server
  readonly #control = new ControlQueue()
  readonly #pulse: Pulse
  readonly #listeners: SocketListener[] = []
  #rw: Target | undefined
  #ro: readonly Target[] = []
  #epoch = 0
  #failover: { readonly run: Failover; readonly report: Promise<FailoverReport> } | undefined
  #isHeldByHand = false
  #isHeldByFailover = false
  #isStarted = false
  #isEnding = false
  #isRefusing = false
  #closed: Promise<void> | undefined
  #whenEmpty: (() => void) | undefined
  #turn = 0
  #lastSchemaVersion = 1

  constructor(options: ResolvedOptions) {
    const { limits, environment } = options
    const { clock } = environment
    this.#options = options
    this.environment = environment
    this.limits = limits
    this.rules = options.rules
    this.gate = new Gate({ clock, perTurn: limits.resumeConcurrency })
    this.relay = new WatchRelay({ maxEventBytes: limits.maxEventBytes })
    this.logins = new Logins({
      clock,
      forgetAfterMs: limits.forgetAfterMs,
      onForgotten: (login) => {
        for (const target of this.targets()) target.forget(login, new Error('its login is not used any more'))
      },
    })
    this.#credentials = this.#credentialSource(options)
    this.authenticator = new Authenticator({
      clock,
      logins: this.logins,
      credentials: this.#credentials,
      verify: options.verify,
      verifyTtlMs: limits.verifyTtlMs,
      waitMs: limits.connectWaitMs,
      target: () => this.#rw,
    })
    this.#server = createServer({
      handler: this,
      environment,
      limits: {
        maxSessions: limits.maxClients,
        maxFrameBytes: limits.maxFrameBytes,
        maxFrameBytesBeforeLogin: limits.maxFrameBytesBeforeLogin,
        maxPendingBytes: limits.clientOutSoftBytes,
        stallTimeoutMs: limits.stallTimeoutMs,
        frameTimeoutMs: limits.frameTimeoutMs,
        maxMalformedFrames: limits.maxMalformedFrames,
      },
    })
    this.#pulse = new Pulse(this)
    for (const [name, definition] of options.targets) this.#addTarget(name, definition)
    if (options.rw !== undefined) this.switchTo(this.#target(options.rw))
    this.#ro = options.ro.map((name) => this.#target(name))
  }

  get clock(): Clock {
    return this.environment.clock
  }

  // ---- what users call ----------------------------------------------------------------------------------------------

  async listen(address?: Address | string): Promise<Address> {
    const addresses = address === undefined ? this.#options.listen : [addressOf(address)]
    if (addresses.length === 0) {
      const message = 'is empty: give an address to listen() or in the options'
      throw new ConfigError([{ path: 'listen', message }], { subject: 'proxy' })
    }
    const opened: SocketListener[] = []
    try {
      for (const one of addresses) opened.push(await listen(one, (transport) => this.#server.accept(transport)))
      if (this.#isEnding) throw new Error('The proxy was closed while it began to listen')
    } catch (error) {
      await Promise.all(opened.map((listener) => listener.close()))
      throw error
    }
    this.#listeners.push(...opened)
    this.#start()
    return opened.at(-1)!.address
  }

  connect(): Transport {
    const [client, server] = transportPair(this.clock)
    this.#start()
    this.#server.accept(server)
    return client
  }

  setRw(name: string): void {
    const target = this.#target(name)
    if (this.#control.isIdle) this.switchTo(target)
    else void this.#control.run(() => Promise.resolve(this.switchTo(target)))
  }

  setRo(names: readonly string[]): void {
    this.#ro = names.map((name) => this.#target(name))
    for (const client of this.#clients.values()) client.reconsider()
  }

  async failOverTo(name: string, options: FailoverOptions = {}): Promise<FailoverReport> {
    const target = this.#target(name)
    this.#start()
    const running = this.#failover
    if (running?.run.to === target) return running.report
    return this.#control.run(async () => {
      const run = new Failover(target, options, this.#options.failover, this)
      const report = run.run()
      this.#failover = { run, report }
      this.counters.failovers++
      try {
        return await report
      } finally {
        this.#failover = undefined
      }
    })
  }

  pause(): void {
    this.#isHeldByHand = true
    this.#updateGate()
  }

  resume(): void {
    this.#isHeldByHand = false
    this.#failover?.run.cancel()
    this.#updateGate()
  }

  follow(source: MasterSource): () => void {
    const changes = source.changes()[Symbol.asyncIterator]()
    const stop = new AbortController()
    const run = async (): Promise<void> => {
      for (let next = await changes.next(); next.done !== true; next = await changes.next()) {
        if (stop.signal.aborted) return
        const { master } = next.value
        if (master !== undefined && this.#targets.has(master) && this.#rw?.name !== master) this.setRw(master)
      }
    }
    run().catch((error: unknown) => publishLog('error', 'follow_failed', { message: String(error) }))
    return () => {
      stop.abort()
      changes.return?.().catch((error: unknown) => publishLog('error', 'follow_failed', { message: String(error) }))
    }
  }

  stats(): ProxyStats {
    return proxyStats({
      counters: this.counters,
      clients: [...this.#clients.values()],
      sessions: this.#server.sessionCount,
      targets: this.targets(),
      rw: this.#rw,
      ro: this.#ro,
      epoch: this.#epoch,
      gate: this.gate,
      relay: this.relay,
    })
  }

  close(options: { readonly graceMs?: number } = {}): Promise<void> {
    this.#closed ??= this.#close(options.graceMs ?? DEFAULT_GRACE_MS)
    return this.#closed
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  // ---- sessions -----------------------------------------------------------------------------------------------------

  async greet(): Promise<{ version: string; uuid: string; salt: Uint8Array }> {
    await this.#settled()
    const version = this.#options.version ?? lowestVersion(this.#usable()) ?? DEFAULT_VERSION
    const salt = (await this.#credentials.salt?.()) ?? randomBytes(SALT_BYTES)
    const uuid = this.#options.uuid === 'target' ? (this.#rw?.uuid ?? ZERO_UUID) : this.#options.uuid
    return { version, uuid, salt }
  }

  opened(session: ClientSession): void {
    this.counters.clientsAccepted++
    this.#credentials.claim?.(session.salt)
    this.#clients.set(session, new Client(session, this))
  }

  frame(session: ClientSession, frame: InboundFrame): void {
    this.#clients.get(session)?.frame(frame)
  }

  closed(session: ClientSession, cause: Error | undefined): void {
    this.relay.drop(session)
    this.#credentials.release?.(session.salt)
    this.#clients.get(session)?.gone(cause === undefined)
  }

  // ---- what clients need --------------------------------------------------------------------------------------------

  get rw(): Target | undefined {
    return this.#rw
  }

  get schemaVersion(): number {
    const version = this.#rw?.schemaVersion ?? 0
    // Never 0: a client takes that for "not known", and anything else it has not seen for a change.
    if (version !== 0) this.#lastSchemaVersion = version
    return this.#lastSchemaVersion
  }

  get forwardUnknown(): boolean {
    return this.#options.forwardUnknown
  }

  get isRefusing(): boolean {
    return this.#isRefusing
  }

  readTarget(bound: Lane | undefined, features: ReadonlySet<number>): Target | undefined {
    if (bound?.isOpen === true && this.#ro.includes(bound.target)) return bound.target
    const fit = this.#ro.filter((target) => target.state === 'up' && target.lacks(features) === undefined)
    if (fit.length === 0) return undefined
    // Least in flight for its weight; those that are equal take turns.
    this.#turn++
    let best: Target | undefined
    let least = Number.POSITIVE_INFINITY
    for (let i = 0; i < fit.length; i++) {
      const target = fit[(this.#turn + i) % fit.length]!
      const load = target.inFlight / target.weight
      if (load >= least) continue
      best = target
      least = load
    }
    return best
  }

  async agreement(): Promise<Agreement | undefined> {
    await this.#settled()
    return agreementOf(this.#usable().flatMap((target) => (target.features === undefined ? [] : [target.features])))
  }

  weightOf(user: string): number {
    return this.#options.weights[user] ?? 1
  }

  isSessionMode(user: string): boolean {
    return this.#options.modes[user] === 'session'
  }

  mayPin(): boolean {
    let pinned = 0
    for (const client of this.#clients.values()) if (client.pin !== undefined) pinned++
    return pinned < this.limits.maxPinned
  }

  mayLogIn(user: string): boolean {
    return this.logins.clientsOf(user) <= this.limits.maxClientsPerUser
  }

  eachLane(visit: (lane: Lane) => void): void {
    for (const target of this.targets()) for (const lane of target.lanes()) visit(lane)
  }

  clientLeft(client: Client): void {
    this.#clients.delete(client.session)
    this.logins.release(client.login)
    if (this.#clients.size === 0) this.#whenEmpty?.()
  }

  // ---- what targets report ------------------------------------------------------------------------------------------

  targetChanged(target: Target): void {
    publishLog('info', 'target_changed', { target: target.name, state: target.state, isReadonly: target.isReadonly })
    this.#failover?.run.poke()
    if (target === this.#rw) this.#updateGate()
  }

  targetEvent(target: Target, key: string, value: WatchedValue, isFirst: boolean): void {
    this.relay.event(target.monitor, key, value, isFirst)
  }

  targetQuiet(): void {
    this.#failover?.run.poke()
  }

  laneOpened(lane: Lane, target: Target): void {
    this.counters.lanesOpened++
    publishLog('debug', 'lane_opened', { target: target.name, lane: lane.id })
  }

  laneClosed(lane: Lane, target: Target, cause: Error): void {
    this.counters.lanesClosed++
    publishLog('debug', 'lane_closed', { target: target.name, lane: lane.id, why: cause.message })
  }

  // ---- what a failover needs ----------------------------------------------------------------------------------------

  get epoch(): number {
    return this.#epoch
  }

  get totals(): { unknownOutcomes: number; brokenStreams: number } {
    return { unknownOutcomes: this.counters.unknownOutcomes, brokenStreams: this.counters.streamsBroken }
  }

  get buffered(): { requests: number; bytes: number } {
    this.gate.measure()
    return this.gate.peak
  }

  holdRequests(): void {
    this.#isHeldByFailover = true
    this.#updateGate()
  }

  releaseRequests(): void {
    this.#isHeldByFailover = false
    this.#updateGate()
  }

  clientsLacking(target: Target): number[] {
    return [...this.#clients.values()]
      .filter((client) => target.lacks(client.session.features) !== undefined)
      .map((client) => client.session.id)
  }

  closeClients(ids: readonly number[]): void {
    for (const session of this.#clients.keys()) if (ids.includes(session.id)) session.close()
  }

  probeStreams(): void {
    for (const client of this.#clients.values()) client.streams.probe()
  }

  switchTo(target: Target): void {
    if (target === this.#rw) return
    this.#rw = target
    this.#epoch++
    this.relay.follow(target.monitor)
    for (const client of this.#clients.values()) client.masterChanged()
    this.#updateGate()
  }

  stepChanged(step: FailoverStep, from: Target | undefined, to: Target): void {
    publishFailover({ step, from: from?.name, to: to.name, epoch: this.#epoch })
  }

  // ---- what the pulse looks after -----------------------------------------------------------------------------------

  targets(): readonly Target[] {
    return [...this.#targets.values()]
  }

  clients(): Iterable<Client> {
    return this.#clients.values()
  }

  // ---- inside -------------------------------------------------------------------------------------------------------

  #start(): void {
    if (this.#isStarted || this.#isEnding) return
    this.#isStarted = true
    for (const target of this.#targets.values()) target.start()
    this.#pulse.start()
  }

  /** Resolves when it is known whether the master can be reached, or after a while: clients need not wait longer for that. */
  async #settled(): Promise<void> {
    const rw = this.#rw
    if (rw === undefined) return
    let cancel: (() => void) | undefined
    const patience = new Promise<void>((resolve) => {
      cancel = this.clock.schedule(this.limits.connectWaitMs, resolve)
    })
    await Promise.race([rw.settled(), patience])
    cancel?.()
  }

  #credentialSource({ credentials, limits, environment }: ResolvedOptions): CredentialSource {
    switch (credentials.mode) {
      case 'static':
        return staticCredentials(credentials.users)
      case 'query':
        return new QueryCredentials({
          environment,
          user: credentials.user,
          password: credentials.password,
          ttlMs: credentials.credentialTtlMs ?? DEFAULT_CREDENTIAL_TTL_MS,
          timeoutMs: limits.connectWaitMs,
          address: () => this.#rw?.address,
        })
      case 'learn':
        return new LearnCredentials({
          clock: environment.clock,
          waitMs: limits.connectWaitMs,
          open: () => this.#rw?.openLane(undefined, []) ?? Promise.reject(proxyErrors.noTarget()),
        })
    }
  }

  /** Targets that clients may come to be served by. */
  #usable(): Target[] {
    const roles = new Set([this.#rw, ...this.#ro])
    return [...roles].filter((target) => target !== undefined)
  }

  /** @throws UnknownTargetError */
  #target(name: string): Target {
    return this.#targets.get(name) ?? this.#addTarget(name, this.#addressed(name))
  }

  /** An address in the place of a name is a target of its own. */
  #addressed(name: string): ResolvedTarget {
    const unknown = new UnknownTargetError(name, [...this.#targets.keys()])
    if (!/[:/]|^\d+$/.test(name)) throw unknown
    try {
      return targetAt(name)
    } catch (error) {
      if (!isOrbweaverError(error)) throw error
      unknown.cause = error
      throw unknown
    }
  }

  #addTarget(name: string, definition: ResolvedTarget): Target {
    const target = new Target(name, definition, this)
    this.#targets.set(name, target)
    if (this.#isStarted) target.start()
    return target
  }

  /** Requests wait while somebody wants them to, or while the master is about to stop. */
  #updateGate(): void {
    const isHeld = this.#isHeldByHand || this.#isHeldByFailover || (this.#rw?.state === 'stopping' && !this.#isEnding)
    if (isHeld === this.gate.isClosed) return
    if (!isHeld) {
      this.gate.open()
      return
    }
    this.gate.close()
    for (const client of this.#clients.values()) client.reconsider()
  }

  async #close(graceMs: number): Promise<void> {
    this.#isEnding = true
    await Promise.all(this.#listeners.map((listener) => listener.close()))
    this.relay.announceShutdown()
    const isEmpty = new Promise<void>((resolve) => {
      this.#whenEmpty = resolve
      if (this.#clients.size === 0) resolve()
    })
    if (graceMs > 0) await this.#graceOver(isEmpty, graceMs)
    this.#isRefusing = true
    for (const client of this.#clients.values()) client.refuseWaiting()
    const why = new Error('the proxy was closed')
    for (const target of this.targets()) target.close(why)
    this.#pulse.stop()
    // Lanes report their end in a turn of their own, and what is lost with them is answered then.
    await new Promise<void>((resolve) => this.clock.soon(() => this.clock.soon(resolve)))
    await this.#server.close()
    this.#credentials.close?.()
    this.logins.close()
  }

  async #graceOver(isEmpty: Promise<void>, graceMs: number): Promise<void> {
    const cancels: (() => void)[] = []
    const isOver = new Promise<void>((resolve) => cancels.push(this.clock.schedule(graceMs, resolve)))
    const closeIdle = (): void => {
      for (const client of this.#clients.values()) {
        if (client.isIdle && !client.streams.isBusy && !this.relay.watchesShutdown(client.session))
          client.session.close()
      }
      cancels.push(this.clock.schedule(IDLE_CLOSE_MS, closeIdle))
    }
    cancels.push(this.clock.schedule(IDLE_CLOSE_MS, closeIdle))
    await Promise.race([isEmpty, isOver])
    for (const cancel of cancels) cancel()
  }
}

function addressOf(address: Address | string): Address {
  return typeof address === 'string' ? parseAddress(address) : address
}

/** Clients decide by the version what to send: the lowest is right for all targets. */
function lowestVersion(targets: readonly Target[]): string | undefined {
  const versions = targets.flatMap(({ version }) => (version === undefined ? [] : [version]))
  return versions.toSorted((a, b) => versionOrder(a) - versionOrder(b))[0]
}

function versionOrder(version: string): number {
  const [major = 0, minor = 0, patch = 0] = version.split(/[.-]/).map(Number)
  return (major * 1_000 + minor) * 1_000 + patch
}

const SALT_BYTES = 32
const ZERO_UUID = '00000000-0000-0000-0000-000000000000'
const DEFAULT_CREDENTIAL_TTL_MS = 30_000
/** For clients that come before any target was reached. */
const DEFAULT_VERSION = '2.11.0'
const DEFAULT_GRACE_MS = 10_000
/** How long an ending proxy leaves clients that do nothing. */
const IDLE_CLOSE_MS = 1_000
