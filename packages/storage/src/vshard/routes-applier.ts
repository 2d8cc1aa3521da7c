/*
 * Sends buckets where the rebalancer says: some at a time, to the destinations in turn. A destination that takes no more at the
 * moment is left alone for a growing while; one that fails otherwise is left out for this round.
 */
import { VshardError } from '@orbweaver/vshard'
import { log } from '../diagnostics.js'
import { sendBucket } from './bucket-send.js'
import { CauseLog } from './cause-log.js'
import { MoveRefusedError } from './refusals.js'
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

/** Being throttled is normal where a new replicaset fills: the log mentions it at this pace. */
const THROTTLE_LOG_MS = 60_000
const FIRST_PAUSE_MS = 50
const LONGEST_PAUSE_MS = 2_000
const NOTHING_LEFT = 'there are no more buckets that could be sent'
/** What vshard allows. */
const MAX_WORKERS = 15

export class RoutesApplier {
  readonly #parts: VshardParts
  readonly #causes: CauseLog
  readonly #isPaused: () => boolean
  #routes: Route[] = []
  #workers = 0
  #progress = { planned: 0, moved: 0, failed: 0, throttled: 0 }
  #lastError: string | undefined
  /** Buckets the application has refused to send under this order. */
  readonly #refused = new Set<number>()
  #throttledSinceLog = 0
  #throttleLogAt = -Infinity
  #isStopped = false

  /** @param isPaused - asked before each bucket */
  constructor(parts: VshardParts, isPaused: () => boolean) {
    this.#parts = parts
    this.#causes = new CauseLog(parts.clock)
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
    this.#refused.clear()
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
          this.#report(NOTHING_LEFT, NOTHING_LEFT)
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
    const { settings } = this.#parts
    route.left--
    try {
      await sendBucket(this.#parts, bucketId, route.destination, { timeout: settings.rebalancerBucketSendTimeoutMs })
      this.#progress.moved++
      route.pauseMs = 0
      route.from = 0
    } catch (error) {
      if (error instanceof VshardError && error.vshardName === 'TOO_MANY_RECEIVING') {
        this.#progress.throttled++
        this.#postpone(route)
        this.#logThrottling(route.destination)
        return
      }
      const why = error instanceof Error ? error.message : String(error)
      const cause = error instanceof MoveRefusedError ? 'refused here' : `${route.destination}: ${why}`
      this.#report(`bucket ${bucketId} to replicaset ${route.destination}: ${why}`, cause)
      if (error instanceof MoveRefusedError) {
        this.#refused.add(bucketId)
        this.#postpone(route)
        return
      }
      this.#progress.failed++
      route.left = 0
    }
  }

  /** The bucket stays to be sent, after a growing pause. */
  #postpone(route: Route): void {
    const { clock, random } = this.#parts
    route.left++
    route.pauseMs = Math.min(Math.max(route.pauseMs * 2, FIRST_PAUSE_MS), LONGEST_PAUSE_MS)
    route.from = clock.now() + route.pauseMs * (0.5 + random())
  }

  /** @param cause - what is the same for all buckets that fail for this reason */
  #report(problem: string, cause: string): void {
    this.#lastError = problem
    this.#causes.met(cause, () => log('warn', this.#parts.storageName, 'move failed', () => ({ problem })))
  }

  #logThrottling(destination: string): void {
    this.#throttledSinceLog++
    const { clock, storageName } = this.#parts
    if (clock.now() < this.#throttleLogAt) return
    const times = this.#throttledSinceLog
    log('info', storageName, 'moves throttled', () => ({ destination, times }))
    this.#throttledSinceLog = 0
    this.#throttleLogAt = clock.now() + THROTTLE_LOG_MS
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
      if (transfers.has(id) || this.#refused.has(id)) continue
      if ((bucketRefs.of(id)?.write ?? 0) === 0) return id
      written ??= id
    }
    return written
  }
}
