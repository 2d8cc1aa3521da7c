import { Key } from '../constants.js'
import type { BodyWriter } from '../msgpack/body-writer.js'
import { assertText, assertUint32 } from './request.js'

/** A space by its id, or by its name where the server resolves names (feature `names`, 3.0 and newer). */
export type SpaceRef = number | string

/** An index by its id in the space, or by its name where the server resolves names. 0 is the primary index. */
export type IndexRef = number | string

export function assertSpace(space: SpaceRef): void {
  if (typeof space === 'number') assertUint32(space, 'space')
  else assertText(space, 'space')
}

export function assertIndex(index: IndexRef | undefined): void {
  if (typeof index === 'number') assertUint32(index, 'index')
  else if (index !== undefined) assertText(index, 'index')
}

export function writeSpace(out: BodyWriter, space: SpaceRef): void {
  writeReference(out, space, Key.spaceId, Key.spaceName)
}

/** Nothing for undefined: servers take 0 then. */
export function writeIndex(out: BodyWriter, index: IndexRef | undefined): void {
  if (index !== undefined) writeReference(out, index, Key.indexId, Key.indexName)
}

function writeReference(out: BodyWriter, reference: number | string, idKey: number, nameKey: number): void {
  if (typeof reference === 'number') {
    out.uint(idKey)
    out.uint(reference)
  } else {
    out.uint(nameKey)
    out.text(reference)
  }
}
