/*
 * What goes back to one client. A reply too large to be collected is passed on in pieces, and nothing else may come between
 * them; a client that does not read is held back where that harms nobody else, and given up where it would.
 */
import type { Clock, LargeFrame } from '@orbweaver/connection'
import type { ClientSession } from '@orbweaver/server'
import type { Counters } from './counters.js'
import type { Lane } from './lane.js'
import type { ResolvedLimits } from './limits.js'

export interface OutputHost {
  readonly clock: Clock
  readonly limits: ResolvedLimits
  readonly counters: Counters
  /** Lanes of this client alone: those can be left unread. */
  ownLanes(): readonly Lane[]
  /** It reads too slowly to share a lane any longer. */
  readsSlowly(): void
}

export class ClientOutput {
  readonly #session: ClientSession
  readonly #host: OutputHost
  #isStreaming = false
  /** What waits behind the large reply that is being passed on. */
  #behind: Uint8Array[] = []
  /** Set while its own lanes are not read. */
  #cancelHold: (() => void) | undefined

  constructor(session: ClientSession, host: OutputHost) {
    this.#session = session
    this.#host = host
  }

  /** A part of a large reply is out, and the rest is not. */
  get isStreaming(): boolean {
    return this.#isStreaming
  }

  /** Whole frames. */
  send(chunks: readonly Uint8Array[]): void {
    if (this.#isStreaming) this.#behind.push(...chunks)
    else this.#write(chunks)
  }

  /** A whole frame, [start, end) of memory received from a target. @param isMoreComing - others are on their way */
  forward(bytes: Buffer, start: number, end: number, isMoreComing: boolean): void {
    if (this.#isStreaming) this.#behind.push(bytes.subarray(start, end))
    // The session is congested from the same number of bytes on from which a client counts as slow.
    else if (!this.#session.forward(bytes, start, end, isMoreComing)) this.#watchPending()
  }

  /** A frame in pieces. @param onEnd - called when it is complete, before anything that waited behind it */
  sendLarge(head: Buffer, onEnd: () => void): LargeFrame {
    if (this.#isStreaming) return this.#collect(head, onEnd)
    this.#write([head])
    this.#isStreaming = true
    return {
      chunk: (bytes) => this.#write([bytes]),
      end: () => {
        onEnd()
        this.#isStreaming = false
        const behind = this.#behind
        this.#behind = []
        if (behind.length > 0) this.#write(behind)
      },
      cut: () => {
        // The client has half a frame: nothing else can follow it.
        this.#session.destroy(new Error('A reply was cut off in the middle: its target was lost'))
      },
    }
  }

  /** The client has taken what waited. */
  drained(): void {
    if (this.#cancelHold === undefined) return
    if (this.#session.pendingBytes > this.#host.limits.clientOutSoftBytes / 2) return
    this.#cancelHold()
    this.#cancelHold = undefined
    for (const lane of this.#host.ownLanes()) lane.resumeReading()
  }

  close(): void {
    this.#cancelHold?.()
    this.#cancelHold = undefined
  }

  /** Two lanes are in the middle of a large reply for this client: the second waits until it is whole. */
  #collect(head: Buffer, onEnd: () => void): LargeFrame {
    const pieces: Uint8Array[] = [head]
    return {
      chunk: (bytes) => void pieces.push(bytes),
      end: () => {
        onEnd()
        this.send(pieces)
      },
      cut: () => void (pieces.length = 0),
    }
  }

  #write(chunks: readonly Uint8Array[]): void {
    if (!this.#session.reply(chunks)) this.#watchPending()
  }

  #watchPending(): void {
    const { limits, counters } = this.#host
    const { pendingBytes } = this.#session
    if (pendingBytes <= limits.clientOutSoftBytes) return
    if (pendingBytes > limits.clientOutHardBytes) {
      counters.slowReadersClosed++
      this.#session.destroy(new Error(`It reads too slowly: ${pendingBytes} bytes of replies wait`))
      return
    }
    if (pendingBytes > limits.clientOutPinBytes) this.#host.readsSlowly()
    this.#hold()
  }

  /** Replies are left with the target, where TCP and then the server hold them back. */
  #hold(): void {
    const lanes = this.#host.ownLanes()
    if (this.#cancelHold !== undefined || lanes.length === 0) return
    for (const lane of lanes) lane.pauseReading()
    const look = (): void => {
      this.#cancelHold = this.#host.clock.schedule(LOOK_MS, look)
      // The system may have taken the rest without ever having been full: then nothing drains.
      this.drained()
    }
    this.#cancelHold = this.#host.clock.schedule(LOOK_MS, look)
  }
}

const LOOK_MS = 20
