import { describe, expect, it } from 'vitest'
import { Pulse } from '../src/pulse.js'

const LIMITS = { pingIntervalMs: 1_000, silentAfterMs: 2_000, redialSilentAfterMs: 20_000 }

describe('the pulse of an instance', () => {
  it.each([
    [999, 'quiet'],
    [1_000, 'ask'],
    [1_999, 'ask'],
    [2_000, 'silent'],
    [19_999, 'silent'],
    [20_000, 'redial'],
  ])('%i ms without a byte: %s', (quietMs, want) => {
    const pulse = new Pulse(LIMITS)
    pulse.begin(100, 50)
    expect(pulse.beat(100 + quietMs, 0, 50)).toBe(want)
  })

  it('any byte is a sign of life', () => {
    const pulse = new Pulse(LIMITS)
    pulse.begin(0, 50)
    expect(pulse.beat(5_000, 0, 51)).toBe('heard')
    expect(pulse.beat(5_999, 0, 51)).toBe('quiet')
    pulse.heard(6_500)
    expect(pulse.beat(7_400, 0, 51)).toBe('quiet')
  })

  it('time in which we could not listen is not held against it', () => {
    const pulse = new Pulse(LIMITS)
    pulse.begin(0, 50)
    expect(pulse.beat(10_900, 10_000, 50)).toBe('quiet')
    expect(pulse.beat(11_100, 0, 50)).toBe('ask')
    expect(pulse.beat(1_000_000, 988_800, 50)).toBe('ask')
  })

  it('a new connection begins anew', () => {
    const pulse = new Pulse(LIMITS)
    pulse.begin(0, 50)
    pulse.begin(9_000, 0)
    expect(pulse.beat(9_500, 0, 0)).toBe('quiet')
  })
})
