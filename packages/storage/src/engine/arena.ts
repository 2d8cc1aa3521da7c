/*
 * The tuples of one space, one behind the other in large pieces of memory, known by numbers: a million tuples are a few dozen
 * objects for the garbage collector instead of millions. A tuple keeps its number when it is written anew and when it is moved,
 * so indexes need not know. Bytes are never written twice, so whoever holds a view of a tuple may keep it: the piece lives as
 * long as anybody looks at it. What is removed leaves holes; the last tuples are moved out of the piece with the most of them, a
 * few at a time, and the piece is dropped.
 */
import type { StoredTuple } from './tuple.js'

/** The number of a tuple. Small, so that it is no heap number. */
export type TupleRef = number

const UNIT_BYTES = 8
const MAX_SLAB_BYTES = 4 * 1024 * 1024
const MIN_SLAB_BYTES = 4 * 1024
/** A place is the number of a slab, and behind it the place there in units of eight bytes: 32 bits reach 32 GiB. */
const SLAB_BITS = 19
const SLAB_UNITS = 1 << SLAB_BITS
/** Before each tuple: its length, and its number, or HOLE when it is no longer needed. */
const HEAD_BYTES = 8
const HOLE = 0xffff_ffff
/** Holes are tolerated up to this part of everything. */
const MAX_HOLES = 0.25
const MIN_PLACES = 16
const NOTHING: Buffer = Buffer.alloc(0)

interface Slab {
  readonly bytes: Buffer
  used: number
  /** Bytes of tuples that are still there. */
  live: number
}

export class Arena {
  #slabs: (Slab | undefined)[] = []
  readonly #free: number[] = []
  #current = -1
  #used = 0
  #live = 0
  /** Where each tuple is; for a number that is free, the next one that is. */
  #places = new Uint32Array(MIN_PLACES)
  /** Numbers given so far. */
  #count = 0
  #nextFree = HOLE
  /** The slab that is being emptied, and how far. */
  #victim = -1
  #cursor = 0
  /** Where `locate` found the tuple: valid until its next call. */
  bytes: Buffer = NOTHING
  start = 0
  end = 0

  /** Bytes of memory taken. */
  get used(): number {
    return this.#used
  }

  add(tuple: Uint8Array): TupleRef {
    const ref = this.#newRef()
    this.#places[ref] = this.#write(tuple, ref)
    return ref
  }

  /** Puts another tuple in the place of the one with this number; views of that one stay as they are. */
  rewrite(ref: TupleRef, tuple: Uint8Array): void {
    const before = this.#places[ref]!
    this.#places[ref] = this.#write(tuple, ref)
    this.#leave(before)
  }

  /** The tuple is no longer needed; views of it stay as they are. */
  release(ref: TupleRef): void {
    const place = this.#places[ref]!
    this.#places[ref] = this.#nextFree
    this.#nextFree = ref
    this.#leave(place)
  }

  /** A view of the stored bytes. */
  get(ref: TupleRef): StoredTuple {
    this.locate(ref)
    return this.bytes.subarray(this.start, this.end)
  }

