/*
 * The errors of a storage are Tarantool's own, by number: a client must not be able to tell the difference. Texts and
 * fields follow Tarantool 2.11; fields are what later versions attach to them.
 */
import { BoxError } from '@orbweaver/iproto'

function make(code: number, message: string, fields: Record<string, unknown> = {}, boxType = 'ClientError'): BoxError {
  return BoxError.of(code, message, { boxType, fields: new Map(Object.entries(fields)), executed: 'no' })
}

/** Makers by name, so that a number stands in one place. Each returns the error; the caller throws it. */
export const boxErrors = {
  illegalParams: (message: string, fields: Record<string, unknown> = {}): BoxError =>
    make(1, message, fields, 'IllegalParams'),
  dropSpace: (space: string, reason: string): BoxError => make(11, `Can't drop space '${space}': ${reason}`, { space }),
  unsupported: (subject: string, feature: string): BoxError => make(5, `${subject} does not support ${feature}`),
  tupleFound: (index: string, space: string): BoxError =>
    make(3, `Duplicate key exists in unique index '${index}' in space '${space}'`, { index, space }),
  readonly: (text: string, fields: Record<string, unknown>): BoxError =>
    make(7, `Can't modify data on a read-only instance${text}`, fields),
  keyPartType: (part: number, expected: string): BoxError =>
    make(18, `Supplied key type of part ${part} does not match index part type: expected ${expected}`),
  exactMatch: (expected: number, got: number): BoxError =>
    make(19, `Invalid key part count in an exact match (expected ${expected}, got ${got})`),
  invalidMsgpack: (detail: string): BoxError => make(20, `Invalid MsgPack - ${detail}`),
  tupleNotArray: (): BoxError => make(22, 'Tuple/Key must be MsgPack array'),
  fieldType: (field: string, expected: string, got: string): BoxError =>
    make(23, `Tuple field ${field} type does not match one required by operation: expected ${expected}, got ${got}`),
  splice: (detail: string): BoxError => make(25, `SPLICE error on field ${detail}`),
  updateArgument: (op: string, field: string, expected: string): BoxError =>
    make(26, `Argument type in operation '${op}' on field ${field} does not match field type: expected ${expected}`),
  unknownUpdateOp: (detail: string): BoxError => make(28, `Unknown UPDATE operation ${detail}`),
  updateField: (field: string, detail: string): BoxError => make(29, `Field ${field} UPDATE error: ${detail}`),
  functionTransactionActive: (): BoxError => make(30, 'Transaction is active at return from function'),
  keyPartCount: (atMost: number, got: number): BoxError =>
    make(31, `Invalid key part count (expected [0..${atMost}], got ${got})`),
  procLua: (message: string, cause?: BoxError): BoxError =>
    BoxError.of(32, message, { boxType: 'LuajitError', executed: 'yes', ...(cause === undefined ? {} : { cause }) }),
  /** A function threw something that is no error: what it was travels in `details`. */
  thrown: (message: string, details: unknown): BoxError =>
    BoxError.of(32, message, { boxType: 'LuajitError', executed: 'yes', fields: new Map([['details', details]]) }),
  noSuchProc: (func: string): BoxError => make(33, `Procedure '${func}' is not defined`, { func }),
  noSuchIndexId: (index: number | string, space: string): BoxError =>
    make(35, `No index #${index} is defined in space '${space}'`, { index, space }),
  noSuchSpace: (space: number | string): BoxError => make(36, `Space '${space}' does not exist`, { space }),
  noSuchField: (field: string): BoxError => make(37, `Field ${field} was not found in the tuple`),
  exactFieldCount: (got: number, expected: number): BoxError =>
    make(38, `Tuple field count ${got} does not match space field count ${expected}`),
  fieldMissing: (field: string): BoxError => make(39, `Tuple field ${field} required by space format is missing`),
  moreThanOneTuple: (): BoxError => make(41, "Get() doesn't support partial keys and non-unique indexes"),
  accessDenied: (access: string, objectType: string, objectName: string, user: string): BoxError =>
    make(
      42,
      `${access} access to ${objectType} '${objectName}' is denied for user '${user}'`,
      { access_type: access, object_type: objectType, object_name: objectName, user },
      'AccessDeniedError',
    ),
  unknownRequestType: (type: number): BoxError =>
    make(48, `Unknown request type ${type}`, Number.isSafeInteger(type) ? { value: type } : {}),
  timeout: (): BoxError => make(78, 'Timeout exceeded', {}, 'TimedOut'),
  rowsTimeout: (): BoxError => make(78, 'The rows of the previous master did not arrive in time', {}, 'TimedOut'),
  activeTransaction: (): BoxError => make(79, 'Operation is not permitted when there is an active transaction '),
  primaryKeyUpdate: (index: string, space: string): BoxError =>
    make(94, `Attempt to modify a tuple field which is part of primary index '${index}' in space '${space}'`),
  integerOverflow: (op: string, field: string): BoxError =>
    make(95, `Integer overflow when performing '${op}' operation on field ${field}`),
  transactionConflict: (): BoxError => make(97, 'Transaction has been aborted by conflict'),
  wrongSchemaVersion: (expected: number, actual: number): BoxError =>
    make(109, `Wrong schema version, current: ${expected}, in request: ${actual}`, { expected, actual }),
  tupleTooLarge: (bytes: number): BoxError =>
    make(110, `Failed to allocate ${bytes} bytes for tuple: tuple is too large`),
  viewReadonly: (view: string): BoxError => make(113, `View '${view}' is read-only`, { view }),
  unsupportedIterator: (index: string, type: string, space: string, feature: string): BoxError =>
    make(112, `Index '${index}' (${type}) of space '${space}' (memtx) does not support ${feature}`),
  /** A write that is in memory and not on disk: it may get there yet. */
  journalPending: (why: string): BoxError =>
    BoxError.of(216, `The write is not on disk: ${why}`, { executed: 'unknown' }),
  journalFailed: (why: string): BoxError => make(40, `Failed to write to disk: ${why}`),
  loading: (): BoxError => make(116, "Instance bootstrap hasn't finished yet"),
  notInStream: (type: number): BoxError => make(229, `Unable to process request type ${type} in stream`),
  outOfStream: (type: string): BoxError => make(230, `Unable to process ${type} request out of stream`),
  transactionTimeout: (): BoxError => make(231, 'Transaction has been aborted by timeout'),
  iteratorPosition: (): BoxError => make(247, 'Iterator position is invalid'),
  quorumTimeout: (): BoxError =>
    BoxError.of(216, 'Quorum collection for a synchronous transaction is timed out', { executed: 'unknown' }),
  shutdown: (): BoxError => make(279, 'Server is shutting down'),
} as const
