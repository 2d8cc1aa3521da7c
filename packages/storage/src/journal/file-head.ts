/* The first block of every file says whose data it is. */
import { decodeValue, encodeValue } from '@orbweaver/iproto'
import { blockHeader } from './block.js'
import type { Block } from './block.js'
import { JournalError } from './errors.js'

/** Whose journal it is. */
export interface JournalOwnerId {
  readonly uuid: string
  /** Its number in the replicaset. */
  readonly number: number
}

const FORMAT = 'orbweaver/2'
const ANY_FORMAT = /^orbweaver\/\d+$/

/** Chunks of a head block: the record number it carries is that of the file's name. */
export function fileHead(owner: JournalOwnerId, sequence: number): Buffer[] {
  const payload = encodeValue([FORMAT, owner.uuid, owner.number])
  return [blockHeader(sequence, 0, [payload]), payload]
}

/** @throws JournalError (`damaged`) when the block is no head, (`version`) when it is one of another release */
export function readFileHead(block: Block | undefined, path: string): JournalOwnerId {
  const fields = block === undefined ? undefined : decodeValue(block.payload)
  const format: unknown = Array.isArray(fields) ? fields[0] : undefined
  if (typeof format === 'string' && ANY_FORMAT.test(format) && format !== FORMAT)
    throw new JournalError(
      'version',
      `${path} was written in the format '${format}', this release reads '${FORMAT}': start that instance with its old release, or empty its directory to start from another instance of the replicaset`,
    )
  if (!Array.isArray(fields) || format !== FORMAT)
    throw new JournalError('damaged', `${path} does not begin as a file of an embedded storage does`)
  return { uuid: String(fields[1]), number: Number(fields[2]) }
}
