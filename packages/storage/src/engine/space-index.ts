/*
 * One ordered index over the tuples of an arena: a tree of their numbers, which are compared by what the tuples hold, so that
 * nothing is decoded or kept for a key. Where keys may repeat (a non-unique index, or a nil in a unique one) the parts of the
 * primary key follow, so every entry has its own place and pages add up. Where whole keys of an index can be hashed, a table
 * finds them.
 *
 * A key is an encoded array of its first parts. A place in the index ("tree key") has all of them, and those of the primary key
 * where they belong to it.
 */
import type { BodyWriter } from '@orbweaver/iproto'
import { boxErrors } from '../errors.js'
import type { Arena, TupleRef } from './arena.js'
import { fits, fittingLeads, kindAt } from './field-type.js'
import type { IndexDefinition, IndexPart } from './index-definition.js'
import { HASHABLE, hashPart } from './key-hash.js'
import { KeyTable } from './key-table.js'
import { createOrderedMap } from './ordered-map.js'
import type { OrderedMap } from './ordered-map.js'
import { arrayHead, fieldOffsets, skipField, tupleOf } from './tuple.js'
import type { FieldOffsets, StoredTuple } from './tuple.js'
import { compareParts, PROBE, TupleOrder } from './tuple-order.js'
import type { Edge } from './tuple-order.js'
import { walkOf } from './walk.js'
import type { Walk } from './walk.js'

const NIL = 0xc0
/** Parts of a key whose array has a head of one byte. */
const MAX_SHORT_PARTS = 15
/** What takes the usual way. */
export const UNUSUAL = -1

export interface SelectRange {
  readonly iterator: number
  readonly key: Buffer
  /** Where its parts are, as `checkKey` says. */
  readonly offsets: FieldOffsets
  readonly offset: number
  readonly limit: number
  /** Continue behind this place. */
  readonly after?: Buffer
}

/** Where a walk begins: beside everything that has these parts. */
interface Start {
  readonly key: Buffer
  readonly edge: Edge
}

export class SpaceIndex {
  readonly definition: IndexDefinition
  readonly #spaceName: string
  readonly #arena: Arena
  readonly #tree: OrderedMap<TupleRef, undefined>
  readonly #order: TupleOrder
  /** Only of an index whose keys can be hashed and never repeat. */
  readonly #table: KeyTable | undefined
  /** Fields of the index, and of the primary key behind them where they make repeated keys distinct. */
  readonly #fields: readonly number[]
  /** Fields to be located in a tuple for its key. */
  readonly #fieldLimit: number
  /** First bytes of values that fit, for each part. */
  readonly #leads: readonly Uint8Array[]
  readonly #isNullable: boolean
  /** Where the parts of a key are: of `findPoint`, used again and again. */
  readonly #pointOffsets: number[]

  constructor(definition: IndexDefinition, spaceName: string, primary: readonly IndexPart[], arena: Arena) {
    const { parts, isUnique } = definition
    this.definition = definition
    this.#spaceName = spaceName
    this.#arena = arena
    this.#fields = [...parts, ...primary].map(({ field }) => field)
    this.#fieldLimit = Math.max(...this.#fields) + 1
    this.#leads = parts.map(({ type, isNullable }) => fittingLeads(type, isNullable))
    this.#pointOffsets = Array.from({ length: parts.length + 1 }, () => 0)
    this.#isNullable = parts.some((part) => part.isNullable)
    this.#order = new TupleOrder(this.#fields, arena)
    this.#tree = createOrderedMap(this.#order.compare)
    const isHashable = isUnique && parts.every(({ type, isNullable }) => HASHABLE.has(type) && !isNullable)
    this.#table = isHashable ? new KeyTable() : undefined
  }

  get size(): number {
    return this.#tree.size
  }

  // ---- keys ---------------------------------------------------------------------------------------------------------

  /** The parts of its key (the index's own), each in the form it has in the tuple. */
  keyOf(tuple: StoredTuple): Buffer {
    return this.#encoded(tuple, this.definition.parts.length)
  }

  /** Its place in the index. */
  treeKeyOf(tuple: StoredTuple): Buffer {
    return this.#encoded(tuple, this.#partCount(tuple, fieldOffsets(tuple, this.#fieldLimit)))
  }

  /** Whether this can be a place here. */
  isPlace(key: Buffer): boolean {
    return arrayHead(key).size <= this.#fields.length
  }

  /** Whether two tuples stand at the same place here. */
  isSamePlace(a: StoredTuple, offsetsA: FieldOffsets, b: StoredTuple, offsetsB: FieldOffsets): boolean {
    return this.#order.compareTuples(a, offsetsA, b, offsetsB) === 0
  }

  /** Whether this is the key of the tuple. */
  isKeyOf(key: Buffer, tuple: StoredTuple): boolean {
    const own = this.keyOf(tuple)
    return compareParts(key, fieldOffsets(key), own, fieldOffsets(own)) === 0
  }

