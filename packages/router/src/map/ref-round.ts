/* One try to get all references of a call: its requests, what was learnt about who stands in the way, and the waiting. */
import type { CallMode } from '@orbweaver/replicaset'
import type { OrbweaverError } from '@orbweaver/iproto'
import { RouterClosedError } from '../errors.js'
import type { RoutedSet } from '../topology.js'
import { abortedBy } from './held-ref.js'
import type { HeldRef } from './held-ref.js'
import type { MapOwner, RefRun } from './map-owner.js'
import { RefRequest } from './ref-request.js'
import type { RefListener, RefTerms } from './ref-request.js'
import { explainWait } from './explain-wait.js'
import { isTimeout } from './ref-retry.js'

/** Why there is no reference of a replicaset (yet). */
export interface Obstacle {
  readonly instanceId: string | undefined
  readonly reason: string
  readonly error: OrbweaverError | undefined
}

/** A first round that was begun elsewhere. */
export interface BegunRound {
  readonly began: number
  readonly topologyVersion: number
  readonly requests: readonly RefRequest<number>[]
}

export class RefRound implements RefListener {
  /** By replicaset; those of the last round are kept until newer ones come. */
  readonly obstacles: Map<RoutedSet, Obstacle>
  readonly #owner: MapOwner
  readonly #run: RefRun
  /** When this round gives way to the next one. */
  readonly end: number
  /** Of the topology at its beginning. */
  readonly topologyVersion: number
  /** Everybody who was to be asked was asked before. */
  readonly isBegun: boolean
  #requests: RefRequest<unknown>[] = []
  readonly #whole: readonly RefRequest<number>[]
  readonly #wakers = new Set<() => void>()

  /** @param begun - what it takes over */
  constructor(owner: MapOwner, run: RefRun, end: number, obstacles: Map<RoutedSet, Obstacle>, begun?: BegunRound) {
    this.#owner = owner
    this.#run = run
    this.end = end
    this.obstacles = obstacles
    this.topologyVersion = begun?.topologyVersion ?? owner.topology.version
    this.#whole = begun?.requests ?? []
    this.isBegun = this.#whole.length > 0
    this.#requests = [...this.#whole]
    for (const request of this.#whole) request.handTo(this)
  }

  /** Asks a replicaset for a reference. */
  ask<T>(set: RoutedSet, terms: RefTerms<T>, mode: CallMode = 'rw'): RefRequest<T> {
    const request = new RefRequest(this.#owner, set, mode, terms, this.#run.deadline, this)
    this.#requests.push(request)
    return request.start()
  }

  /** One that was taken over. */
  requestOf(set: RoutedSet): RefRequest<number> | undefined {
    return this.#whole.find((request) => request.set === set)
  }

  refAnswered(): void {
    this.#wake()
  }

  /** Whether the router has other replicasets now, or the same with other definitions. */
  get isOutdated(): boolean {
    return this.topologyVersion !== this.#owner.topology.version
  }

  /** What is granted so far. */
  get refs(): readonly HeldRef[] {
    return this.#requests.flatMap(({ outcome }) => (outcome?.kind === 'granted' ? [outcome.ref] : []))
  }

  /** Everything this round took, or still will, is given back. */
  drop(): void {
    for (const request of this.#requests) request.drop()
    this.#requests = []
  }

  /** Takes note of all that is not granted: what it failed with, or what it waits for. */
  noteObstacles(): void {
    for (const { asked, outcome, set } of this.#requests) {
      if (outcome?.kind === 'granted' || outcome?.kind === 'declined') this.obstacles.delete(set)
      else if (outcome !== undefined) this.#noteFailure(set, asked?.id, outcome.error)
      else if (asked === undefined) this.note(set, 'no master is known')
      else if (this.obstacles.get(set)?.instanceId !== asked.id)
        this.note(set, 'it has not answered yet', { instanceId: asked.id })
    }
  }

  note(
    set: RoutedSet,
    reason: string,
    { instanceId, error }: { instanceId?: string | undefined; error?: OrbweaverError } = {},
  ): void {
    this.obstacles.set(set, { reason, instanceId, error })
  }

  /**
   * Whether `isTrue` came true before the round ended; it is asked after each answer and each change of a master.
   * @param end - an earlier end
   * @throws RequestAbortedError, RouterClosedError at once when the caller gives up or the router is closed
   */
  async until(isTrue: () => boolean, end: number = this.end): Promise<boolean> {
    const { clock, masterWatch } = this.#owner
    const { signal } = this.#run
    for (const cancels: (() => void)[] = []; ;) {
      if (signal?.aborted === true) throw abortedBy(signal.reason, 'no')
      if (this.#owner.isClosed) throw new RouterClosedError()
      if (isTrue()) return true
      if (clock.now() >= end) return false
      await new Promise<void>((resolve) => {
        const wake = (): void => resolve()
        this.#wakers.add(wake)
        cancels.push(() => this.#wakers.delete(wake))
        cancels.push(clock.schedule(end - clock.now(), wake))
        signal?.addEventListener('abort', wake, { once: true })
        cancels.push(() => signal?.removeEventListener('abort', wake))
        masterWatch.add(wake)
        cancels.push(() => masterWatch.delete(wake))
      })
      for (const cancel of cancels.splice(0)) cancel()
    }
  }

  /** As `until`, for something that ends by itself: its result, or undefined at the end of the round. */
  async ended<T>(work: Promise<T>): Promise<T | undefined> {
    let result: PromiseSettledResult<T> | undefined
    void Promise.allSettled([work]).then(([settled]) => {
      result = settled
      this.#wake()
    })
    await this.until(() => result !== undefined)
    if (result === undefined) return undefined
    if (result.status === 'rejected') throw result.reason
    return result.value
  }

  /** Waits, at most to the end of the round. */
  async pause(ms: number): Promise<void> {
    await this.until(() => false, Math.min(this.end, this.#owner.clock.now() + ms))
  }

  /** Has those that do not answer explained: asked in the middle of a round, so that the answer is there at its end. */
  explain(): void {
    for (const { asked, outcome, set } of this.#requests) {
      if (outcome !== undefined || asked === undefined) continue
      void explainWait(asked, this.end).then((reason) => this.note(set, reason, { instanceId: asked.id }))
    }
  }

  /** That time was over says less than what it was waited for. */
  #noteFailure(set: RoutedSet, instanceId: string | undefined, error: OrbweaverError): void {
    const known = this.obstacles.get(set)
    const isExplained = known !== undefined && known.instanceId === instanceId && isTimeout(error)
    this.note(set, isExplained ? known.reason : error.message, { instanceId, error })
  }

  #wake(): void {
    for (const wake of [...this.#wakers]) wake()
  }
}
