/*
 * Prepared statements. A server keeps them per session and without a count, under a number made from the text; on a shared
 * lane every client has to see its own and no other's.
 */

/** Which clients rely on a statement of one lane. */
export class StatementRefs {
  readonly #users = new Map<number, Set<object>>()
  /** Prepared on the lane by requests whose answers are still to come: their numbers are not known yet. */
  #preparing = 0

  get size(): number {
    return this.#users.size
  }

  has(id: number): boolean {
    return this.#users.has(id)
  }

  isUsedBy(id: number, user: object): boolean {
    return this.#users.get(id)?.has(user) === true
  }

  /** Whether this is the only one that relies on a statement, and nobody may be about to. */
  isOnlyUser(id: number, user: object): boolean {
    const users = this.#users.get(id)
    return users !== undefined && users.size === 1 && users.has(user) && this.#preparing === 0
  }

  preparing(): void {
    this.#preparing++
  }

  prepared(): void {
    this.#preparing--
  }

  add(id: number, user: object): void {
    const users = this.#users.get(id)
    if (users === undefined) this.#users.set(id, new Set([user]))
    else users.add(user)
  }

  /**
   * One client does without it.
   * @returns whether the lane may forget it: nobody else uses it, nor may somebody be about to
   */
  remove(id: number, user: object): boolean {
    const users = this.#users.get(id)
    if (users === undefined || !users.delete(user) || users.size > 0) return false
    // A statement that stays prepared for nobody is found again by the next one who prepares the same text.
    if (this.#preparing > 0) return false
    this.#users.delete(id)
    return true
  }

  /** A client has gone. @returns statements that nobody uses any more */
  removeUser(user: object): number[] {
    const unused: number[] = []
    for (const id of this.#users.keys()) if (this.remove(id, user)) unused.push(id)
    return unused
  }
}

/** The statements one client has prepared, by their numbers. */
export class ClientStatements {
  readonly #texts = new Map<number, string>()
  #bytes = 0

  get size(): number {
    return this.#texts.size
  }

  get bytes(): number {
    return this.#bytes
  }

  text(id: number): string | undefined {
    return this.#texts.get(id)
  }

  add(id: number, text: string): void {
    this.remove(id)
    this.#texts.set(id, text)
    this.#bytes += text.length
  }

  remove(id: number): boolean {
    const text = this.#texts.get(id)
    if (text === undefined) return false
    this.#texts.delete(id)
    this.#bytes -= text.length
    return true
  }
}
