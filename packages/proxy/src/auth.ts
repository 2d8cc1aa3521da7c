/*
 * Logins. The client proves that it knows the password to a salt of the proxy's; from the proof and the stored hash comes
 * what it takes to log in to a target with the target's salt, without the password ever being seen:
 *   x = proof xor sha1(salt ++ hash2); the proof is right when sha1(x) = hash2, and x is sha1(password) then.
 * Whoever holds a login's lane is no proof of today's password, so every login is confirmed by the target as well.
 * Facts: Tarantool 2.6.0 and 3.2.1 (AUTH may be repeated on a live session; refused, it leaves user and calls unharmed).
 */
import type { Clock } from '@orbweaver/connection'
import {
  authRequest,
  BodyReader,
  BoxError,
  ByteString,
  chapSha1FromHash1,
  ErrorCode,
  FrameHeader,
  isOrbweaverError,
  Key,
  readError,
  RequestType,
  verifyChapSha1,
} from '@orbweaver/iproto'
import { proxyErrors } from './errors.js'
import type { LaneAnswer, LaneUser, Lane } from './lane.js'
import type { LaneGroup } from './lane-group.js'
import type { Login, Logins } from './login.js'
import { bodyOf } from './reply.js'
import type { Target } from './target.js'

/** When a login that the proxy found right is shown to a target as well. */
export type VerifyPolicy = 'always' | 'ttl' | 'never'

/** Where sha1(sha1(password)) of a user comes from. */
export interface CredentialSource {
  /** undefined: no such user, or one without a password. */
  hash2(user: string): Promise<Uint8Array | undefined> | Uint8Array | undefined
  /** What was looked up may be old: looks again. Absent where that changes nothing. */
  refresh?(user: string): Promise<Uint8Array | undefined>
  /** In the place of `hash2`: the storage itself judges. @returns sha1(password), or its refusal */
  prove?(proof: Proof): Promise<Uint8Array | BoxError>
  /** The salt to greet the next client with. Absent: any random one. */
  salt?(): Promise<Uint8Array>
  /** A client was greeted with this salt. */
  claim?(salt: Uint8Array): void
  /** That client has gone. */
  release?(salt: Uint8Array): void
  close?(): void
}

/** What a client sent to log in. */
export interface Proof {
  readonly user: string
  readonly proof: Uint8Array
  /** It was greeted with. */
  readonly salt: Uint8Array
  /** Of its AUTH. */
  readonly body: Buffer
}

/** Users and their hashes as Tarantool keeps them: base64 of 20 bytes. */
export function staticCredentials(users: Readonly<Record<string, string>>): CredentialSource {
  const hashes = new Map(Object.entries(users).map(([user, text]) => [user, Buffer.from(text, 'base64')]))
  return { hash2: (user) => hashes.get(user) }
}

export interface AuthenticatorParts {
  readonly clock: Clock
  readonly logins: Logins
  readonly credentials: CredentialSource
  readonly verify: VerifyPolicy
  readonly verifyTtlMs: number
  readonly waitMs: number
  /** Who confirms logins; undefined: nobody can now. */
  target(): Target | undefined
}

/** What came of an AUTH. `login` is held for the caller, who gives it back to `Logins`. */
export type LoginOutcome =
  | { readonly login: Login; readonly error?: undefined; readonly isStale?: undefined }
  | { readonly login?: undefined; readonly error: BoxError; readonly isStale: boolean }

export class Authenticator {
  readonly #parts: AuthenticatorParts

  constructor(parts: AuthenticatorParts) {
    this.#parts = parts
  }

  /**
   * Judges an AUTH body. Never rejects: what cannot be understood is a refusal, too.
   * @param mask - of the lane that the client will use, so that confirming the login opens the right one
   */
  async judge(body: Buffer, salt: Uint8Array, mask: readonly number[]): Promise<LoginOutcome> {
    try {
      const { user, proof } = readAuth(body)
      if (proof === undefined) {
        if (user !== 'guest') return refused(proxyErrors.badLogin())
        this.#parts.logins.retain(this.#parts.logins.guest)
        return { login: this.#parts.logins.guest }
      }
      const { credentials } = this.#parts
      if (credentials.prove !== undefined) {
        const proved = await credentials.prove({ user, proof, salt, body })
        return proved instanceof BoxError ? refused(proved) : this.#proved(user, proved)
      }
      const hash1 = checkProof(salt, await credentials.hash2(user), proof)
      if (hash1 !== undefined) {
        const outcome = await this.#confirm(user, hash1, mask)
        if (outcome.error === undefined || !outcome.isStale || credentials.refresh === undefined) return outcome
      } else if (credentials.refresh === undefined) {
        return refused(proxyErrors.badLogin())
      }
      // The password may have been changed since the hash was looked up.
      const fresh = checkProof(salt, await credentials.refresh(user), proof)
      return fresh === undefined ? refused(proxyErrors.badLogin()) : await this.#confirm(user, fresh, mask)
    } catch (error) {
      // Users could not be looked up: nobody can say whether this one is right.
      if (isOrbweaverError(error) && LOOK_UP_FAILED.has(error.code))
        return refused(proxyErrors.loginsUnknown(error.message))
      return refused(asBoxError(error))
    }
  }

  /** The storage has judged it already. */
  #proved(user: string, hash1: Uint8Array): LoginOutcome {
    const login = this.#parts.logins.acquire(user, hash1)
    login.confirmedAt = this.#parts.clock.now()
    return { login }
  }

