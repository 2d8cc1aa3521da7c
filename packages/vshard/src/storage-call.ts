/* `vshard.storage.call(bucket_id, mode, function, args)`: the storage takes a reference of the bucket, calls the
 * function, gives the reference back. Source: vshard 0.1.42, captured replies of Tarantool 2.6.0 and 3.2.1. */
import type { BoxError } from '@orbweaver/iproto'
import { asStorageError, asVshardError, type VshardError } from './errors.js'
import { isNothing, type ServiceCall, unexpectedReply } from './service-reply.js'
import { STORAGE_FUNCTIONS } from './service-names.js'

/** A read is served by any instance, a write by the master only. */
export type BucketMode = 'read' | 'write'

/** What `vshard.storage.call` answered. */
export type StorageCallReply =
  /** The function returned: at most three values arrive, without trailing nils. `[nil, error]` of the function is here. */
  | { readonly kind: 'returned'; readonly values: readonly unknown[] }
  /** The function raised, does not exist or may not be called; `executed` is `yes`. */
  | { readonly kind: 'raised'; readonly error: VshardError | BoxError }
  /**
   * The storage refused before the function ran; `executed` is `no`. (BUCKET_IS_CORRUPTED is found out behind the call:
   * `yes`.)
   */
  | { readonly kind: 'refused'; readonly error: VshardError | BoxError }

/** The call of a user function on a bucket. */
export function storageCall(
  bucketId: number,
  mode: BucketMode,
  functionName: string,
  args: readonly unknown[] = [],
): ServiceCall {
  return { name: STORAGE_FUNCTIONS.call, args: [bucketId, mode, functionName, args] }
}

/**
 * The answer to {@link storageCall}.
 * @param values - the decoded DATA of the reply
 * @throws MalformedFrameError when the first value is no status
 */
export function readStorageCall(values: readonly unknown[]): StorageCallReply {
  const status = values[0]
  if (status === true) return { kind: 'returned', values: values.slice(1) }
  if (status === false) return { kind: 'raised', error: asStorageError(values[1], { executed: 'yes' }) }
  if (!isNothing(status) || isNothing(values[1])) throw unexpectedReply(STORAGE_FUNCTIONS.call, values)
  return { kind: 'refused', error: refusalIn(values[1]) }
}

function refusalIn(value: unknown): VshardError | BoxError {
  const error = asVshardError(value, { executed: 'no' })
  if (error?.vshardName === 'BUCKET_IS_CORRUPTED') return asStorageError(value, { executed: 'yes' })
  return error ?? asStorageError(value, { executed: 'no' })
}
