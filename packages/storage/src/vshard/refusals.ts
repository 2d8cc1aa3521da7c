/* Errors on their way into replies: vshard's and the storage's own as maps, whatever else happened as one of those. */
import { RequestTimeoutError } from '@orbweaver/connection'
import { BoxError, encodeValue, ErrorCode, isOrbweaverError } from '@orbweaver/iproto'
import { asStorageError, VshardError } from '@orbweaver/vshard'
import { boxErrors } from '../errors.js'
import { values } from '../functions.js'
import type { Values } from '../functions.js'

/** The application refused a move; another bucket may go. */
export class MoveRefusedError extends BoxError {
  constructor(bucketId: number, destination: string, why: BoxError) {
    const message = `The move of bucket ${bucketId} to replicaset ${destination} was refused here: ${why.message}`
    const entry = { type: 'ClientError', code: PROC_LUA, message, file: '', line: 0, errno: 0, fields: new Map() }
    super([entry, ...why.entries], { executed: 'no' })
  }
}

/** A box error as Lua's `error:unpack()` gives it, which is how vshard puts it into results. */
function unpacked(error: BoxError): Record<string, unknown> {
  return {
    ...Object.fromEntries(error.fields),
    type: error.boxType,
    base_type: error.boxType === 'AccessDeniedError' ? 'AccessDeniedError' : 'ClientError',
    code: error.boxCode,
    message: error.message,
    trace: [{ file: error.file, line: error.line }],
    ...(error.cause instanceof BoxError ? { prev: unpacked(error.cause) } : {}),
  }
}

/**
 * What a function raised, as vshard on Tarantool 3 puts it into a result: error 32 with its text, and what was raised in `details`.
 * That there is no such function is told as it is.
 */
export function raisedIn(functionName: unknown, raised: BoxError): Record<string, unknown> {
  const error = sendable(raised)
  if (error.boxCode === NO_SUCH_PROC && error.fields.get('func') === functionName)
    return { ...unpacked(error), name: 'NO_SUCH_PROC' }
  const isThrownValue = error.boxType === 'LuajitError' && error.fields.has('details')
  return {
    type: 'ClientError',
    base_type: 'ClientError',
    code: PROC_LUA,
    name: 'PROC_LUA',
    message: error.message,
    trace: [{ file: error.file, line: error.line }],
    details: isThrownValue ? error.fields.get('details') : error,
  }
}

/** The error itself or, when its text or a field has no MessagePack form, what can be told of it. */
function sendable(error: BoxError): BoxError {
  try {
    encodeValue(error)
    return error
  } catch (fault) {
    if (!isOrbweaverError(fault)) throw fault
    const text = error.message.replaceAll(/\p{Surrogate}/gu, '\ufffd')
    return BoxError.of(error.boxCode, text, { executed: error.executed })
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

const PROC_LUA = 32
const NO_SUCH_PROC = 33
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
