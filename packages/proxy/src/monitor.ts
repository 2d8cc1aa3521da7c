/*
 * The connection that watches a target. Every target has one from the start, used or not: so a failover does not begin with
 * a dial, and whether the target lives, writes or is about to stop is known without anybody's request. It is guest's, which
 * suffices: watching needs no rights.
 */
import { type ChannelSink, type Clock, type FrameChannel, reconnectDelayMs } from '@orbweaver/connection'
import {
  BodyReader,
  Feature,
  FrameHeader,
  FrameWriter,
  isOrbweaverError,
  Key,
  pingRequest,
  type OrbweaverError,
  RequestType,
  unwatchRequest,
  watchRequest,
} from '@orbweaver/iproto'

/** A value of a watched key, encoded; `bytes` undefined: the key has no value. */
export interface WatchedValue {
  readonly bytes: Buffer | undefined
}

export interface MonitorOwner {
  readonly clock: Clock
  readonly random: () => number
  readonly pingIntervalMs: number
  readonly pingTimeoutMs: number
  /** Dials and shakes hands as guest, asking for every feature. */
  openMonitor(signal: AbortSignal): Promise<FrameChannel>
  /** The target is there: its version, uuid and features are those of the channel. */
  monitorUp(channel: FrameChannel): void
  /** It is not, or not any more. Told once per change, and with each failed attempt. */
  monitorDown(cause: unknown): void
  /** No answer in time, or an answer again. */
  monitorSuspect(isSuspect: boolean): void
  /** @param isFirst - of this connection: it may repeat what was known before */
  monitorEvent(key: string, value: WatchedValue, isFirst: boolean): void
}

/** Watched for the proxy's own use; others come and go with clients. */
const OWN_KEYS: readonly string[] = ['box.status', 'box.election', 'box.shutdown']

export class Monitor implements ChannelSink {
  readonly #owner: MonitorOwner
  readonly #writer = new FrameWriter({ slabBytes: 4096 })
  readonly #header = new FrameHeader()
  /** Keys watched, with the last value of this connection. */
  readonly #keys = new Map<string, WatchedValue | undefined>()
  readonly #stop = new AbortController()
  #channel: FrameChannel | undefined
  #attempt = 0
  #cancelTimer: (() => void) | undefined
  #lastReceivedAt = 0
  #pingSync = 0
  #isPingOut = false
  #missedPings = 0

  constructor(owner: MonitorOwner) {
    this.#owner = owner
    for (const key of OWN_KEYS) this.#keys.set(key, undefined)
  }

  start(): void {
    void this.#connect()
  }

  stop(): void {
    this.#stop.abort(new Error('The proxy watches this target no longer'))
    this.#cancelTimer?.()
    this.#channel?.destroy()
    this.#channel = undefined
  }

  /** Closes the connection of now and looks for the next one: the server is waiting for us to go. */
  leave(): void {
    this.#channel?.destroy(new Error('it is shutting down'))
  }

  /** The last value of a key on the connection of now; undefined: none was received. */
  valueOf(key: string): WatchedValue | undefined {
    return this.#keys.get(key)
  }

