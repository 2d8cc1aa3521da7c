/**
 * What is said before a connection is usable, without a socket: the greeting comes in, ID and AUTH go out in one write,
 * their answers come in. AUTH needs the greeting's salt; ID needs nothing, but waits for the greeting too, so that a
 * console or a web server that was dialled by mistake never receives binary requests.
 */
import {
  authRequest,
  BoxError,
  chapSha1,
  chapSha1FromHash1,
  decodeId,
  FrameHeader,
  FrameWriter,
  type Greeting,
  GREETING_BYTES,
  idRequest,
  MalformedFrameError,
  papSha256,
  parseGreeting,
  PROTOCOL_VERSION,
  readError,
  readReply,
  RequestType,
} from '@orbweaver/iproto'
import { AuthError, ConnectError, type ConnectStage } from './errors.js'

/** Who to be: by password, or by `hash1` = SHA-1 of it, which is all a proxy knows of its clients. */
export type Credential =
  | { readonly user: string; readonly password: string }
  | { readonly user: string; readonly hash1: Uint8Array }

export interface HandshakeOptions {
  /** Absent: the session stays guest's and no AUTH is sent. */
  readonly credential: Credential | undefined
  /** Feature numbers to ask for. */
  readonly features: readonly number[]
  /** Whether a password may travel in clear (`pap-sha256`). */
  readonly encrypted: boolean
  /** The peer for error messages. */
  readonly peer: string
}

/** What a finished handshake knows. */
export interface HandshakeResult {
  readonly greeting: Greeting
  /** What both sides have: the reply's features less those not asked for. */
  readonly features: ReadonlySet<number>
}

/**
 * One handshake. Feed `greeting` once with the first 128 bytes, then `frame` until `result` is there; both return what
 * has to be written.
 */
export class Handshake {
  readonly #options: HandshakeOptions
  readonly #header = new FrameHeader()
  #greeting: Greeting | undefined
  #features: ReadonlySet<number> | undefined
  #isLoggedIn = false
  /** The method of the login that was sent; undefined: it waits for the ID reply, which may name the method. */
  #loginMethod: 'chap-sha1' | 'pap-sha256' | undefined
  #idSync = 0
  #authSync = 0

  constructor(options: HandshakeOptions) {
    this.#options = options
  }

