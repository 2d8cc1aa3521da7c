/*
 * What comes from the others: a link to each peer, a verdict on everything it brings, one snapshot at a time, and whether this
 * instance has what the others have.
 */
import type { Environment } from '@orbweaver/connection'
import { InvalidArgumentError } from '@orbweaver/iproto'
import type { BoxError } from '@orbweaver/iproto'
import type { Restoration } from '../engine/restoration.js'
import { Applier } from './applier.js'
import type { ApplierTarget, LinkInfo } from './applier.js'
import { epochOf, judge, judgeState } from './arrival.js'
import type { InstanceIdentity, ReplicationOptions } from './options.js'
import type { ReplicaState } from './replica-state.js'
import { INITIAL_ROLE, promise, stepDown } from './role.js'
import type { RoleState } from './role.js'
import { NO_UUID } from './stream-codec.js'
import type { SnapshotHead, Subscription } from './stream-codec.js'
import type { Promotion, RowTransaction } from './transaction.js'
import { covers, lsnOf } from './vclock.js'
import type { Vclock } from './vclock.js'

/** What is done to the instance when something may come in. */
export interface Receiver {
  /** Why nothing can be taken now. */
  readonly refusal: BoxError | undefined
  readonly durableVclock: Vclock
  /** Applies the rows and appends them to log and journal. */
  receive(transaction: RowTransaction): void
  /** Puts another state in the place of this one. */
  replace(state: Restoration, head: SnapshotHead): void
  promised(next: RoleState): void
  /** There are more rows for whoever reads here. */
  pump(): void
  /** `isCatchingUp` has changed. */
  readabilityChanged(): void
}

export interface UpstreamsParts {
  readonly options: ReplicationOptions
  readonly identity: InstanceIdentity
  readonly environment: Environment
  readonly state: ReplicaState
  readonly receiver: Receiver
}

export class Upstreams implements ApplierTarget {
  readonly #parts: UpstreamsParts
  readonly #state: ReplicaState
  readonly #receiver: Receiver
  #appliers: Applier[] = []
  #isCatchingUp: boolean
  /** The peer whose snapshot is on its way in: one at a time, for the memory it takes. */
  #snapshotFrom: number | undefined

  constructor(parts: UpstreamsParts) {
    this.#parts = parts
    this.#state = parts.state
    this.#receiver = parts.receiver
    this.#isCatchingUp = parts.options.peers.length > 0
  }

  /** It lacks something the others have: until it has that, it must not be read. */
  get isCatchingUp(): boolean {
    return this.#isCatchingUp
  }

