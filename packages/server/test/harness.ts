/* A server and a client that writes bytes by hand, in memory, under a clock that moves when told. */
import { transportPair } from '@orbweaver/connection'
import type { Transport } from '@orbweaver/connection'
import { VirtualClock } from '@orbweaver/connection/testing'
import { BodyReader, decodeValue, FrameHeader, FrameReader, FrameWriter, GREETING_BYTES, Key } from '@orbweaver/iproto'
import { createServer } from '../src/index.js'
import type { ClientSession, InboundFrame, Server, ServerLimits, SessionHandler } from '../src/index.js'

export const SALT: Uint8Array = Uint8Array.from({ length: 32 }, (_, i) => i)

/** One answered frame, as a test looks at it. */
export interface Answer {
  readonly type: number
  readonly sync: number | bigint
  readonly body: BodyReader
}

/** A client's end of a connection, byte by byte. */
export class RawClient {
  readonly answers: Answer[] = []
  greeting: Buffer = Buffer.alloc(0)
  /** undefined while open; then the cause, or null without one. */
  ended: Error | null | undefined
  hasEnded = false
  readonly transport: Transport
  readonly #reader = new FrameReader({ maxFrameBytes: 64 * 1024 * 1024 })
  readonly #header = new FrameHeader()

  constructor(transport: Transport) {
    this.transport = transport
    transport.attach({
      data: (chunk) => this.#data(chunk),
      drain: () => undefined,
      end: () => {
        this.hasEnded = true
        transport.end()
      },
      closed: (cause) => {
        this.ended = cause ?? null
      },
    })
  }

  write(bytes: Uint8Array): void {
    this.transport.write([bytes])
  }

  /** Sends a request whose body is written by hand. */
  request(type: number, sync: number, body?: (out: FrameWriter) => void, streamId = 0): void {
    const writer = new FrameWriter()
    writer.beginRequest(type, 0, sync, streamId)
    body?.(writer)
    writer.end()
    this.transport.write(writer.take())
  }

  #data(chunk: Buffer): void {
    let rest = chunk
    if (this.greeting.length < GREETING_BYTES) {
      const missing = GREETING_BYTES - this.greeting.length
      this.greeting = Buffer.concat([this.greeting, rest.subarray(0, missing)])
      rest = rest.subarray(missing)
    }
    if (rest.length > 0) this.#reader.push(rest)
    for (let frame = this.#reader.next(); frame !== undefined; frame = this.#reader.next()) {
      this.#header.read(frame)
      const body = new BodyReader(frame.subarray(this.#header.bodyStart, this.#header.bodyEnd))
      this.answers.push({ type: this.#header.type, sync: this.#header.sync, body })
    }
  }
}

/** The code of an error answer. */
export function errorCode(answer: Answer | undefined): number | undefined {
  return answer === undefined || (answer.type & 0x8000) === 0 ? undefined : answer.type & 0x7fff
}

export function dataOf(answer: Answer | undefined): unknown {
  return answer?.body.has(Key.data) === true ? decodeValue(answer.body.slice(Key.data)!) : undefined
}

/** A handler that keeps what it is given. */
export class KeepingHandler implements SessionHandler {
  readonly frames: InboundFrame[] = []
  readonly sessions: ClientSession[] = []
  readonly closures: (Error | undefined)[] = []
  onFrame: (session: ClientSession, frame: InboundFrame) => void = () => undefined

  greet(): Promise<{ version: string; uuid: string; salt: Uint8Array }> {
    return Promise.resolve({ version: '2.11.0', uuid: '11111111-1111-4111-8111-111111111111', salt: SALT })
  }

  frame(session: ClientSession, frame: InboundFrame): void {
    this.frames.push(frame)
    if (!this.sessions.includes(session)) this.sessions.push(session)
    this.onFrame(session, frame)
  }

  closed(_session: ClientSession, cause: Error | undefined): void {
    this.closures.push(cause)
  }
}

export interface Harness {
  readonly clock: VirtualClock
  readonly server: Server
  /** A connected client; let the clock settle to see its greeting. */
  client(as?: { user: string }): RawClient
}

export function startServer(handler: SessionHandler, limits: ServerLimits = {}): Harness {
  const clock = new VirtualClock()
  const server = createServer({ handler, limits, environment: { clock } })
  return {
    clock,
    server,
    client: (as) => {
      const [mine, theirs] = transportPair(clock)
      server.accept(theirs, as)
      return new RawClient(mine)
    },
  }
}
