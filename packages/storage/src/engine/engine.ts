/*
 * The engine: statements on spaces, transactions, and rows. A committed transaction becomes rows (the new tuple or the key of
 * the removed one), numbered by this instance; rows of other instances are applied the same way. Whoever journals or
 * replicates listens to `onCommit`.
 */
import { encodeValue, IteratorType } from '@orbweaver/iproto'
import { boxErrors } from '../errors.js'
import { Schema, SYSTEM_SPACE } from './schema.js'
import { partsOf } from './space-index.js'
import type { IndexKey, SpaceIndex } from './space-index.js'
import type { Space, SpaceChange } from './space.js'
import { Transaction } from './transaction.js'
import type { StoredTuple } from './tuple.js'
import { applyOperations } from './update.js'

/** One change as it is journaled and replicated: `tuple` replaces what has its key, or `key` (of the primary index) is removed. */
export type RowBody =
  | { readonly kind: 'replace'; readonly spaceId: number; readonly tuple: StoredTuple }
  | { readonly kind: 'delete'; readonly spaceId: number; readonly key: Buffer }

export interface SelectOptions {
  readonly index?: number | string
  readonly iterator?: number
  /** An encoded array of key parts. */
  readonly key: Buffer
  readonly offset?: number
  readonly limit?: number
  /** Where the last page ended. */
  readonly after?: Position
}

/** A place in an index: the tree key of the last tuple seen, or that tuple. */
export type Position = { readonly key: readonly unknown[] } | { readonly tuple: StoredTuple }

export class Engine {
  readonly schema: Schema = new Schema()
  /** Called with the rows of every committed transaction of this instance, in order; empty ones (local spaces) are left out. */
  onCommit: (rows: readonly RowBody[]) => void = () => undefined
  /** Called with every committed change, local and replicated: what keeps derived state (buckets) true. */
  onChange: (change: SpaceChange) => void = () => undefined
  /** Called when everything was replaced at once. */
  onRestored: () => void = () => undefined
  /** Judges each write of a client before it is made. */
  guard: (space: Space) => void = () => undefined
  /** Judges each change a statement of this instance has made (not rows of others): what it throws undoes the statement. */
  judge: (change: SpaceChange) => void = () => undefined

  /**
   * Runs `work` as one transaction that is committed when it returns and undone when it throws. With `transaction`, as a part of
   * that one: undone alone when it throws.
   */
  run<T>(transaction: Transaction | undefined, work: (transaction: Transaction) => T): T {
    if (transaction !== undefined) {
      const size = transaction.changes.length
      try {
        return work(transaction)
      } catch (error) {
        const undone = transaction.changes.slice(size)
        transaction.rollbackTo(size)
        this.#redefine(undone)
        throw error
      }
    }
    const own = new Transaction({ isInteractive: false })
    let result: T
    try {
      result = work(own)
    } catch (error) {
      this.rollback(own)
      throw error
    }
    this.commit(own)
    return result
  }

  /** Makes a running transaction final. */
  commit(transaction: Transaction): void {
    transaction.commit()
    if (transaction.changes.length === 0) return
    const rows: RowBody[] = []
    for (const change of transaction.changes) {
      if (!change.space.definition.isLocal) rows.push(rowOf(change))
      this.onChange(change)
    }
    if (rows.length > 0) this.onCommit(rows)
  }

  rollback(transaction: Transaction): void {
    transaction.rollback()
    this.#redefine(transaction.changes)
  }

  // ---- statements ---------------------------------------------------------------------------------------------------

  select(transaction: Transaction | undefined, space: Space, options: SelectOptions): StoredTuple[] {
    const index = space.index(options.index ?? 0)
    const key = index.parseKey(options.key)
    transaction?.sawRange(space)
    return index.select({
      iterator: options.iterator ?? IteratorType.eq,
      key,
      offset: options.offset ?? 0,
      limit: options.limit ?? Number.MAX_SAFE_INTEGER,
      ...(options.after === undefined
        ? {}
        : { after: 'key' in options.after ? options.after.key : partsOf(index.keyOf(options.after.tuple)) }),
    })
  }

  /** By a full key of a unique index. */
  get(
    transaction: Transaction | undefined,
    space: Space,
    key: Buffer,
    index: number | string = 0,
  ): StoredTuple | undefined {
    const { found, parsed, target } = this.#findExact(space, key, index)
    transaction?.sawPoint(target, parsed, found)
    return found
  }

  insert(transaction: Transaction | undefined, space: Space, tuple: StoredTuple): StoredTuple {
    return this.#put(transaction, space, tuple, 'insert')
  }

  replace(transaction: Transaction | undefined, space: Space, tuple: StoredTuple): StoredTuple {
    return this.#put(transaction, space, tuple, 'replace')
  }

  update(
    transaction: Transaction | undefined,
    space: Space,
    key: Buffer,
    operations: readonly unknown[],
    options: { index?: number | string; indexBase?: number } = {},
  ): StoredTuple | undefined {
    this.guard(space)
    return this.run(transaction, (own) => {
      const { found } = this.#findExact(space, key, options.index ?? 0)
      if (found === undefined) return undefined
      const next = applyOperations(space, found, operations, options.indexBase ?? 0, false)
      this.#refuseKeyChange(space, found, next)
      this.#record(own, this.#applied(space, space.put(next, 'replace')))
      return next
    })
  }

