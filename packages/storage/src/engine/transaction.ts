/*
 * Transactions. JavaScript runs one request at a time, so a transaction that ends within its request needs only an undo
 * list. One that stays open between requests (in a stream) must be invisible meanwhile: at the end of each request its
 * changes are taken back, at the start of the next one they are applied again after checking that nobody else has
 * touched what it read or changed. Costs grow with the size of the transaction, which suits an engine for
 * development; the answers are those of serialisable isolation.
 */
import { boxErrors } from '../errors.js'
import type { SpaceIndex } from './space-index.js'
import { isSameTuple } from './space.js'
import type { Space, SpaceChange } from './space.js'
import type { StoredTuple } from './tuple.js'

type TransactionState = 'running' | 'suspended' | 'committed' | 'aborted'

/** Changes of one transaction beyond which it is refused: nothing grows without bound. */
const MAX_CHANGES = 1_000_000

/** Beyond these, a read of one key is remembered as a read of its space: more conflicts, and no work that grows with the square. */
const MAX_LOOKED_THROUGH = 1_000
const MAX_POINTS = 100_000

interface PointRead {
  readonly index: SpaceIndex
  /** Encoded. */
  readonly key: Buffer
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

  /** It may stay open between requests. */
  get isInteractive(): boolean {
    return this.#isInteractive
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

  /** A read of one key of a unique index of `space`. */
  sawPoint(space: Space, index: SpaceIndex, key: Buffer, seen: StoredTuple | undefined): void {
    if (!this.#isInteractive) return
    if (this.changes.length > MAX_LOOKED_THROUGH || this.#points.length > MAX_POINTS) {
      this.sawRange(space)
      return
    }
    // What it wrote or removed itself is checked through its changes.
    const isOwn =
      seen === undefined
        ? this.changes.some(
            ({ space: changed, before }) => changed === space && before !== undefined && index.isKeyOf(key, before),
          )
        : this.changes.some((change) => isSameTuple(change.after, seen))
    if (!isOwn) this.#points.push({ index, key, seen })
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

  /** @param reverted - told of each change right behind its undo: what depends on it must be right before the next one */
  rollback(reverted: (change: SpaceChange) => void = () => undefined): void {
    if (this.#state === 'running') this.#undo(reverted)
    this.#state = 'aborted'
  }

  /** Takes back the changes made since there were `size` of them: one failed statement, not the whole transaction. */
  rollbackTo(size: number, reverted: (change: SpaceChange) => void = () => undefined): void {
    while (this.changes.length > size) {
      const change = this.changes.at(-1)!
      change.space.revert(change)
      reverted(change)
      this.changes.pop()
    }
  }

  #undo(reverted: (change: SpaceChange) => void = () => undefined): void {
    for (let i = this.changes.length - 1; i >= 0; i--) {
      this.changes[i]!.space.revert(this.changes[i]!)
      reverted(this.changes[i]!)
    }
  }

  #readsHold(): boolean {
    for (const [space, version] of this.#scans) if (space.isDropped || space.version !== version) return false
    return this.#points.every(({ index, key, seen }) => isSameTuple(index.find(key), seen))
  }
}
