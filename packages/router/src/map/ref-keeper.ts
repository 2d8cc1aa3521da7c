/*
 * References that last: each is replaced by a fresh one long before it expires. The storage knows no other way to prolong one, and
 * gives the fresh one by its usual rules: where a move waits for its turn after many references in a row, it may not give it in
 * time. Then the keeper says so, since buckets may move again.
 */
import { HoldLostError } from '../errors.js'
import type { RoutedSet } from '../topology.js'
import type { HeldRef } from './held-ref.js'
import type { MapOwner } from './map-owner.js'
import { RefRequest, WHOLE_STORAGE } from './ref-request.js'
import type { RefListener } from './ref-request.js'

/** For how long a storage keeps a reference when it hears nothing more. */
export const REF_LIFE_MS = 30_000
const RENEW_AFTER_MS = REF_LIFE_MS / 3
const RETRY_MS = 500

export class RefKeeper {
  readonly #owner: MapOwner
  readonly #kept: readonly KeptRef[]
  #isOver = false

  /**
   * @param expires - when the references expire by themselves
   * @param onLost - told once, when a reference is gone or worth nothing any more; nothing is held from then on
   */
  constructor(owner: MapOwner, held: readonly HeldRef[], expires: number, onLost: (error: HoldLostError) => void) {
    this.#owner = owner
    const lost = (error: HoldLostError): void => {
      if (this.#isOver) return
      this.stop()
      onLost(error)
    }
    this.#kept = held.map((ref) => new KeptRef(this.#owner, ref, expires, lost))
    for (const kept of this.#kept) kept.start()
  }

  /** Every reference is given back. */
  stop(): void {
    this.#isOver = true
    for (const kept of this.#kept) kept.stop()
  }
}

class KeptRef implements RefListener {
  readonly #owner: MapOwner
  readonly #set: RoutedSet
  readonly #onLost: (error: HoldLostError) => void
  #ref: HeldRef
  #expires: number
  #request: RefRequest<number> | undefined
  #cancelTimers: readonly (() => void)[] = []
  #isOver = false
  readonly #masterChanged = (): void => {
    void this.#check()
  }
  readonly #closed = (): void => this.#lose('the router was closed')

  constructor(owner: MapOwner, ref: HeldRef, expires: number, onLost: (error: HoldLostError) => void) {
    this.#owner = owner
    this.#set = ref.set
    this.#ref = ref
    this.#expires = expires
    this.#onLost = onLost
  }

  start(): void {
    this.#set.replicaset.on('master', this.#masterChanged).on('close', this.#closed)
    this.#wait(RENEW_AFTER_MS)
  }

  stop(): void {
    if (this.#isOver) return
    this.#isOver = true
    for (const cancel of this.#cancelTimers) cancel()
    this.#set.replicaset.off('master', this.#masterChanged).off('close', this.#closed)
    this.#request?.drop()
    this.#ref.release()
  }

  /** Renews after `ms`; without a fresh one the old one is lost when it expires. */
  #wait(ms: number): void {
    const { clock } = this.#owner
    for (const cancel of this.#cancelTimers) cancel()
    this.#cancelTimers = [
      clock.schedule(ms, () => this.#renew()),
      clock.schedule(this.#expires - clock.now(), () =>
        this.#lose('its reference expired before a fresh one was given'),
      ),
    ]
  }

  #renew(): void {
    if (this.#isOver || this.#request !== undefined) return
    if (this.#ref.isLost) return this.#lose('the connection that held the reference was lost')
    const expires = this.#owner.clock.now() + REF_LIFE_MS
    this.#request = new RefRequest(this.#owner, this.#set, 'rw', WHOLE_STORAGE, expires, this)
    this.#request.start()
  }

  refAnswered({ deadline, outcome }: RefRequest<unknown>): void {
    this.#request = undefined
    if (outcome?.kind === 'granted') void this.#replace(outcome.ref, deadline)
    else this.#wait(RETRY_MS)
  }

  async #replace(fresh: HeldRef, expires: number): Promise<void> {
    // Only where the old one held to this moment nothing has moved between the two.
    const isUnbroken = await this.#ref.holds({ deadline: this.#expires })
    if (this.#isOver || !isUnbroken) {
      fresh.release()
      this.#lose('the master changed, and the storage does not keep references then')
      return
    }
    this.#ref.release()
    this.#ref = fresh
    this.#expires = expires
    this.#wait(RENEW_AFTER_MS)
  }

  /** The master changed: a storage that keeps its references for the next master gives the time to take one there. */
  async #check(): Promise<void> {
    if (this.#isOver || !this.#ref.isDoubtful) return
    if (this.#ref.isLost) return this.#lose('the connection that held the reference was lost')
    if (await this.#ref.holds({ deadline: this.#expires })) this.#renew()
    else this.#lose('the master changed, and the storage does not keep references then')
  }

  #lose(reason: string): void {
    if (this.#isOver) return
    this.stop()
    this.#onLost(new HoldLostError(this.#set.id, reason))
  }
}
