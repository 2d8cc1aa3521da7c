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

const FORMAT = 'orbweaver/1'

/** Chunks of a head block: the record number it carries is that of the file's name. */
export function fileHead(owner: JournalOwnerId, sequence: number): Buffer[] {
  const payload = encodeValue([FORMAT, owner.uuid, owner.number])
  return [blockHeader(sequence, 0, [payload]), payload]
}

/** @throws JournalError (`damaged`) when the block is no head */
export function readFileHead(block: Block | undefined, path: string): JournalOwnerId {
  const fields = block === undefined ? undefined : decodeValue(block.payload)
  if (!Array.isArray(fields) || fields[0] !== FORMAT)
    throw new JournalError('damaged', `${path} does not begin as a file of an embedded storage does`)
  return { uuid: String(fields[1]), number: Number(fields[2]) }
}