  /** A master is what the others catch up with; one with data of its own is as good as it was. */
  caughtUp(): void {
    if (!this.#isCatchingUp) return
    this.#isCatchingUp = false
    this.#receiver.readabilityChanged()
  }

  /** The links to the peers, by their numbers. */
  get links(): ReadonlyMap<number, LinkInfo> {
    return new Map(this.#appliers.map((applier) => [applier.peer, applier.info]))
  }

  start(): void {
    const { options, environment } = this.#parts
    const { peers, credential } = options
    this.#appliers = peers.map(({ number, address }) => new Applier({ number, address, credential }, this, environment))
  }

  stop(): void {
    for (const applier of this.#appliers) applier.stop()
    this.#appliers = []
  }

  /** More is safe here than before: the others are told. */
  acknowledge(): void {
    for (const applier of this.#appliers) applier.acknowledge()
  }

  /** It has what each reachable peer said to have, and at least one said so. */
  lookWhetherCaughtUp(): void {
    if (!this.#isCatchingUp || this.#state.diverged !== undefined) return
    if (this.#appliers.some((applier) => applier.state.name === 'connecting')) return
    const followed = this.#appliers.filter((applier) => applier.state.name === 'follow')
    if (followed.length > 0 && followed.every((applier) => covers(this.vclock, applier.peerVclock))) this.caughtUp()
  }

  // ---- what appliers ask and bring ----------------------------------------------------------------------------------

  get vclock(): Vclock {
    return this.#state.vclock
  }

  get durableVclock(): Vclock {
    return this.#receiver.durableVclock
  }

  get promised(): number {
    return this.#state.role.promised
  }

  subscription(): Subscription {
    const { uuid, replicasetUuid = NO_UUID } = this.#parts.identity
    const from = this.#state.diverged === undefined ? { vclock: this.vclock, term: this.#state.role.term } : undefined
    return { instanceUuid: uuid, replicasetUuid, from }
  }

  transaction(transaction: RowTransaction, peer: number): void {
    const verdict = judge(this.#state, transaction, peer)
    if (verdict === 'known') return
    const { refusal } = this.#receiver
    if (refusal !== undefined) throw refusal
    const { origin, lsn, promotion } = transaction
    switch (verdict) {
      case 'apply':
        this.#receiver.receive(transaction)
        return
      case 'late': {
        const { term, promised, promisedTo } = this.#state.role
        throw new InvalidArgumentError(
          `Rows of term ${(promotion ?? epochOf(this.#state, origin)).term} come too late: this instance is in term ${term} and has promised term ${promised} to instance ${promisedTo}`,
        )
      }
      case 'gap':
        throw new InvalidArgumentError(
          `Row ${lsn} of instance ${origin} follows row ${lsnOf(this.vclock, origin)}: some are missing`,
        )
      case 'diverged':
        if (promotion !== undefined) this.#diverge(promotion)
        throw new InvalidArgumentError(
          `Some of this instance's rows are no part of history: its state is to be replaced`,
        )
    }
  }

  snapshotBegins(head: SnapshotHead, peer: number): boolean {
    this.#requireState(head, peer)
    if (this.#snapshotFrom !== undefined && this.#snapshotFrom !== peer) return false
    this.#snapshotFrom = peer
    return true
  }

  takeOver(state: Restoration, head: SnapshotHead, peer: number): void {
    const isNews = this.#requireState(head, peer)
    this.#snapshotEnded(peer)
    if (!isNews) return
    const isPast = !covers(head.vclock, this.vclock)
    this.#receiver.replace(state, head)
    // Streams that began at a position this instance has no more.
    if (isPast)
      for (const applier of this.#appliers)
        if (applier.peer !== peer) applier.resubscribe('The state was replaced by that of another instance')
  }

  linkChanged(peer: number): void {
    const applier = this.#appliers.find((candidate) => candidate.peer === peer)
    if (applier?.state.name === 'follow') this.#receiver.pump()
    else this.#snapshotEnded(peer)
    this.lookWhetherCaughtUp()
  }

  // ---- inside -------------------------------------------------------------------------------------------------------

  /**
   * It has rows the new master never had: they are no part of history, its state is to be replaced. Until then it says what it
   * has, for a candidate may need that; but nobody reads it, and it takes no writes.
   */
  #diverge({ term, leader }: Promotion): void {
    const { role } = this.#state
    this.#state.diverged = { term, leader }
    this.#isCatchingUp = true
    this.#receiver.promised(promise(role, term, leader) ?? stepDown(role))
    this.#receiver.readabilityChanged()
    for (const applier of this.#appliers) applier.resubscribe('The state is to be replaced')
  }

  /** @returns false when it holds nothing new @throws InvalidArgumentError when it may not be taken */
  #requireState({ vclock, promotions }: SnapshotHead, peer: number): boolean {
    const epoch = promotions.at(-1) ?? INITIAL_ROLE
    const verdict = judgeState(this.#state, { epoch, vclock }, peer)
    if (verdict !== 'late') return verdict === 'apply'
    const { term, promised, promisedTo } = this.#state.role
    const needed = this.#state.diverged?.term ?? term
    throw new InvalidArgumentError(
      `A snapshot of term ${epoch.term} is too old: term ${needed} is needed, and term ${promised} was promised to instance ${promisedTo}`,
    )
  }

  /** The next one may begin: whoever waits subscribes again. */
  #snapshotEnded(peer: number): void {
    if (this.#snapshotFrom !== peer) return
    this.#snapshotFrom = undefined
    for (const applier of this.#appliers) if (applier.isWaiting) applier.resubscribe('Another snapshot was taken first')
  }
}
