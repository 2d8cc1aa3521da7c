/*
 * The commonest request and no other: SELECT of one tuple by a whole key, read where it lies, without a list of what is in it.
 * Whatever is unusual about a request is left to the handler of all selects, which decides it alone.
 */
import { IteratorType, Key } from '@orbweaver/iproto'
import { skipField } from './engine/tuple.js'

export class PointSelect {
  spaceId = 0
  indexId = 0
  /** Where the key is in the bytes that were read. */
  keyStart = 0
  keyEnd = 0

  /**
   * @param at - @param end - the body in `bytes`
   * @returns whether it is such a request
   * @throws MalformedFrameError for a key that is cut, as the reader of all bodies
   */
  read(bytes: Buffer, at: number, end: number): boolean {
    const head = bytes[at]!
    if (at === end || head < 0x80 || head > 0x8f) return false
    this.spaceId = this.keyStart = -1
    this.indexId = 0
    let next = at + 1
    for (let entries = head & 0x0f; entries > 0; entries--) {
      const key = bytes[next]!
      const start = next + 1
      if (start >= end) return false
      next = skipField(bytes, start, end)
      if (key === Key.key) {
        this.keyStart = start
        this.keyEnd = next
      } else if (!this.#takes(key, shortUint(bytes, start))) return false
    }
    return next === end && this.spaceId >= 0 && this.keyStart >= 0
  }

  /** Whether a field of the body belongs to such a request. @param value - -1: no small number */
  #takes(key: number, value: number): boolean {
    if (value < 0) return false
    switch (key) {
      case Key.spaceId:
        this.spaceId = value
        return true
      case Key.indexId:
        this.indexId = value
        return true
      case Key.iterator:
        return value === IteratorType.eq
      case Key.offset:
        return value === 0
      case Key.limit:
        return value > 0
      default:
        return false
    }
  }
}

/** A uint of up to 32 bits; -1 for anything else. */
export function shortUint(bytes: Buffer, at: number): number {
  const lead = bytes[at]!
  if (lead < 0x80) return lead
  if (lead === 0xcc) return bytes[at + 1]!
  if (lead === 0xcd) return (bytes[at + 1]! << 8) | bytes[at + 2]!
  return lead === 0xce ? bytes.readUInt32BE(at + 1) : -1
}
