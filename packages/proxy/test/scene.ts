/* A proxy between scripted servers and clients made by hand, all in memory and in virtual time. */
import { type ConnectionOptions, createConnection, type Connection, type Transport } from '@orbweaver/connection'
import { ScriptedPeer, type ScriptedPeerOptions, VirtualClock } from '@orbweaver/connection/testing'
import {
  authRequest,
  BodyReader,
  type BoxError,
  chapSha1,
  FrameHeader,
  FrameReader,
  FrameWriter,
  hash2Of,
  idRequest,
  parseGreeting,
  readError,
  type Request,
  RequestType,
} from '@orbweaver/iproto'
import { createProxy, type Proxy, type ProxyOptions } from '../src/index.js'

/** base64 of sha1(sha1(password)). */
export function hashOf(password: string): string {
  return Buffer.from(hash2Of(password)).toString('base64')
}

export interface SceneOptions extends Omit<ProxyOptions, 'targets' | 'environment'> {
  /** Scripted servers by name; default one, `a`. */
  readonly peers?: Readonly<Record<string, Partial<ScriptedPeerOptions>>>
  /** Further targets by name, made by the test. */
  readonly others?: Readonly<Record<string, () => Transport>>
}

/** Users that exist at every scripted server, with their passwords. */
export const PASSWORDS: Readonly<Record<string, string>> = { alice: 'secret', bob: 'b' }

export class Scene {
  readonly clock = new VirtualClock()
  readonly peers: Record<string, ScriptedPeer> = {}
  readonly proxy: Proxy
  readonly #clients: RawClient[] = []
  readonly #connections: Connection[] = []

  constructor(options: SceneOptions = {}) {
    const { peers = { a: {} }, others = {}, ...rest } = options
    for (const [name, peer] of Object.entries(peers)) {
      this.peers[name] = new ScriptedPeer({ clock: this.clock, version: '3.2.1', users: PASSWORDS, ...peer })
    }
    this.proxy = createProxy({
      rw: Object.keys(peers)[0]!,
      credentials: {
        mode: 'static',
        users: Object.fromEntries(Object.entries(PASSWORDS).map(([user, password]) => [user, hashOf(password)])),
      },
      ...rest,
      targets: {
        ...Object.fromEntries(Object.entries(this.peers).map(([name, peer]) => [name, { uri: peer.address }])),
        ...Object.fromEntries(Object.entries(others).map(([name, connect]) => [name, { uri: { connect } }])),
      },
      environment: { clock: this.clock, random: () => 0.5 },
    })
  }

  /** The scripted server of that name. */
  peer(name = 'a'): ScriptedPeer {
    const peer = this.peers[name]
    if (peer === undefined) throw new Error(`There is no peer ${name}`)
    return peer
  }

  /** A client that has been greeted. */
  async client(): Promise<RawClient> {
    const client = new RawClient(this.proxy.connect(), this.clock)
    this.#clients.push(client)
    await this.clock.until(() => client.isGreeted)
    return client
  }

  /** A client that has logged in. */
  async login(user = 'alice', password = PASSWORDS[user] ?? ''): Promise<RawClient> {
    const client = await this.client()
    const reply = await client.ask(client.auth(user, password))
    if (reply.type !== RequestType.ok) throw reply.error
    return client
  }

  /** A client of the connection package, with everything it does by itself. */
  connection(options: Partial<ConnectionOptions> = {}): Connection {
    const connection = createConnection({
      user: 'alice',
      password: 'secret',
      ...options,
      uri: { connect: () => this.proxy.connect() },
      environment: { clock: this.clock, random: () => 0.5 },
    })
    this.#connections.push(connection)
    return connection
  }

