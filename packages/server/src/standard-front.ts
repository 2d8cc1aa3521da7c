/*
 * What every IPROTO server answers alike: PING, ID, AUTH, WATCH, UNWATCH, WATCH_ONCE. A storage stands behind it; a proxy,
 * which forwards most of these, is a SessionHandler of its own.
 * Facts: Tarantool 2.6.0 and 3.2.1 (a failed AUTH keeps the connection and the previous user; 47 for an unknown user, a
 * wrong password and an account without one; guest logs in with an empty proof at any time).
 */
import { replyError } from './error-reply.js'
import { authRules } from './handshake.js'
import type { UserSource } from './handshake.js'
import {
  BodyReader,
  BoxError,
  ErrorCode,
  type FrameWriter,
  isOrbweaverError,
  Key,
  RequestType,
} from '@orbweaver/iproto'
import type { Clock, Transport } from '@orbweaver/connection'
import type { ClientSession, InboundFrame, SessionHandler } from './session.js'
import type { WatchHub } from './watch-hub.js'

export interface StandardFrontParts {
  readonly users: UserSource
  /** What ID may agree on. */
  readonly features: ReadonlySet<number>
  readonly watches: WatchHub
  /** What replies carry; stable and not 0, because clients reload their schema when it changes. Default 1. */
  readonly schemaVersion?: () => number
  /** Failed logins of one session before it is closed. Default 10. */
  readonly maxFailedLogins?: number
  /** With it, every failed login of a session but the first is answered later and later, from 50 ms to 1 s. Default: at once. */
  readonly clock?: Clock
}

/** Answers what it knows and hands the rest to `next`, whose `greet`, `drain` and `closed` it passes on. */
export function standardFront(parts: StandardFrontParts, next: SessionHandler): SessionHandler {
  return new Front(parts, next)
}

/** Types that may not travel inside a stream: error 229. */
const NOT_IN_STREAM: ReadonlySet<number> = new Set([
  RequestType.id,
  RequestType.auth,
  RequestType.watch,
  RequestType.unwatch,
  RequestType.watchOnce,
])

/** The protocol version with which each feature came, by the feature's number (iproto.md 7). */
const VERSION_OF_FEATURE = [1, 1, 2, 3, 4, 5, 6, 7, 7, 7, 8, 9, 10] as const

function versionOfFeatures(features: ReadonlySet<number>): number {
  return Math.max(0, ...[...features].map((feature) => VERSION_OF_FEATURE[feature] ?? 0))
}

const FIRST_LOGIN_DELAY_MS = 50
const LONGEST_LOGIN_DELAY_MS = 1_000

class Front implements SessionHandler {
  readonly #parts: StandardFrontParts
  readonly #next: SessionHandler
  readonly #version: number
  readonly #failedLogins = new WeakMap<ClientSession, number>()

  constructor(parts: StandardFrontParts, next: SessionHandler) {
    this.#parts = parts
    this.#next = next
    this.#version = versionOfFeatures(parts.features)
  }

  greet(transport: Transport): Promise<{ version: string; uuid: string; salt: Uint8Array }> {
    return this.#next.greet(transport)
  }

  opened(session: ClientSession): void {
    this.#next.opened?.(session)
  }

