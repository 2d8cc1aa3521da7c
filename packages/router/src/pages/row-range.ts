/* Which rows are meant, and from where on: an iterator with a key is a range of the index, and a cursor only narrows it. */
import { InvalidArgumentError } from '@orbweaver/iproto'
import { compareRowKeys } from './index-order.js'
import type { IndexOrder, RowKey } from './index-order.js'

/** One end of a range: a beginning of keys. */
export interface Bound {
  readonly key: RowKey
  readonly isInclusive: boolean
}

/** In the order of the index. */
export interface RowRange {
  readonly low: Bound | undefined
  readonly high: Bound | undefined
  /** Rows are listed from high to low. */
  readonly isReverse: boolean
}

export type PageIterator = 'EQ' | 'REQ' | 'ALL' | 'GE' | 'GT' | 'LE' | 'LT'

/** Which ends the key gives, in what direction the rows come. */
const ITERATORS: Readonly<Record<PageIterator, { low?: boolean; high?: boolean; isReverse: boolean }>> = {
  EQ: { low: true, high: true, isReverse: false },
  REQ: { low: true, high: true, isReverse: true },
  ALL: { low: true, isReverse: false },
  GE: { low: true, isReverse: false },
  GT: { low: false, isReverse: false },
  LE: { high: true, isReverse: true },
  LT: { high: false, isReverse: true },
}

export const PAGE_ITERATORS: readonly string[] = Object.keys(ITERATORS)

/** @throws InvalidArgumentError for a key longer than the index's */
export function rangeOf(order: IndexOrder, iterator: PageIterator, key: RowKey): RowRange {
  const found = ITERATORS[iterator]
  if (key.length > order.ownParts)
    throw new InvalidArgumentError(`The key has ${key.length} parts, the index ${order.ownParts}`)
  const bound = (isInclusive: boolean | undefined): Bound | undefined =>
    isInclusive === undefined || key.length === 0 ? undefined : { key, isInclusive }
  return { low: bound(found.low), high: bound(found.high), isReverse: found.isReverse }
}

/** What to ask the shards for. */
export interface Span {
  readonly isReverse: boolean
  /** Where it begins: an end of the range, or behind a row. */
  readonly start: Bound | undefined
  readonly cursor: RowKey | undefined
  /** Where it ends. */
  readonly end: Bound | undefined
}

/**
 * The rest of a range behind a row in one direction; undefined: nothing is left. A row before the range leaves all of it.
 * @param isBackward - from the row towards the beginning of the list
 */
export function spanOf(
  order: IndexOrder,
  { low, high, isReverse }: RowRange,
  cursor: RowKey | undefined,
  isBackward: boolean,
): Span | undefined {
  const isDown = isReverse !== isBackward
  const [start, end] = isDown ? [high, low] : [low, high]
  const span = { isReverse: isDown, end }
  if (cursor === undefined) return { ...span, start, cursor: undefined }
  if (!isBefore(order, cursor, end, isDown)) return undefined
  if (start === undefined || isBehind(order, cursor, start, isDown)) return { ...span, start: undefined, cursor }
  return { ...span, start, cursor: undefined }
}

/** Whether a row is on this side of the end of a span. */
export function isBefore(order: IndexOrder, row: RowKey, end: Bound | undefined, isReverse: boolean): boolean {
  if (end === undefined) return true
  const place = inDirection(compareRowKeys(order, row, end.key), isReverse)
  return end.isInclusive ? place <= 0 : place < 0
}

function isBehind(order: IndexOrder, row: RowKey, start: Bound, isReverse: boolean): boolean {
  const place = inDirection(compareRowKeys(order, row, start.key), isReverse)
  return start.isInclusive ? place >= 0 : place > 0
}

export function inDirection(order: number, isReverse: boolean): number {
  return isReverse ? -order : order
}
