/*
 * Learning all routes in the background: at the start every replicaset is read page after page without a pause, all in
 * parallel; when everything is known, one gentle sweep of each per interval keeps the table fresh. A replicaset that fails is
 * tried again by itself and holds up nobody.
 */
import type { Clock } from '@orbweaver/connection'
import { callRequest, decodeData } from '@orbweaver/iproto'
import { bucketsDiscoveryCall, readBucketsDiscovery } from '@orbweaver/vshard'
import { UNKNOWN } from './route-table.js'
import type { RouteWorker } from './route-worker.js'
import { callSet, orbweaverErrorOf } from './set-call.js'
import type { RoutedSet, Topology } from './topology.js'

export type DiscoveryMode = 'on' | 'once' | 'off'

const PAGE_TIMEOUT_MS = 10_000
const SWEEP_INTERVAL_MS = 600_000
const FIRST_PAUSE_MS = 1_000
const LONGEST_PAUSE_MS = 10_000
/** Ids a set did not list are looked for in ranges of this size, so that one turn stays short. */
const SWEEP_CHUNK = 16_384

export interface SetDiscovery {
  /** Whole sweeps done. */
  readonly sweeps: number
  /** Why the last try failed; undefined after a success. */
  readonly lastError: string | undefined
}

export class Discovery {
  readonly #topology: Topology
  readonly #routes: RouteWorker
  readonly #clock: Clock
  readonly #mode: DiscoveryMode
  readonly #state = new Map<string, { sweeps: number; lastError: string | undefined }>()
  readonly #pauses = new Set<() => void>()
  #isStopped = false

  constructor(topology: Topology, routes: RouteWorker, clock: Clock, mode: DiscoveryMode) {
    this.#topology = topology
    this.#routes = routes
    this.#clock = clock
    this.#mode = mode
  }

  start(): void {
    if (this.#mode === 'off') return
    for (const set of this.#topology.sets) {
      this.#state.set(set.id, { sweeps: 0, lastError: undefined })
      void this.#follow(set)
    }
  }

  stop(): void {
    this.#isStopped = true
    for (const wake of [...this.#pauses]) wake()
  }

  get state(): ReadonlyMap<string, SetDiscovery> {
    return this.#state
  }

  async #follow(set: RoutedSet): Promise<void> {
    const state = this.#state.get(set.id)!
    let pause = FIRST_PAUSE_MS
    while (!this.#isStopped) {
      try {
        await this.#sweep(set)
        state.sweeps++
        state.lastError = undefined
        pause = FIRST_PAUSE_MS
        if (this.#mode === 'once' || this.#isStopped) return
        await this.#wait(SWEEP_INTERVAL_MS)
      } catch (error) {
        state.lastError = orbweaverErrorOf(error).message
        await this.#wait(pause)
        pause = Math.min(pause * 2, LONGEST_PAUSE_MS)
      }
    }
  }

  async #sweep(set: RoutedSet): Promise<void> {
    const started = this.#routes.tick()
    const listed = new Set<number>()
    let from: number | undefined = 1
    let isComplete = true
    while (from !== undefined && !this.#isStopped) {
      const sent = this.#routes.tick()
      // Without a master its replicas tell, but they may lag behind: what is known already stays.
      const mode = set.replicaset.master() === undefined ? 'ro' : 'rw'
      const { name, args } = bucketsDiscoveryCall(from)
      const { reply } = await callSet(set.replicaset, callRequest(name, args), {
        mode,
        deadline: this.#clock.now() + PAGE_TIMEOUT_MS,
        idempotent: true,
      })
      const page = readBucketsDiscovery(decodeData(reply))
      if (!page.ok) throw page.error
      const { buckets } = page.value
      const { table } = this.#routes
      this.#routes.reportPage(
        set.index,
        mode === 'rw'
          ? buckets
          : buckets.filter((id) => id >= 1 && id <= table.bucketCount && table.lookup(id) === UNKNOWN),
        sent,
      )
      isComplete &&= mode === 'rw'
      for (const bucketId of page.value.buckets) listed.add(bucketId)
      from = page.value.nextFrom
    }
    if (!this.#isStopped && isComplete) await this.#forgetUnlisted(set, listed, started)
  }

  /** What the table says this set has and the sweep did not list has left it. */
  async #forgetUnlisted(set: RoutedSet, listed: ReadonlySet<number>, sent: number): Promise<void> {
    const { bucketCount } = this.#routes.table
    for (let from = 1; from <= bucketCount; from += SWEEP_CHUNK) {
      for (const bucketId of this.#routes.table.bucketsOf(set.index, from, from + SWEEP_CHUNK)) {
        if (!listed.has(bucketId)) this.#routes.report({ kind: 'unlisted', bucketId, from: set.index, sent })
      }
      if (from + SWEEP_CHUNK <= bucketCount) await new Promise<void>((resolve) => this.#clock.soon(resolve))
    }
  }

  #wait(ms: number): Promise<void> {
    if (this.#isStopped) return Promise.resolve()
    return new Promise((resolve) => {
      const wake = (): void => {
        cancel()
        this.#pauses.delete(wake)
        resolve()
      }
      const cancel = this.#clock.schedule(ms, wake)
      this.#pauses.add(wake)
    })
  }
}
