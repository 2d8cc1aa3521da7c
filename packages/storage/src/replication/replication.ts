/*
 * One instance among its peers: own transactions into the log and out through relays, theirs in through upstreams, and the role
 * that says who may write. Instances without peers use it alone: they are writable from the start.
 */
import type { Environment } from '@orbweaver/connection'
import { FrameWriter, InvalidArgumentError, RequestType } from '@orbweaver/iproto'
import type { BoxError, Row } from '@orbweaver/iproto'
import type { ClientSession, InboundFrame } from '@orbweaver/server'
import type { Engine, RowBody } from '../engine/engine.js'
import type { Restoration } from '../engine/restoration.js'
import { boxErrors } from '../errors.js'
import type { JournalOwnerId } from '../journal/file-head.js'
import { Journal } from '../journal/journal.js'
import type { JournalInfo, JournalOptions, JournalSubject } from '../journal/journal.js'
import type { JournalRecord } from '../journal/record.js'
import type { SnapshotView } from '../journal/snapshot.js'
import type { LinkInfo } from './applier.js'
import type { History } from './history.js'
import { JournalReplay } from './journal-replay.js'
import type { InstanceIdentity, ReplicationOptions } from './options.js'
import { encodePromiseAnswer, readPromiseRequest } from './promise-request.js'
import type { PromiseAnswer } from './promise-request.js'
import { Promoter } from './promoter.js'
import type { Candidate } from './promoter.js'
import { Quorum } from './quorum.js'
import type { RelaySource } from './relay.js'
import { Relays } from './relays.js'
import { ReplicaState } from './replica-state.js'
import { counts, follow, INITIAL_ROLE, lead, MAX_TERM, promise, stepDown } from './role.js'
import type { RoleState } from './role.js'
import { RowLog } from './row-log.js'
import { NO_UUID } from './stream-codec.js'
import type { SnapshotHead, StreamFrame, Vote } from './stream-codec.js'
import type { Promotion, RowTransaction } from './transaction.js'
import { Upstreams } from './upstreams.js'
import type { Receiver } from './upstreams.js'
import { lsnOf } from './vclock.js'
import type { Vclock } from './vclock.js'

export type InstanceStatus = 'running' | 'loading'

/** What goes to the disk as one and is not there yet. */
interface Undurable {
  readonly sequence: number
  readonly vclock: Vclock
  /** End of the row log then. */
  readonly end: number
}

export interface ReplicationParts {
  readonly engine: Engine
  readonly options: ReplicationOptions
  readonly identity: InstanceIdentity
  readonly environment: Environment
  readonly onRoleChange: () => void
  /** Absent: what is in memory counts as safe. */
  readonly journal: Omit<JournalOptions, 'clock'> | undefined
}

