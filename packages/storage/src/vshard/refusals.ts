/* Errors on their way into replies: vshard's and the storage's own as maps, whatever else happened as one of those. */
import { RequestTimeoutError } from '@orbweaver/connection'
import { BoxError, ErrorCode } from '@orbweaver/iproto'
import { asStorageError, VshardError } from '@orbweaver/vshard'
import { boxErrors } from '../errors.js'
import { values } from '../functions.js'
import type { Values } from '../functions.js'

/** A box error as Lua's `error:unpack()` gives it, which is how vshard puts it into results. */
export function unpacked(error: BoxError): Record<string, unknown> {
  return {
    type: error.boxType,
    base_type: error.boxType === 'AccessDeniedError' ? 'AccessDeniedError' : 'ClientError',
    code: error.boxCode,
    message: error.message,
    trace: [{ file: error.file, line: error.line }],
    ...Object.fromEntries([...error.fields].filter(([key]) => key === 'reason' || key === 'space')),
    ...(error.cause instanceof BoxError ? { prev: unpacked(error.cause) } : {}),
  }
}

/** Any failure as one a storage may answer with: what is none of its own kinds becomes "no connection" or "timeout". */
export function toRefusal(error: unknown): VshardError | BoxError {
  if (error instanceof VshardError || error instanceof BoxError) return error
  if (error instanceof RequestTimeoutError) return boxErrors.timeout()
  const message = error instanceof Error ? error.message : String(error)
  return BoxError.of(ErrorCode['noConnection'] ?? NO_CONNECTION, message, { executed: 'unknown' })
}

/** `[nil, error]`. A fault of ours goes up. */
export function refused(error: unknown): Values {
  if (error instanceof VshardError) return values(null, error.toWire())
  if (error instanceof BoxError) return values(null, unpacked(error))
  throw error
}

/** The result of `work`, with refusals as values. */
export async function answered(work: () => unknown): Promise<unknown> {
  try {
    return await work()
  } catch (error) {
    return refused(error)
  }
}

/** "Timeout exceeded", with what was waited for beside it. */
export function timeoutFor(reason: string): BoxError {
  return BoxError.of(TIMEOUT, 'Timeout exceeded', {
    boxType: 'ClientError',
    fields: new Map([['reason', reason]]),
    executed: 'no',
  })
}

const TIMEOUT = 78
const NO_CONNECTION = 77

/** The refusal in a reply, or undefined. */
export function errorReply(
  reply: readonly unknown[],
): { readonly ok: false; readonly error: VshardError | BoxError } | undefined {
  const [first, second] = reply
  if ((first !== null && first !== undefined) || second === null || second === undefined) return undefined
  return { ok: false, error: asStorageError(second, { executed: 'no' }) }
}
