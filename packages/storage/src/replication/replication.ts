/*
 * One instance among its peers: own transactions into the log and out through relays, theirs in through appliers, and the role
 * that says who may write. Instances without peers use it alone: they are writable from the start.
 */
import { connect } from '@orbweaver/connection'
import type { Address, Credential, Environment } from '@orbweaver/connection'
import { BoxError, ErrorCode, InvalidArgumentError } from '@orbweaver/iproto'
import type { ClientSession, InboundFrame } from '@orbweaver/server'
import { BodyReader, Key, RequestType } from '@orbweaver/iproto'
import type { Engine, RowBody } from '../engine/engine.js'
import { boxErrors } from '../errors.js'
import { Applier } from './applier.js'
import type { ApplierTarget, LinkState } from './applier.js'
import { Quorum } from './quorum.js'
import { Relay } from './relay.js'
import type { RelaySource } from './relay.js'
import { accepts, follow, INITIAL_ROLE, promise, promisesNeeded, stepDown } from './role.js'
import type { RoleState } from './role.js'
import { decodeSubscribe } from './row-codec.js'
import type { SnapshotEnd, Subscription } from './row-codec.js'
import { RowLog } from './row-log.js'
import type { LoggedTransaction, Promotion } from './row-log.js'
import { advanced, covers, joined, lsnOf, readVclock } from './vclock.js'
import type { Vclock } from './vclock.js'

/** An instance of the same replicaset. */
export interface PeerDefinition {
  /** Its number in the replicaset, from 1: the same on every instance. */
  readonly number: number
  readonly uuid: string
  readonly address: Address
}

export interface ReplicationOptions {
  /** This instance's number, from 1. */
  readonly number: number
  readonly peers: readonly PeerDefinition[]
  /** How this instance logs in at its peers. */
  readonly credential?: Credential
  /** Instances that must have a write before it is acknowledged, this one included. Default 1. */
  readonly quorum?: number
  /** How long a write waits for them. Default 5,000. */
  readonly quorumTimeoutMs?: number
}

/** The service peers call on each other before a promotion. */
export const PROMISE_FUNCTION = 'orbweaver.replication.promise'

const HEARTBEAT_MS = 1_000
const PROMISE_TIMEOUT_MS = 1_000
const SYNC_POLL_MS = 5
/** Promotions remembered, to recognise rows that are not part of history. */
const MAX_PROMOTIONS = 256

export type InstanceStatus = 'running' | 'loading'

export class Replication implements ApplierTarget, RelaySource {
  readonly log: RowLog = new RowLog()
  readonly #options: ReplicationOptions
  readonly #engine: Engine
  readonly #environment: Environment
  readonly #quorum: Quorum
  readonly #onRoleChange: () => void
  readonly #relays = new Map<ClientSession, Relay>()
  #appliers: Applier[] = []
  #vclock: Vclock = new Map()
  #role: RoleState = INITIAL_ROLE
  #promotions: Promotion[] = []
  #status: InstanceStatus = 'running'
  #isPumpQueued = false
  #cancelHeartbeat: (() => void) | undefined
  #isPromoting = false
  #isStopped = false
  #positionWaiters: { target: Vclock; resolve: () => void }[] = []

