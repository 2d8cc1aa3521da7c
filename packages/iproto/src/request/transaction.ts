import { Key, RequestType } from '../constants.js'
import { InvalidArgumentError } from '../errors.js'
import { bareRequest, type Request } from './request.js'

/* Interactive transactions, only in a stream. Source: Tarantool 2.10+ src/box/xrow.c, xrow_decode_begin
 *   BEGIN    (14)  0x56 TIMEOUT float64 seconds (an integer is refused), 0x59 TXN_ISOLATION uint, 0x61 IS_SYNC true
 *   COMMIT   (15)  0x61 IS_SYNC true
 *   ROLLBACK (16)  nothing */

/** Isolation of a transaction; `linearizable` from 2.11, and only for synchronous spaces. */
export type Isolation = 'default' | 'read-committed' | 'read-confirmed' | 'best-effort' | 'linearizable'

/** What {@link beginRequest} takes; all is optional. */
export interface BeginOptions {
  /** Lifetime of the transaction in milliseconds; 0 or absent: the server's own default. */
  readonly timeout?: number
  /** Default: the server's. */
  readonly isolation?: Isolation
  /** Commit synchronously (feature `isSync`, 3.2). */
  readonly isSync?: boolean
}

/** BEGIN. @throws InvalidArgumentError when the timeout is negative or not finite, or the isolation is unknown */
export function beginRequest(options: BeginOptions = {}): Request {
  const { timeout, isolation, isSync = false } = options
  if (timeout !== undefined && !(timeout >= 0 && timeout < Infinity)) {
    throw new InvalidArgumentError(`timeout is ${String(timeout)}, expected milliseconds from 0`)
  }
  const level = isolation === undefined ? undefined : ISOLATIONS.indexOf(isolation)
  if (level === -1) {
    throw new InvalidArgumentError(
      `isolation is ${JSON.stringify(isolation)}, expected one of ${ISOLATIONS.join(', ')}`,
    )
  }
  const size = (timeout === undefined ? 0 : 1) + (level === undefined ? 0 : 1) + (isSync ? 1 : 0)
  if (size === 0) return bareRequest(RequestType.begin, 'transaction')
  return {
    type: RequestType.begin,
    requestClass: 'transaction',
    writeBody(out) {
      out.mapHeader(size)
      if (timeout !== undefined) {
        out.uint(Key.timeout)
        out.double(timeout / 1000)
      }
      if (level !== undefined) {
        out.uint(Key.txnIsolation)
        out.uint(level)
      }
      if (!isSync) return
      out.uint(Key.isSync)
      out.bool(true)
    },
  }
}

/** COMMIT. Without a transaction it succeeds: remember a failure yourself. */
export function commitRequest(options: { readonly isSync?: boolean } = {}): Request {
  if (options.isSync !== true) return bareRequest(RequestType.commit, 'transaction')
  return {
    type: RequestType.commit,
    requestClass: 'transaction',
    writeBody(out) {
      out.mapHeader(1)
      out.uint(Key.isSync)
      out.bool(true)
    },
  }
}

/** ROLLBACK. Without a transaction it succeeds. */
export function rollbackRequest(): Request {
  return bareRequest(RequestType.rollback, 'transaction')
}

/** By their number on the wire. */
const ISOLATIONS: readonly Isolation[] = ['default', 'read-committed', 'read-confirmed', 'best-effort', 'linearizable']
