/*
 * A snapshot: everything as of one record of the journal, so that the journal up to there can go. It is written slice by slice
 * while the instance works, from a view that does not change, and gets its name only when it is complete.
 */
import { FrameWriter } from '@orbweaver/iproto'
import type { RowBody } from '../engine/engine.js'
import { encodeSnapshotEnd, encodeSnapshotHead, encodeSnapshotRow, encodeVote } from '../replication/stream-codec.js'
import type { SnapshotHead, Vote } from '../replication/stream-codec.js'
import type { Promotion } from '../replication/transaction.js'
import type { Vclock } from '../replication/vclock.js'
import { announcedBytes, BLOCK_HEADER_BYTES, blockAt, blockHeader } from './block.js'
import { JournalError } from './errors.js'
import { fileHead, readFileHead } from './file-head.js'
import type { JournalOwnerId } from './file-head.js'
import { dataFileName, UNFINISHED } from './file-name.js'
import type { DataFile } from './file-name.js'
import type { JournalFile, JournalFiles } from './journal-files.js'
import { decodeRecords } from './record.js'
import { refuseOthers } from './reader.js'

/** Bytes of rows between two pauses: a slice takes about a millisecond. */
const SLICE_BYTES = 256 * 1024

/** Everything of an instance at one moment; `rows` are read later and do not change meanwhile. */
export interface SnapshotView {
  readonly rows: Iterable<RowBody>
  readonly head: SnapshotHead
  readonly vote: Vote
}

/**
 * Writes the snapshot of record `sequence`.
 * Records of the journal that are in it need not be on disk: it stands in for them.
 * @param isStopped - asked between slices; true gives up
 * @returns its size in bytes, or undefined when it was given up
 */
export async function writeSnapshot(
  files: JournalFiles,
  owner: JournalOwnerId,
  sequence: number,
  view: SnapshotView,
  isStopped: () => boolean,
): Promise<number | undefined> {
  const file = await files.create(UNFINISHED.snapshot, 0)
  let size: number | undefined
  try {
    size = await writeBlocks(file, owner, sequence, view, isStopped)
  } finally {
    await file.close()
    if (size === undefined || isStopped()) await files.remove(UNFINISHED.snapshot)
  }
  if (size === undefined || isStopped()) return undefined
  await files.rename(UNFINISHED.snapshot, dataFileName('snapshot', sequence))
  return size
}

async function writeBlocks(
  file: JournalFile,
  owner: JournalOwnerId,
  sequence: number,
  view: SnapshotView,
  isStopped: () => boolean,
): Promise<number | undefined> {
  const head = fileHead(owner, sequence)
  await file.write(head, 0)
  let position = head.reduce((bytes, chunk) => bytes + chunk.length, 0)
  const writer = new FrameWriter({ slabBytes: SLICE_BYTES + 64 * 1024 })
  encodeVote(writer, view.vote)
  encodeSnapshotHead(writer, view.head)
  let count = 0
  const writeSlice = async (): Promise<void> => {
    const chunks = writer.take()
    const header = blockHeader(sequence, count, chunks)
    await file.write([header, ...chunks], position)
    position += BLOCK_HEADER_BYTES + header.readUInt32LE(4)
    count = 0
  }
  for (const row of view.rows) {
    encodeSnapshotRow(writer, row)
    count++
    if (writer.pendingBytes < SLICE_BYTES) continue
    await writeSlice()
    if (isStopped()) return undefined
  }
  encodeSnapshotEnd(writer, view.head)
  count++
  await writeSlice()
  return isStopped() ? undefined : position
}

/**
 * Gives the rows of a snapshot, slice by slice, to `take`.
 * @returns what it says besides rows
 * @throws JournalError (`damaged`, `foreign`)
 */
export async function readSnapshot(
  files: JournalFiles,
  file: DataFile,
  owner: JournalOwnerId | undefined,
  take: (rows: readonly RowBody[]) => void,
): Promise<{ head: SnapshotHead; vote: Vote; owner: JournalOwnerId; bytes: number }> {
  const path = `${files.place}/${file.name}`
  let found: JournalOwnerId | undefined
  let vote: Vote | undefined
  const promotions: Promotion[] = []
  let vclock: Vclock | undefined
  let position = 0
  const size = await files.size(file.name)
  while (position < size && vclock === undefined) {
    const header = await files.read(file.name, position, BLOCK_HEADER_BYTES)
    const length = announcedBytes(header, 0) ?? 0
    const bytes = await files.read(file.name, position, BLOCK_HEADER_BYTES + length)
    const block = blockAt(bytes, 0)
    if (block === undefined || block.first !== file.sequence)
      throw new JournalError(
        'damaged',
        `${path} is damaged at byte ${position}. Restore the directory from a copy, or empty it to start from another instance of the replicaset`,
      )
    position += bytes.length
    if (found === undefined) {
      found = readFileHead(block, path)
      refuseOthers(found, owner, files.place)
      continue
    }
    const rows: RowBody[] = []
    for (const { frame } of decodeRecords(block.payload)) {
      if (frame.is === 'row') rows.push(frame.row)
      else if (frame.is === 'promotion') promotions.push(frame.promotion)
      else if (frame.is === 'vote') ({ vote } = frame)
      else if (frame.is === 'position') ({ vclock } = frame)
    }
    take(rows)
  }
  if (vclock === undefined || vote === undefined || found === undefined)
    throw new JournalError('damaged', `${path} has no end: restore the directory from a copy, or empty it`)
  return { head: { vclock, promotions }, vote, owner: found, bytes: position }
}
