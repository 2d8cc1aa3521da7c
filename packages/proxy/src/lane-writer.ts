/*
 * Requests of a lane, one behind the other in as few chunks as possible. The header is written anew for every request (a
 * client's may have any form, and its sync is not ours); the body is copied when it is small and passed on when it is not.
 *
 *   ce LL LL LL LL   82 00 TT 01 cf GG GG GG GG SS SS SS SS        generation and slot as the sync
 *                    83 … 0a ce II II II II                        with a stream id of the lane
 *                    83 … 05 cf VV VV VV VV VV VV VV VV            with the client's schema version
 */
export class LaneWriter {
  #block: Buffer = Buffer.allocUnsafeSlow(BLOCK_BYTES)
  /** Start of what was not taken yet, and end of what was written. */
  #from = 0
  #at = 0
  #chunks: Uint8Array[] = []
  #pendingBytes = 0

  /** Bytes written and not taken. */
  get pendingBytes(): number {
    return this.#pendingBytes
  }

  /**
   * @param streamId - of the lane, 0 for none
   * @param schemaVersion - 0 for none
   * @param body - memory in which the body is [bodyStart, bodyEnd); by default all of it
   * @returns bytes of the whole frame
   */
  append(
    type: number,
    generation: number,
    slot: number,
    streamId: number,
    schemaVersion: number,
    body: Uint8Array,
    bodyStart = 0,
    bodyEnd: number = body.length,
  ): number {
    if (this.#block.length - this.#at < MAX_HEAD_BYTES) this.#nextBlock()
    const block = this.#block
    const start = this.#at
    let at = start + 5
    block[at++] = 0x82 + (streamId === 0 ? 0 : 1) + (schemaVersion === 0 ? 0 : 1)
    block[at++] = 0x00
    block[at++] = type
    block[at++] = 0x01
    block[at++] = 0xcf
    at = uint32(block, at, generation)
    at = uint32(block, at, slot)
    if (streamId !== 0) {
      block[at++] = 0x0a
      block[at++] = 0xce
      at = uint32(block, at, streamId)
    }
    if (schemaVersion !== 0) {
      block[at++] = 0x05
      block[at++] = 0xcf
      at = uint32(block, at, Math.floor(schemaVersion / 0x1_0000_0000))
      at = uint32(block, at, schemaVersion % 0x1_0000_0000)
    }
    const frameBytes = at - start + bodyEnd - bodyStart
    block[start] = 0xce
    uint32(block, start + 1, frameBytes - 5)
    this.#at = at
    this.#pendingBytes += frameBytes
    this.#body(body, bodyStart, bodyEnd)
    return frameBytes
  }

  /** What was written since the last call. It belongs to the caller. */
  take(): Uint8Array[] {
    this.#closeChunk()
    const chunks = this.#chunks
    this.#chunks = []
    this.#pendingBytes = 0
    return chunks
  }

  #body(body: Uint8Array, start: number, end: number): void {
    const size = end - start
    if (size > MAX_COPIED_BYTES) {
      this.#closeChunk()
      this.#chunks.push(size === body.length ? body : body.subarray(start, end))
      return
    }
    if (this.#block.length - this.#at < size) this.#nextBlock()
    const block = this.#block
    let at = this.#at
    if (size > MAX_LOOPED_BYTES) block.set(body.subarray(start, end), at)
    else for (let from = start; from < end; from++) block[at++] = body[from]!
    this.#at += size
  }

  #closeChunk(): void {
    if (this.#at > this.#from) this.#chunks.push(this.#block.subarray(this.#from, this.#at))
    this.#from = this.#at
  }

  /** The old block stays with whoever holds its chunks: a transport may not have sent them yet. */
  #nextBlock(): void {
    this.#closeChunk()
    this.#block = Buffer.allocUnsafeSlow(BLOCK_BYTES)
    this.#from = this.#at = 0
  }
}

function uint32(bytes: Buffer, at: number, value: number): number {
  bytes[at] = value >>> 24
  bytes[at + 1] = value >>> 16
  bytes[at + 2] = value >>> 8
  bytes[at + 3] = value
  return at + 4
}

const BLOCK_BYTES = 65_536
/** Prefix, three map entries of the largest forms and the sync. */
const MAX_HEAD_BYTES = 48
/** Bodies up to this size are copied into the block: cheaper than a chunk of their own. */
const MAX_COPIED_BYTES = 4_096
/** Up to this size bytes are copied before a native call would have begun. */
const MAX_LOOPED_BYTES = 160
