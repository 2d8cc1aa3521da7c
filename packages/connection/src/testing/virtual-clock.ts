import type { Clock } from '../clock.js'

/**
 * Time that moves when it is told to. Between two steps everything that needs no time runs to exhaustion: `soon` tasks,
 * promise continuations, `process.nextTick`. Only then does the clock jump to the next timer, so a whole cluster in one
 * process takes the same course every time (with a seeded `random`).
 */
export class VirtualClock implements Clock {
  #nowMs: number
  readonly #wallOffsetMs: number
  #soon: (() => void)[] = []
  /** Sorted by due time, then by order of scheduling. */
  readonly #timers: Timer[] = []
  #sequence = 0

  /**
   * @param options.startMs - what `now` says first, default 0
   * @param options.wallStartMs - what `wallNow` says first, default 2024-01-01T00:00:00Z
   */
  constructor(options?: { readonly startMs?: number; readonly wallStartMs?: number }) {
    this.#nowMs = options?.startMs ?? 0
    this.#wallOffsetMs = (options?.wallStartMs ?? Date.UTC(2024, 0, 1)) - this.#nowMs
  }

  now(): number {
    return this.#nowMs
  }

  wallNow(): number {
    return this.#nowMs + this.#wallOffsetMs
  }

  schedule(delayMs: number, task: () => void): () => void {
    if (delayMs === Number.POSITIVE_INFINITY) return () => undefined
    const timer: Timer = { dueMs: this.#nowMs + (delayMs > 0 ? delayMs : 0), order: (this.#sequence += 1), task }
    let at = this.#timers.length
    while (at > 0 && isLater(this.#timers[at - 1], timer)) at -= 1
    this.#timers.splice(at, 0, timer)
    return () => {
      const index = this.#timers.indexOf(timer)
      if (index >= 0) this.#timers.splice(index, 1)
    }
  }

  soon(task: () => void): void {
    this.#soon.push(task)
  }

  /** Timers that wait: after a close, proof that nothing is left. */
  get pendingTimers(): number {
    return this.#timers.length
  }

  /** Runs everything that needs no time, and what that starts, until nothing is left. */
  async settle(): Promise<void> {
    // Three quiet turns: a promise chain may hop through real microtasks and one real setImmediate before it schedules more.
    for (let quiet = 0; quiet < 3;) {
      await realTurn()
      if (this.#soon.length === 0) {
        quiet += 1
        continue
      }
      quiet = 0
      const tasks = this.#soon
      this.#soon = []
      for (const task of tasks) task()
    }
  }

  /** Lets `ms` pass, running each timer at its own instant with everything settled in between. */
  async advance(ms: number): Promise<void> {
    const untilMs = this.#nowMs + ms
    await this.settle()
    for (let next = this.#timers[0]; next !== undefined && next.dueMs <= untilMs; next = this.#timers[0]) {
      this.#timers.shift()
      this.#nowMs = Math.max(this.#nowMs, next.dueMs)
      next.task()
      await this.settle()
    }
    this.#nowMs = untilMs
  }

  /**
   * Lets time pass until the promise settles, and gives what it gave.
   * @param limitMs - how much virtual time it may take, default one hour
   * @throws Error when nothing is left that could settle it, or the limit is reached
   */
  async run<T>(promise: Promise<T>, limitMs = 3_600_000): Promise<T> {
    let settled = false
    const watched = promise.finally(() => {
      settled = true
    })
    watched.catch(() => undefined)
    await this.#runUntil(() => settled, limitMs, 'the promise settles')
    return watched
  }

  /**
   * Lets time pass until the condition holds; it is asked whenever everything has settled.
   * @throws Error when nothing is left that could change it, or the limit is reached
   */
  async until(condition: () => boolean, limitMs = 3_600_000): Promise<void> {
    await this.#runUntil(condition, limitMs, 'the condition holds')
  }

  async #runUntil(condition: () => boolean, limitMs: number, what: string): Promise<void> {
    const untilMs = this.#nowMs + limitMs
    await this.settle()
    while (!condition()) {
      const next = this.#timers[0]
      if (next === undefined) throw new Error(`No timer is left, and ${what} nevertheless never`)
      if (next.dueMs > untilMs) throw new Error(`${String(limitMs)} ms passed before ${what}`)
      this.#timers.shift()
      this.#nowMs = Math.max(this.#nowMs, next.dueMs)
      next.task()
      await this.settle()
    }
  }
}

interface Timer {
  readonly dueMs: number
  readonly order: number
  readonly task: () => void
}

function isLater(timer: Timer | undefined, than: Timer): boolean {
  return timer !== undefined && timer.dueMs > than.dueMs
}

/** One real turn of the event loop: microtasks and next ticks of everything before it have run when it resolves. */
function realTurn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve)
  })
}