  watch(key: string): void {
    if (this.#keys.has(key)) return
    this.#keys.set(key, undefined)
    this.#tellWatch(key)
  }

  unwatch(key: string): void {
    if (OWN_KEYS.includes(key) || !this.#keys.delete(key)) return
    if (this.#canWatch) this.#tell(() => this.#writer.request(unwatchRequest(key), 0))
  }

  // ---- what the channel says ----------------------------------------------------------------------------------------

  frame(frame: Buffer): void {
    this.#lastReceivedAt = this.#owner.clock.now()
    try {
      this.#header.read(frame)
      if (this.#header.type === RequestType.event) {
        this.#event(frame.subarray(this.#header.bodyStart, this.#header.bodyEnd))
      } else if (this.#isPingOut && this.#header.sync === this.#pingSync) {
        this.#isPingOut = false
        if (this.#missedPings > 0) this.#owner.monitorSuspect(false)
        this.#missedPings = 0
      }
    } catch (error) {
      if (!isOrbweaverError(error)) throw error
      this.#channel?.destroy(error)
    }
  }

  drain(): void {
    // Watches and pings are few and small: nothing is held back for them.
  }

  closed(cause: OrbweaverError): void {
    if (this.#stop.signal.aborted || this.#channel === undefined) return
    this.#channel = undefined
    for (const key of this.#keys.keys()) this.#keys.set(key, undefined)
    this.#attempt = 0
    this.#owner.monitorDown(cause)
    this.#again()
  }

  // ---- inside -------------------------------------------------------------------------------------------------------

  async #connect(): Promise<void> {
    try {
      const channel = await this.#owner.openMonitor(this.#stop.signal)
      if (this.#stop.signal.aborted) {
        channel.destroy()
        return
      }
      this.#channel = channel
      this.#attempt = 0
      this.#isPingOut = false
      this.#missedPings = 0
      this.#lastReceivedAt = this.#owner.clock.now()
      channel.attach(this)
      this.#owner.monitorUp(channel)
      for (const key of this.#keys.keys()) this.#tellWatch(key)
      this.#watchPulse()
    } catch (error) {
      if (this.#stop.signal.aborted) return
      this.#owner.monitorDown(error)
      this.#again()
    }
  }

  #again(): void {
    this.#cancelTimer?.()
    const delayMs = reconnectDelayMs(this.#attempt++, this.#owner.random(), RECONNECT)
    this.#cancelTimer = this.#owner.clock.schedule(delayMs, () => void this.#connect())
  }

  /* A stopped process keeps its connections open for ever: only silence gives it away. */
  #watchPulse(): void {
    const { clock, pingIntervalMs, pingTimeoutMs } = this.#owner
    const waitMs = this.#isPingOut ? pingTimeoutMs : pingIntervalMs
    const dueAt = clock.now() + waitMs
    this.#cancelTimer?.()
    this.#cancelTimer = clock.schedule(waitMs, () => {
      const isLate = clock.now() - dueAt > waitMs / 2
      // After a stall of our own the answer may be here already, unread.
      if (isLate) clock.soon(() => clock.soon(() => this.#judge()))
      else this.#judge()
    })
  }

  #judge(): void {
    const channel = this.#channel
    if (channel === undefined || this.#stop.signal.aborted) return
    const { clock, pingIntervalMs } = this.#owner
    if (this.#isPingOut) {
      this.#missedPings++
      this.#owner.monitorSuspect(true)
      if (this.#missedPings >= MAX_MISSED_PINGS) {
        channel.destroy(new Error(`it gave no sign of life for ${Math.round(clock.now() - this.#lastReceivedAt)} ms`))
        return
      }
    }
    if (this.#isPingOut || clock.now() - this.#lastReceivedAt >= pingIntervalMs) {
      this.#isPingOut = true
      this.#pingSync++
      this.#tell(() => this.#writer.request(pingRequest(), this.#pingSync))
    }
    this.#watchPulse()
  }

  get #canWatch(): boolean {
    return this.#channel?.features.has(Feature.watchers) === true
  }

  #tellWatch(key: string): void {
    if (this.#canWatch) this.#tell(() => this.#writer.request(watchRequest(key), 0))
  }

  #tell(write: () => void): void {
    write()
    this.#channel?.write(this.#writer.take())
  }

  #event(body: Buffer): void {
    const reader = new BodyReader(body)
    const key = reader.text(Key.eventKey)
    if (key === undefined || !this.#keys.has(key)) return
    const slice = reader.slice(Key.eventData)
    // A copy: the slice would hold the received chunk for as long as the value lives.
    const value: WatchedValue = { bytes: slice === undefined ? undefined : Buffer.from(slice) }
    const isFirst = this.#keys.get(key) === undefined
    this.#keys.set(key, value)
    // An event that is not answered with another WATCH is the last one.
    this.#tellWatch(key)
    this.#owner.monitorEvent(key, value, isFirst)
  }
}

const RECONNECT = { minDelayMs: 100, maxDelayMs: 5_000, jitter: 0.2, retries: Number.POSITIVE_INFINITY }
const MAX_MISSED_PINGS = 2
