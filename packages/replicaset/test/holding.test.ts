import { VirtualClock } from '@orbweaver/connection/testing'
import { callRequest, insertRequest } from '@orbweaver/iproto'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createHoldBudget } from '../src/index.js'
import { ledgerOf } from '../src/hold-budget.js'
import { Scene, type SceneOptions } from './scene.js'

async function lost(options: SceneOptions = {}): Promise<Scene> {
  const scene = new Scene(options)
  for (const instance of Object.values(scene.instances)) instance.ro(3)
  await scene.clock.advance(20)
  return scene
}

const results = (scene: Scene): (string | undefined)[] => scene.writes.map(({ result }) => result)

describe('the budget', () => {
  it('keeps a minimum share for every member', () => {
    const ledger = ledgerOf(createHoldBudget({ size: 10, bytes: 10_000, minShare: 3 }))
    const [greedy, other] = [ledger.join(), ledger.join()]
    let taken = 0
    while (greedy.take(100)) taken += 1
    expect(taken).toBe(7)
    expect([other.take(100), other.take(100), other.take(100), other.take(100)]).toEqual([true, true, true, false])
    expect(ledger.taken).toBe(10)
    greedy.give(100)
    expect(other.take(100)).toBe(true)
  })

  it('is shared by all who were given it, and by nobody else', () => {
    const budget = createHoldBudget({ size: 4, minShare: 1 })
    expect(ledgerOf(budget)).toBe(ledgerOf(budget))
    expect(ledgerOf(budget)).not.toBe(ledgerOf(createHoldBudget({ size: 4, minShare: 1 })))
  })

  it('counts bytes as well, and leaves every member its part of them', () => {
    const ledger = ledgerOf(createHoldBudget({ size: 100, bytes: 1_000, minShare: 10 }))
    const [greedy, other] = [ledger.join(), ledger.join()]
    expect([greedy.take(900), greedy.take(1)]).toEqual([true, false])
    expect([other.take(100), other.take(1)]).toEqual([true, false])
  })

  it('shrinks the minimum share when there are more members than fit', () => {
    const ledger = ledgerOf(createHoldBudget({ size: 4, minShare: 3 }))
    const members = [1, 2, 3, 4].map(() => ledger.join())
    expect(members.map((member) => member.take(1))).toEqual([true, true, true, true])
    expect(members[0]?.take(1)).toBe(false)
  })

  it('gives the share of one who left to the others', () => {
    const ledger = ledgerOf(createHoldBudget({ size: 4, minShare: 2 }))
    const [first, second] = [ledger.join(), ledger.join()]
    expect([first.take(1), first.take(1), first.take(1)]).toEqual([true, true, false])
    second.leave()
    expect([first.take(1), first.take(1)]).toEqual([true, true])
  })

  it('is never overdrawn and never leaks, whatever is taken and given', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 40 }),
        fc.integer({ min: 0, max: 10 }),
        fc.array(fc.tuple(fc.integer({ min: 0, max: 3 }), fc.boolean(), fc.integer({ min: 1, max: 30 })), {
          maxLength: 200,
        }),
        (size, minShare, steps) => {
          const ledger = ledgerOf(createHoldBudget({ size, bytes: 20 * size, minShare }))
          const members = [1, 2, 3, 4].map(() => ({ share: ledger.join(), held: [] as number[] }))
          for (const [who, isTake, bytes] of steps) {
            const { share, held } = members[who]!
            if (isTake && share.take(bytes)) held.push(bytes)
            else if (!isTake && held.length > 0) share.give(held.pop()!)
          }
          const all = members.flatMap(({ held }) => held)
          expect(ledger.taken).toBe(all.length)
          expect(all.length).toBeLessThanOrEqual(size)
          expect(all.reduce((sum, bytes) => sum + bytes, 0)).toBeLessThanOrEqual(20 * size)
        },
      ),
    )
  })

  it.each([[{ size: 0 }], [{ bytes: -1 }], [{ minShare: 1.5 }]])('refuses %j', (options) => {
    expect(() => createHoldBudget(options)).toThrow(RangeError)
  })
})

describe('one replicaset that holds a lot', () => {
  it('does not evict or starve another', async () => {
    const clock = new VirtualClock()
    const holdBudget = createHoldBudget({ size: 20, minShare: 5 })
    const greedy = await lost({ clock, holdBudget, name: 'greedy' })
    const other = await lost({ clock, holdBudget, name: 'other' })
    for (let count = 0; count < 30; count += 1) greedy.write()
    for (let count = 0; count < 5; count += 1) other.write()
    await clock.settle()
    expect(results(greedy).filter((result) => result === 'ORB_BUFFER_EVICTED')).toHaveLength(15)
    expect(results(other).every((result) => result === undefined)).toBe(true)
    greedy.at('b').rw(4)
    other.at('b').rw(4)
    await clock.advance(100)
    expect(
      results(greedy)
        .slice(15)
        .every((result) => result === ''),
    ).toBe(true)
    expect(results(other).every((result) => result === '')).toBe(true)
  })

  it('a newcomer of one that holds nothing is refused when its share is used by nobody but the budget is full', async () => {
    const clock = new VirtualClock()
    const holdBudget = createHoldBudget({ size: 2, minShare: 1, bytes: 400 })
    const greedy = await lost({ clock, holdBudget, name: 'greedy' })
    greedy.write()
    const other = await lost({ clock, holdBudget, name: 'other' })
    const big = other.write({ request: insertRequest(512, [1]) })
    await clock.settle()
    expect(big.result).toBeUndefined()
    const refused = new Scene({ clock, holdBudget, name: 'third' })
    const write = refused.write()
    expect(write.result).toBe('ORB_BUFFER_FULL')
    expect(write.error).toMatchObject({ executed: 'no', replicasetId: 'third' })
  })
})

