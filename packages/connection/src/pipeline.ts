/**
 * Requests under way, by number and in order: those the server has (by sync), those that wait for room or for a
 * connection, and the numbers of those that ended early but may still be answered. Pure bookkeeping: it writes nothing,
 * knows no time, and every slot and byte it takes is given back exactly once, by the one method that ends each stay.
 */
import type { Pending } from './pending.js'

export interface PipelineLimits {
  readonly maxInFlight: number
  readonly maxInFlightBytes: number
  readonly maxQueued: number
  readonly maxQueuedBytes: number
}

export class Pipeline {
  readonly #limits: PipelineLimits
  /** By `sync & #mask`; at most half full, so that a free slot is near. */
  #ring: (Pending | undefined)[]
  #mask: number
  #occupied = 0
  #inFlightBytes = 0
  #lastSync = 0
  /** Sync and bytes of requests that ended before their answer came: neither number nor room is free until it does. */
  readonly #late = new Map<number, number>()
  /** Waiting for room or for a connection, in order. */
  readonly #queue = new Set<Pending>()
  /** Walks the queue once and for all; entries added behind it are still met. A fresh one per look would step over all that left. */
  #cursor: Iterator<Pending> = this.#queue.values()
  /** Waiting for the schema, in order. */
  readonly #parked = new Set<Pending>()
  #queuedBytes = 0

  constructor(limits: PipelineLimits) {
    this.#limits = limits
    this.#mask = INITIAL_SLOTS - 1
    this.#ring = emptySlots(INITIAL_SLOTS)
  }

  /** Requests the server has and whose end somebody waits for. */
  get inFlight(): number {
    return this.#occupied
  }

  /** Requests that ended early and whose answer has not come. */
  get late(): number {
    return this.#late.size
  }

  get inFlightBytes(): number {
    return this.#inFlightBytes
  }

  /** Requests that wait, for whatever. */
  get queued(): number {
    return this.#queue.size + this.#parked.size
  }

  /** Those among them that wait for room or a connection. */
  get sendable(): number {
    return this.#queue.size
  }

  get parked(): number {
    return this.#parked.size
  }

  get queuedBytes(): number {
    return this.#queuedBytes
  }

  /** Whether one more may be written. A single request larger than the byte limit goes alone. */
  get hasRoom(): boolean {
    return (
      this.#occupied + this.#late.size < this.#limits.maxInFlight &&
      (this.#inFlightBytes < this.#limits.maxInFlightBytes || this.#occupied + this.#late.size === 0)
    )
  }

  /** A number nobody uses. Numbers whose slot is taken by a long-running request are passed over. */
  nextSync(): number {
    let sync = this.#lastSync + 1
    while (this.#ring[sync & this.#mask] !== undefined) sync += 1
    this.#lastSync = sync
    return sync
  }

  /** A request was encoded under `sync`. */
  occupy(pending: Pending, sync: number, bytes: number): void {
    pending.sync = sync
    pending.bytes = bytes
    this.#ring[sync & this.#mask] = pending
    this.#occupied += 1
    this.#inFlightBytes += bytes
    if (this.#occupied * 2 > this.#mask) this.#grow()
  }

  /** The request with this number, if somebody waits for it. */
  find(sync: number): Pending | undefined {
    const pending = this.#ring[sync & this.#mask]
    return pending !== undefined && pending.sync === sync ? pending : undefined
  }

  /** Its final answer came, or it was never handed over: number and room are free again. */
  release(pending: Pending): void {
    this.#ring[pending.sync & this.#mask] = undefined
    this.#occupied -= 1
    this.#inFlightBytes -= pending.bytes
  }

  /** It ends without an answer: the number stays reserved until the answer comes or the connection ends. */
  retire(pending: Pending): void {
    this.#ring[pending.sync & this.#mask] = undefined
    this.#occupied -= 1
    this.#late.set(pending.sync, pending.bytes)
  }

  /** Whether this was the number of a retired request; its final answer frees it. */
  isLate(sync: number): boolean {
    return this.#late.has(sync)
  }

  releaseLate(sync: number): void {
    this.#inFlightBytes -= this.#late.get(sync) ?? 0
    this.#late.delete(sync)
  }

  /** The connection ended: everything the server had, in the order it was sent. Late answers will not come any more. */
  takeInFlight(): Pending[] {
    const taken: Pending[] = []
    for (const pending of this.#ring) if (pending !== undefined) taken.push(pending)
    taken.sort((a, b) => a.sync - b.sync)
    this.#ring = emptySlots(INITIAL_SLOTS)
    this.#mask = INITIAL_SLOTS - 1
    this.#occupied = 0
    this.#inFlightBytes = 0
    this.#late.clear()
    return taken
  }

  /** Makes it wait for room or a connection. @returns false when no more may wait: it was not taken */
  enqueue(pending: Pending, bytes: number): boolean {
    if (!this.#mayWait(bytes)) return false
    pending.stage = 'waiting'
    pending.bytes = bytes
    this.#queuedBytes += bytes
    this.#queue.add(pending)
    return true
  }

  /** Makes it wait for the schema. @returns false when no more may wait: it was not taken */
  park(pending: Pending, bytes: number): boolean {
    if (!this.#mayWait(bytes)) return false
    pending.stage = 'parked'
    pending.bytes = bytes
    this.#queuedBytes += bytes
    this.#parked.add(pending)
    return true
  }

  /** The next request that waits for room or a connection, which leaves the queue. */
  dequeue(): Pending | undefined {
    if (this.#queue.size === 0) return undefined
    let next = this.#cursor.next()
    if (next.done === true) {
      this.#cursor = this.#queue.values()
      next = this.#cursor.next()
    }
    if (next.done === true) return undefined
    this.unqueue(next.value)
    return next.value
  }

  /** A waiting or parked request stops waiting. */
  unqueue(pending: Pending): void {
    if (this.#queue.delete(pending) || this.#parked.delete(pending)) this.#queuedBytes -= pending.bytes
  }

  /** Everything that waits for the schema, in order; nothing is parked afterwards. */
  takeParked(): Pending[] {
    const taken = [...this.#parked]
    for (const pending of taken) this.unqueue(pending)
    return taken
  }

  /** Everything that waits, in order. */
  takeQueued(): Pending[] {
    const taken = [...this.#parked, ...this.#queue]
    for (const pending of taken) this.unqueue(pending)
    return taken
  }

  /** All live requests. Not to be changed while walking. */
  *live(): Generator<Pending> {
    for (const pending of this.#ring) if (pending !== undefined) yield pending
    yield* this.#queue
    yield* this.#parked
  }

  #mayWait(bytes: number): boolean {
    const { maxQueued, maxQueuedBytes } = this.#limits
    return this.queued < maxQueued && (this.#queuedBytes + bytes <= maxQueuedBytes || this.queued === 0)
  }

  /** Numbers that differ in fewer bits differ in more: nothing collides in a larger ring. */
  #grow(): void {
    const old = this.#ring
    this.#ring = emptySlots(old.length * 2)
    this.#mask = this.#ring.length - 1
    for (const pending of old) if (pending !== undefined) this.#ring[pending.sync & this.#mask] = pending
  }
}

function emptySlots(size: number): (Pending | undefined)[] {
  return Array.from<Pending | undefined>({ length: size }).fill(undefined)
}

const INITIAL_SLOTS = 64
