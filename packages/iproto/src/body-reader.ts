import { Key } from './constants.js'
import { ErrorCode } from './error-codes.js'
import { BoxError, MalformedFrameError } from './errors.js'
import type { DecodeOptions } from './msgpack/decode-options.js'
import { readExactly } from './msgpack/reader.js'
import { skipValue } from './msgpack/skip.js'

/**
 * The first level of a body: walked once into ranges by key, values decoded when asked for. Made for the serving end, so the typed
 * getters refuse as Tarantool does: a value of the wrong kind is error 20, an absent mandatory one error 69 (`require…`).
 * Keys from 0x80 up belong to no protocol version and are skipped. Of duplicate keys the last wins.
 */
export class BodyReader {
  readonly #body: Buffer
  /** Key, start and end of each value, three numbers an entry. */
  readonly #ranges: number[] = []

  /**
   * @param body - holds a whole map, or nothing, which is an empty map. Slices of it are handed out
   * @param from - @param to - where in `body` the map is; default: all of it
   * @throws MalformedFrameError when it is not exactly one map with uint keys
   */
  constructor(body: Buffer, from = 0, to: number = body.length) {
    this.#body = body
    if (from === to) return
    const first = body[from]!
    let size = first & 0x0f
    let at = from + 1
    if (first < 0x80 || first >= 0x90) {
      size = wideMapSize(body, from, to)
      at = from + (first === 0xde ? 3 : 5)
    }
    for (; size > 0; size--) {
      const key = at < to ? body[at] : undefined
      const start = key !== undefined && key < 0x80 ? at + 1 : skipValue(body, at, to)
      if (key === undefined || (key >= 0x80 && (key < 0xcc || key > 0xcf)))
        throw new MalformedFrameError('A body key is not a uint')
      const end = skipValue(body, start, to)
      if (key < 0x80) this.#keep(key, start, end)
      at = end
    }
    if (at !== to) throw new MalformedFrameError(`${to - at} bytes are left behind a body`)
  }

  has(key: number): boolean {
    return this.#find(key) >= 0
  }

  /** A uint up to 2^53 - 1, which no key goes beyond. */
  uint(key: number): number | undefined {
    const at = this.#find(key)
    if (at < 0) return undefined
    const start = this.#ranges[at + 1]!
    const first = this.#body[start]!
    if (first < 0x80) return first
    if (first < 0xcc || first > 0xcf) throw wrongKind(key)
    if (first < 0xcf) return this.#body.readUIntBE(start + 1, 1 << (first - 0xcc))
    const value = this.#body.readUInt32BE(start + 1) * 0x100000000 + this.#body.readUInt32BE(start + 5)
    if (!Number.isSafeInteger(value)) throw wrongKind(key)
    return value
  }

  /** A str that is UTF-8; for others there is `textBytes`. */
  text(key: number): string | undefined {
    const at = this.#find(key)
    if (at < 0) return undefined
    if (!isTextForm(this.#first(at))) throw wrongKind(key)
    const value = this.value(key)
    if (typeof value !== 'string') throw wrongKind(key)
    return value
  }

  bool(key: number): boolean | undefined {
    const at = this.#find(key)
    if (at < 0) return undefined
    const first = this.#first(at)
    if (first !== 0xc2 && first !== 0xc3) throw wrongKind(key)
    return first === 0xc3
  }

  /** A float64 and nothing else: TIMEOUT of BEGIN is refused as an integer. */
  double(key: number): number | undefined {
    const at = this.#find(key)
    if (at < 0) return undefined
    if (this.#first(at) !== 0xcb) throw wrongKind(key)
    return this.#body.readDoubleBE(this.#ranges[at + 1]! + 1)
  }

  /** Where the encoded value begins and ends in the bytes the reader was given; -1 when the key is absent. */
  startOf(key: number): number {
    const at = this.#find(key)
    return at < 0 ? -1 : this.#ranges[at + 1]!
  }

  endOf(key: number): number {
    const at = this.#find(key)
    return at < 0 ? -1 : this.#ranges[at + 2]!
  }

  /** The encoded value, a slice of the body. */
  slice(key: number): Buffer | undefined {
    const at = this.#find(key)
    return at < 0 ? undefined : this.#body.subarray(this.#ranges[at + 1], this.#ranges[at + 2])
  }

  /** The bytes of a str, without its header; a slice of the body. */
  textBytes(key: number): Buffer | undefined {
    const encoded = this.slice(key)
    if (encoded === undefined) return undefined
    const first = encoded[0]!
    if (!isTextForm(first)) throw wrongKind(key)
    return encoded.subarray(first < 0xc0 ? 1 : 1 + (1 << (first - 0xd9)))
  }

  /** Any value, decoded; undefined when the key is absent. @throws MalformedFrameError when it cannot be decoded */
  value(key: number, options: DecodeOptions = {}): unknown {
    const at = this.#find(key)
    if (at < 0) return undefined
    return readExactly(this.#body, this.#ranges[at + 1]!, this.#ranges[at + 2]!, options)
  }

  array(key: number, options: DecodeOptions = {}): unknown[] | undefined {
    const at = this.#find(key)
    if (at < 0) return undefined
    if (!isArrayForm(this.#first(at))) throw wrongKind(key)
    return this.value(key, options) as unknown[]
  }

  requireUint(key: number): number {
    return this.uint(key) ?? absent(key)
  }

  requireText(key: number): string {
    return this.text(key) ?? absent(key)
  }

  requireArray(key: number, options: DecodeOptions = {}): unknown[] {
    return this.array(key, options) ?? absent(key)
  }

  requireSlice(key: number): Buffer {
    return this.slice(key) ?? absent(key)
  }

  #keep(key: number, start: number, end: number): void {
    const at = this.#find(key)
    if (at < 0) this.#ranges.push(key, start, end)
    else {
      this.#ranges[at + 1] = start
      this.#ranges[at + 2] = end
    }
  }

  #find(key: number): number {
    const ranges = this.#ranges
    for (let i = 0; i < ranges.length; i += 3) if (ranges[i] === key) return i
    return -1
  }

  #first(at: number): number {
    return this.#body[this.#ranges[at + 1]!]!
  }
}

function wideMapSize(body: Buffer, from: number, to: number): number {
  const first = body[from]!
  const width = first === 0xde ? 2 : first === 0xdf ? 4 : 0
  if (width === 0 || to - from <= width) throw new MalformedFrameError('A body is not a map')
  return body.readUIntBE(from + 1, width)
}

function isTextForm(first: number): boolean {
  return (first >= 0xa0 && first < 0xc0) || (first >= 0xd9 && first <= 0xdb)
}

function isArrayForm(first: number): boolean {
  return (first >= 0x90 && first < 0xa0) || first === 0xdc || first === 0xdd
}

function wrongKind(key: number): BoxError {
  return BoxError.of(ErrorCode.invalidMsgpack, `Invalid MsgPack - request body`, {
    executed: 'no',
    fields: new Map([['key', keyName(key)]]),
  })
}

function absent(key: number): never {
  throw BoxError.of(ErrorCode.missingRequestField, `Missing mandatory field '${keyName(key)}' in request`, {
    executed: 'no',
    fields: new Map([['value', keyName(key)]]),
  })
}

/** `SPACE_ID` for 0x10, as servers name keys in messages. */
function keyName(key: number): string {
  const entry = Object.entries(Key).find(([, number]) => number === key)
  return entry === undefined ? `0x${key.toString(16)}` : entry[0].replaceAll(/[A-Z]|24/g, '_$&').toUpperCase()
}
