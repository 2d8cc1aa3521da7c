import type { Clock } from '@orbweaver/connection'

/** Bytes of one turn. */
export const SLICE_BYTES: number = 256 * 1024
/** Milliseconds of one turn: so long others wait for theirs. */
const SLICE_MS = 4
/** Reading the clock costs as much as a small row. */
const LOOK_EVERY_BYTES = 4 * 1024

/** How much of a long work belongs into one turn of the loop: so many bytes, or so long. */
export class Slice {
  readonly #clock: Clock
  #bytes = 0
  #nextLook = LOOK_EVERY_BYTES
  #endsAt = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  begin(): void {
    this.#bytes = 0
    this.#nextLook = LOOK_EVERY_BYTES
    this.#endsAt = this.#clock.now() + SLICE_MS
  }

  /** @returns whether the turn is over */
  spend(bytes: number): boolean {
    this.#bytes += bytes
    if (this.#bytes >= SLICE_BYTES) return true
    if (this.#bytes < this.#nextLook) return false
    this.#nextLook = this.#bytes + LOOK_EVERY_BYTES
    return this.#clock.now() >= this.#endsAt
  }
}