  upsert(
    transaction: Transaction | undefined,
    space: Space,
    tuple: StoredTuple,
    operations: readonly unknown[],
    indexBase: number = 0,
  ): void {
    this.guard(space)
    this.run(transaction, (own) => {
      const found = space.primary.find(space.primary.keyOf(tuple))
      if (found === undefined) {
        this.#record(own, this.#applied(space, space.put(tuple, 'insert')))
        return
      }
      const next = applyOperations(space, found, operations, indexBase, true)
      this.#refuseKeyChange(space, found, next)
      this.#record(own, this.#applied(space, space.put(next, 'replace')))
    })
  }

  delete(
    transaction: Transaction | undefined,
    space: Space,
    key: Buffer,
    index: number | string = 0,
  ): StoredTuple | undefined {
    this.guard(space)
    return this.run(transaction, (own) => {
      const { found } = this.#findExact(space, key, index)
      if (found === undefined) return undefined
      const change = space.remove(space.primary.keyOf(found))
      if (change !== undefined) this.#record(own, this.#applied(space, change))
      return found
    })
  }

  /** Rows of another instance, as one transaction; they were checked where they were made. */
  applyRows(rows: readonly RowBody[]): void {
    const transaction = new Transaction({ isInteractive: false })
    try {
      for (const row of rows) {
        const space = this.schema.get(row.spaceId)
        const change =
          row.kind === 'replace' ? space.putChecked(row.tuple) : space.remove(space.primary.parseExactKey(row.key))
        // Not `record`: its limit is for transactions of clients, a snapshot may be larger.
        if (change !== undefined) transaction.changes.push(this.#applied(space, change))
      }
    } catch (error) {
      this.rollback(transaction)
      throw error
    }
    transaction.commit()
    for (const change of transaction.changes) this.onChange(change)
  }

  /** Every tuple as rows, definitions first: what a new replica starts from. */
  *snapshot(): IterableIterator<RowBody> {
    const first: number[] = [SYSTEM_SPACE.space, SYSTEM_SPACE.index]
    for (const id of first)
      for (const tuple of this.schema.get(id).tuples()) yield { kind: 'replace', spaceId: id, tuple }
    for (const space of this.schema.spaces()) {
      if (first.includes(space.id) || space.definition.isLocal) continue
      for (const tuple of space.tuples()) yield { kind: 'replace', spaceId: space.id, tuple }
    }
  }

  /** Replaces everything by the rows of another instance's snapshot; contents of local spaces stay only if the space does. */
  restore(rows: readonly RowBody[]): void {
    this.schema.reset()
    this.applyRows(rows)
    this.onRestored()
  }

  #put(
    transaction: Transaction | undefined,
    space: Space,
    tuple: StoredTuple,
    mode: 'insert' | 'replace',
  ): StoredTuple {
    this.guard(space)
    return this.run(transaction, (own) => {
      this.#record(own, this.#applied(space, space.put(tuple, mode)))
      return tuple
    })
  }

  #record(transaction: Transaction, change: SpaceChange): void {
    transaction.record(change)
    this.judge(change)
  }

  #findExact(
    space: Space,
    key: Buffer,
    ref: number | string,
  ): { found: StoredTuple | undefined; parsed: IndexKey; target: SpaceIndex } {
    const target = space.index(ref)
    const parsed = target.parseExactKey(key)
    return { found: target.find(parsed), parsed, target }
  }

  #refuseKeyChange(space: Space, before: StoredTuple, after: StoredTuple): void {
    const index = space.primary
    if (!index.isSameKey(index.keyOf(before), index.keyOf(after)))
      throw boxErrors.primaryKeyUpdate(index.definition.name, space.name)
  }

  /** A tuple of `_space` or `_index` is a definition: it takes effect with the statement. */
  #applied(space: Space, change: SpaceChange): SpaceChange {
    const id = this.#definedBy(change)
    if (id === undefined) return change
    try {
      this.schema.refresh(id)
    } catch (error) {
      space.revert(change)
      throw error
    }
    return change
  }

  /** The id of the space whose definition `change` is a part of. */
  #definedBy(change: SpaceChange): number | undefined {
    const { id } = change.space
    if (id !== SYSTEM_SPACE.space && id !== SYSTEM_SPACE.index) return undefined
    return partsOf(change.key)[0] as number
  }

  /** After an undo: definitions are what their tuples say again. */
  #redefine(undone: readonly SpaceChange[]): void {
    for (const id of new Set(undone.map((change) => this.#definedBy(change))))
      if (id !== undefined) this.schema.refresh(id)
  }
}

function rowOf(change: SpaceChange): RowBody {
  if (change.after !== undefined) return { kind: 'replace', spaceId: change.space.id, tuple: change.after }
  return { kind: 'delete', spaceId: change.space.id, key: encodeValue(partsOf(change.key)) }
}
