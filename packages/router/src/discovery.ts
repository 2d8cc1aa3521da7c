/*
 * Learning all routes in the background: at the start every replicaset is read page after page without a pause, all in
 * parallel; when everything is known, the pages of one gentle sweep are spread over the interval. A replicaset that fails is tried
 * again by itself and holds up nobody.
 */
import type { Clock } from '@orbweaver/connection'
import { askPage } from './bucket-pages.js'
import type { RouteFact } from './route-fact.js'
import type { RouteWorker } from './route-worker.js'
import { orbweaverErrorOf } from './set-call.js'
import type { RoutedSet, Topology } from './topology.js'

export type DiscoveryMode = 'on' | 'once' | 'off'

const PAGE_TIMEOUT_MS = 10_000
const SWEEP_INTERVAL_MS = 600_000
const FIRST_PAUSE_MS = 1_000
const LONGEST_PAUSE_MS = 10_000
/** Sweeps while buckets are missing: they may be lost for good. */
const LONGEST_MISSING_PAUSE_MS = 60_000
/** Many routers that start at the same moment begin within so much of each other. */
const START_SPREAD_MS = 50
/** Ids a set did not list are looked for in ranges of this size, so that one turn stays short. */
const SWEEP_CHUNK = 16_384

export interface SetDiscovery {
  /** Whole sweeps done. */
  readonly sweeps: number
  /** Pages read. */
  readonly pages: number
  /** Why the last try failed; undefined after a success. */
  readonly lastError: string | undefined
}

export interface DiscoveryParts {
  readonly topology: Topology
  readonly routes: RouteWorker
  readonly clock: Clock
  readonly random: () => number
  /** Told of buckets beyond the cluster's number: the storage was set up for another one, and is not listened to. */
  readonly miscounted: (set: RoutedSet, bucketId: number | undefined) => void
}

export class Discovery {
  readonly #parts: DiscoveryParts
  #mode: DiscoveryMode
  readonly #followers = new Map<number, Follower>()

  constructor(parts: DiscoveryParts, mode: DiscoveryMode) {
    this.#parts = parts
    this.#mode = mode
  }

  get mode(): DiscoveryMode {
    return this.#mode
  }

  start(): void {
    this.#follow(START_SPREAD_MS)
  }

  /** Begins anew in another mode. */
  setMode(mode: DiscoveryMode): void {
    this.stop()
    this.#mode = mode
    this.#follow(0)
  }

  /** Another topology: new sets are read, those that are gone are not, all others are looked through again. */
  topologyChanged(): void {
    const { topology } = this.#parts
    for (const [index, follower] of this.#followers) {
      if (topology.at(index) !== undefined) continue
      follower.stop()
      this.#followers.delete(index)
    }
    this.hurry()
    this.#follow(0)
  }

