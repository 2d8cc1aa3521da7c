/*
 * A background job of the storage: one pass at a time, again when it is woken, again after the time a pass asks for. It says
 * what it does, what it waits for and since when, and its log has one line per change of cause.
 */
import type { Clock } from '@orbweaver/connection'
import { log } from '../diagnostics.js'

export type ServiceActivity = 'stopped' | 'paused' | 'idle' | 'working'

/** A service as its operator sees it. */
export interface ServiceInfo {
  readonly activity: ServiceActivity
  /** Why it cannot proceed: which bucket, which instance, which state. Absent: it can. */
  readonly problem?: string
  /** For how long this has been its problem. */
  readonly problemAgeMs?: number
  /** Passes it has made. */
  readonly passes: number
}

/**
 * One pass.
 * @returns what keeps it from finishing, and when it wants to be run again at the latest (milliseconds; absent: when woken)
 */
export type ServicePass = () => Promise<{
  readonly problem?: string | undefined
  readonly againMs?: number | undefined
}>

/** After a pass that failed as a whole. */
const FAILED_AGAIN_MS = 1_000

/** What a service needs of its storage. */
export interface ServiceOwner {
  readonly clock: Clock
  /** As logs call it. */
  readonly storageName: string
}

export class BackgroundService {
  readonly #name: string
  readonly #storageName: string
  readonly #clock: Clock
  readonly #pass: ServicePass
  #isStarted = false
  #isPaused = false
  #isRunning = false
  #isWoken = false
  #passes = 0
  #problem: string | undefined
  #problemSince = 0
  #cancelTimer: (() => void) | undefined

  constructor(name: string, { clock, storageName }: ServiceOwner, pass: ServicePass) {
    this.#name = name
    this.#storageName = storageName
    this.#clock = clock
    this.#pass = pass
  }

  get info(): ServiceInfo {
    const activity = this.#isStarted ? (this.#isPaused ? 'paused' : this.#isRunning ? 'working' : 'idle') : 'stopped'
    return {
      activity,
      passes: this.#passes,
      ...(this.#problem === undefined
        ? {}
        : { problem: this.#problem, problemAgeMs: this.#clock.now() - this.#problemSince }),
    }
  }

  get isPaused(): boolean {
    return this.#isPaused
  }

  /** Whether a pass may go on: it asks between its steps. */
  get isActive(): boolean {
    return this.#isStarted && !this.#isPaused
  }

  start(): void {
    if (this.#isStarted) return
    this.#isStarted = true
    this.wake()
  }

  stop(): void {
    this.#isStarted = false
    this.#cancelTimer?.()
    this.#cancelTimer = undefined
    this.report(undefined)
  }

  /** Finishes the step at hand and does no more until `resume`. */
  pause(): void {
    this.#isPaused = true
    this.#cancelTimer?.()
    this.#cancelTimer = undefined
  }

  resume(): void {
    this.#isPaused = false
    this.wake()
  }

  /** Something changed: a pass follows, after the present one if there is one. */
  wake(): void {
    if (!this.isActive) return
    this.#isWoken = true
    if (this.#isRunning) return
    this.#isRunning = true
    this.#clock.soon(() => void this.#run())
  }

  /** States why it cannot proceed; undefined: it can. */
  report(problem: string | undefined): void {
    if (problem === this.#problem) return
    this.#problem = problem
    this.#problemSince = this.#clock.now()
    if (problem !== undefined) log('warn', this.#storageName, `${this.#name} waits`, () => ({ problem }))
  }

  async #run(): Promise<void> {
    while (this.isActive && this.#isWoken) {
      this.#isWoken = false
      this.#cancelTimer?.()
      this.#cancelTimer = undefined
      this.#passes++
      let outcome: Awaited<ReturnType<ServicePass>>
      try {
        outcome = await this.#pass()
      } catch (error) {
        outcome = { problem: error instanceof Error ? error.message : String(error), againMs: FAILED_AGAIN_MS }
      }
      if (!this.isActive) break
      this.report(outcome.problem)
      if (outcome.againMs !== undefined && !this.#isWoken) {
        this.#cancelTimer = this.#clock.schedule(outcome.againMs, () => {
          this.#cancelTimer = undefined
          this.wake()
        })
      }
    }
    this.#isRunning = false
  }
}
