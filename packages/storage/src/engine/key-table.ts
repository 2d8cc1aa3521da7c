/*
 * Numbers of tuples by the hashes of their keys: where a whole key is looked for, it takes one step instead of a walk down a tree
 * whose every step reads a tuple somewhere in memory. Open addressing, linear probing; hashes are kept, so that growing and
 * removing never read a tuple.
 */
import type { TupleRef } from './arena.js'

const MIN_SLOTS = 16
/** Part of the slots in use at which there are made twice as many. */
const MAX_LOAD = 0.75
const EMPTY = 0

export class KeyTable {
  #hashes = new Uint32Array(MIN_SLOTS)
  /** Numbers plus one; EMPTY where there is none. */
  #refs = new Uint32Array(MIN_SLOTS)
  #size = 0

  /**
   * The first slot at or behind `slot` that may hold the key: begin with `slotOf(hash)`, go on with the next one.
   * @returns -1 when there is none
   */
  search(hash: number, slot: number): number {
    const mask = this.#refs.length - 1
    for (let at = slot & mask; this.#refs[at] !== EMPTY; at = (at + 1) & mask) if (this.#hashes[at] === hash) return at
    return -1
  }

  slotOf(hash: number): number {
    return hash & (this.#refs.length - 1)
  }

  at(slot: number): TupleRef {
    return this.#refs[slot]! - 1
  }

  /** The key must not be there. */
  add(hash: number, ref: TupleRef): void {
    if (this.#size >= this.#refs.length * MAX_LOAD) this.#grow()
    this.#put(hash, ref + 1)
    this.#size++
  }

  delete(hash: number, ref: TupleRef): void {
    let slot = this.search(hash, this.slotOf(hash))
    while (slot >= 0 && this.at(slot) !== ref) slot = this.search(hash, slot + 1)
    if (slot >= 0) this.#close(slot)
  }

  /** Moves what follows up, as far as it would not be found otherwise. */
  #close(slot: number): void {
    const mask = this.#refs.length - 1
    let hole = slot
    for (let at = (slot + 1) & mask; this.#refs[at] !== EMPTY; at = (at + 1) & mask) {
      const home = this.#hashes[at]! & mask
      // Its way from home to here must not lead over the hole.
      if (((at - home) & mask) < ((at - hole) & mask)) continue
      this.#refs[hole] = this.#refs[at]!
      this.#hashes[hole] = this.#hashes[at]!
      hole = at
    }
    this.#refs[hole] = EMPTY
    this.#size--
  }

  #put(hash: number, entry: number): void {
    const mask = this.#refs.length - 1
    let at = hash & mask
    while (this.#refs[at] !== EMPTY) at = (at + 1) & mask
    this.#hashes[at] = hash
    this.#refs[at] = entry
  }

  #grow(): void {
    const hashes = this.#hashes
    const refs = this.#refs
    this.#hashes = new Uint32Array(hashes.length * 2)
    this.#refs = new Uint32Array(refs.length * 2)
    for (let at = 0; at < refs.length; at++) if (refs[at] !== EMPTY) this.#put(hashes[at]!, refs[at]!)
  }
}
