/* Where an instance stands among the others: what it has, in which term, and what it has promised. No I/O, no time. */
import type { Standing } from './arrival.js'
import { History } from './history.js'
import { compareEpochs, follow, INITIAL_ROLE } from './role.js'
import type { RoleState } from './role.js'
import type { SnapshotHead, Vote } from './stream-codec.js'
import { lastLsn } from './transaction.js'
import type { Epoch, RowTransaction } from './transaction.js'
import type { Vclock } from './vclock.js'

export class ReplicaState implements Standing {
  readonly self: number
  readonly history: History = new History()
  role: RoleState = INITIAL_ROLE
  #diverged: Epoch | undefined
  /** The last row of each instance, by its number; 0 where there is none. */
  #lsns: number[] = []
  /** The same as a value, until one of them changes: a copy for every transaction would be a cost of its own. */
  #vclock: Vclock | undefined

  constructor(self: number) {
    this.self = self
  }

  get vclock(): Vclock {
    this.#vclock ??= new Map(this.#lsns.flatMap((lsn, origin): [number, number][] => (lsn > 0 ? [[origin, lsn]] : [])))
    return this.#vclock
  }

  set vclock(vclock: Vclock) {
    this.#lsns = []
    for (const [origin, lsn] of vclock) this.#setLsn(origin, lsn)
    this.#vclock = vclock
  }

  /** The last row of an instance that is here. */
  lsnOf(origin: number): number {
    return this.#lsns[origin] ?? 0
  }

  get diverged(): Epoch | undefined {
    return this.#diverged !== undefined && compareEpochs(this.#diverged, this.role) > 0 ? this.#diverged : undefined
  }

  set diverged(epoch: Epoch) {
    this.#diverged = epoch
  }

  get vote(): Vote {
    return { term: this.role.promised, candidate: this.role.promisedTo }
  }

  get head(): SnapshotHead {
    return { vclock: this.vclock, promotions: [...this.history.promotions] }
  }

  /** What a transaction changes besides rows. */
  take(transaction: RowTransaction): void {
    this.#setLsn(transaction.origin, lastLsn(transaction))
    this.#vclock = undefined
    if (transaction.promotion !== undefined) this.history.add(transaction.promotion)
  }

  #setLsn(origin: number, lsn: number): void {
    while (this.#lsns.length <= origin) this.#lsns.push(0)
    this.#lsns[origin] = lsn
  }

  /** Another instance's state is this one's from now on. @returns the role in it; it is not writable */
  replace({ vclock, promotions }: SnapshotHead): RoleState {
    this.vclock = vclock
    this.history.replace(promotions)
    return { ...follow(this.role, this.history.epoch), isWritable: false }
  }
}
