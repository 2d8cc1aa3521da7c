/*
 * The next rows of one shard behind a common cursor, by SELECT through the session that holds the reference: it works on every
 * storage whose user may read the space, and while the reference lasts the shard has rows of its own buckets only (a storage
 * gives none while it still has rows of a bucket that was sent away or is on its way here).
 *
 * A key can only have the parts of the index itself. Where these name one row, the next rows begin at that key. Where rows share
 * them the server goes on behind a row if it can (2.11 and newer); on older ones the place among the equal keys is searched.
 */
import { decodeData, Feature, selectRequest } from '@orbweaver/iproto'
import type { DecodeOptions, IteratorName, Reply, SelectOptions } from '@orbweaver/iproto'
import type { AskOptions, HeldRef } from '../map/held-ref.js'
import { compareRowKeys, keyOf, wireKey } from './index-order.js'
import type { RowKey } from './index-order.js'
import { inDirection, isBefore } from './row-range.js'
import type { Bound, Span } from './row-range.js'
import type { ShardTarget } from './shard-schema.js'

export interface SelectContext extends AskOptions {
  /** How rows appear; keys are decoded as this package compares them. */
  readonly decode: DecodeOptions | undefined
}

export interface ShardRow {
  readonly key: RowKey
  readonly row: readonly unknown[]
}

export interface ShardRows {
  /** In the direction of the span. */
  readonly rows: readonly ShardRow[]
  /** Of the newest answer. */
  readonly schemaVersion: number
}

/** What is asked: the session of a reference. */
type Session = Pick<HeldRef, 'features' | 'request'>

/** The first `limit` rows of the span on this shard. */
export async function selectOn(
  ref: Session,
  target: ShardTarget,
  span: Span,
  limit: number,
  options: SelectContext,
): Promise<ShardRows> {
  const select = new ShardSelect(ref, target, span, options)
  const { cursor } = span
  const rows =
    cursor === undefined
      ? await select.fromStart(limit)
      : target.order.isExact
        ? await select.fromKey(cursor, 0, limit + 1)
        : ref.features.has(Feature.pagination)
          ? await select.behindRow(cursor, limit)
          : await select.search(cursor, limit)
  const behind = rows.filter(
    ({ key }) => select.isBehindCursor(key) && isBefore(target.order, key, span.end, span.isReverse),
  )
  return { rows: behind.slice(0, limit), schemaVersion: select.schemaVersion }
}

class ShardSelect {
  schemaVersion = 0
  readonly #ref: Session
  readonly #target: ShardTarget
  readonly #span: Span
  readonly #options: SelectContext

  constructor(ref: Session, target: ShardTarget, span: Span, options: SelectContext) {
    this.#ref = ref
    this.#target = target
    this.#span = span
    this.#options = options
  }

  isBehindCursor(key: RowKey): boolean {
    const { cursor, isReverse } = this.#span
    return cursor === undefined || inDirection(compareRowKeys(this.#target.order, key, cursor), isReverse) > 0
  }

  /** From the end of the range where the span begins. */
  fromStart(limit: number): Promise<ShardRow[]> {
    const { end, isReverse, start } = this.#span
    const iterator = iteratorFrom(start, isEqual(start, end), isReverse)
    return this.#select({ iterator, key: wireKey(this.#target.order, start?.key ?? []), limit })
  }

  /** From the index's own parts of a key on, that key included. */
  fromKey(key: RowKey, offset: number, limit: number): Promise<ShardRow[]> {
    const { order } = this.#target
    const iterator = this.#span.isReverse ? 'LE' : 'GE'
    return this.#select({ iterator, key: wireKey(order, key.slice(0, order.ownParts)), offset, limit })
  }

  async behindRow(cursor: RowKey, limit: number): Promise<ShardRow[]> {
    const { order } = this.#target
    const [twins, rows] = await Promise.all([
      // One with the same keys on another shard may stand behind the cursor, which the server of that shard cannot know.
      this.#select({
        index: 0,
        iterator: 'EQ',
        key: order.primary.map((part) => wireKey(order, cursor)[part]),
        limit: 1,
      }),
      this.#select({ iterator: this.#span.isReverse ? 'LE' : 'GE', key: [], after: this.#rowOf(cursor), limit }),
    ])
    const isTwin = ({ key }: ShardRow): boolean => compareRowKeys(order, key, cursor, order.shardParts) === 0
    return [...twins.filter(isTwin), ...rows]
  }

  /**
   * Finds the place of the cursor among rows with the same key, in steps that double and then halve. Rows that come and go meanwhile
   * make it search again: the rows it gives begin right where the cursor is, whatever the search went by.
   */
  async search(cursor: RowKey, limit: number): Promise<ShardRow[]> {
    const isNotBehind = (row: ShardRow | undefined): boolean => row !== undefined && !this.isBehindCursor(row.key)
    for (;;) {
      const [low, high] = await this.#place(async (offset) => isNotBehind((await this.fromKey(cursor, offset, 1))[0]))
      if (high === 0) {
        const rows = await this.fromKey(cursor, 0, limit)
        if (!isNotBehind(rows[0])) return rows
      } else {
        const rows = await this.fromKey(cursor, low, limit + 1)
        if (isNotBehind(rows[0]) && !isNotBehind(rows[1])) return rows
      }
    }
  }

  /** The last offset that is before the cursor, and the first that is not; 0 and 0: none is. */
  async #place(isBefore: (offset: number) => Promise<boolean>): Promise<readonly [low: number, high: number]> {
    let low = 0
    let high = 0
    for (let step = 1; await isBefore(high); step *= 2) {
      low = high
      high += step
    }
    while (high - low > 1) {
      const middle = (low + high) >> 1
      if (await isBefore(middle)) low = middle
      else high = middle
    }
    return [low, high]
  }

  /** A row that has the parts of a key in their places, and nothing else. */
  #rowOf(key: RowKey): unknown[] {
    const { order } = this.#target
    const values = wireKey(order, key)
    const row: unknown[] = []
    for (const [i, { field }] of order.parts.entries()) {
      while (row.length <= field) row.push(null)
      row[field] = values[i]
    }
    return row
  }

  async #select(
    options: Omit<SelectOptions, 'space'> & { iterator: IteratorName; limit: number },
  ): Promise<ShardRow[]> {
    const { indexId, order, spaceId } = this.#target
    const request = selectRequest({ index: indexId, ...options, space: spaceId })
    const reply: Reply = await this.#ref.request(request, this.#options)
    this.schemaVersion = reply.schemaVersion
    const rows = decodeData<(readonly unknown[])[]>(reply)
    const { decode } = this.#options
    const shown = decode === undefined ? rows : decodeData<(readonly unknown[])[]>(reply, decode)
    return rows.map((row, i) => ({ row: shown[i]!, key: keyOf(order, row) }))
  }
}

function iteratorFrom(start: Bound | undefined, isOneKey: boolean, isReverse: boolean): IteratorName {
  if (isOneKey) return isReverse ? 'REQ' : 'EQ'
  if (start?.isInclusive === false) return isReverse ? 'LT' : 'GT'
  return isReverse ? 'LE' : 'GE'
}

/** Both ends are one and the same key. */
function isEqual(start: Bound | undefined, end: Bound | undefined): boolean {
  return start !== undefined && start.key === end?.key && start.isInclusive && end.isInclusive
}
