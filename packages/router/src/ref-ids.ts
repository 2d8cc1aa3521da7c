/**
 * Ids of storage references. They begin at random, so that two routers never share one in a session of a proxy, and stay below
 * 10^14: Lua on the storages keeps larger integers as boxed values, which are never found again as keys of a table (on 2.6.0 and
 * 3.2.1 a ref with id 99999999999999 is found, one with 100000000000000 answers "no ref").
 */
export class RefIds {
  #last: number

  /** @param random - a number in [0, 1) */
  constructor(random: () => number) {
    this.#last = Math.floor(random() * LARGEST)
  }

  next(): number {
    this.#last = this.#last >= LARGEST ? 1 : this.#last + 1
    return this.#last
  }
}

const LARGEST = 99_999_999_999_999
