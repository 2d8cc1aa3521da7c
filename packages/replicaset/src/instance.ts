/**
 * One configured instance: its connections, what is believed of it, and the ways to find out more. The first connection is
 * the control connection: events, pings, polls and fences go there, and only it makes claims.
 */
import {
  type Address,
  type Clock,
  type Connected,
  type Connection,
  createConnection,
  type Environment,
  type PendingRequest,
  parseUri,
  type ReconnectPolicy,
  type ReplySink,
  type SendOptions,
  type SessionPin,
} from '@orbweaver/connection'
import {
  callRequest,
  decodeData,
  Feature,
  isOrbweaverError,
  type OrbweaverError,
  pingRequest,
  type Request,
  UnsupportedFeatureError,
  watchOnceRequest,
} from '@orbweaver/iproto'
import type { Dialect, InstanceHandle, PinnedSession } from './attempt.js'
import type { InstanceDefinition } from './definition.js'
import { type InstanceNews, type InstanceView, newView } from './instance-view.js'
import { Poll, PollMethods } from './polling.js'
import { Pulse } from './pulse.js'
import { isServed, RefusedRequest, Session } from './session.js'
import {
  type ElectionValue,
  type IdentityValue,
  type PollValue,
  readConfiguredMaster,
  readElection,
  readIdentity,
  readStatus,
  readUpstreams,
  type StatusValue,
  type UpstreamValue,
  WATCHED_KEYS,
} from './status-events.js'

export interface InstanceSettings {
  readonly user: string | undefined
  readonly password: string | undefined
  readonly connections: number
  readonly connectTimeoutMs: number
  readonly reconnect: Partial<ReconnectPolicy>
  readonly pingIntervalMs: number
  readonly silentAfterMs: number
  readonly redialSilentAfterMs: number
  readonly lookTimeoutMs: number
  readonly pollTimeoutMs: number
  readonly stopTimeoutMs: number
  readonly dialect: Dialect | undefined
  readonly environment: Environment
}

/** What an instance tells its replicaset. */
export interface InstanceOwner {
  news(instance: Instance, news: InstanceNews): void
  /** A number larger than all before. */
  takeLook(): number
  /** `leader` of its `box.election`: a reason to look at that member. */
  leaderSeen(instance: Instance, memberId: number): void
  identitySeen(instance: Instance): void
  badEvent(instance: Instance, key: string): void
  fenceAnswered(instance: Instance): void
  lagSeen(instance: Instance): void
  log(level: 'info' | 'warn', event: string, fields: () => Readonly<Record<string, unknown>>): void
}

export class Instance implements InstanceHandle {
  readonly id: string
  /** Its number in tokens; never used again in the life of the replicaset. */
  readonly slot: number
  definition: InstanceDefinition
  view: InstanceView
  /** What the peer said of itself on this connection. */
  identity: IdentityValue | undefined
  /** From the greeting. */
  serverVersion: string | undefined
  /** Reads leave it alone until then. */
  restUntilMs: number = Number.NEGATIVE_INFINITY
  restReason: string | undefined
  /** Turn taking among balanced reads; written by the balancer only. */
  credit = 0
  upstreams: readonly UpstreamValue[] = []
  /** When `upstreams` was read. */
  lagReadMs: number = Number.NEGATIVE_INFINITY
  /** Round trip of the last ping. */
  pingMs: number | undefined
  lastError: OrbweaverError | undefined
  readonly #settings: InstanceSettings
  readonly #owner: InstanceOwner
  readonly #clock: Clock
  #lines: Line[] = []
  #turn = 0
  #generation = 0
  #isClosed = false
  #methods: PollMethods
  #poll: Poll | undefined
  #isAskingLag = false
  #lastStatus: StatusValue | undefined
  #lastElection: ElectionValue | undefined
  #cancelLookTimer: (() => void) | undefined
  #cancelPendingTimer: (() => void) | undefined
  #cancelStopTimer: (() => void) | undefined
  readonly #pulse: Pulse
  #ping: Ping | undefined