  /** As `get`, into `bytes`, `start` and `end`: nothing is made. */
  locate(ref: TupleRef): void {
    const place = this.#places[ref]!
    const { bytes } = this.#slabs[place >>> SLAB_BITS]!
    const at = (place & (SLAB_UNITS - 1)) * UNIT_BYTES
    this.bytes = bytes
    this.start = at + HEAD_BYTES
    this.end = this.start + (bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24))
  }

  /** This moment's tuples by their numbers, whatever happens to the arena. */
  freeze(): Arena {
    const frozen = new Arena()
    frozen.#slabs = [...this.#slabs]
    frozen.#places = this.#places.slice(0, this.#count)
    return frozen
  }

  /** Moves up to `limit` tuples out of a slab that is full of holes, if there is one. */
  closeHoles(limit: number): void {
    for (let looked = 0; looked < limit; looked++) {
      if (this.#victim < 0) {
        if (this.#used < 2 * MIN_SLAB_BYTES || this.#used - this.#live < this.#used * MAX_HOLES) return
        this.#victim = this.#sparsest()
        this.#cursor = 0
      }
      const slab = this.#slabs[this.#victim]
      if (slab === undefined || this.#cursor >= slab.used) {
        this.#victim = -1
        return
      }
      this.#moveOut(slab, this.#cursor)
    }
  }

  /** The tuple at the cursor, unless it is a hole. */
  #moveOut({ bytes }: Slab, at: number): void {
    const length = bytes.readUInt32LE(at)
    const ref = bytes.readUInt32LE(at + 4)
    const place = this.#victim * SLAB_UNITS + at / UNIT_BYTES
    this.#cursor += sizeOf(length)
    if (ref === HOLE) return
    this.#places[ref] = this.#write(bytes.subarray(at + HEAD_BYTES, at + HEAD_BYTES + length), ref)
    this.#leave(place)
  }

  #newRef(): TupleRef {
    const free = this.#nextFree
    if (free !== HOLE) {
      this.#nextFree = this.#places[free]!
      return free
    }
    if (this.#count === this.#places.length) {
      const places = new Uint32Array(this.#count * 2)
      places.set(this.#places)
      this.#places = places
    }
    return this.#count++
  }

  #write(tuple: Uint8Array, ref: TupleRef): number {
    const { length } = tuple
    const size = sizeOf(length)
    let slab = this.#slabs[this.#current]
    if (slab === undefined || slab.used + size > slab.bytes.length) slab = this.#grow(size)
    const at = slab.used
    const { bytes } = slab
    bytes.writeUInt32LE(length, at)
    bytes.writeUInt32LE(ref, at + 4)
    bytes.set(tuple, at + HEAD_BYTES)
    slab.used += size
    slab.live += size
    this.#live += size
    return this.#current * SLAB_UNITS + at / UNIT_BYTES
  }

  /** Leaves a hole. */
  #leave(place: number): void {
    const index = place >>> SLAB_BITS
    const at = (place & (SLAB_UNITS - 1)) * UNIT_BYTES
    const slab = this.#slabs[index]!
    const size = sizeOf(slab.bytes.readUInt32LE(at))
    slab.bytes.writeUInt32LE(HOLE, at + 4)
    slab.live -= size
    this.#live -= size
    if (slab.live === 0 && index !== this.#current) this.#drop(index)
  }

  #sparsest(): number {
    let found = -1
    let least = 1
    for (const [index, slab] of this.#slabs.entries()) {
      if (slab === undefined || index === this.#current) continue
      const part = slab.live / slab.bytes.length
      if (part >= least) continue
      least = part
      found = index
    }
    return found
  }

  /** Small spaces have small slabs. */
  #grow(size: number): Slab {
    const before = this.#slabs[this.#current]
    if (before?.live === 0) this.#drop(this.#current)
    let bytes = MIN_SLAB_BYTES
    while (bytes < MAX_SLAB_BYTES && (bytes < size || bytes * 2 <= this.#live)) bytes *= 2
    const slab: Slab = { bytes: Buffer.allocUnsafeSlow(bytes), used: 0, live: 0 }
    this.#current = this.#free.pop() ?? this.#slabs.length
    this.#slabs[this.#current] = slab
    this.#used += bytes
    return slab
  }

  #drop(index: number): void {
    this.#used -= this.#slabs[index]!.bytes.length
    this.#slabs[index] = undefined
    this.#free.push(index)
    if (index === this.#victim) this.#victim = -1
    if (index === this.#current) this.#current = -1
  }
}

function sizeOf(tupleBytes: number): number {
  return (tupleBytes + HEAD_BYTES + UNIT_BYTES - 1) & -UNIT_BYTES
}
