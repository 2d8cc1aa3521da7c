import type { InboundFrame } from '@orbweaver/server'
import type { SyncHalves } from './reply.js'

/** Told what became of one request, beside the client: nothing to keep per request where nobody needs to know. */
export interface ReplyNote {
  /** The final reply. Valid during the call. */
  answered(status: number, frame: Buffer): void
  /** There will be none. */
  lost(): void
}

/** One request of a client, from its arrival until a lane has it. */
export class QueuedRequest implements SyncHalves {
  readonly type: number
  readonly syncHigh: number
  readonly syncLow: number
  /** The client's; 0 for none. */
  readonly streamId: bigint | number
  schemaVersion: number
  /** Memory in which the body is [bodyStart, bodyEnd): received with its neighbours. */
  readonly memory: Buffer
  readonly bodyStart: number
  readonly bodyEnd: number
  #body: Buffer | undefined
  /** Instant on the clock. */
  readonly arrivedAt: number
  /** The lane's; set when the request is given a lane. */
  laneStreamId = 0
  note: ReplyNote | undefined = undefined
  /** It goes to a replica. */
  isRead = false
  /** It goes to a session of its client's own, beside the lane of the others. */
  isApart = false
  /** It was sent before, in vain, and goes to the master now. */
  isRepeated = false

  constructor(frame: InboundFrame, arrivedAt: number) {
    this.type = frame.type
    this.syncHigh = frame.syncHigh
    this.syncLow = frame.syncLow
    this.streamId = frame.streamId
    this.schemaVersion = frame.schemaVersion ?? 0
    this.memory = frame.bytes
    this.bodyStart = frame.bodyStart
    this.bodyEnd = frame.bodyEnd
    this.arrivedAt = arrivedAt
  }

  /** Made when it is asked for: most requests are passed on unseen. */
  get body(): Buffer {
    return (this.#body ??= this.memory.subarray(this.bodyStart, this.bodyEnd))
  }

  /** What it costs, roughly: the frame as it will be written. */
  get bytes(): number {
    return this.bodyEnd - this.bodyStart + HEAD_BYTES
  }
}

/** Keeps a request while it is in flight: it may be sent once more. */
export class Repeatable implements ReplyNote {
  readonly request: QueuedRequest
  readonly #next: ReplyNote | undefined

  constructor(request: QueuedRequest, next: ReplyNote | undefined) {
    this.request = request
    this.#next = next
  }

  answered(status: number, frame: Buffer): void {
    this.#next?.answered(status, frame)
  }

  lost(): void {
    this.#next?.lost()
  }
}

/** First in, first out; shifting does not move what is behind. */
export class RequestQueue {
  #items: (QueuedRequest | undefined)[] = []
  #first = 0
  #bytes = 0

  get size(): number {
    return this.#items.length - this.#first
  }

  get bytes(): number {
    return this.#bytes
  }

  push(request: QueuedRequest): void {
    this.#items.push(request)
    this.#bytes += request.bytes
  }

  peek(): QueuedRequest | undefined {
    return this.#items[this.#first]
  }

  shift(): QueuedRequest | undefined {
    const request = this.#items[this.#first]
    if (request === undefined) return undefined
    this.#items[this.#first++] = undefined
    this.#bytes -= request.bytes
    if (this.#first === this.#items.length) {
      this.#items.length = 0
      this.#first = 0
    } else if (this.#first >= MAX_SHIFTED) {
      this.#items.splice(0, this.#first)
      this.#first = 0
    }
    return request
  }

  /** To the front. */
  unshift(request: QueuedRequest): void {
    this.#items = [request, ...this.#items.slice(this.#first)]
    this.#first = 0
    this.#bytes += request.bytes
  }

  /** Puts everything of another queue in front, which is empty then. */
  prepend(other: RequestQueue): void {
    if (other.size === 0) return
    this.#items = [...other.#items.slice(other.#first), ...this.#items.slice(this.#first)]
    this.#first = 0
    this.#bytes += other.#bytes
    other.clear()
  }

  /** Takes out what `picks` says yes to. @param picks - sees the requests in order */
  extract(picks: (request: QueuedRequest) => boolean): QueuedRequest[] {
    const taken: QueuedRequest[] = []
    const kept: QueuedRequest[] = []
    for (const request of this.#items.slice(this.#first)) {
      if (request === undefined) continue
      if (picks(request)) taken.push(request)
      else kept.push(request)
    }
    if (taken.length === 0) return taken
    this.#items = kept
    this.#first = 0
    for (const request of taken) this.#bytes -= request.bytes
    return taken
  }

  hasStream(streamId: bigint | number): boolean {
    for (let i = this.#first; i < this.#items.length; i++) if (this.#items[i]?.streamId === streamId) return true
    return false
  }

  clear(): void {
    this.#items = []
    this.#first = 0
    this.#bytes = 0
  }
}

/** Prefix and header as a lane writes them, without a stream. */
const HEAD_BYTES = 19
const MAX_SHIFTED = 1024
