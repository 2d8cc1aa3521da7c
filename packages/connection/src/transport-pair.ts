/**
 * Two ends of a connection in memory. This is production code: an embedded storage is reached through it without a
 * socket. It behaves like a socket where it matters: bytes arrive later (never inside `write`), in order, a paused
 * reader holds the writer back, an end travels behind the data, and a destroyed end is seen by the other as a reset.
 */
import type { Clock } from './clock.js'
import type { Transport, TransportSink } from './transport.js'

/** Makes both ends. What one writes the other receives in `clock.soon`, the same buffers, uncopied. */
export function transportPair(clock: Clock): [Transport, Transport] {
  const left = new PairEnd(clock)
  const right = new PairEnd(clock)
  left.join(right)
  right.join(left)
  return [left, right]
}

class PairEnd implements Transport {
  readonly peer: string = 'in-process'
  /** Nothing leaves the process. */
  readonly encrypted: boolean = true
  readonly #clock: Clock
  #other: PairEnd | undefined
  #sink: TransportSink | undefined
  /** Written by the other end, not yet delivered to our sink. */
  #inbox: Uint8Array[] = []
  #inboxBytes = 0
  /** The other end will write no more; told to the sink once the inbox is empty. */
  #inboxEnded = false
  #endTold = false
  #paused = false
  #ended = false
  #closed = false
  #closedCause: Error | undefined
  #closedTold = false
  /** A `write` returned false and `drain` is owed. */
  #drainOwed = false
  #deliveryDue = false

  constructor(clock: Clock) {
    this.#clock = clock
  }

  join(other: PairEnd): void {
    this.#other = other
  }

  get pendingBytes(): number {
    return this.#other === undefined ? 0 : this.#other.#inboxBytes
  }

  attach(sink: TransportSink): void {
    if (this.#sink !== undefined) throw new Error('This end of the pair already has a sink')
    this.#sink = sink
    this.#deliverSoon()
  }

  write(chunks: readonly Uint8Array[]): boolean {
    const other = this.#other
    if (this.#closed || this.#ended || other === undefined || other.#closed) return true
    for (const chunk of chunks) {
      other.#inbox.push(chunk)
      other.#inboxBytes += chunk.length
    }
    other.#deliverSoon()
    if (other.#inboxBytes < HIGH_WATER_BYTES) return true
    this.#drainOwed = true
    return false
  }

  pauseReading(): void {
    this.#paused = true
  }

  resumeReading(): void {
    if (!this.#paused) return
    this.#paused = false
    this.#deliverSoon()
  }

  end(): void {
    if (this.#closed || this.#ended || this.#other === undefined) return
    this.#ended = true
    this.#other.#inboxEnded = true
    this.#other.#deliverSoon()
    this.#deliverSoon()
  }

  destroy(cause?: Error): void {
    if (this.#closed) return
    this.#close(cause)
    const other = this.#other
    if (other === undefined || other.#closed) return
    const bothEnded = this.#ended && other.#ended
    other.#close(bothEnded ? undefined : resetError())
  }

  #close(cause: Error | undefined): void {
    this.#closed = true
    this.#closedCause = cause
    this.#inbox = []
    this.#inboxBytes = 0
    this.#deliverSoon()
  }

  #deliverSoon(): void {
    if (this.#deliveryDue) return
    this.#deliveryDue = true
    this.#clock.soon(() => {
      this.#deliveryDue = false
      this.#deliver()
    })
  }

  #deliver(): void {
    const sink = this.#sink
    if (sink === undefined || this.#closedTold) return
    // Only what had arrived when this task began: two ends that answer each other must not starve the clock.
    for (let left = this.#inbox.length; left > 0 && !this.#paused && !this.#closed; left -= 1) {
      const chunk = this.#inbox.shift()
      if (chunk === undefined) break
      this.#inboxBytes -= chunk.length
      sink.data(asBuffer(chunk))
    }
    if (!this.#closed && this.#inbox.length > 0 && !this.#paused) this.#deliverSoon()
    if (this.#other !== undefined) this.#other.#drainIfOwed()
    if (this.#inboxEnded && this.#inbox.length === 0 && !this.#endTold && !this.#closed && !this.#paused) {
      this.#endTold = true
      sink.end()
    }
    const other = this.#other
    if (!this.#closed && this.#endTold && this.#ended && other !== undefined && other.#inbox.length === 0) {
      this.#closed = true
      other.#deliverSoon()
    }
    if (this.#closed) {
      this.#closedTold = true
      sink.closed(this.#closedCause)
    }
  }

  #drainIfOwed(): void {
    if (!this.#drainOwed || this.#closed || this.pendingBytes > 0) return
    this.#drainOwed = false
    this.#clock.soon(() => {
      if (!this.#closed) this.#sink?.drain()
    })
  }
}

function asBuffer(chunk: Uint8Array): Buffer {
  return Buffer.isBuffer(chunk) ? chunk : Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength)
}

function resetError(): Error {
  return Object.assign(new Error('The other end in this process was destroyed'), { code: 'ECONNRESET' })
}

/** Undelivered bytes from which a writer is told to wait. */
const HIGH_WATER_BYTES = 262_144
