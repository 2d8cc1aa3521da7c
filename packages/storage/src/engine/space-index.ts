/*
 * One ordered index. The tree's key is the list of decoded key parts; where keys may repeat (a non-unique index, or a nil
 * in a unique one) the parts of the primary key follow, so every entry has its own place and pages add up.
 */
import { decodeValue, IteratorType } from '@orbweaver/iproto'
import { boxErrors } from '../errors.js'
import { compareIndexKeys, compareKeys, HIGHEST, LOWEST } from './compare.js'
import { fits, kindAt } from './field-type.js'
import type { IndexDefinition, IndexPart } from './index-definition.js'
import { createOrderedMap } from './ordered-map.js'
import type { OrderedMap } from './ordered-map.js'
import { arrayHead, fieldAt, fieldOffsets } from './tuple.js'
import type { FieldOffsets, StoredTuple } from './tuple.js'

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

export class SpaceIndex {
  readonly definition: IndexDefinition
  readonly #spaceName: string
  readonly #tree: OrderedMap<IndexKey, StoredTuple> = createOrderedMap(compareIndexKeys)
  /** Parts of the primary key that make repeated keys distinct; empty for the primary key itself. */
  readonly #primary: readonly IndexPart[]
  /** Fields to be located in a tuple for its key. */
  readonly #fieldLimit: number
  /** The field that is the whole key, or undefined when keys are lists. */
  readonly #onlyField: number | undefined

  constructor(definition: IndexDefinition, spaceName: string, primary: readonly IndexPart[]) {
    this.definition = definition
    this.#spaceName = spaceName
    this.#primary = primary
    this.#fieldLimit = Math.max(...definition.parts.map((part) => part.field), ...primary.map((part) => part.field)) + 1
    const [only] = definition.parts
    const isSimple = definition.parts.length === 1 && !only!.isNullable && (definition.isUnique || primary.length === 0)
    this.#onlyField = isSimple ? only!.field : undefined
  }

  get size(): number {
    return this.#tree.size
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

  /** The key with these parts, all of them. */
  toKey(parts: KeyParts): IndexKey {
    return this.#onlyField === undefined ? parts : parts[0]
  }

  isSameKey(a: IndexKey, b: IndexKey): boolean {
    return compareIndexKeys(a, b) === 0
  }

  find(key: IndexKey): StoredTuple | undefined {
    return this.#tree.get(key)
  }

  set(key: IndexKey, tuple: StoredTuple): void {
    this.#tree.set(key, tuple)
  }

  delete(key: IndexKey): void {
    this.#tree.delete(key)
  }

  clear(): void {
    this.#tree.clear()
  }

  /** Every tuple in the order of the index; do not change the space while walking. */
  *tuples(): IterableIterator<StoredTuple> {
    for (const [, tuple] of this.#tree.entries()) yield tuple
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
      const tuple = range.offset === 0 ? this.#tree.get(this.toKey(range.key)) : undefined
      return tuple === undefined ? [] : [tuple]
    }
    const found: StoredTuple[] = []
    let skip = range.offset
    for (const [key, tuple] of this.#entries(walk, range)) {
      if (walk.whileEqual && !startsWith(partsOf(key), range.key)) break
      if (skip > 0) {
        skip--
        continue
      }
      found.push(tuple)
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

  #entries(walk: Walk, range: SelectRange): IterableIterator<[IndexKey, StoredTuple]> {
    const edge = walk.from === 'before' ? LOWEST : HIGHEST
    // An empty key is the whole index, whichever end the walk begins at.
    const start = range.key.length > 0 ? [...range.key, edge] : [walk.isReverse ? HIGHEST : LOWEST]
    let from: KeyParts = start
    if (range.after !== undefined) {
      const behind = [...range.after, walk.isReverse ? LOWEST : HIGHEST]
      // A cursor only narrows the range: one that lies before it begins at the range's start.
      const isInside = walk.isReverse ? compareKeys(behind, start) < 0 : compareKeys(behind, start) > 0
      if (isInside) from = behind
    }
    return walk.isReverse ? this.#tree.entriesReversed(from) : this.#tree.entries(from)
  }
}

function startsWith(key: KeyParts, prefix: KeyParts): boolean {
  return compareKeys(key.length === prefix.length ? key : key.slice(0, prefix.length), prefix) === 0
}
