/*
 * The one place that imports sorted-btree: its default export is the class itself under a bundler-like loader and the module
 * object under plain Node.
 */
import * as imported from 'sorted-btree'

/** What we use of a B+tree. Iterating while it changes is not allowed. */
export interface OrderedMap<K, V> {
  readonly size: number
  get(key: K): V | undefined
  /** true when the key is new. */
  set(key: K, value: V): boolean
  delete(key: K): boolean
  clear(): void
  /** The same entries in a map of its own, at once: what either changes from now on is copied then. */
  clone(): OrderedMap<K, V>
  /** The entry at `key`, or the first one behind it. */
  getPairOrNextHigher(key: K): [K, V] | undefined
  /** From the first key at or behind `lowest`, upwards. With `reused`, every entry comes in that same array. */
  entries(lowest?: K, reused?: (K | V)[]): IterableIterator<[K, V]>
  /** From the last key at or before `highest`, downwards. */
  entriesReversed(highest?: K, reused?: (K | V)[]): IterableIterator<[K, V]>
}

type TreeClass = new <K, V>(entries: [K, V][] | undefined, compare: (a: K, b: K) => number) => OrderedMap<K, V>

const { default: found } = imported as unknown as { default: TreeClass | { default: TreeClass } }
const Tree: TreeClass = typeof found === 'function' ? found : found.default

export function createOrderedMap<K, V>(compare: (a: K, b: K) => number): OrderedMap<K, V> {
  return new Tree<K, V>(undefined, compare)
}
