/*
 * Files of the journal consist of blocks: what one group commit or one slice of a snapshot writes. A block is there as a whole or
 * not at all, since its checksum covers all of it.
 *
 *   0  magic "OWJB"      4  payload bytes u32      8  number of its first record u64      16  records u32
 *   20 CRC-32C of bytes 4 to 20 and the payload u32      24  payload           (all little endian)
 */
import { CRC_START, feedCrc32c, finishCrc32c } from './checksum.js'

export const BLOCK_HEADER_BYTES = 24
const MAGIC = Buffer.from('OWJB', 'latin1')

export interface Block {
  /** Number of its first record. */
  readonly first: number
  /** Records in it; they are numbered without gaps. */
  readonly count: number
  readonly payload: Buffer
}

export function blockHeader(first: number, count: number, payload: readonly Uint8Array[]): Buffer {
  const header = Buffer.alloc(BLOCK_HEADER_BYTES)
  MAGIC.copy(header)
  header.writeUInt32LE(
    payload.reduce((bytes, chunk) => bytes + chunk.length, 0),
    4,
  )
  header.writeUInt32LE(first >>> 0, 8)
  header.writeUInt32LE(Math.floor(first / 0x1_0000_0000), 12)
  header.writeUInt32LE(count, 16)
  let crc = feedCrc32c(CRC_START, header, 4, 20)
  for (const chunk of payload) crc = feedCrc32c(crc, chunk)
  header.writeUInt32LE(finishCrc32c(crc), 20)
  return header
}

/** Bytes of the payload a header announces, or undefined for something that is no header. */
export function announcedBytes(bytes: Buffer, at: number): number | undefined {
  if (bytes.length - at < BLOCK_HEADER_BYTES || bytes.compare(MAGIC, 0, 4, at, at + 4) !== 0) return undefined
  return bytes.readUInt32LE(at + 4)
}

/** The whole block that begins at `at`, or undefined when there is none, or only a part of one. */
export function blockAt(bytes: Buffer, at: number): Block | undefined {
  const length = announcedBytes(bytes, at)
  if (length === undefined || bytes.length - at - BLOCK_HEADER_BYTES < length) return undefined
  const start = at + BLOCK_HEADER_BYTES
  const crc = feedCrc32c(feedCrc32c(CRC_START, bytes, at + 4, at + 20), bytes, start, start + length)
  if (finishCrc32c(crc) !== bytes.readUInt32LE(at + 20)) return undefined
  return {
    first: bytes.readUInt32LE(at + 8) + bytes.readUInt32LE(at + 12) * 0x1_0000_0000,
    count: bytes.readUInt32LE(at + 16),
    payload: bytes.subarray(start, start + length),
  }
}

export interface ScannedBlocks {
  readonly blocks: readonly Block[]
  /** Where the last whole block ends. */
  readonly end: number
  /**
   * `clean`: nothing but zeros follows. `torn`: the beginning of a block that was never finished, so never acknowledged.
   * `damaged`: whole blocks follow behind a broken one, which was finished once.
   */
  readonly tail: 'clean' | 'torn' | 'damaged'
}

/** Cuts a file into its blocks. */
export function scanBlocks(bytes: Buffer): ScannedBlocks {
  const blocks: Block[] = []
  let end = 0
  for (let block = blockAt(bytes, end); block !== undefined; block = blockAt(bytes, end)) {
    blocks.push(block)
    end += BLOCK_HEADER_BYTES + block.payload.length
  }
  return { blocks, end, tail: tailKind(bytes, end, blocks.at(-1)) }
}

function tailKind(bytes: Buffer, end: number, last: Block | undefined): ScannedBlocks['tail'] {
  let isZero = true
  for (let i = end; i < bytes.length && isZero; i++) isZero = bytes[i] === 0
  if (isZero) return 'clean'
  // One block is written at a time and the next one only when it is on disk, so a later whole block proves damage.
  for (let at = bytes.indexOf(MAGIC, end); at >= 0; at = bytes.indexOf(MAGIC, at + 1)) {
    const later = blockAt(bytes, at)
    if (later !== undefined && later.first > (last?.first ?? -1)) return 'damaged'
  }
  return 'torn'
}
