/*
 * Watched keys of all clients, kept on one connection: that of the monitor of the master. A server tells a watcher about a
 * key once and then waits for its acknowledgement, and a second WATCH of the same watcher is such an acknowledgement: so
 * clients cannot share a watcher there, and the proxy keeps for each of them what the server would.
 */
import type { WatchedValue } from './monitor.js'
import { eventBody, eventFrame, type SyncHalves } from './reply.js'

/** A client that watches. */
export interface Watcher {
  readonly session: { destroy(cause?: Error): void }
  /** Whole frames, in their order behind other replies. */
  tell(chunks: readonly Uint8Array[]): void
}

/** Where values come from. */
export interface WatchSource {
  watch(key: string): void
  unwatch(key: string): void
  valueOf(key: string): WatchedValue | undefined
}

interface Subscription {
  sync: SyncHalves
  /** The client waits for the next event; false: it has one that it has not acknowledged. */
  isArmed: boolean
  /** The version it was told last; 0: none. */
  told: number
}

interface Topic {
  /** Encoded body of the last event; undefined: nothing was received yet. */
  body: Buffer | undefined
  value: Buffer | undefined
  version: number
  readonly subscriptions: Map<Watcher, Subscription>
}

/** The key that clients watch to be told of an end in time. Theirs is the proxy's own end, never that of a target. */
const SHUTDOWN_KEY = 'box.shutdown'
/** MessagePack. */
const TRUE: Buffer = Buffer.of(0xc3)

export class WatchRelay {
  readonly #topics = new Map<string, Topic>()
  readonly #keysOf = new Map<Watcher, Set<string>>()
  readonly #maxEventBytes: number
  #source: WatchSource | undefined
  #delivered = 0
  #isEnding = false

  constructor(options: { maxEventBytes: number }) {
    this.#maxEventBytes = options.maxEventBytes
  }

  get keys(): number {
    return this.#topics.size
  }

  get subscriptions(): number {
    let sum = 0
    for (const keys of this.#keysOf.values()) sum += keys.size
    return sum
  }

  /** Events given to clients so far. */
  get delivered(): number {
    return this.#delivered
  }

  keysOf(watcher: Watcher): number {
    return this.#keysOf.get(watcher)?.size ?? 0
  }

  isWatching(watcher: Watcher, key: string): boolean {
    return this.#keysOf.get(watcher)?.has(key) === true
  }

  /** Values come from another target from now on; clients hear of those that differ. */
  follow(source: WatchSource | undefined): void {
    const before = this.#source
    if (source === before) return
    this.#source = source
    for (const key of this.#topics.keys()) {
      if (key === SHUTDOWN_KEY) continue
      before?.unwatch(key)
      this.#subscribe(key)
    }
  }

  /** A value arrived. @param isFirst - on its connection: it tells nothing new when it equals the last one */
  event(source: WatchSource, key: string, value: WatchedValue, isFirst: boolean): void {
    if (source === this.#source && key !== SHUTDOWN_KEY) this.#set(key, value, isFirst)
  }

  /** Subscribes, or acknowledges the last event. */
  watch(watcher: Watcher, key: string, sync: SyncHalves): void {
    let topic = this.#topics.get(key)
    if (topic === undefined) {
      topic = { body: undefined, value: undefined, version: 0, subscriptions: new Map() }
      this.#topics.set(key, topic)
      if (key === SHUTDOWN_KEY) this.#set(key, { bytes: this.#isEnding ? TRUE : undefined }, false)
      else this.#subscribe(key)
    }
    const subscription = topic.subscriptions.get(watcher)
    if (subscription === undefined) {
      topic.subscriptions.set(watcher, { sync, isArmed: true, told: 0 })
      const keys = this.#keysOf.get(watcher)
      if (keys === undefined) this.#keysOf.set(watcher, new Set([key]))
      else keys.add(key)
    } else {
      subscription.sync = sync
      subscription.isArmed = true
    }
    this.#tell(topic)
  }

  unwatch(watcher: Watcher, key: string): void {
    const topic = this.#topics.get(key)
    if (topic === undefined || !topic.subscriptions.delete(watcher)) return
    const keys = this.#keysOf.get(watcher)
    keys?.delete(key)
    if (keys?.size === 0) this.#keysOf.delete(watcher)
    if (topic.subscriptions.size > 0) return
    this.#topics.delete(key)
    if (key !== SHUTDOWN_KEY) this.#source?.unwatch(key)
  }

  drop(watcher: Watcher): void {
    for (const key of this.#keysOf.get(watcher) ?? []) this.unwatch(watcher, key)
  }

  /** Tells clients that watch for it that the proxy ends. */
  announceShutdown(): void {
    this.#isEnding = true
    this.#set(SHUTDOWN_KEY, { bytes: TRUE }, false)
  }

  watchesShutdown(watcher: Watcher): boolean {
    return this.#keysOf.get(watcher)?.has(SHUTDOWN_KEY) === true
  }

  #subscribe(key: string): void {
    const source = this.#source
    if (source === undefined) return
    const known = source.valueOf(key)
    source.watch(key)
    if (known !== undefined) this.#set(key, known, true)
  }

  #set(key: string, value: WatchedValue, isFirst: boolean): void {
    const topic = this.#topics.get(key)
    if (topic === undefined) return
    if (isFirst && topic.body !== undefined && sameBytes(topic.value, value.bytes)) return
    topic.value = value.bytes
    topic.body = eventBody(key, value.bytes)
    topic.version++
    this.#tell(topic)
  }

  #tell(topic: Topic): void {
    const { body, version } = topic
    if (body === undefined) return
    const isTooLarge = body.length > this.#maxEventBytes
    for (const [watcher, subscription] of topic.subscriptions) {
      if (!subscription.isArmed || subscription.told === version) continue
      subscription.isArmed = false
      subscription.told = version
      if (isTooLarge) {
        watcher.session.destroy(
          new Error(`A watched value of ${body.length} bytes is more than the limit of ${this.#maxEventBytes}`),
        )
        continue
      }
      this.#delivered++
      watcher.tell(eventFrame(subscription.sync, body))
    }
  }
}

function sameBytes(a: Buffer | undefined, b: Buffer | undefined): boolean {
  return a === undefined || b === undefined ? a === b : a.equals(b)
}
