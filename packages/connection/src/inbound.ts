/** What comes in from the server, frame by frame: answers to their requests, pushes, events, and what must not happen. */
import {
  type BoxError,
  FrameHeader,
  isOrbweaverError,
  type OrbweaverError,
  readError,
  readReply,
  type Reply,
  RequestType,
} from '@orbweaver/iproto'
import { ConnectionLostError } from './errors.js'
import type { Pending } from './pending.js'
import type { RequestFlow } from './request-flow.js'
import type { Schema } from './schema.js'
import { surface } from './surface.js'

export interface InboundHost {
  /** The peer for messages. */
  readonly name: string
  readonly schema: Schema
  /** An EVENT frame. The header is valid during the call. */
  event(frame: Buffer, header: FrameHeader): void
  /** An error that may answer a WATCH. @returns whether it does */
  watchFailed(sync: number, error: BoxError): boolean
  /** The stream cannot be trusted any more: what follows could be attributed to the wrong requests. */
  breakOff(cause: OrbweaverError): void
}

export class Inbound {
  readonly #host: InboundHost
  readonly #flow: RequestFlow
  readonly #header = new FrameHeader()
  bytesRead = 0

  constructor(host: InboundHost, flow: RequestFlow) {
    this.#host = host
    this.#flow = flow
  }

  /** Never throws. */
  frame(frame: Buffer): void {
    this.bytesRead += frame.length
    const header = this.#header
    try {
      header.read(frame)
      const { type, schemaVersion } = header
      if (schemaVersion !== undefined) this.#host.schema.observe(schemaVersion)
      if (type === RequestType.event) {
        this.#host.event(frame, header)
        return
      }
      const sync = header.syncHigh * 0x1_0000_0000 + header.syncLow
      const pending = this.#flow.find(sync)
      if (pending === undefined) this.#unmatched(frame, sync)
      else this.#matched(frame, pending)
    } catch (error) {
      const isOwn = isOrbweaverError(error)
      this.#host.breakOff(isOwn ? error : this.#violation('sent a frame that cannot be read', error))
    }
  }

  #matched(frame: Buffer, pending: Pending): void {
    const header = this.#header
    const { type } = header
    const flow = this.#flow
    if (type === RequestType.ok) {
      const reply = readReply(frame, header)
      flow.ended.answered += 1
      flow.answered(pending)
      tellDone(pending, reply)
    } else if ((type & RequestType.errorFlag) !== 0) {
      const error = readError(frame, header, pending.requestClass)
      flow.ended.refused += 1
      flow.answered(pending)
      tellFailed(pending, error)
    } else if (type === RequestType.chunk) {
      const reply = readReply(frame, header)
      tellPush(pending, reply)
    } else {
      this.#host.breakOff(this.#violation(`answered with a frame of the unknown type ${String(type)}`))
    }
  }

  #unmatched(frame: Buffer, sync: number): void {
    const { type } = this.#header
    if (this.#flow.isLate(sync)) {
      if (type !== RequestType.chunk) this.#flow.lateAnswer(sync)
      return
    }
    if ((type & RequestType.errorFlag) === 0) {
      this.#host.breakOff(this.#violation(`answered the request ${String(sync)}, which nobody sent`))
      return
    }
    const error = readError(frame, this.#header, 'session')
    if (this.#host.watchFailed(sync, error)) return
    // The server could not tell whose request it refuses: one of ours will never be answered.
    this.#host.breakOff(this.#violation(`refused something without saying what: ${error.message}`, error))
  }

  #violation(what: string, cause?: unknown): ConnectionLostError {
    return new ConnectionLostError(`${this.#host.name} ${what}`, {
      executed: 'unknown',
      ...(cause === undefined ? {} : { cause }),
    })
  }
}

// One function each, so that an answer costs no closure. A callback that throws must not leave the connection half-way.

function tellDone(pending: Pending, reply: Reply): void {
  try {
    pending.sink.done(reply)
  } catch (error) {
    surface(error)
  }
}

function tellFailed(pending: Pending, error: OrbweaverError): void {
  try {
    pending.sink.failed(error)
  } catch (thrown) {
    surface(thrown)
  }
}

function tellPush(pending: Pending, reply: Reply): void {
  try {
    pending.sink.push?.(reply)
  } catch (error) {
    surface(error)
  }
}
