/*
 * Small frames of others on their way to one client, copied one behind the other: for many of them one chunk to write. Memory is
 * taken when a second frame comes and left to the chunk, so a session that is silent holds none.
 */
export class ReplyBlock {
  #block: Buffer = NO_BYTES
  /** The same memory, to be written four bytes at a time. */
  #view: DataView = NO_VIEW
  /** End of what was copied. */
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
    if (this.#first === undefined && this.#at === 0) {
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
    } else if (this.#at > 0) {
      outgoing.push(this.#block.subarray(0, this.#at))
    }
    this.#block = NO_BYTES
    this.#view = NO_VIEW
    this.#at = 0
  }

  drop(): void {
    this.#first = undefined
    this.#block = NO_BYTES
    this.#view = NO_VIEW
    this.#at = 0
  }

  #copy(bytes: Buffer, start: number, end: number, outgoing: Uint8Array[]): void {
    const size = end - start
    if (this.#block.length - this.#at < size) this.#nextBlock(size, outgoing)
    // A native call would take a view of the part first, which costs more than to copy it.
    if (size > MAX_LOOPED_BYTES) {
      this.#block.set(bytes.subarray(start, end), this.#at)
    } else {
      const from = viewOf(bytes)
      const to = this.#view
      let source = start
      let target = this.#at
      for (; source + 4 <= end; source += 4, target += 4) to.setUint32(target, from.getUint32(source))
      for (; source < end; source++, target++) to.setUint8(target, from.getUint8(source))
    }
    this.#at += size
  }

  /** A larger block with what is here already: one chunk is written faster than two. A full one of the largest goes as it is. */
  #nextBlock(size: number, outgoing: Uint8Array[]): void {
    const old = this.#block
    const used = this.#at
    const isFull = used + size > BLOCK_BYTES
    if (isFull && used > 0) outgoing.push(old.subarray(0, used))
    const block = Buffer.allocUnsafeSlow(used === 0 ? FIRST_BLOCK_BYTES : BLOCK_BYTES)
    this.#at = 0
    if (!isFull) this.#at = old.copy(block, 0, 0, used)
    this.#block = block
    this.#view = new DataView(block.buffer, block.byteOffset, block.length)
  }
}

/** Frames come many from one chunk: the view of it is made once. */
let viewed: Buffer = Buffer.alloc(0)
let view = new DataView(viewed.buffer)

function viewOf(bytes: Buffer): DataView {
  if (bytes !== viewed) {
    viewed = bytes
    view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length)
  }
  return view
}

const NO_BYTES: Buffer = Buffer.alloc(0)
const NO_VIEW = new DataView(new ArrayBuffer(0))
/** Up to this size bytes are copied before a native call would have begun. */
const MAX_LOOPED_BYTES = 512
const FIRST_BLOCK_BYTES = 4_096
const BLOCK_BYTES = 16_384
/** Up to this size a frame is copied rather than passed on by itself. */
const MAX_COPIED_BYTES = 4_096
