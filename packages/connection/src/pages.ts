/** Large selects in pages. The rules of paging by key are pure; the loop asks for a page when it is wanted. */
import {
  Feature,
  featureName,
  InvalidArgumentError,
  type IndexRef,
  type IteratorName,
  IteratorType,
  type SpaceRef,
  UnsupportedFeatureError,
} from '@orbweaver/iproto'
import type { Operations, SelectOptions } from './operations.js'
import type { IndexDefinition } from './schema.js'

/** Rows and where they end. */
export interface Page<T> {
  readonly rows: T[]
  /** Pass it as `after`; undefined on an empty page: keep the last one. */
  readonly position: string | undefined
}

/** Options of `selectPages` and `iterate`. */
export interface IterateOptions extends Omit<SelectOptions, 'offset' | 'after'> {
  /** Rows per request; default 1,000. */
  readonly pageSize?: number
}

/** What paging asks of a connection or stream. */
export interface PageSource {
  readonly operations: Pick<Operations, 'select' | 'selectPage'>
  /** The index as the schema has it. */
  describeIndex(space: SpaceRef, index: IndexRef): Promise<IndexDefinition>
}

export async function* iterateRows<T>(
  source: PageSource,
  space: SpaceRef,
  key: readonly unknown[],
  options: IterateOptions,
): AsyncGenerator<T, void> {
  for await (const rows of selectPagesOf<T>(source, space, key, options)) yield* rows
}

export async function* selectPagesOf<T>(
  source: PageSource,
  space: SpaceRef,
  key: readonly unknown[],
  options: IterateOptions,
): AsyncGenerator<T[], void> {
  const { pageSize = DEFAULT_PAGE_SIZE, limit = Number.POSITIVE_INFINITY, ...select } = options
  if (!Number.isInteger(pageSize) || pageSize < 1 || pageSize > MAX_PAGE_SIZE) {
    throw new InvalidArgumentError(
      `pageSize is ${String(pageSize)}, expected a whole number of 1..${String(MAX_PAGE_SIZE)}`,
    )
  }
  let first: Page<T>
  try {
    first = await source.operations.selectPage<T>(space, key, { ...select, limit: Math.min(pageSize, limit) })
  } catch (error) {
    if (!(error instanceof UnsupportedFeatureError) || error.feature !== featureName(Feature.pagination)) throw error
    yield* pagesByKey<T>(source, space, key, select, pageSize, limit)
    return
  }
  let left = limit
  let page = first
  let position = first.position
  for (;;) {
    const wanted = Math.min(pageSize, left)
    if (page.rows.length > 0) yield page.rows
    left -= page.rows.length
    // A short page is the last one; so is an empty one, which has no position.
    if (page.rows.length < wanted || left <= 0 || position === undefined) return
    page = await source.operations.selectPage<T>(space, key, {
      ...select,
      limit: Math.min(pageSize, left),
      after: position,
    })
    position = page.position ?? position
  }
}

/** For servers without positions: each page begins behind the primary key of the last row. */
async function* pagesByKey<T>(
  source: PageSource,
  space: SpaceRef,
  key: readonly unknown[],
  select: SelectOptions,
  pageSize: number,
  limit: number,
): AsyncGenerator<T[], void> {
  const index = await source.describeIndex(space, select.index ?? 0)
  const { keyFields, following } = pagingByKey(index, key, select.iterator)
  let left = limit
  let request: { readonly key: readonly unknown[]; readonly options: SelectOptions } = { key, options: select }
  for (;;) {
    const wanted = Math.min(pageSize, left)
    const rows = await source.operations.select<T>(space, request.key, { ...request.options, limit: wanted })
    if (rows.length > 0) yield rows
    left -= rows.length
    const last = rows.at(-1)
    if (rows.length < wanted || left <= 0 || last === undefined || following === undefined) return
    request = {
      key: keyFields.map((field) => (last as readonly unknown[])[field]),
      options: { ...select, iterator: following },
    }
  }
}

/**
 * How a select goes on behind the key of its last row.
 * @returns `following` undefined: there is at most one row
 * @throws UnsupportedFeatureError when rows could be passed over or repeated that way
 */
export function pagingByKey(
  index: IndexDefinition,
  key: readonly unknown[],
  iterator: IteratorName | number | undefined,
): { readonly keyFields: readonly number[]; readonly following: 'GT' | 'LT' | undefined } {
  const { keyFields } = index
  if (index.id !== 0) throw cannotPage(`index '${index.name}' is not the primary one`)
  if (index.type !== 'tree') throw cannotPage(`its primary index is of type ${index.type}`)
  if (keyFields === undefined) throw cannotPage('its primary key lies inside a field')
  const number = typeof iterator === 'string' ? ITERATOR_NUMBERS.get(iterator) : (iterator ?? IteratorType.eq)
  switch (number) {
    case IteratorType.all:
    case IteratorType.ge:
    case IteratorType.gt:
      return { keyFields, following: 'GT' }
    case IteratorType.le:
    case IteratorType.lt:
      return { keyFields, following: 'LT' }
    case IteratorType.eq:
    case IteratorType.req:
      if (key.length === 0) return { keyFields, following: number === IteratorType.eq ? 'GT' : 'LT' }
      if (key.length >= keyFields.length) return { keyFields, following: undefined }
      throw cannotPage('its iterator stops at the end of a part of the key')
    default:
      throw cannotPage(`the iterator ${String(iterator)} has no order to go on in`)
  }
}

function cannotPage(why: string): UnsupportedFeatureError {
  const feature = featureName(Feature.pagination)
  return new UnsupportedFeatureError(feature, `This select cannot be paged without the feature "${feature}": ${why}`)
}

const ITERATOR_NUMBERS: ReadonlyMap<string, number> = new Map<IteratorName, number>([
  ['EQ', IteratorType.eq],
  ['REQ', IteratorType.req],
  ['ALL', IteratorType.all],
  ['LT', IteratorType.lt],
  ['LE', IteratorType.le],
  ['GE', IteratorType.ge],
  ['GT', IteratorType.gt],
])
const DEFAULT_PAGE_SIZE = 1_000
const MAX_PAGE_SIZE = 4_294_967_295
