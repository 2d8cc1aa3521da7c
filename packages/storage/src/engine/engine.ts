/*
 * The engine: statements on spaces, transactions, and rows. A committed transaction becomes rows (the new tuple or the key of
 * the removed one), numbered by this instance; rows of other instances are applied the same way. Whoever journals or
 * replicates listens to `onCommit`.
 */
import { IteratorType } from '@orbweaver/iproto'
import { boxErrors } from '../errors.js'
import { definedBy, loadRow, removedBy } from './restoration.js'
import type { Restoration } from './restoration.js'
import { Schema, SYSTEM_SPACE } from './schema.js'
import type { SpaceIndex } from './space-index.js'
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

/** A place in an index, encoded: that of the last tuple seen; or that tuple. */
export type Position = { readonly key: Buffer } | { readonly tuple: StoredTuple }

export class Engine {
  #schema: Schema = new Schema()
  /** Called with the rows of every committed transaction of this instance, in order: those for all instances, and those of local spaces. */
  onCommit: (rows: readonly RowBody[], localRows: readonly RowBody[]) => void = () => undefined
  /** Called with every committed change, local and replicated: what keeps derived state (buckets) true. */
  onChange: (change: SpaceChange) => void = () => undefined
  /** Called when everything was replaced at once. */
  onRestored: () => void = () => undefined
  /** Judges each write of a client before it is made. */
  guard: (space: Space) => void = () => undefined
  /** Judges each change a statement of this instance has made (not rows of others): what it throws undoes the statement. */
  judge: (change: SpaceChange) => void = () => undefined

  /** The spaces of the moment: another object when everything was replaced. */
  get schema(): Schema {
    return this.#schema
  }

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
        transaction.rollbackTo(size, (change) => this.#reverted(transaction, change))
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
    const localRows: RowBody[] = []
    for (const change of transaction.changes) {
      const target = change.space.definition.isLocal ? localRows : rows
      target.push(rowOf(change))
      this.onChange(change)
    }
    this.onCommit(rows, localRows)
  }

