/*
 * Small frames of others on their way to one client, copied one behind the other: for many of them one chunk to write. Memory is
 * taken when a second frame comes and left to the chunk, so a session that is silent holds none.
 */
export class ReplyBlock {
  #block: Buffer = NO_BYTES
  /** Start of what was not moved on yet, and end of what was copied. */
  #from = 0
  #at = 0
  /** The first frame lies where it was received until another one comes. */
  #first: Buffer | undefined
  #firstStart = 0
  #firstEnd = 0

  /** @param outgoing - where chunks go that are complete */
  append(bytes: Buffer, start: number, end: number, outgoing: Uint8Array[]): void {
    if (end - start > MAX_COPIED_BYTES) {
      this.moveTo(outgoing)
      outgoing.push(bytes.subarray(start, end))
      return
    }
    if (this.#first === undefined && this.#at === this.#from) {
      this.#first = bytes
      this.#firstStart = start
      this.#firstEnd = end
      return
    }
    if (this.#first !== undefined) {
      const first = this.#first
      this.#first = undefined
      this.#copy(first, this.#firstStart, this.#firstEnd, outgoing)
    }
    this.#copy(bytes, start, end, outgoing)
  }

  /** Closes what was copied so far. The block goes with its last chunk. */
  moveTo(outgoing: Uint8Array[]): void {
    if (this.#first !== undefined) {
      outgoing.push(this.#first.subarray(this.#firstStart, this.#firstEnd))
      this.#first = undefined
    } else if (this.#at > this.#from) {
      outgoing.push(this.#block.subarray(this.#from, this.#at))
    }
    this.#block = NO_BYTES
    this.#from = this.#at = 0
  }

  drop(): void {
    this.#first = undefined
    this.#block = NO_BYTES
    this.#from = this.#at = 0
  }

  #copy(bytes: Buffer, start: number, end: number, outgoing: Uint8Array[]): void {
    const size = end - start
    if (this.#block.length - this.#at < size) this.#nextBlock(size, outgoing)
    const block = this.#block
    let at = this.#at
    if (size > MAX_LOOPED_BYTES) block.set(bytes.subarray(start, end), at)
    else for (let from = start; from < end; from++) block[at++] = bytes[from]!
    this.#at += size
  }

  #nextBlock(size: number, outgoing: Uint8Array[]): void {
    const isFirst = this.#block.length === 0
    if (!isFirst) outgoing.push(this.#block.subarray(this.#from, this.#at))
    this.#block = Buffer.allocUnsafeSlow(Math.max(size, isFirst ? FIRST_BLOCK_BYTES : BLOCK_BYTES))
    this.#from = this.#at = 0
  }
}

const NO_BYTES: Buffer = Buffer.alloc(0)
const FIRST_BLOCK_BYTES = 4_096
const BLOCK_BYTES = 16_384
/** Up to this size a frame is copied rather than passed on by itself. */
const MAX_COPIED_BYTES = 4_096
/** Up to this size bytes are copied before a native call would have begun. */
const MAX_LOOPED_BYTES = 160
