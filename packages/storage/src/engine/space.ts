/*
 * One space: its format, its indexes, and the two ways its contents change. A change is checked whole before anything is
 * touched, so a refused one leaves no trace.
 */
import { boxErrors } from '../errors.js'
import { Arena } from './arena.js'
import type { TupleRef } from './arena.js'
import { fits, fittingLeads, kindAt } from './field-type.js'
import type { FieldType } from './field-type.js'
import type { IndexDefinition, SpaceDefinition } from './index-definition.js'
import { SpaceIndex } from './space-index.js'
import { fieldOffsets } from './tuple.js'
import type { FieldOffsets, StoredTuple } from './tuple.js'

/** What a change did: enough to undo it and to write it to the journal. */
export class SpaceChange {
  readonly space: Space
  readonly before: StoredTuple | undefined
  readonly after: StoredTuple | undefined
  /** Of a removal: its space may have lost its indexes when somebody asks. */
  readonly #removedKey: Buffer | undefined

  constructor(space: Space, before: StoredTuple | undefined, after: StoredTuple | undefined) {
    this.space = space
    this.before = before
    this.after = after
    this.#removedKey = after === undefined ? space.primary.keyOf(before!) : undefined
  }

  /** The primary key of both, encoded. */
  get key(): Buffer {
    return this.#removedKey ?? this.space.primary.keyOf(this.after!)
  }
}

interface FieldCheck {
  readonly field: number
  readonly type: FieldType
  readonly isNullable: boolean
  /** 1 for the first bytes of values that fit. */
  readonly leads: Uint8Array
}

/** Tarantool's default `memtx_max_tuple_size`. */
const MAX_TUPLE_BYTES = 1024 * 1024
/** Tuples moved with every change while there are many holes: enough to keep up with the making of holes, too few to wait for. */
const MOVES_PER_CHANGE = 4

export class Space {
  #definition: SpaceDefinition
  #indexes: readonly SpaceIndex[]
  /** +1 with every committed change: what a transaction that scanned this space compares at commit. */
  version = 0
  /** It is no part of the schema any more: what open transactions wanted of it is void. */
  isDropped = false
  #arena = new Arena()
  /** Fields that are parts of some key. */
  #keyFields: number
  /** What each field of a new tuple must be. */
  #checks: readonly FieldCheck[]
  /** Bytes of all tuples. */
  #bytes = 0

  constructor(definition: SpaceDefinition, indexes: readonly IndexDefinition[]) {
    this.#definition = definition
    this.#indexes = buildIndexes(definition, indexes, this.#arena)
    this.#keyFields = Math.max(0, ...indexes.flatMap(({ parts }) => parts.map((part) => part.field + 1)))
    this.#checks = checksOf(definition, indexes)
  }

  get definition(): SpaceDefinition {
    return this.#definition
  }

  /** By id; the primary key first. */
  get indexes(): readonly SpaceIndex[] {
    return this.#indexes
  }

  /**
   * Takes another definition, keeping the contents and this object's identity (changes not yet committed refer to it).
   * @throws BoxError for contents that do not fit it; nothing is changed then
   */
  redefine(definition: SpaceDefinition, indexes: readonly IndexDefinition[]): void {
    if (this.size > 0 && indexes.length === 0)
      throw boxErrors.unsupported(`Space '${this.name}'`, 'dropping the primary key of a space that is not empty')
    const next = new Space(definition, indexes)
    for (const tuple of this.tuples()) next.put(tuple, 'insert')
    this.#definition = definition
    this.#indexes = next.#indexes
    this.#arena = next.#arena
    this.#keyFields = next.#keyFields
    this.#checks = next.#checks
    this.version++
  }

  get id(): number {
    return this.definition.id
  }

  get name(): string {
    return this.definition.name
  }

  get size(): number {
    return this.indexes[0]?.size ?? 0
  }

  get bytes(): number {
    return this.#bytes
  }

  /** Bytes of memory its tuples take, those of removed ones included that are not given back yet. */
  get memory(): number {
    return this.#arena.used
  }

  /** @throws BoxError 35 */
  get primary(): SpaceIndex {
    return this.index(0)
  }

