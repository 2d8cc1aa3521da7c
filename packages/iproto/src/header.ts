import { Key } from './constants.js'
import { MalformedFrameError } from './errors.js'
import { skipValue } from './msgpack/skip.js'

/* Header of a frame: map of uint keys behind the size prefix, in any order. Source: Tarantool src/box/xrow.c
 *   0x00 REQUEST_TYPE uint, 0x01 SYNC uint (all 64 bits), 0x05 SCHEMA_VERSION uint, 0x0a STREAM_ID uint
 * Replies come in two fixed layouts, which are checked first:
 *   2.x  ce <size> 83 00 ce <u32 type> 01 cf <u64 sync> 05 ce <u32 schema version>
 *   3.x  ce <size> 83 00 ce <u32 type> 01 cf <u64 sync> 05 cf <u64 schema version> */

/** The header of a frame, parsed by hand into an object that is used again and again: reading allocates nothing. */
export class FrameHeader {
  /** Request type, or status of a reply: see RequestType. 0 when absent. */
  type = 0
  /** The sync in two unsigned halves, since it may be any 64-bit number; 0 when absent. */
  syncHigh = 0
  syncLow = 0
  /** 0 when the request is in no stream; a bigint beyond 2^53 - 1. */
  streamId: number | bigint = 0
  /** undefined when absent, as in events and most requests. */
  schemaVersion: number | undefined = undefined
  /** The body's bytes in the frame; empty (start equals end) when there is no body. */
  bodyStart = 0
  bodyEnd = 0

  /** The sync as a number when it is safe, else as a bigint. */
  get sync(): number | bigint {
    return join64(this.syncHigh, this.syncLow)
  }

  /**
   * @param frame - memory with a whole frame, prefix included, from `start` to `end`; by default nothing else is in it. Offsets of the
   * body are those of the memory
   * @throws MalformedFrameError when the header is no map of uints or the prefix does not fit the frame; all fields are 0 then, so that
   * an answer carries the sync 0 as a server's does
   */
  read(frame: Buffer, start = 0, end: number = frame.length): void {
    if (
      end - start >= FIXED_2X_BYTES &&
      frame[start] === 0xce &&
      uint32(frame, start + 1) === end - start - 5 &&
      frame[start + 5] === 0x83 &&
      frame[start + 6] === Key.requestType &&
      frame[start + 7] === 0xce &&
      frame[start + 12] === Key.sync &&
      frame[start + 13] === 0xcf &&
      frame[start + 22] === Key.schemaVersion
    ) {
      if (frame[start + 23] === 0xce) {
        this.#readFixed(frame, start, end, uint32(frame, start + 24), FIXED_2X_BYTES)
        return
      }
      if (frame[start + 23] === 0xcf && end - start >= FIXED_3X_BYTES) {
        const schemaVersion = uint32(frame, start + 24) * 0x100000000 + uint32(frame, start + 28)
        this.#readFixed(frame, start, end, schemaVersion, FIXED_3X_BYTES)
        return
      }
    }
    if (this.#readShort(frame, start, end)) return
    this.#clear()
    try {
      this.#readMap(frame, start, end)
    } catch (error) {
      this.#clear()
      throw error
    }
  }

  /** A request without a stream and a schema version, as most are: ce <size> 82 00 <type> 01 <sync>. @returns false for any other */
  #readShort(frame: Buffer, start: number, end: number): boolean {
    const syncAt = start + SHORT_SYNC_AT
    if (
      end <= syncAt ||
      frame[start] !== 0xce ||
      frame[start + 5] !== 0x82 ||
      frame[start + 6] !== Key.requestType ||
      frame[start + 7]! >= 0x80 ||
      frame[start + 8] !== Key.sync ||
      uint32(frame, start + 1) !== end - start - 5
    )
      return false
    const lead = frame[syncAt]!
    let bodyStart = syncAt + 1
    let sync = lead
    if (lead >= 0x80) {
      if (lead < 0xcc || lead > 0xce) return false
      bodyStart += 1 << (lead - 0xcc)
      if (bodyStart > end) return false
      sync =
        lead === 0xce
          ? uint32(frame, syncAt + 1)
          : lead === 0xcd
            ? (frame[syncAt + 1]! << 8) | frame[syncAt + 2]!
            : frame[syncAt + 1]!
    }
    this.type = frame[start + 7]!
    this.syncHigh = 0
    this.syncLow = sync
    this.streamId = 0
    this.schemaVersion = undefined
    this.bodyStart = bodyStart
    this.bodyEnd = end
    return true
  }

