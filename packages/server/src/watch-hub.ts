/*
 * Who hears which key. Tarantool's rules (observed on 3.2.1): a subscription is answered at once, also for a key that
 * was never set; an EVENT that the client does not acknowledge by another WATCH of the key is the last one; between two
 * acknowledgements only the newest value is kept; a broadcast of an equal value notifies all the same; an EVENT carries
 * the sync of the latest WATCH for its key.
 */
import type { Clock } from '@orbweaver/connection'
import { BoxError, ErrorCode, FrameWriter, Key } from '@orbweaver/iproto'
import type { ClientSession } from './session.js'

export interface WatchHub {
  /** Sets the value of `key` (one encoded MessagePack value; undefined: no value) and tells everybody armed. */
  broadcast(key: string, value: Buffer | undefined): void
  /** Subscribes, or acknowledges the last event. @throws BoxError 1 when the session watches too many keys */
  watch(session: ClientSession, key: string, syncHigh: number, syncLow: number): void
  unwatch(session: ClientSession, key: string): void
  /**
   * Watches from within this process: `onValue` is called with the value of the moment soon, and with the newest one soon after
   * each broadcast (undefined: no value). It must not throw.
   * @returns ends it; nothing is called from then on
   */
  listen(key: string, onValue: (value: Buffer | undefined) => void): () => void
  /** Forgets a session. */
  drop(session: ClientSession): void
  /** The encoded value of the moment: what WATCH_ONCE answers. */
  value(key: string): Buffer | undefined
  /** How many sessions watch `key`. */
  watchers(key: string): number
}

interface Subscription {
  syncHigh: number
  syncLow: number
  /** The version the client was told last. */
  told: number
  /** false: an event is out and not acknowledged. */
  isArmed: boolean
  isQueued: boolean
}

/** A watcher of this process; it needs no acknowledgement. */
interface LocalWatcher {
  readonly onValue: (value: Buffer | undefined) => void
  isQueued: boolean
}

interface Topic {
  value: Buffer | undefined
  version: number
  /** The body of the event of this version, shared by all watchers. */
  body: Buffer | undefined
  readonly subscriptions: Map<ClientSession, Subscription>
  readonly locals: Set<LocalWatcher>
}

/**
 * A hub of one server. Events leave in `clock.soon`, so that a broadcast from within a request comes after its reply and a
 * burst of broadcasts costs one event.
 */
export function createWatchHub(options: { clock: Clock; maxWatchedKeys?: number }): WatchHub {
  return new Hub(options.clock, options.maxWatchedKeys ?? 1_000)
}

class Hub implements WatchHub {
  readonly #topics = new Map<string, Topic>()
  readonly #keysOf = new Map<ClientSession, Set<string>>()
  readonly #writer = new FrameWriter({ slabBytes: 4096 })
  #due: [key: string, watcher: ClientSession | LocalWatcher][] = []

  readonly #clock: Clock
  readonly #maxWatchedKeys: number

  constructor(clock: Clock, maxWatchedKeys: number) {
    this.#clock = clock
    this.#maxWatchedKeys = maxWatchedKeys
  }

  broadcast(key: string, value: Buffer | undefined): void {
    const topic = this.#topic(key)
    topic.value = value
    topic.version++
    topic.body = undefined
    for (const [session, subscription] of topic.subscriptions) {
      if (subscription.isArmed) this.#queue(key, session, subscription)
    }
    for (const watcher of topic.locals) this.#queue(key, watcher, watcher)
    this.#forgetIfIdle(key, topic)
  }

  watch(session: ClientSession, key: string, syncHigh: number, syncLow: number): void {
    const topic = this.#topic(key)
    let subscription = topic.subscriptions.get(session)
    if (subscription === undefined) {
      const keys = this.#keysOf.get(session) ?? new Set()
      if (keys.size >= this.#maxWatchedKeys) {
        this.#forgetIfIdle(key, topic)
        throw BoxError.of(
          ErrorCode['illegalParams'],
          `One session may watch ${this.#maxWatchedKeys} keys at the most: unwatch some before watching '${key.slice(0, 64)}'`,
        )
      }
      keys.add(key)
      this.#keysOf.set(session, keys)
      subscription = { syncHigh, syncLow, told: -1, isArmed: true, isQueued: false }
      topic.subscriptions.set(session, subscription)
    }
    subscription.syncHigh = syncHigh
    subscription.syncLow = syncLow
    subscription.isArmed = true
    if (subscription.told !== topic.version) this.#queue(key, session, subscription)
  }