export class Replication implements RelaySource, JournalSubject, Candidate, Receiver {
  readonly log: RowLog = new RowLog()
  readonly #parts: ReplicationParts
  readonly #state: ReplicaState
  readonly #quorum: Quorum
  readonly #relays: Relays
  readonly #upstreams: Upstreams
  readonly #promoter: Promoter
  readonly #replay: JournalReplay
  readonly #journal: Journal | undefined
  #status: InstanceStatus = 'running'
  #undurable: Undurable[] = []
  #durableVclock: Vclock = new Map()
  /** Wall clock in this turn of the event loop, when a row wanted it. */
  #turnMs: number | undefined
  readonly #endTurn = (): void => {
    this.#turnMs = undefined
  }

  constructor(parts: ReplicationParts) {
    this.#parts = parts
    const { engine, options, identity, environment } = parts
    const { number, peers, quorum = 1 } = options
    const { clock } = environment
    const isAlone = peers.length === 0
    this.#state = new ReplicaState(number)
    this.#quorum = new Quorum({ clock, needed: quorum, timeoutMs: options.quorumTimeoutMs ?? 5_000 })
    this.#relays = new Relays({
      source: this,
      numbers: new Map(peers.map((peer) => [peer.uuid, peer.number])),
      onHeard: (peer, vclock, term) => this.#heard(peer, vclock, term),
    })
    this.#upstreams = new Upstreams({ options, identity, environment, state: this.#state, receiver: this })
    this.#promoter = new Promoter({ number, peers, credential: options.credential, quorum, environment }, this)
    this.#replay = new JournalReplay({ engine, state: this.#state, log: this.log, isAlone })
    engine.onCommit = (rows, localRows) => this.#committed(rows, localRows)
    if (parts.journal !== undefined) {
      this.#journal = new Journal({ ...parts.journal, clock }, this)
      this.#status = 'loading'
    }
    if (isAlone) this.#state.role = { ...INITIAL_ROLE, leader: number, isWritable: true }
  }

  /**
   * Reads back what was there before, where there is a journal. Once.
   * @throws JournalError
   */
  async open(uuid: string | undefined, newUuid: () => string): Promise<JournalOwnerId | undefined> {
    if (this.#journal === undefined || this.#journal.isOpen) return undefined
    const owner = await this.#journal.open({ uuid, number: this.number }, newUuid)
    this.log.reveal()
    this.#durableVclock = this.vclock
    this.#quorum.reset(this.#state.lsnOf(this.number))
    this.#parts.engine.onRestored()
    this.#setStatus('running')
    return owner
  }

  /** Connects to the peers; call it when this instance can answer them. @throws InvalidArgumentError before `open` */
  start(): void {
    if (this.#journal?.isOpen === false)
      throw new InvalidArgumentError('A durable storage reads its directory first: await open() before start()')
    if (this.#parts.options.peers.length === 0) return
    if (this.vclock.size > 0) this.#upstreams.caughtUp()
    this.#upstreams.start()
    this.#relays.start()
  }

  stop(): void {
    this.#upstreams.stop()
    this.#quorum.fail(boxErrors.quorumTimeout())
    this.#relays.stop()
  }

  /** Writes what is not on disk yet, and gives the directory back. */
  async close(): Promise<void> {
    await this.#journal?.close()
  }

  // ---- where it stands ----------------------------------------------------------------------------------------------

  get number(): number {
    return this.#state.self
  }

  get replicasetUuid(): string {
    return this.#parts.identity.replicasetUuid ?? NO_UUID
  }

  get clock(): Environment['clock'] {
    return this.#parts.environment.clock
  }

  get role(): RoleState {
    return this.#state.role
  }

  get history(): History {
    return this.#state.history
  }

  get vclock(): Vclock {
    return this.#state.vclock
  }

  get term(): number {
    return this.role.term
  }

  get leader(): number {
    return this.role.leader
  }

  get isWritable(): boolean {
    return this.role.isWritable && this.#status === 'running'
  }

  /** `loading` also while it has not yet what the others have. */
  get status(): InstanceStatus {
    return this.#upstreams.isCatchingUp ? 'loading' : this.#status
  }

  /** Its state is being read: nothing can be answered. */
  get isLoading(): boolean {
    return this.#status === 'loading'
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
    return this.#journal === undefined ? this.vclock : this.#durableVclock
  }

  /** The links to the peers, by their numbers. */
  get links(): ReadonlyMap<number, LinkInfo> {
    return this.#upstreams.links
  }

  /** Numbers of the instances that read rows here now. */
  get followers(): ReadonlySet<number> {
    return this.#relays.followers
  }

  /** Everything written here is where it has to be. */
  get isCommitted(): boolean {
    return (this.#journal?.isDurable ?? true) && this.#quorum.has(this.#state.lsnOf(this.number))
  }

  /** undefined when `isCommitted`. */
  whenCommitted(): Promise<void> | undefined {
    const onDisk = this.#journal?.whenDurable()
    const elsewhere = this.#quorum.wait(this.#state.lsnOf(this.number))
    if (onDisk === undefined) return elsewhere
    return elsewhere === undefined ? onDisk : Promise.all([onDisk, elsewhere]).then(() => undefined)
  }

  whenDurable(): Promise<void> | undefined {
    return this.#journal?.whenDurable()
  }

  /** Whether every other instance, `except` some by their numbers, has everything that is here, within the time. */
  synced(timeoutMs: number, except: ReadonlySet<number> = new Set<number>()): Promise<boolean> {
    const others = this.#parts.options.peers.map(({ number }) => number).filter((number) => !except.has(number))
    return this.#relays.synced(others, this.vclock, timeoutMs)
  }

  // ---- the role -----------------------------------------------------------------------------------------------------

  /**
   * Becomes the master. One that is the master already makes sure that it still is: under a quorum the others must say so. Without
   * one (`quorum: 1`) its own word is enough, and two that cannot reach each other may both be masters: when they meet, the later
   * term stays (of one term, the higher number), and what the other one wrote alone is given up.
   * @throws BoxError 1 when too few answer (it names the others and why) or a newer candidate is at work, 78 when rows of the others do
   * not arrive in time, 216 when the promotion is not on disk in time
   */
  promote(options: { timeout?: number } = {}): Promise<void> {
    return this.#promoter.promote(options)
  }

  /** Stops taking writes. */
  demote(): void {
    this.#setRole(stepDown(this.role))
  }

  /** The answer to a candidate: this instance takes older rows from nobody else any more. @throws BoxError 1 */
  promise(term: number, candidate: number): PromiseAnswer {
    const isOther = this.#parts.options.peers.some(({ number }) => number === candidate)
    if (!isOther || !Number.isInteger(term) || term < 1 || term > MAX_TERM)
      throw boxErrors.illegalParams(`Nothing can be promised for term ${term} of instance ${candidate}`)
    const next = promise(this.role, term, candidate)
    if (next === undefined) {
      const { promised, promisedTo } = this.role
      throw boxErrors.illegalParams(
        `Term ${promised} was promised to instance ${promisedTo}, term ${term} of instance ${candidate} comes too late`,
        { term: promised },
      )
    }
    this.promised(next)
    return { vclock: this.vclock, term: this.term, leader: this.leader }
  }

  /** A promise must outlive this process: it is in the journal before anybody is told. */
  promised(next: RoleState): void {
    const { promised, promisedTo } = this.role
    this.#setRole(next)
    if (next.promised !== promised || next.promisedTo !== promisedTo) this.#record({ vote: this.#state.vote })
  }

  becomeMaster(term: number): void {
    const leader = this.number
    const promotion: Promotion = { term, leader, lsn: this.#state.lsnOf(leader) + 1, vclock: this.vclock }
    this.#append(this.#ownTransaction([], promotion), [], lead)
  }

  // ---- relays: others read here -------------------------------------------------------------------------------------

  /**
   * Answers what only peers ask: JOIN, SUBSCRIBE, VOTE.
   * @throws BoxError 1, 62, 63, 116
   */
  serve(session: ClientSession, frame: InboundFrame): void | Promise<void> {
    if (this.#status !== 'running') throw boxErrors.loading()
    if (frame.type === RequestType.vote) return this.#vote(session, frame)
    this.#relays.subscribe(session, frame)
    return undefined
  }

  /** Whether `session` is a subscriber; if so, its frame was an acknowledgement. */
  acknowledge(session: ClientSession, frame: InboundFrame): boolean {
    return this.#relays.acknowledge(session, frame)
  }

  drained(session: ClientSession): void {
    this.#relays.drained(session)
  }

  sessionClosed(session: ClientSession): void {
    this.#relays.sessionClosed(session)
  }

  snapshot(): Iterator<RowBody> {
    return this.#parts.engine.snapshot()
  }

  // ---- upstreams: what the others have ------------------------------------------------------------------------------

  receive(transaction: RowTransaction): void {
    this.#parts.engine.applyRows(transaction.rows)
    this.#append(transaction)
  }

  replace(state: Restoration, head: SnapshotHead): void {
    this.#quorum.fail(boxErrors.quorumTimeout())
    this.#parts.engine.restore(state)
    const role = this.#state.replace(head)
    this.log.clear(head.vclock)
    this.#quorum.reset(lsnOf(head.vclock, this.number))
    if (this.#journal !== undefined) {
      this.#undurable = []
      this.#durableVclock = new Map()
      this.#journal.replaced()
    }
    this.#setRole(role)
    this.#record({ vote: this.#state.vote })
    this.#relays.restart()
    this.#moved()
  }

  pump(): void {
    this.#relays.pump()
  }

  readabilityChanged(): void {
    this.#parts.onRoleChange()
  }

  // ---- the journal: what was here before ----------------------------------------------------------------------------

  loadRows(rows: readonly RowBody[]): void {
    this.#replay.rows(rows)
  }

  loadHead(head: SnapshotHead, vote: Vote): void {
    this.#replay.snapshot(head, vote)
  }

  replay(frame: StreamFrame, header: Row): void {
    this.#replay.frame(frame, header)
  }

  view(): SnapshotView | undefined {
    if (this.#status !== 'running') return undefined
    return { rows: this.#parts.engine.snapshot({ withLocal: true }), head: this.#state.head, vote: this.#state.vote }
  }

  sealed(sequence: number): void {
    this.#undurable.push({ sequence, vclock: this.vclock, end: this.log.end })
  }

  durable(sequence: number): void {
    let done = 0
    while (done < this.#undurable.length && this.#undurable[done]!.sequence <= sequence) done++
    const last = this.#undurable[done - 1]
    if (last === undefined) return
    this.#undurable.splice(0, done)
    this.#durableVclock = last.vclock
    this.log.reveal(last.end)
    this.#relays.pump()
    this.#upstreams.acknowledge()
  }

  // ---- inside: rows -------------------------------------------------------------------------------------------------

  #committed(rows: readonly RowBody[], localRows: readonly RowBody[]): void {
    if (rows.length > 0) this.#append(this.#ownTransaction(rows, undefined), localRows)
    else if (localRows.length > 0) this.#record({ localRows })
  }

  #ownTransaction(rows: readonly RowBody[], promotion: Promotion | undefined): RowTransaction {
    const lsn = this.#state.lsnOf(this.number) + 1
    return { origin: this.number, lsn, timestamp: this.#rowTime(), rows, promotion }
  }

  /** The wall clock's time is read once a turn, as Tarantool does: the rows of one turn have the same. */
  #rowTime(): number {
    if (this.#turnMs === undefined) {
      this.#turnMs = this.clock.wallNow()
      this.clock.soon(this.#endTurn)
    }
    return this.#turnMs
  }

  #append(transaction: RowTransaction, localRows: readonly RowBody[] = [], enter: typeof follow = follow): void {
    const { promotion } = transaction
    const leaderBefore = this.leader
    this.#state.take(transaction)
    if (this.#parts.options.peers.length > 0) this.log.append(transaction, leaderBefore)
    this.#record({ transaction, leaderBefore, localRows })
    if (promotion !== undefined) {
      this.#quorum.beginTerm()
      this.#setRole(enter(this.role, promotion))
    }
    this.#moved()
  }

  #record(record: JournalRecord): void {
    if (this.#journal === undefined) {
      this.log.reveal()
      return
    }
    this.#journal.append(record)
  }

  #moved(): void {
    this.#relays.pump()
    this.#upstreams.lookWhetherCaughtUp()
    this.#promoter.arrived()
  }

  // ---- inside: the role ---------------------------------------------------------------------------------------------

  #setRole(next: RoleState): void {
    const before = this.role
    this.#state.role = next
    if (next.isWritable) this.#upstreams.caughtUp()
    if (before.isWritable !== next.isWritable || before.term !== next.term || before.leader !== next.leader)
      this.#parts.onRoleChange()
  }

  #setStatus(status: InstanceStatus): void {
    this.#status = status
    this.#parts.onRoleChange()
  }

  /** A promise counts when it is on disk. It waits for no quorum: that of a deposed master will never come. */
  async #vote(session: ClientSession, frame: InboundFrame): Promise<void> {
    const { term, candidate } = readPromiseRequest(frame.body)
    const answer = this.promise(term, candidate)
    await this.whenDurable()
    const writer = new FrameWriter({ slabBytes: 1024 })
    encodePromiseAnswer(writer, [frame.syncHigh, frame.syncLow], answer)
    session.reply(writer.take())
  }

  #heard(peer: number, vclock: Vclock, term: number): void {
    const last = this.history.promotions.at(-1)
    if (last === undefined) return
    // Also under another master: who has its promotion has all it was built on, what this instance wrote before included.
    if (counts(this.role, last.lsn, { lsn: lsnOf(vclock, last.leader), term }))
      this.#quorum.acknowledge(peer, lsnOf(vclock, this.number))
  }
}
