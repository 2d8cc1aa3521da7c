/*
 * Transactions. JavaScript runs one request at a time, so a transaction that ends within its request needs only an undo
 * list. One that stays open between requests (in a stream) must be invisible meanwhile: at the end of each request its
 * changes are taken back, at the start of the next one they are applied again after checking that nobody else has
 * touched what it read or changed. Costs grow with the size of the transaction, which suits an engine for
 * development; the answers are those of serialisable isolation.
 */
import { boxErrors } from '../errors.js'
import type { IndexKey, SpaceIndex } from './space-index.js'
import type { Space, SpaceChange } from './space.js'
import type { StoredTuple } from './tuple.js'

type TransactionState = 'running' | 'suspended' | 'committed' | 'aborted'

/** Changes of one transaction beyond which it is refused: nothing grows without bound. */
const MAX_CHANGES = 1_000_000

interface PointRead {
  readonly index: SpaceIndex
  readonly key: IndexKey
  readonly seen: StoredTuple | undefined
}

export class Transaction {
  readonly changes: SpaceChange[] = []
  #state: TransactionState = 'running'
  /** Spaces of which a range was read, with the version of that moment. */
  readonly #scans = new Map<Space, number>()
  readonly #points: PointRead[] = []
  /** Whether reads must be remembered: only for a transaction that outlives its request. */
  readonly #isInteractive: boolean

  constructor(options: { isInteractive: boolean }) {
    this.#isInteractive = options.isInteractive
  }

  get state(): TransactionState {
    return this.#state
  }

  record(change: SpaceChange): void {
    this.changes.push(change)
    if (this.changes.length > MAX_CHANGES)
      throw boxErrors.illegalParams(`A transaction may hold ${MAX_CHANGES} changes at the most`)
  }

  sawRange(space: Space): void {
    if (this.#isInteractive && !this.#scans.has(space)) this.#scans.set(space, space.version)
  }

  sawPoint(index: SpaceIndex, key: IndexKey, seen: StoredTuple | undefined): void {
    // What it wrote itself is checked through its changes.
    if (this.#isInteractive && !this.changes.some((change) => change.after === seen && seen !== undefined))
      this.#points.push({ index, key, seen })
  }

  /** Takes the changes out of sight until `resume`. */
  suspend(): void {
    if (this.#state !== 'running') return
    this.#undo()
    this.#state = 'suspended'
  }

  /** @throws BoxError 97 when another transaction has committed what this one depends on; it is then over */
  resume(): void {
    if (this.#state !== 'suspended') return
    if (!this.#readsHold()) {
      this.#state = 'aborted'
      throw boxErrors.transactionConflict()
    }
    for (let i = 0; i < this.changes.length; i++) {
      const change = this.changes[i]!
      if (change.space.canApply(change)) {
        change.space.apply(change)
        continue
      }
      for (let j = i - 1; j >= 0; j--) this.changes[j]!.space.revert(this.changes[j]!)
      this.#state = 'aborted'
      throw boxErrors.transactionConflict()
    }
    this.#state = 'running'
  }

  commit(): void {
    this.#state = 'committed'
    for (const space of new Set(this.changes.map((change) => change.space))) space.version++
  }

  rollback(): void {
    if (this.#state === 'running') this.#undo()
    this.#state = 'aborted'
  }

  /** Takes back the changes made since there were `size` of them: one failed statement, not the whole transaction. */
  rollbackTo(size: number): void {
    while (this.changes.length > size) {
      const change = this.changes.pop()!
      change.space.revert(change)
    }
  }

  #undo(): void {
    for (let i = this.changes.length - 1; i >= 0; i--) this.changes[i]!.space.revert(this.changes[i]!)
  }

  #readsHold(): boolean {
    for (const [space, version] of this.#scans) if (space.version !== version) return false
    return this.#points.every(({ index, key, seen }) => index.find(key) === seen)
  }
}
