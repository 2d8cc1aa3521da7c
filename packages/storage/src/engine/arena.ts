/*
 * The tuples of one space, one behind the other in large pieces of memory, known by numbers: a million tuples are a few dozen
 * objects for the garbage collector instead of millions. Bytes are never written twice, so whoever holds a view of a
 * tuple may keep it: the piece lives as long as anybody looks at it. What is removed leaves holes; the space moves the last
 * tuples out of the piece with the most of them, a few at a time, and the piece is dropped.
 */
import type { StoredTuple } from './tuple.js'

/** Where a tuple is: number of its slab, and its place there in units of eight bytes. Below 2^31 up to 16 GiB: no heap number. */
export type TupleRef = number

const UNIT_BYTES = 8
const MAX_SLAB_BYTES = 4 * 1024 * 1024
const MIN_SLAB_BYTES = 4 * 1024
const SLAB_UNITS = MAX_SLAB_BYTES / UNIT_BYTES
/** Before each tuple: its length. */
const HEAD_BYTES = 4
/** Holes are tolerated up to this part of everything. */
const MAX_HOLES = 0.25
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
    const size = sizeOf(tuple.length)
    let slab = this.#slabs[this.#current]
    if (slab === undefined || slab.used + size > slab.bytes.length) slab = this.#grow(size)
    const at = slab.used
    slab.bytes.writeUInt32LE(tuple.length, at)
    slab.bytes.set(tuple, at + HEAD_BYTES)
    slab.used += size
    slab.live += size
    this.#live += size
    return this.#current * SLAB_UNITS + at / UNIT_BYTES
  }

  /** The tuple is no longer needed; views of it stay as they are. */
  release(ref: TupleRef): void {
    const index = Math.floor(ref / SLAB_UNITS)
    const slab = this.#slabs[index]!
    const size = sizeOf(slab.bytes.readUInt32LE((ref % SLAB_UNITS) * UNIT_BYTES))
    slab.live -= size
    this.#live -= size
    if (slab.live === 0 && index !== this.#current) this.#drop(index)
  }

  /** A view of the stored bytes. */
  get(ref: TupleRef): StoredTuple {
    this.locate(ref)
    return this.bytes.subarray(this.start, this.end)
  }

  /** As `get`, into `bytes`, `start` and `end`: nothing is made. */
  locate(ref: TupleRef): void {
    const { bytes } = this.#slabs[Math.floor(ref / SLAB_UNITS)]!
    const at = (ref % SLAB_UNITS) * UNIT_BYTES
    this.bytes = bytes
    this.start = at + HEAD_BYTES
    this.end = this.start + (bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24))
  }

  /** This moment's tuples by their numbers, whatever happens to the arena. */
  freeze(): Arena {
    const frozen = new Arena()
    frozen.#slabs = [...this.#slabs]
    return frozen
  }

  /** The next tuple that may have to move so that a slab full of holes can go, or undefined while there are few holes. */
  nextToMove(): TupleRef | undefined {
    if (this.#victim < 0) {
      if (this.#used < 2 * MIN_SLAB_BYTES || this.#used - this.#live < this.#used * MAX_HOLES) return undefined
      this.#victim = this.#sparsest()
      this.#cursor = 0
    }
    const slab = this.#slabs[this.#victim]
    if (slab === undefined || this.#cursor >= slab.used) {
      this.#victim = -1
      return undefined
    }
    const at = this.#cursor
    this.#cursor += sizeOf(slab.bytes.readUInt32LE(at))
    return this.#victim * SLAB_UNITS + at / UNIT_BYTES
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
