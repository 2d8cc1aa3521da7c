/* What each iterator does on an ordered index: where it begins, which way it walks, where it stops. */
import { IteratorType } from '@orbweaver/iproto'

export interface Walk {
  readonly isReverse: boolean
  /** Where equal keys lie relative to the start: `before` includes them on the way up. */
  readonly from: 'before' | 'behind'
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

/** What a hash index has of them. */
const HASH_ITERATORS: ReadonlySet<number> = new Set([IteratorType.eq, IteratorType.all, IteratorType.gt])
const KNOWN_ITERATORS = 12

/** `unsupported`: there is such an iterator, for other types of index. */
export function walkOf(iterator: number, indexType: 'tree' | 'hash'): Walk | 'unsupported' | 'unknown' {
  const walk = WALKS[iterator]
  if (walk === undefined) return iterator < KNOWN_ITERATORS ? 'unsupported' : 'unknown'
  return indexType === 'hash' && !HASH_ITERATORS.has(iterator) ? 'unsupported' : walk
}