  constructor(definition: InstanceDefinition, slot: number, settings: InstanceSettings, owner: InstanceOwner) {
    this.id = definition.id
    this.slot = slot
    this.definition = definition
    this.#settings = settings
    this.#owner = owner
    this.#clock = settings.environment.clock
    this.view = newView(this.#clock.now())
    this.#methods = new PollMethods(settings.dialect)
    this.#pulse = new Pulse(settings)
    for (let index = 0; index < settings.connections; index += 1) this.#lines.push(this.#open(index === 0))
  }

  get uuid(): string | undefined {
    return this.#control.peerUuid ?? this.definition.uuid
  }

  /** The address as people write it, without credentials. */
  get peer(): string {
    return this.#control.peer
  }

  send(request: Request, options: SendOptions, sink: ReplySink): PendingRequest {
    const line = this.#lines.length === 1 ? this.#lines[0] : this.#nextLine()
    if (line === undefined || !isServed(line.connection)) return new RefusedRequest(this.peer, sink, this.#clock)
    // Tied to this generation: what was not written when it ends must not run on a later one, whose role may be another.
    const { pin } = line
    const { deadline, streamId, signal } = options
    if (streamId === undefined && signal === undefined) return line.connection.send(request, { deadline, pin }, sink)
    return line.connection.send(request, { ...options, pin }, sink)
  }

  pin(): PinnedSession {
    const line = (this.#nextLine() ?? this.#lines[0])!
    if (line.session?.lost !== false) line.session = new Session(line.connection, this.#clock)
    return line.session
  }

  /** A connection for what needs more than requests (streams); undefined: not connected. */
  get connection(): Connection | undefined {
    const line = this.#nextLine()
    return line !== undefined && isServed(line.connection) ? line.connection : undefined
  }

  /** Asks the instance who it is, behind everything the rules know; the answer carries `look`. */
  look(look: number): void {
    this.#watchLook(look)
    if (this.view.silent || this.view.state !== 'up') return
    if (this.view.watch !== 'yes') this.#sendPoll(look)
    else if (this.#control.features.has(Feature.watchOnce)) this.#sendFence(look)
    else void this.#fenceByWatching(look)
  }

  /** Polls, unless the last poll is still out. */
  poll(): void {
    if (this.#poll === undefined && this.view.state === 'up' && !this.view.silent)
      this.#sendPoll(this.#owner.takeLook())
  }

  /** Looks at the pulse. @param lateMs - how long our own loop was blocked: nobody could be heard then */
  beat(nowMs: number, lateMs: number): void {
    if (this.view.state !== 'up') return
    switch (this.#pulse.beat(nowMs, lateMs, this.#control.stats().bytesRead)) {
      case 'quiet':
        return
      case 'heard':
        this.#heard()
        return
      case 'redial':
        this.#redial()
        return
      case 'ask':
        this.#sendPing(nowMs)
        return
      case 'silent':
        this.#sendPing(nowMs)
        if (!this.view.silent) this.#owner.news(this, { type: 'pingOverdue' })
    }
  }

  /** Asks how far it is behind; at most one question is out. */
  askLag(): void {
    if (this.#isAskingLag || this.view.state !== 'up' || this.view.silent) return
    this.#isAskingLag = true
    const told = (upstreams: readonly UpstreamValue[]): void => {
      this.#isAskingLag = false
      this.upstreams = upstreams
      this.lagReadMs = this.#clock.now()
      this.#owner.lagSeen(this)
    }
    this.#ask(
      callRequest('box.info'),
      {
        done: (reply) => told(readSafely(() => readUpstreams(decodeData(reply)[0])) ?? []),
        failed: () => told([]),
      },
      this.#settings.pollTimeoutMs,
    )
  }

  /** Reads leave it alone for a while. */
  rest(untilMs: number, reason: string): void {
    this.restUntilMs = untilMs
    this.restReason = reason
  }

  /** The rules began to wait for the election value that belongs to a status. */
  watchPending(): void {
    this.#cancelPendingTimer?.()
    this.#cancelPendingTimer = this.#schedule(PENDING_MS, () => this.#owner.news(this, { type: 'pendingOverdue' }))
  }

  async close(timeoutMs: number): Promise<void> {
    this.#retire()
    await Promise.all(this.#lines.map(({ connection }) => connection.close({ timeout: timeoutMs })))
  }

  destroy(cause?: Error): void {
    this.#retire()
    for (const { connection } of this.#lines) connection.destroy(cause)
  }

  get #control(): Connection {
    return this.#lines[0]!.connection
  }

  #nextLine(): Line | undefined {
    const lines = this.#lines
    if (lines.length === 1) return lines[0]
    for (let tries = 0; tries < lines.length; tries += 1) {
      this.#turn = (this.#turn + 1) % lines.length
      const line = lines[this.#turn]
      if (line !== undefined && isServed(line.connection)) return line
    }
    return undefined
  }

  #open(isControl: boolean): Line {
    const { user, password, connectTimeoutMs, reconnect, environment } = this.#settings
    const { uri } = this.definition
    const connection = createConnection({
      uri,
      ...(user === undefined || hasCredentials(uri) ? {} : { user, ...(password === undefined ? {} : { password }) }),
      connectTimeoutMs,
      reconnect,
      environment,
    })
    const line: Line = { connection, pin: { generation: undefined }, session: undefined }
    connection.on('connect', ({ generation }) => {
      line.pin = { generation }
    })
    if (isControl) this.#listen(connection)
    return line
  }

  #listen(connection: Connection): void {
    const isCurrent = (): boolean => !this.#isClosed && this.#lines[0]?.connection === connection
    const tell = (news: InstanceNews): void => {
      if (isCurrent()) this.#owner.news(this, news)
    }
    connection.on('state', (state) => {
      if (state.name === 'initial') tell({ type: 'connecting' })
    })
    connection.on('connect', (connected) => {
      if (isCurrent()) this.#connected(connected)
    })
    connection.on('connectFailed', (cause) => {
      this.lastError = cause
      tell({ type: 'connectFailed', reason: cause.message })
    })
    connection.on('disconnect', (cause) => {
      if (isCurrent()) this.#disconnected(cause)
    })
    connection.on('shutdown', () => {
      if (isCurrent()) this.#stopping()
    })
    const watch = (key: string, onValue: (value: unknown) => void): void => {
      connection.watch(
        key,
        (value) => {
          if (isCurrent()) onValue(value)
        },
        { onError: (error) => this.#unwatchable(key, error) },
      )
    }
    watch(WATCHED_KEYS.status, (value) => this.#status(value))
    watch(WATCHED_KEYS.election, (value) => this.#election(value))
    watch(WATCHED_KEYS.id, (value) => this.#identified(readIdentity(value)))
    for (const key of this.#settings.dialect?.electionKeys ?? []) {
      watch(key, (value) => tell({ type: 'configuredMaster', is: readConfiguredMaster(value) }))
    }
  }

  #connected({ version, features, instanceUuid }: Connected): void {
    this.#generation += 1
    this.serverVersion = version
    this.lastError = undefined
    this.#forget()
    this.#pulse.begin(this.#clock.now(), this.#control.stats().bytesRead)
    const hasWatchers = features.has(Feature.watchers)
    this.#owner.news(this, { type: 'connected', generation: this.#generation, hasWatchers })
    if (instanceUuid !== '' && instanceUuid !== NIL_UUID) {
      this.identity = { instanceUuid, memberId: undefined, replicasetUuid: undefined, instanceName: undefined }
      this.#owner.identitySeen(this)
    }
    if (!hasWatchers) this.poll()
  }

  #disconnected(cause: OrbweaverError | undefined): void {
    if (cause !== undefined) this.lastError = cause
    this.#forget()
    this.#owner.news(this, { type: 'disconnected', reason: cause?.message ?? 'the connection ended' })
  }

  /** What belonged to the last generation. */
  #forget(): void {
    this.#methods = new PollMethods(this.#settings.dialect)
    this.#poll = undefined
    this.#ping = undefined
    this.#isAskingLag = false
    this.#lastStatus = undefined
    this.#lastElection = undefined
    this.identity = undefined
    this.upstreams = []
    this.lagReadMs = Number.NEGATIVE_INFINITY
    this.#cancelTimers()
  }

  /** Announced its end: what is in flight may finish; then it is left, which lets the server exit at once. */
  #stopping(): void {
    this.#owner.news(this, { type: 'shutdown' })
    this.#cancelStopTimer = this.#schedule(this.#settings.stopTimeoutMs, () => this.#redial())
  }

  /** Gives the connections up and makes new ones. */
  #redial(): void {
    const old = this.#lines
    const cause = this.view.stopping ? 'it is shutting down' : 'it does not answer'
    this.#owner.log('warn', 'redial', () => ({ instance: this.id, cause }))
    this.#disconnected(undefined)
    this.#lines = old.map((_line, index) => this.#open(index === 0))
    for (const { connection } of old) connection.destroy(new Error(`${this.peer} was left: ${cause}`))
    this.#owner.news(this, { type: 'connecting' })
  }

  #status(value: unknown): void {
    this.#heard()
    const status = readStatus(value)
    this.#lastStatus = status
    if (status === undefined) this.#bad(WATCHED_KEYS.status)
    else this.#owner.news(this, { type: 'status', isRo: status.isRo, isLoading: status.isLoading })
  }

  #election(value: unknown): void {
    this.#heard()
    const election = readElection(value)
    this.#lastElection = election
    if (election === undefined) {
      this.#bad(WATCHED_KEYS.election)
      return
    }
    this.#owner.news(this, { type: 'election', isRo: this.#orStatus(election.isRo), term: election.term })
    if (election.leader !== undefined) this.#owner.leaderSeen(this, election.leader)
  }

  /** An instance that does not run yet is read-only whatever its election says. */
  #orStatus(isRo: boolean): boolean {
    const status = this.#lastStatus?.status
    return isRo || (status !== undefined && status !== 'running')
  }

  #bad(key: string): void {
    this.#owner.badEvent(this, key)
    this.#owner.news(this, { type: 'badEvent' })
  }

