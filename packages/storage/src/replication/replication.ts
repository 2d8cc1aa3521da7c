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
import type { Restoration } from '../engine/restoration.js'
import { boxErrors } from '../errors.js'
import { Journal } from '../journal/journal.js'
import type { JournalInfo, JournalOptions, JournalSubject } from '../journal/journal.js'
import type { JournalOwnerId } from '../journal/file-head.js'
import type { JournalFrame, JournalRecord, Vote } from '../journal/record.js'
import type { SnapshotView } from '../journal/snapshot.js'
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

/** What was appended to the journal and is not on disk yet. */
interface Undurable {
  readonly sequence: number
  readonly vclock: Vclock
  /** End of the row log then. */
  readonly end: number
}

export class Replication implements ApplierTarget, RelaySource, JournalSubject {
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
  /** Came up with nothing of its own: until it has what the others have, it must not be read. */
  #isCatchingUp = false
  #isPumpQueued = false
  #cancelHeartbeat: (() => void) | undefined
  #isPromoting = false
  #isStopped = false
  #positionWaiters: { target: Vclock; resolve: () => void }[] = []
  /** Without one, what is in memory counts as safe. */
  readonly #journal: Journal | undefined
  #undurable: Undurable[] = []
  #durableVclock: Vclock = new Map()
  #divergedTerm = 0
  /** Rows of the transaction that is being read back. */
  #replayed: RowBody[] = []

