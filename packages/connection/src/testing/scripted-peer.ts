/**
 * A server made of answers a test writes down. It greets, negotiates, logs in and serves watchers by itself, as
 * Tarantool does, and can be told to stall or to lie at every one of these steps; all other requests meet the handler
 * the test gave for their type, or wait in `requests` until the test answers them.
 */
import { createHash } from 'node:crypto'
import {
  BodyReader,
  type BodyWriter,
  BoxError,
  ErrorCode,
  Feature,
  formatGreeting,
  FrameHeader,
  FrameReader,
  FrameWriter,
  hash2Of,
  Key,
  RequestType,
  verifyChapSha1,
  writeErrorBody,
} from '@orbweaver/iproto'
import type { Clock } from '../clock.js'
import { transportPair } from '../transport-pair.js'
import type { Address, Transport } from '../transport.js'

export interface ScriptedPeerOptions {
  readonly clock: Clock
  /** Default '2.11.5'. Below 2.10 ID and watches are answered with error 48, as an old server does. */
  readonly version?: string
  /** Instance uuid of the greeting. Default: made from the name 'peer'. */
  readonly uuid?: string
  /** What ID offers. Default: 0 to 6 for version 3, 0 to 4 for 2.10 and 2.11, none below. */
  readonly features?: readonly number[]
  /** Passwords by user name; guest needs none. Default: nobody. */
  readonly users?: Readonly<Record<string, string>>
  /** Default 80. */
  readonly schemaVersion?: number
}

/** A step at which a scripted peer falls silent. */
export type SilentStep = 'greeting' | 'half-greeting' | 'id' | 'auth'

export type RequestHandler = (request: PeerRequest) => void

export class ScriptedPeer {
  /** Dial this: each dial is a new session. */
  readonly address: Address
  /** Everything received after the login, oldest first, handled or not. */
  readonly requests: PeerRequest[] = []
  /** All sessions ever made; the last is the current one. */
  readonly sessions: PeerSession[] = []
  version: string
  uuid: string
  features: readonly number[]
  users: Readonly<Record<string, string>>
  schemaVersion: number
  /** Set: dialling fails with it. */
  refusal: Error | undefined
  /** Set: new sessions say nothing from this step on. */
  silentFrom: SilentStep | undefined
  /** Broadcast values by key, kept across sessions. */
  readonly values: Map<string, unknown> = new Map()
  readonly #clock: Clock
  readonly #handlers = new Map<number, RequestHandler>()

  constructor(options: ScriptedPeerOptions) {
    this.#clock = options.clock
    this.version = options.version ?? '2.11.5'
    this.uuid = options.uuid ?? uuidOf('peer')
    this.features = options.features ?? featuresOf(this.version)
    this.users = options.users ?? {}
    this.schemaVersion = options.schemaVersion ?? 80
    this.address = { connect: () => this.#accept() }
  }

  /** The newest session. @throws Error when nobody has connected yet */
  get session(): PeerSession {
    const last = this.sessions.at(-1)
    if (last === undefined) throw new Error('Nobody has connected to this peer yet')
    return last
  }

  /** The newest request. @throws Error when there was none */
  get lastRequest(): PeerRequest {
    const last = this.requests.at(-1)
    if (last === undefined) throw new Error('This peer has received no request yet')
    return last
  }

  /** Requests of one type, oldest first. */
  requestsOf(type: number): PeerRequest[] {
    return this.requests.filter((request) => request.type === type)
  }

  /** Answers all requests of a type from now on; undefined: they wait again. Pings are answered unless a handler says otherwise. */
  handle(type: number, handler: RequestHandler | undefined): void {
    if (handler === undefined) this.#handlers.delete(type)
    else this.#handlers.set(type, handler)
  }

  handlerOf(type: number): RequestHandler | undefined {
    return this.#handlers.get(type)
  }

  /** Sets a broadcast value and notifies the watchers of all sessions. `undefined` takes the value away. */
  broadcast(key: string, value: unknown): void {
    if (value === undefined) this.values.delete(key)
    else this.values.set(key, value)
    for (const session of this.sessions) session.valueChanged(key)
  }

  /** Cuts all sessions, as a killed process does. */
  cut(cause?: Error): void {
    for (const session of this.sessions) session.destroy(cause)
  }

  #accept(): Transport {
    if (this.refusal !== undefined) throw this.refusal
    const [client, server] = transportPair(this.#clock)
    this.sessions.push(new PeerSession(this, server))
    return client
  }
}

/** One connection to a scripted peer. */
export class PeerSession {
  readonly peer: ScriptedPeer
  readonly transport: Transport
  readonly salt: Uint8Array
  user = 'guest'
  open = true
  /** Times bytes arrived: with a client that writes once per turn, its writes. */
  chunksReceived = 0
  readonly #reader = new FrameReader({ maxFrameBytes: 1 << 28 })
  readonly #header = new FrameHeader()
  readonly #watches = new Map<string, Watch>()

