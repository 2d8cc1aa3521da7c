/*
 * Work of the application that goes before something the storage is about to do: before a bucket moves, before the instance
 * gives up its role, before it ends. Listeners run together, and up to a bound the storage waits for them.
 */
import type { Clock } from '@orbweaver/connection'
import { InvalidArgumentError } from '@orbweaver/iproto'
import { log } from './diagnostics.js'

/** What can be preceded, with what its listeners are told. */
export interface BeforeEvents {
  /** A bucket is about to leave. A listener that throws refuses this move. */
  move: {
    readonly bucketId: number
    /** Id of the replicaset it goes to. */
    readonly destination: string
  }
  /** `demote` was called; writes are still taken. */
  demote: {
    /** The term this instance was promoted in. */
    readonly term: number
  }
  /** `close` was called; everything is still served. */
  shutdown: {
    /** Whether it takes no writes. */
    readonly isReadonly: boolean
  }
}

/**
 * May be async. `signal` fires when the storage goes on without it (`hookTimeoutMs`).
 */
export type BeforeListener<K extends keyof BeforeEvents> = (
  event: BeforeEvents[K] & { readonly signal: AbortSignal },
) => unknown

export class Hooks {
  readonly #storage: string
  readonly #clock: Clock
  readonly #timeoutMs: number
  readonly #listeners: { readonly [K in keyof BeforeEvents]: Set<BeforeListener<K>> } = {
    move: new Set(),
    demote: new Set(),
    shutdown: new Set(),
  }

  constructor(storage: string, clock: Clock, timeoutMs: number) {
    this.#storage = storage
    this.#clock = clock
    this.#timeoutMs = timeoutMs
  }

  /** @returns takes it away again */
  add<K extends keyof BeforeEvents>(kind: K, listener: BeforeListener<K>): () => void {
    if (!Object.hasOwn(this.#listeners, kind)) {
      const known = Object.keys(this.#listeners).join(', ')
      throw new InvalidArgumentError(`There is no hook before '${kind}'; known are ${known}`)
    }
    if (typeof listener !== 'function')
      throw new InvalidArgumentError(`The listener before '${kind}' is ${typeof listener}, expected a function`)
    const listeners = this.#listeners[kind]
    // A function of its own, so that the same one added twice is two listeners.
    const added: BeforeListener<K> = (event) => listener(event)
    listeners.add(added)
    return () => void listeners.delete(added)
  }

  has(kind: keyof BeforeEvents): boolean {
    return this.#listeners[kind].size > 0
  }

  /**
   * Runs the listeners, no longer than the bound. What goes wrong with one is told on `orbweaver:log`.
   * @param boundMs - a shorter bound than the one of the configuration
   * @returns what they threw in time
   */
  async run<K extends keyof BeforeEvents>(
    kind: K,
    event: BeforeEvents[K],
    boundMs: number = Infinity,
  ): Promise<readonly unknown[]> {
    const listeners = [...this.#listeners[kind]]
    if (listeners.length === 0) return []
    const timeoutMs = Math.min(this.#timeoutMs, boundMs)
    const abort = new AbortController()
    const failures: unknown[] = []
    const overtime = new Promise<false>((resolve) => {
      abort.signal.addEventListener('abort', () => resolve(false), { once: true })
    })
    const cancel = this.#clock.schedule(timeoutMs, () =>
      abort.abort(new Error(`The storage goes on: ${timeoutMs} ms before ${kind} are over`)),
    )
    const work = async (listener: BeforeListener<K>): Promise<boolean> => {
      try {
        await listener({ ...event, signal: abort.signal })
      } catch (error) {
        log('warn', this.#storage, 'hook failed', () => ({ hook: kind, ...event, error }))
        if (!abort.signal.aborted) failures.push(error)
      }
      return true
    }
    const running = listeners.map(async (listener) => {
      if (await Promise.race([work(listener), overtime])) return
      log('warn', this.#storage, 'hook timed out', () => ({ hook: kind, ...event, timeoutMs }))
    })
    await Promise.all(running)
    cancel()
    return failures
  }
}
