/*
 * One client: its requests in the order they came, whom it has proved to be, what was promised to it, and on which lanes it
 * has something in flight. Says for the request at the front where it goes; the lane says when.
 */
import type { LargeFrame } from '@orbweaver/connection'
import {
  BodyReader,
  type BodyWriter,
  BoxError,
  ErrorCode,
  Key,
  type OrbweaverError,
  patchReplySync,
  RequestType,
} from '@orbweaver/iproto'
import type { ClientSession, InboundFrame } from '@orbweaver/server'
import { asBoxError } from './auth.js'
import type { BounceClient, BucketCall } from './bounce.js'
import { ClientHandshake, type HandshakeClient } from './client-handshake.js'
import type { ClientHost } from './client-host.js'
import { ClientOutput, type OutputHost } from './client-output.js'
import { ClientSql, type SqlHost, type SqlVerdict } from './client-sql.js'
import { isRequestTraced, traceAnswer, traceRequest } from './diagnostics.js'
import { proxyErrors, reasonOf } from './errors.js'
import type { GateMember } from './gate.js'
import { type Lane, type LaneAnswer, type LaneMember, patchSchemaVersion } from './lane.js'
import type { LaneGroup, LaneWaiter } from './lane-group.js'
import type { Login } from './login.js'
import { errorReply, okReply, readdressed, type SyncHalves } from './reply.js'
import { QueuedRequest, Repeatable, type ReplyNote, RequestQueue } from './request-queue.js'
import {
  changesSession,
  IN_STREAM,
  isForwardable,
  isSessionSettingsDml,
  isStorageRefCall,
  Kind,
  kindOf,
} from './routing.js'
import type { ServedCall } from './serve.js'
import { SlotFlag } from './slot-table.js'
import { ClientStreams, type StreamsHost } from './streams.js'
import type { Target } from './target.js'
import type { Watcher } from './watch-relay.js'

/** Where the request at the front goes: a lane, nowhere yet, or nowhere any more. */
type Place = Lane | 'wait' | 'answered'

/** Why a client has a connection of its own. Closed list: it is a metric label. */
export type PinReason = 'session_settings' | 'session_mode' | 'functions' | 'statements' | 'slow_reader'

/** What a client is doing, for people. */
export type Activity = 'idle' | 'active' | 'queued' | 'paused' | 'pinned'

