/**
 * Subscriptions to the server's keys. Several local watchers of a key share one remote subscription. An event is
 * acknowledged by another WATCH after the callbacks returned; until then the server keeps only the newest value, and an
 * event nobody acknowledges would be the last one. After a reconnect every key is subscribed again.
 */
import { type OrbweaverError, type Request, unwatchRequest, watchRequest } from '@orbweaver/iproto'
import { surface } from './surface.js'

/** What the subscriptions need of the link. */
export interface WatchPort {
  readonly isUp: boolean
  /** Why the peer of this generation has no watchers; undefined: it has. */
  refusal(): OrbweaverError | undefined
  tell(request: Request, sync: number): void
  soon(task: () => void): void
  /** Told of errors of watchers without an `onError`. */
  unheard(key: string, error: OrbweaverError): void
}

export interface Watcher {
  readonly onValue: (value: unknown) => void
  readonly onError: ((error: OrbweaverError) => void) | undefined
  /** The connection's own: it does without where there are no watchers. */
  readonly isOptional?: boolean
}

export class Watchers {
  readonly #port: WatchPort
  readonly #subscriptions = new Map<string, Subscription>()
  #lastSync = FIRST_SYNC

  constructor(port: WatchPort) {
    this.#port = port
  }

  /** Keys with at least one watcher. */
  get size(): number {
    return this.#subscriptions.size
  }

  /**
   * @returns ends this watcher; harmless when repeated
   * @throws UnsupportedFeatureError when the connection is up and its server has no watchers
   */
  add(key: string, watcher: Watcher): () => void {
    if (this.#port.isUp && watcher.isOptional !== true) {
      const refusal = this.#port.refusal()
      if (refusal !== undefined) throw refusal
    }
    let subscription = this.#subscriptions.get(key)
    if (subscription === undefined) {
      subscription = { watchers: new Set(), sync: 0, events: 0, value: undefined, fences: [] }
      this.#subscriptions.set(key, subscription)
      subscription.watchers.add(watcher)
      this.#subscribe(key, subscription)
    } else {
      subscription.watchers.add(watcher)
      if (subscription.events > 0) this.#tellLast(subscription, watcher)
    }
    return () => this.#remove(key, watcher)
  }

  /**
   * Reads the value of this moment where WATCH_ONCE does not exist: subscribing anew makes the server send it at once,
   * after everything it sent before on this connection.
   */
  fence(key: string, done: (value: unknown) => void, failed: (error: OrbweaverError) => void): () => void {
    const wasWatched = this.#subscriptions.has(key)
    const remove = this.add(key, { onValue: () => undefined, onError: failed })
    const subscription = this.#subscriptions.get(key)
    if (subscription !== undefined) {
      if (wasWatched && this.#port.isUp) {
        this.#port.tell(unwatchRequest(key), (this.#lastSync += 1))
        this.#subscribe(key, subscription)
      }
      subscription.fences.push({ sync: subscription.sync, done, failed })
    }
    return remove
  }

  /** A connection is up: subscribes to everything again. */
  begun(): void {
    const refusal = this.#port.refusal()
    for (const [key, subscription] of this.#subscriptions) {
      subscription.events = 0
      if (refusal === undefined) this.#subscribe(key, subscription)
      else this.#fail(key, subscription, refusal)
    }
  }

  /** The connection is gone: what was known is not known any more. */
  ended(cause: OrbweaverError): void {
    for (const subscription of this.#subscriptions.values()) {
      const { fences } = subscription
      subscription.events = 0
      subscription.value = undefined
      subscription.fences = []
      for (const { failed } of fences) callBack(failed, cause)
    }
  }

  /** An EVENT came. Events are matched by key; the sync only tells which subscription of ours it answers. */
  event(key: string, value: unknown, sync: number): void {
    const subscription = this.#subscriptions.get(key)
    if (subscription === undefined) return
    subscription.events += 1
    subscription.value = value
    for (const watcher of [...subscription.watchers]) {
      if (subscription.watchers.has(watcher)) callBack(watcher.onValue, value)
    }
    for (const fence of this.#passed(subscription, sync)) callBack(fence.done, value)
    this.#acknowledge(key, subscription)
  }

  /** An EVENT came whose value cannot be decoded as its watchers want it: they are told, and the next one is waited for. */
  unreadable(key: string, error: OrbweaverError, sync: number): void {
    const subscription = this.#subscriptions.get(key)
    if (subscription === undefined) return
    this.#fail(key, subscription, error)
    for (const fence of this.#passed(subscription, sync)) callBack(fence.failed, error)
    this.#acknowledge(key, subscription)
  }

  /** An error frame came. @returns whether it answers a WATCH of ours */
  failed(sync: number, error: OrbweaverError): boolean {
    if (sync < FIRST_SYNC) return false
    for (const [key, subscription] of this.#subscriptions) {
      if (subscription.sync === sync) this.#fail(key, subscription, error)
    }
    return true
  }

  /** The connection is closed for good. */
  clear(): void {
    this.#subscriptions.clear()
  }

  #passed(subscription: Subscription, sync: number): Fence[] {
    const { fences } = subscription
    subscription.fences = fences.filter((fence) => fence.sync > sync)
    return fences.filter((fence) => fence.sync <= sync)
  }

  /** Only after the callbacks: a slow one is back-pressure, and one that unsubscribed wants no more. */
  #acknowledge(key: string, subscription: Subscription): void {
    if (this.#subscriptions.get(key) === subscription) this.#port.tell(watchRequest(key), subscription.sync)
  }

  #remove(key: string, watcher: Watcher): void {
    const subscription = this.#subscriptions.get(key)
    if (subscription === undefined || !subscription.watchers.delete(watcher) || subscription.watchers.size > 0) return
    this.#subscriptions.delete(key)
    if (this.#port.isUp && this.#port.refusal() === undefined)
      this.#port.tell(unwatchRequest(key), (this.#lastSync += 1))
  }

  #subscribe(key: string, subscription: Subscription): void {
    this.#lastSync += 1
    subscription.sync = this.#lastSync
    if (this.#port.isUp && this.#port.refusal() === undefined) this.#port.tell(watchRequest(key), subscription.sync)
  }

  /** The last value for one who came later; not if an event comes first. */
  #tellLast(subscription: Subscription, watcher: Watcher): void {
    const { events } = subscription
    this.#port.soon(() => {
      if (subscription.events === events && subscription.watchers.has(watcher))
        callBack(watcher.onValue, subscription.value)
    })
  }

  #fail(key: string, subscription: Subscription, error: OrbweaverError): void {
    for (const { isOptional, onError } of [...subscription.watchers]) {
      if (isOptional === true) continue
      if (onError === undefined) this.#port.unheard(key, error)
      else callBack(onError, error)
    }
  }
}

interface Subscription {
  readonly watchers: Set<Watcher>
  /** Of its last WATCH; acknowledgements repeat it. */
  sync: number
  /** Events received on this connection; 0: no value is known. */
  events: number
  value: unknown
  fences: Fence[]
}

/** Somebody who waits for the event of a certain WATCH. */
interface Fence {
  readonly sync: number
  readonly done: (value: unknown) => void
  readonly failed: (error: OrbweaverError) => void
}

function callBack<T>(callback: (value: T) => void, value: T): void {
  try {
    callback(value)
  } catch (error) {
    surface(error)
  }
}

/** WATCH has no answer but may fail: a range of numbers of its own tells its errors from those of requests. */
const FIRST_SYNC = 2 ** 52