  rollback(transaction: Transaction): void {
    transaction.rollback((change) => this.#reverted(transaction, change))
  }

  // ---- statements ---------------------------------------------------------------------------------------------------

  select(transaction: Transaction | undefined, space: Space, options: SelectOptions): StoredTuple[] {
    const index = space.index(options.index ?? 0)
    const offsets = index.checkKey(options.key)
    transaction?.sawRange(space)
    const { iterator = IteratorType.eq, key, offset = 0, limit = Number.MAX_SAFE_INTEGER, after } = options
    if (after === undefined) return index.select({ iterator, key, offsets, offset, limit })
    return index.select({ iterator, key, offsets, offset, limit, after: placeOf(index, after) })
  }

  /** By a full key of a unique index. */
  get(
    transaction: Transaction | undefined,
    space: Space,
    key: Buffer,
    index: number | string = 0,
  ): StoredTuple | undefined {
    const { found, target } = this.#findExact(space, key, index)
    transaction?.sawPoint(space, target, key, found)
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
    return this.#statement(transaction, space, (own) => {
      const { found, target } = this.#findExact(space, key, options.index ?? 0)
      if (found === undefined) {
        own.sawPoint(space, target, key, found)
        return undefined
      }
      const next = applyOperations(space, found, operations, options.indexBase ?? 0, false)
      this.#refuseKeyChange(space, found, next)
      const change = space.put(next, 'replace')
      this.#record(own, this.#applied(space, change))
      return change.after
    })
  }

  upsert(
    transaction: Transaction | undefined,
    space: Space,
    tuple: StoredTuple,
    operations: readonly unknown[],
    indexBase: number = 0,
  ): void {
    this.#statement(transaction, space, (own) => {
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
    return this.#statement(transaction, space, (own) => {
      const { found, target } = this.#findExact(space, key, index)
      if (found === undefined) {
        own.sawPoint(space, target, key, found)
        return undefined
      }
      const change = space.remove(space.primary.keyOf(found))
      if (change !== undefined) this.#record(own, this.#applied(space, change))
      return found
    })
  }

  /** Removes every tuple of a space, as a part of `transaction`. */
  clear(transaction: Transaction, space: Space): void {
    this.guard(space)
    for (const tuple of [...space.tuples()]) {
      const change = space.remove(space.primary.keyOf(tuple))
      if (change !== undefined) this.#record(transaction, this.#applied(space, change))
    }
  }

  /** Rows of another instance, as one transaction; they were checked where they were made. */
  applyRows(rows: readonly RowBody[]): void {
    const transaction = new Transaction({ isInteractive: false })
    try {
      for (const row of rows) {
        const space = this.schema.get(row.spaceId)
        const change = row.kind === 'replace' ? space.putChecked(row.tuple) : removedBy(space, row.key)
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

  /**
   * Every tuple of this moment as rows, definitions first: what a new replica starts from, or (with the contents of local
   * spaces) this instance itself. Rows may be taken slowly, while the engine works on.
   */
  snapshot(options: { withLocal?: boolean } = {}): IterableIterator<RowBody> {
    const first: number[] = [SYSTEM_SPACE.space, SYSTEM_SPACE.index]
    const rest = [...this.schema.spaces()].filter(
      (space) => !first.includes(space.id) && (options.withLocal === true || !space.definition.isLocal),
    )
    const spaces = [...first.map((id) => this.schema.get(id)), ...rest]
    return rowsOf(spaces.map((space) => [space.id, space.frozenTuples()]))
  }

  /** Rows of this instance's own snapshot or journal: as `applyRows`, with nobody told. Call `onRestored` behind the last. */
  load(rows: readonly RowBody[]): void {
    for (const row of rows) loadRow(this.#schema, row)
  }

  /** Replaces everything by another state, which is this engine's from now on; contents of local spaces stay if the space does. */
  restore(next: Restoration): void {
    next.keepLocal(this.#schema)
    next.schema.succeed(this.#schema)
    this.#schema = next.schema
    this.onRestored()
  }

  #put(
    transaction: Transaction | undefined,
    space: Space,
    tuple: StoredTuple,
    mode: 'insert' | 'replace',
  ): StoredTuple {
    if (transaction === undefined && !isDefinition(space)) return this.#putAlone(space, tuple, mode)
    return this.#statement(transaction, space, (own) => {
      const change = space.put(tuple, mode)
      this.#record(own, this.#applied(space, change))
      return change.after!
    })
  }

  /** The commonest transaction, one tuple and nothing else, without the means of larger ones. */
  #putAlone(space: Space, tuple: StoredTuple, mode: 'insert' | 'replace'): StoredTuple {
    this.guard(space)
    const change = space.put(tuple, mode)
    try {
      this.judge(change)
    } catch (error) {
      space.revert(change)
      throw error
    }
    space.version++
    this.onChange(change)
    if (space.definition.isLocal) this.onCommit(NO_ROWS, [rowOf(change)])
    else this.onCommit([rowOf(change)], NO_ROWS)
    return change.after!
  }

  /** One statement that writes. A refusal is an answer too: what it says must still be true when the transaction commits. */
  #statement<T>(transaction: Transaction | undefined, space: Space, work: (transaction: Transaction) => T): T {
    this.guard(space)
    if (transaction === undefined) return this.run(undefined, work)
    if (transaction.isInteractive && isDefinition(space))
      throw boxErrors.unsupported('A transaction of a stream or over waits', 'changes of definitions')
    try {
      return this.run(transaction, work)
    } catch (error) {
      transaction.sawRange(space)
      throw error
    }
  }

  #record(transaction: Transaction, change: SpaceChange): void {
    transaction.record(change)
    this.judge(change)
  }

  #findExact(space: Space, key: Buffer, ref: number | string): { found: StoredTuple | undefined; target: SpaceIndex } {
    const target = space.index(ref)
    return { found: target.find(key, target.checkExactKey(key)), target }
  }

  #refuseKeyChange(space: Space, before: StoredTuple, after: StoredTuple): void {
    const index = space.primary
    if (!index.isKeyOf(index.keyOf(before), after)) throw boxErrors.primaryKeyUpdate(index.definition.name, space.name)
  }

  /** A tuple of `_space` or `_index` is a definition: it takes effect with the statement. */
  #applied(space: Space, change: SpaceChange): SpaceChange {
    const id = this.#definedBy(change)
    if (id === undefined) return change
    try {
      if (
        space.id === SYSTEM_SPACE.space &&
        change.after === undefined &&
        (this.schema.find(id)?.indexes.length ?? 0) > 0
      ) {
        throw boxErrors.dropSpace(this.schema.get(id).name, 'the space has indexes')
      }
      this.schema.refresh(id)
    } catch (error) {
      space.revert(change)
      throw error
    }
    return change
  }

  /** The id of the space whose definition `change` is a part of. */
  #definedBy(change: SpaceChange): number | undefined {
    return isDefinition(change.space) ? definedBy(change) : undefined
  }

  /** A definition is what its tuples say again, before the contents that were changed under it are put back. */
  #reverted(transaction: Transaction, change: SpaceChange): void {
    const id = this.#definedBy(change)
    if (id !== undefined) this.schema.refresh(id, transaction.changes.find(({ space }) => space.id === id)?.space)
  }
}

/** @throws BoxError 253 for a place that is none in this index */
function placeOf(index: SpaceIndex, after: Position): Buffer {
  if ('tuple' in after) return index.treeKeyOf(after.tuple)
  if (!index.isPlace(after.key)) throw boxErrors.iteratorPosition()
  return after.key
}

const NO_ROWS: readonly RowBody[] = []

function isDefinition({ id }: Space): boolean {
  return id === SYSTEM_SPACE.space || id === SYSTEM_SPACE.index
}

function* rowsOf(spaces: readonly (readonly [number, Iterable<StoredTuple>])[]): IterableIterator<RowBody> {
  for (const [spaceId, tuples] of spaces) for (const tuple of tuples) yield { kind: 'replace', spaceId, tuple }
}

function rowOf(change: SpaceChange): RowBody {
  if (change.after !== undefined) return { kind: 'replace', spaceId: change.space.id, tuple: change.after }
  return { kind: 'delete', spaceId: change.space.id, key: change.key }
}