  /**
   * Judges a key a client sent.
   * @returns where its parts are
   * @throws BoxError 31 for too many parts, 18 for a part of the wrong type
   */
  checkKey(encoded: Buffer): FieldOffsets {
    const { parts } = this.definition
    const offsets = fieldOffsets(encoded)
    const size = offsets.length - 1
    if (size > parts.length) throw boxErrors.keyPartCount(parts.length, size)
    for (let i = 0; i < size; i++) {
      const start = offsets[i]!
      if (this.#leads[i]![encoded[start]!] === 1) continue
      const { type, isNullable } = parts[i]!
      if (!fits(type, kindAt(encoded, start), isNullable)) throw boxErrors.keyPartType(i, type)
    }
    return offsets
  }

  /** Judges a key that must name one tuple at the most: what get, update and delete need. @throws BoxError 41, 19, 18 */
  checkExactKey(encoded: Buffer): FieldOffsets {
    if (!this.definition.isUnique) throw boxErrors.moreThanOneTuple()
    const { size } = arrayHead(encoded)
    if (size !== this.definition.parts.length) throw boxErrors.exactMatch(this.definition.parts.length, size)
    return this.checkKey(encoded)
  }

  // ---- single tuples ------------------------------------------------------------------------------------------------

  /** By a whole key of a unique index. */
  find(key: Buffer, offsets: FieldOffsets = fieldOffsets(key)): StoredTuple | undefined {
    const ref = this.findRef(key, offsets)
    return ref === undefined ? undefined : this.#arena.get(ref)
  }

  findRef(key: Buffer, offsets: FieldOffsets = fieldOffsets(key)): TupleRef | undefined {
    this.#order.probeKey(key, offsets)
    return this.#probed(this.#table === undefined ? 0 : hashKey(key, offsets))
  }

  /**
   * The tuple with the key that lies at [start, end), or undefined when there is none; nothing is made.
   * @returns UNUSUAL for an index without a table, or a key that `checkKey` has to judge
   */
  findPoint(bytes: Buffer, start: number, end: number): TupleRef | undefined | typeof UNUSUAL {
    const count = this.definition.parts.length
    if (this.#table === undefined || bytes[start] !== (0x90 | count) || count > MAX_SHORT_PARTS) return UNUSUAL
    const offsets = this.#pointOffsets
    let hash: number | undefined
    let at = start + 1
    offsets[0] = at
    for (let i = 0; i < count; i++) {
      if (this.#leads[i]![bytes[at]!] !== 1) return UNUSUAL
      const next = skipField(bytes, at, end)
      hash = hashPart(bytes, at, next, hash)
      offsets[i + 1] = at = next
    }
    if (at !== end) return UNUSUAL
    this.#order.probeKey(bytes, offsets)
    return this.#probed(hash!)
  }

  /** Writes a tuple that was found, as it is stored. */
  writeTuple(writer: BodyWriter, ref: TupleRef): void {
    const arena = this.#arena
    arena.locate(ref)
    writer.raw(arena.bytes, arena.start, arena.end)
  }

  /** The tuple that has the same key as this one. */
  findRefOf(tuple: StoredTuple, offsets: FieldOffsets): TupleRef | undefined {
    this.#order.probeTuple(tuple, offsets, this.#partCount(tuple, offsets))
    return this.#probed(this.#table === undefined ? 0 : this.#hashOf(tuple, offsets))
  }

  /** Files a tuple that is in the arena as `ref`; nobody has its key. */
  add(tuple: StoredTuple, offsets: FieldOffsets, ref: TupleRef): void {
    this.#order.probeTuple(tuple, offsets, this.#partCount(tuple, offsets), ref)
    this.#tree.set(ref, undefined)
    this.#table?.add(this.#hashOf(tuple, offsets), ref)
  }

  /** Takes out the tuple `ref`, which is the one given: it must still be in the arena. */
  delete(tuple: StoredTuple, offsets: FieldOffsets, ref: TupleRef): void {
    this.#order.probeTuple(tuple, offsets, this.#partCount(tuple, offsets))
    this.#tree.delete(PROBE)
    this.#table?.delete(this.#hashOf(tuple, offsets), ref)
  }

  // ---- many tuples --------------------------------------------------------------------------------------------------

  /** Every tuple in the order of the index; do not change the space while walking. */
  tuples(): IterableIterator<StoredTuple> {
    return tuplesOf(this.#tree, this.#arena)
  }

  /** As `tuples`, of this moment: the space may change meanwhile. */
  frozenTuples(): IterableIterator<StoredTuple> {
    return tuplesOf(this.#tree.clone(), this.#arena.freeze())
  }

  /** What an iterator gives for a key of ours: all of it, or the first ones. */
  withKey(iterator: number, key: Buffer, limit: number = Number.MAX_SAFE_INTEGER): StoredTuple[] {
    return this.select({ iterator, key, offsets: fieldOffsets(key), offset: 0, limit })
  }

  /** @throws BoxError 112 for an iterator this type of index has not, 1 for an unknown one */
  select(range: SelectRange): StoredTuple[] {
    const { limit, after, key, offsets } = range
    if (limit === 0) return []
    const walk = this.#walk(range.iterator)
    const { parts, isUnique } = this.definition
    // Nils may repeat in a unique index.
    const isWhole = isUnique && offsets.length - 1 === parts.length && !(this.#isNullable && hasNil(key, offsets))
    if (walk.whileEqual && isWhole && after === undefined) {
      const found = range.offset === 0 ? this.find(key, offsets) : undefined
      return found === undefined ? [] : [found]
    }
    return this.#selectRange(walk, range, startOf(walk, range))
  }

  #selectRange(walk: Walk, range: SelectRange, start: Start): StoredTuple[] {
    const found: StoredTuple[] = []
    const order = this.#order
    let skip = range.offset
    order.probeKey(start.key, fieldOffsets(start.key), start.edge)
    const reused: (TupleRef | undefined)[] = []
    const entries = walk.isReverse ? this.#tree.entriesReversed(PROBE, reused) : this.#tree.entries(PROBE, reused)
    // The place is found by the first step, so that the probe can be the prefix from then on.
    let next = entries.next()
    if (walk.whileEqual) order.probeKey(range.key, range.offsets)
    for (; next.done !== true; next = entries.next()) {
      const [ref] = next.value
      if (walk.whileEqual && order.compareToProbe(ref) !== 0) break
      if (skip > 0) {
        skip--
        continue
      }
      found.push(this.#arena.get(ref))
      if (found.length >= range.limit) break
    }
    return found
  }

  #walk(iterator: number): Walk {
    const { type, name } = this.definition
    const walk = walkOf(iterator, type)
    if (walk === 'unknown') throw boxErrors.illegalParams(`Invalid iterator type ${iterator}`)
    if (walk === 'unsupported')
      throw boxErrors.unsupportedIterator(name, type.toUpperCase(), this.#spaceName, 'requested iterator type')
    return walk
  }

  // ---- inside -------------------------------------------------------------------------------------------------------

  /** The tuple at the probe. */
  #probed(hash: number): TupleRef | undefined {
    const order = this.#order
    const table = this.#table
    if (table === undefined) {
      const ref = this.#tree.getPairOrNextHigher(PROBE)?.[0]
      return ref !== undefined && order.compareToProbe(ref) === 0 ? ref : undefined
    }
    for (let slot = table.search(hash, table.slotOf(hash)); slot >= 0; slot = table.search(hash, slot + 1)) {
      const ref = table.at(slot)
      if (order.compareToProbe(ref) === 0) return ref
    }
    return undefined
  }

  #hashOf(tuple: StoredTuple, offsets: FieldOffsets): number {
    const { parts } = this.definition
    let hash: number | undefined
    for (let i = 0; i < parts.length; i++) {
      const { field } = parts[i]!
      hash = hashPart(tuple, offsets[field]!, offsets[field + 1]!, hash)
    }
    return hash!
  }

  #encoded(tuple: StoredTuple, count: number): Buffer {
    const offsets = fieldOffsets(tuple, this.#fieldLimit)
    return tupleOf(
      this.#fields
        .slice(0, count)
        .map((field) => (field + 1 < offsets.length ? tuple.subarray(offsets[field], offsets[field + 1]) : NIL_PART)),
    )
  }

  /** Parts by which a tuple has a place of its own: those of the primary key too, where others may have the same key. */
  #partCount(tuple: StoredTuple, offsets: FieldOffsets): number {
    const { parts, isUnique } = this.definition
    if (this.#fields.length === parts.length || !isUnique) return this.#fields.length
    if (!this.#isNullable) return parts.length
    const isNil = ({ field }: IndexPart): boolean => field + 1 >= offsets.length || tuple[offsets[field]!] === NIL
    return parts.some(isNil) ? this.#fields.length : parts.length
  }
}

const NIL_PART: Buffer = Buffer.of(NIL)

function hashKey(key: Buffer, offsets: FieldOffsets): number {
  let hash: number | undefined
  for (let i = 0; i + 1 < offsets.length; i++) hash = hashPart(key, offsets[i]!, offsets[i + 1]!, hash)
  return hash!
}

function hasNil(key: Buffer, offsets: FieldOffsets): boolean {
  return offsets.some((start, i) => i + 1 < offsets.length && key[start] === NIL)
}

/** Where a walk begins. */
function startOf(walk: Walk, { key, offsets, after }: SelectRange): Start {
  const isEmpty = offsets.length === 1
  // An empty key is the whole index, whichever end the walk begins at.
  const start: Start = { key, edge: (isEmpty ? walk.isReverse : walk.from === 'behind') ? 1 : -1 }
  if (after === undefined) return start
  const behind: Start = { key: after, edge: walk.isReverse ? -1 : 1 }
  // A cursor only narrows the range: one that lies before it begins at the range's start.
  const order = compareParts(after, fieldOffsets(after), key, offsets, behind.edge, start.edge)
  return (walk.isReverse ? order < 0 : order > 0) ? behind : start
}

function* tuplesOf(tree: OrderedMap<TupleRef, undefined>, arena: Arena): IterableIterator<StoredTuple> {
  for (const [ref] of tree.entries()) yield arena.get(ref)
}