  constructor(engine: Engine, options: ReplicationOptions, environment: Environment, onRoleChange: () => void) {
    this.#engine = engine
    this.#options = options
    this.#environment = environment
    this.#onRoleChange = onRoleChange
    this.#quorum = new Quorum({
      clock: environment.clock,
      needed: options.quorum ?? 1,
      timeoutMs: options.quorumTimeoutMs ?? 5_000,
    })
    engine.onCommit = (rows) => this.#committed(rows)
    if (options.peers.length === 0) this.#role = { ...INITIAL_ROLE, leader: options.number, isWritable: true }
  }

  /** Connects to the peers; call it when this instance can answer them. */
  start(): void {
    if (this.#options.peers.length === 0) return
    this.#appliers = this.#options.peers.map(
      ({ number, address }) =>
        new Applier({ number, address, credential: this.#options.credential }, this, this.#environment),
    )
    this.#beat()
  }

  stop(): void {
    this.#isStopped = true
    this.#cancelHeartbeat?.()
    for (const applier of this.#appliers) applier.stop()
    this.#quorum.fail(boxErrors.quorumTimeout())
    this.#relays.clear()
  }

  get vclock(): Vclock {
    return this.#vclock
  }

  get term(): number {
    return this.#role.term
  }

  get leader(): number {
    return this.#role.leader
  }

  get isWritable(): boolean {
    return this.#role.isWritable && this.#status === 'running'
  }

  get status(): InstanceStatus {
    return this.#status
  }

  get promotions(): readonly Promotion[] {
    return this.#promotions
  }

  /** The links to the peers, by their numbers. */
  get links(): ReadonlyMap<number, LinkState> {
    return new Map(this.#appliers.map((applier) => [applier.peer, applier.state]))
  }

  /** undefined when everything written here is where it has to be. */
  whenCommitted(): Promise<void> | undefined {
    return this.#quorum.wait(lsnOf(this.#vclock, this.#options.number))
  }

  /** Whether every other instance has everything that is here, within the time. */
  async synced(timeoutMs: number): Promise<boolean> {
    const target = this.#vclock
    const deadline = this.#environment.clock.now() + timeoutMs
    const isSynced = (): boolean =>
      this.#options.peers.every(({ number }) =>
        [...this.#relays.values()].some((relay) => relay.replicaId === number && covers(relay.acknowledged, target)),
      )
    while (!isSynced()) {
      const left = deadline - this.#environment.clock.now()
      if (left <= 0) return false
      await new Promise<void>((resolve) => this.#environment.clock.schedule(Math.min(left, SYNC_POLL_MS), resolve))
    }
    return true
  }

  /**
   * Becomes the master: asks the others to promise a new term, takes over what they have, and writes the promotion.
   * Promoting the master again is harmless.
   * @throws BoxError 1 when too few answer or a newer candidate is at work, 78 when their rows do not arrive in time
   */
  async promote(options: { timeout?: number } = {}): Promise<void> {
    if (this.isWritable) return
    if (this.#isPromoting) throw boxErrors.illegalParams('A promotion of this instance is under way')
    this.#isPromoting = true
    try {
      await this.#promote(this.#environment.clock.now() + (options.timeout ?? 10_000))
    } finally {
      this.#isPromoting = false
    }
  }

  /** Stops taking writes. */
  demote(): void {
    this.#setRole(stepDown(this.#role))
  }

  /** The answer to a candidate: this instance takes older rows from nobody else any more. @throws BoxError 1 */
  promise(term: number, candidate: number): { vclock: Vclock; term: number } {
    const next = promise(this.#role, term, candidate)
    if (next === undefined) {
      throw boxErrors.illegalParams(
        `Term ${this.#role.promised} was promised to instance ${this.#role.promisedTo}, term ${term} of instance ${candidate} comes too late`,
      )
    }
    this.#setRole(next)
    return { vclock: this.#vclock, term: this.#role.term }
  }

  // ---- relays: others read here -------------------------------------------------------------------------------------

  subscribe(session: ClientSession, frame: InboundFrame): void {
    const subscription = decodeSubscribe(frame.body)
    if (
      subscription.replicaId === this.#options.number ||
      !this.#options.peers.some((peer) => peer.number === subscription.replicaId)
    ) {
      throw boxErrors.illegalParams(`Instance number ${subscription.replicaId} is not one of this replicaset's others`)
    }
    this.#relays.set(session, new Relay(this, session, subscription))
    this.#heard(subscription.replicaId, subscription.vclock)
  }

  /** Whether `session` is a subscriber; if so, its frame was an acknowledgement. */
  acknowledge(session: ClientSession, frame: InboundFrame): boolean {
    const relay = this.#relays.get(session)
    if (relay === undefined) return false
    if (frame.type === RequestType.ok) {
      relay.acknowledged = readVclock(new BodyReader(frame.body).value(Key.vclock))
      this.#heard(relay.replicaId, relay.acknowledged)
    }
    return true
  }

  drained(session: ClientSession): void {
    this.#relays.get(session)?.drained()
  }

  sessionClosed(session: ClientSession): void {
    this.#relays.delete(session)
  }

  snapshot(): Iterable<RowBody> {
    return this.#engine.snapshot()
  }

  // ---- appliers: what the others have -------------------------------------------------------------------------------

  subscription(): Subscription {
    return { replicaId: this.#options.number, vclock: this.#vclock, term: this.#role.term }
  }

  transaction(transaction: LoggedTransaction, peer: number): void {
    const { origin, lsn, promotion } = transaction
    const known = lsnOf(this.#vclock, origin)
    if (lsn <= known) return
    if (!accepts(this.#role, transaction.term, peer, this.#options.number)) {
      throw new InvalidArgumentError(
        `Rows of term ${transaction.term} come too late: term ${this.#role.promised} was promised`,
      )
    }
    if (lsn !== known + 1)
      throw new InvalidArgumentError(`Transaction ${lsn} of instance ${origin} follows ${known}: some are missing`)
    if (promotion !== undefined && !covers(promotion.vclock, this.#vclock)) {
      // This instance has rows the new master never had: they are not part of history, its state is replaced.
      this.#diverged()
      throw new InvalidArgumentError(`Instance ${origin} was promoted without some of this instance's rows`)
    }
    this.#engine.applyRows(transaction.rows)
    this.#append(transaction)
    if (promotion !== undefined) this.#follow(promotion, origin)
  }

  takeOver(rows: readonly RowBody[], end: SnapshotEnd): void {
    if (end.term < this.#role.term && this.#status === 'running') {
      throw new InvalidArgumentError(`A snapshot of term ${end.term} is older than term ${this.#role.term}`)
    }
    if (this.#status === 'running' && covers(this.#vclock, end.vclock) && end.term <= this.#role.term) return
    this.#setStatus('loading')
    this.#quorum.fail(boxErrors.quorumTimeout())
    this.#engine.restore(rows)
    this.log.clear()
    this.#vclock = end.vclock
    this.#quorum.reset(lsnOf(end.vclock, this.#options.number))
    this.#promotions = [...end.promotions]
    const { term, leader } = end
    if (term > this.#role.term)
      this.#role = { ...follow(this.#role, term, leader, this.#options.number), isWritable: false }
    this.#setStatus('running')
    // Relays of this instance continue from a snapshot of their own.
    this.#pump()
    this.#positionReached()
  }

  linkChanged(peer: number): void {
    const applier = this.#appliers.find((candidate) => candidate.peer === peer)
    if (applier?.state.name === 'follow') this.#pump()
  }

  // ---- inside -------------------------------------------------------------------------------------------------------

  #committed(rows: readonly RowBody[]): void {
    this.#own(rows, undefined)
  }

  #own(rows: readonly RowBody[], promotion: Promotion | undefined): void {
    const { number } = this.#options
    this.#append({
      origin: number,
      lsn: lsnOf(this.#vclock, number) + 1,
      term: promotion?.term ?? this.#role.term,
      timestamp: this.#environment.clock.wallNow(),
      rows,
      promotion,
    })
  }

  #append(transaction: LoggedTransaction): void {
    if (this.#options.peers.length > 0) this.log.append(transaction, this.#vclock)
    this.#vclock = advanced(this.#vclock, transaction.origin, transaction.lsn)
    this.#pump()
    this.#positionReached()
  }

  #follow(promotion: Promotion, leader: number): void {
    this.#promotions.push(promotion)
    if (this.#promotions.length > MAX_PROMOTIONS) this.#promotions.shift()
    this.#setRole(follow(this.#role, promotion.term, leader, this.#options.number))
  }

  #setRole(next: RoleState): void {
    const before = this.#role
    this.#role = next
    if (before.isWritable !== next.isWritable || before.term !== next.term || before.leader !== next.leader)
      this.#onRoleChange()
  }

  #setStatus(status: InstanceStatus): void {
    this.#status = status
    this.#onRoleChange()
  }

  /** Relays send in `soon`, so that everything of one turn leaves together. */
  #pump(): void {
    if (this.#isPumpQueued || this.#relays.size === 0) return
    this.#isPumpQueued = true
    this.#environment.clock.soon(() => {
      this.#isPumpQueued = false
      for (const relay of this.#relays.values()) relay.pump()
    })
  }

  #beat(): void {
    this.#cancelHeartbeat = this.#environment.clock.schedule(HEARTBEAT_MS, () => {
      if (this.#isStopped) return
      for (const relay of this.#relays.values()) relay.heartbeat()
      this.#beat()
    })
  }

  #heard(peer: number, vclock: Vclock): void {
    this.#quorum.acknowledge(peer, lsnOf(vclock, this.#options.number))
  }

  #diverged(): void {
    this.#setStatus('loading')
    this.#quorum.fail(boxErrors.quorumTimeout())
    this.#vclock = new Map()
    this.log.clear()
    for (const applier of this.#appliers) applier.resubscribe()
  }

  async #promote(deadline: number): Promise<void> {
    const { clock } = this.#environment
    const { number, peers, quorum = 1 } = this.#options
    const term = Math.max(this.#role.term, this.#role.promised) + 1
    const own = promise(this.#role, term, number)
    if (own === undefined) throw boxErrors.illegalParams(`Term ${term} was promised to another instance`)
    this.#setRole(own)
    const answers = await Promise.allSettled(peers.map((peer) => this.#askPromise(peer, term)))
    const given = answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value] : []))
    const refusals = answers.flatMap((answer, i) =>
      answer.status === 'rejected' ? [`instance ${peers[i]!.number}: ${(answer.reason as Error).message}`] : [],
    )
    const needed = quorum > 1 ? promisesNeeded(peers.length + 1, quorum) : 1
    if (given.length + 1 < needed) {
      throw boxErrors.illegalParams(
        `Instance ${number} cannot be promoted: ${given.length + 1} of the ${needed} instances it needs agree (${refusals.join('; ')})`,
      )
    }
    const target = given.reduce((vclock, answer) => joined(vclock, answer), this.#vclock)
    await this.#reach(target, deadline - clock.now())
    if (this.#role.promised !== term || this.#role.promisedTo !== number) {
      throw boxErrors.illegalParams(`Instance ${this.#role.promisedTo} asked for the newer term ${this.#role.promised}`)
    }
    const promotion: Promotion = { term, vclock: this.#vclock }
    this.#own([], promotion)
    this.#follow(promotion, number)
  }

  async #askPromise(peer: PeerDefinition, term: number): Promise<Vclock> {
    const { credential, number } = this.#options
    const connection = await connect({
      uri: peer.address,
      ...credential,
      connectTimeoutMs: PROMISE_TIMEOUT_MS,
      reconnect: false,
      environment: this.#environment,
    })
    try {
      const [answer] = await connection.call<[{ vclock: unknown }]>(PROMISE_FUNCTION, [term, number], {
        timeout: PROMISE_TIMEOUT_MS,
      })
      return readVclock(answer.vclock)
    } finally {
      connection.destroy()
    }
  }

  #reach(target: Vclock, timeoutMs: number): Promise<void> {
    if (covers(this.#vclock, target)) return Promise.resolve()
    return new Promise((resolve, reject) => {
      const waiter = {
        target,
        resolve: () => {
          cancel()
          resolve()
        },
      }
      const cancel = this.#environment.clock.schedule(Math.max(0, timeoutMs), () => {
        this.#positionWaiters = this.#positionWaiters.filter((other) => other !== waiter)
        reject(
          BoxError.of(ErrorCode['timeout'], 'The rows of the previous master did not arrive in time', {
            boxType: 'TimedOut',
          }),
        )
      })
      this.#positionWaiters.push(waiter)
    })
  }

  #positionReached(): void {
    if (this.#positionWaiters.length === 0) return
    const due = this.#positionWaiters.filter((waiter) => covers(this.#vclock, waiter.target))
    if (due.length === 0) return
    this.#positionWaiters = this.#positionWaiters.filter((waiter) => !due.includes(waiter))
    for (const waiter of due) waiter.resolve()
  }
}
