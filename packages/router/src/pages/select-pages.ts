/*
 * Rows of all shards in one order, page by page, while buckets move. Each page is taken under references of all storages, so that no
 * row is on its way meanwhile, and behind one cursor for all of them: with a cursor for each shard, a row that moves from a shard
 * that is read far to one that is not is listed twice, and the other way round never.
 */
import { checkOptions, InvalidArgumentError, isOrbweaverError, optionRule } from '@orbweaver/iproto'
import type { OptionRules } from '@orbweaver/iproto'
import { MapReduceError, UnmergeableError } from '../errors.js'
import type { HeldRef } from '../map/held-ref.js'
import type { MapOwner, RefRun } from '../map/map-owner.js'
import { isWorthRetrying } from '../map/ref-retry.js'
import { refAll } from '../map/ref-stage.js'
import { mergeLists } from '../ordered-merge.js'
import { compareRowKeys, keyOf } from './index-order.js'
import type { IndexOrder, RowKey } from './index-order.js'
import { inDirection, PAGE_ITERATORS, rangeOf, spanOf } from './row-range.js'
import type { PageIterator, Span } from './row-range.js'
import { selectOn } from './shard-select.js'
import type { ShardRow } from './shard-select.js'
import { readTarget } from './shard-schema.js'
import type { ShardTarget } from './shard-schema.js'

export interface SelectPagesOptions {
  /** A tree index, by name or number. Default: the primary key. */
  readonly index?: string | number
  /** Beginning of the keys that are meant. Default `[]`: everything. */
  readonly key?: readonly unknown[]
  /** Default: `EQ`, or `ALL` without a key. `REQ`, `LE` and `LT` list from high to low. */
  readonly iterator?: PageIterator
  /** Rows of a page, default 100. Each shard sends that many at the most, and that is all that is kept. */
  readonly pageSize?: number
  /** Rows in all. Default: none. */
  readonly limit?: number
  /** Go on behind this row: any row of the space, whether it (still) exists or not. Rows outside the range never come. */
  readonly after?: readonly unknown[]
  /** The page in front of this row, then the one in front of that, and so on; rows within a page keep their order. */
  readonly before?: readonly unknown[]
  /** Milliseconds for each page. Default: of the router. */
  readonly timeout?: number
  readonly signal?: AbortSignal
}

export interface RowPage<T extends readonly unknown[] = unknown[]> {
  readonly rows: readonly T[]
  /** Whether there were rows behind it (with `before`: in front of it) at that moment. */
  readonly hasMore: boolean
}

const DEFAULT_PAGE_SIZE = 100
const MAX_PAGE_SIZE = 1_000_000

/** @param newRun - the times of one page */
export async function* selectPages<T extends readonly unknown[]>(
  owner: MapOwner,
  space: string | number,
  options: SelectPagesOptions,
  newRun: () => RefRun,
): AsyncGenerator<RowPage<T>, void> {
  const pager = new Pager(owner, space, checked(options))
  let left = options.limit ?? Infinity
  while (left > 0) {
    const { hasMore, rows } = await pager.next(newRun(), Math.min(left, options.pageSize ?? DEFAULT_PAGE_SIZE))
    left -= rows.length
    if (rows.length > 0) yield { rows: rows.map(({ row }) => row as T), hasMore }
    if (!hasMore) return
  }
}

class Pager {
  readonly #owner: MapOwner
  readonly #space: string | number
  readonly #options: SelectPagesOptions
  /** By instance. */
  readonly #targets = new Map<string, ShardTarget>()
  #cursor: RowKey | undefined

  constructor(owner: MapOwner, space: string | number, options: SelectPagesOptions) {
    this.#owner = owner
    this.#space = space
    this.#options = options
  }

