/* CRC-32C as vshard computes it: reflected polynomial 0x82f63b78, start value 0xffffffff and, unlike the usual CRC-32C,
 * no inversion at the end. Source: digest.crc32 of Tarantool 3.2.1, called by vshard 0.1.42 `hash.lua`.
 *
 * The state is a plain 32-bit number (signed while it is being fed), so that hashing a key allocates nothing. */

/** The state before the first byte, and so the checksum of nothing. */
export const CRC_START = -1

/** Feeds one byte, 0..255. */
export function feedByte(crc: number, byte: number): number {
  return TABLE[(crc ^ byte) & 0xff]! ^ (crc >>> 8)
}

export function feedBytes(crc: number, bytes: Uint8Array): number {
  let state = crc
  for (let i = 0; i < bytes.length; i++) state = TABLE[(state ^ bytes[i]!) & 0xff]! ^ (state >>> 8)
  return state
}

/**
 * Feeds the UTF-8 form of a text without making it. A surrogate without its pair becomes U+FFFD, as in every encoder of
 * the platform.
 */
export function feedText(crc: number, text: string): number {
  let state = crc
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i)
    if (unit < 0x80) {
      state = TABLE[(state ^ unit) & 0xff]! ^ (state >>> 8)
      continue
    }
    const point = text.codePointAt(i)!
    if (point > 0xffff) i++
    state = feedCodePoint(state, point >= 0xd800 && point <= 0xdfff ? 0xfffd : point)
  }
  return state
}

/** The checksum as vshard shows it: 0..4294967295. */
export function crcValue(crc: number): number {
  return crc >>> 0
}

function feedCodePoint(crc: number, point: number): number {
  if (point < 0x800) return feedByte(feedByte(crc, 0xc0 | (point >> 6)), 0x80 | (point & 0x3f))
  let state = crc
  if (point < 0x10000) {
    state = feedByte(state, 0xe0 | (point >> 12))
  } else {
    state = feedByte(state, 0xf0 | (point >> 18))
    state = feedByte(state, 0x80 | ((point >> 12) & 0x3f))
  }
  state = feedByte(state, 0x80 | ((point >> 6) & 0x3f))
  return feedByte(state, 0x80 | (point & 0x3f))
}

const TABLE: Int32Array = Int32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1
  return crc
})