  unwatch(session: ClientSession, key: string): void {
    const topic = this.#topics.get(key)
    if (topic === undefined || !topic.subscriptions.delete(session)) return
    const keys = this.#keysOf.get(session)
    keys?.delete(key)
    if (keys?.size === 0) this.#keysOf.delete(session)
    this.#forgetIfIdle(key, topic)
  }

  listen(key: string, onValue: (value: Buffer | undefined) => void): () => void {
    const topic = this.#topic(key)
    const watcher: LocalWatcher = { onValue, isQueued: false }
    topic.locals.add(watcher)
    this.#queue(key, watcher, watcher)
    return () => {
      if (topic.locals.delete(watcher)) this.#forgetIfIdle(key, topic)
    }
  }

  drop(session: ClientSession): void {
    for (const key of this.#keysOf.get(session) ?? []) {
      const topic = this.#topics.get(key)
      if (topic === undefined) continue
      topic.subscriptions.delete(session)
      this.#forgetIfIdle(key, topic)
    }
    this.#keysOf.delete(session)
  }

  value(key: string): Buffer | undefined {
    return this.#topics.get(key)?.value
  }

  watchers(key: string): number {
    return this.#topics.get(key)?.subscriptions.size ?? 0
  }

  #topic(key: string): Topic {
    let topic = this.#topics.get(key)
    if (topic === undefined) {
      topic = { value: undefined, version: 0, body: undefined, subscriptions: new Map(), locals: new Set() }
      this.#topics.set(key, topic)
    }
    return topic
  }

  /** Keys are chosen by clients: one that nobody set or watches any more must not stay. */
  #forgetIfIdle(key: string, topic: Topic): void {
    if (topic.subscriptions.size + topic.locals.size === 0 && topic.value === undefined) this.#topics.delete(key)
  }

  #queue(key: string, watcher: ClientSession | LocalWatcher, state: { isQueued: boolean }): void {
    if (state.isQueued) return
    state.isQueued = true
    if (this.#due.length === 0) this.#clock.soon(() => this.#deliver())
    this.#due.push([key, watcher])
  }

  #deliver(): void {
    const due = this.#due
    this.#due = []
    for (const [key, watcher] of due) {
      const topic = this.#topics.get(key)
      if (topic === undefined) continue
      if ('onValue' in watcher) {
        watcher.isQueued = false
        if (topic.locals.has(watcher)) watcher.onValue(topic.value)
        continue
      }
      const subscription = topic.subscriptions.get(watcher)
      // Unwatched and watched again meanwhile: then it stands here twice.
      if (subscription?.isQueued !== true) continue
      subscription.isQueued = false
      subscription.isArmed = false
      subscription.told = topic.version
      topic.body ??= eventBody(key, topic.value)
      const writer = this.#writer
      writer.beginEvent(subscription.syncHigh, subscription.syncLow)
      writer.raw(topic.body)
      writer.end()
      watcher.reply(writer.take())
    }
  }
}

/* EVENT (0x4c) body: 0x57 EVENT_KEY str, 0x58 EVENT_DATA any (absent when the key has no value). */
function eventBody(key: string, value: Buffer | undefined): Buffer {
  const writer = new FrameWriter({ slabBytes: 512 })
  writer.beginEvent(0, 0)
  writer.mapHeader(value === undefined ? 1 : 2)
  writer.uint(Key.eventKey)
  writer.text(key)
  if (value !== undefined) {
    writer.uint(Key.eventData)
    writer.raw(value)
  }
  writer.end()
  const frame = Buffer.concat(writer.take())
  // What precedes the body in this layout: 5 bytes of length, then 82 00 4c 01 00.
  return frame.subarray(EVENT_HEAD_BYTES)
}

const EVENT_HEAD_BYTES = 10