  frame(session: ClientSession, frame: InboundFrame): void {
    const isStream = frame.streamId !== 0
    if (isStream && NOT_IN_STREAM.has(frame.type)) {
      this.#fail(
        session,
        frame,
        BoxError.of(ErrorCode['unableToProcessInStream'], `Unable to process request type ${frame.type} in stream`),
      )
      return
    }
    try {
      switch (frame.type) {
        case RequestType.ping:
          if (isStream) break // it takes its place in the order of the stream
          this.#ok(session, frame)
          return
        case RequestType.id:
          this.#identify(session, frame)
          return
        case RequestType.auth:
          this.#login(session, frame)
          return
        case RequestType.watch:
          this.#parts.watches.watch(session, eventKey(frame), frame.syncHigh, frame.syncLow)
          return
        case RequestType.unwatch:
          this.#parts.watches.unwatch(session, eventKey(frame))
          return
        case RequestType.watchOnce:
          this.#watchOnce(session, frame)
          return
        default:
          break
      }
    } catch (error) {
      this.#fail(session, frame, asBoxError(error))
      return
    }
    this.#next.frame(session, frame)
  }

  drain(session: ClientSession): void {
    this.#next.drain?.(session)
  }

  closed(session: ClientSession, cause: Error | undefined): void {
    this.#parts.watches.drop(session)
    this.#next.closed(session, cause)
  }

  /* ID (0x49): 0x54 VERSION uint, 0x55 FEATURES array of uint; the reply adds 0x5b AUTH_TYPE. An absent body is error 20. */
  #identify(session: ClientSession, frame: InboundFrame): void {
    if (frame.body.length === 0) throw BoxError.of(ErrorCode['invalidMsgpack'], 'Invalid MsgPack - request body')
    const body = new BodyReader(frame.body)
    body.uint(Key.version)
    const wanted = body.array(Key.features) ?? []
    session.features = new Set(
      wanted.filter((feature): feature is number => typeof feature === 'number' && this.#parts.features.has(feature)),
    )
    const writer = this.#begin(session, frame)
    writer.mapHeader(3)
    writer.uint(Key.version)
    writer.uint(this.#version)
    writer.uint(Key.features)
    writer.value([...this.#parts.features].toSorted((a, b) => a - b))
    writer.uint(Key.authType)
    writer.text('chap-sha1')
    session.written(writer.end())
  }

  #login(session: ClientSession, frame: InboundFrame): void {
    const body = new BodyReader(frame.body)
    const user = body.requireText(Key.userName)
    const refusal = authRules(user, body, session.salt, this.#parts.users)
    if (refusal === undefined) {
      session.user = user
      this.#failedLogins.delete(session)
      this.#ok(session, frame)
      return
    }
    const failed = (this.#failedLogins.get(session) ?? 0) + 1
    this.#failedLogins.set(session, failed)
    const answer = (): void => {
      this.#fail(session, frame, refusal)
      if (failed >= (this.#parts.maxFailedLogins ?? 10)) session.close()
    }
    const { clock } = this.#parts
    if (clock === undefined || failed === 1) {
      answer()
      return
    }
    // Guessing is slowed down, the first slip of a person is not; nothing else of the session is read meanwhile.
    session.pauseReading()
    clock.schedule(Math.min(FIRST_LOGIN_DELAY_MS * 2 ** (failed - 2), LONGEST_LOGIN_DELAY_MS), () => {
      answer()
      session.resumeReading()
    })
  }

  #watchOnce(session: ClientSession, frame: InboundFrame): void {
    const value = this.#parts.watches.value(eventKey(frame))
    const writer = this.#begin(session, frame)
    writer.mapHeader(1)
    writer.uint(Key.data)
    writer.arrayHeader(value === undefined ? 0 : 1)
    if (value !== undefined) writer.raw(value)
    session.written(writer.end())
  }

  #begin(session: ClientSession, frame: InboundFrame): FrameWriter {
    const writer = session.writer()
    writer.beginReply(RequestType.ok, frame.syncHigh, frame.syncLow, this.#schemaVersion())
    return writer
  }

  #ok(session: ClientSession, frame: InboundFrame): void {
    const writer = this.#begin(session, frame)
    writer.mapHeader(0)
    session.written(writer.end())
  }

  #fail(session: ClientSession, frame: InboundFrame, error: BoxError): void {
    replyError(session, frame, error, this.#schemaVersion())
  }

  #schemaVersion(): number {
    return this.#parts.schemaVersion?.() ?? 1
  }
}

function eventKey(frame: InboundFrame): string {
  return new BodyReader(frame.body).requireText(Key.eventKey)
}

/** A request of the client that we could not read is its error, not ours: 20; anything else is a fault of ours and goes up. */
function asBoxError(error: unknown): BoxError {
  if (error instanceof BoxError) return error
  if (isOrbweaverError(error)) return BoxError.of(ErrorCode['invalidMsgpack'], `Invalid MsgPack - ${error.message}`)
  throw error
}
