/** How long to wait before the next attempt to connect. Pure: chance is an argument. */
export interface ReconnectPolicy {
  /** Pause before the first repeated attempt. */
  readonly minDelayMs: number
  /** No pause is longer, jitter aside. */
  readonly maxDelayMs: number
  /** Each pause is changed by up to this share of itself, so that many clients do not come back in step. 0..1. */
  readonly jitter: number
  /** Repeated attempts after a failed or lost connection before giving up; Infinity: never give up, 0: do not repeat. */
  readonly retries: number
}

/**
 * Doubles from `minDelayMs` to `maxDelayMs`, then stays.
 * @param attempt - 0 for the pause after the first failure
 * @param chance - a number in [0, 1)
 * @example reconnectDelayMs(3, 0.5, { minDelayMs: 50, maxDelayMs: 5000, jitter: 0.2, retries: Infinity }) // 400
 */
export function reconnectDelayMs(attempt: number, chance: number, policy: ReconnectPolicy): number {
  const doubled = policy.minDelayMs * 2 ** Math.min(attempt, MAX_DOUBLINGS)
  return Math.min(doubled, policy.maxDelayMs) * (1 + policy.jitter * (2 * chance - 1))
}

/** Keeps the power finite; every sensible policy has reached its longest pause long before. */
const MAX_DOUBLINGS = 60