  /** The next page of at most `size` rows. Reading is safe to repeat: whatever passes by itself is tried again. */
  async next(run: RefRun, size: number): Promise<{ rows: readonly ShardRow[]; hasMore: boolean }> {
    for (;;) {
      const { held } = await refAll(this.#owner, run)
      try {
        const page = await this.#pageUnder(held, run, size)
        const areHeld = await Promise.all(held.map((ref) => ref.holds(run)))
        const changed = held.find((_ref, i) => areHeld[i] === false)
        if (changed === undefined) return this.#keep(page, size)
        if (this.#isOver(run)) throw masterChanged(changed)
      } catch (error) {
        if (!isOrbweaverError(error) || !isWorthRetrying(error) || this.#isOver(run)) throw error
      } finally {
        for (const ref of held) ref.release()
      }
    }
  }

  #isOver({ refDeadline, signal }: RefRun): boolean {
    return signal?.aborted === true || this.#owner.clock.now() >= refDeadline
  }

  #keep(found: readonly ShardRow[], size: number): { rows: readonly ShardRow[]; hasMore: boolean } {
    const rows = found.slice(0, size)
    this.#cursor = rows.at(-1)?.key ?? this.#cursor
    return { rows: this.#options.before === undefined ? rows : rows.toReversed(), hasMore: found.length > size }
  }

  /** One row more than is shown: whether there is another page. */
  async #pageUnder(held: readonly HeldRef[], run: RefRun, size: number): Promise<readonly ShardRow[]> {
    const { after, before } = this.#options
    const order = await this.#commonOrder(held, run)
    const row = after ?? before
    this.#cursor ??= row === undefined ? undefined : cursorOf(order, row)
    const { iterator, key = [] } = this.#options
    const range = rangeOf(order, iterator ?? (key.length === 0 ? 'ALL' : 'EQ'), key)
    const span = spanOf(order, range, this.#cursor, before !== undefined)
    if (span === undefined) return []
    const lists = await Promise.all(held.map((ref) => this.#rowsOn(ref, span, size + 1, run)))
    const compare = (a: ShardRow, b: ShardRow): number =>
      inDirection(compareRowKeys(order, a.key, b.key), span.isReverse)
    return mergeLists(lists, compare, size + 1)
  }

  /** @throws UnmergeableError when the shards disagree about the index */
  async #commonOrder(held: readonly HeldRef[], run: RefRun): Promise<IndexOrder> {
    const targets = await Promise.all(held.map((ref) => this.#targetOn(ref, run)))
    const texts = targets.map(({ order }) => JSON.stringify(order))
    const other = texts.findIndex((text) => text !== texts[0])
    if (other > 0)
      throw new UnmergeableError(
        `Replicasets ${held[0]!.set.id} and ${held[other]!.set.id} define index '${this.#index}' of space '${this.#space}' differently`,
      )
    return targets[0]!.order
  }

  async #targetOn(ref: HeldRef, run: RefRun): Promise<ShardTarget> {
    const known = this.#targets.get(ref.instance.id)
    if (known !== undefined) return known
    const target = await readTarget(ref, this.#space, this.#index, this.#owner.shardIndex, run)
    this.#targets.set(ref.instance.id, target)
    return target
  }

  /** Under a schema that did not change meanwhile. */
  async #rowsOn(ref: HeldRef, span: Span, size: number, run: RefRun): Promise<readonly ShardRow[]> {
    for (;;) {
      const target = await this.#targetOn(ref, run)
      const { rows, schemaVersion } = await selectOn(ref, target, span, size, { ...run, decode: this.#owner.decode })
      if (schemaVersion === target.version) return rows
      this.#targets.delete(ref.instance.id)
    }
  }

  get #index(): string | number {
    return this.#options.index ?? 0
  }
}

function masterChanged({ instance, set }: HeldRef): MapReduceError {
  return new MapReduceError(`The master of replicaset ${set.id}, ${instance.id}, changed while a page was read`, {
    stage: 'map',
    executed: 'no',
    replicasetId: set.id,
    instanceId: instance.id,
  })
}

/** @throws InvalidArgumentError for what is no row of the space */
function cursorOf(order: IndexOrder, row: readonly unknown[]): RowKey {
  const last = Math.max(...order.primary.map((part) => order.parts[part]!.field))
  if (row.length <= last)
    throw new InvalidArgumentError(
      `The cursor has ${row.length} fields, but a part of the primary key is field ${last + 1}`,
    )
  return keyOf(order, row)
}

const RULES: OptionRules = {
  index: {
    expected: 'the name or the number of an index',
    fits: (value) => typeof value === 'string' || Number.isInteger(value),
  },
  key: optionRule.list,
  iterator: optionRule.oneOf(...PAGE_ITERATORS),
  pageSize: optionRule.integer(1, MAX_PAGE_SIZE),
  limit: optionRule.fromZero,
  after: optionRule.list,
  before: optionRule.list,
  timeout: optionRule.anything,
  signal: optionRule.anything,
}

/** @throws ConfigError, InvalidArgumentError for options that are no such */
function checked(options: SelectPagesOptions): SelectPagesOptions {
  checkOptions('options of selectPages', options, RULES)
  if (options.after !== undefined && options.before !== undefined)
    throw new InvalidArgumentError('Give after or before, not both: they are directions to go on')
  return options
}
