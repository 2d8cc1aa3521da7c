/*
 * Errors the proxy makes itself. Clients get them as box errors with Tarantool's own numbers and texts, so that old clients
 * cope; the fields `proxy`, `sent` and `target` tell newer ones what happened and whether the request may have run.
 */
import { BoxError, ErrorCode, errorCodeName, OrbweaverError } from '@orbweaver/iproto'

/** Why the proxy answered in the place of a target. Closed list: it is a metric label and the field `proxy` of the error. */
export const REASON = {
  laneLost: 'lane_lost',
  noTarget: 'no_target',
  connectFailed: 'connect_failed',
  requestTimeout: 'request_timeout',
  pausedTooLong: 'paused_too_long',
  streamBroken: 'stream_broken',
  streamsUnsupported: 'streams_unsupported',
  tooManyTransactions: 'too_many_transactions',
  replication: 'replication',
  unknownType: 'unknown_type',
  malformed: 'malformed',
  badLogin: 'bad_login',
  staleLogin: 'stale_login',
  wrongStatement: 'wrong_statement',
  tooManyPinned: 'too_many_pinned',
  tooManyClients: 'too_many_clients',
  missingFeature: 'missing_feature',
  shutdown: 'shutdown',
  tooManyWatches: 'too_many_watches',
  readonly: 'readonly',
  notServed: 'not_served',
} as const
export type Reason = (typeof REASON)[keyof typeof REASON]

/** What an error of the proxy says beside its code and text. */
interface ProxyErrorDetails {
  readonly reason: Reason
  /** Whether any byte of the request was given to a target. */
  readonly sent: boolean
  readonly target?: string
}

/** One box error of the proxy's own. */
function proxyError(boxCode: number, message: string, details: ProxyErrorDetails): BoxError {
  const fields = new Map<string, unknown>([
    ['name', errorCodeName(boxCode)],
    ['proxy', details.reason],
    ['sent', details.sent],
  ])
  if (details.target !== undefined) fields.set('target', details.target)
  return BoxError.of(boxCode, message, {
    file: 'orbweaver-proxy',
    executed: details.sent ? 'unknown' : 'no',
    fields,
  })
}

/** The reason in an error of the proxy's own; `target` for one that a target gave. */
export function reasonOf(error: BoxError): string {
  const reason = error.fields?.get('proxy')
  return typeof reason === 'string' ? reason : 'target'
}

