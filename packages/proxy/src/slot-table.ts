/*
 * Which request of which client each number on a lane stands for. Clients choose their syncs freely and several may choose
 * the same, so on a lane a request goes by a number of ours: the upper half is a generation, the lower half a slot.
 *
 * Slots are dense and reused oldest first: a reply that comes for a released slot meets an empty one, and the generation
 * makes sure that it is never taken for the reply of a later request.
 */

/** Bits of `flags`. */
export const SlotFlag = {
  /** Counts for the draining of a failover: not a read that a replica could serve. */
  rw: 1,
  /** Asked by the proxy itself. */
  internal: 2,
  /** A part of the answer has reached the client: a push, or the beginning of a large reply. */
  repliedPartly: 4,
  /** In a stream. */
  stream: 8,
} as const

/** What is stored with a taken slot. */
export interface SlotEntry<Owner, Note> {
  readonly owner: Owner
  readonly note: Note | undefined
  /** The client's sync. */
  readonly syncHigh: number
  readonly syncLow: number
  readonly type: number
  readonly flags: number
  /** Bytes of the request. */
  readonly bytes: number
  /** Instant on the clock. */
  readonly sentAt: number
}

/** Grows by doubling up to a limit. Taking and releasing allocate nothing. */
export class SlotTable<Owner, Note = unknown> {
  readonly #maxSlots: number
  #capacity: number
  /** Free slots, a ring: taken at `#head`, given back at `#tail`, both counting on for ever. */
  #free: Uint32Array
  #head = 0
  #tail: number
  #used = 0
  #usedBytes = 0
  /** Plus one on every release. */
  #generation: Uint32Array
  #isTaken: Uint8Array
  #syncHigh: Uint32Array
  #syncLow: Uint32Array
  #type: Uint8Array
  #flags: Uint8Array
  #bytes: Uint32Array
  #sentAt: Float64Array
  /** undefined in a taken slot: an orphan, whose client has gone. Its reply is awaited and dropped. */
  readonly #owner: (Owner | undefined)[] = []
  readonly #note: (Note | undefined)[] = []

  /** @param maxSlots - a power of two, like the capacity it starts with (256, or less if that is the limit) */
  constructor(maxSlots: number) {
    this.#maxSlots = maxSlots
    const capacity = Math.min(FIRST_CAPACITY, maxSlots)
    this.#capacity = capacity
    this.#free = Uint32Array.from({ length: capacity }, (_, i) => i)
    this.#tail = capacity
    this.#generation = new Uint32Array(capacity)
    this.#isTaken = new Uint8Array(capacity)
    this.#syncHigh = new Uint32Array(capacity)
    this.#syncLow = new Uint32Array(capacity)
    this.#type = new Uint8Array(capacity)
    this.#flags = new Uint8Array(capacity)
    this.#bytes = new Uint32Array(capacity)
    this.#sentAt = new Float64Array(capacity)
    for (let i = 0; i < capacity; i++) {
      this.#owner.push(undefined)
      this.#note.push(undefined)
    }
  }

  /** Requests that are waited for, orphans included. */
  get used(): number {
    return this.#used
  }

  /** Their bytes. */
  get usedBytes(): number {
    return this.#usedBytes
  }

  get isFull(): boolean {
    return this.#used >= this.#maxSlots
  }

  /** @throws RangeError when the table is full: ask `isFull` first */
  take(entry: SlotEntry<Owner, Note>): number {
    if (this.#head === this.#tail) this.#grow()
    const slot = this.#free[this.#head & (this.#capacity - 1)]!
    this.#head++
    this.#used++
    this.#usedBytes += entry.bytes
    this.#isTaken[slot] = 1
    this.#syncHigh[slot] = entry.syncHigh
    this.#syncLow[slot] = entry.syncLow
    this.#type[slot] = entry.type
    this.#flags[slot] = entry.flags
    this.#bytes[slot] = entry.bytes
    this.#sentAt[slot] = entry.sentAt
    this.#owner[slot] = entry.owner
    this.#note[slot] = entry.note
    return slot
  }

  /** @returns the slot of this number on the wire; -1 when nobody waits for it any more, or ever did */
  find(generation: number, slot: number): number {
    return slot < this.#capacity && this.#isTaken[slot] === 1 && this.#generation[slot] === generation ? slot : -1
  }

  release(slot: number): void {
    this.#isTaken[slot] = 0
    this.#owner[slot] = undefined
    this.#note[slot] = undefined
    this.#generation[slot] = this.#generation[slot]! + 1
    this.#used--
    this.#usedBytes -= this.#bytes[slot]!
    this.#free[this.#tail & (this.#capacity - 1)] = slot
    this.#tail++
  }

  generation(slot: number): number {
    return this.#generation[slot]!
  }

  owner(slot: number): Owner | undefined {
    return this.#owner[slot]
  }

  note(slot: number): Note | undefined {
    return this.#note[slot]
  }

  syncHigh(slot: number): number {
    return this.#syncHigh[slot]!
  }

  syncLow(slot: number): number {
    return this.#syncLow[slot]!
  }

  type(slot: number): number {
    return this.#type[slot]!
  }

  flags(slot: number): number {
    return this.#flags[slot]!
  }

  addFlag(slot: number, flag: number): void {
    this.#flags[slot] = this.#flags[slot]! | flag
  }

  bytes(slot: number): number {
    return this.#bytes[slot]!
  }

  sentAt(slot: number): number {
    return this.#sentAt[slot]!
  }

  /** The owner has gone: its requests stay waited for, for nobody. */
  orphan(owner: Owner): void {
    for (let slot = 0; slot < this.#capacity; slot++) if (this.#owner[slot] === owner) this.#owner[slot] = undefined
  }

  /** Nobody waits for this one any more. */
  disown(slot: number): void {
    this.#owner[slot] = undefined
  }

  /** Slots that are taken, lowest first. */
  taken(): number[] {
    const slots: number[] = []
    for (let slot = 0; slot < this.#capacity; slot++) if (this.#isTaken[slot] === 1) slots.push(slot)
    return slots
  }

  #grow(): void {
    const old = this.#capacity
    if (old >= this.#maxSlots) throw new RangeError(`All ${old} slots of a lane are taken`)
    const capacity = old * 2
    this.#capacity = capacity
    this.#free = Uint32Array.from({ length: capacity }, (_, i) => (i < old ? old + i : 0))
    this.#head = 0
    this.#tail = old
    this.#generation = grown(this.#generation, new Uint32Array(capacity))
    this.#isTaken = grown(this.#isTaken, new Uint8Array(capacity))
    this.#syncHigh = grown(this.#syncHigh, new Uint32Array(capacity))
    this.#syncLow = grown(this.#syncLow, new Uint32Array(capacity))
    this.#type = grown(this.#type, new Uint8Array(capacity))
    this.#flags = grown(this.#flags, new Uint8Array(capacity))
    this.#bytes = grown(this.#bytes, new Uint32Array(capacity))
    this.#sentAt = grown(this.#sentAt, new Float64Array(capacity))
    for (let i = old; i < capacity; i++) {
      this.#owner.push(undefined)
      this.#note.push(undefined)
    }
  }
}

function grown<T extends Uint8Array | Uint32Array | Float64Array>(from: T, into: T): T {
  into.set(from)
  return into
}

const FIRST_CAPACITY = 256