  /** By id or name. @throws BoxError 35 */
  index(ref: number | string): SpaceIndex {
    const found = this.indexes.find(({ definition }) =>
      typeof ref === 'number' ? definition.id === ref : definition.name === ref,
    )
    if (found === undefined) throw boxErrors.noSuchIndexId(ref, this.name)
    return found
  }

  /**
   * Inserts or replaces. The bytes are copied: the change has the space's own.
   * @throws BoxError 3 for a key that exists (`insert`, or another tuple's in a unique secondary index), 22, 23, 38, 39, 110 for a tuple that does not fit
   */
  put(tuple: StoredTuple, mode: 'insert' | 'replace'): SpaceChange {
    const offsets = this.#check(tuple)
    const before = this.primary.findRefOf(tuple, offsets)
    if (before !== undefined && mode === 'insert') throw boxErrors.tupleFound(this.primary.definition.name, this.name)
    for (let i = 1; i < this.indexes.length; i++) {
      const index = this.indexes[i]!
      if (!index.definition.isUnique) continue // the primary key is a part of its keys
      const other = index.findRefOf(tuple, offsets)
      if (other !== undefined && other !== before) throw boxErrors.tupleFound(index.definition.name, this.name)
    }
    return this.#replace(tuple, offsets, before)
  }

  /** A tuple that was checked where it was made: rows of other instances. */
  putChecked(tuple: StoredTuple): SpaceChange {
    const offsets = fieldOffsets(tuple)
    return this.#replace(tuple, offsets, this.primary.findRefOf(tuple, offsets))
  }

  /** Removes by the encoded primary key; undefined when nobody is there. */
  remove(key: Buffer): SpaceChange | undefined {
    const ref = this.primary.findRef(key)
    if (ref === undefined) return undefined
    const before = this.#arena.get(ref)
    this.#forget(before, ref)
    return new SpaceChange(this, before, undefined)
  }

  /** Puts back what `change` replaced, or applies it again; no checks, both states were valid. */
  revert(change: SpaceChange): void {
    if (change.after !== undefined) this.#unlink(change.after)
    if (change.before !== undefined) this.#link(change.before)
  }

  apply(change: SpaceChange): void {
    if (change.before !== undefined) this.#unlink(change.before)
    if (change.after !== undefined) this.#link(change.after)
  }

