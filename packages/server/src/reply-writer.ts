/*
 * Where the sessions of a server write their replies: one memory for all of them, since requests are answered one behind the
 * other, and mostly many of one session in a row. Finished frames go to their session when another one writes, or when the
 * session sends: so hundreds of replies become one chunk, which nobody has to copy.
 */
import { FrameWriter } from '@orbweaver/iproto'

/** Whose replies are being written. */
export interface ReplyTaker {
  /** Frames that are this session's. */
  taken(chunks: readonly Uint8Array[]): void
}

export class ReplyWriter {
  readonly #writer = new FrameWriter({ slabBytes: SLAB_BYTES })
  #taker: ReplyTaker | undefined

  /** For frames of this session only, until it asks somebody else's: write whole frames. */
  of(taker: ReplyTaker): FrameWriter {
    if (this.#taker !== taker) {
      this.#handOver()
      this.#taker = taker
    }
    return this.#writer
  }

  /** Hands a session what is finished of its frames. */
  collect(taker: ReplyTaker): void {
    if (this.#taker === taker) this.#handOver()
  }

  #handOver(): void {
    const taker = this.#taker
    this.#taker = undefined
    if (this.#writer.pendingBytes > 0) taker?.taken(this.#writer.take())
  }
}

const SLAB_BYTES = 64 * 1024
