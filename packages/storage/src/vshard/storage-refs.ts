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
import { takeTurn } from './scheduler-turn.js'
import type { Scheduler } from './scheduler.js'
import { Waiters } from './waiters.js'

interface StorageRef {
  readonly session: number
  readonly id: number | bigint
  readonly deadline: number
  readonly since: number
  isUsed: boolean
}

/** A reference as an operator sees it. */
export interface StorageRefInfo {
  /** What `unref` takes. */
  readonly id: string
  /** `local` for one that was taken in this process, else the session. */
  readonly owner: string
  readonly ageMs: number
  /** Until it expires; Infinity: never. A used one does not expire. */
  readonly leftMs: number
  /** A map runs under it. */
  readonly isUsed: boolean
}

/** The session of references taken in this process: it never ends. */
const LOCAL_SESSION = -1
/** References of one session: a router needs one per running map. */
const MAX_REFS_PER_SESSION = 100_000

export class StorageRefs {
  readonly #clock: Clock
  readonly #buckets: Buckets
  readonly #scheduler: Scheduler
  readonly #sessions = new Map<number, Map<string, StorageRef>>()
  /** Ended sessions that still use a ref, or wait for one. */
  readonly #closed = new Set<number>()
  /** How many refs each session waits for. */
  readonly #waiting = new Map<number, number>()
  readonly #heap = new RefHeap<StorageRef>()
  readonly #ended: Waiters
  #lastLocal = 0
  #cancelTimer: (() => void) | undefined
  #timerAt = Infinity

  constructor(clock: Clock, buckets: Buckets, scheduler: Scheduler) {
    this.#clock = clock
    this.#buckets = buckets
    this.#scheduler = scheduler
    this.#ended = new Waiters(clock)
  }

  /** References held now, used ones included. */
  get size(): number {
    let size = 0
    for (const refs of this.#sessions.values()) size += refs.size
    return size
  }

  /**
   * Takes a reference once every bucket is writable.
   * @param expireMs - how long it holds from then on; default: the rest of `timeoutMs`
   * @throws VshardError STORAGE_REF_ADD for a duplicate, BoxError 78 when the buckets did not come to rest in time
   */
  async add(session: number, id: number | bigint, timeoutMs: number, expireMs?: number): Promise<void> {
    const deadline = this.#clock.now() + timeoutMs
    this.#refuseDuplicate(session, id)
    this.#waiting.set(session, (this.#waiting.get(session) ?? 0) + 1)
    try {
      await takeTurn(this.#scheduler, this.#clock, 'ref', timeoutMs)
      await this.#addInTurn(session, id, deadline, expireMs)
    } finally {
      const waiting = this.#waiting.get(session)! - 1
      if (waiting === 0) this.#waiting.delete(session)
      else this.#waiting.set(session, waiting)
      this.#dropIfDone(session)
    }
  }

  async #addInTurn(
    session: number,
    id: number | bigint,
    deadline: number,
    expireMs: number | undefined,
  ): Promise<void> {
    try {
      if (!(await this.#buckets.until(() => this.#buckets.areAllWritable, deadline))) throw boxErrors.timeout()
      // The session may have ended while it waited: nobody would ever give this reference back.
      if (this.#closed.has(session)) throw VshardError.of('STORAGE_REF_ADD', { reason: 'the session has ended' })
      this.#keep(session, id, expireMs === undefined ? deadline : this.#clock.now() + expireMs)
    } catch (error) {
      this.#scheduler.end('ref')
      throw error
    }
  }

  /**
   * A reference of this process: it ends when it is disposed of, or expires.
   * @returns its disposal fails with STORAGE_REF_DEL when it has expired or was taken away meanwhile
   */
  async addLocal(options: { timeout: number; expire?: number }): Promise<AsyncDisposable & { readonly id: string }> {
    const id = ++this.#lastLocal
    await this.add(LOCAL_SESSION, id, options.timeout, options.expire ?? Infinity)
    return {
      id: nameOf(LOCAL_SESSION, id),
      [Symbol.asyncDispose]: async () => {
        if (this.#sessions.get(LOCAL_SESSION)?.has(String(id)) === true) return this.remove(LOCAL_SESSION, id)
        throw VshardError.of('STORAGE_REF_DEL', {
          reason: `the reference ${nameOf(LOCAL_SESSION, id)} expired or was deleted: buckets may have moved since`,
        })
      },
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

  /** Ends the use of one; false when an operator has deleted it meanwhile: buckets may have moved during the map. */
  finish(session: number, id: number | bigint): boolean {
    const ref = this.#sessions.get(session)?.get(String(id))
    if (ref === undefined) return false
    this.#forget(ref)
    return true
  }

  /** @throws VshardError STORAGE_REF_USE when the session does not hold it */
  assertHeld(session: number, id: number | bigint): void {
    this.#find(session, id, 'STORAGE_REF_USE')
  }

  /** The session ended: what it did not use is void at once, what it uses ends with its map. */
  sessionClosed(session: number): void {
    const refs = this.#sessions.get(session)
    if (refs === undefined && !this.#waiting.has(session)) return
    this.#closed.add(session)
    for (const ref of [...(refs?.values() ?? [])]) if (!ref.isUsed) this.#forget(ref)
    this.#dropIfDone(session)
  }

  /** The oldest first. */
  list(): StorageRefInfo[] {
    const now = this.#clock.now()
    return [...this.#refs()]
      .toSorted((a, b) => a.since - b.since)
      .map(({ session, id, since, deadline, isUsed }) => ({
        id: nameOf(session, id),
        owner: session === LOCAL_SESSION ? 'local' : `session ${session}`,
        ageMs: now - since,
        leftMs: isUsed ? Infinity : deadline - now,
        isUsed,
      }))
  }

  /** Deletes one by the id of the list; false when there is none. A map that runs under it will fail. */
  unref(name: string): boolean {
    for (const ref of this.#refs()) {
      if (nameOf(ref.session, ref.id) !== name) continue
      this.#forget(ref)
      return true
    }
    return false
  }

  /** Deletes all. @returns how many there were */
  unrefAll(): number {
    const refs = [...this.#refs()]
    for (const ref of refs) this.#forget(ref)
    return refs.length
  }

  /** Whether the references that are held now have ended by the deadline. */
  ended(deadline: number): Promise<boolean> {
    const held = [...this.#refs()]
    const isHeld = (ref: StorageRef): boolean => this.#sessions.get(ref.session)?.get(String(ref.id)) === ref
    return this.#ended.until(() => !held.some(isHeld), deadline)
  }

  close(): void {
    this.#cancelTimer?.()
    this.#cancelTimer = undefined
  }

  *#refs(): IterableIterator<StorageRef> {
    for (const refs of this.#sessions.values()) yield* refs.values()
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
    if (this.#sessions.get(ref.session)?.delete(String(ref.id)) === true) {
      this.#scheduler.end('ref')
      this.#ended.wake()
    }
    this.#dropIfDone(ref.session)
  }

  /** A living session that had a ref once is told "no ref" afterwards, not "no session": it is kept to its end. */
  #dropIfDone(session: number): void {
    const isInUse = (this.#sessions.get(session)?.size ?? 0) > 0 || this.#waiting.has(session)
    if (!this.#closed.has(session) || isInUse) return
    this.#sessions.delete(session)
    this.#closed.delete(session)
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

function nameOf(session: number, id: number | bigint): string {
  return `${session}/${id}`
}
