import { randomBytes } from 'node:crypto'
import {
  type Address,
  type Clock,
  type Environment,
  formatAddress,
  parseListenAddress,
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
import { type Admin, type AdminSubject, openAdmin } from './admin.js'
import { agreementOf, type Agreement } from './agreement.js'
import { Authenticator, type CredentialSource, staticCredentials } from './auth.js'
import { Balancer } from './balancing.js'
import { Bouncer, type BouncerParts } from './bounce.js'
import { Client } from './client.js'
import type { ClientHost } from './client-host.js'
import { ControlQueue } from './control-queue.js'
import { Counters } from './counters.js'
import { publishFailover, publishLog } from './diagnostics.js'
import { proxyErrors, UnknownTargetError } from './errors.js'
import {
  Failover,
  FailoverError,
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
import { planReconfiguration, type ReconfigurationPlan, type ReconfigurationReport } from './reconfiguration.js'
import {
  type CredentialOptions,
  type Embedded,
  type ProxyOptions,
  type ResolvedOptions,
  type ResolvedTarget,
  resolveOptions,
  targetAt,
} from './options.js'
import { Pulse, type PulseHost } from './pulse.js'
import { QueryCredentials } from './query-credentials.js'
import type { MetricsPage } from './metrics.js'
import type { FunctionNames, ReadRules } from './routing.js'
import { errorReply } from './reply.js'
import { RouterService, type ServedRouter, type ServeOptions } from './serve.js'
import { type Listener, type ListenOptions, type ListenerOwner, openListener } from './listener.js'
import { proxyStats, type ProxyStats } from './stats.js'
import { clientStatus, type ClientStatus, laneStatus, type LaneStatus } from './status.js'
import { Target, type TargetOwner } from './target.js'
import { TurnClock } from './turn-clock.js'
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
  /**
   * Changes the configuration without dropping clients: what is the same stays untouched, a target at a new address gets new
   * lanes while the old ones finish, limits and rules count from the next request, credentials from the next login. An rw
   * that differs is changed as by `setRw`; absent, the master stays. Everything is checked before anything is done.
   * @throws ConfigError with all problems, also when the master or (without `force`) a target with open transactions is removed
   */
  reconfigure(options: ProxyOptions, how?: { readonly force?: boolean }): Promise<ReconfigurationReport>
  /**
   * Answers calls of `vshard.router.callrw` and its kin, `map_callrw` and `bucket_id…` by a router in this process, until the returned
   * function is called: for clients that know routers by their Lua names.
   */
  serve(router: ServedRouter, options: ServeOptions): () => void
  /** What it is doing, in numbers. */
  stats(): ProxyStats
  /** Its clients one by one, the oldest first. @param limit - default: all */
  clients(limit?: number): readonly ClientStatus[]
  /** Its connections to targets, one by one. */
  lanes(): readonly LaneStatus[]
  /** Ends a client. @param client - its `id` @returns whether there was one */
  kill(client: number): boolean
  /** For Prometheus, as it is now. Figures of requests need `isMetered`. */
  metrics(): Promise<MetricsPage>
  /** Where clients are accepted: with port 0 those that the system chose. */
  readonly addresses: readonly Address[]
  /** Where the door for operators is; undefined: there is none, or `listen` was not called yet. */
  readonly adminAddress: Address | undefined
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

class ProxyShell
  implements
    Proxy,
    ClientHost,
    BouncerParts,
    TargetOwner,
    FailoverHost,
    PulseHost,
    SessionHandler,
    AdminSubject,
    ListenerOwner
{
  readonly environment: Environment
  limits: ResolvedLimits
  readonly counters: Counters = new Counters()
  readonly gate: Gate
  readonly relay: WatchRelay
  rules: ReadRules
  readonly logins: Logins
  authenticator: Authenticator
  bouncer: Bouncer | undefined
  isPauseFull = false
  #options: ResolvedOptions
  #credentials: CredentialSource
  readonly #targets = new Map<string, Target>()
  readonly #clients = new Map<ClientSession, Client>()
  /** The client of the last frame. */
  #speaking: Client | undefined
  readonly #server: Server
  readonly #control = new ControlQueue()
  readonly #pulse: Pulse
  routerService: RouterService | undefined
  readonly isMetered: boolean
  #metrics: (() => Promise<MetricsPage>) | undefined
  #admin: Admin | undefined
  #balancer: Balancer
  /** Transports, and salts of sessions, of listeners whose clients go straight to the master. */
  readonly #direct = new WeakSet<Transport | Uint8Array>()
  /** Clients by the host they come from. */
  readonly #byHost = new Map<string, number>()
  #listeners: Listener[] = []
  /** Addresses as they were asked for: with port 0 others than those in use. */
  readonly #asked = new WeakMap<Listener, string>()
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
  #lastSchemaVersion = 1

  constructor(options: ResolvedOptions) {
    const { limits } = options
    const clock = new TurnClock(options.environment.clock)
    const environment = { ...options.environment, clock }
    this.#options = options
    this.environment = environment
    this.limits = limits
    this.rules = options.rules
    this.isMetered = options.isMetered
    this.#balancer = new Balancer(options.balance, environment.random)
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
    this.authenticator = this.#authenticatorOf(options)
    this.bouncer = options.bounce === undefined ? undefined : new Bouncer(options.bounce, this)
    this.#server = createServer({
      handler: this,
      // Its turns are measured by the time itself.
      environment: options.environment,
      limits: {
        // Surplus clients are told why before they are closed.
        maxSessions: limits.maxClients + MAX_SURPLUS,
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
    const addresses: readonly ListenOptions[] = address === undefined ? this.#options.listen : [addressOf(address)]
    if (addresses.length === 0) {
      const message = 'is empty: give an address to listen() or in the options'
      throw new ConfigError([{ path: 'listen', message }], { subject: 'proxy' })
    }
    const opened = await this.#open(addresses)
    try {
      await this.#openAdmin()
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
        const { outcome } = await report
        this.counters.tally.add('failover_total', { outcome })
        return await report
      } catch (error) {
        const outcome = error instanceof FailoverError ? error.report.outcome : 'refused'
        this.counters.tally.add('failover_total', { outcome })
        throw error
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

  serve(router: ServedRouter, options: ServeOptions): () => void {
    const service = new RouterService(router, options)
    this.routerService = service
    return () => {
      if (this.routerService === service) this.routerService = undefined
    }
  }

  async reconfigure(options: ProxyOptions, how: { readonly force?: boolean } = {}): Promise<ReconfigurationReport> {
    const next = resolveOptions({ ...options, environment: this.environment })
    return this.#control.run(async () => {
      const plan = planReconfiguration(this.#options, next)
      if (plan.changes.length === 0) return { changes: [] }
      this.#checkRemovals(plan, next, how.force === true)
      this.#checkDoors(plan)
      const opened = this.#listeners.length > 0 ? await this.#open(plan.listenersAdded) : []
      this.#apply(plan, next)
      this.#listeners.push(...opened)
      const isRemoved = (listener: Listener): boolean => plan.listenersRemoved.includes(this.#asked.get(listener) ?? '')
      await Promise.all(this.#listeners.filter(isRemoved).map((listener) => listener.close()))
      this.#listeners = this.#listeners.filter((listener) => !isRemoved(listener))
      publishLog('info', 'reconfigured', { changes: plan.changes })
      return { changes: plan.changes }
    })
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
      bounces: this.bouncer?.bounces ?? 0,
    })
  }

  clients(limit: number = Number.POSITIVE_INFINITY): readonly ClientStatus[] {
    const statuses: ClientStatus[] = []
    for (const client of this.#clients.values()) {
      if (statuses.length >= limit) break
      statuses.push(clientStatus(client))
    }
    return statuses
  }

  lanes(): readonly LaneStatus[] {
    return this.targets().flatMap((target) =>
      target
        .groups()
        .flatMap(({ lanes, login, isShared }) => lanes.map((lane) => laneStatus(lane, login.user, isShared))),
    )
  }

  kill(id: number): boolean {
    for (const session of this.#clients.keys()) {
      if (session.id !== id) continue
      session.destroy(new Error('An operator ended it'))
      return true
    }
    return false
  }

  async metrics(): Promise<MetricsPage> {
    // Loaded when somebody asks: most proxies in a process of somebody else's never need it.
    const { proxyMetrics } = await import('./metrics.js')
    this.#metrics ??= proxyMetrics({
      counters: this.counters,
      stats: () => this.stats(),
      clients: () => this.clients(),
      lanes: () => this.lanes(),
      meters: () => this.targets().flatMap(({ name, meter }) => (meter === undefined ? [] : [{ target: name, meter }])),
    })
    return this.#metrics()
  }

  get addresses(): readonly Address[] {
    return this.#listeners.map(({ address }) => address)
  }

  get adminAddress(): Address | undefined {
    return this.#admin?.address
  }

  close(options: { readonly graceMs?: number } = {}): Promise<void> {
    this.#closed ??= this.#close(options.graceMs ?? DEFAULT_GRACE_MS)
    return this.#closed
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  // ---- sessions -----------------------------------------------------------------------------------------------------

  async greet(transport: Transport): Promise<{ version: string; uuid: string; salt: Uint8Array }> {
    await this.#settled()
    const version = this.#options.version ?? lowestVersion(this.#usable()) ?? DEFAULT_VERSION
    const salt = (await this.#credentials.salt?.()) ?? randomBytes(SALT_BYTES)
    // The salt is what greeting and session have in common.
    if (this.#direct.has(transport)) this.#direct.add(salt)
    const uuid = this.#options.uuid === 'target' ? (this.#rw?.uuid ?? ZERO_UUID) : this.#options.uuid
    return { version, uuid, salt }
  }

  opened(session: ClientSession): void {
    this.counters.clientsAccepted++
    this.#credentials.claim?.(session.salt)
    const host = hostOf(session.peer)
    const { maxClients, maxClientsPerAddress } = this.limits
    const isSurplus = this.#clients.size >= maxClients
    if (isSurplus || (host !== undefined && (this.#byHost.get(host) ?? 0) >= maxClientsPerAddress)) {
      this.counters.tally.add('client_connections_total', { result: 'limit' })
      const error = proxyErrors.tooManyClients(
        isSurplus ? `${maxClients} clients` : `${maxClientsPerAddress} clients from one address`,
      )
      session.reply(errorReply({ syncHigh: 0, syncLow: 0 }, this.schemaVersion, error))
      session.close()
      return
    }
    this.counters.tally.add('client_connections_total', { result: 'ok' })
    if (host !== undefined) this.#byHost.set(host, (this.#byHost.get(host) ?? 0) + 1)
    this.#clients.set(session, new Client(session, this, this.#direct.has(session.salt)))
  }

  accept(transport: Transport, from: ListenOptions): void {
    if (from.isDirect === true) this.#direct.add(transport)
    this.#server.accept(transport)
  }

  refused(peer: string, cause: Error): void {
    this.counters.tally.add('client_connections_total', { result: 'refused' })
    publishLog('warn', 'connection_refused', { peer, why: cause.message })
  }

  frame(session: ClientSession, frame: InboundFrame): void {
    // Frames come many of one session in a row.
    if (session !== this.#speaking?.session) this.#speaking = this.#clients.get(session)
    this.#speaking?.frame(frame)
  }

  drain(session: ClientSession): void {
    this.#clients.get(session)?.drained()
  }

  closed(session: ClientSession, cause: Error | undefined): void {
    this.#credentials.release?.(session.salt)
    const client = this.#clients.get(session)
    if (client !== undefined) this.relay.drop(client)
    client?.gone(cause === undefined)
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

  get isHeld(): boolean {
    return this.gate.isClosed
  }

  target(name: string): Target | undefined {
    return this.#targets.get(name)
  }

  get connectWaitMs(): number {
    return this.limits.connectWaitMs
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
    return this.#balancer.pick(fit, this.clock.now())
  }

  get pinnedFunctions(): FunctionNames {
    return this.#options.pinned
  }

  get retriesReads(): boolean {
    return this.#options.retriesReads
  }

  get rejectsWhenReadonly(): boolean {
    return this.#options.rejectWhenReadOnly
  }

  get loginMode(): string {
    return this.#options.credentials.mode
  }

  mayRebind(user: string): boolean {
    return this.#options.onFailover[user] === 'rebind'
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
    if (this.#speaking === client) this.#speaking = undefined
    this.logins.release(client.login)
    const host = hostOf(client.session.peer)
    const others = host === undefined ? 0 : (this.#byHost.get(host) ?? 0) - 1
    if (host !== undefined) {
      if (others > 0) this.#byHost.set(host, others)
      else this.#byHost.delete(host)
    }
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
    this.counters.tally.add('lane_opens_total', { target: target.name })
    publishLog('debug', 'lane_opened', { target: target.name, lane: lane.id })
  }

  laneClosed(lane: Lane, target: Target, cause: Error): void {
    this.counters.lanesClosed++
    this.counters.tally.add('lane_closes_total', { target: target.name })
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

  everyClient(): Iterable<Client> {
    return this.#clients.values()
  }

  // ---- inside -------------------------------------------------------------------------------------------------------

  #start(): void {
    if (this.#isStarted || this.#isEnding) return
    this.#isStarted = true
    for (const target of this.#targets.values()) target.start()
    this.#pulse.start()
  }

  /** All of these addresses, or none. */
  async #open(addresses: readonly ListenOptions[]): Promise<Listener[]> {
    const opened: Listener[] = []
    try {
      for (const address of addresses) {
        const listener = await openListener(address, this)
        this.#asked.set(listener, formatAddress(address))
        opened.push(listener)
      }
      if (this.#isEnding) throw new Error('The proxy was closed while it began to listen')
      return opened
    } catch (error) {
      await Promise.all(opened.map((listener) => listener.close()))
      throw error
    }
  }

  async #openAdmin(): Promise<void> {
    const { admin } = this.#options
    if (admin !== undefined && this.#admin === undefined && !this.#isEnding) this.#admin = await openAdmin(admin, this)
  }

  /** @throws ConfigError */
  #checkRemovals({ targetsRemoved }: ReconfigurationPlan, next: ResolvedOptions, force: boolean): void {
    const problems = targetsRemoved.flatMap((name) => {
      const path = `targets.${name}`
      if (name === (next.rw ?? this.#rw?.name)) return [{ path, message: 'is the master: set another one first' }]
      const target = this.#targets.get(name)
      const isBusy = target !== undefined && [...target.lanes()].some((lane) => lane.transactions > 0)
      return isBusy && !force ? [{ path, message: 'has open transactions; they would be broken (force)' }] : []
    })
    if (problems.length > 0) throw new ConfigError(problems, { subject: 'proxy' })
  }

  /** @throws ConfigError for what cannot be changed while it is in use */
  #checkDoors({ changes, listenersRenewed }: ReconfigurationPlan): void {
    const problems = listenersRenewed
      .filter((options) => this.#listenerAt(options)?.renew === undefined && this.#listenerAt(options) !== undefined)
      .map((options) => ({
        path: `listen ${formatAddress(options)}`,
        message: 'cannot begin or cease to be a plain one at the same address: list another address, or restart',
      }))
    if (changes.includes('admin'))
      problems.push({ path: 'admin', message: 'is read at the start only: restart to change it' })
    if (problems.length > 0) throw new ConfigError(problems, { subject: 'proxy' })
  }

  #listenerAt(options: ListenOptions): Listener | undefined {
    return this.#listeners.find((listener) => this.#asked.get(listener) === formatAddress(options))
  }

  #apply(plan: ReconfigurationPlan, next: ResolvedOptions): void {
    const rwName = next.rw ?? this.#rw?.name
    const before = this.#options
    this.#options = next
    this.limits = next.limits
    this.rules = next.rules
    this.#balancer = new Balancer(next.balance, this.environment.random)
    for (const options of plan.listenersRenewed) this.#listenerAt(options)?.renew?.(options)
    const left = [...plan.targetsMoved, ...plan.targetsRemoved].flatMap((name) => this.#targets.get(name) ?? [])
    for (const target of left) this.#targets.delete(target.name)
    for (const name of [...plan.targetsAdded, ...plan.targetsMoved]) this.#addTarget(name, next.targets.get(name)!)
    if (plan.changes.includes('credentials') || plan.changes.includes('verify')) {
      this.#credentials.close?.()
      this.#credentials = this.#credentialSource(next)
    }
    this.authenticator = this.#authenticatorOf(next)
    if (next.bounce !== before.bounce)
      this.bouncer = next.bounce === undefined ? undefined : new Bouncer(next.bounce, this)
    if (plan.changes.includes('ro') || left.length > 0) this.#ro = next.ro.map((name) => this.#target(name))
    // A master set by hand stays unless the configuration names another one than before.
    const isRwLeft = this.#rw !== undefined && left.includes(this.#rw)
    if (rwName !== undefined && (isRwLeft || next.rw !== before.rw)) this.switchTo(this.#target(rwName))
    this.#evictChangedUsers(before.credentials, next.credentials)
    for (const client of this.#clients.values()) client.reconsider()
    for (const target of left) target.retire(new Error(`target ${target.name} is configured no longer`))
  }

  #evictChangedUsers(before: CredentialOptions, next: CredentialOptions): void {
    if (next.mode !== 'static' || next.evictChangedUsers !== true || before.mode !== 'static') return
    for (const session of this.#clients.keys()) {
      const { user } = session
      if (user !== 'guest' && before.users[user] !== next.users[user]) session.close()
    }
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

  #authenticatorOf({ verify, limits, environment }: ResolvedOptions): Authenticator {
    return new Authenticator({
      clock: environment.clock,
      logins: this.logins,
      credentials: this.#credentials,
      verify,
      verifyTtlMs: limits.verifyTtlMs,
      waitMs: limits.connectWaitMs,
      target: () => this.#rw,
    })
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
      case 'storage':
        return { hash2: (user) => this.#rw?.embedded?.hash2?.(user) }
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
    this.#failover?.run.cancel()
    for (const client of this.#clients.values()) client.refuseWaiting()
    const why = new Error('the proxy was closed')
    for (const target of this.targets()) target.close(why)
    this.#pulse.stop()
    // Lanes report their end in a turn of their own, and what is lost with them is answered then.
    await new Promise<void>((resolve) => this.clock.soon(() => this.clock.soon(resolve)))
    await this.#server.close()
    this.#credentials.close?.()
    this.logins.close()
    await this.#admin?.close()
  }

  async #graceOver(isEmpty: Promise<void>, graceMs: number): Promise<void> {
    const cancels: (() => void)[] = []
    const isOver = new Promise<void>((resolve) => cancels.push(this.clock.schedule(graceMs, resolve)))
    const closeIdle = (): void => {
      for (const client of this.#clients.values()) {
        if (client.isIdle && !client.streams.isBusy && !this.relay.watchesShutdown(client)) client.session.close()
      }
      cancels.push(this.clock.schedule(IDLE_CLOSE_MS, closeIdle))
    }
    cancels.push(this.clock.schedule(IDLE_CLOSE_MS, closeIdle))
    await Promise.race([isEmpty, isOver])
    for (const cancel of cancels) cancel()
  }
}

/** The host of `1.2.3.4:5` or `[::1]:5`; undefined for what has none. */
function hostOf(peer: string): string | undefined {
  return /^(?:\[([^\]]+)\]|([^/:]+)):\d+$/
    .exec(peer)
    ?.slice(1)
    .find((host) => host !== undefined)
}

function addressOf(address: Address | string): Address {
  return typeof address === 'string' ? parseListenAddress(address) : address
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

/** Connections beyond the limit that are answered at the same time. */
const MAX_SURPLUS = 100
const SALT_BYTES = 32
const ZERO_UUID = '00000000-0000-0000-0000-000000000000'
const DEFAULT_CREDENTIAL_TTL_MS = 30_000
/** For clients that come before any target was reached. */
const DEFAULT_VERSION = '2.11.0'
const DEFAULT_GRACE_MS = 10_000
/** How long an ending proxy leaves clients that do nothing. */
const IDLE_CLOSE_MS = 1_000
