/**
 * Asking an instance who it is, where no events say it: servers before 2.10, and those whose events say nothing usable. The
 * dialect's own question comes first, then `box.info`. A question the instance refuses (no rights, no such procedure) is not
 * asked again on this connection for a while; the pauses grow, since a missing grant may stay missing for days.
 */
import type { ReplySink } from '@orbweaver/connection'
import {
  BoxError,
  callRequest,
  decodeData,
  ErrorCode,
  isOrbweaverError,
  type OrbweaverError,
  type Reply,
  type Request,
} from '@orbweaver/iproto'
import type { Dialect } from './attempt.js'
import { type PollValue, readBoxInfo } from './status-events.js'

/** One way to ask. */
export interface PollMethod {
  readonly name: string
  request(): Request
  /** undefined: an unexpected shape. */
  read(reply: Reply): PollValue | undefined
}

/** CALL `box.info`: needs execute on universe, works on every version. */
const boxInfoPoll: PollMethod = {
  name: 'box.info',
  request: () => callRequest('box.info'),
  read: (reply) => readBoxInfo(decodeData(reply)[0]),
}

function dialectPoll(dialect: Dialect): PollMethod {
  return {
    name: 'dialect',
    request: () => dialect.poll.request(),
    read: (reply) => {
      const value = dialect.poll.read(reply)
      return value === undefined ? undefined : { isRo: !value.isMaster, term: undefined, identity: undefined }
    },
  }
}

/** Which questions an instance still answers; one object per generation of its connection. */
export class PollMethods {
  readonly #methods: readonly PollMethod[]
  readonly #refused = new Set<PollMethod>()
  #pauseMs = FIRST_PAUSE_MS
  #resumeMs = Number.NEGATIVE_INFINITY

  constructor(dialect: Dialect | undefined) {
    this.#methods = dialect === undefined ? [boxInfoPoll] : [dialectPoll(dialect), boxInfoPoll]
  }

  /** The question to ask now; undefined: none is answered, and it is too early to try again. */
  next(nowMs: number): PollMethod | undefined {
    const usable = this.#methods.find((method) => !this.#refused.has(method))
    if (usable !== undefined) return usable
    if (nowMs < this.#resumeMs) return undefined
    this.#refused.clear()
    return this.#methods[0]
  }

  worked(): void {
    this.#pauseMs = FIRST_PAUSE_MS
  }

  /** @returns whether the method is refused for the first time, which is worth a line in the log */
  failed(method: PollMethod, error: OrbweaverError, nowMs: number): boolean {
    if (!(error instanceof BoxError) || !REFUSALS.has(error.boxCode)) return false
    const isNews = !this.#refused.has(method)
    this.#refused.add(method)
    if (this.#refused.size === this.#methods.length) {
      this.#resumeMs = nowMs + this.#pauseMs
      this.#pauseMs = Math.min(this.#pauseMs * 2, LONGEST_PAUSE_MS)
    }
    return isNews
  }
}

/** One poll under way. */
export class Poll implements ReplySink {
  readonly method: PollMethod
  readonly look: number
  readonly #told: (poll: Poll, outcome: PollValue | OrbweaverError | undefined) => void

  constructor(
    method: PollMethod,
    look: number,
    told: (poll: Poll, outcome: PollValue | OrbweaverError | undefined) => void,
  ) {
    this.method = method
    this.look = look
    this.#told = told
  }

  done(reply: Reply): void {
    let value: PollValue | OrbweaverError | undefined
    try {
      value = this.method.read(reply)
    } catch (error) {
      if (!isOrbweaverError(error)) throw error
      value = error
    }
    this.#told(this, value)
  }

  failed(error: OrbweaverError): void {
    this.#told(this, error)
  }
}

/** No rights, no such procedure, a service the instance does not know. */
const REFUSALS: ReadonlySet<number> = new Set([ErrorCode.accessDenied, ErrorCode.noSuchProc, ErrorCode.procLua])
const FIRST_PAUSE_MS = 1_000
const LONGEST_PAUSE_MS = 60_000
