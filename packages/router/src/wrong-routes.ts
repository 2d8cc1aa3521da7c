/* When routes are wrong more often than single moves explain, the whole table is old. */

const STRETCH_MS = 10_000
/** Fewer prove nothing. */
const LEAST = 10
const SHARE = 0.01

export class WrongRoutes {
  #stretchEndMs = Number.NEGATIVE_INFINITY
  #callsBefore = 0
  #wrong = 0
  #isTold = false

  /**
   * Takes note of one.
   * @param calls - made since the start
   * @returns true, once in a stretch: it is time to read all routes again
   */
  note(calls: number, nowMs: number): boolean {
    if (nowMs >= this.#stretchEndMs) {
      this.#stretchEndMs = nowMs + STRETCH_MS
      this.#callsBefore = calls
      this.#wrong = 0
      this.#isTold = false
    }
    this.#wrong++
    if (this.#isTold || this.#wrong < LEAST || this.#wrong <= SHARE * (calls - this.#callsBefore)) return false
    this.#isTold = true
    return true
  }
}