  async close(): Promise<void> {
    for (const client of this.#clients) client.transport.destroy()
    for (const connection of this.#connections) connection.destroy()
    await this.clock.run(this.proxy.close({ graceMs: 0 }))
  }
}

/** One frame a client got. */
export interface Received {
  readonly type: number
  readonly sync: number | bigint
  readonly schemaVersion: number | undefined
  readonly body: BodyReader
  readonly frame: Buffer
  /** What an error frame says; throws for others. */
  readonly error: BoxError
}

/** A client that sends exactly the frames it is told to. */
export class RawClient {
  readonly transport: Transport
  readonly received: Received[] = []
  isGreeted = false
  isEnded = false
  cause: Error | undefined
  salt: Uint8Array = new Uint8Array(0)
  version = ''
  readonly #clock: VirtualClock
  readonly #reader = new FrameReader({ maxFrameBytes: 1 << 28 })
  #beginning: Buffer = Buffer.alloc(0)
  #lastSync = 1_000_000

  constructor(transport: Transport, clock: VirtualClock) {
    this.transport = transport
    this.#clock = clock
    transport.attach({
      data: (chunk) => this.#data(chunk),
      drain: () => undefined,
      end: () => {
        this.isEnded = true
        transport.end()
      },
      closed: (cause) => {
        this.isEnded = true
        this.cause = cause
      },
    })
  }

  /** Sends one request. @param sync - any 64-bit number; default a new one */
  send(
    request: Request,
    sync: number | bigint = ++this.#lastSync,
    streamId: number | bigint = 0,
    schemaVersion = 0,
  ): void {
    this.transport.write(frameOf(request, sync, streamId, schemaVersion))
  }

  /** Sends bytes as they are. */
  raw(bytes: Uint8Array): void {
    this.transport.write([bytes])
  }

  /** Sends a request and waits for its final reply. */
  async ask(request: Request, streamId: number | bigint = 0): Promise<Received> {
    const sync = ++this.#lastSync
    this.send(request, sync, streamId)
    return this.reply(sync)
  }

  /** Waits for the final reply with a sync. */
  async reply(sync: number | bigint): Promise<Received> {
    const find = (): Received | undefined =>
      this.received.find(
        (reply) => reply.sync === sync && reply.type !== RequestType.chunk && reply.type !== RequestType.event,
      )
    await this.#clock.until(() => find() !== undefined || this.isEnded)
    const reply = find()
    if (reply === undefined) throw new Error(`The connection ended before the reply with sync ${sync}`)
    return reply
  }

  auth(user: string, password: string): Request {
    return authRequest(user, 'chap-sha1', chapSha1(this.salt, password))
  }

  identify(features: readonly number[]): Request {
    return idRequest({ version: 9, features })
  }

  #data(chunk: Buffer): void {
    if (!this.isGreeted) {
      this.#beginning = Buffer.concat([this.#beginning, chunk])
      if (this.#beginning.length < 128) return
      const greeting = parseGreeting(this.#beginning.subarray(0, 128))
      this.salt = greeting.salt
      this.version = greeting.version
      this.isGreeted = true
      this.#reader.push(this.#beginning.subarray(128))
    } else {
      this.#reader.push(chunk)
    }
    for (let frame = this.#reader.next(); frame !== undefined; frame = this.#reader.next()) {
      const header = new FrameHeader()
      header.read(frame)
      const whole = frame
      const { type, sync, schemaVersion, bodyStart, bodyEnd } = header
      this.received.push({
        type,
        sync,
        schemaVersion,
        frame: whole,
        body: new BodyReader(whole.subarray(bodyStart, bodyEnd)),
        get error() {
          const again = new FrameHeader()
          again.read(whole)
          return readError(whole, again, 'read')
        },
      })
    }
  }
}

export function frameOf(
  request: Request,
  sync: number | bigint,
  streamId: number | bigint = 0,
  schemaVersion = 0,
): Buffer[] {
  const writer = new FrameWriter()
  const whole = BigInt(sync)
  writer.beginRequest(request.type, Number(whole >> 32n), Number(whole & 0xffff_ffffn), streamId, schemaVersion)
  request.writeBody(writer)
  writer.end()
  return writer.take()
}
