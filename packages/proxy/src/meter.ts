/*
 * Requests and replies of one target in numbers, for the metrics: written for every request when somebody may ask for them, so
 * nothing here is made per request.
 */

/** Classes of requests. Closed list: it is a metric label. */
export const CLASSES = ['rw', 'ro', 'stream', 'internal'] as const
export type RequestClass = 0 | 1 | 2 | 3

/** What became of a request. Closed list: it is a metric label. */
export const RESULTS = ['ok', 'error', 'chunk'] as const
export type ReplyResult = 0 | 1 | 2

/** Upper bounds of the buckets of durations, in milliseconds. */
export const BOUNDS_MS: readonly number[] = [
  0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000,
]

/** How often durations fell into each bucket; the last one is above all bounds. */
export class Durations {
  readonly counts: Float64Array = new Float64Array(BOUNDS_MS.length + 1)
  sumMs = 0

  add(ms: number): void {
    let bucket = 0
    while (bucket < BOUNDS_MS.length && ms > BOUNDS_MS[bucket]!) bucket++
    this.counts[bucket] = this.counts[bucket]! + 1
    this.sumMs += ms
  }
}

/** Of one target. Request types are those that fit into one byte of the wire: below 128. */
export class Meter {
  /** By request type and class. */
  readonly requests: Float64Array = new Float64Array(TYPES * CLASSES.length)
  /** By request type and result. */
  readonly replies: Float64Array = new Float64Array(TYPES * RESULTS.length)
  /** From the lane to the reply, by class. */
  readonly durations: readonly Durations[] = CLASSES.map(() => new Durations())
  /** From the arrival to the lane. */
  readonly queued: Durations = new Durations()

  /** @param waitedMs - since its arrival; negative: it did not come from a client */
  sent(type: number, of: RequestClass, waitedMs: number): void {
    const at = type * CLASSES.length + of
    this.requests[at] = this.requests[at]! + 1
    if (waitedMs >= 0) this.queued.add(waitedMs)
  }

  replied(type: number, of: RequestClass, result: ReplyResult, tookMs: number): void {
    const at = type * RESULTS.length + result
    this.replies[at] = this.replies[at]! + 1
    if (result !== CHUNK) this.durations[of]!.add(tookMs)
  }
}

export const TYPES = 128
const CHUNK = 2
