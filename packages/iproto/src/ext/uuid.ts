import { randomBytes } from 'node:crypto'
import { ExtensionType } from '../constants.js'
import { InvalidArgumentError } from '../errors.js'
import type { BodyWriter } from '../msgpack/body-writer.js'

/* Extension 2. Source: Tarantool 2.4.1+, src/lib/uuid/mp_uuid.c
 *   payload  16 bytes in the order of the text. */

/** A UUID. Immutable; ordered by its bytes, as text is. */
export class Uuid {
  readonly #text: string

  private constructor(text: string) {
    this.#text = text
  }

  /**
   * @param text - 36 characters, hexadecimal digits in either case
   * @throws InvalidArgumentError when it has another form
   */
  static from(text: string): Uuid {
    if (!UUID_TEXT.test(text)) throw new InvalidArgumentError(`${JSON.stringify(text)} is not a UUID`)
    return new Uuid(text.toLowerCase())
  }

  /** A random one, version 4. */
  static random(): Uuid {
    const bytes = randomBytes(16)
    bytes[6] = (bytes[6]! & 0x0f) | 0x40
    bytes[8] = (bytes[8]! & 0x3f) | 0x80
    return Uuid.fromBytes(bytes)
  }

  /** @throws InvalidArgumentError when there are not 16 bytes */
  static fromBytes(bytes: Uint8Array): Uuid {
    if (bytes.length !== UUID_BYTES) throw new InvalidArgumentError(`A UUID has 16 bytes, not ${bytes.length}`)
    const hex = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex')
    return new Uuid(`${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`)
  }

  /** The 16 bytes, a copy. */
  get bytes(): Uint8Array {
    return Buffer.from(this.#text.replaceAll('-', ''), 'hex')
  }

  /** 36 characters in lower case. */
  toString(): string {
    return this.#text
  }

  toJSON(): string {
    return this.#text
  }

  compare(other: Uuid): -1 | 0 | 1 {
    if (this.#text === other.#text) return 0
    return this.#text < other.#text ? -1 : 1
  }

  /** Whether `other` is a Uuid of the same bytes. */
  equals(other: unknown): boolean {
    return other instanceof Uuid && other.#text === this.#text
  }
}

export function writeUuid(out: BodyWriter, value: Uuid): void {
  out.extension(ExtensionType.uuid, value.bytes)
}

/** @returns undefined when the payload has another length: the caller keeps the bytes */
export function readUuid(payload: Buffer): Uuid | undefined {
  return payload.length === UUID_BYTES ? Uuid.fromBytes(payload) : undefined
}

const UUID_BYTES = 16
const UUID_TEXT = /^[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}$/i
