/**
 * What a request or reply writes its body with: the MessagePack forms, straight into the frame that is open. Values go out
 * in their shortest form. A failed call throws and the frame that holds it is forgotten as a whole.
 */
export interface BodyWriter {
  /** A view of exactly these bytes inside the frame being written: fill it before the next call, which may move the frame. */
  reserve(bytes: number): Buffer
  /**
   * Any value with a MessagePack form, see `encodeValue`.
   * @param name - what the value is called in messages; default `value`
   * @throws InvalidArgumentError that names the place inside the value: `args[0].items[3] is a function …`
   */
  value(value: unknown, name?: string): void
  /** Header of a map of `size` entries: write that many keys and values behind it. */
  mapHeader(size: number): void
  /** Header of an array of `size` elements: write them behind it. */
  arrayHeader(size: number): void
  /** A non-negative safe integer. */
  uint(value: number): void
  /** A string as str. */
  text(value: string): void
  /** Bytes as bin. */
  bytes(value: Uint8Array): void
  /** Bytes as str. */
  rawText(value: Uint8Array): void
  /** A float64, whatever the value. */
  double(value: number): void
  nil(): void
  bool(value: boolean): void
  /** Bytes that are MessagePack already: all of them, or those from `start` to `end`. */
  raw(encoded: Uint8Array, start?: number, end?: number): void
  /** An extension: its header and its payload. @param type - -128..127 */
  extension(type: number, payload: Uint8Array): void
}
