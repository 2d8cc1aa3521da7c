import { encodeValue, decodeValue } from '@orbweaver/iproto'
import type { StoredTuple } from '../engine/tuple.js'

/** The states of vshard 0.1.42. */
export type BucketStatus = 'active' | 'pinned' | 'readonly' | 'sending' | 'sent' | 'receiving' | 'garbage'

/** A row of `_bucket`: {id unsigned, status string, destination string?, opts map?}. */
export interface BucketRecord {
  readonly id: number
  readonly status: BucketStatus
  /** Receiver for sending, sent and garbage; sender for receiving. */
  readonly destination: string | undefined
  /** Counts sends; 0 before the first. */
  readonly generation: number
}

interface StatusTraits {
  readonly isReadable: boolean
  readonly isWritable: boolean
  /** Gone from here for good: what map-reduce calls moved. */
  readonly isMoved: boolean
  /** Where a bucket may go from here; `none` is the absence of a record. */
  readonly next: readonly (BucketStatus | 'none')[]
}

/** The one table of states: what each allows and what may follow. active → sending directly is what old masters do. */
export const BUCKET_STATUS: Readonly<Record<BucketStatus, StatusTraits>> = {
  active: { isReadable: true, isWritable: true, isMoved: false, next: ['pinned', 'readonly', 'sending'] },
  pinned: { isReadable: true, isWritable: true, isMoved: false, next: ['active'] },
  readonly: { isReadable: true, isWritable: false, isMoved: false, next: ['active', 'sending'] },
  sending: { isReadable: true, isWritable: false, isMoved: false, next: ['active', 'sent'] },
  sent: { isReadable: false, isWritable: false, isMoved: true, next: ['garbage'] },
  receiving: { isReadable: false, isWritable: false, isMoved: false, next: ['active', 'garbage'] },
  garbage: { isReadable: false, isWritable: false, isMoved: true, next: ['none'] },
}

export function isBucketStatus(value: unknown): value is BucketStatus {
  return typeof value === 'string' && Object.hasOwn(BUCKET_STATUS, value)
}

export function bucketTuple({ id, status, destination, generation }: BucketRecord): StoredTuple {
  if (generation > 0) return encodeValue([id, status, destination ?? null, { generation }])
  return encodeValue(destination === undefined ? [id, status] : [id, status, destination])
}

/** A row of `_bucket` as it stands, whatever its status says. */
export function readBucketRow(tuple: StoredTuple): Omit<BucketRecord, 'status'> & { readonly status: string } {
  const [id, status, destination, options] = decodeValue(tuple) as [
    number,
    string,
    string | null | undefined,
    { generation?: number } | null | undefined,
  ]
  return { id, status, destination: destination ?? undefined, generation: options?.generation ?? 0 }
}

/** undefined for a row whose status is unknown: written by something newer. */
export function readBucketTuple(tuple: StoredTuple): BucketRecord | undefined {
  const row = readBucketRow(tuple)
  const { status } = row
  return isBucketStatus(status) ? { ...row, status } : undefined
}