  constructor(
    engine: Engine,
    options: ReplicationOptions,
    environment: Environment,
    onRoleChange: () => void,
    journal?: Omit<JournalOptions, 'clock'>,
  ) {
    this.#engine = engine
    this.#options = options
    this.#environment = environment
    this.#onRoleChange = onRoleChange
    this.#quorum = new Quorum({
      clock: environment.clock,
      needed: options.quorum ?? 1,
      timeoutMs: options.quorumTimeoutMs ?? 5_000,
    })
    engine.onCommit = (rows, localRows) => this.#committed(rows, localRows)
    if (journal !== undefined) {
      this.#journal = new Journal({ ...journal, clock: environment.clock }, this)
      this.#status = 'loading'
    }
    this.#isCatchingUp = options.peers.length > 0
    if (options.peers.length === 0) this.#role = { ...INITIAL_ROLE, leader: options.number, isWritable: true }
  }

  /**
   * Reads back what was there before, where there is a journal. Once.
   * @throws JournalError
   */
  async open(uuid: string | undefined, newUuid: () => string): Promise<JournalOwnerId | undefined> {
    if (this.#journal === undefined || this.#journal.isOpen) return undefined
    const owner = await this.#journal.open({ uuid, number: this.#options.number }, newUuid)
    this.log.reveal()
    this.#durableVclock = this.#vclock
    this.#quorum.reset(lsnOf(this.#vclock, this.#options.number))
    this.#engine.onRestored()
    this.#setStatus('running')
    return owner
  }

  /** Connects to the peers; call it when this instance can answer them. @throws InvalidArgumentError before `open` */
  start(): void {
    if (this.#journal?.isOpen === false)
      throw new InvalidArgumentError('A durable storage reads its directory first: await open() before start()')
    if (this.#options.peers.length === 0) return
    if (this.#vclock.size > 0) {
      this.#isCatchingUp = false
      this.#onRoleChange()
    }
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

  /** Writes what is not on disk yet, and gives the directory back. */
  async close(): Promise<void> {
    await this.#journal?.close()
  }

  /** Why no write may be made now, whoever is the master. */
  get refusal(): BoxError | undefined {
    return this.#status === 'loading' ? boxErrors.loading() : this.#journal?.refusal
  }

  get journal(): JournalInfo | undefined {
    return this.#journal?.info()
  }

  /** Takes a snapshot of everything now. */
  async snapshotNow(): Promise<void> {
    await this.#journal?.snapshot()
  }

  /** What would still be here after a restart. */
  get durableVclock(): Vclock {
    return this.#journal === undefined ? this.#vclock : this.#durableVclock
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

  /** `loading` also while it has not yet what the others have. */
  get status(): InstanceStatus {
    return this.#isCatchingUp ? 'loading' : this.#status
  }

  /** Its state is being read or replaced: nothing can be answered. */
  get isLoading(): boolean {
    return this.#status === 'loading'
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
    const onDisk = this.#journal?.whenDurable()
    const elsewhere = this.#quorum.wait(lsnOf(this.#vclock, this.#options.number))
    if (onDisk === undefined) return elsewhere
    return elsewhere === undefined ? onDisk : Promise.all([onDisk, elsewhere]).then(() => undefined)
  }

  /** Numbers of the instances that read rows here now. */
  get followers(): ReadonlySet<number> {
    return new Set([...this.#relays.values()].map((relay) => relay.replicaId))
  }

  /** Whether every other instance, `except` some by their numbers, has everything that is here, within the time. */
  async synced(timeoutMs: number, except: ReadonlySet<number> = new Set<number>()): Promise<boolean> {
    const target = this.#vclock
    const deadline = this.#environment.clock.now() + timeoutMs
    const isSynced = (): boolean =>
      this.#options.peers.every(
        ({ number }) =>
          except.has(number) ||
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
        { term: this.#role.term },
      )
    }
    this.#promised(next)
    return { vclock: this.#vclock, term: this.#role.term }
  }

  // ---- relays: others read here -------------------------------------------------------------------------------------

  subscribe(session: ClientSession, frame: InboundFrame): void {
    if (this.#status !== 'running') throw boxErrors.loading()
    const subscription = decodeSubscribe(frame.body)
    if (
      subscription.replicaId === this.#options.number ||
      !this.#options.peers.some((peer) => peer.number === subscription.replicaId)
    ) {
      throw boxErrors.illegalParams(`Instance number ${subscription.replicaId} is not one of this replicaset's others`)
    }
    this.#relays.set(session, new Relay(this, session, subscription))
    this.#heard(subscription.replicaId, subscription.vclock, subscription.term)
  }

  /** Whether `session` is a subscriber; if so, its frame was an acknowledgement. */
  acknowledge(session: ClientSession, frame: InboundFrame): boolean {
    const relay = this.#relays.get(session)
    if (relay === undefined) return false
    if (frame.type === RequestType.ok) {
      const body = new BodyReader(frame.body)
      relay.acknowledged = readVclock(body.value(Key.vclock))
      this.#heard(relay.replicaId, relay.acknowledged, body.uint(Key.term) ?? 0)
    }
    return true
  }

  drained(session: ClientSession): void {
    this.#relays.get(session)?.drained()
  }

  sessionClosed(session: ClientSession): void {
    this.#relays.delete(session)
  }

  snapshot(): Iterator<RowBody> {
    return this.#engine.snapshot()
  }

  soon(task: () => void): void {
    this.#environment.clock.soon(() => {
      if (!this.#isStopped) task()
    })
  }

  // ---- appliers: what the others have -------------------------------------------------------------------------------

  subscription(): Subscription {
    return { replicaId: this.#options.number, vclock: this.durableVclock, term: this.#role.term }
  }

  transaction(transaction: LoggedTransaction, peer: number): void {
    const { origin, lsn, promotion } = transaction
    const known = lsnOf(this.#vclock, origin)
    if (lsn <= known) return
    const refusal = this.#journal?.refusal
    if (refusal !== undefined) throw refusal
    if (!accepts(this.#role, transaction.term, peer, this.#options.number)) {
      throw new InvalidArgumentError(
        `Rows of term ${transaction.term} come too late: term ${this.#role.promised} was promised`,
      )
    }
    if (lsn !== known + 1)
      throw new InvalidArgumentError(`Transaction ${lsn} of instance ${origin} follows ${known}: some are missing`)
    if (promotion !== undefined && !covers(promotion.vclock, this.#vclock)) {
      // This instance has rows the new master never had: they are not part of history, its state is replaced.
      this.#diverged(promotion.term)
      throw new InvalidArgumentError(`Instance ${origin} was promoted without some of this instance's rows`)
    }
    this.#engine.applyRows(transaction.rows)
    this.#append(transaction)
    if (promotion !== undefined) this.#follow(promotion, origin)
  }

  takeOver(state: Restoration, end: SnapshotEnd): void {
    const needed = Math.max(this.#role.term, this.#divergedTerm)
    if (end.term < needed) throw new InvalidArgumentError(`A snapshot of term ${end.term} is older than term ${needed}`)
    if (this.#status === 'running' && covers(this.#vclock, end.vclock) && end.term <= this.#role.term) return
    this.#setStatus('loading')
    this.#quorum.fail(boxErrors.quorumTimeout())
    this.#engine.restore(state)
    this.log.clear()
    this.#vclock = end.vclock
    this.#quorum.reset(lsnOf(end.vclock, this.#options.number))
    this.#promotions = [...end.promotions]
    const { term, leader } = end
    if (term > this.#role.term)
      this.#role = { ...follow(this.#role, term, leader, this.#options.number), isWritable: false }
    if (this.#journal !== undefined) {
      this.#undurable = []
      this.#durableVclock = new Map()
      this.#journal.replaced()
      this.#record({ vote: this.#vote })
    }
    this.#setStatus('running')
    // Relays of this instance continue from a snapshot of their own.
    this.#pump()
    this.#positionReached()
  }

  // ---- the journal: what was here before ----------------------------------------------------------------------------

  loadRows(rows: readonly RowBody[]): void {
    this.#engine.load(rows)
  }

  loadEnd({ vclock, term, leader, promotions }: SnapshotEnd, vote: Vote): void {
    this.#vclock = vclock
    this.#promotions = [...promotions]
    this.#role = { ...this.#role, term, leader, promised: vote.term, promisedTo: vote.candidate }
  }

  replay(frame: JournalFrame): void {
    switch (frame.is) {
      case 'vote':
        this.#role = { ...this.#role, promised: frame.vote.term, promisedTo: frame.vote.candidate }
        return
      case 'snapshotRow': // a row of a local space
        this.#engine.load([frame.row])
        return
      case 'row':
        if (frame.row !== undefined) this.#replayed.push(frame.row)
        if (frame.isLast) this.#replayTransaction({ ...frame.place, rows: this.#replayed })
        return
      case 'position':
      case 'snapshotStart':
      case 'snapshotEnd':
        throw new InvalidArgumentError(`A journal holds no frame of kind '${frame.is}'`)
    }
  }

  #replayTransaction(transaction: LoggedTransaction): void {
    this.#replayed = []
    this.#engine.load(transaction.rows)
    this.#advance(transaction)
    const { promotion, origin } = transaction
    if (promotion === undefined) return
    this.#promotions.push(promotion)
    if (this.#promotions.length > MAX_PROMOTIONS) this.#promotions.shift()
    // Whoever was the master must be promoted again: others may have gone on in the meantime. One that is alone may write.
    this.#role = { ...follow(this.#role, promotion.term, origin, this.#options.number), isWritable: this.#isAlone }
  }

  get #isAlone(): boolean {
    return this.#options.peers.length === 0
  }

  view(): SnapshotView | undefined {
    if (this.#status !== 'running') return undefined
    const { term, leader } = this.#role
    return {
      rows: this.#engine.snapshot({ withLocal: true }),
      end: { vclock: this.#vclock, term, leader, promotions: [...this.#promotions] },
      vote: this.#vote,
    }
  }

  durable(sequence: number): void {
    let done = 0
    while (done < this.#undurable.length && this.#undurable[done]!.sequence <= sequence) done++
    const last = this.#undurable[done - 1]
    if (last === undefined) return
    this.#undurable.splice(0, done)
    this.#durableVclock = last.vclock
    this.log.reveal(last.end)
    this.#pump()
    for (const applier of this.#appliers) applier.acknowledge()
  }

  linkChanged(peer: number): void {
    const applier = this.#appliers.find((candidate) => candidate.peer === peer)
    if (applier?.state.name === 'follow') this.#pump()
    this.#lookWhetherCaughtUp()
  }

  // ---- inside -------------------------------------------------------------------------------------------------------

  #committed(rows: readonly RowBody[], localRows: readonly RowBody[]): void {
    if (rows.length > 0) this.#own(rows, undefined, localRows)
    else if (localRows.length > 0) this.#record({ localRows })
  }

  #own(rows: readonly RowBody[], promotion: Promotion | undefined, localRows: readonly RowBody[] = []): void {
    const { number } = this.#options
    const transaction: LoggedTransaction = {
      origin: number,
      lsn: lsnOf(this.#vclock, number) + 1,
      term: promotion?.term ?? this.#role.term,
      timestamp: this.#environment.clock.wallNow(),
      rows,
      promotion,
    }
    this.#append(transaction, localRows)
  }

  #append(transaction: LoggedTransaction, localRows: readonly RowBody[] = []): void {
    this.#advance(transaction)
    this.#record({ transaction, localRows })
    this.#pump()
    this.#positionReached()
  }

  #advance(transaction: LoggedTransaction): void {
    if (this.#options.peers.length > 0) this.log.append(transaction, this.#vclock)
    this.#vclock = advanced(this.#vclock, transaction.origin, transaction.lsn)
  }

  #record(record: JournalRecord): void {
    if (this.#journal === undefined) {
      this.log.reveal()
      return
    }
    this.#journal.append(record)
    this.#undurable.push({ sequence: this.#journal.sequence, vclock: this.#vclock, end: this.log.end })
  }

  get #vote(): Vote {
    return { term: this.#role.promised, candidate: this.#role.promisedTo }
  }

  /** A promise must outlive this process: it is in the journal before anybody is told. */
  #promised(next: RoleState): void {
    const isNew = next.promised !== this.#role.promised || next.promisedTo !== this.#role.promisedTo
    this.#setRole(next)
    if (isNew) this.#record({ vote: this.#vote })
  }

  #follow(promotion: Promotion, leader: number): void {
    this.#promotions.push(promotion)
    if (this.#promotions.length > MAX_PROMOTIONS) this.#promotions.shift()
    this.#setRole(follow(this.#role, promotion.term, leader, this.#options.number))
  }

  #setRole(next: RoleState): void {
    const before = this.#role
    this.#role = next
    // A master is what the others catch up with.
    if (next.isWritable) this.#isCatchingUp = false
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

  /**
   * Positions count only between instances of one term: under another one the same number may be another transaction, which its
   * instance is about to give up, or one that a later master never had.
   */
  #heard(peer: number, vclock: Vclock, term: number): void {
    if (term === this.#role.term) this.#quorum.acknowledge(peer, lsnOf(vclock, this.#options.number))
  }

  /** @param term - of the promotion that showed it: only a state that knows it may replace this one */
  #diverged(term: number): void {
    this.#divergedTerm = term
    this.#setStatus('loading')
    this.#quorum.fail(boxErrors.quorumTimeout())
    this.#vclock = new Map()
    this.#durableVclock = new Map()
    this.#undurable = []
    this.log.clear()
    for (const applier of this.#appliers) applier.resubscribe()
  }

  /** @param known - the highest term somebody has told of: an instance that was away does not know it by itself */
  async #promote(deadline: number, known: number = 0): Promise<void> {
    const { clock } = this.#environment
    const { number, peers, quorum = 1 } = this.#options
    const term = Math.max(this.#role.term, this.#role.promised, known) + 1
    const own = promise(this.#role, term, number)
    if (own === undefined) throw boxErrors.illegalParams(`Term ${term} was promised to another instance`)
    this.#promised(own)
    const answers = await Promise.allSettled(peers.map((peer) => this.#askPromise(peer, term)))
    const given = answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value] : []))
    const refusals = answers.flatMap((answer, i) =>
      answer.status === 'rejected' ? [`instance ${peers[i]!.number}: ${(answer.reason as Error).message}`] : [],
    )
    const needed = quorum > 1 ? promisesNeeded(peers.length + 1, quorum) : 1
    if (given.length + 1 < needed) {
      const passed = Math.max(0, ...answers.map((answer) => (answer.status === 'rejected' ? termIn(answer.reason) : 0)))
      if (passed >= term && known === 0) return this.#promote(deadline, passed)
      throw boxErrors.illegalParams(
        `Instance ${number} cannot be promoted: ${given.length + 1} of the ${needed} instances it needs agree (${refusals.join('; ')})`,
      )
    }
    // Its own promise counts, so it must be as safe as theirs.
    await this.#journal?.whenDurable()
    const target = given.reduce((vclock, answer) => joined(vclock, answer), this.#vclock)
    await this.#reach(target, deadline - clock.now())
    if (this.#role.promised !== term || this.#role.promisedTo !== number) {
      throw boxErrors.illegalParams(`Instance ${this.#role.promisedTo} asked for the newer term ${this.#role.promised}`)
    }
    const promotion: Promotion = { term, vclock: this.#vclock }
    this.#own([], promotion)
    this.#follow(promotion, number)
    // Whoever asked for it counts on it from now on.
    await this.#journal?.whenDurable()
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

  /** It has what each reachable peer said to have, and at least one said so. */
  #lookWhetherCaughtUp(): void {
    if (!this.#isCatchingUp || this.#appliers.some((applier) => applier.state.name === 'connecting')) return
    const followed = this.#appliers.filter((applier) => applier.state.name === 'follow')
    if (followed.length === 0 || !followed.every((applier) => covers(this.#vclock, applier.peerVclock))) return
    this.#isCatchingUp = false
    this.#onRoleChange()
  }

  #positionReached(): void {
    this.#lookWhetherCaughtUp()
    if (this.#positionWaiters.length === 0) return
    const due = this.#positionWaiters.filter((waiter) => covers(this.#vclock, waiter.target))
    if (due.length === 0) return
    this.#positionWaiters = this.#positionWaiters.filter((waiter) => !due.includes(waiter))
    for (const waiter of due) waiter.resolve()
  }
}

/** The term the refusing instance is in, as its error tells. */
function termIn(error: unknown): number {
  const term = error instanceof BoxError ? error.fields.get('term') : undefined
  return typeof term === 'number' ? term : 0
}
