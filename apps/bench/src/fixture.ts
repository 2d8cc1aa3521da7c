/** The rows that are read, written and encoded: always the same, like rows of an application. */

/** Rows in the space of the server. */
export const ROW_COUNT = 100_000
export const SPACE_ID = 512

/** Ten fields, about 60 bytes as MessagePack. */
export function wideRow(id: number): unknown[] {
  const random = mulberry32(id)
  return [
    id,
    word(random, 12),
    word(random, 8),
    Math.floor(random() * 10_000_000),
    random() * 180 - 90,
    random() < 0.5,
    Math.floor(random() * 100),
    word(random, 4),
    null,
    word(random, 10),
  ]
}

/** Four fields, about 23 bytes. */
export function narrowRow(id: number): unknown[] {
  const random = mulberry32(id)
  return [id, word(random, 12), Math.floor(random() * 10_000_000), random() < 0.5]
}

/** Four fields, 127 bytes: what a million rows are measured with. */
export function rowOf127Bytes(id: number): unknown[] {
  const random = mulberry32(id)
  return [id, word(random, 24), Math.floor(random() * 1_000_000), word(random, 88)]
}

/** Keys in an order that caches cannot guess, the same in every process. */
export function keyAt(index: number): number {
  // A multiplier without a common divisor with the count: each key comes once before any comes again.
  return ((index * 7_919) % ROW_COUNT) + 1
}

/** Made at once: a string put together piece by piece stays a tree of pieces, which is slower to encode. */
function word(random: () => number, length: number): string {
  return String.fromCharCode(...Array.from({ length }, () => 97 + Math.floor(random() * 26)))
}

/** A small generator of numbers in 0..1, the same for the same seed. */
function mulberry32(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}