  /** The step that is being waited for. */
  get stage(): ConnectStage {
    if (this.#greeting === undefined) return 'greeting'
    return this.#features === undefined ? 'id' : 'auth'
  }

  /** There once everything was answered. */
  get result(): HandshakeResult | undefined {
    if (this.#greeting === undefined || this.#features === undefined || !this.#isLoggedIn) return undefined
    return { greeting: this.#greeting, features: this.#features }
  }

  /**
   * Whether the bytes received so far can still become a greeting: a web server's answer is told apart at its first bytes.
   * @throws ConnectError saying what the peer seems to be
   */
  checkBeginning(bytes: Uint8Array): void {
    for (let i = 0; i < Math.min(bytes.length, GREETING_START.length); i += 1) {
      if (bytes[i] !== GREETING_START.charCodeAt(i)) {
        this.#parse(bytes)
        return
      }
    }
  }

  /** @throws ConnectError when the 128 bytes are no greeting of a binary port */
  greeting(bytes: Uint8Array): Buffer[] {
    const greeting = this.#parse(bytes)
    this.#greeting = greeting
    // An error that a failing on_connect trigger causes carries a left-over sync of another connection: ours are never equal.
    const base = Buffer.from(greeting.salt).readUInt32BE(0) * 0x1_0000
    this.#idSync = base + 1
    this.#authSync = base + 2
    const writer = new FrameWriter({ slabBytes: 1024 })
    if (hasId(greeting.version)) {
      writer.request(idRequest({ version: PROTOCOL_VERSION, features: this.#options.features }), this.#idSync)
    } else {
      this.#features = NO_FEATURES
    }
    this.#logIn(writer, greeting)
    return writer.take()
  }

  /**
   * @throws ConnectError when the peer refuses or says what it must not
   * @throws AuthError when it refuses the login
   */
  frame(frame: Buffer): Buffer[] {
    const header = this.#header
    this.#orConnectError(() => header.read(frame))
    if (header.sync === this.#idSync && this.#features === undefined) return this.#idAnswer(frame)
    if (header.sync === this.#authSync && !this.#isLoggedIn) return this.#authAnswer(frame)
    if ((header.type & RequestType.errorFlag) !== 0) {
      const cause = this.#orConnectError(() => readError(frame, header, 'session'))
      throw this.#failure(`it refuses the session: ${cause.message}`, cause)
    }
    throw this.#failure(`it sent a frame of type ${String(header.type)} that nobody asked for`)
  }

  /** The peer ended the stream: what that means at this stage. */
  cutShort(receivedBytes: number): ConnectError {
    if (this.#greeting !== undefined) return this.#failure('it closed the connection')
    return this.#failure(
      receivedBytes === 0
        ? 'it closed the connection without a greeting'
        : `it closed the connection after ${String(receivedBytes)} of the ${String(GREETING_BYTES)} bytes of a greeting`,
    )
  }

  #parse(bytes: Uint8Array): Greeting {
    return this.#orConnectError(() => parseGreeting(bytes))
  }

  #idAnswer(frame: Buffer): Buffer[] {
    const header = this.#header
    let authType: string | undefined
    if ((header.type & RequestType.errorFlag) === 0) {
      const reply = this.#orConnectError(() => decodeId(readReply(frame, header)))
      authType = reply.authType
      const asked = this.#options.features
      this.#features = new Set(reply.features.filter((feature) => asked.includes(feature)))
    } else {
      const error = this.#orConnectError(() => readError(frame, header, 'session'))
      // A server older than the request type: no features, not a failure.
      if (error.boxCode !== UNKNOWN_REQUEST_TYPE)
        throw this.#failure(`it refuses to negotiate: ${error.message}`, error)
      this.#features = NO_FEATURES
    }
    const writer = new FrameWriter({ slabBytes: 1024 })
    if (!this.#isLoggedIn && this.#loginMethod === undefined && this.#greeting !== undefined) {
      this.#sendLogin(writer, this.#greeting, authType === 'pap-sha256' ? 'pap-sha256' : 'chap-sha1')
    }
    return writer.take()
  }

  #authAnswer(frame: Buffer): Buffer[] {
    if ((this.#header.type & RequestType.errorFlag) === 0) {
      this.#isLoggedIn = true
      return []
    }
    const error = this.#orConnectError(() => readError(frame, this.#header, 'session'))
    if (NOT_READY.has(error.boxCode)) throw this.#failure(`it is not ready: ${error.message}`, error)
    const { credential, peer } = this.#options
    const user = credential?.user ?? 'guest'
    throw new AuthError(`${peer} refuses the login of '${user}': ${error.message}`, { cause: error, user, peer })
  }

  #logIn(writer: FrameWriter, greeting: Greeting): void {
    const { credential, encrypted } = this.#options
    // A new session is guest's already; guest with a password is a login like any other.
    if (
      credential === undefined ||
      (credential.user === 'guest' && 'password' in credential && credential.password === '')
    ) {
      this.#isLoggedIn = true
      return
    }
    // Where a password may travel in clear the server's own choice of method is worth one more round trip.
    const canSendPassword = encrypted && 'password' in credential && this.#features === undefined
    if (!canSendPassword) this.#sendLogin(writer, greeting, 'chap-sha1')
  }

  #sendLogin(writer: FrameWriter, greeting: Greeting, method: 'chap-sha1' | 'pap-sha256'): void {
    const credential = this.#options.credential
    if (credential === undefined) return
    this.#loginMethod = method
    writer.request(authRequest(credential.user, method, proofFor(credential, method, greeting.salt)), this.#authSync)
  }

  #failure(problem: string, cause?: unknown): ConnectError {
    const { peer } = this.#options
    return new ConnectError(`Cannot connect to ${peer}: ${problem}`, {
      stage: this.stage,
      peer,
      ...(cause === undefined ? {} : { cause }),
    })
  }

  #orConnectError<T>(read: () => T): T {
    try {
      return read()
    } catch (error) {
      if (error instanceof MalformedFrameError) throw this.#failure(error.message, error)
      throw error
    }
  }
}

function proofFor(credential: Credential, method: 'chap-sha1' | 'pap-sha256', salt: Uint8Array): Uint8Array | string {
  if ('hash1' in credential) return chapSha1FromHash1(salt, credential.hash1)
  return method === 'pap-sha256' ? papSha256(credential.password) : chapSha1(salt, credential.password)
}

/** ID exists since 2.10; the stock client does not try it before either. */
function hasId(version: string): boolean {
  return versionNumber(version) >= 2_010
}

/**
 * Major and minor as one comparable number: '2.11.5-entrypoint' is 2011, and 0 means unreadable.
 * @example versionNumber('3.2.1') // 3002
 */
export function versionNumber(version: string): number {
  const match = /^(\d+)\.(\d+)/.exec(version)
  return match === null ? 0 : Number(match[1]) * 1_000 + Number(match[2])
}

/** Whether an error of the handshake is the server's refusal of the login. */
export function isLoginRefusal(cause: unknown): boolean {
  return cause instanceof AuthError && cause.cause instanceof BoxError
}

const GREETING_START = 'Tarantool '
const NO_FEATURES: ReadonlySet<number> = new Set()
const UNKNOWN_REQUEST_TYPE = 48
/** LOADING, UNCONFIGURED, SHUTDOWN: an answer about the instance, not about the user. */
const NOT_READY: ReadonlySet<number> = new Set([116, 274, 279])