  constructor(peer: ScriptedPeer, transport: Transport) {
    this.peer = peer
    this.transport = transport
    this.salt = createHash('sha256')
      .update(`salt ${String(peer.sessions.length)}`)
      .digest()
    transport.attach({
      data: (chunk) => {
        this.chunksReceived += 1
        this.#received(chunk)
      },
      drain: () => undefined,
      end: () => transport.end(),
      closed: () => {
        this.open = false
      },
    })
    const greeting = formatGreeting({ version: peer.version, uuid: peer.uuid, salt: this.salt })
    if (peer.silentFrom === 'half-greeting') this.raw(greeting.subarray(0, 70))
    else if (peer.silentFrom !== 'greeting') this.raw(greeting)
  }

  /** Sends bytes as they are. */
  raw(bytes: Uint8Array): void {
    if (this.open) this.transport.write([bytes])
  }

  /** Sends one EVENT frame. */
  event(key: string, value: unknown, sync = 0): void {
    this.#send((out) => {
      out.beginEvent(0, sync)
      out.mapHeader(value === undefined ? 1 : 2)
      out.uint(Key.eventKey)
      out.text(key)
      if (value !== undefined) {
        out.uint(Key.eventData)
        out.value(value)
      }
    })
  }

  /** Sends a frame with this type and sync, and a body written by hand. */
  frame(type: number, sync: number | bigint, body: (out: BodyWriter) => void): void {
    const [high, low] = halvesOf(sync)
    this.#send((out) => {
      out.beginReply(type, high, low, this.peer.schemaVersion)
      body(out)
    })
  }

  /** Half-closes behind what was sent. */
  end(): void {
    this.transport.end()
  }

  /** Cuts the connection now; bytes not delivered yet are lost in both directions. */
  destroy(cause?: Error): void {
    this.open = false
    this.transport.destroy(cause)
  }

  /** Keys this session watches. */
  get watchedKeys(): string[] {
    return [...this.#watches.keys()]
  }

  valueChanged(key: string): void {
    const watch = this.#watches.get(key)
    if (watch === undefined || !this.open) return
    watch.isDirty = true
    this.#notify(key, watch)
  }

  #send(write: (out: FrameWriter) => void): void {
    const out = new FrameWriter()
    write(out)
    out.end()
    if (this.open) this.transport.write(out.take())
  }

  #received(chunk: Buffer): void {
    this.#reader.push(chunk)
    for (let frame = this.#reader.next(); frame !== undefined; frame = this.#reader.next()) {
      this.#header.read(frame)
      this.#dispatch(new PeerRequest(this, frame, this.#header))
    }
  }

  #dispatch(request: PeerRequest): void {
    const handler = this.peer.handlerOf(request.type)
    if (handler !== undefined) {
      this.peer.requests.push(request)
      handler(request)
      return
    }
    switch (request.type) {
      case RequestType.id:
        return this.#answerId(request)
      case RequestType.auth:
        return this.#answerAuth(request)
      case RequestType.watch:
        return this.#watch(request)
      case RequestType.unwatch:
        this.#watches.delete(request.body.requireText(Key.eventKey))
        return
      default:
        this.peer.requests.push(request)
        if (request.type === RequestType.ping) request.ok()
        if (request.type === RequestType.watchOnce) this.#watchOnce(request)
    }
  }

  #answerId(request: PeerRequest): void {
    if (this.peer.silentFrom === 'id') return
    if (isOlderThan210(this.peer.version)) return request.unknownType()
    this.frame(RequestType.ok, request.sync, (out) => {
      out.mapHeader(2)
      out.uint(Key.version)
      out.uint(this.peer.features.length)
      out.uint(Key.features)
      out.value([...this.peer.features])
    })
  }

  #answerAuth(request: PeerRequest): void {
    if (this.peer.silentFrom === 'auth') return
    const user = request.body.requireText(Key.userName)
    const tuple = request.body.slice(Key.tuple)
    const password = this.peer.users[user]
    const proof = tuple === undefined ? undefined : proofOf(tuple)
    const isRight =
      password !== undefined && proof !== undefined && verifyChapSha1(this.salt, hash2Of(password), proof) !== undefined
    if (!isRight && !(user === 'guest' && proof === undefined)) {
      return request.error(ErrorCode['credsMismatch'] ?? 47, 'User not found or supplied credentials are invalid')
    }
    this.user = user
    request.ok()
  }

  #watch(request: PeerRequest): void {
    if (!this.peer.features.includes(Feature.watchers)) return request.unknownType()
    const key = request.body.requireText(Key.eventKey)
    const watch = this.#watches.get(key) ?? { sync: 0, isArmed: false, isDirty: true }
    watch.sync = Number(request.sync)
    watch.isArmed = true
    this.#watches.set(key, watch)
    this.#notify(key, watch)
  }

  /** One event per WATCH: an event that was not answered by another WATCH is the last one. */
  #notify(key: string, watch: Watch): void {
    if (!watch.isArmed || !watch.isDirty) return
    watch.isArmed = false
    watch.isDirty = false
    this.event(key, this.peer.values.get(key), watch.sync)
  }

  #watchOnce(request: PeerRequest): void {
    if (!this.peer.features.includes(Feature.watchOnce)) return request.unknownType()
    const key = request.body.requireText(Key.eventKey)
    request.reply(this.peer.values.has(key) ? [this.peer.values.get(key)] : [])
  }
}

