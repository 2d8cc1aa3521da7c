/*
 * One ordered index over the tuples of an arena. A number that is the whole key stands in the tree as itself; any other key is
 * read from the tuple when it is compared, so that nothing is kept for it. Where keys may repeat (a non-unique index, or a
 * nil in a unique one) the parts of the primary key follow, so every entry has its own place and pages add up.
 */
import { decodeValue, Double, encodeValue, IteratorType } from '@orbweaver/iproto'
import { boxErrors } from '../errors.js'
import { compareIndexKeys, compareKeys, HIGHEST, LOWEST } from './compare.js'
import type { Arena, TupleRef } from './arena.js'
import { fits, kindAt } from './field-type.js'
import type { FieldType } from './field-type.js'
import type { IndexDefinition, IndexPart } from './index-definition.js'
import { createOrderedMap } from './ordered-map.js'
import type { OrderedMap } from './ordered-map.js'
import { arrayHead, fieldAt, fieldOffsets, tupleOf } from './tuple.js'
import type { FieldOffsets, StoredTuple } from './tuple.js'
import { PROBE, TupleOrder } from './tuple-order.js'

export type KeyParts = readonly unknown[]

/**
 * What an index files a tuple under: the value itself where the key is one part that is always there (most primary keys: no
 * list is made per tuple), else the list of parts.
 */
export type IndexKey = unknown

/** What an iterator does on an ordered index: where it begins, which way it walks, where it stops. */
interface Walk {
  readonly isReverse: boolean
  /** Where equal keys lie relative to the start: `before` includes them on the way up. */
  readonly from: 'before' | 'behind' | 'end'
  readonly whileEqual: boolean
}

const WALKS: Readonly<Record<number, Walk>> = {
  [IteratorType.eq]: { isReverse: false, from: 'before', whileEqual: true },
  [IteratorType.req]: { isReverse: true, from: 'behind', whileEqual: true },
  [IteratorType.all]: { isReverse: false, from: 'before', whileEqual: false },
  [IteratorType.lt]: { isReverse: true, from: 'before', whileEqual: false },
  [IteratorType.le]: { isReverse: true, from: 'behind', whileEqual: false },
  [IteratorType.ge]: { isReverse: false, from: 'before', whileEqual: false },
  [IteratorType.gt]: { isReverse: false, from: 'behind', whileEqual: false },
}

const HASH_ITERATORS: ReadonlySet<number> = new Set([IteratorType.eq, IteratorType.all, IteratorType.gt])
const KNOWN_ITERATORS = 12

export interface SelectRange {
  readonly iterator: number
  readonly key: KeyParts
  readonly offset: number
  readonly limit: number
  /** Continue behind this entry (a full tree key). */
  readonly after?: KeyParts
}

/** A key as its parts, those of the primary key behind them where they belong to it. (No indexable value is a list.) */
export function partsOf(key: IndexKey): KeyParts {
  return Array.isArray(key) ? (key as KeyParts) : [key]
}

/** Types whose values the tree keeps at the price of a number. */
const NUMERIC: ReadonlySet<FieldType> = new Set<FieldType>(['unsigned', 'integer', 'number', 'double'])

/** What a tree holds: keys of their own, or the tuples in the order of their keys. */
type Entries =
  | { readonly by: 'value'; readonly tree: OrderedMap<IndexKey, TupleRef> }
  | { readonly by: 'tuple'; readonly tree: OrderedMap<TupleRef, undefined>; readonly order: TupleOrder }

/** Parts of a key as an encoded array. Decoded floats may be whole numbers beyond the safe ones, which must stay floats. */
export function encodeKeyParts(parts: KeyParts): Buffer {
  return encodeValue(
    parts.map((part) => (typeof part === 'number' && !Number.isSafeInteger(part) ? new Double(part) : part)),
  )
}