  #readFixed(frame: Buffer, start: number, end: number, schemaVersion: number, headBytes: number): void {
    this.type = uint32(frame, start + 8)
    this.syncHigh = uint32(frame, start + 14)
    this.syncLow = uint32(frame, start + 18)
    this.streamId = 0
    this.schemaVersion = schemaVersion
    this.bodyStart = start + headBytes
    this.bodyEnd = end
  }

  #clear(): void {
    this.type = this.syncHigh = this.syncLow = this.streamId = this.bodyStart = this.bodyEnd = 0
    this.schemaVersion = undefined
  }

  #readMap(frame: Buffer, start: number, end: number): void {
    const cursor = new UintCursor(frame, start, end)
    if (cursor.next('frame size') !== end - cursor.at) {
      throw new MalformedFrameError(`A frame of ${end - start} bytes announces another size`)
    }
    for (let entries = cursor.mapSize('header'); entries > 0; entries--) {
      const key = cursor.next('header key')
      switch (key) {
        case Key.requestType:
          this.type = cursor.next('REQUEST_TYPE')
          break
        case Key.sync:
          cursor.next('SYNC')
          this.syncHigh = cursor.high
          this.syncLow = cursor.low
          break
        case Key.schemaVersion:
          this.schemaVersion = cursor.next('SCHEMA_VERSION')
          break
        case Key.streamId:
          cursor.next('STREAM_ID')
          this.streamId = join64(cursor.high, cursor.low)
          break
        default:
          cursor.skip()
      }
    }
    this.bodyStart = cursor.at
    this.bodyEnd = end
  }
}

/**
 * Overwrites the sync of a reply in place.
 * @param start - where the frame begins in the memory, `end` where it ends; by default nothing else is in it
 * @returns false when the frame does not have the fixed layout of a reply with eight bytes of sync: write it anew then
 */
export function patchReplySync(
  frame: Buffer,
  syncHigh: number,
  syncLow: number,
  start = 0,
  end: number = frame.length,
): boolean {
  const isFixed =
    end - start >= FIXED_2X_BYTES &&
    frame[start] === 0xce &&
    frame[start + 5] === 0x83 &&
    frame[start + 6] === Key.requestType &&
    frame[start + 7] === 0xce &&
    frame[start + 12] === Key.sync &&
    frame[start + 13] === 0xcf
  if (!isFixed) return false
  putUint32(frame, start + 14, syncHigh)
  putUint32(frame, start + 18, syncLow)
  return true
}

/** Two unsigned halves as a number when it is a safe integer, else as a bigint. */
export function join64(high: number, low: number): number | bigint {
  return high < 0x200000 ? high * 0x100000000 + low : (BigInt(high) << 32n) | BigInt(low)
}

/** Walks the uints of a header. Also used for the headers of replicated rows. */
export class UintCursor {
  at = 0
  /** The halves of the number last read. */
  high = 0
  low = 0
  readonly bytes: Buffer
  readonly end: number

  constructor(bytes: Buffer, start = 0, end: number = bytes.length) {
    this.bytes = bytes
    this.at = start
    this.end = end
  }

  /** @throws MalformedFrameError when what follows is no uint: non-negative numbers in signed forms are none, as for servers */
  next(what: string): number {
    const first = this.at < this.end ? this.bytes[this.at]! : -1
    this.high = 0
    if (first >= 0 && first < 0x80) {
      this.at++
      this.low = first
      return first
    }
    const width = first >= 0xcc && first <= 0xcf ? 1 << (first - 0xcc) : 0
    if (width === 0 || this.at + width >= this.end) {
      if (first >= 0 && width === 0)
        throw new MalformedFrameError(`${what} starts with byte 0x${first.toString(16)}, expected a uint`)
      throw new MalformedFrameError(`${what} is missing: the frame ends at byte ${this.end}`)
    }
    const at = this.at + 1
    this.at = at + width
    if (width === 8) {
      this.high = uint32(this.bytes, at)
      this.low = uint32(this.bytes, at + 4)
      return this.high * 0x100000000 + this.low
    }
    this.low =
      width === 4
        ? uint32(this.bytes, at)
        : width === 2
          ? (this.bytes[at]! << 8) | this.bytes[at + 1]!
          : this.bytes[at]!
    return this.low
  }

  mapSize(what: string): number {
    const first = this.at < this.end ? this.bytes[this.at]! : -1
    if (first >= 0x80 && first < 0x90) {
      this.at++
      return first & 0x0f
    }
    const width = first === 0xde ? 2 : first === 0xdf ? 4 : 0
    if (width === 0 || this.at + width >= this.end) throw new MalformedFrameError(`The ${what} is not a whole map`)
    const size = this.bytes.readUIntBE(this.at + 1, width)
    this.at += 1 + width
    return size
  }

  /** @throws MalformedFrameError when what follows is no float64 */
  float64(what: string): number {
    if (this.bytes[this.at] !== 0xcb || this.at + 9 > this.end)
      throw new MalformedFrameError(`${what} is not a whole float64`)
    this.at += 9
    return this.bytes.readDoubleBE(this.at - 8)
  }

  skip(): void {
    this.at = skipValue(this.bytes, this.at, this.end)
  }
}

const FIXED_2X_BYTES = 28
/** Where the sync of a short request header is. */
const SHORT_SYNC_AT = 9
const FIXED_3X_BYTES = 32

function uint32(bytes: Buffer, at: number): number {
  return bytes[at]! * 0x1000000 + ((bytes[at + 1]! << 16) | (bytes[at + 2]! << 8) | bytes[at + 3]!)
}

function putUint32(bytes: Buffer, at: number, value: number): void {
  bytes[at] = value >>> 24
  bytes[at + 1] = value >>> 16
  bytes[at + 2] = value >>> 8
  bytes[at + 3] = value
}
