import { describe, expect, it } from 'vitest'
import { DeadlineSweep } from '../src/deadline-sweep.js'
import { VirtualClock } from '../src/testing/index.js'

describe('DeadlineSweep', () => {
  it('fires at the earliest deadline and goes on with the one that is left', async () => {
    const clock = new VirtualClock()
    const fired: number[] = []
    const left = [300, Number.POSITIVE_INFINITY]
    const sweep = new DeadlineSweep(clock, (nowMs) => {
      fired.push(nowMs)
      return left.shift() ?? Number.POSITIVE_INFINITY
    })
    sweep.watch(500)
    sweep.watch(100)
    sweep.watch(Number.POSITIVE_INFINITY)
    await clock.advance(10_000)
    expect(fired).toEqual([100, 300])
    expect(clock.pendingTimers).toBe(0)
  })

  it('keeps sweeps 10 ms apart however close the deadlines are', async () => {
    const clock = new VirtualClock()
    let deadlines = Array.from({ length: 1_000 }, (_, i) => 100 + i / 10)
    let sweeps = 0
    const sweep = new DeadlineSweep(clock, (nowMs) => {
      sweeps += 1
      deadlines = deadlines.filter((deadline) => deadline > nowMs)
      return deadlines[0] ?? Number.POSITIVE_INFINITY
    })
    for (const deadline of deadlines) sweep.watch(deadline)
    await clock.advance(1_000)
    expect(deadlines).toEqual([])
    expect(sweeps).toBeLessThanOrEqual(12)
  })

  it('knows what is over already without a timer', () => {
    const clock = new VirtualClock({ startMs: 50 })
    const sweep = new DeadlineSweep(clock, () => Number.POSITIVE_INFINITY)
    expect(sweep.isOver(50)).toBe(true)
    expect(sweep.isOver(51)).toBe(false)
    expect(clock.pendingTimers).toBe(0)
  })

  it('leaves no timer behind after stop', () => {
    const clock = new VirtualClock()
    const sweep = new DeadlineSweep(clock, () => Number.POSITIVE_INFINITY)
    sweep.watch(5)
    sweep.stop()
    expect(clock.pendingTimers).toBe(0)
  })
})
