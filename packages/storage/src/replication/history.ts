/*
 * The promotions of the past, in their order: they say in which term a row was made (rows do not carry it: it is the term of its
 * origin's last promotion), and where the history of an instance left that of the others.
 */
import { INITIAL_ROLE } from './role.js'
import type { Epoch, Promotion } from './transaction.js'
import { lsnOf } from './vclock.js'
import type { Vclock } from './vclock.js'

/** Promotions remembered, besides the last one of each instance. */
const MAX_PROMOTIONS = 256

export class History {
  #promotions: Promotion[] = []

  get promotions(): readonly Promotion[] {
    return this.#promotions
  }

  /** The last promotion. */
  get epoch(): Epoch {
    return this.#promotions.at(-1) ?? INITIAL_ROLE
  }

  add(promotion: Promotion): void {
    this.#promotions.push(promotion)
    if (this.#promotions.length <= MAX_PROMOTIONS) return
    const oldest = this.#promotions.findIndex(({ leader }, i) =>
      this.#promotions.some((later, j) => j > i && later.leader === leader),
    )
    if (oldest >= 0) this.#promotions.splice(oldest, 1)
  }

  replace(promotions: readonly Promotion[]): void {
    this.#promotions = [...promotions]
  }

  /** The term of the next row of `origin`. */
  termOf(origin: number): number {
    return this.#promotions.findLast(({ leader }) => leader === origin)?.term ?? INITIAL_ROLE.term
  }

  /**
   * Whether everything of somebody who is in `term` and has `vclock` is part of this history. The first promotion after that
   * term tells: whatever it has beyond that position never happened.
   */
  includes(vclock: Vclock, term: number): boolean {
    if (term >= this.epoch.term) return true
    const next = this.#promotions.find((promotion) => promotion.term > term)
    if (next === undefined) return false
    return [...vclock].every(([origin, lsn]) => lsn <= lsnOf(next.vclock, origin))
  }
}