export class Client
  implements
    LaneMember,
    LaneWaiter,
    GateMember,
    StreamsHost,
    SqlHost,
    OutputHost,
    HandshakeClient,
    BounceClient,
    Watcher
{
  readonly session: ClientSession
  readonly streams: ClientStreams
  login: Login
  deficit = 0
  weight: number
  readonly #host: ClientHost
  readonly #isDirect: boolean
  readonly #queue = new RequestQueue()
  /** While the main queue waits at the gate: requests of transactions begun before, which have to end for it to open. */
  readonly #express = new RequestQueue()
  readonly #sql: ClientSql
  /** The lanes it shares with others, while it is theirs. */
  #sharedGroup: LaneGroup | undefined
  /** Features of the master that were found to suffice for this client. */
  #sufficient: ReadonlySet<number> | undefined
  readonly #handshake: ClientHandshake
  readonly #output: ClientOutput
  #inFlight = 0
  /** Lane of the requests in flight at the master: those behind them go there too, so that they arrive in order. */
  #lane: Lane | undefined
  #onLane = 0
  #readLane: Lane | undefined
  #onReadLane = 0
  #lastWriteAt = Number.NEGATIVE_INFINITY
  /** The ring it stands in, and what else it waits for. */
  #ring: Lane | undefined
  #group: LaneGroup | undefined
  #cancelGroupWait: (() => void) | undefined
  #isAtGate = false
  #passedAt = Number.NEGATIVE_INFINITY
  #cancelGateWait: (() => void) | undefined
  #awaitsIdle = false
  #holds = 0
  #isReadingPaused = false
  #stage: 'here' | 'leaving' | 'left' = 'here'
  #hasSpoken = false
  /** Until its first request. */
  #cancelSilence: () => void
  #pin: PinReason | undefined
  #pinnedGroup: LaneGroup | undefined
  #refGroup: LaneGroup | undefined
  #slowAt = 0
  #cancelSlownessWatch: (() => void) | undefined
  /** Ends what is done for it in this process. */
  #leaving: AbortController | undefined

  /** @param isDirect - no call of it is bounced or answered here */
  constructor(session: ClientSession, host: ClientHost, isDirect: boolean) {
    this.session = session
    this.#isDirect = isDirect
    this.#host = host
    this.login = host.logins.guest
    host.logins.retain(host.logins.guest)
    this.weight = host.weightOf('guest')
    this.streams = new ClientStreams(this)
    this.#sql = new ClientSql(this)
    this.#handshake = new ClientHandshake(this, host)
    this.#output = new ClientOutput(session, this)
    if (host.isSessionMode('guest')) this.#pin = 'session_mode'
    this.#cancelSilence = host.clock.schedule(host.limits.silentTimeoutMs, () =>
      session.destroy(new Error(`It has sent nothing for ${host.limits.silentTimeoutMs} ms`)),
    )
  }

  get inFlight(): number {
    return this.#inFlight
  }

  get backlog(): number {
    return this.#queue.size + this.#express.size
  }

  get backlogBytes(): number {
    return this.#queue.bytes + this.#express.bytes
  }

  /** Nothing of it is under way. */
  get isIdle(): boolean {
    return this.#inFlight === 0 && this.backlog === 0 && this.#holds === 0
  }

  get pin(): PinReason | undefined {
    return this.#pin
  }

  get activity(): Activity {
    if (this.#pin !== undefined) return 'pinned'
    if (this.#isAtGate) return 'paused'
    if (this.backlog > 0) return 'queued'
    return this.#inFlight > 0 ? 'active' : 'idle'
  }

  get clock(): ClientHost['clock'] {
    return this.#host.clock
  }

  get limits(): ClientHost['limits'] {
    return this.#host.limits
  }

  get counters(): ClientHost['counters'] {
    return this.#host.counters
  }

  get hasLeft(): boolean {
    return this.#stage === 'left'
  }

  get idleInTransactionMs(): number {
    return this.#host.limits.idleInTransactionMs
  }

  // ---- what the client sends ----------------------------------------------------------------------------------------

  frame(frame: InboundFrame): void {
    this.#host.counters.requests++
    if (!this.#hasSpoken) {
      this.#hasSpoken = true
      this.#cancelSilence()
    }
    if (this.#host.isRefusing) {
      this.fail(frame, proxyErrors.shutdown())
      return
    }
    const kind = kindOf(frame.type)
    if (frame.streamId !== 0 && kind !== Kind.unknown && !IN_STREAM.has(frame.type)) {
      this.fail(frame, proxyErrors.notInStream(frame.type))
      return
    }
    switch (kind) {
      case Kind.watch:
      case Kind.unwatch:
        this.#watch(frame, kind === Kind.watch)
        return
      case Kind.replication:
        this.fail(frame, proxyErrors.replication())
        return
      case Kind.unknown:
        if (this.#host.forwardUnknown && isForwardable(frame.type)) break
        this.fail(frame, proxyErrors.unknownType(frame.type))
        return
      case Kind.login:
      case Kind.identify:
        // What comes behind may have another size limit, another user, other features: not read before this is answered.
        this.session.pauseReading()
        break
      default:
        break
    }
    this.#enqueue(new QueuedRequest(frame, this.#host.clock.now()))
  }

  /**
   * Its connection has ended.
   * @param isOrderly - it only said that it would send no more: what it had sent is still carried out, as by a server
   */
  gone(isOrderly: boolean): void {
    this.#stage = 'leaving'
    if (!isOrderly) {
      this.#leaving?.abort(new Error('Its client has left'))
      this.#queue.clear()
      this.#express.clear()
    }
    this.#leaveIfDone()
  }

  #leaveIfDone(): void {
    if (this.#stage !== 'leaving' || this.backlog > 0) return
    this.#stage = 'left'
    this.#cancelSilence()
    this.#cancelSlownessWatch?.()
    this.#output.close()
    this.#host.relay.drop(this)
    this.#withdraw()
    this.streams.abandon()
    const hasStatements = this.#sql.statements.size > 0
    if (this.#inFlight > 0 || hasStatements) {
      this.#host.eachLane((lane) => {
        lane.orphan(this)
        if (hasStatements) this.#sql.forget(lane)
      })
    }
    this.#dissolveGroups()
    this.#host.clientLeft(this)
  }

  #enqueue(request: QueuedRequest): void {
    const overtakes = this.#isAtGate && this.#mayOvertake(request)
    if (overtakes) this.#express.push(request)
    else this.#queue.push(request)
    this.#watchBacklog()
    this.schedule()
  }

  /** Parts of a transaction begun before go on while the gate is closed, unless one of its own waits there. */
  #mayOvertake(request: QueuedRequest): boolean {
    return request.streamId !== 0 && this.streams.passesGate(request) && !this.#queue.hasStream(request.streamId)
  }

  /** Whether to read on: nothing is lost when not, TCP tells the client to wait. */
  #watchBacklog(): void {
    const { maxInflightPerClient, maxBacklogBytes } = this.#host.limits
    const requests = this.#inFlight + this.backlog
    const bytes = this.backlogBytes
    if (this.#isReadingPaused) {
      if (requests > maxInflightPerClient / 2 || bytes > maxBacklogBytes / 2) return
      this.#isReadingPaused = false
      this.session.resumeReading()
    } else if (
      requests >= maxInflightPerClient ||
      bytes >= maxBacklogBytes ||
      (this.#isAtGate && this.#host.isPauseFull)
    ) {
      this.#isReadingPaused = true
      this.#host.counters.readingPauses++
      const reason = this.#isAtGate ? 'paused' : bytes >= maxBacklogBytes ? 'backlog' : 'inflight'
      this.#host.counters.tally.add('client_paused_total', { reason })
      this.session.pauseReading()
    }
  }

  // ---- where it goes ------------------------------------------------------------------------------------------------

  /** Finds a place for the request at the front, unless it has one or waits for something. */
  schedule(): void {
    if (this.#ring !== undefined || this.#isWaiting) return
    const lane = this.#nextPlace()
    if (lane === undefined) return
    this.#ring = lane
    lane.enroll(this)
  }

  get nextBytes(): number {
    return this.#peek()?.bytes ?? 0
  }

  sendNext(lane: Lane): boolean {
    this.#ring = undefined
    // A stream may have lost its lane while this stood in the ring; all other changes take clients out of it.
    if (this.#isWaiting || ((this.#peek()?.streamId ?? 0) !== 0 && this.#nextPlace() !== lane)) {
      this.schedule()
      return false
    }
    const request = this.#shift()
    if (request === undefined) return false
    request.note = undefined
    if (kindOf(request.type) === Kind.prepare) this.#sql.sending(request, lane)
    if (request.streamId !== 0) this.streams.bind(request, lane)
    this.#count(request, lane)
    if (isRequestTraced()) request.note = this.#traced(request, lane)
    if (this.#isRepeatable(request)) request.note = new Repeatable(request, request.note)
    // The client knows the master's numbers only.
    if (request.isRead && request.schemaVersion !== 0) request.schemaVersion = lane.target.schemaVersion
    lane.submit(request, this)
    this.#leaveIfDone()
    if (this.#isWaiting) return false
    const next = this.#nextPlace()
    if (next === lane) {
      this.#ring = lane
      return true
    }
    if (next !== undefined) {
      this.#ring = next
      next.enroll(this)
    }
    return false
  }

  /** Reads of a replica go to the master when it cannot serve them; those that were lost are sent again where that is wanted. */
  #isRepeatable(request: QueuedRequest): boolean {
    if (request.isRepeated || request.streamId !== 0) return false
    if (request.isRead) return true
    const { retriesReads, rules } = this.#host
    return retriesReads && (request.type === RequestType.ping || rules.isRead(request.type, request.body))
  }

  /** @returns whether the request goes out once more, in the place of the answer */
  #repeat({ note, flags }: LaneAnswer, isLost: boolean): boolean {
    if (!(note instanceof Repeatable) || (flags & SlotFlag.repliedPartly) !== 0 || this.#stage !== 'here') return false
    if (isLost && !this.#host.retriesReads) return false
    const { request } = note
    request.isRepeated = true
    this.#queue.unshift(request)
    this.reconsider()
    return true
  }

  #traced({ type, streamId, note }: QueuedRequest, lane: Lane): ReplyNote {
    const { id, user } = this.session
    const trace = traceRequest({ client: id, user, target: lane.target.name, type, streamId })
    return {
      answered: (status, frame) => {
        note?.answered(status, frame)
        traceAnswer(trace, status & (RequestType.errorFlag - 1), false)
      },
      lost: () => {
        note?.lost()
        traceAnswer(trace, ErrorCode.noConnection, true)
      },
    }
  }

  evicted(): void {
    this.#ring = undefined
    this.schedule()
  }

  /** Looks again where it belongs: roles have changed. */
  reconsider(): void {
    if (this.#ring !== undefined) {
      this.#ring.withdraw(this)
      this.#ring = undefined
    }
    this.#stopGroupWait()
    this.schedule()
  }

  laneReady(): void {
    this.#stopGroupWait()
    this.schedule()
  }

  laneRefused(): void {
    // It may take the login in a moment (grants arrive late on a new master), unless it had taken it before.
    if (this.#group?.isStale !== true) return
    this.#stopGroupWait()
    this.#answer(proxyErrors.staleLogin())
    this.session.close()
  }

  /** The gate has opened. */
  passed(): void {
    this.#isAtGate = false
    this.#passedAt = this.#host.clock.now()
    this.#cancelGateWait?.()
    this.#cancelGateWait = undefined
    if (this.#express.size > 0 && this.#ring !== undefined) {
      this.#ring.withdraw(this)
      this.#ring = undefined
    }
    this.#queue.prepend(this.#express)
    this.schedule()
  }

  streamReady(): void {
    this.#wakeIfIdle()
    this.schedule()
  }

  streamBroken(): void {
    this.#host.counters.streamsBroken++
  }

  reprepared(): void {
    this.#host.counters.reprepared++
  }

  hold(): void {
    this.#holds++
  }

  release(): void {
    this.#holds--
    this.schedule()
  }

  get #isWaiting(): boolean {
    return this.#holds > 0 || this.#group !== undefined || this.#awaitsIdle
  }

  #peek(): QueuedRequest | undefined {
    return this.#isAtGate ? this.#express.peek() : this.#queue.peek()
  }

  #shift(): QueuedRequest | undefined {
    return this.#isAtGate ? this.#express.shift() : this.#queue.shift()
  }

  /** The lane of the request at the front; what needs none is answered on the way. */
  #nextPlace(): Lane | undefined {
    for (let head = this.#peek(); head !== undefined && !this.#isWaiting; head = this.#peek()) {
      const place = this.#place(head)
      if (typeof place !== 'string') return place
      this.#watchBacklog()
      if (place === 'wait' && (!this.#isAtGate || this.#peek() === head)) return undefined
    }
    this.#leaveIfDone()
    return undefined
  }

  #place(head: QueuedRequest): Place {
    const kind = kindOf(head.type)
    if (kind === Kind.login || kind === Kind.identify) return this.#shakeHands(head, kind)
    if (head.streamId !== 0) return this.#placeInStream(head, kind)
    if (kind === Kind.call && isStorageRefCall(head.body)) return this.#placeRefCall(head)
    const isFound = kind === Kind.call && !this.#isDirect
    const served = isFound ? this.#host.routerService?.callOf(head.body, this.login.user) : undefined
    if (served !== undefined) return this.#serve(head, served)
    const bucketCall = isFound ? this.#host.bouncer?.callOf(head.body, this.login.user) : undefined
    if (bucketCall !== undefined) return this.#bounce(head, bucketCall)
    const pin = this.#pin === undefined ? this.#pinReason(head, kind) : undefined
    if (pin !== undefined && !this.#pinFor(pin))
      return this.#answer(proxyErrors.tooManyPinned(this.#host.limits.maxPinned))
    const place = this.#placeShared(head)
    return typeof place === 'string' || (kind !== Kind.execute && kind !== Kind.prepare)
      ? place
      : this.#afterSql(this.#sql.judge(head, place), place)
  }

  #placeShared(head: QueuedRequest): Place {
    const target = this.#readTarget(head)
    head.isRead = target !== undefined
    if (target === undefined) return this.#masterLane(head)
    const bound = this.#onReadLane > 0 ? this.#readLane : undefined
    return bound?.isOpen === true && bound.target === target ? bound : this.#laneOf(this.#shared(target), head)
  }

  #readTarget(head: QueuedRequest): ReturnType<ClientHost['readTarget']> {
    const { rules, clock } = this.#host
    if (!rules.isEnabled || this.#pin !== undefined || head.isRepeated) return undefined
    if (this.#onLane > 0 || clock.now() - this.#lastWriteAt < rules.readAfterWriteMs) return undefined
    if (!rules.isRead(head.type, head.body, this.#sql.textOf(head))) return undefined
    // A schema version that is not the master's is for the master to refuse.
    if (head.schemaVersion !== 0 && head.schemaVersion !== this.#host.rw?.schemaVersion) return undefined
    return this.#host.readTarget(this.#onReadLane > 0 ? this.#readLane : undefined, this.session.features)
  }

  #masterLane(head: QueuedRequest): Place {
    const host = this.#host
    const target = host.rw
    if (host.gate.isClosed || target?.state === 'stopping') return this.#waitAtGate(head)
    if (target === undefined) return this.#answer(proxyErrors.noTarget())
    if (target.features !== this.#sufficient) {
      const lacking = target.lacks(this.session.features)
      if (lacking !== undefined) return this.#answer(proxyErrors.missingFeature(target.name, lacking))
      this.#sufficient = target.features
    }
    if (host.rejectsWhenReadonly && target.isReadonly === true && this.#mayWrite(head))
      return this.#answer(proxyErrors.readonly(target.name))
    if (this.#pin === undefined) return this.#laneOf(this.#shared(target), head)
    if (this.#pinnedGroup?.target !== target) {
      // Nothing of it may be under way elsewhere when it moves to a connection of its own.
      if (this.#inFlight > 0 || this.streams.isBusy) return this.#waitUntilIdle()
      this.#dissolve(this.#pinnedGroup)
      this.#pinnedGroup = target.group(this.login, this.#handshake.mask, `pinned ${this.session.id}`)
    }
    return this.#laneOf(this.#pinnedGroup, head)
  }

  /** Whether it counts as a write: what is not known to read only does, except what begins or ends a transaction. */
  #mayWrite({ type, body }: QueuedRequest): boolean {
    const kind = kindOf(type)
    if (kind === Kind.transaction || kind === Kind.prepare || !WRITES_BY_KIND.has(kind))
      return type === RequestType.eval
    return !this.#host.rules.isRead(type, body)
  }

  /** The lanes of this client's login and features at a target. */
  #shared(target: Target): LaneGroup {
    const known = this.#sharedGroup
    if (
      known !== undefined &&
      known.target === target &&
      known.login === this.login &&
      known.mask === this.#handshake.mask
    ) {
      return known
    }
    return (this.#sharedGroup = target.group(this.login, this.#handshake.mask))
  }

  #placeInStream(head: QueuedRequest, kind: Kind): Place {
    head.isRead = false
    const verdict = this.streams.judge(head)
    if (verdict.do === 'wait') return 'wait'
    if (verdict.do === 'answer') return this.#answer(verdict.error)
    const { gate, limits } = this.#host
    if (verdict.lane !== undefined && gate.isClosed && !this.streams.passesGate(head)) return this.#waitAtGate(head)
    const place = verdict.lane ?? this.#masterLane(head)
    if (typeof place === 'string') return place
    if (!place.hasTransactions) {
      // A server without streams ignores the number and runs the request by itself.
      const target = place.target.name
      return this.#answer(
        kind === Kind.transaction ? proxyErrors.unknownType(head.type) : proxyErrors.streamsUnsupported(target),
      )
    }
    if (head.type === RequestType.begin && place.transactions >= limits.maxOpenTransactionsPerLane) {
      return this.#answer(proxyErrors.tooManyTransactions(limits.maxOpenTransactionsPerLane))
    }
    return kind === Kind.execute || kind === Kind.prepare ? this.#afterSql(this.#sql.judge(head, place), place) : place
  }

  /** Refs of vshard belong to a session: a client's live on one of its own. */
  #placeRefCall(head: QueuedRequest): Place {
    const target = this.#host.rw
    if (this.#host.gate.isClosed) return this.#waitAtGate(head)
    if (target === undefined) return this.#answer(proxyErrors.noTarget())
    if (this.#refGroup?.target !== target) {
      this.#dissolve(this.#refGroup)
      this.#refGroup = target.group(this.login, this.#handshake.mask, `refs ${this.session.id}`)
    }
    head.isApart = true
    return this.#laneOf(this.#refGroup, head)
  }

  /** The call finds its replicaset by itself; only its answer comes back here. */
  #bounce(head: QueuedRequest, call: BucketCall): Place {
    if (this.#host.gate.isClosed) return this.#waitAtGate(head)
    this.#shift()
    head.isApart = true
    this.#inFlight++
    this.#host.bouncer?.send(head, call, this, this.#handshake.mask)
    return 'answered'
  }

  /** A call that is answered in this process. */
  #serve(head: QueuedRequest, call: ServedCall): Place {
    this.#shift()
    this.#inFlight++
    this.#leaving ??= new AbortController()
    const answer = (write: () => void): void => {
      if (this.hasLeft) return
      this.#inFlight--
      if (this.#isReadingPaused) this.#watchBacklog()
      if (this.#awaitsIdle) this.#wakeIfIdle()
      write()
    }
    call.run(this.#leaving.signal).then(
      (values) =>
        answer(() => {
          this.#host.counters.replies++
          this.#output.send(okReply(head, this.#host.schemaVersion, (out) => writeData(out, values)))
        }),
      (error: unknown) =>
        answer(() => this.fail(head, error instanceof BoxError ? error : proxyErrors.notServed(error))),
    )
    return 'answered'
  }

  failApart(request: SyncHalves, error: BoxError): void {
    this.#inFlight--
    if (this.#isReadingPaused) this.#watchBacklog()
    if (this.#awaitsIdle) this.#wakeIfIdle()
    this.fail(request, error)
  }

  #afterSql(verdict: SqlVerdict, lane: Lane): Place {
    if (verdict === 'send') return lane
    return verdict === 'wait' ? 'wait' : this.#answer(verdict.error)
  }

  #laneOf(group: LaneGroup, head: QueuedRequest): Place {
    // What is in flight keeps those behind it on its lane: a server keeps the order of one connection only.
    const bound = this.#onLane > 0 && !head.isRead ? this.#lane : undefined
    if (bound?.isOpen === true && group.lanes.includes(bound)) return bound
    const lane = group.pick()
    if (lane !== undefined) return lane
    if (group.isStale) {
      this.#answer(proxyErrors.staleLogin())
      this.session.close()
      return 'answered'
    }
    // What waited at the gate has not waited for a connection yet.
    const since = Math.max(head.arrivedAt, this.#passedAt)
    const waitMs = since + this.#host.limits.connectWaitMs - this.#host.clock.now()
    this.#group = group
    this.#cancelGroupWait = this.#host.clock.schedule(waitMs, () => {
      this.#stopGroupWait()
      this.#answer(group.refusal ?? proxyErrors.notReached(group.target.name, group.lastFailure))
      this.schedule()
    })
    group.wait(this)
    return 'wait'
  }

  #stopGroupWait(): void {
    this.#cancelGroupWait?.()
    this.#cancelGroupWait = undefined
    this.#group?.stopWaiting(this)
    this.#group = undefined
  }

  /** The main queue waits until the gate opens; what may pass goes on by the express queue. */
  #waitAtGate(head: QueuedRequest): Place {
    if (this.#isAtGate) {
      // Its transaction has ended in the meantime: it may pass no longer, nor hold up those behind it.
      this.#express.shift()
      this.#queue.unshift(head)
      return 'wait'
    }
    this.#isAtGate = true
    this.#host.counters.gated++
    this.#host.gate.wait(this)
    const blocked = new Set<bigint | number>()
    const passing = this.#queue.extract((request) => {
      if (request.streamId === 0) return false
      if (!blocked.has(request.streamId) && this.streams.passesGate(request)) return true
      blocked.add(request.streamId)
      return false
    })
    for (const request of passing) this.#express.push(request)
    this.#watchGateWait(head)
    return 'wait'
  }

  #watchGateWait(head: QueuedRequest): void {
    const { limits, clock, gate } = this.#host
    const { pauseMaxWaitMs } = limits
    this.#cancelGateWait = clock.schedule(head.arrivedAt + pauseMaxWaitMs - clock.now(), () => {
      const overdue = this.#queue.shift()
      if (overdue !== undefined) this.fail(overdue, proxyErrors.pausedTooLong(pauseMaxWaitMs))
      const next = this.#queue.peek()
      this.#watchBacklog()
      if (next !== undefined) {
        this.#watchGateWait(next)
        return
      }
      this.#cancelGateWait = undefined
      gate.leave(this)
      this.passed()
    })
  }

  #waitUntilIdle(): Place {
    this.#awaitsIdle = true
    return 'wait'
  }

  #wakeIfIdle(): void {
    if (!this.#awaitsIdle || this.#inFlight > 0 || this.streams.isBusy) return
    this.#awaitsIdle = false
    this.schedule()
  }

  #withdraw(): void {
    this.#ring?.withdraw(this)
    this.#ring = undefined
    this.#stopGroupWait()
    if (this.#isAtGate) this.#host.gate.leave(this)
    this.#isAtGate = false
    this.#cancelGateWait?.()
    this.#cancelGateWait = undefined
  }

  // ---- a connection of its own --------------------------------------------------------------------------------------

  #pinReason(head: QueuedRequest, kind: Kind): PinReason | undefined {
    if (kind === Kind.call) return this.#host.pinnedFunctions.isIn(head.body) ? 'functions' : undefined
    if (kind === Kind.dml) return isSessionSettingsDml(head.body) ? 'session_settings' : undefined
    if (kind !== Kind.execute && kind !== Kind.prepare) return undefined
    const text = this.#sql.textOf(head)
    if (text === undefined) return undefined
    if (changesSession(text)) return 'session_settings'
    const { statements } = this.#sql
    const { maxStatementsPerClient, maxStatementBytesPerClient } = this.#host.limits
    const isTooMuch =
      statements.size >= maxStatementsPerClient || statements.bytes + text.length > maxStatementBytesPerClient
    return kind === Kind.prepare && isTooMuch ? 'statements' : undefined
  }

  #pinFor(reason: PinReason): boolean {
    if (!this.#host.mayPin()) return false
    this.#pin = reason
    this.#host.counters.pins++
    this.#host.counters.tally.add('pins_total', { reason })
    return true
  }

  /** Answers everything that waits: the proxy ends. */
  refuseWaiting(): void {
    this.#withdraw()
    for (const queue of [this.#express, this.#queue]) {
      for (let request = queue.shift(); request !== undefined; request = queue.shift()) {
        this.fail(request, proxyErrors.shutdown())
      }
    }
  }

  /** The master is another target now. A session that this client had changed cannot be moved. */
  masterChanged(): void {
    const isMovable =
      this.#pin === 'statements' ||
      this.#pin === 'slow_reader' ||
      (this.#pin === 'session_mode' && this.#host.mayRebind(this.session.user))
    const hasSession = this.#pinnedGroup !== undefined && !isMovable
    if (hasSession) {
      this.session.close()
      return
    }
    this.reconsider()
  }

  #dissolve(group: LaneGroup | undefined): void {
    group?.target.dissolve(group, new Error('its client has left it'))
  }

  #dissolveGroups(): void {
    this.#dissolve(this.#pinnedGroup)
    this.#dissolve(this.#refGroup)
    this.#pinnedGroup = this.#refGroup = undefined
  }

  // ---- answered by the proxy itself ---------------------------------------------------------------------------------

  #watch(frame: InboundFrame, isWatch: boolean): void {
    const { relay, limits, rw } = this.#host
    try {
      const key = new BodyReader(frame.body).requireText(Key.eventKey)
      if (rw?.features !== undefined && !rw.features.has(WATCHERS)) throw proxyErrors.unknownType(frame.type)
      if (!isWatch) relay.unwatch(this, key)
      else if (relay.keysOf(this) >= limits.maxWatchKeysPerClient && !relay.isWatching(this, key)) {
        throw proxyErrors.tooManyWatches(limits.maxWatchKeysPerClient)
      } else relay.watch(this, key, { syncHigh: frame.syncHigh, syncLow: frame.syncLow })
    } catch (error) {
      this.fail(frame, asBoxError(error))
    }
  }

  /** AUTH and ID: what comes behind has another user, or other features. */
  #shakeHands(head: QueuedRequest, kind: Kind): Place {
    if (this.#pinnedGroup !== undefined && this.#inFlight > 0) return this.#waitUntilIdle()
    this.#shift()
    this.hold()
    const answered = kind === Kind.login ? this.#handshake.logIn(head) : this.#handshake.identify(head)
    answered.then(
      () => {
        this.session.resumeReading()
        this.release()
      },
      (error: Error) => this.session.destroy(error),
    )
    return 'answered'
  }

  becomes(login: Login): void {
    const host = this.#host
    host.logins.release(this.login)
    this.login = login
    this.session.user = login.user
    this.weight = host.weightOf(login.user)
    this.#dissolveGroups()
    this.maskChanged()
    this.#pin = host.isSessionMode(login.user) ? 'session_mode' : undefined
  }

  maskChanged(): void {
    this.#lane = this.#readLane = undefined
    this.#onLane = this.#onReadLane = 0
  }

  /** Answers the request at the front: with an error, or with an empty success. */
  #answer(error: BoxError | undefined): Place {
    const request = this.#shift()
    if (request === undefined) return 'answered'
    if (error === undefined) this.#output.send(okReply(request, this.#host.schemaVersion))
    else this.fail(request, error)
    return 'answered'
  }

  answerFront(frame: Buffer): void {
    const request = this.#shift()
    if (request !== undefined) this.#output.send(readdressed(frame, request))
  }

  // ---- what lanes say -----------------------------------------------------------------------------------------------

  replied(frame: Buffer, answer: LaneAnswer): void {
    this.repliedIn(frame, 0, frame.length, answer)
  }

  repliedIn(bytes: Buffer, start: number, end: number, answer: LaneAnswer): void {
    if ((answer.flags & SlotFlag.rw) === 0) patchSchemaVersion(bytes, this.#host.schemaVersion, start, end)
    if (answer.isFinal) this.#settled(answer)
    else this.#host.counters.pushes++
    if (answer.note !== undefined && CANNOT_SERVE.has(answer.status) && this.#repeat(answer, false)) return
    if (!patchReplySync(bytes, answer.syncHigh, answer.syncLow, start, end)) {
      this.#output.send(readdressed(bytes.subarray(start, end), answer))
      return
    }
    this.#output.forward(bytes, start, end, this.#inFlight > 0)
  }

  repliedLarge(head: Buffer, answer: LaneAnswer): LargeFrame {
    patchReplySync(head, answer.syncHigh, answer.syncLow)
    if ((answer.flags & SlotFlag.rw) === 0) patchSchemaVersion(head, this.#host.schemaVersion)
    const { isFinal, lane, flags } = answer
    return this.#output.sendLarge(head, () => {
      if (isFinal) this.#settled({ lane, flags })
    })
  }

  lost(answer: LaneAnswer, cause: OrbweaverError): void {
    this.#settled(answer)
    if (answer.note !== undefined && this.#repeat(answer, true)) return
    this.#host.counters.unknownOutcomes++
    this.fail(answer, proxyErrors.laneLost(answer.lane.target.name, cause.message))
  }

  expired(answer: LaneAnswer): boolean {
    // In the middle of a large reply nothing else can be said.
    if (this.#output.isStreaming && (answer.flags & SlotFlag.repliedPartly) !== 0) return false
    this.#settled(answer)
    this.#host.counters.unknownOutcomes++
    this.fail(answer, proxyErrors.requestTimeout(answer.lane.target.name))
    return true
  }

  #count(request: QueuedRequest, lane: Lane): void {
    this.#inFlight++
    if (request.isApart) return
    if (request.isRead) {
      if (this.#readLane !== lane) {
        this.#readLane = lane
        this.#onReadLane = 0
      }
      this.#onReadLane++
      return
    }
    // Streams have lanes of their own accord; the order of the others is that of one lane.
    if (request.streamId !== 0 && this.#lane !== lane && this.#onLane > 0) return
    if (this.#lane !== lane) {
      this.#lane = lane
      this.#onLane = 0
    }
    this.#onLane++
  }

  #settled({ lane, flags }: { readonly lane: Lane; readonly flags: number }): void {
    this.#inFlight--
    if ((flags & SlotFlag.rw) === 0) {
      if (lane === this.#readLane && this.#onReadLane > 0) this.#onReadLane--
    } else {
      if (lane === this.#lane && this.#onLane > 0) this.#onLane--
      if (this.#host.rules.isEnabled) this.#lastWriteAt = this.#host.clock.now()
    }
    this.#host.counters.replies++
    if (this.#isReadingPaused) this.#watchBacklog()
    if (this.#awaitsIdle) this.#wakeIfIdle()
  }

  // ---- what goes back -----------------------------------------------------------------------------------------------

  answer(chunks: readonly Uint8Array[]): void {
    this.#output.send(chunks)
  }

  fail(request: SyncHalves, error: BoxError): void {
    this.#host.counters.synthesized++
    this.#host.counters.tally.add('errors_total', { code: String(error.boxCode), reason: reasonOf(error) })
    this.#output.send(errorReply(request, this.#host.schemaVersion, error))
  }

  /** An event of a watched key. */
  tell(chunks: readonly Uint8Array[]): void {
    this.#output.send(chunks)
  }

  drained(): void {
    this.#output.drained()
  }

  ownLanes(): readonly Lane[] {
    return this.#pinnedGroup?.lanes ?? NO_LANES
  }

  readsSlowly(): void {
    this.#slowAt = this.#host.clock.now()
    if (this.#pin !== undefined || !this.#pinFor('slow_reader')) return
    this.#watchSlowness()
  }

  /** When it has read fast enough for long enough, it goes back to the lane of the others, at a moment when nothing is under way. */
  #watchSlowness(): void {
    const { clock } = this.#host
    const dueMs = Math.max(this.#slowAt + FAST_AGAIN_MS - clock.now(), LOOK_AGAIN_MS)
    this.#cancelSlownessWatch = clock.schedule(dueMs, () => {
      this.#cancelSlownessWatch = undefined
      if (this.#pin !== 'slow_reader') return
      if (this.session.pendingBytes > 0) this.#slowAt = clock.now()
      if (clock.now() - this.#slowAt < FAST_AGAIN_MS || !this.isIdle || this.streams.isBusy) {
        this.#watchSlowness()
        return
      }
      this.#pin = undefined
      this.#dissolve(this.#pinnedGroup)
      this.#pinnedGroup = undefined
      this.maskChanged()
    })
  }
}

function writeData(out: BodyWriter, values: readonly unknown[]): void {
  out.mapHeader(1)
  out.uint(Key.data)
  out.value(values)
}

const NO_LANES: readonly Lane[] = []
/** What a replica says that cannot serve a read at all: 116, it is still loading; 77, it is a proxy without a target. */
const CANNOT_SERVE: ReadonlySet<number> = new Set([
  RequestType.errorFlag | ErrorCode.loading,
  RequestType.errorFlag | ErrorCode.noConnection,
])
const WRITES_BY_KIND: ReadonlySet<Kind> = new Set<Kind>([Kind.dml, Kind.call, Kind.execute])
/** How long a slow reader has to be fast before it shares a lane again. */
const FAST_AGAIN_MS = 30_000
/** How often the moment is looked for at which nothing of it is under way. */
const LOOK_AGAIN_MS = 1_000
const WATCHERS = 3
