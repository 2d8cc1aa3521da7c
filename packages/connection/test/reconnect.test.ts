import { describe, expect, it } from 'vitest'
import { reconnectDelayMs } from '../src/reconnect.js'

const policy = { minDelayMs: 50, maxDelayMs: 5_000, jitter: 0.2, retries: Number.POSITIVE_INFINITY }

describe('reconnectDelayMs', () => {
  it.each([
    [0, 50],
    [1, 100],
    [2, 200],
    [6, 3_200],
    [7, 5_000],
    [1_000_000, 5_000],
  ])('attempt %i waits %i ms in the middle of its jitter', (attempt, delayMs) => {
    expect(reconnectDelayMs(attempt, 0.5, policy)).toBe(delayMs)
  })

  it('stays within the jitter on both sides', () => {
    expect(reconnectDelayMs(0, 0, policy)).toBeCloseTo(40)
    expect(reconnectDelayMs(0, 0.999_999, policy)).toBeCloseTo(60, 2)
    expect(reconnectDelayMs(3, 0.25, { ...policy, jitter: 0 })).toBe(400)
  })
})
