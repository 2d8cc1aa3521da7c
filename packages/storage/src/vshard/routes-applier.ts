/*
 * Sends buckets where the rebalancer says: some at a time, to the destinations in turn. A destination that takes no more at the
 * moment is left alone for a growing while; one that fails otherwise is left out for this round.
 */
import { VshardError } from '@orbweaver/vshard'
import { sendBucket } from './bucket-send.js'
import type { VshardParts } from './vshard-parts.js'

/** How far the present (or last) order of the rebalancer is. */
export interface RoutesProgress {
  readonly isRunning: boolean
  /** Buckets it was told to send. */
  readonly planned: number
  readonly moved: number
  readonly failed: number
  /** Times a destination asked to wait. */
  readonly throttled: number
  readonly lastError?: string
}

interface Route {
  readonly destination: string
  left: number
  pauseMs: number
  /** Not before this instant. */
  from: number
}

const FIRST_PAUSE_MS = 50
const LONGEST_PAUSE_MS = 2_000
/** What vshard allows. */
const MAX_WORKERS = 15

export class RoutesApplier {
  readonly #parts: VshardParts
  readonly #isPaused: () => boolean
  #routes: Route[] = []
  #workers = 0
  #progress = { planned: 0, moved: 0, failed: 0, throttled: 0 }
  #lastError: string | undefined
  #isStopped = false

  /** @param isPaused - asked before each bucket */
  constructor(parts: VshardParts, isPaused: () => boolean) {
    this.#parts = parts
    this.#isPaused = isPaused
  }

  get isRunning(): boolean {
    return this.#workers > 0
  }

  get progress(): RoutesProgress {
    return {
      isRunning: this.isRunning,
      ...this.#progress,
      ...(this.#lastError === undefined ? {} : { lastError: this.#lastError }),
    }
  }

  /** Begins; the work goes on in the background. @throws RangeError while an order is carried out */
  apply(routes: ReadonlyMap<string, number>): void {
    if (this.isRunning) throw new RangeError('Routes are being applied already')
    this.#routes = [...routes].map(([destination, left]) => ({ destination, left, pauseMs: 0, from: 0 }))
    const planned = this.#routes.reduce((sum, { left }) => sum + left, 0)
    this.#progress = { planned, moved: 0, failed: 0, throttled: 0 }
    this.#lastError = undefined
    const workers = Math.min(this.#parts.settings.rebalancerMaxSending, MAX_WORKERS, planned)
    for (let i = 0; i < workers; i++) {
      this.#workers++
      void this.#work()
    }
  }

  stop(): void {
    this.#isStopped = true
    this.#routes = []
  }

  async #work(): Promise<void> {
    try {
      for (;;) {
        if (this.#isStopped || this.#isPaused() || !this.#parts.identity.isMaster) return
        const route = this.#nextRoute()
        if (route === undefined) return
        const waitMs = route.from - this.#parts.clock.now()
        if (waitMs > 0) {
          await new Promise<void>((resolve) => this.#parts.clock.schedule(waitMs, resolve))
          continue
        }
        const bucketId = this.#pick()
        if (bucketId === undefined) {
          this.#lastError = 'there are no more buckets that could be sent'
          return
        }
        await this.#send(route, bucketId)
      }
    } finally {
      this.#workers--
      if (this.#workers === 0) this.#parts.buckets.touch()
    }
  }

  async #send(route: Route, bucketId: number): Promise<void> {
    const { clock, random, settings } = this.#parts
    route.left--
    try {
      await sendBucket(this.#parts, bucketId, route.destination, { timeout: settings.rebalancerBucketSendTimeoutMs })
      this.#progress.moved++
      route.pauseMs = 0
      route.from = 0
    } catch (error) {
      if (error instanceof VshardError && error.vshardName === 'TOO_MANY_RECEIVING') {
        this.#progress.throttled++
        route.left++
        route.pauseMs = Math.min(Math.max(route.pauseMs * 2, FIRST_PAUSE_MS), LONGEST_PAUSE_MS)
        route.from = clock.now() + route.pauseMs * (0.5 + random())
        return
      }
      this.#progress.failed++
      this.#lastError = `bucket ${bucketId} to replicaset ${route.destination}: ${error instanceof Error ? error.message : String(error)}`
      route.left = 0
    }
  }

  /** Destinations in turn, those that may be asked first. */
  #nextRoute(): Route | undefined {
    this.#routes = this.#routes.filter(({ left }) => left > 0)
    const next = this.#routes.toSorted((a, b) => a.from - b.from)[0]
    if (next === undefined) return undefined
    this.#routes = [...this.#routes.filter((route) => route !== next), next]
    return next
  }

  /** An active bucket, if possible one nobody writes to now. */
  #pick(): number | undefined {
    const { bucketRefs, buckets, transfers } = this.#parts
    let written: number | undefined
    for (const id of buckets.idsOf('active')) {
      if (transfers.has(id)) continue
      if ((bucketRefs.of(id)?.write ?? 0) === 0) return id
      written ??= id
    }
    return written
  }
}
