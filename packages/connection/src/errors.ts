import { OrbweaverError } from '@orbweaver/iproto'

/** How far an attempt to connect had come. */
export type ConnectStage = 'dial' | 'greeting' | 'id' | 'auth'

/** No usable connection: refused, unreachable, not a Tarantool, or too slow. Nothing was executed. `cause` is the system's error. */
export class ConnectError extends OrbweaverError {
  readonly code = 'ORB_CONNECT' as const
  /** The step that failed or stalled. */
  readonly stage: ConnectStage
  /** The address as people write it, without credentials. */
  readonly peer: string

  constructor(message: string, options: ErrorOptions & { readonly stage: ConnectStage; readonly peer: string }) {
    super(message, { ...options, executed: 'no' })
    this.stage = options.stage
    this.peer = options.peer
  }
}

/** The server refused the login. `cause` is its answer, a `BoxError` (usually 47). The socket was closed: nothing ran as somebody else. */
export class AuthError extends OrbweaverError {
  readonly code = 'ORB_AUTH' as const
  readonly user: string
  readonly peer: string

  constructor(message: string, options: ErrorOptions & { readonly user: string; readonly peer: string }) {
    super(message, { ...options, executed: 'no' })
    this.user = options.user
    this.peer = options.peer
  }
}

/** The connection broke while the request was outstanding. `unknown` once it was written, else `no`. `cause` says why it broke. */
export class ConnectionLostError extends OrbweaverError {
  readonly code = 'ORB_CONNECTION_LOST' as const
}

/**
 * No answer within the request's timeout. `unknown` once it was written: the server goes on working on it and its answer
 * is dropped. `no` when it never left; `cause` then says what kept the connection away, if anything did.
 */
export class RequestTimeoutError extends OrbweaverError {
  readonly code = 'ORB_REQUEST_TIMEOUT' as const
}

/** The caller's `AbortSignal` fired; `cause` is its reason. `unknown` once the request was written, else `no`. */
export class RequestAbortedError extends OrbweaverError {
  readonly code = 'ORB_REQUEST_ABORTED' as const
}

/** The caller closed the connection. `unknown` for a request that was written, else `no`. */
export class ConnectionClosedError extends OrbweaverError {
  readonly code = 'ORB_CONNECTION_CLOSED' as const
}

/** More requests wait for the connection than `maxQueued` or `maxQueuedBytes` allow. Nothing was sent. */
export class QueueFullError extends OrbweaverError {
  readonly code = 'ORB_QUEUE_FULL' as const

  constructor(message: string) {
    super(message, { executed: 'no' })
  }
}

/** A space name that the schema of this moment does not have (or the user may not see). `cause` is the server's answer if it gave one. */
export class NoSuchSpaceError extends OrbweaverError {
  readonly code = 'ORB_NO_SUCH_SPACE' as const
  readonly space: string

  constructor(space: string, options?: ErrorOptions) {
    super(`Space '${space}' does not exist`, { ...options, executed: 'no' })
    this.space = space
  }
}

/** An index name that the space does not have. `cause` is the server's answer if it gave one. */
export class NoSuchIndexError extends OrbweaverError {
  readonly code = 'ORB_NO_SUCH_INDEX' as const
  readonly space: string
  readonly index: string

  constructor(space: string, index: string, options?: ErrorOptions) {
    super(`Index '${index}' of space '${space}' does not exist`, { ...options, executed: 'no' })
    this.space = space
    this.index = index
  }
}
