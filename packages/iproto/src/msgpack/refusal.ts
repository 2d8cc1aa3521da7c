import { InvalidArgumentError } from '../errors.js'

/**
 * A value that cannot be written, on its way out of the encoder: each container it passes adds its own step to the path, and only at
 * the end, when the whole place is known, it becomes what the caller sees.
 */
export class Refusal extends Error {
  #reason: string
  #path = ''
  /** Set when nesting ran out: if one of the containers around it is the same object, it is a cycle. */
  #deepest: object | undefined
  #cycle: string | undefined

  constructor(reason: string) {
    super(reason)
    this.#reason = reason
  }

  static tooDeep(container: object, limit: number): Refusal {
    const refusal = new Refusal(`nests deeper than ${limit} levels`)
    refusal.#deepest = container
    return refusal
  }

  /** One step outwards: the refused place is `step` of `container`. */
  inside(container: object, step: string): this {
    this.#path = step + this.#path
    if (container === this.#deepest) {
      // Met again on the way out: the way round once is all a reader needs.
      this.#cycle ??= this.#path
      this.#path = this.#cycle
      this.#reason = 'refers back to what contains it: a circular structure has no MessagePack form'
    }
    return this
  }

  /** @param name - what the outermost value is called */
  at(name: string): InvalidArgumentError {
    const path = this.#path.length > MAX_PATH ? `${this.#path.slice(0, MAX_PATH)}…` : this.#path
    return new InvalidArgumentError(`${name}${path} ${this.#reason}`)
  }
}

const MAX_PATH = 200
