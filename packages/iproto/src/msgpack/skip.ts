import { MalformedFrameError } from '../errors.js'

/**
 * Offset behind the value at `offset`, for slicing without decoding. It counts what is still owed instead of recursing, so depth costs
 * nothing, and stops as soon as more is owed than bytes are left.
 * @param end - end of the readable bytes, exclusive
 * @throws MalformedFrameError when the value does not end before `end`, or has a byte that is no MessagePack
 */
export function skipValue(bytes: Uint8Array, offset: number, end: number): number {
  let at = offset
  for (let owed = 1; owed > 0; owed--) {
    if (owed > end - at) throw truncated(end)
    const first = bytes[at]!
    at++
    if (first < 0x80 || first >= 0xe0) continue
    if (first < 0x90) owed += (first & 0x0f) * 2
    else if (first < 0xa0) owed += first & 0x0f
    else if (first < 0xc0) at += first & 0x1f
    else if (first === 0xc1) throw new MalformedFrameError('Byte 0xc1 is not MessagePack')
    else {
      const size = SIZES[first - 0xc0]!
      if (size >= 0) at += size
      else {
        const width = -size
        if (width > end - at) throw truncated(end)
        let length = 0
        for (let i = 0; i < width; i++) length = length * 256 + bytes[at + i]!
        at += width
        if (first >= 0xdc) owed += first >= 0xde ? length * 2 : length
        else if (first <= 0xc9 && first >= 0xc7) at += length + 1
        else at += length
      }
    }
    if (at > end) throw truncated(end)
  }
  return at
}

export function truncated(end: number): MalformedFrameError {
  return new MalformedFrameError(`A value runs past the end at byte ${end}`)
}

/**
 * For the first bytes 0xc0..0xdf: how many bytes follow, or, negative, how many bytes of length follow.
 */
const SIZES: Int8Array = Int8Array.from([
  // c0 nil, c1 unused, c2 false, c3 true, c4 c5 c6 bin, c7 c8 c9 ext
  0, 0, 0, 0, -1, -2, -4, -1, -2, -4,
  // ca float32, cb float64, cc cd ce cf uint, d0 d1 d2 d3 int
  4, 8, 1, 2, 4, 8, 1, 2, 4, 8,
  // d4 d5 d6 d7 d8 fixext (type and payload), d9 da db str
  2, 3, 5, 9, 17, -1, -2, -4,
  // dc dd array, de df map
  -2, -4, -2, -4,
])
