import { FrameTooLargeError, MalformedFrameError } from './errors.js'

/** A frame that is being delivered in pieces. */
export interface LargeFrameProgress {
  /** The first bytes of the frame, prefix included: at least the header is among them. */
  readonly head: Buffer
  /** The whole frame, prefix included. */
  readonly frameBytes: number
  /** What `nextLarge` has still to deliver, behind the head. */
  readonly remainingBytes: number
}

/** Limits of a {@link FrameReader}. */
export interface FrameReaderOptions {
  /** Largest frame without its prefix, in bytes; a larger one is refused as soon as its prefix is here. */
  readonly maxFrameBytes: number
  /** Frames of this size and more (and of more than 1 KiB) are delivered in pieces, see `large`; default: none. */
  readonly largeFrameBytes?: number
}

/**
 * Cuts a stream of bytes into frames. No socket, no clock: the caller moves the bytes, in whatever pieces they come.
 *
 * The prefix of a frame is any MessagePack uint. A frame inside one chunk is a slice of it; one that spans chunks is collected in memory
 * that grows with what has arrived, never with what was announced, so each byte is copied a bounded number of times and a peer that only
 * announces costs nothing.
 *
 * @example
 * reader.push(chunk)
 * for (let frame = reader.next(); frame !== undefined; frame = reader.next()) handle(frame)
 */
export class FrameReader {
  /** May be raised after a login. */
  maxFrameBytes: number
  readonly #largeFrameBytes: number
  #chunks: Buffer[] = []
  /** Index of the current chunk in `#chunks`, and of the next byte in it. */
  #chunkAt = 0
  #offset = 0
  #buffered = 0
  /** The frame that spans chunks, as far as it is here. */
  #partial: Buffer = NO_BYTES
  #partialBytes = 0
  /** Bytes of that frame, prefix included; 0 while even the prefix is incomplete. */
  #wanted = 0
  #large: { head: Buffer; frameBytes: number; remainingBytes: number } | undefined
  #failure: MalformedFrameError | FrameTooLargeError | undefined
  /** The frame that `advance` found: [start, end) of `bytes`. */
  bytes: Buffer = NO_BYTES
  start = 0
  end = 0

  constructor(options: FrameReaderOptions) {
    this.maxFrameBytes = options.maxFrameBytes
    this.#largeFrameBytes = options.largeFrameBytes ?? Infinity
  }

  /** Bytes that were pushed and not delivered yet. */
  get bufferedBytes(): number {
    return this.#buffered
  }

  /**
   * The large frame at the front, once its head is here: `next` returns undefined until `nextLarge` has delivered the rest.
   * Undefined when there is none.
   */
  get large(): LargeFrameProgress | undefined {
    return this.#large
  }

  /** Keeps slices of the chunk: it must not be written to any more. */
  push(chunk: Buffer): void {
    if (chunk.length === 0) return
    this.#chunks.push(chunk)
    this.#buffered += chunk.length
  }

  /**
   * The next whole frame, prefix included; undefined: push more bytes, or, when `large` is set, take its pieces.
   * @throws MalformedFrameError when a prefix is no uint, FrameTooLargeError when it says too much; the reader is unusable then and
   * throws the same again
   */
  next(): Buffer | undefined {
    return this.advance() ? this.bytes.subarray(this.start, this.end) : undefined
  }

