/* Which failures to get a reference may be different the next time. */
import { BoxError, ErrorCode } from '@orbweaver/iproto'
import type { OrbweaverError } from '@orbweaver/iproto'
import { VshardError } from '@orbweaver/vshard'

/** Refusals of a storage that pass: a role that changed, a reference that is gone with its session, or was taken before. */
const PASSING: ReadonlySet<string> = new Set([
  'NON_MASTER',
  'MASTER_NOT_SYNCED',
  'STORAGE_REF_ADD',
  'STORAGE_REF_USE',
  'STORAGE_REF_DEL',
])

/** Nobody was there, or the answer was lost: a reference that was granted all the same is gone with its session. */
const UNREACHED: ReadonlySet<string> = new Set([
  'ORB_CONNECT',
  'ORB_CONNECTION_LOST',
  'ORB_REQUEST_TIMEOUT',
  'ORB_NO_MASTER',
  'ORB_MASTER_CONFLICT',
  'ORB_BUFFER_FULL',
  'ORB_BUFFER_EVICTED',
  'ORB_BUFFER_WINDOW',
])

export function isWorthRetrying(error: OrbweaverError): boolean {
  if (error instanceof VshardError) return PASSING.has(error.vshardName)
  if (error instanceof BoxError) return isTimeout(error)
  return UNREACHED.has(error.code)
}

/** The storage's or our own. */
export function isTimeout(error: OrbweaverError): boolean {
  return error instanceof BoxError ? error.boxCode === ErrorCode.timeout : error.code === 'ORB_REQUEST_TIMEOUT'
}