  /** Whether `change` still fits: nobody else has touched its tuple, and no unique key it needs is taken. */
  canApply(change: SpaceChange): boolean {
    if (this.isDropped || !isSameTuple(this.primary.find(change.key), change.before)) return false
    if (change.after === undefined) return true
    for (let i = 1; i < this.indexes.length; i++) {
      const index = this.indexes[i]!
      if (!index.definition.isUnique) continue
      const other = index.findRefOf(change.after, fieldOffsets(change.after, this.#keyFields))
      if (other !== undefined && !isSameTuple(this.#arena.get(other), change.before)) return false
    }
    return true
  }

  /** Every tuple of this moment, by the primary key, whatever happens to the space meanwhile. */
  frozenTuples(): Iterable<StoredTuple> {
    return this.indexes[0]?.frozenTuples() ?? []
  }

  *tuples(): IterableIterator<StoredTuple> {
    const primary = this.indexes[0]
    if (primary !== undefined) yield* primary.tuples()
  }

  /** Name of a field for messages: `2 (name)`, one-based as Tarantool counts there. */
  fieldName(field: number): string {
    const name = this.definition.format[field]?.name
    return name === undefined ? `${field + 1}` : `${field + 1} (${name})`
  }

  fieldNumber(name: string): number | undefined {
    const found = this.definition.format.findIndex((field) => field.name === name)
    return found < 0 ? undefined : found
  }

  #check(tuple: StoredTuple): FieldOffsets {
    if (tuple.length > MAX_TUPLE_BYTES) throw boxErrors.tupleTooLarge(tuple.length)
    const exact = this.definition.fieldCount
    const offsets = fieldOffsets(tuple)
    const count = offsets.length - 1
    if (exact !== 0 && count !== exact) throw boxErrors.exactFieldCount(count, exact)
    for (const { field, type, isNullable, leads } of this.#checks) {
      if (field >= count) {
        if (!isNullable) throw boxErrors.fieldMissing(this.fieldName(field))
        continue
      }
      const start = offsets[field]!
      if (leads[tuple[start]!] === 1) continue
      const kind = kindAt(tuple, start)
      if (!fits(type, kind, isNullable)) throw boxErrors.fieldType(this.fieldName(field), type, kind)
    }
    return offsets
  }

  #replace(tuple: StoredTuple, offsets: FieldOffsets, replaced: TupleRef | undefined): SpaceChange {
    this.#bytes += tuple.length
    if (replaced === undefined) {
      const ref = this.#arena.add(tuple)
      for (const index of this.indexes) index.add(tuple, offsets, ref)
      return new SpaceChange(this, undefined, this.#arena.get(ref))
    }
    const before = this.#arena.get(replaced)
    this.#bytes -= before.length
    this.#rewrite(before, tuple, offsets, replaced)
    this.#arena.closeHoles(MOVES_PER_CHANGE)
    return new SpaceChange(this, before, this.#arena.get(replaced))
  }

  /** Keeps the number of the tuple, so that indexes in which its place stays the same have nothing to do. */
  #rewrite(before: StoredTuple, tuple: StoredTuple, offsets: FieldOffsets, ref: TupleRef): void {
    const { indexes } = this
    if (indexes.length === 1) {
      this.#arena.rewrite(ref, tuple)
      return
    }
    const offsetsBefore = fieldOffsets(before, this.#keyFields)
    const moved = indexes.filter((index) => !index.isSamePlace(before, offsetsBefore, tuple, offsets))
    for (const index of moved) index.delete(before, offsetsBefore, ref)
    this.#arena.rewrite(ref, tuple)
    for (const index of moved) index.add(tuple, offsets, ref)
  }

  #link(tuple: StoredTuple): void {
    const offsets = fieldOffsets(tuple, this.#keyFields)
    const ref = this.#arena.add(tuple)
    for (const index of this.indexes) index.add(tuple, offsets, ref)
    this.#bytes += tuple.length
  }

  #unlink(tuple: StoredTuple): void {
    const ref = this.indexes[0]?.findRefOf(tuple, fieldOffsets(tuple, this.#keyFields))
    if (ref !== undefined) this.#forget(tuple, ref)
  }

  #forget(tuple: StoredTuple, ref: TupleRef): void {
    const offsets = fieldOffsets(tuple, this.#keyFields)
    for (const index of this.indexes) index.delete(tuple, offsets, ref)
    this.#arena.release(ref)
    this.#bytes -= tuple.length
    this.#arena.closeHoles(MOVES_PER_CHANGE)
  }
}

/** Tuples of an equal form are one to whoever depends on them, wherever they lie. */
export function isSameTuple(a: StoredTuple | undefined, b: StoredTuple | undefined): boolean {
  return a === undefined || b === undefined ? a === b : a.equals(b)
}

/** Of the format first, then of the indexes, as Tarantool looks; a part that says what its field says already is left out. */
function checksOf(definition: SpaceDefinition, indexes: readonly IndexDefinition[]): FieldCheck[] {
  const checks: FieldCheck[] = []
  const add = (field: number, type: FieldType, isNullable: boolean): void => {
    const isKnown = checks.some(
      (check) => check.field === field && check.type === type && check.isNullable === isNullable,
    )
    if (!isKnown) checks.push({ field, type, isNullable, leads: fittingLeads(type, isNullable) })
  }
  for (const [field, { type, isNullable }] of definition.format.entries()) {
    // A field of any type that may be missing is no check at all.
    if (type !== 'any' || !isNullable) add(field, type, isNullable)
  }
  for (const { parts } of indexes) for (const { field, type, isNullable } of parts) add(field, type, isNullable)
  return checks
}

function buildIndexes(definition: SpaceDefinition, indexes: readonly IndexDefinition[], arena: Arena): SpaceIndex[] {
  const primary = indexes[0]?.parts ?? []
  return indexes.map((index, position) => new SpaceIndex(index, definition.name, position === 0 ? [] : primary, arena))
}
