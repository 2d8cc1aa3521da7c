/*
 * Whose turn it is on a lane. A ring of clients with something to send; the first sends one request and goes to the back.
 * Deficit round robin on top: every turn earns a client a number of bytes, and a request larger than what it has earned
 * waits further turns. So a client with huge requests cannot crowd out one with small ones, however many it sends.
 */

/** Who can stand in the queue. The fields belong to the queue: a member stands in one queue at a time. */
export interface FairMember {
  /** Bytes earned and not spent. */
  deficit: number
  /** Multiplies what a turn earns. */
  readonly weight: number
  /** Bytes of the request at its front. */
  readonly nextBytes: number
}

export class FairQueue<Member extends FairMember> {
  readonly #quantumBytes: number
  #ring: Member[] = []
  /** Index of the first member; what lies before it has been served. */
  #first = 0

  /** @param quantumBytes - what one turn earns */
  constructor(quantumBytes: number) {
    this.#quantumBytes = quantumBytes
  }

  get size(): number {
    return this.#ring.length - this.#first
  }

  /** To the back. The member must not stand in the queue already. */
  push(member: Member): void {
    this.#ring.push(member)
  }

  /**
   * Takes out the member whose turn it is; put it back with `push` when it has more. Members that have not earned their next
   * request yet go to the back on the way.
   */
  next(): Member | undefined {
    for (;;) {
      const member = this.#shift()
      if (member === undefined) return undefined
      const bytes = member.nextBytes
      if (this.size === 0) {
        // Nobody else waits: a debt would only delay it.
        member.deficit = 0
        return member
      }
      if (member.deficit < bytes) member.deficit += this.#quantumBytes * member.weight
      if (member.deficit >= bytes) {
        member.deficit -= bytes
        return member
      }
      this.#ring.push(member)
    }
  }

  /** Takes a member out. */
  remove(member: Member): void {
    const at = this.#ring.indexOf(member, this.#first)
    if (at >= 0) this.#ring.splice(at, 1)
    member.deficit = 0
  }

  /** Takes all members out, in their order. */
  clear(): Member[] {
    const members = this.#ring.slice(this.#first)
    this.#ring = []
    this.#first = 0
    for (const member of members) member.deficit = 0
    return members
  }

  #shift(): Member | undefined {
    const member = this.#ring[this.#first]
    if (member === undefined) return undefined
    this.#first++
    if (this.#first === this.#ring.length) {
      this.#ring.length = 0
      this.#first = 0
    } else if (this.#first >= MAX_SERVED) {
      this.#ring.splice(0, this.#first)
      this.#first = 0
    }
    return member
  }
}

/** Served members kept in front before the ring is moved up: one move per so many turns. */
const MAX_SERVED = 1024
