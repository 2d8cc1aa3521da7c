/*
 * What may happen to a row of `_bucket`. Every statement on that space comes by here, whoever made it, so that a bucket's state
 * changes along the table of states or not at all. Rows of another instance are past it: they are history. Texts are those of
 * vshard 0.1.42, whose trigger checks the same.
 */
import { BUCKET_STATUS, isBucketStatus } from './bucket-record.js'
import type { BucketRecord, BucketStatus } from './bucket-record.js'
import type { BucketCounters } from './bucket-refs.js'

/** The only state a bucket begins in. */
const FIRST: BucketStatus = 'receiving'

/** What a statement would do to a bucket: `undefined` is the absence of a row. */
export interface BucketChange {
  readonly before: BucketRecord | undefined
  /** Status as it stands in the new row, also an unknown one. */
  readonly after: (Omit<BucketRecord, 'status'> & { readonly status: string }) | undefined
}

/** Why a change is forbidden, or undefined. */
export function problemOf({ before, after }: BucketChange, refs: BucketCounters | undefined): string | undefined {
  if (after === undefined) return before === undefined ? undefined : deletionProblem(before, refs)
  return (
    refsProblem(before, after.status, refs) ?? edgeProblem(before, after.status) ?? generationProblem(before, after)
  )
}

function refsProblem(
  before: BucketRecord | undefined,
  to: string,
  refs: BucketCounters | undefined,
): string | undefined {
  if (refs === undefined) return undefined
  if (before === undefined) return "new bucket can't have a ref object"
  if ((to === 'sending' || to === 'sent') && refs.write > 0) return `'${to}' bucket can't have rw refs`
  if ((to === 'garbage' || to === 'receiving') && refs.write + refs.read > 0)
    return `'${to}' bucket can't have any refs`
  return undefined
}

function edgeProblem(before: BucketRecord | undefined, to: string): string | undefined {
  if (!isBucketStatus(to)) return `unknown bucket status '${to}'`
  if (before?.status === to) return undefined
  const isAllowed = before === undefined ? to === FIRST : BUCKET_STATUS[before.status].next.includes(to)
  return isAllowed ? undefined : `transition '${before?.status ?? 'nil'}' to '${to}' is not allowed`
}

/** The generation counts sends: it never gets lost, and grows with a send only. */
function generationProblem(
  before: BucketRecord | undefined,
  after: { readonly status: string; readonly generation: number },
): string | undefined {
  if (before === undefined) return undefined
  const { status, generation: next } = after
  const { generation } = before
  if (generation !== 0 && next === 0) return `bucket update drops generation ${generation}`
  if (status === 'sending' && next !== generation + 1)
    return `bucket update to '${status}' doesn't increment generation ${next} -> ${generation}`
  if ((status === 'sent' || status === 'garbage') && next !== generation)
    return `transition to '${status}' changes generation ${next} -> ${generation}`
  return undefined
}

function deletionProblem(before: BucketRecord, refs: BucketCounters | undefined): string | undefined {
  if (refs !== undefined && refs.read + refs.write > 0) return "can't delete a bucket with refs"
  return BUCKET_STATUS[before.status].next.includes('none') ? undefined : `can't delete '${before.status}' bucket`
}
