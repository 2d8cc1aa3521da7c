/** A request made by a method users call: the one place where a promise meets the callback path inside. */
import {
  BoxError,
  type DecodeOptions,
  decodeData,
  ErrorCode,
  MalformedFrameError,
  OrbweaverError,
  type Reply,
  type Request,
} from '@orbweaver/iproto'
import { ConnectionLostError, NoSuchIndexError, NoSuchSpaceError } from './errors.js'
import { LateRequest, type Target } from './late-request.js'
import type { ReplySink } from './pending.js'
import { surface } from './surface.js'

/** How a reply becomes what the method promised. */
export type ReadReply<T> = (reply: Reply, decode: DecodeOptions | undefined) => T

export class UserRequest<T> implements ReplySink {
  onPush: ((value: unknown) => void) | undefined
  readonly #resolve: (value: T) => void
  readonly #reject: (error: OrbweaverError) => void
  readonly #read: ReadReply<T>
  readonly #decode: DecodeOptions | undefined

  constructor(
    resolve: (value: T) => void,
    reject: (error: OrbweaverError) => void,
    read: ReadReply<T>,
    decode: DecodeOptions | undefined,
  ) {
    this.#resolve = resolve
    this.#reject = reject
    this.#read = read
    this.#decode = decode
  }

  done(reply: Reply): void {
    let value: T
    try {
      value = this.#read(reply, this.#decode)
    } catch (error) {
      this.#reject(unreadable(error))
      return
    }
    this.#resolve(value)
  }

  failed(error: OrbweaverError): void {
    this.#reject(error)
  }

  push(reply: Reply): void {
    if (this.onPush === undefined) return
    let message: unknown[]
    try {
      message = decodeData(reply, this.#decode)
    } catch (error) {
      this.#reject(unreadable(error))
      return
    }
    try {
      this.onPush(message[0])
    } catch (error) {
      surface(error)
    }
  }
}

/** Where a request is sent again. */
export interface RepetitionHost {
  /** Whether refused names may be looked up and sent again: not inside a stream. */
  readonly mayResolveAgain: boolean
  /** Whether a newer schema than the one used is known by now. */
  isSchemaStale(): boolean
  send(request: Request, deadline: number, signal: AbortSignal | undefined, sink: ReplySink): void
}

export interface Repetition {
  readonly host: RepetitionHost
  readonly request: Request
  /** Holds for all repetitions together. */
  readonly deadline: number
  readonly signal: AbortSignal | undefined
  /** The caller declared that running it twice does no harm. */
  readonly isIdempotent: boolean
}

/**
 * A request that may be sent again, for one of two reasons: the server refused names that had been looked up in an older
 * schema (it surely did nothing), or the connection broke and the caller declared the request repeatable. Both are bounded.
 */
export class RepeatableRequest<T> extends UserRequest<T> {
  repetition: Repetition | undefined
  #resolutions = 0
  #isRepeated = false

  override failed(error: OrbweaverError): void {
    const { repetition } = this
    if (repetition === undefined) {
      super.failed(error)
      return
    }
    const { host, request, deadline, signal } = repetition
    if (this.#isWorthResolving(error, repetition) || this.#isWorthRepeating(error, repetition)) {
      host.send(request, deadline, signal, this)
    } else {
      super.failed(request instanceof LateRequest ? explained(error, request.target) : error)
    }
  }

  #isWorthResolving(error: OrbweaverError, { host, request }: Repetition): boolean {
    if (!(error instanceof BoxError) || !(request instanceof LateRequest)) return false
    if (!request.wasLookedUp || !host.mayResolveAgain) return false
    const { boxCode } = error
    if (boxCode !== ErrorCode.wrongSchemaVersion && !(NAME_ERRORS.has(boxCode) && host.isSchemaStale())) return false
    this.#resolutions += 1
    return this.#resolutions <= MAX_RESOLUTIONS
  }

  #isWorthRepeating(error: OrbweaverError, { isIdempotent }: Repetition): boolean {
    if (!isIdempotent || this.#isRepeated) return false
    if (!(error instanceof ConnectionLostError) || error.executed !== 'unknown') return false
    this.#isRepeated = true
    return true
  }
}

/** The server's words about an unknown id as the error about the name it stood for. */
function explained(error: OrbweaverError, target: Target | undefined): OrbweaverError {
  if (target === undefined || !(error instanceof BoxError)) return error
  const { space, index } = target
  if (error.boxCode === ErrorCode.noSuchSpace && typeof space === 'string') {
    return new NoSuchSpaceError(space, { cause: error })
  }
  const isIndexMissing = error.boxCode === ErrorCode.noSuchIndexId || error.boxCode === ErrorCode.noSuchIndexName
  if (isIndexMissing && typeof index === 'string') return new NoSuchIndexError(String(space), index, { cause: error })
  return error
}

/** The answer came, so the request ran, whatever became of its data. */
function unreadable(error: unknown): OrbweaverError {
  if (error instanceof OrbweaverError && error.executed === 'yes') return error
  const message = error instanceof Error ? error.message : String(error)
  return new MalformedFrameError(`The answer cannot be read: ${message}`, { executed: 'yes', cause: error })
}

const NAME_ERRORS: ReadonlySet<number> = new Set([
  ErrorCode.noSuchIndexId,
  ErrorCode.noSuchSpace,
  ErrorCode.noSuchIndexName,
])
/** A schema that changes faster than this is a migration; the last answer of the server is the truth then. */
const MAX_RESOLUTIONS = 8