export class SpaceIndex {
  readonly definition: IndexDefinition
  readonly #spaceName: string
  readonly #arena: Arena
  readonly #entries: Entries
  /** Parts of the primary key that make repeated keys distinct; empty for the primary key itself. */
  readonly #primary: readonly IndexPart[]
  /** Fields to be located in a tuple for its key. */
  readonly #fieldLimit: number
  /** The field that is the whole key, or undefined when keys are lists. */
  readonly #onlyField: number | undefined

  constructor(definition: IndexDefinition, spaceName: string, primary: readonly IndexPart[], arena: Arena) {
    this.definition = definition
    this.#spaceName = spaceName
    this.#primary = primary
    this.#arena = arena
    const fields = [...definition.parts, ...primary].map((part) => part.field)
    this.#fieldLimit = Math.max(...fields) + 1
    const [only] = definition.parts
    const isSimple = definition.parts.length === 1 && !only!.isNullable && (definition.isUnique || primary.length === 0)
    this.#onlyField = isSimple ? only!.field : undefined
    if (isSimple && NUMERIC.has(only!.type)) {
      this.#entries = { by: 'value', tree: createOrderedMap(compareIndexKeys) }
    } else {
      const order = new TupleOrder(fields, arena)
      this.#entries = { by: 'tuple', tree: createOrderedMap(order.compare), order }
    }
  }

  get size(): number {
    return this.#entries.tree.size
  }