/** A request as a scripted peer received it; answered by the test, at any time and in any order. */
export class PeerRequest {
  readonly session: PeerSession
  readonly type: number
  readonly sync: number | bigint
  readonly streamId: number | bigint
  readonly schemaVersion: number | undefined
  readonly frame: Buffer
  readonly body: BodyReader

  constructor(session: PeerSession, frame: Buffer, header: FrameHeader) {
    this.session = session
    this.type = header.type
    this.sync = header.sync
    this.streamId = header.streamId
    this.schemaVersion = header.schemaVersion
    this.frame = frame
    this.body = new BodyReader(frame.subarray(header.bodyStart, header.bodyEnd))
  }

  /** An empty success, as PING, BEGIN and COMMIT get. */
  ok(): void {
    this.session.frame(RequestType.ok, this.sync, (out) => out.mapHeader(0))
  }

  /** A success with DATA. */
  reply(data: readonly unknown[]): void {
    this.session.frame(RequestType.ok, this.sync, (out) => {
      out.mapHeader(1)
      out.uint(Key.data)
      out.value(data)
    })
  }

  /** A success with body keys of any kind. */
  replyWith(fields: ReadonlyMap<number, unknown>): void {
    this.session.frame(RequestType.ok, this.sync, (out) => {
      out.mapHeader(fields.size)
      for (const [key, value] of fields) {
        out.uint(key)
        out.value(value)
      }
    })
  }

  /** An out-of-band message before the final answer. */
  push(value: unknown): void {
    this.session.frame(RequestType.chunk, this.sync, (out) => {
      out.mapHeader(1)
      out.uint(Key.data)
      out.value([value])
    })
  }

  error(boxCode: number, message: string, fields?: ReadonlyMap<string, unknown>): void {
    const error = BoxError.of(boxCode, message, fields === undefined ? {} : { fields })
    this.session.frame(RequestType.errorFlag | boxCode, this.sync, (out) => writeErrorBody(out, error))
  }

  /** Error 48, as a server answers what it does not know. */
  unknownType(): void {
    this.error(48, `Unknown request type ${String(this.type)}`)
  }
}

interface Watch {
  sync: number
  isArmed: boolean
  /** The value changed since the last event, or there was no event yet. */
  isDirty: boolean
}

/** The proof in AUTH's TUPLE `[method, proof]`, whatever its bytes; undefined for an empty TUPLE. */
function proofOf(tuple: Buffer): Uint8Array | undefined {
  if (tuple[0] === 0x90) return undefined
  return tuple.subarray(-20)
}

function halvesOf(sync: number | bigint): [high: number, low: number] {
  const whole = BigInt(sync)
  return [Number(whole >> 32n), Number(whole & 0xffff_ffffn)]
}

function featuresOf(version: string): readonly number[] {
  if (isOlderThan210(version)) return []
  return version.startsWith('2.') ? [0, 1, 2, 3, 4] : [0, 1, 2, 3, 4, 5, 6]
}

function isOlderThan210(version: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number)
  return major < 2 || (major === 2 && minor < 10)
}

/** A stable uuid for a name, so that logs and assertions of tests repeat. */
export function uuidOf(name: string): string {
  const hex = createHash('sha1').update(name).digest('hex')
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20, 32)}`
}
