import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { systemClock } from '../src/clock.js'
import { VirtualClock } from '../src/testing/index.js'

describe('systemClock', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance', 'Date'] })
  })
  afterEach(() => {
    vi.useRealTimers()
  })

  it.each([2 ** 31, 10 ** 12, Number.MAX_SAFE_INTEGER])(
    'does not fire at once for a delay of %d ms, beyond the 32-bit limit of timers',
    (delayMs) => {
      const task = vi.fn()
      const cancel = systemClock.schedule(delayMs, task)
      vi.advanceTimersByTime(2 ** 31 - 1)
      expect(task).not.toHaveBeenCalled()
      cancel()
      expect(vi.getTimerCount()).toBe(0)
    },
  )

  it('fires a delay of several legs at its own time', () => {
    const task = vi.fn()
    systemClock.schedule(2 ** 31 + 500, task)
    vi.advanceTimersByTime(2 ** 31 + 499)
    expect(task).not.toHaveBeenCalled()
    vi.advanceTimersByTime(1)
    expect(task).toHaveBeenCalledTimes(1)
  })

  it('takes Infinity as never and holds no timer for it', () => {
    systemClock.schedule(Number.POSITIVE_INFINITY, () => expect.unreachable())()
    expect(vi.getTimerCount()).toBe(0)
  })

  it.each([0, -5, Number.NaN])('takes %d as at once', (delayMs) => {
    const task = vi.fn()
    systemClock.schedule(delayMs, task)
    vi.advanceTimersByTime(1)
    expect(task).toHaveBeenCalledTimes(1)
  })

  it('is monotonic in now and on the wall in wallNow', () => {
    const before = systemClock.now()
    const wall = systemClock.wallNow()
    vi.advanceTimersByTime(1_000)
    expect(systemClock.now() - before).toBe(1_000)
    expect(systemClock.wallNow() - wall).toBe(1_000)
  })
})

describe('VirtualClock', () => {
  it('runs timers at their own instants, in order of due time and then of scheduling', async () => {
    const clock = new VirtualClock({ startMs: 100 })
    const log: string[] = []
    clock.schedule(20, () => log.push(`b ${String(clock.now())}`))
    clock.schedule(10, () => log.push(`a ${String(clock.now())}`))
    clock.schedule(20, () => log.push(`c ${String(clock.now())}`))
    clock.schedule(30, () => expect.unreachable())()
    await clock.advance(50)
    expect(log).toEqual(['a 110', 'b 120', 'c 120'])
    expect([clock.now(), clock.pendingTimers]).toEqual([150, 0])
  })

  it('lets no time pass before everything that needs none has run', async () => {
    const clock = new VirtualClock()
    const log: string[] = []
    clock.schedule(1, () => log.push('timer'))
    clock.soon(() => {
      void Promise.resolve()
        .then(() => Promise.resolve())
        .then(() => clock.soon(() => process.nextTick(() => log.push('soon'))))
    })
    await clock.advance(1)
    expect(log).toEqual(['soon', 'timer'])
  })

  it('runs until a promise settles and gives what it gave', async () => {
    const clock = new VirtualClock()
    const late = new Promise<string>((resolve) => clock.schedule(5_000, () => resolve('done')))
    expect(await clock.run(late)).toBe('done')
    expect(clock.now()).toBe(5_000)
    await expect(
      clock.run(new Promise((_resolve, reject) => clock.schedule(1, () => reject(new Error('no'))))),
    ).rejects.toThrow('no')
  })

  it('says so when nothing is left that could settle a promise', async () => {
    const clock = new VirtualClock()
    await expect(clock.run(new Promise(() => undefined))).rejects.toThrow(/No timer is left/)
    clock.schedule(10_000, () => undefined)
    await expect(clock.until(() => false, 100)).rejects.toThrow(/100 ms passed/)
  })
})