describe('writes with an order key', () => {
  it('keep their order through a drain, one in flight at a time; others do not wait for them', async () => {
    const scene = await lost({ buffer: { drainConcurrency: 8 } })
    for (let count = 0; count < 12; count += 1) scene.write(count % 3 === 0 ? {} : { orderKey: 'x' })
    await scene.clock.advance(100)
    const b = scene.at('b')
    b.workMs = 10
    b.rw(4)
    await scene.clock.advance(5)
    expect(scene.replicaset.stats().buffered.draining).toBe(5)
    await scene.clock.advance(200)
    const keyed = b.executed.filter((number) => (number - 1) % 3 !== 0)
    expect(keyed).toEqual([...keyed].sort((x, y) => x - y))
    expect(b.executed).toHaveLength(12)
  })

  it('that come while others of their key drain join the tail, others go straight on', async () => {
    const scene = await lost({ buffer: { drainConcurrency: 1 } })
    scene.write({ orderKey: 'x' })
    scene.write({ orderKey: 'x' })
    await scene.clock.advance(100)
    const b = scene.at('b')
    b.workMs = 10
    b.rw(4)
    await scene.clock.advance(3)
    const late = scene.write({ orderKey: 'x' })
    const free = scene.write()
    await scene.clock.advance(200)
    expect(free.waitMs).toBe(12)
    expect(late.sentMs[0]).toBeGreaterThan(free.sentMs[0]!)
    expect(b.executed.filter((number) => number !== 4)).toEqual([1, 2, 3])
  })

  it('that are refused while they drain go back to their place', async () => {
    const scene = await lost({ buffer: { drainConcurrency: 4 } })
    for (let count = 0; count < 6; count += 1) scene.write({ orderKey: 'x' })
    await scene.clock.advance(100)
    const [b, c] = [scene.at('b'), scene.at('c')]
    b.workMs = 5
    b.rw(4)
    await scene.clock.advance(10)
    b.ro(4)
    await scene.clock.advance(500)
    c.rw(5)
    await scene.clock.advance(200)
    expect([...b.executed, ...c.executed]).toEqual([1, 2, 3, 4, 5, 6])
    expect(scene.failures).toEqual([])
  })
})

describe('what waits', () => {
  it('may be for another replicaset when its turn comes', async () => {
    const scene = await lost()
    const moved = scene.write()
    const staying = scene.write()
    await scene.clock.advance(100)
    moved.elsewhere = true
    scene.at('b').rw(4)
    await scene.clock.advance(100)
    expect([moved.ends, moved.sentTo, staying.result]).toEqual([0, [], ''])
    expect(scene.replicaset.stats().buffered).toMatchObject({ now: 0, draining: 0, bytes: 0, drained: 2 })
  })

  it('can be taken back, and then hears nothing any more', async () => {
    const scene = await lost()
    const write = scene.write()
    const other = scene.write()
    await scene.clock.advance(100)
    expect([scene.replicaset.withdraw(write), scene.replicaset.withdraw(write)]).toEqual([true, false])
    expect(scene.replicaset.stats().buffered.now).toBe(1)
    scene.at('b').rw(4)
    await scene.clock.advance(100)
    expect([write.ends, write.sentTo, other.result]).toEqual([0, [], ''])
  })

  it('has the arguments of the moment of the call, although they change while it waits', async () => {
    const scene = await lost()
    const args = [1, { list: ['first'] }]
    const seen: unknown[] = []
    scene.at('b').functions.set('f', (received, request) => {
      seen.push(received)
      request.reply([])
    })
    const calling = scene.replicaset.callrw('f', args)
    args[0] = 2
    ;(args[1] as { list: string[] }).list.push('second')
    scene.at('b').rw(4)
    await scene.clock.run(calling)
    expect(seen).toEqual([[1, { list: ['first'] }]])
  })

  it('whose outcome got lost is unknown in the end, although it waited to be repeated', async () => {
    const scene = new Scene()
    scene.at('a').rw(3)
    await scene.clock.advance(20)
    scene.at('a').functions.set('f', () => undefined)
    const calling = scene.replicaset
      .callrw('f', [], { idempotent: true, timeout: 1_000 })
      .catch((error: unknown) => error)
    await scene.clock.advance(10)
    scene.at('a').kill()
    expect(await scene.clock.run(calling)).toMatchObject({
      code: 'ORB_NO_MASTER',
      executed: 'unknown',
      cause: { code: 'ORB_CONNECTION_LOST' },
    })
  })

  it('whose outcome got lost succeeds at the next master, if it may be repeated', async () => {
    const scene = new Scene()
    scene.at('a').rw(3)
    scene.at('b').ro(3)
    await scene.clock.advance(20)
    scene.at('a').functions.set('f', () => undefined)
    scene.at('b').functions.set('f', (_args, request) => request.reply(['b']))
    const calling = scene.replicaset.callrw<[string]>('f', [], { idempotent: true })
    await scene.clock.advance(10)
    scene.at('a').kill()
    await scene.clock.advance(100)
    scene.at('b').rw(4)
    expect(await scene.clock.run(calling)).toEqual(['b'])
  })
})

