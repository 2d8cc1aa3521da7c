/*
 * Another state, built beside the present one as its rows come in: rows of a snapshot are filed a few at a time, and the instance
 * goes on with what it has until the last of them is here.
 */
import type { RowBody } from './engine.js'
import { Schema, SYSTEM_SPACE } from './schema.js'
import type { Space, SpaceChange } from './space.js'

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
  const change =
    row.kind === 'replace' ? space.putChecked(row.tuple) : space.remove(space.primary.parseExactKey(row.key))
  if (change !== undefined && (space.id === SYSTEM_SPACE.space || space.id === SYSTEM_SPACE.index)) {
    const [id] = (Array.isArray(change.key) ? change.key : [change.key]) as [number]
    schema.refresh(id)
  }
  return change
}

function isAlike(a: Space, b: Space): boolean {
  const shape = ({ definition, indexes }: Space): string =>
    JSON.stringify([definition, indexes.map((index) => index.definition)])
  return shape(a) === shape(b)
}