  keyOf(tuple: StoredTuple, offsets: FieldOffsets = fieldOffsets(tuple, this.#fieldLimit)): IndexKey {
    if (this.#onlyField !== undefined) return fieldAt(tuple, offsets, this.#onlyField)
    const { parts, isUnique } = this.definition
    const key: unknown[] = []
    let hasNil = false
    for (const part of parts) {
      const value = fieldAt(tuple, offsets, part.field) ?? null
      if (value === null) hasNil = true
      key.push(value)
    }
    if (this.#primary.length > 0 && (!isUnique || hasNil)) {
      for (const part of this.#primary) key.push(fieldAt(tuple, offsets, part.field) ?? null)
    }
    return key
  }

  /** The parts of its key (the index's own) as an encoded array, each in the form it has in the tuple. */
  encodedKeyOf(tuple: StoredTuple): Buffer {
    const offsets = fieldOffsets(tuple, this.#fieldLimit)
    return tupleOf(this.definition.parts.map(({ field }) => tuple.subarray(offsets[field], offsets[field + 1])))
  }

  /** The key with these parts, all of them. */
  toKey(parts: KeyParts): IndexKey {
    return this.#onlyField === undefined ? parts : parts[0]
  }

  isSameKey(a: IndexKey, b: IndexKey): boolean {
    return compareIndexKeys(a, b) === 0
  }

  find(key: IndexKey): StoredTuple | undefined {
    const ref = this.findRef(key)
    return ref === undefined ? undefined : this.#arena.get(ref)
  }

  findRef(key: IndexKey): TupleRef | undefined {
    const entries = this.#entries
    if (entries.by === 'value') return entries.tree.get(key)
    const encoded = encodeKeyParts(partsOf(key))
    entries.order.probeKey(encoded, fieldOffsets(encoded))
    return probed(entries.tree, entries.order)
  }

  /** The tuple that has the same key as this one. */
  findRefOf(tuple: StoredTuple, offsets: FieldOffsets): TupleRef | undefined {
    const entries = this.#entries
    if (entries.by === 'value') return entries.tree.get(fieldAt(tuple, offsets, this.#onlyField!))
    entries.order.probeTuple(tuple, offsets, this.#partCount(tuple, offsets))
    return probed(entries.tree, entries.order)
  }

  /** Files a tuple that is in the arena as `ref`; nobody has its key. */
  add(tuple: StoredTuple, offsets: FieldOffsets, ref: TupleRef): void {
    const entries = this.#entries
    if (entries.by === 'value') {
      entries.tree.set(fieldAt(tuple, offsets, this.#onlyField!), ref)
      return
    }
    entries.order.probeTuple(tuple, offsets, this.#partCount(tuple, offsets), ref)
    entries.tree.set(ref, undefined)
  }

  /**
   * Files a tuple in the place of another one, whose key may be the same. The old number is taken out first: a tree that puts a
   * key in the place of an equal one keeps the old one in its inner nodes, where it would outlive the tuple.
   */
  replace(
    before: StoredTuple,
    offsetsBefore: FieldOffsets,
    tuple: StoredTuple,
    offsets: FieldOffsets,
    ref: TupleRef,
  ): void {
    const { by } = this.#entries
    const only = this.#onlyField
    const isSameValue =
      by === 'value' && compareIndexKeys(fieldAt(before, offsetsBefore, only!), fieldAt(tuple, offsets, only!)) === 0
    if (!isSameValue) this.delete(before, offsetsBefore)
    this.add(tuple, offsets, ref)
  }

  delete(tuple: StoredTuple, offsets: FieldOffsets): void {
    const entries = this.#entries
    if (entries.by === 'value') {
      entries.tree.delete(fieldAt(tuple, offsets, this.#onlyField!))
      return
    }
    entries.order.probeTuple(tuple, offsets, this.#partCount(tuple, offsets))
    entries.tree.delete(PROBE)
  }

  /** Every tuple in the order of the index; do not change the space while walking. */
  tuples(): IterableIterator<StoredTuple> {
    return tuplesOf(this.#entries, this.#arena)
  }

  /** As `tuples`, of this moment: the space may change meanwhile. */
  frozenTuples(): IterableIterator<StoredTuple> {
    const entries = this.#entries
    const frozen: Entries =
      entries.by === 'value' ? { by: 'value', tree: entries.tree.clone() } : { ...entries, tree: entries.tree.clone() }
    return tuplesOf(frozen, this.#arena.freeze())
  }

  /** Parts by which a tuple has a place of its own: those of the primary key too, where others may have the same key. */
  #partCount(tuple: StoredTuple, offsets: FieldOffsets): number {
    const { parts, isUnique } = this.definition
    if (this.#primary.length === 0) return parts.length
    if (!isUnique) return parts.length + this.#primary.length
    const hasNil = parts.some(
      ({ field, isNullable }) => isNullable && (field + 1 >= offsets.length || tuple[offsets[field]!] === 0xc0),
    )
    return hasNil ? parts.length + this.#primary.length : parts.length
  }

  /**
   * Decodes a key a client sent.
   * @throws BoxError 31 for too many parts, 18 for a part of the wrong type
   */
  parseKey(encoded: Buffer): KeyParts {
    const { parts } = this.definition
    const { size } = arrayHead(encoded)
    if (size > parts.length) throw boxErrors.keyPartCount(parts.length, size)
    const offsets = fieldOffsets(encoded)
    const key: unknown[] = []
    for (let i = 0; i < size; i++) {
      const part = parts[i]!
      const start = offsets[i]!
      const kind = kindAt(encoded, start)
      if (kind === 'nil' ? !part.isNullable : !fits(part.type, kind)) throw boxErrors.keyPartType(i, part.type)
      key.push(decodeValue(encoded, { start, end: offsets[i + 1]! }))
    }
    return key
  }

  /** A key that names one tuple at the most: what get, update and delete need. @throws BoxError 41, 19, 18 */
  parseExactKey(encoded: Buffer): IndexKey {
    if (!this.definition.isUnique) throw boxErrors.moreThanOneTuple()
    const { size } = arrayHead(encoded)
    if (size !== this.definition.parts.length) throw boxErrors.exactMatch(this.definition.parts.length, size)
    return this.toKey(this.parseKey(encoded))
  }

  /** @throws BoxError 112 for an iterator this type of index has not, 1 for an unknown one */
  select(range: SelectRange): StoredTuple[] {
    if (range.limit === 0) return []
    const walk = this.#walk(range.iterator)
    const { parts, isUnique } = this.definition
    if (
      walk.whileEqual &&
      isUnique &&
      range.key.length === parts.length &&
      range.after === undefined &&
      !range.key.includes(null)
    ) {
      const tuple = range.offset === 0 ? this.find(this.toKey(range.key)) : undefined
      return tuple === undefined ? [] : [tuple]
    }
    const entries = this.#entries
    const from = startOf(walk, range)
    return entries.by === 'value'
      ? this.#selectByValue(entries.tree, walk, range, from)
      : this.#selectByTuple(entries.tree, entries.order, walk, range, from)
  }

  #selectByValue(tree: OrderedMap<IndexKey, TupleRef>, walk: Walk, range: SelectRange, from: KeyParts): StoredTuple[] {
    const found: StoredTuple[] = []
    let skip = range.offset
    const reused: unknown[] = []
    for (const [key, ref] of walk.isReverse ? tree.entriesReversed(from, reused) : tree.entries(from, reused)) {
      if (walk.whileEqual && !startsWith(partsOf(key), range.key)) break
      if (skip > 0) {
        skip--
        continue
      }
      found.push(this.#arena.get(ref))
      if (found.length >= range.limit) break
    }
    return found
  }

  #selectByTuple(
    tree: OrderedMap<TupleRef, undefined>,
    order: TupleOrder,
    walk: Walk,
    range: SelectRange,
    from: KeyParts,
  ): StoredTuple[] {
    const found: StoredTuple[] = []
    let skip = range.offset
    const first = encodeKeyParts(from.slice(0, -1))
    order.probeKey(first, fieldOffsets(first), from.at(-1) === LOWEST ? -1 : 1)
    const reused: (TupleRef | undefined)[] = []
    const entries = walk.isReverse ? tree.entriesReversed(PROBE, reused) : tree.entries(PROBE, reused)
    // The place is found by the first step, so that the probe can be the prefix from then on.
    let next = entries.next()
    if (walk.whileEqual) {
      const prefix = encodeKeyParts(range.key)
      order.probeKey(prefix, fieldOffsets(prefix))
    }
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
    const walk = WALKS[iterator]
    if (walk === undefined) {
      if (iterator < KNOWN_ITERATORS)
        throw boxErrors.unsupportedIterator(
          this.definition.name,
          this.definition.type.toUpperCase(),
          this.#spaceName,
          'requested iterator type',
        )
      throw boxErrors.illegalParams(`Invalid iterator type ${iterator}`)
    }
    if (this.definition.type === 'hash' && !HASH_ITERATORS.has(iterator)) {
      throw boxErrors.unsupportedIterator(this.definition.name, 'HASH', this.#spaceName, 'requested iterator type')
    }
    return walk
  }
}

/** Where a walk begins: parts of a key, and behind them LOWEST or HIGHEST. */
function startOf(walk: Walk, range: SelectRange): KeyParts {
  const edge = walk.from === 'before' ? LOWEST : HIGHEST
  // An empty key is the whole index, whichever end the walk begins at.
  const start = range.key.length > 0 ? [...range.key, edge] : [walk.isReverse ? HIGHEST : LOWEST]
  if (range.after === undefined) return start
  const behind = [...range.after, walk.isReverse ? LOWEST : HIGHEST]
  // A cursor only narrows the range: one that lies before it begins at the range's start.
  const isInside = walk.isReverse ? compareKeys(behind, start) < 0 : compareKeys(behind, start) > 0
  return isInside ? behind : start
}

/** The tuple at the probe. */
function probed(tree: OrderedMap<TupleRef, undefined>, order: TupleOrder): TupleRef | undefined {
  const ref = tree.getPairOrNextHigher(PROBE)?.[0]
  return ref !== undefined && order.compareToProbe(ref) === 0 ? ref : undefined
}

function* tuplesOf(entries: Entries, arena: Arena): IterableIterator<StoredTuple> {
  if (entries.by === 'value') for (const [, ref] of entries.tree.entries()) yield arena.get(ref)
  else for (const [ref] of entries.tree.entries()) yield arena.get(ref)
}

function startsWith(key: KeyParts, prefix: KeyParts): boolean {
  return compareKeys(key.length === prefix.length ? key : key.slice(0, prefix.length), prefix) === 0
}
