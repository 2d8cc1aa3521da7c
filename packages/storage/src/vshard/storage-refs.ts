/*
 * Storage references: a promise to one session that no bucket of this storage moves until a deadline. Map-reduce takes one on
 * every storage before it maps anywhere, so that each bucket is counted exactly once. Unlike the original, an expired
 * reference is void (it cannot be used any more), and a duplicate is found before waiting.
 */
import type { Clock } from '@orbweaver/connection'
import { VshardError } from '@orbweaver/vshard'
import { boxErrors } from '../errors.js'
import type { Buckets } from './buckets.js'
import { RefHeap } from './ref-heap.js'
import type { Scheduler } from './scheduler.js'

interface StorageRef {
  readonly session: number
  readonly id: number | bigint
  readonly deadline: number
  readonly since: number
  isUsed: boolean
}

/** References of one session: a router needs one per running map. */
const MAX_REFS_PER_SESSION = 100_000

export class StorageRefs {
  readonly #clock: Clock
  readonly #buckets: Buckets
  readonly #scheduler: Scheduler
  readonly #sessions = new Map<number, Map<string, StorageRef>>()
  /** Ended sessions that still use a ref. */
  readonly #closed = new Set<number>()
  readonly #heap = new RefHeap<StorageRef>()
  #cancelTimer: (() => void) | undefined
  #timerAt = Infinity

  constructor(clock: Clock, buckets: Buckets, scheduler: Scheduler) {
    this.#clock = clock
    this.#buckets = buckets
    this.#scheduler = scheduler
  }

  /** References held now, used ones included. */
  get size(): number {
    let size = 0
    for (const refs of this.#sessions.values()) size += refs.size
    return size
  }

  /**
   * Takes a reference once every bucket is writable.
   * @throws VshardError STORAGE_REF_ADD for a duplicate, BoxError 78 when the buckets did not come to rest in time
   */
  async add(session: number, id: number | bigint, timeoutMs: number): Promise<void> {
    const deadline = this.#clock.now() + timeoutMs
    this.#refuseDuplicate(session, id)
    await this.#takeTurn(timeoutMs)
    try {
      await this.#restOfBuckets(deadline)
      this.#keep(session, id, deadline)
    } catch (error) {
      this.#scheduler.end('ref')
      throw error
    }
  }

  /** Marks it used: from now on it does not expire, it ends with `remove`. @throws VshardError STORAGE_REF_USE */
  use(session: number, id: number | bigint): void {
    const ref = this.#find(session, id, 'STORAGE_REF_USE')
    if (ref.isUsed) throw VshardError.of('STORAGE_REF_USE', { reason: 'the ref is in use' })
    ref.isUsed = true
    this.#heap.remove(ref)
  }

  /** @throws VshardError STORAGE_REF_DEL */
  remove(session: number, id: number | bigint): void {
    this.#forget(this.#find(session, id, 'STORAGE_REF_DEL'))
  }

  /** @throws VshardError STORAGE_REF_USE when the session does not hold it */
  assertHeld(session: number, id: number | bigint): void {
    this.#find(session, id, 'STORAGE_REF_USE')
  }

  /** The session ended: what it did not use is void at once, what it uses ends with its map. */
  sessionClosed(session: number): void {
    const refs = this.#sessions.get(session)
    if (refs === undefined) return
    this.#closed.add(session)
    for (const ref of refs.values()) if (!ref.isUsed) this.#forget(ref)
    this.#dropIfDone(session)
  }

  close(): void {
    this.#cancelTimer?.()
    this.#cancelTimer = undefined
  }

  /** @throws BoxError 78 when moves do not let it through in time */
  #takeTurn(timeoutMs: number): Promise<void> {
    return new Promise((resolve, reject) => {
      let isGranted = false
      let cancelTimer: () => void = () => undefined
      const giveUp = this.#scheduler.start('ref', () => {
        isGranted = true
        cancelTimer()
        resolve()
      })
      if (isGranted) return
      cancelTimer = this.#clock.schedule(timeoutMs, () => {
        giveUp()
        reject(boxErrors.timeout())
      })
    })
  }

  async #restOfBuckets(deadline: number): Promise<void> {
    while (!this.#buckets.areAllWritable) {
      const left = deadline - this.#clock.now()
      if (left <= 0) throw boxErrors.timeout()
      await this.#changedWithin(left)
    }
  }

  #keep(session: number, id: number | bigint, deadline: number): void {
    this.#refuseDuplicate(session, id)
    const refs = this.#sessions.get(session) ?? new Map<string, StorageRef>()
    if (refs.size >= MAX_REFS_PER_SESSION) {
      throw VshardError.of('STORAGE_REF_ADD', { reason: `the session holds ${MAX_REFS_PER_SESSION} refs` })
    }
    const ref: StorageRef = { session, id, deadline, since: this.#clock.now(), isUsed: false }
    refs.set(String(id), ref)
    this.#sessions.set(session, refs)
    this.#heap.push(ref)
    this.#watch()
  }

  #refuseDuplicate(session: number, id: number | bigint): void {
    if (this.#sessions.get(session)?.has(String(id)) === true)
      throw VshardError.of('STORAGE_REF_ADD', { reason: 'duplicate ref' })
  }

  #find(session: number, id: number | bigint, name: 'STORAGE_REF_USE' | 'STORAGE_REF_DEL'): StorageRef {
    const refs = this.#sessions.get(session)
    if (refs === undefined) throw VshardError.of(name, { reason: 'no session' })
    const ref = refs.get(String(id))
    if (ref === undefined) throw VshardError.of(name, { reason: 'no ref' })
    return ref
  }

  #forget(ref: StorageRef): void {
    this.#heap.remove(ref)
    if (this.#sessions.get(ref.session)?.delete(String(ref.id)) === true) this.#scheduler.end('ref')
    this.#dropIfDone(ref.session)
  }

  /** A living session that had a ref once is told "no ref" afterwards, not "no session": it is kept to its end. */
  #dropIfDone(session: number): void {
    if (!this.#closed.has(session) || this.#sessions.get(session)?.size !== 0) return
    this.#sessions.delete(session)
    this.#closed.delete(session)
  }

  #changedWithin(timeoutMs: number): Promise<void> {
    return new Promise((resolve) => {
      const forget = this.#buckets.onceChanged(() => {
        cancel()
        resolve()
      })
      const cancel = this.#clock.schedule(timeoutMs, () => {
        forget()
        resolve()
      })
    })
  }

  /** One timer for the nearest deadline. */
  #watch(): void {
    const nearest = this.#heap.peek()
    if (nearest === undefined || nearest.deadline >= this.#timerAt || nearest.deadline === Infinity) return
    this.#cancelTimer?.()
    this.#timerAt = nearest.deadline
    this.#cancelTimer = this.#clock.schedule(Math.max(0, nearest.deadline - this.#clock.now()), () => {
      this.#timerAt = Infinity
      this.#cancelTimer = undefined
      const now = this.#clock.now()
      for (let ref = this.#heap.peek(); ref !== undefined && ref.deadline <= now; ref = this.#heap.peek())
        this.#forget(ref)
      this.#watch()
    })
  }
}
