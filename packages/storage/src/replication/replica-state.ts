/* Where an instance stands among the others: what it has, in which term, and what it has promised. No I/O, no time. */
import type { Standing } from './arrival.js'
import { History } from './history.js'
import { compareEpochs, follow, INITIAL_ROLE } from './role.js'
import type { RoleState } from './role.js'
import type { SnapshotHead, Vote } from './stream-codec.js'
import { lastLsn } from './transaction.js'
import type { Epoch, RowTransaction } from './transaction.js'
import { advanced } from './vclock.js'
import type { Vclock } from './vclock.js'

export class ReplicaState implements Standing {
  readonly self: number
  readonly history: History = new History()
  vclock: Vclock = new Map()
  role: RoleState = INITIAL_ROLE
  #diverged: Epoch | undefined

  constructor(self: number) {
    this.self = self
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
    this.vclock = advanced(this.vclock, transaction.origin, lastLsn(transaction))
    if (transaction.promotion !== undefined) this.history.add(transaction.promotion)
  }

  /** Another instance's state is this one's from now on. @returns the role in it; it is not writable */
  replace({ vclock, promotions }: SnapshotHead): RoleState {
    this.vclock = vclock
    this.history.replace(promotions)
    return { ...follow(this.role, this.history.epoch, this.self), isWritable: false }
  }
}
