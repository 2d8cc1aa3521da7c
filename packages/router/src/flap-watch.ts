/*
 * Buckets whose owner keeps changing. Usually two storages both believe to have one: then every page would turn the route over, so
 * pages leave such an entry alone for a while, and somebody is told.
 */

/** Changes of one entry within a stretch that are still ordinary: a bucket that moves there and back. */
const ORDINARY_CHANGES = 5
const STRETCH_MS = 10_000

export class FlapWatch {
  /** Changes of each entry in this stretch. */
  readonly #changes: Uint8Array
  readonly #heldUntilMs = new Map<number, number>()
  #stretchEndMs = Number.NEGATIVE_INFINITY

  constructor(bucketCount: number) {
    this.#changes = new Uint8Array(bucketCount + 1)
  }

  /** Buckets that pages may not change now. */
  get size(): number {
    return this.#heldUntilMs.size
  }

  /** Takes note of a new owner. @returns true: with this change the bucket begins to flap */
  changed(bucketId: number, nowMs: number): boolean {
    if (nowMs >= this.#stretchEndMs) this.#begin(nowMs)
    const count = this.#changes[bucketId]! + 1
    if (count > ORDINARY_CHANGES + 1) return false
    this.#changes[bucketId] = count
    if (count <= ORDINARY_CHANGES) return false
    const isNew = !this.#heldUntilMs.has(bucketId)
    this.#heldUntilMs.set(bucketId, nowMs + STRETCH_MS)
    return isNew
  }

  /** Whether pages must leave the entry as it is. */
  isHeld(bucketId: number, nowMs: number): boolean {
    const untilMs = this.#heldUntilMs.size === 0 ? undefined : this.#heldUntilMs.get(bucketId)
    return untilMs !== undefined && nowMs < untilMs
  }

  #begin(nowMs: number): void {
    this.#stretchEndMs = nowMs + STRETCH_MS
    this.#changes.fill(0)
    for (const [bucketId, untilMs] of this.#heldUntilMs) if (nowMs >= untilMs) this.#heldUntilMs.delete(bucketId)
  }
}