/** Texts begin as Tarantool's do. */
export const proxyErrors = {
  laneLost: (target: string, why: string): BoxError =>
    proxyError(
      ErrorCode.noConnection,
      `Connection is not established: target ${target} was lost with this request in flight (outcome unknown): ${why}`,
      { reason: REASON.laneLost, sent: true, target },
    ),
  notReached: (target: string, why: string): BoxError =>
    proxyError(ErrorCode.noConnection, `Connection is not established: target ${target} cannot be reached: ${why}`, {
      reason: REASON.connectFailed,
      sent: false,
      target,
    }),
  noTarget: (): BoxError =>
    proxyError(ErrorCode.noConnection, 'Connection is not established: no target is set for writing (setRw)', {
      reason: REASON.noTarget,
      sent: false,
    }),
  requestTimeout: (target: string): BoxError =>
    proxyError(ErrorCode.timeout, 'Timeout exceeded', { reason: REASON.requestTimeout, sent: true, target }),
  pausedTooLong: (waitMs: number): BoxError =>
    proxyError(ErrorCode.timeout, `Timeout exceeded: the proxy was paused for more than ${waitMs} ms`, {
      reason: REASON.pausedTooLong,
      sent: false,
    }),
  streamBroken: (why: string): BoxError =>
    proxyError(ErrorCode.transactionConflict, `Transaction has been aborted by conflict: ${why}`, {
      reason: REASON.streamBroken,
      sent: false,
    }),
  streamsUnsupported: (target: string): BoxError =>
    proxyError(ErrorCode.unsupported, `Target ${target} does not support streams`, {
      reason: REASON.streamsUnsupported,
      sent: false,
      target,
    }),
  tooManyTransactions: (limit: number): BoxError =>
    proxyError(ErrorCode.unsupported, `Proxy does not support more than ${limit} open transactions on one connection`, {
      reason: REASON.tooManyTransactions,
      sent: false,
    }),
  replication: (): BoxError =>
    proxyError(ErrorCode.unsupported, 'Proxy does not support replication requests', {
      reason: REASON.replication,
      sent: false,
    }),
  unknownType: (type: number): BoxError =>
    proxyError(ErrorCode.unknownRequestType, `Unknown request type ${type}`, {
      reason: REASON.unknownType,
      sent: false,
    }),
  notInStream: (type: number): BoxError =>
    proxyError(ErrorCode.unableToProcessInStream, `Unable to process request type ${type} in stream`, {
      reason: REASON.malformed,
      sent: false,
    }),
  malformed: (what: string): BoxError =>
    proxyError(ErrorCode.invalidMsgpack, `Invalid MsgPack - ${what}`, { reason: REASON.malformed, sent: false }),
  loginsUnknown: (why: string): BoxError =>
    proxyError(ErrorCode.noConnection, `Connection is not established: users cannot be looked up: ${why}`, {
      reason: REASON.connectFailed,
      sent: false,
    }),
  badLogin: (): BoxError =>
    proxyError(ErrorCode.credsMismatch, 'User not found or supplied credentials are invalid', {
      reason: REASON.badLogin,
      sent: false,
    }),
  staleLogin: (): BoxError =>
    proxyError(ErrorCode.credsMismatch, 'User not found or supplied credentials are invalid', {
      reason: REASON.staleLogin,
      sent: false,
    }),
  wrongStatement: (id: number): BoxError =>
    proxyError(ErrorCode.wrongQueryId, `Prepared statement with id ${id} does not exist`, {
      reason: REASON.wrongStatement,
      sent: false,
    }),
  tooManyPinned: (limit: number): BoxError =>
    proxyError(
      ErrorCode.unsupported,
      `Proxy does not support more than ${limit} clients with a connection of their own`,
      {
        reason: REASON.tooManyPinned,
        sent: false,
      },
    ),
  tooManyClients: (what: string): BoxError =>
    proxyError(ErrorCode.unsupported, `Proxy does not support more than ${what}`, {
      reason: REASON.tooManyClients,
      sent: false,
    }),
  missingFeature: (target: string, features: string): BoxError =>
    proxyError(ErrorCode.unsupported, `Target ${target} does not support ${features}, which this client was promised`, {
      reason: REASON.missingFeature,
      sent: false,
      target,
    }),
  tooManyWatches: (limit: number): BoxError =>
    proxyError(ErrorCode.unsupported, `Proxy does not support more than ${limit} watched keys of one client`, {
      reason: REASON.tooManyWatches,
      sent: false,
    }),
  /** Something went wrong in this process, and nobody knows how far it came. */
  notServed: (error: unknown): BoxError =>
    proxyError(ErrorCode.procLua, error instanceof Error ? error.message : String(error), {
      reason: REASON.notServed,
      sent: true,
    }),
  readonly: (target: string): BoxError =>
    proxyError(ErrorCode.readonly, "Can't modify data on a read-only instance", {
      reason: REASON.readonly,
      sent: false,
      target,
    }),
  shutdown: (): BoxError =>
    proxyError(ErrorCode.shutdown, 'Server is shutting down', { reason: REASON.shutdown, sent: false }),
} as const

/** A name that is no target of this proxy. Nothing was changed. */
export class UnknownTargetError extends OrbweaverError {
  readonly code = 'ORB_UNKNOWN_TARGET' as const
  readonly target: string

  constructor(target: string, known: readonly string[]) {
    super(`This proxy has no target '${target}'; it has ${known.join(', ') || 'none'}`, { executed: 'no' })
    this.target = target
  }
}

/** A target that cannot be reached or cannot serve the clients there are. Nothing was changed. `cause` says why. */
export class TargetUnavailableError extends OrbweaverError {
  readonly code = 'ORB_TARGET_UNAVAILABLE' as const
  readonly target: string
  /** Clients that were promised something the target lacks, by their numbers. */
  readonly clients: readonly number[]

  constructor(target: string, why: string, options: ErrorOptions & { readonly clients?: readonly number[] } = {}) {
    super(`Target ${target} cannot be used: ${why}`, { ...options, executed: 'no' })
    this.target = target
    this.clients = options.clients ?? []
  }
}

/** The new target did not become writable in time. */
export class NotWritableError extends OrbweaverError {
  readonly code = 'ORB_NOT_WRITABLE' as const
  readonly target: string

  constructor(target: string, waitedMs: number) {
    super(`Target ${target} is still read-only after ${Math.round(waitedMs)} ms`, { executed: 'no' })
    this.target = target
  }
}
