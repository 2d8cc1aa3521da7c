/*
 * CRC-32C over bytes of the journal. Four bytes a step: a group commit of a few hundred kilobytes must not cost more than
 * writing it does.
 */

/** The state before the first byte. */
export const CRC_START = -1

/** Feeds the bytes [start, end). States are signed 32-bit numbers. */
export function feedCrc32c(state: number, bytes: Uint8Array, start: number = 0, end: number = bytes.length): number {
  let crc = state
  let i = start
  for (const last = end - 3; i < last; i += 4) {
    crc ^= bytes[i]! | (bytes[i + 1]! << 8) | (bytes[i + 2]! << 16) | (bytes[i + 3]! << 24)
    crc =
      TABLES[768 + (crc & 255)]! ^
      TABLES[512 + ((crc >>> 8) & 255)]! ^
      TABLES[256 + ((crc >>> 16) & 255)]! ^
      TABLES[crc >>> 24]!
  }
  for (; i < end; i++) crc = TABLES[(crc ^ bytes[i]!) & 255]! ^ (crc >>> 8)
  return crc
}

/** The finished checksum: 0..4294967295, inverted at the end as usual. */
export function finishCrc32c(state: number): number {
  return ~state >>> 0
}

/** Four tables of 256: the effect of a byte that is followed by 0, 1, 2 or 3 others. */
const TABLES: Int32Array = new Int32Array(1024)
for (let byte = 0; byte < 256; byte++) {
  let crc = byte
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1
  TABLES[byte] = crc
}
for (let i = 256; i < 1024; i++) TABLES[i] = (TABLES[i - 256]! >>> 8) ^ TABLES[TABLES[i - 256]! & 255]!
