/**
 * Time as an argument: the only way a package of this family reads it or waits for it. Production uses `systemClock`;
 * tests hand in a `VirtualClock` (from `@orbweaver/connection/testing`) that moves when it is told to.
 */
export interface Clock {
  /** Monotonic milliseconds: the only base of deadlines. Only differences mean anything. */
  now(): number
  /** Milliseconds since 1970: row timestamps and logs, never a deadline. */
  wallNow(): number
  /**
   * Runs `task` once, `delayMs` from now, unless the returned function is called first. Any delay is legal: negative
   * and NaN mean at once, `Infinity` never. Calling the returned function later than that is harmless.
   */
  schedule(delayMs: number, task: () => void, options?: ScheduleOptions): () => void
  /** Runs `task` after the input of this turn of the event loop (`setImmediate`): where servers flush their writes. */
  soon(task: () => void): void
}

export interface ScheduleOptions {
  /** Whether the timer keeps the process alive. Default: true. A clock without a process ignores it. */
  readonly ref?: boolean
}

/** Node's own timers. Delays beyond the 32-bit limit of `setTimeout` are waited for in legs, so they never fire at once. */
export const systemClock: Clock = {
  now: () => performance.now(),
  wallNow: () => Date.now(),
  schedule(delayMs, task, options) {
    if (delayMs === Number.POSITIVE_INFINITY) return nothingToCancel
    const dueMs = performance.now() + (delayMs > 0 ? delayMs : 0)
    let timer: NodeJS.Timeout
    const wait = (): void => {
      const leftMs = dueMs - performance.now()
      timer = setTimeout(leftMs > LONGEST_TIMER_MS ? wait : task, Math.min(Math.max(leftMs, 0), LONGEST_TIMER_MS))
      if (options?.ref === false) timer.unref()
    }
    wait()
    return () => clearTimeout(timer)
  },
  soon(task) {
    setImmediate(task)
  },
}

function nothingToCancel(): void {}

/** `setTimeout` takes a signed 32-bit number and fires at once for anything above it. */
const LONGEST_TIMER_MS = 2_147_483_647
