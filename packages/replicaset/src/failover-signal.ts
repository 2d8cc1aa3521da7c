/**
 * Which outcomes mean that the master is changing, and whether the request they ended certainly was not executed. Only what
 * certainly was not executed may wait or be sent again; everything else goes back to the caller at once.
 */
import { ConnectionClosedError, ConnectionLostError, ConnectError, RequestTimeoutError } from '@orbweaver/connection'
import { BoxError, ErrorCode, isOrbweaverError, type OrbweaverError, type Reply } from '@orbweaver/iproto'
import type { Attempt, Dialect } from './attempt.js'
import { uuidText } from './status-events.js'

/** What an outcome means for the replicaset. */
export type Signal =
  /** The caller's answer, whatever it is. */
  | { readonly kind: 'final' }
  /** "Read-only" to a plain statement: no effect. `term` and `hint` are what the error says of the election. */
  | {
      readonly kind: 'statementRefused'
      readonly error: OrbweaverError
      readonly term: number | undefined
      readonly hint: string | undefined
    }
  /** The dialect's refusal: user code did not run. `error` is undefined when it came as a value. */
  | { readonly kind: 'notMaster'; readonly error: OrbweaverError | undefined; readonly hint: string | undefined }
  /** "Read-only" raised inside a function: its word, or that of a server it called. */
  | {
      readonly kind: 'codeRefused'
      readonly error: OrbweaverError
      readonly term: number | undefined
      readonly hint: string | undefined
    }
  /** Loading, not configured, shutting down: about the instance, and nothing ran. */
  | { readonly kind: 'notReady'; readonly error: OrbweaverError; readonly reason: string }
  /** The instance cannot serve this at all (no service, no grant). `isService`: the dialect says so, for every request. */
  | {
      readonly kind: 'unusable'
      readonly error: OrbweaverError | undefined
      readonly reason: string
      readonly isService: boolean
    }
  /** The connection was gone before anything was sent, or could not be made. */
  | { readonly kind: 'unsent'; readonly error: OrbweaverError }
  /** Sent, and the connection broke before the answer. */
  | { readonly kind: 'lost'; readonly error: OrbweaverError }
  /** No answer in the time the caller gave this try. */
  | { readonly kind: 'timeout'; readonly error: OrbweaverError }

const FINAL: Signal = { kind: 'final' }

/** @param outcome - of a request that was run on an instance */
export function readSignal(attempt: Attempt, outcome: Reply | OrbweaverError, dialect: Dialect | undefined): Signal {
  if (!isOrbweaverError(outcome)) return dialect === undefined ? FINAL : readVerdict(outcome, undefined, dialect)
  if (outcome instanceof BoxError) {
    const verdict = dialect === undefined ? FINAL : readVerdict(outcome, outcome, dialect)
    return verdict === FINAL ? readBoxError(attempt, outcome) : verdict
  }
  if (outcome instanceof RequestTimeoutError) return { kind: 'timeout', error: outcome }
  if (UNREACHABLE.some((type) => outcome instanceof type)) {
    return { kind: outcome.executed === 'no' ? 'unsent' : 'lost', error: outcome }
  }
  return FINAL
}

function readVerdict(outcome: Reply | BoxError, error: BoxError | undefined, dialect: Dialect): Signal {
  const verdict = dialect.judge(outcome)
  if (verdict === undefined) return FINAL
  if (verdict.says === 'notMaster') return { kind: 'notMaster', error, hint: verdict.hint }
  return { kind: 'unusable', error, reason: verdict.reason, isService: true }
}

function readBoxError(attempt: Attempt, error: BoxError): Signal {
  const { boxCode, executed, message } = error
  const isCode = attempt.requestClass === 'code'
  switch (boxCode) {
    case ErrorCode.readonly:
      // A statement inside a function, or on a server it called: only a plain statement's refusal proves itself.
      if (isCode) return { kind: 'codeRefused', error, ...leaderIn(error) }
      return executed === 'no' ? { kind: 'statementRefused', error, ...leaderIn(error) } : FINAL
    case ErrorCode.loading:
    case ErrorCode.unconfigured:
    case ErrorCode.shutdown:
      if (executed === 'no') return { kind: 'notReady', error, reason: message }
      return isCode && attempt.idempotent ? { kind: 'notReady', error, reason: message } : FINAL
    case ErrorCode.accessDenied:
    case ErrorCode.noSuchProc:
      return { kind: 'unusable', error, reason: message, isService: false }
    default:
      return FINAL
  }
}

/** Names in errors are a reason to look there, never a claim. Fields: `iproto.md` 5.4, seen on 3.2.1. */
function leaderIn(error: BoxError): { readonly term: number | undefined; readonly hint: string | undefined } {
  const { fields } = error
  const term = fields.get('term')
  const uuid = fields.get('leader_uuid') ?? fields.get('queue_owner_uuid')
  return {
    // The term of a synchronous queue is that of its owner, not of the newest election.
    term: fields.get('reason') === 'election' && typeof term === 'number' ? term : undefined,
    hint: uuidText(uuid),
  }
}

const UNREACHABLE = [ConnectionLostError, ConnectError, ConnectionClosedError] as const