  /** Routes are often wrong: all sets are read again now. */
  hurry(): void {
    for (const follower of this.#followers.values()) follower.hurry()
  }

  stop(): void {
    for (const follower of this.#followers.values()) follower.stop()
    this.#followers.clear()
  }

  stateOf(set: RoutedSet): SetDiscovery | undefined {
    return this.#followers.get(set.index)?.state
  }

  #follow(spreadMs: number): void {
    if (this.#mode === 'off') return
    for (const { index } of this.#parts.topology.sets) {
      if (this.#followers.has(index)) continue
      const follower = new Follower(this.#parts, index, this.#mode === 'once')
      this.#followers.set(index, follower)
      void follower.run(spreadMs * this.#parts.random())
    }
  }
}

/** Reads one replicaset, for as long as it is configured. */
class Follower {
  readonly #parts: DiscoveryParts
  readonly #index: number
  readonly #isOnce: boolean
  #sweeps = 0
  #pages = 0
  #lastError: string | undefined
  #isStopped = false
  /** No pauses between pages. */
  #isEager = true
  #wake: () => void = () => undefined

  constructor(parts: DiscoveryParts, index: number, isOnce: boolean) {
    this.#parts = parts
    this.#index = index
    this.#isOnce = isOnce
  }

  get state(): SetDiscovery {
    return { sweeps: this.#sweeps, pages: this.#pages, lastError: this.#lastError }
  }

  stop(): void {
    this.#isStopped = true
    this.#wake()
  }

  hurry(): void {
    this.#isEager = true
    this.#wake()
  }

  async run(delayMs: number): Promise<void> {
    if (delayMs > 0) await this.#wait(delayMs)
    let pauseMs = FIRST_PAUSE_MS
    let missingPauseMs = FIRST_PAUSE_MS
    /** Pages of the last sweep: the next one is spread by them. */
    let pages = 1
    while (!this.#isStopped) {
      try {
        pages = await this.#sweep(pages)
        this.#lastError = undefined
        pauseMs = FIRST_PAUSE_MS
        if (this.#isStopped) return
        this.#sweeps++
        while (!this.#isEager && !this.#isStopped) {
          if (this.#isAllKnown()) {
            if (this.#isOnce) return
            missingPauseMs = FIRST_PAUSE_MS
            await this.#wait(this.#jittered(SWEEP_INTERVAL_MS / pages))
            break
          }
          // Others are still being read, or buckets are on their way and stand on no page.
          await this.#wait(this.#jittered(missingPauseMs))
          missingPauseMs = Math.min(missingPauseMs * 2, LONGEST_MISSING_PAUSE_MS)
          this.#isEager ||= !this.#isAllKnown()
        }
      } catch (error) {
        this.#lastError = orbweaverErrorOf(error).message
        await this.#wait(this.#jittered(pauseMs))
        pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)
      }
    }
  }

  #isAllKnown(): boolean {
    const { table } = this.#parts.routes
    return table.known === table.bucketCount
  }

  /** @returns its pages */
  async #sweep(lastPages: number): Promise<number> {
    const { clock, routes, topology } = this.#parts
    const { bucketCount } = routes.table
    const started = routes.tick()
    const listed = new Uint8Array((bucketCount >> 3) + 1)
    let listedCount = 0
    let isComplete = true
    let pages = 0
    const isEager = this.#isEager
    this.#isEager = false
    for (let from: number | undefined = 1; from !== undefined;) {
      const set = topology.at(this.#index)
      if (set === undefined || this.#isStopped) return pages
      const page = await askPage(set, from, routes.tick(), clock.now() + PAGE_TIMEOUT_MS)
      if (this.#isStopped) return pages
      pages++
      this.#pages++
      const beyond = page.buckets.find((bucketId) => bucketId > bucketCount)
      this.#parts.miscounted(set, beyond)
      if (beyond === undefined) {
        routes.reportPage(page.facts)
        for (const bucketId of page.buckets) listed[bucketId >> 3]! |= 1 << (bucketId & 7)
        listedCount += page.buckets.length
      }
      isComplete &&= !page.isReplica && beyond === undefined
      from = page.nextFrom
      if (from !== undefined && !isEager && !this.#isEager)
        await this.#wait(this.#jittered(SWEEP_INTERVAL_MS / lastPages))
    }
    // Nothing to look for when the table has no more of this set than it listed.
    if (isComplete && routes.table.countOf(this.#index) > listedCount) await this.#forgetUnlisted(listed, started)
    return pages
  }

  /** What the table says this set has and the sweep did not list has left it. */
  async #forgetUnlisted(listed: Uint8Array, sent: number): Promise<void> {
    const { clock, routes } = this.#parts
    const { bucketCount } = routes.table
    for (let from = 1; from <= bucketCount && !this.#isStopped; from += SWEEP_CHUNK) {
      const facts: RouteFact[] = []
      for (const bucketId of routes.table.bucketsOf(this.#index, from, from + SWEEP_CHUNK)) {
        if ((listed[bucketId >> 3]! & (1 << (bucketId & 7))) === 0)
          facts.push({ kind: 'unlisted', bucketId, from: this.#index, sent })
      }
      routes.reportPage(facts)
      if (from + SWEEP_CHUNK <= bucketCount) await new Promise<void>((resolve) => clock.soon(resolve))
    }
  }

  #jittered(ms: number): number {
    return ms * (0.8 + 0.4 * this.#parts.random())
  }

  #wait(ms: number): Promise<void> {
    if (this.#isStopped) return Promise.resolve()
    return new Promise((resolve) => {
      const wake = (): void => {
        cancel()
        resolve()
      }
      const cancel = this.#parts.clock.schedule(ms, wake)
      this.#wake = wake
    })
  }
}
