/*
 * Watched keys of all clients, kept on one connection: that of the monitor of the master. A server tells a session about a
 * key once and then waits for its acknowledgement, and a second WATCH of the same session is such an acknowledgement: so
 * clients cannot share a session there, and the proxy keeps for each of them what the server would.
 */
import type { ClientSession } from '@orbweaver/server'
import type { WatchedValue } from './monitor.js'
import { eventBody, eventFrame, type SyncHalves } from './reply.js'

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
  readonly subscriptions: Map<ClientSession, Subscription>
}

/** The key that clients watch to be told of an end in time. Theirs is the proxy's own end, never that of a target. */
const SHUTDOWN_KEY = 'box.shutdown'
/** MessagePack. */
const TRUE: Buffer = Buffer.of(0xc3)

export class WatchRelay {
  readonly #topics = new Map<string, Topic>()
  readonly #keysOf = new Map<ClientSession, Set<string>>()
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

  keysOf(session: ClientSession): number {
    return this.#keysOf.get(session)?.size ?? 0
  }

  isWatching(session: ClientSession, key: string): boolean {
    return this.#keysOf.get(session)?.has(key) === true
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
  watch(session: ClientSession, key: string, sync: SyncHalves): void {
    let topic = this.#topics.get(key)
    if (topic === undefined) {
      topic = { body: undefined, value: undefined, version: 0, subscriptions: new Map() }
      this.#topics.set(key, topic)
      if (key === SHUTDOWN_KEY) this.#set(key, { bytes: this.#isEnding ? TRUE : undefined }, false)
      else this.#subscribe(key)
    }
    const subscription = topic.subscriptions.get(session)
    if (subscription === undefined) {
      topic.subscriptions.set(session, { sync, isArmed: true, told: 0 })
      const keys = this.#keysOf.get(session)
      if (keys === undefined) this.#keysOf.set(session, new Set([key]))
      else keys.add(key)
    } else {
      subscription.sync = sync
      subscription.isArmed = true
    }
    this.#tell(topic)
  }

  unwatch(session: ClientSession, key: string): void {
    const topic = this.#topics.get(key)
    if (topic === undefined || !topic.subscriptions.delete(session)) return
    const keys = this.#keysOf.get(session)
    keys?.delete(key)
    if (keys?.size === 0) this.#keysOf.delete(session)
    if (topic.subscriptions.size > 0) return
    this.#topics.delete(key)
    if (key !== SHUTDOWN_KEY) this.#source?.unwatch(key)
  }

  drop(session: ClientSession): void {
    for (const key of this.#keysOf.get(session) ?? []) this.unwatch(session, key)
  }

  /** Tells clients that watch for it that the proxy ends. */
  announceShutdown(): void {
    this.#isEnding = true
    this.#set(SHUTDOWN_KEY, { bytes: TRUE }, false)
  }

  watchesShutdown(session: ClientSession): boolean {
    return this.#keysOf.get(session)?.has(SHUTDOWN_KEY) === true
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
    for (const [session, subscription] of topic.subscriptions) {
      if (!subscription.isArmed || subscription.told === version) continue
      subscription.isArmed = false
      subscription.told = version
      if (isTooLarge) {
        session.destroy(
          new Error(`A watched value of ${body.length} bytes is more than the limit of ${this.#maxEventBytes}`),
        )
        continue
      }
      this.#delivered++
      session.reply(eventFrame(subscription.sync, body))
    }
  }
}

function sameBytes(a: Buffer | undefined, b: Buffer | undefined): boolean {
  return a === undefined || b === undefined ? a === b : a.equals(b)
}