  /**
   * As `next`, without a slice: the frame is [start, end) of `bytes`, which is memory that it shares with its neighbours and that
   * nobody writes to again but who receives the frame.
   * @returns whether there is one
   */
  advance(): boolean {
    if (this.#failure !== undefined) throw this.#failure
    if (this.#large === undefined && (this.#partialBytes > 0 ? this.#continuePartial() : this.#nextFromChunk()))
      return true
    // The last frame's memory is its receiver's to keep.
    this.bytes = NO_BYTES
    return false
  }

  /**
   * The next piece of the large frame, behind its head. undefined: push more bytes. With the last piece `large` becomes undefined.
   */
  nextLarge(): Buffer | undefined {
    const large = this.#large
    if (large === undefined) return undefined
    const chunk = this.#current()
    if (chunk === undefined) return undefined
    const size = Math.min(large.remainingBytes, chunk.length - this.#offset)
    const piece = this.#consume(chunk, size)
    large.remainingBytes -= size
    if (large.remainingBytes === 0) this.#large = undefined
    return piece
  }

  #nextFromChunk(): boolean {
    const chunk = this.#current()
    if (chunk === undefined) return false
    const here = chunk.length - this.#offset
    const size = this.#frameBytes(chunk, this.#offset, here)
    if (size !== 0 && size <= here && size < this.#largeFrameBytes) {
      this.bytes = chunk
      this.start = this.#offset
      this.end = this.#offset += size
      this.#buffered -= size
      return true
    }
    this.#wanted = size
    return this.#continuePartial()
  }

  /** Collects the frame that does not lie in one chunk, or the head of a large one. */
  #continuePartial(): boolean {
    for (let chunk = this.#current(); chunk !== undefined; chunk = this.#current()) {
      // A prefix that spans chunks is taken byte by byte: nothing of the next frame may come along.
      const upTo = this.#wanted === 0 ? this.#partialBytes + 1 : this.#collectable()
      const size = Math.min(upTo - this.#partialBytes, chunk.length - this.#offset)
      this.#append(this.#consume(chunk, size), upTo)
      this.#buffered += size
      if (this.#wanted === 0) this.#wanted = this.#frameBytes(this.#partial, 0, this.#partialBytes)
      if (this.#wanted !== 0 && this.#partialBytes === this.#collectable()) return this.#finishPartial()
    }
    return false
  }

  #finishPartial(): boolean {
    const bytes = this.#partial
    const end = this.#partialBytes
    this.#buffered -= end
    this.#partial = NO_BYTES
    this.#partialBytes = 0
    const remainingBytes = this.#wanted >= this.#largeFrameBytes ? this.#wanted - end : 0
    const frameBytes = this.#wanted
    this.#wanted = 0
    if (remainingBytes > 0) {
      this.#large = { head: bytes.subarray(0, end), frameBytes, remainingBytes }
      return false
    }
    this.bytes = bytes
    this.start = 0
    this.end = end
    return true
  }

  /** How many bytes of the current frame are collected: all of it, or the head of a large one. */
  #collectable(): number {
    return this.#wanted < this.#largeFrameBytes ? this.#wanted : Math.min(this.#wanted, HEAD_BYTES)
  }

  #append(bytes: Buffer, atMost: number): void {
    const needed = this.#partialBytes + bytes.length
    if (needed > this.#partial.length) {
      const room = Math.min(Math.max(needed * 2, MIN_PARTIAL_BYTES), Math.max(atMost, needed))
      const next = Buffer.allocUnsafeSlow(room)
      this.#partial.copy(next, 0, 0, this.#partialBytes)
      this.#partial = next
    }
    bytes.copy(this.#partial, this.#partialBytes)
    this.#partialBytes = needed
  }

  /** The chunk with the next unread byte; chunks that were read are dropped. */
  #current(): Buffer | undefined {
    const chunk = this.#chunks[this.#chunkAt]
    if (chunk === undefined) return undefined
    if (this.#offset < chunk.length) return chunk
    this.#offset = 0
    this.#chunkAt++
    if (this.#chunkAt === this.#chunks.length || this.#chunkAt === MAX_READ_CHUNKS) {
      this.#chunks.splice(0, this.#chunkAt)
      this.#chunkAt = 0
    }
    return this.#chunks[this.#chunkAt]
  }

  #consume(chunk: Buffer, size: number): Buffer {
    const slice = chunk.subarray(this.#offset, this.#offset + size)
    this.#offset += size
    this.#buffered -= size
    return slice
  }

  /** Bytes of the frame at `at`, prefix included; 0 when the prefix is not whole yet. */
  #frameBytes(bytes: Buffer, at: number, available: number): number {
    const first = bytes[at]!
    let size = first
    let prefix = 1
    if (first >= 0x80) {
      const width = first >= 0xcc && first <= 0xcf ? 1 << (first - 0xcc) : 0
      if (width === 0)
        throw this.#fail(new MalformedFrameError(`A frame starts with byte 0x${first.toString(16)}, which is no size`))
      prefix += width
      if (available < prefix) return 0
      size = 0
      for (let i = 1; i < prefix; i++) size = size * 256 + bytes[at + i]!
    }
    if (size > this.maxFrameBytes) throw this.#fail(new FrameTooLargeError(size, this.maxFrameBytes))
    return prefix + size
  }

  #fail<E extends MalformedFrameError | FrameTooLargeError>(failure: E): E {
    this.#failure = failure
    return failure
  }
}

const NO_BYTES = Buffer.alloc(0)
/** What is delivered of a large frame at once: room for any header and for the first keys of the body. */
const HEAD_BYTES = 1024
const MIN_PARTIAL_BYTES = 4096
/** After so many chunks the list is shortened; at each one it would cost a shift per chunk. */
const MAX_READ_CHUNKS = 64
