/** Counts whole frames in a stream by their prefixes (`ce` and four bytes of length), however the bytes arrive. */
export class FrameCounter {
  /** Bytes of the frame under way that are still to come. */
  #left = 0
  /** The beginning of a prefix that was cut. */
  #carried: Buffer = Buffer.alloc(0)

  /** @returns how many frames ended in this chunk */
  count(chunk: Buffer): number {
    const bytes = this.#carried.length === 0 ? chunk : Buffer.concat([this.#carried, chunk])
    this.#carried = Buffer.alloc(0)
    let frames = 0
    let at = 0
    while (at < bytes.length) {
      if (this.#left === 0) {
        if (bytes.length - at < PREFIX_BYTES) {
          this.#carried = bytes.subarray(at)
          return frames
        }
        if (bytes[at] !== 0xce) throw new Error(`A frame begins with 0x${bytes[at]!.toString(16)}, expected 0xce`)
        this.#left = bytes.readUInt32BE(at + 1)
        at += PREFIX_BYTES
      }
      const here = Math.min(this.#left, bytes.length - at)
      this.#left -= here
      at += here
      if (this.#left === 0) frames += 1
    }
    return frames
  }
}

const PREFIX_BYTES = 5
