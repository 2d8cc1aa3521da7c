/*
 * Another state, built beside the present one as its rows come in: rows of a snapshot are filed a few at a time, and the instance
 * goes on with what it has until the last of them is here.
 */
import type { RowBody } from './engine.js'
import { Schema, SYSTEM_SPACE } from './schema.js'
import type { Space, SpaceChange } from './space.js'
import { fieldAt, fieldOffsets } from './tuple.js'

export class Restoration {
  readonly schema: Schema = new Schema()

  /** @throws BoxError for a row that fits no space so far */
  add(row: RowBody): void {
    loadRow(this.schema, row)
  }

  /** Contents of local spaces are no part of another instance's state: they stay, where the space is still the same. */
  keepLocal(before: Schema): void {
    for (const space of before.spaces()) {
      const next = this.schema.find(space.id)
      if (!space.definition.isLocal || next === undefined || !isAlike(space, next)) continue
      for (const tuple of space.tuples()) next.putChecked(tuple)
    }
  }
}

/** Files a row that was checked where it was made; a definition takes effect at once. */
export function loadRow(schema: Schema, row: RowBody): SpaceChange | undefined {
  const space = schema.get(row.spaceId)
  const change = row.kind === 'replace' ? space.putChecked(row.tuple) : removedBy(space, row.key)
  if (change !== undefined && (space.id === SYSTEM_SPACE.space || space.id === SYSTEM_SPACE.index)) {
    schema.refresh(definedBy(change))
  }
  return change
}

/** Takes out what a row says. @throws BoxError for a key that is none of the space */
export function removedBy(space: Space, key: Buffer): SpaceChange | undefined {
  space.primary.checkExactKey(key)
  return space.remove(key)
}

/** The id of the space of which a tuple of `_space` or `_index` is a part: its first field. */
export function definedBy({ before, after }: SpaceChange): number {
  const tuple = (after ?? before)!
  return fieldAt(tuple, fieldOffsets(tuple, 1), 0) as number
}

function isAlike(a: Space, b: Space): boolean {
  const shape = ({ definition, indexes }: Space): string =>
    JSON.stringify([definition, indexes.map((index) => index.definition)])
  return shape(a) === shape(b)
}
