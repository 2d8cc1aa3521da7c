/** The errors of requests that the connection itself ends, worded alike everywhere. Pure. */
import {
  type Executed,
  InvalidArgumentError,
  isOrbweaverError,
  type OrbweaverError,
  RequestType,
} from '@orbweaver/iproto'
import {
  AuthError,
  ConnectError,
  ConnectionClosedError,
  ConnectionLostError,
  RequestAbortedError,
  RequestTimeoutError,
} from './errors.js'
import type { Pending } from './pending.js'

/**
 * The end that many requests share. Two errors serve them all, one for those that were written and one for the others:
 * a broken connection with thousands of requests must not cost thousands of stack traces.
 */
export class SharedFate {
  readonly #cause: OrbweaverError
  readonly #peer: string
  #written: OrbweaverError | undefined
  #unwritten: OrbweaverError | undefined

  constructor(cause: OrbweaverError, peer: string) {
    this.#cause = cause
    this.#peer = peer
  }

  of(pending: Pending): OrbweaverError {
    if (pending.written) return (this.#written ??= this.#error('unknown'))
    return (this.#unwritten ??= this.#error('no'))
  }

  #error(executed: Executed): OrbweaverError {
    const cause = this.#cause
    if (cause.executed === executed && SELF_EXPLAINING.some((type) => cause instanceof type)) return cause
    if (cause instanceof ConnectionClosedError)
      return new ConnectionClosedError(cause.message, { executed, ...causeOf(cause) })
    if (cause instanceof ConnectionLostError)
      return new ConnectionLostError(cause.message, { executed, ...causeOf(cause) })
    return new ConnectionLostError(`The connection to ${this.#peer} broke: ${cause.message}`, { executed, cause })
  }
}

/** The error of a request that is sent while no attempt to connect will follow. */
export function notConnected(peer: string, cause: OrbweaverError): OrbweaverError {
  if (cause instanceof ConnectError || cause instanceof AuthError) return cause
  return new ConnectError(`Not connected to ${peer}, and no attempt to reconnect is left: ${cause.message}`, {
    stage: 'dial',
    peer,
    cause,
  })
}

export function abortedError(type: number, reason: unknown, wasWritten: boolean): RequestAbortedError {
  return new RequestAbortedError(
    `${requestName(type)} was aborted by its caller${wasWritten ? '' : ' before it was sent'}`,
    {
      executed: wasWritten ? 'unknown' : 'no',
      cause: reason,
    },
  )
}

/**
 * @param obstacle - why it was not sent, for one that was not
 * @param cause - the error behind the obstacle
 */
export function timeoutError(
  pending: Pending,
  peer: string,
  obstacle: string,
  cause: OrbweaverError | undefined,
): RequestTimeoutError {
  const what = requestName(pending.type)
  if (pending.written)
    return new RequestTimeoutError(`${what} timed out: no answer from ${peer}`, { executed: 'unknown' })
  return new RequestTimeoutError(`${what} timed out before it was sent: ${cause?.message ?? obstacle}`, {
    executed: 'no',
    ...(cause === undefined ? {} : { cause }),
  })
}

/** What encoding threw, as an error that says that nothing was sent. */
export function asOrbweaverError(error: unknown): OrbweaverError {
  if (isOrbweaverError(error)) return error
  return new InvalidArgumentError(
    `A request could not be encoded: ${error instanceof Error ? error.message : String(error)}`,
    { cause: error },
  )
}

/** `SELECT`, for messages. */
export function requestName(type: number): string {
  return NAMES.get(type) ?? `Request of type ${String(type)}`
}

function causeOf(error: OrbweaverError): { cause?: unknown } {
  return error.cause === undefined ? {} : { cause: error.cause }
}

const SELF_EXPLAINING = [ConnectError, AuthError, ConnectionClosedError, ConnectionLostError] as const
const NAMES: ReadonlyMap<number, string> = new Map(
  Object.entries(RequestType).map(([name, type]) => [type, name.replaceAll(/[A-Z]/g, '_$&').toUpperCase()]),
)
