/*
 * One space: its format, its indexes, and the two ways its contents change. A change is checked whole before anything is
 * touched, so a refused one leaves no trace.
 */
import { boxErrors } from '../errors.js'
import { Arena } from './arena.js'
import type { TupleRef } from './arena.js'
import { fits, kindAt } from './field-type.js'
import type { IndexDefinition, SpaceDefinition } from './index-definition.js'
import { SpaceIndex } from './space-index.js'
import type { IndexKey } from './space-index.js'
import { fieldCount, fieldOffsets } from './tuple.js'
import type { FieldOffsets, StoredTuple } from './tuple.js'

/** What a change did: enough to undo it and to write it to the journal. */
export interface SpaceChange {
  readonly space: Space
  /** The primary key of both. */
  readonly key: IndexKey
  readonly before: StoredTuple | undefined
  readonly after: StoredTuple | undefined
  /** Of a removal: the primary key as it was encoded. A decoded one has lost its form (5.0 is 5), and with it its type. */
  readonly removedKey: Buffer | undefined
}

/** Tarantool's default `memtx_max_tuple_size`. */
const MAX_TUPLE_BYTES = 1024 * 1024
/** More than the part of a piece that is not holes, so that emptying pieces keeps up with making holes. */
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
  /** Bytes of all tuples. */
  #bytes = 0

  constructor(definition: SpaceDefinition, indexes: readonly IndexDefinition[]) {
    this.#definition = definition
    this.#indexes = buildIndexes(definition, indexes, this.#arena)
    this.#keyFields = Math.max(0, ...indexes.flatMap(({ parts }) => parts.map((part) => part.field + 1)))
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
   * Inserts or replaces. The bytes become the space's: they must not be written to any more.
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

  /** Removes by the primary key's parts; undefined when nobody is there. */
  remove(key: IndexKey): SpaceChange | undefined {
    const before = this.primary.find(key)
    if (before === undefined) return undefined
    this.#unlink(before)
    return { space: this, key, before, after: undefined, removedKey: this.primary.encodedKeyOf(before) }
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
      const other = index.find(index.keyOf(change.after))
      if (other !== undefined && !isSameTuple(other, change.before)) return false
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
    const { format, fieldCount: exact } = this.definition
    const count = fieldCount(tuple)
    if (exact !== 0 && count !== exact) throw boxErrors.exactFieldCount(count, exact)
    const offsets = fieldOffsets(tuple)
    for (let i = 0; i < format.length; i++) {
      const { type, isNullable } = format[i]!
      if (i >= count) {
        if (!isNullable) throw boxErrors.fieldMissing(this.fieldName(i))
        continue
      }
      const kind = kindAt(tuple, offsets[i]!)
      if (kind === 'nil' ? !isNullable : !fits(type, kind)) throw boxErrors.fieldType(this.fieldName(i), type, kind)
    }
    for (const index of this.indexes) {
      for (const part of index.definition.parts) {
        if (part.field >= count) {
          if (!part.isNullable) throw boxErrors.fieldMissing(this.fieldName(part.field))
          continue
        }
        const kind = kindAt(tuple, offsets[part.field]!)
        if (kind === 'nil' ? !part.isNullable : !fits(part.type, kind))
          throw boxErrors.fieldType(this.fieldName(part.field), part.type, kind)
      }
    }
    return offsets
  }

  #replace(tuple: StoredTuple, offsets: FieldOffsets, replaced: TupleRef | undefined): SpaceChange {
    const key = this.primary.keyOf(tuple, offsets)
    const ref = this.#arena.add(tuple)
    this.#bytes += tuple.length
    if (replaced === undefined) {
      for (const index of this.indexes) index.add(tuple, offsets, ref)
      return { space: this, key, before: undefined, after: tuple, removedKey: undefined }
    }
    const before = this.#arena.get(replaced)
    const offsetsBefore = fieldOffsets(before, this.#keyFields)
    for (const index of this.indexes) index.replace(before, offsetsBefore, tuple, offsets, ref)
    this.#forget(replaced, before)
    return { space: this, key, before, after: tuple, removedKey: undefined }
  }

  #link(tuple: StoredTuple): void {
    const offsets = fieldOffsets(tuple, this.#keyFields)
    const ref = this.#arena.add(tuple)
    for (const index of this.indexes) index.add(tuple, offsets, ref)
    this.#bytes += tuple.length
  }

  #unlink(tuple: StoredTuple): void {
    const offsets = fieldOffsets(tuple, this.#keyFields)
    const ref = this.indexes[0]?.findRefOf(tuple, offsets)
    if (ref === undefined) return
    for (const index of this.indexes) index.delete(tuple, offsets)
    this.#forget(ref, tuple)
  }

  /** A tuple that no index holds any more. */
  #forget(ref: TupleRef, tuple: StoredTuple): void {
    this.#arena.release(ref)
    this.#bytes -= tuple.length
    this.#closeHoles()
  }

  /** Moves a few tuples out of a piece of memory that is full of holes: with every change a little, so that nobody waits for it. */
  #closeHoles(): void {
    for (let moved = 0; moved < MOVES_PER_CHANGE; moved++) {
      const ref = this.#arena.nextToMove()
      if (ref === undefined) return
      const tuple = this.#arena.get(ref)
      const offsets = fieldOffsets(tuple, this.#keyFields)
      if (this.primary.findRefOf(tuple, offsets) !== ref) continue // a hole
      const next = this.#arena.add(tuple)
      for (const index of this.indexes) index.replace(tuple, offsets, tuple, offsets, next)
      this.#arena.release(ref)
    }
  }
}

/** Tuples of an equal form are one to whoever depends on them, wherever they lie. */
export function isSameTuple(a: StoredTuple | undefined, b: StoredTuple | undefined): boolean {
  return a === undefined || b === undefined ? a === b : a.equals(b)
}

function buildIndexes(definition: SpaceDefinition, indexes: readonly IndexDefinition[], arena: Arena): SpaceIndex[] {
  const primary = indexes[0]?.parts ?? []
  return indexes.map((index, position) => new SpaceIndex(index, definition.name, position === 0 ? [] : primary, arena))
}
