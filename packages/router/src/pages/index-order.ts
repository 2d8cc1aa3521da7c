/*
 * The one order in which rows of all shards are listed: that of an index, completed by the primary key, as each shard's index has it,
 * and by the bucket, since a primary key is only unique on its shard. An order that cannot be computed here is refused.
 */
import { compareValues, Double } from '@orbweaver/iproto'
import { UnmergeableError } from '../errors.js'

interface OrderPart {
  /** Zero-based position in the row. */
  readonly field: number
  /** As Tarantool names it. */
  readonly type: string
  readonly isDescending: boolean
}

export interface IndexOrder {
  /** Parts of the index, then those of the primary key that it lacks, then the bucket id. */
  readonly parts: readonly OrderPart[]
  /** How many of them are the index's own: what a key of it may have. */
  readonly ownParts: number
  /** How many of them tell rows of one shard apart: all but the bucket id. */
  readonly shardParts: number
  /** Positions of the primary key's parts among them. */
  readonly primary: readonly number[]
  /** The index's own parts name one row of a shard at the most: it is unique, and no part may be nil. */
  readonly isExact: boolean
}

/** Values of a row's parts, in their order. */
export type RowKey = readonly unknown[]

/** What of `_vindex` describes an index: `[space id, id, name, type, options, parts]`. */
export type IndexRow = readonly unknown[]

/** Types whose order `compareValues` knows. */
const ORDERED =
  /^(num|str|unsigned|integer|number|double|decimal|string|boolean|varbinary|uuid|scalar|datetime|u?int(8|16|32|64)|float(32|64)|decimal(32|64|128|256))$/
/** Ids of collations that order by bytes: `none`, `binary`. */
const BYTES: ReadonlySet<unknown> = new Set([undefined, null, 0, 3])

/**
 * @param bucketIndex - the index over the bucket ids; undefined: there is none
 * @throws UnmergeableError naming what cannot be merged
 */
export function indexOrder(
  space: string | number,
  index: IndexRow,
  primary: IndexRow,
  bucketIndex: IndexRow | undefined,
): IndexOrder {
  const name = `Index '${String(index[2])}' of space '${space}'`
  if (bucketIndex === undefined)
    throw new UnmergeableError(`Space '${space}' is not sharded: it has no index over bucket ids`)
  const own = partsOf(index, name)
  const parts = [...own.parts]
  const keys = partsOf(primary, `The primary key of space '${space}'`).parts
  for (const part of keys) if (!parts.some(({ field }) => field === part.field)) parts.push(part)
  const shardParts = parts.length
  const bucket = partsOf(bucketIndex, `The index over bucket ids of space '${space}'`).parts[0]!
  if (!parts.some(({ field }) => field === bucket.field)) parts.push({ ...bucket, isDescending: false })
  return {
    parts,
    ownParts: own.parts.length,
    shardParts,
    primary: keys.map(({ field }) => parts.findIndex((part) => part.field === field)),
    isExact: own.isUnique && !own.isNullable,
  }
}

/** Values of the parts of a row; a field it lacks is nil. */
export function keyOf({ parts }: IndexOrder, row: readonly unknown[]): RowKey {
  return parts.map(({ field }) => row[field] ?? null)
}

/** Negative, zero or positive. @param length - compares that many parts; default: as many as both have */
export function compareRowKeys({ parts }: IndexOrder, a: RowKey, b: RowKey, length: number = Infinity): number {
  const end = Math.min(a.length, b.length, length)
  for (let i = 0; i < end; i++) {
    const order = compareValues(a[i], b[i])
    if (order !== 0) return parts[i]!.isDescending ? -order : order
  }
  return 0
}

/** Parts as they are sent: a whole number of a field of doubles must stay a double. */
export function wireKey({ parts }: IndexOrder, key: RowKey): unknown[] {
  return key.map((value, i) => (typeof value === 'number' && parts[i]!.type === 'double' ? new Double(value) : value))
}

function partsOf(index: IndexRow, name: string): { parts: OrderPart[]; isUnique: boolean; isNullable: boolean } {
  const [, id, , type, options, parts] = index
  if (typeof type === 'string' && type.toLowerCase() !== 'tree')
    throw new UnmergeableError(`${name} is of type ${type}: only a tree has an order`)
  const functionId = property(options, 'func') ?? property(options, 'func_id')
  if (typeof functionId === 'number' && functionId !== 0)
    throw new UnmergeableError(`${name} is functional: the order of its keys cannot be computed from the rows`)
  if (!Array.isArray(parts) || parts.length === 0) throw new UnmergeableError(`${name} has no parts`)
  let isNullable = false
  const read = parts.map((part: unknown): OrderPart => {
    const [field, fieldType] = Array.isArray(part)
      ? (part as unknown[])
      : [property(part, 'field'), property(part, 'type')]
    const path = property(part, 'path')
    if (typeof path === 'string' && path.includes('[*]'))
      throw new UnmergeableError(`${name} is multikey: a row would be listed once for each of its keys`)
    if (typeof path === 'string' && path !== '')
      throw new UnmergeableError(`${name} is over ${path} inside a field, which cannot be merged`)
    const collation = property(part, 'collation')
    if (!BYTES.has(collation))
      throw new UnmergeableError(`${name} has the collation ${String(collation)}, whose order cannot be reproduced`)
    if (typeof field !== 'number' || typeof fieldType !== 'string' || !ORDERED.test(fieldType))
      throw new UnmergeableError(`${name} is over a field of type ${String(fieldType)}, which cannot be merged`)
    if (property(part, 'is_nullable') === true) isNullable = true
    return { field, type: fieldType, isDescending: property(part, 'sort_order') === 'desc' }
  })
  return { parts: read, isUnique: id === 0 || property(options, 'unique') !== false, isNullable }
}

/** Parts are `[field, type]` pairs, or maps with more in them. */
function property(value: unknown, name: string): unknown {
  if (value instanceof Map) return value.get(name)
  if (Array.isArray(value)) return property(value[2], name)
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[name] : undefined
}
