/**
 * Values that say how they are written, or that keep what JavaScript has no type for. Immutable; compare `bytes` or `value`.
 */

/** Forces a float64 on the wire, for whole numbers too: a field of type `double` or an option that must be one. */
export class Double {
  readonly value: number
  constructor(value: number) {
    this.value = value
  }

  toJSON(): number {
    return this.value
  }
}

/** Forces a float32 on the wire. Servers store it as it is; never written unless asked for. */
export class Float {
  readonly value: number
  constructor(value: number) {
    this.value = value
  }

  toJSON(): number {
    return this.value
  }
}

/**
 * A MessagePack str given by its bytes. Strings of Tarantool are byte strings: one that is not UTF-8 is decoded to this and
 * goes back unchanged.
 */
export class ByteString {
  readonly bytes: Uint8Array
  constructor(bytes: Uint8Array) {
    this.bytes = bytes
  }

  /** The bytes read as UTF-8, each invalid one replaced by U+FFFD: for people, not for sending back. */
  toString(): string {
    return Buffer.from(this.bytes.buffer, this.bytes.byteOffset, this.bytes.byteLength).toString('utf8')
  }
}

/** An extension value this package has no class for, or whose payload it cannot read; survives a round trip byte for byte. */
export class Extension {
  /** -128..127; negative ones belong to MessagePack itself. */
  readonly type: number
  readonly bytes: Uint8Array
  constructor(type: number, bytes: Uint8Array) {
    this.type = type
    this.bytes = bytes
  }
}

/** Exactly one MessagePack value that is encoded already: written as it is, unchecked. */
export class RawValue {
  readonly bytes: Uint8Array
  constructor(bytes: Uint8Array) {
    this.bytes = bytes
  }
}
