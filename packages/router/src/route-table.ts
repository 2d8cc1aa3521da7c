/*
 * Where each bucket was last known to be: an immutable snapshot in typed chunks. One field of the router holds the present one and
 * replacing it is the only change, so a call that read it sees one consistent picture however long it runs.
 */

/** Buckets of one chunk: what one update copies. 1,024 was the best of the sizes measured (failover.md C2). */
const CHUNK_BITS = 10
const CHUNK_SIZE = 1 << CHUNK_BITS
const CHUNK_MASK = CHUNK_SIZE - 1

/** Index 0 of the sets: the bucket's owner is not known. */
export const UNKNOWN = 0

export class RouteTable {
  /** +1 with every replacement. */
  readonly generation: number
  readonly bucketCount: number
  readonly #chunks: readonly Uint16Array[]
  /** Buckets per set index; index 0 counts the unknown ones. */
  readonly #counts: readonly number[]

  private constructor(
    generation: number,
    bucketCount: number,
    chunks: readonly Uint16Array[],
    counts: readonly number[],
  ) {
    this.generation = generation
    this.bucketCount = bucketCount
    this.#chunks = chunks
    this.#counts = counts
  }

  /** Nothing is known. */
  static empty(bucketCount: number): RouteTable {
    const chunks = Array.from({ length: Math.ceil(bucketCount / CHUNK_SIZE) }, () => new Uint16Array(CHUNK_SIZE))
    return new RouteTable(0, bucketCount, chunks, [bucketCount])
  }

  /** Index of the set that has the bucket, or UNKNOWN. `bucketId` is in 1..bucketCount. */
  lookup(bucketId: number): number {
    return this.#chunks[(bucketId - 1) >> CHUNK_BITS]![(bucketId - 1) & CHUNK_MASK]!
  }

  /** Known buckets in total. */
  get known(): number {
    return this.bucketCount - this.#counts[UNKNOWN]!
  }

  /** Buckets of one set. */
  countOf(setIndex: number): number {
    return this.#counts[setIndex] ?? 0
  }

  /** The table after a batch of changes; each touched chunk is copied once. The same table when nothing changes. */
  with(changes: ReadonlyMap<number, number>): RouteTable {
    let chunks: Uint16Array[] | undefined
    const counts = [...this.#counts]
    const copied = new Set<number>()
    for (const [bucketId, setIndex] of changes) {
      const before = this.lookup(bucketId)
      if (before === setIndex) continue
      chunks ??= [...this.#chunks]
      const chunkIndex = (bucketId - 1) >> CHUNK_BITS
      if (!copied.has(chunkIndex)) {
        copied.add(chunkIndex)
        chunks[chunkIndex] = chunks[chunkIndex]!.slice()
      }
      chunks[chunkIndex]![(bucketId - 1) & CHUNK_MASK] = setIndex
      counts[before] = (counts[before] ?? 0) - 1
      counts[setIndex] = (counts[setIndex] ?? 0) + 1
    }
    return chunks === undefined ? this : new RouteTable(this.generation + 1, this.bucketCount, chunks, counts)
  }

  /** Buckets of `setIndex` within [from, to). */
  *bucketsOf(setIndex: number, from: number, to: number): IterableIterator<number> {
    const end = Math.min(to, this.bucketCount + 1)
    for (let bucketId = from; bucketId < end; bucketId++) if (this.lookup(bucketId) === setIndex) yield bucketId
  }
}
