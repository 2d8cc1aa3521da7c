/* A bucket cut into the messages of its move: bounded in rows and in bytes, each space where the one before it ended. */
import { RawValue } from '@orbweaver/iproto'
import type { Engine } from '../engine/engine.js'
import type { StoredTuple } from '../engine/tuple.js'
import { bucketRows } from './sharded-spaces.js'
import type { ShardedSpace } from './sharded-spaces.js'

export type ChunkData = readonly (readonly [space: string, tuples: readonly RawValue[]])[]

export interface ChunkBounds {
  readonly rows: number
  /** One row at least goes, however large. */
  readonly bytes: number
}

/** What receivers of vshard take at once. */
export const CHUNK_ROWS = 1_000

export class BucketReader {
  readonly #engine: Engine
  readonly #bucketId: number
  readonly #spaces: readonly ShardedSpace[]
  readonly #bounds: ChunkBounds
  #at = 0
  #after: StoredTuple | undefined
  #isFirst = true

  constructor(engine: Engine, bucketId: number, spaces: readonly ShardedSpace[], bounds: ChunkBounds) {
    this.#engine = engine
    this.#bucketId = bucketId
    this.#spaces = spaces
    this.#bounds = bounds
  }

  /** The next message's data, or undefined behind the last row. There is one message at least: an empty bucket moves too. */
  next(): ChunkData | undefined {
    const data: [string, RawValue[]][] = []
    let rows = 0
    let bytes = 0
    while (this.#at < this.#spaces.length) {
      const sharded = this.#spaces[this.#at]!
      const limit = this.#bounds.rows - rows
      if (limit === 0) break
      const page = bucketRows(this.#engine, sharded, this.#bucketId, { limit, after: this.#after })
      const taken: RawValue[] = []
      for (const tuple of page) {
        if (rows > 0 && bytes + tuple.length > this.#bounds.bytes) break
        taken.push(new RawValue(tuple))
        this.#after = tuple
        rows++
        bytes += tuple.length
      }
      if (taken.length > 0 || this.#isFirst) data.push([sharded.space.name, taken])
      if (taken.length < page.length || page.length === limit) break
      this.#at++
      this.#after = undefined
    }
    const isWorthSending = rows > 0 || this.#isFirst
    this.#isFirst = false
    return isWorthSending ? data : undefined
  }
}