describe('where waiting is not wanted', () => {
  it.each(['off', 'observe'] as const)(
    'mode "%s": the write fails at once, with the refusal if there was one',
    async (mode) => {
      const scene = await lost({ buffer: { mode } })
      const write = scene.write()
      expect([write.result, write.error.executed]).toEqual(['ORB_NO_MASTER', 'no'])
      scene.at('a').rw(4)
      await scene.clock.advance(10)
      scene.at('a').isRo = true
      const refused = scene.write()
      await scene.clock.advance(10)
      expect(refused.result).toBe('ORB_BOX 7')
      expect(scene.replicaset.stats().buffered.skipped[mode]).toBe(2)
      expect(scene.windows).toBe(0)
    },
  )

  it('more windows than allowed in a minute: writes fail at once until the minute is over', async () => {
    const scene = await lost({ buffer: { maxWindowsPerMinute: 3 } })
    for (let count = 0; count < 5; count += 1) {
      scene.write()
      await scene.clock.advance(100)
      scene.at('b').rw(10 + count)
      await scene.clock.advance(100)
      scene.at('b').ro()
      await scene.clock.advance(100)
    }
    expect(results(scene)).toEqual(['', '', '', 'ORB_NO_MASTER', 'ORB_NO_MASTER'])
    await scene.clock.advance(60_000)
    scene.write()
    scene.at('b').rw(20)
    await scene.clock.advance(10)
    expect(results(scene).at(-1)).toBe('')
  })

  it('a request is sent at most five times', async () => {
    const scene = new Scene({ buffer: { maxWindowsPerMinute: 1_000 } })
    const a = scene.at('a')
    a.rw(3)
    await scene.clock.advance(20)
    // Refuses while everything else says writable: the fence believes the broadcast values.
    a.functions.set('f', (_args, request) => request.error(116, 'loading'))
    const write = scene.write({ request: callRequest('f'), idempotent: true })
    await scene.clock.advance(30_000)
    expect(write.sentTo.length).toBeLessThanOrEqual(5)
    expect(write.ends).toBe(1)
    expect(scene.replicaset.stats().buffered.now).toBe(0)
  })
})

it('a hundred callers who wait with everything down cost a few dials a second, and each can leave at once', async () => {
  const scene = new Scene()
  for (const instance of Object.values(scene.instances)) instance.kill()
  const aborts = Array.from({ length: 100 }, () => new AbortController())
  for (const { signal } of aborts) scene.write({ signal, timeout: 10_000 })
  await scene.clock.advance(2_000)
  const before = scene.dials
  await scene.clock.advance(5_000)
  expect(scene.dials - before).toBeLessThan(20)
  for (const abort of aborts.slice(0, 50)) abort.abort(new Error('enough'))
  expect(scene.replicaset.stats().buffered.now).toBe(50)
  await scene.clock.advance(4_000)
  expect(results(scene).filter((result) => result === 'ORB_REQUEST_ABORTED')).toHaveLength(50)
  expect(scene.faults).toEqual([])
})

it('two replicasets in one process behave as each does alone', async () => {
  const play = async (scene: Scene, other: Scene | undefined): Promise<string[]> => {
    const timeline: [number, (each: Scene) => void][] = [
      [100, (each) => each.at('a').rw(3)],
      [500, (each) => each.at('a').ro()],
      [510, (each) => each.write()],
      [900, (each) => each.at('b').rw(4)],
      [1200, (each) => each.at('b').kill()],
      [1210, (each) => each.write({ timeout: 300 })],
      [2000, (each) => each.at('c').rw(5)],
      [2001, (each) => each.write()],
    ]
    for (const [at, act] of timeline) {
      await scene.clock.advance(at - scene.clock.now())
      act(scene)
      // The other does the same things in another order of its own.
      if (other !== undefined && at % 200 === 0) act(other)
    }
    await scene.clock.advance(500)
    return [...scene.events, ...scene.writes.map(({ result, waitMs }) => `${String(result)} ${String(waitMs)}`)]
  }
  const alone = await play(new Scene(), undefined)
  const clock = new VirtualClock()
  const holdBudget = createHoldBudget()
  expect(await play(new Scene({ clock, holdBudget }), new Scene({ clock, holdBudget, name: 'B' }))).toEqual(alone)
})