  async #confirm(user: string, hash1: Uint8Array, mask: readonly number[]): Promise<LoginOutcome> {
    const { logins, clock, verify, verifyTtlMs, waitMs } = this.#parts
    const login = logins.acquire(user, hash1)
    const isConfirmed = verify === 'never' || (verify === 'ttl' && clock.now() - login.confirmedAt < verifyTtlMs)
    if (isConfirmed) return { login }
    const target = this.#parts.target()
    const error = target === undefined ? proxyErrors.noTarget() : await confirmAt(target, login, mask, waitMs)
    if (error === undefined) {
      login.confirmedAt = clock.now()
      return { login }
    }
    logins.release(login)
    const isStale = CREDENTIALS_REFUSED.has(error.boxCode)
    return { error: isStale ? proxyErrors.badLogin() : error, isStale }
  }
}

/** Shows a login to a target: over a lane of that login if there is one, else by opening the first. */
function confirmAt(
  target: Target,
  login: Login,
  mask: readonly number[],
  waitMs: number,
): Promise<BoxError | undefined> {
  const group = target.group(login, mask)
  const lane = group.pick()
  return lane === undefined ? openFirst(group, waitMs) : askAgain(lane, login, waitMs, target)
}

function openFirst(group: LaneGroup, waitMs: number): Promise<BoxError | undefined> {
  return new Promise((resolve) => {
    const waiter = {
      laneReady: (): void => finish(undefined),
      laneRefused: (error: BoxError): void => finish(error),
    }
    const finish = (error: BoxError | undefined): void => {
      group.stopWaiting(waiter)
      cancel()
      resolve(error)
    }
    const cancel = group.clock.schedule(waitMs, () =>
      finish(proxyErrors.notReached(group.target.name, group.lastFailure)),
    )
    group.wait(waiter)
  })
}

function askAgain(lane: Lane, login: Login, waitMs: number, target: Target): Promise<BoxError | undefined> {
  const { credential } = login
  if (credential === undefined || !('hash1' in credential)) return Promise.resolve(undefined)
  const proof = chapSha1FromHash1(lane.channel.salt, credential.hash1)
  const body = bodyOf((out) => authRequest(credential.user, 'chap-sha1', proof).writeBody(out))
  return new Promise((resolve) => {
    const user: LaneUser = {
      replied: (frame, answer) => finish(errorIn(frame, answer)),
      repliedLarge: () => undefined,
      lost: (_answer, cause) => finish(proxyErrors.notReached(target.name, cause.message)),
    }
    const finish = (error: BoxError | undefined): void => {
      cancel()
      resolve(error)
    }
    const cancel = target.clock.schedule(waitMs, () =>
      resolve(proxyErrors.notReached(target.name, 'it does not answer a login')),
    )
    lane.ask({ type: RequestType.auth, body }, user)
  })
}

function errorIn(frame: Buffer, answer: LaneAnswer): BoxError | undefined {
  if ((answer.status & RequestType.errorFlag) === 0) return undefined
  const header = new FrameHeader()
  header.read(frame)
  return readError(frame, header, 'session')
}

/* AUTH (7): 0x23 USER_NAME str, 0x21 TUPLE [method str, proof str or bin]; an empty TUPLE makes the session guest's again. */
function readAuth(bytes: Buffer): { user: string; proof: Uint8Array | undefined } {
  const body = new BodyReader(bytes)
  const user = body.requireText(Key.userName)
  const tuple = body.requireArray(Key.tuple, { strings: 'bytes' })
  if (tuple.length === 0) return { user, proof: undefined }
  const [method, proof] = tuple.map(bytesOf)
  if (method === undefined || proof === undefined || tuple.length < 2)
    throw proxyErrors.malformed('authentication request body')
  const name = Buffer.from(method).toString()
  if (name !== 'chap-sha1') {
    throw BoxError.of(ErrorCode.unknownAuthMethod, `Unknown authentication method '${name.slice(0, MAX_METHOD_TEXT)}'`)
  }
  if (user === 'guest' && proof.length === 0) return { user, proof: undefined }
  if (proof.length !== PROOF_BYTES) {
    throw BoxError.of(
      ErrorCode.invalidAuthRequest,
      `Invalid '${name}' request: scramble of ${proof.length} bytes instead of ${PROOF_BYTES}`,
    )
  }
  return { user, proof }
}

/** The same work for a user that does not exist: the time of an answer must not tell who does. */
function checkProof(salt: Uint8Array, hash2: Uint8Array | undefined, proof: Uint8Array): Uint8Array | undefined {
  const hash1 = verifyChapSha1(salt, hash2 ?? NOBODY, proof)
  return hash2 === undefined ? undefined : hash1
}

function bytesOf(value: unknown): Uint8Array | undefined {
  if (value instanceof ByteString) return value.bytes
  return value instanceof Uint8Array ? value : undefined
}

function refused(error: BoxError): LoginOutcome {
  return { error, isStale: false }
}

/** What cannot be read is the client's fault: error 20. Faults of ours go up. */
export function asBoxError(error: unknown): BoxError {
  if (error instanceof BoxError) return error
  if (isOrbweaverError(error)) return proxyErrors.malformed(error.message)
  throw error
}

const NOBODY = new Uint8Array(20)
const PROOF_BYTES = 20
const MAX_METHOD_TEXT = 64
/** 47, and what 2.x says for a user it does not know. */
const CREDENTIALS_REFUSED: ReadonlySet<number> = new Set<number>([ErrorCode.credsMismatch, ErrorCode.noSuchUser])
/** What a connection says when it has no answer. */
const LOOK_UP_FAILED: ReadonlySet<string> = new Set([
  'ORB_CONNECT',
  'ORB_AUTH',
  'ORB_CONNECTION_LOST',
  'ORB_CONNECTION_CLOSED',
  'ORB_REQUEST_TIMEOUT',
])
