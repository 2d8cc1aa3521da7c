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
  repetition: Repetition | undefined
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
    const repetition = this.repetition
    if (repetition === undefined) this.#reject(error)
    else if (!repetition.again(error, this)) this.#reject(repetition.explain(error))
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

export interface RepetitionParts {
  readonly request: Request
  /** Sends the same request again with the deadline it had. */
  readonly send: (request: Request, sink: ReplySink) => void
  /** Names that were looked up in the schema. */
  readonly target: Target | undefined
  /** Whether a newer schema than the one used is known by now. */
  readonly isSchemaStale: () => boolean
  /** Whether refused names may be looked up and sent again: not inside a stream. */
  readonly mayResolveAgain: boolean
  /** The caller declared that running it twice does no harm. */
  readonly isIdempotent: boolean
}

/**
 * The two reasons to send a request again: the server refused names that had been looked up in an older schema (it surely
 * did nothing), or the connection broke and the caller declared the request repeatable. Both are bounded.
 */
export class Repetition {
  readonly #parts: RepetitionParts
  #resolutions = 0
  #isRepeated = false

  constructor(parts: RepetitionParts) {
    this.#parts = parts
  }

  again(error: OrbweaverError, sink: ReplySink): boolean {
    if (!this.#isWorthResolving(error) && !this.#isWorthRepeating(error)) return false
    this.#parts.send(this.#parts.request, sink)
    return true
  }

  /** The server's words about an unknown id as the error about the name it stood for. */
  explain(error: OrbweaverError): OrbweaverError {
    const { target } = this.#parts
    if (target === undefined || !(error instanceof BoxError)) return error
    if (error.boxCode === ErrorCode.noSuchSpace && typeof target.space === 'string')
      return new NoSuchSpaceError(target.space, { cause: error })
    const isIndexMissing = error.boxCode === ErrorCode.noSuchIndexId || error.boxCode === ErrorCode.noSuchIndexName
    if (isIndexMissing && typeof target.index === 'string')
      return new NoSuchIndexError(String(target.space), target.index, { cause: error })
    return error
  }

  #isWorthResolving(error: OrbweaverError): boolean {
    const { request, mayResolveAgain, isSchemaStale } = this.#parts
    if (!(request instanceof LateRequest) || !request.wasLookedUp || !mayResolveAgain || !(error instanceof BoxError))
      return false
    const { boxCode } = error
    if (boxCode !== ErrorCode.wrongSchemaVersion && !(NAME_ERRORS.has(boxCode) && isSchemaStale())) return false
    this.#resolutions += 1
    return this.#resolutions <= MAX_RESOLUTIONS
  }

  #isWorthRepeating(error: OrbweaverError): boolean {
    if (!this.#parts.isIdempotent || this.#isRepeated) return false
    if (!(error instanceof ConnectionLostError) || error.executed !== 'unknown') return false
    this.#isRepeated = true
    return true
  }
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
