import { Key, RequestType } from './constants.js'
import { FrameTooLargeError, InvalidArgumentError } from './errors.js'
import type { BodyWriter } from './msgpack/body-writer.js'
import { Encoder } from './msgpack/encoder.js'
import { DEFAULT_MAX_FRAME_BYTES } from './msgpack/limits.js'
import type { Request } from './request/request.js'

/* A frame: ce <u32 size>, header map, body map or nothing. Requests are written in the canonical form
 *   82 00 <type> 01 <sync>, with 05 <schema version> and 0a <stream id> behind when there are such, integers in their shortest form;
 * replies and events in the layouts of header.ts. */

/** Sizes of a {@link FrameWriter}. */
export interface FrameWriterOptions {
  /** Memory taken at once, default 64 KiB; a larger frame gets memory of its own, which is not kept. */
  readonly slabBytes?: number
  /** Largest frame without its prefix, default 256 MiB. */
  readonly maxFrameBytes?: number
}

/**
 * Writes frames one behind the other into slabs of memory, so that many requests become few chunks. Body methods write into the frame
 * that is open. A frame that fails leaves nothing behind: its neighbours are not harmed.
 */
export class FrameWriter implements BodyWriter {
  readonly #out: Encoder
  readonly #maxFrameBytes: number
  #isOpen = false

  constructor(options: FrameWriterOptions = {}) {
    this.#maxFrameBytes = options.maxFrameBytes ?? DEFAULT_MAX_FRAME_BYTES
    this.#out = new Encoder({ slabBytes: options.slabBytes ?? 65_536, maxBytes: this.#maxFrameBytes })
  }

  /**
   * One whole request frame.
   * @param sync - a safe integer; 0 for what is not answered
   * @param streamId - 0 or absent: in no stream
   * @param schemaVersion - absent: not checked by the server
   * @returns its size in bytes, prefix included
   * @throws InvalidArgumentError or FrameTooLargeError (`executed: 'no'`), with nothing written
   */
  request(request: Request, sync: number, streamId: number | bigint = 0, schemaVersion = 0): number {
    this.#open()
    try {
      this.#requestHeader(request.type, Math.floor(sync / 0x100000000), sync >>> 0, streamId, schemaVersion)
      request.writeBody(this.#out)
      return this.end()
    } catch (error) {
      this.abort()
      throw error
    }
  }

  /** Opens a request frame whose body is written by the methods below. */
  beginRequest(
    type: number,
    syncHigh: number,
    syncLow: number,
    streamId: number | bigint = 0,
    schemaVersion = 0,
  ): void {
    this.#open()
    this.#requestHeader(type, syncHigh, syncLow, streamId, schemaVersion)
  }

  /** Opens a frame with nothing in it: header and body are written by the methods below (replicated rows). */
  beginFrame(): void {
    this.#open()
  }

  /** Opens a reply frame in the fixed layout of 2.x: type, sync and schema version in their long forms. */
  beginReply(type: number, syncHigh: number, syncLow: number, schemaVersion: number): void {
    if (this.#isOpen) throw openAlready()
    this.#isOpen = true
    this.#out.replyHead(type, syncHigh, syncLow, schemaVersion)
  }

  /** Opens an EVENT frame: it has no schema version. */
  beginEvent(syncHigh: number, syncLow: number): void {
    this.#open()
    this.#out.mapHeader(2)
    this.#out.uint(Key.requestType)
    this.#out.uint(RequestType.event)
    this.#out.uint(Key.sync)
    this.#uint64(syncHigh, syncLow)
  }

  /** Closes the open frame. @returns its size in bytes, prefix included @throws FrameTooLargeError with nothing written */
  end(): number {
    const bytes = this.#out.openBytes
    if (bytes - PREFIX_BYTES > this.#maxFrameBytes) {
      this.abort()
      throw new FrameTooLargeError(bytes - PREFIX_BYTES, this.#maxFrameBytes, { executed: 'no' })
    }
    this.#out.patchUint32(1, bytes - PREFIX_BYTES)
    this.#out.commit()
    this.#isOpen = false
    return bytes
  }

  /** Forgets the open frame. */
  abort(): void {
    this.#out.rollback()
    this.#isOpen = false
  }

  /** Bytes of finished frames not taken yet. */
  get pendingBytes(): number {
    return this.#out.pendingBytes
  }

  /** What was finished since the last take; it belongs to the caller from now on. */
  take(): Buffer[] {
    return this.#out.take()
  }

  reserve(bytes: number): Buffer {
    return this.#out.reserve(bytes)
  }
  value(value: unknown, name?: string): void {
    this.#out.value(value, name)
  }
  mapHeader(size: number): void {
    this.#out.mapHeader(size)
  }
  arrayHeader(size: number): void {
    this.#out.arrayHeader(size)
  }
  uint(value: number): void {
    this.#out.uint(value)
  }
  text(value: string): void {
    this.#out.text(value)
  }
  bytes(value: Uint8Array): void {
    this.#out.bytes(value)
  }
  rawText(value: Uint8Array): void {
    this.#out.rawText(value)
  }
  double(value: number): void {
    this.#out.double(value)
  }
  nil(): void {
    this.#out.nil()
  }
  bool(value: boolean): void {
    this.#out.bool(value)
  }
  raw(encoded: Uint8Array, start?: number, end?: number): void {
    this.#out.raw(encoded, start, end)
  }
  extension(type: number, payload: Uint8Array): void {
    this.#out.extension(type, payload)
  }

  #open(): void {
    if (this.#isOpen) throw openAlready()
    this.#isOpen = true
    this.#out.fixedUint32(0)
  }

  #requestHeader(
    type: number,
    syncHigh: number,
    syncLow: number,
    streamId: number | bigint,
    schemaVersion: number,
  ): void {
    const out = this.#out
    const hasStream = streamId !== 0 && streamId !== 0n
    out.mapHeader(2 + (schemaVersion === 0 ? 0 : 1) + (hasStream ? 1 : 0))
    out.uint(Key.requestType)
    out.uint(type)
    out.uint(Key.sync)
    this.#uint64(syncHigh, syncLow)
    if (schemaVersion !== 0) {
      out.uint(Key.schemaVersion)
      out.uint(schemaVersion)
    }
    if (hasStream) {
      out.uint(Key.streamId)
      out.value(streamId, 'streamId')
    }
  }

  #uint64(high: number, low: number): void {
    if (high < 0x200000) this.#out.uint(high * 0x100000000 + low)
    else this.#out.value((BigInt(high) << 32n) | BigInt(low))
  }
}

function openAlready(): InvalidArgumentError {
  return new InvalidArgumentError('A frame is open already: end or abort it first')
}

const PREFIX_BYTES = 5
