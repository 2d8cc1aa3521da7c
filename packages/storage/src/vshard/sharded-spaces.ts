/* Spaces that have buckets: those with the index of the configured name (or number) whose first part is a number. */
import { encodeValue } from '@orbweaver/iproto'
import type { Engine } from '../engine/engine.js'
import { FIRST_USER_SPACE } from '../engine/schema.js'
import type { SpaceIndex } from '../engine/space-index.js'
import type { Space } from '../engine/space.js'
import type { StoredTuple } from '../engine/tuple.js'

export interface ShardedSpace {
  readonly space: Space
  readonly index: SpaceIndex
}

const BUCKET_ID_TYPES: ReadonlySet<string> = new Set(['unsigned', 'integer', 'number'])

/** In the order of their names. */
export function shardedSpaces(engine: Engine, shardIndex: string | number): ShardedSpace[] {
  const found: ShardedSpace[] = []
  for (const space of engine.schema.spaces()) {
    if (space.id < FIRST_USER_SPACE) continue
    const index = space.indexes.find(({ definition }) =>
      typeof shardIndex === 'number' ? definition.id === shardIndex : definition.name === shardIndex,
    )
    if (index !== undefined && BUCKET_ID_TYPES.has(index.definition.parts[0]?.type ?? '')) found.push({ space, index })
  }
  return found.toSorted((a, b) => (a.space.name < b.space.name ? -1 : 1))
}

/** Rows of a bucket in the order of the index, from behind `after` on. */
export function bucketRows(
  engine: Engine,
  { space, index }: ShardedSpace,
  bucketId: number,
  options: { readonly limit?: number; readonly after?: StoredTuple | undefined } = {},
): StoredTuple[] {
  return engine.select(undefined, space, {
    index: index.definition.id,
    key: encodeValue([bucketId]),
    ...(options.limit === undefined ? {} : { limit: options.limit }),
    ...(options.after === undefined ? {} : { after: { tuple: options.after } }),
  })
}