  #identified(identity: IdentityValue | undefined): void {
    this.#heard()
    if (identity === undefined) return
    this.identity = { ...identity, instanceUuid: identity.instanceUuid ?? this.#control.peerUuid }
    this.#owner.identitySeen(this)
  }

  #unwatchable(key: string, error: OrbweaverError): void {
    // An old server: its features said so already, and it is polled.
    if (error instanceof UnsupportedFeatureError) return
    this.#owner.log('warn', 'watch refused', () => ({ instance: this.id, key, error }))
    this.#owner.news(this, { type: 'badEvent' })
  }

  // ---- fences

  #sendFence(look: number): void {
    let election: ElectionValue | undefined
    this.#ask(
      watchOnceRequest(WATCHED_KEYS.election),
      {
        done: (reply) => {
          election = readElection(readSafely(() => decodeData(reply)[0]))
        },
        failed: ignoreUnanswered,
      },
      this.#settings.lookTimeoutMs,
    )
    // Answers come in the order of the questions: with this one both are in.
    this.#ask(
      watchOnceRequest(WATCHED_KEYS.status),
      {
        done: (reply) => this.#fenceAnswered(look, readStatus(readSafely(() => decodeData(reply)[0])), election),
        failed: ignoreUnanswered,
      },
      this.#settings.lookTimeoutMs,
    )
  }

  /** Where WATCH_ONCE does not exist. The newest values are at least as young as the answers to the fresh subscriptions. */
  async #fenceByWatching(look: number): Promise<void> {
    const connection = this.#control
    const { generation } = connection
    const options = { timeout: this.#settings.lookTimeoutMs }
    try {
      await Promise.all([
        connection.watchOnce(WATCHED_KEYS.election, options),
        connection.watchOnce(WATCHED_KEYS.status, options),
      ])
    } catch (error) {
      if (!isOrbweaverError(error)) throw error
      return
    }
    if (this.#isClosed || this.#control !== connection || connection.generation !== generation) return
    this.#fenceAnswered(look, this.#lastStatus, this.#lastElection)
  }

  #fenceAnswered(look: number, status: StatusValue | undefined, election: ElectionValue | undefined): void {
    this.#heard()
    this.#owner.news(this, {
      type: 'fence',
      look,
      isRo: status?.isRo,
      isLoading: status?.isLoading ?? false,
      term: election?.term,
    })
    if (election?.leader !== undefined) this.#owner.leaderSeen(this, election.leader)
    this.#owner.fenceAnswered(this)
  }

  #watchLook(look: number): void {
    this.#cancelLookTimer?.()
    this.#cancelLookTimer = this.#schedule(this.#settings.lookTimeoutMs, () => {
      if (this.view.fence === undefined) return
      if (this.view.silent) this.#watchLook(look)
      else this.#owner.news(this, { type: 'lookOverdue' })
    })
  }

  // ---- polls

  #sendPoll(look: number): void {
    const method = this.#methods.next(this.#clock.now())
    if (method === undefined) return
    const poll = new Poll(method, look, (answered, outcome) => this.#polled(answered, outcome))
    this.#poll = poll
    this.#ask(method.request(), poll, this.#settings.pollTimeoutMs)
  }

  #polled(poll: Poll, outcome: PollValue | OrbweaverError | undefined): void {
    if (this.#poll === poll) this.#poll = undefined
    const { look, method } = poll
    if (isOrbweaverError(outcome)) {
      this.#pollFailed(poll, outcome)
    } else if (outcome === undefined) {
      this.#owner.news(this, {
        type: 'pollFailed',
        look,
        reason: `the answer to ${method.name} has an unexpected shape`,
      })
    } else {
      this.#heard()
      this.#methods.worked()
      if (outcome.identity !== undefined) this.#identified(outcome.identity)
      this.#owner.news(this, { type: 'poll', look, isRo: outcome.isRo, term: outcome.term })
    }
    this.#owner.fenceAnswered(this)
  }

  #pollFailed({ method, look }: Poll, error: OrbweaverError): void {
    const isRefused = this.#methods.failed(method, error, this.#clock.now())
    if (isRefused) this.#owner.log('warn', 'poll refused', () => ({ instance: this.id, method: method.name, error }))
    const another = isRefused ? this.#methods.next(this.#clock.now()) : undefined
    if (another !== undefined && another !== method) this.#sendPoll(look)
    else this.#owner.news(this, { type: 'pollFailed', look, reason: `cannot be asked: ${error.message}` })
  }

  // ---- pulse

  #sendPing(nowMs: number): void {
    if (this.#ping !== undefined) return
    const ping = new Ping(nowMs, (answered) => {
      if (this.#ping !== answered) return
      this.#ping = undefined
      this.pingMs = this.#clock.now() - answered.sentMs
      this.#heard()
    })
    this.#ping = ping
    this.#ask(pingRequest(), ping, Number.POSITIVE_INFINITY)
  }

  #heard(): void {
    this.#pulse.heard(this.#clock.now())
    if (!this.view.silent) return
    this.#owner.news(this, { type: 'answered' })
    // What was not asked while it was silent.
    if (this.view.fence !== undefined) this.#owner.news(this, { type: 'lookOverdue' })
  }

  #ask(request: Request, sink: ReplySink, timeoutMs: number): void {
    const { pin } = this.#lines[0]!
    this.#control.send(request, { deadline: this.#clock.now() + timeoutMs, pin }, sink)
  }

  #schedule(delayMs: number, task: () => void): () => void {
    return this.#clock.schedule(delayMs, task, { ref: false })
  }

  #retire(): void {
    this.#isClosed = true
    this.#cancelTimers()
  }

  #cancelTimers(): void {
    this.#cancelLookTimer?.()
    this.#cancelPendingTimer?.()
    this.#cancelStopTimer?.()
  }
}

/** One connection, and what ties requests to its generation. */
interface Line {
  readonly connection: Connection
  pin: SessionPin
  /** Of the generation of its last `pin()`. */
  session: Session | undefined
}

class Ping implements ReplySink {
  readonly sentMs: number
  readonly #answered: (ping: Ping) => void

  constructor(sentMs: number, answered: (ping: Ping) => void) {
    this.sentMs = sentMs
    this.#answered = answered
  }

  done(): void {
    this.#answered(this)
  }

  failed(error: OrbweaverError): void {
    // An answer of any kind is a sign of life; the end of the connection is told elsewhere.
    if (error.executed !== 'unknown') this.#answered(this)
  }
}

function hasCredentials(uri: string | Address): boolean {
  return typeof uri === 'string' && parseUri(uri).user !== undefined
}

function readSafely<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch (error) {
    if (isOrbweaverError(error)) return undefined
    throw error
  }
}

/** A look that is not answered is repeated by its timer. */
function ignoreUnanswered(): void {}

const PENDING_MS = 50
const NIL_UUID = '00000000-0000-0000-0000-000000000000'
