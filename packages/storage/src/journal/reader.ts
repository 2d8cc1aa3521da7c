/*
 * The journal back after a start: every whole block, in order, exactly once. The end of the last file may be torn, where the
 * process or the machine ended within a write: nobody was told that this write is safe, so it is cut off. Anything else that
 * does not fit together is damage, and is refused rather than guessed at.
 */
import { scanBlocks } from './block.js'
import type { Block } from './block.js'
import { JournalError } from './errors.js'
import { readFileHead } from './file-head.js'
import type { JournalOwnerId } from './file-head.js'
import type { DataFile } from './file-name.js'
import type { JournalFiles } from './journal-files.js'
import type { Segment } from './writer.js'

export interface JournalEnd {
  /** The last record. */
  readonly sequence: number
  readonly segments: readonly Segment[]
  /** Bytes of the blocks that were read. */
  readonly bytes: number
  /** Whose journal it is; undefined when there is none. */
  readonly owner: JournalOwnerId | undefined
}

/**
 * Gives every block behind record `after` to `take`.
 * @throws JournalError (`damaged`, `foreign`), before anything was changed on disk
 */
export async function readJournal(
  files: JournalFiles,
  journal: readonly DataFile[],
  after: number,
  owner: JournalOwnerId | undefined,
  take: (block: Block) => void,
): Promise<JournalEnd> {
  const segments: Segment[] = []
  let sequence = after
  let bytesRead = 0
  let found = owner
  for (const [i, file] of journal.entries()) {
    const path = `${files.place}/${file.name}`
    const isLast = i === journal.length - 1
    // All of it is in the snapshot.
    if (!isLast && journal[i + 1]!.sequence <= after + 1) {
      segments.push({ name: file.name, first: file.sequence, bytes: await files.size(file.name) })
      continue
    }
    const bytes = await files.read(file.name, 0, await files.size(file.name))
    const { blocks, end, tail } = scanBlocks(bytes)
    const head = readFileHead(blocks[0], path)
    refuseOthers(head, found, files.place)
    found = head
    if (tail === 'damaged' || (tail === 'torn' && !isLast))
      throw new JournalError(
        'damaged',
        `${path} is damaged at byte ${end}: records behind record ${lastOf(blocks, file.sequence)} cannot be read, and later ones exist. Restore the directory from a copy, or empty it to start from another instance of the replicaset`,
      )
    if (file.sequence > sequence + 1)
      throw new JournalError(
        'damaged',
        `Records ${sequence + 1} to ${file.sequence - 1} are missing in ${files.place}: ${file.name} begins behind them`,
      )
    for (const block of blocks.slice(1)) {
      const last = block.first + block.count - 1
      if (last <= sequence) continue
      if (block.first !== sequence + 1)
        throw new JournalError('damaged', `${path} continues with record ${block.first} behind record ${sequence}`)
      take(block)
      sequence = last
      bytesRead += block.payload.length
    }
    segments.push({ name: file.name, first: file.sequence, bytes: end })
  }
  return { sequence, segments, bytes: bytesRead, owner: found }
}

/** @throws JournalError (`foreign`) when the data are another instance's */
export function refuseOthers(found: JournalOwnerId, owner: JournalOwnerId | undefined, place: string): void {
  if (owner === undefined || (found.uuid === owner.uuid && found.number === owner.number)) return
  throw new JournalError(
    'foreign',
    `${place} holds the data of instance ${found.number} with uuid ${found.uuid}, not of instance ${owner.number} with uuid ${owner.uuid}`,
  )
}

function lastOf(blocks: readonly Block[], first: number): number {
  const last = blocks.at(-1)
  return last === undefined || last.count === 0 ? first - 1 : last.first + last.count - 1
}
