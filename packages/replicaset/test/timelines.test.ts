/**
 * The timelines every change here has to survive: what happens to the instances, and what must become of a write per 100 ms
 * (and of the windows, terms and epochs). Times are milliseconds since the start; one way takes 1 ms.
 */
import { callRequest, Key, RequestType } from '@orbweaver/iproto'
import { VirtualClock } from '@orbweaver/connection/testing'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createHoldBudget, type Dialect, type WindowEvent } from '../src/index.js'
import { Scene, type SceneOptions, type TestInstance, type TestWrite } from './scene.js'

type Named = Readonly<Record<'a' | 'b' | 'c', TestInstance>>

/** Nobody has said anything yet. */
function silent(options: SceneOptions = {}): { scene: Scene } & Named {
  const scene = new Scene(options)
  onTestFinished(({ task }) => {
    // Of a test that failed half-way nothing else is to be said.
    if (task.result?.state !== 'fail' && scene.faults.length > 0) throw new Error(scene.faults.join(', '))
  })
  const [a, b, c] = ['a', 'b', 'c'].map((id) => scene.instances[id]) as [TestInstance, TestInstance, TestInstance]
  return { scene, a, b, c }
}

/** a is the master with this term (undefined: no elections). */
async function steady(
  options: SceneOptions & { readonly term?: number | undefined; readonly writes?: boolean } = {},
): Promise<{ scene: Scene } & Named> {
  const { term, writes = true, ...rest } = options
  const set = silent(rest)
  set.a.rw(term)
  set.b.ro(term)
  set.c.ro(term)
  if (writes) set.scene.writeEvery(100)
  await set.scene.clock.advance(50)
  return set
}

/** No more writes; whatever waits gets its time. */
async function finish(scene: Scene, atMs: number): Promise<void> {
  await scene.until(atMs)
  scene.stopWriting()
  await scene.clock.advance(12_000)
}

function windowsOf(scene: Scene): WindowEvent[] {
  const windows: WindowEvent[] = []
  scene.replicaset.on('window', (event) => {
    if (event.why !== undefined) windows.push(event)
  })
  return windows
}

const ended = (write: TestWrite): [string | undefined, number] => [write.result, Math.round(write.waitMs)]

describe('timelines: switches', () => {
  it('1: without elections, a read-only and later b writable: one window, closed by the other instance, no error', async () => {
    const { scene, a, b } = await steady()
    const windows = windowsOf(scene)
    await scene.play({ 1000: () => a.ro(), 2000: () => b.rw() })
    await finish(scene, 3000)
    expect(scene.failures).toEqual([])
    expect(windows.map(({ why, end, M0 }) => [why, end, M0?.id])).toEqual([['other_instance', 'b', 'a']])
    expect(scene.longestWaitMs).toBeGreaterThan(800)
    expect(scene.longestWaitMs).toBeLessThan(1010)
  })

  it('2: the master is killed with one write in flight: that one is unknown, all others succeed', async () => {
    const { scene, a, b } = await steady({ term: 3 })
    a.workMs = 20
    await scene.play({ 1005: () => a.kill(), 2900: () => b.rw(4) })
    await finish(scene, 4000)
    expect(scene.failures).toEqual(['ORB_CONNECTION_LOST'])
    expect(scene.writes.find(({ result }) => result !== '')?.error.executed).toBe('unknown')
    expect(scene.replicaset.stats().windowEnds).toMatchObject({ newer_term: 1 })
    expect(scene.windows).toBe(1)
  })

  it('3: the master freezes: writes before the ping is overdue stay, later ones wait, nothing is sent to it when it wakes', async () => {
    const { scene, a, b } = await steady({ term: 3, pingIntervalMs: 400, silentAfterMs: 800 })
    await scene.play({
      1000: () => a.freeze(),
      2500: () => b.rw(4),
      4000: () => a.thaw(),
      4003: () => a.ro(4),
    })
    await finish(scene, 5000)
    expect(scene.failures).toEqual([])
    expect(scene.windows).toBe(1)
    expect(scene.replicaset.stats().windows.silent).toBe(1)
    const toA = scene.writes.filter(({ sentTo }) => sentTo.includes('a'))
    // Frozen at 1000, overdue at the latest 800 ms and one beat after the last word.
    expect(Math.max(...toA.map(({ startMs }) => startMs))).toBeLessThan(2000)
    expect(toA.filter(({ startMs }) => startMs > 1000).every(({ endMs }) => endMs >= 4000)).toBe(true)
    for (const write of scene.writes.filter(({ startMs }) => startMs >= 2500)) expect(write.sentTo).toEqual(['b'])
  })

  it('4: the status of the new master comes before its term: adopted once, with the term', async () => {
    const { scene, a, b } = await steady({ term: 3 })
    await scene.play({
      1000: () => a.kill(),
      1997: () => {
        b.isRo = false
        b.term = 6
        b.sayStatus()
      },
      2000: () => b.sayElection(),
    })
    await finish(scene, 3000)
    expect(scene.events.filter((event) => event.includes('master b'))).toEqual(['2001 master b'])
    expect(scene.replicaset.info().instances.find(({ id }) => id === 'b')?.term).toBe(6)
  })

  it('5: elected and still read-only is not the master yet', async () => {
    const { scene, a, b } = await steady({ term: 3 })
    await scene.play({ 1000: () => a.kill(), 1500: () => b.ro(6), 2000: () => b.rw(6) })
    await finish(scene, 3000)
    expect(scene.events.filter((event) => event.includes('master b'))).toEqual(['2001 master b'])
  })

  it('6: an aborted switch closes the window on the same instance', async () => {
    const { scene, a } = await steady({ term: 3 })
    const windows = windowsOf(scene)
    await scene.play({ 1000: () => a.ro(), 1600: () => a.rw() })
    await finish(scene, 2500)
    expect(scene.failures).toEqual([])
    expect(windows.map(({ why, end }) => [why, end])).toEqual([['same_instance', 'a']])
    expect(scene.longestWaitMs).toBeLessThan(610)
    expect(scene.longestWaitMs).toBeGreaterThan(400)
  })

  it('7: a flip too short for an event: the fence answers "writable" and the refused write succeeds at once', async () => {
    const { scene, a } = await steady({ term: 3, writes: false })
    let write: TestWrite | undefined
    await scene.play({
      1000: () => {
        a.isRo = true
        write = scene.write()
      },
      1002: () => {
        a.isRo = false
      },
    })
    // The value kept for watchers never changed.
    await scene.clock.advance(20)
    expect(write?.result).toBe('')
    expect(write?.sentTo).toEqual(['a', 'a'])
    expect(write?.waitMs).toBeLessThan(10)
    expect(scene.replicaset.stats().windowEnds.same_instance).toBe(1)
  })

  it('8: a stopping master is not believed again, whatever it repeats', async () => {
    const { scene, a, b } = await steady({ term: 3 })
    await scene.play({
      1000: () => a.shutdown(),
      1500: () => a.say(),
      2000: () => a.kill(),
      3700: () => b.rw(4),
    })
    await finish(scene, 4500)
    expect(scene.failures).toEqual([])
    expect(scene.windows).toBe(1)
    expect(scene.events.filter((event) => event.includes('master')).slice(1)).toEqual([
      '1001 master -',
      '3701 master b',
    ])
    expect(scene.longestWaitMs).toBeGreaterThan(2600)
  })

  it('9: back after a restart with empty events: only its new claim closes the window', async () => {
    const { scene, a } = await steady()
    await scene.play({ 1000: () => a.shutdown(), 1050: () => a.kill(), 2500: () => a.revive(), 3000: () => a.rw(1) })
    await finish(scene, 4000)
    expect(scene.failures).toEqual([])
    expect(scene.replicaset.stats().windowEnds.same_instance + scene.replicaset.stats().windowEnds.newer_term).toBe(1)
    expect(
      scene.events
        .filter((event) => event.includes('master a'))
        .map((event) => Number.parseInt(event, 10))
        .at(-1),
    ).toBeGreaterThanOrEqual(3000)
    expect(scene.longestWaitMs).toBeGreaterThan(1800)
  })

  it('10: the master restarts within 300 ms: the window closes on it', async () => {
    const { scene, a } = await steady({ term: 3 })
    await scene.play({
      1000: () => a.kill(),
      1300: () => {
        a.revive()
        a.rw()
      },
    })
    await finish(scene, 3000)
    expect(scene.failures.length).toBeLessThanOrEqual(1)
    expect(scene.replicaset.stats().windowEnds.same_instance).toBe(1)
    expect(scene.longestWaitMs).toBeLessThan(1500)
  })

  it('11: a second instance turns writable: the first stays with an alert, and is replaced at once when it gives up', async () => {
    const { scene, a, b } = await steady({ term: 1 })
    const conflicts: unknown[] = []
    scene.replicaset.on('conflict', (ids) => conflicts.push(ids))
    await scene.play({ 1000: () => b.rw(1) })
    await scene.until(1500)
    expect(scene.replicaset.master()?.id).toBe('a')
    expect(conflicts).toEqual([['a', 'b']])
    expect(scene.replicaset.info().alerts.map(({ code }) => code)).toEqual(['conflict'])
    await scene.play({ 2000: () => a.ro() })
    await finish(scene, 2500)
    expect(scene.failures).toEqual([])
    expect(scene.windows).toBe(0)
    expect(scene.events).toContain('2001 master b')
    expect(scene.replicaset.info().alerts).toEqual([])
  })

  it('12: two claims at once and onConflict "error": writes fail with the conflict and do not wait', async () => {
    const { scene, a, b } = silent({ onConflict: 'error' })
    a.rw(1)
    b.rw(1)
    await scene.clock.advance(50)
    const write = scene.write()
    expect(ended(write)).toEqual(['ORB_MASTER_CONFLICT', 0])
    expect(write.error.message).toContain('a: writable')
  })

  it.each([
    ['the new first', 1000, 1100],
    ['the old first', 1100, 1000],
  ])('13: claims of two terms, %s: the newer wins once', async (_name, newMs, oldMs) => {
    const { scene, a, b } = await steady({ term: 5 })
    await scene.play(
      Object.fromEntries([
        [newMs, () => b.rw(6)],
        [oldMs, () => a.say()],
      ]),
    )
    await finish(scene, 2000)
    expect(scene.replicaset.info().epoch).toBe(2)
    expect(scene.replicaset.master()?.id).toBe('b')
    expect(scene.replicaset.info().instances.find(({ id }) => id === 'a')?.reason).toContain('old term 5')
    expect(scene.failures).toEqual([])
  })

  it('14: 200 writes in flight when the master changes are sent again without a window', async () => {
    const { scene, a, b } = await steady({ term: 1, writes: false })
    a.workMs = 20
    await scene.until(1000)
    for (let count = 0; count < 200; count += 1) scene.write()
    await scene.play({ 1005: () => a.ro(), 1006: () => b.rw(2) })
    await finish(scene, 1100)
    expect(scene.failures).toEqual([])
    expect(scene.windows).toBe(0)
    expect(scene.replicaset.stats().resentOldEpoch).toBe(200)
    expect(b.executed).toHaveLength(200)
  })
})

describe('timelines: refusals that are no failover', () => {
  const raising = (instance: TestInstance): void => {
    instance.functions.set('f', (_args, request) => request.error(7, 'read-only, says the function'))
  }

  it('15: a function that raises error 7 at a writable master 50 times: 50 errors, no window, few fences', async () => {
    const { scene, a } = await steady({ term: 3, writes: false })
    raising(a)
    for (let count = 0; count < 50; count += 1) {
      scene.write({ request: callRequest('f') })
      await scene.clock.advance(20)
    }
    expect(scene.failures).toEqual(Array(50).fill('ORB_BOX 7'))
    expect(scene.windows).toBe(0)
    expect(scene.replicaset.stats().fences['code']).toBe(1)
    expect(a.peer.requestsOf(RequestType.call)).toHaveLength(50)
  })

  it('16a: a repeatable call answered 7 while the fence says writable gets its error', async () => {
    const { scene, a } = await steady({ term: 3, writes: false })
    raising(a)
    const write = scene.write({ request: callRequest('f'), idempotent: true })
    await scene.clock.advance(20)
    expect(write.result).toBe('ORB_BOX 7')
    expect(write.sentTo).toEqual(['a'])
    expect(scene.windows).toBe(0)
  })

  it('16b: a repeatable call answered 7 while the fence says read-only waits and succeeds at the new master', async () => {
    const { scene, a, b } = await steady({ term: 3, writes: false })
    raising(a)
    b.functions.set('f', (_args, request) => request.reply(['done']))
    let write: TestWrite | undefined
    await scene.play({
      1000: () => {
        a.isRo = true
        a.peer.values.set('box.status', { is_ro: true, status: 'running' })
        write = scene.write({ request: callRequest('f'), idempotent: true })
      },
      2000: () => b.rw(4),
    })
    await scene.clock.advance(20)
    expect(write?.result).toBe('')
    expect(write?.sentTo).toEqual(['a', 'b'])
    expect(scene.windows).toBe(1)
  })

  it('17: the answer of an older fence does not end the wait of a write refused after it', async () => {
    const { scene, a, b } = await steady({ term: 3, writes: false })
    raising(a)
    // The looks answer late, the first with what was true before.
    a.peer.handle(RequestType.watchOnce, (request) => {
      const value = a.peer.values.get(request.body.requireText(Key.eventKey))
      scene.clock.schedule(30, () => request.reply([value]))
    })
    let write: TestWrite | undefined
    await scene.play({
      1000: () => scene.write({ request: callRequest('f') }),
      1010: () => {
        a.isRo = true
        write = scene.write()
        a.peer.values.set('box.status', { is_ro: true, status: 'running' })
      },
      2000: () => b.rw(4),
    })
    await scene.clock.advance(100)
    expect(write?.result).toBe('')
    expect(write?.sentTo).toEqual(['a', 'b'])
    expect(scene.windows).toBe(1)
  })

  it('26: an instance that claims and refuses everything is set aside, the callers get its refusal', async () => {
    const dialect: Dialect = {
      poll: { request: () => callRequest('box.info'), read: () => undefined },
      judge: (outcome) =>
        !(outcome instanceof Error) && outcome.frame.includes('NON_MASTER')
          ? { says: 'notMaster', refused: true, hint: undefined }
          : undefined,
      electionKeys: [],
    }
    const { scene, a } = await steady({ term: 3, writes: false, dialect })
    let calls = 0
    a.functions.set('f', (_args, request) => {
      calls += 1
      request.reply([null, 'NON_MASTER'])
    })
    const alerts: string[] = []
    scene.replicaset.on('alert', ({ code }) => alerts.push(code))
    for (let count = 0; count < 50; count += 1) {
      scene.write({ request: callRequest('f'), timeout: 12_000 })
      await scene.clock.advance(100)
    }
    // 5 s: one backoff period.
    expect(scene.windows).toBeLessThanOrEqual(4)
    expect(alerts).toContain('claims_and_refuses')
    await finish(scene, 12_000)
    // What ended without an error of ours is its own answer.
    expect(scene.writes.filter(({ result }) => result === '').length).toBeGreaterThan(0)
    expect(calls).toBeLessThan(50 * 5)
  })
})

describe('timelines: limits', () => {
  it('18: no master for ever: each write fails at its 10 s, the window ends at 20 s, then writes fail at once, then wait again', async () => {
    const { scene, a } = await steady({ term: 3, writes: false })
    const windows = windowsOf(scene)
    await scene.play({
      1000: () => a.ro(),
      1100: () => scene.write(),
      15_000: () => scene.write(),
      22_000: () => scene.write(),
      42_000: () => scene.write({ timeout: 1000 }),
    })
    await scene.clock.advance(12_000)
    expect(scene.writes.map(ended)).toEqual([
      ['ORB_BUFFER_WINDOW', 10_000],
      ['ORB_BUFFER_WINDOW', 6_100],
      ['ORB_NO_MASTER', 0],
      ['ORB_NO_MASTER', 1000],
    ])
    expect(windows.map(({ why, ms }) => [why, Math.round(ms)])).toEqual([['timeout', 20_000]])
    await scene.clock.advance(20_000)
    expect(scene.windows).toBe(2)
  })

  it('19: a master ends the pause, and the next window works as ever', async () => {
    const { scene, a, b, c } = await steady({ term: 3, writes: false })
    await scene.play({
      1000: () => a.ro(),
      1001: () => scene.write(),
      22_000: () => scene.write(),
      25_000: () => b.rw(4),
      25_100: () => scene.write(),
      27_000: () => b.ro(),
      27_100: () => scene.write(),
      27_500: () => c.rw(5),
    })
    await scene.clock.advance(1000)
    expect(scene.writes.map(ended)).toEqual([
      ['ORB_BUFFER_WINDOW', 10_000],
      ['ORB_NO_MASTER', 0],
      ['', 2],
      ['', 403],
    ])
  })

  it('20: a nearer deadline of its own ends a wait, with the refusal as the cause', async () => {
    const { scene, a, b } = await steady({ term: 3, writes: false })
    await scene.play({
      1000: () => {
        a.isRo = true
        scene.write({ timeout: 200 })
        scene.write({ timeout: 3000 })
      },
      1001: () => a.ro(),
      2000: () => b.rw(4),
    })
    await scene.clock.advance(100)
    const [first, second] = scene.writes as [TestWrite, TestWrite]
    expect(ended(first)).toEqual(['ORB_NO_MASTER', 200])
    expect(first.error.cause).toMatchObject({ boxCode: 7 })
    expect(first.error.executed).toBe('no')
    expect(second.result).toBe('')
  })

  it('21: an abort ends a wait at once and frees its slot', async () => {
    const { scene, a, b } = await steady({ term: 3, writes: false })
    const abort = new AbortController()
    let waiting = 0
    await scene.play({
      1000: () => a.ro(),
      1010: () => {
        scene.write({ signal: abort.signal })
        scene.write()
      },
      1500: () => {
        abort.abort(new Error('enough'))
        waiting = scene.replicaset.stats().buffered.now
      },
      2000: () => b.rw(4),
    })
    await scene.clock.advance(100)
    expect(scene.writes.map(ended)).toEqual([
      ['ORB_REQUEST_ABORTED', 490],
      ['', 993],
    ])
    expect(waiting).toBe(1)
    expect(scene.writes[0]?.error.cause).toMatchObject({ message: 'enough' })
  })

  it('22: more writes than fit: the oldest give way', async () => {
    const { scene, a, b } = await steady({ term: 3, writes: false, buffer: { size: 10 } })
    await scene.play({
      1000: () => a.ro(),
      1010: () => {
        for (let count = 0; count < 15; count += 1) scene.write()
      },
      2000: () => b.rw(4),
    })
    await scene.clock.advance(100)
    expect(scene.writes.map(({ result }) => result)).toEqual(
      Array.from({ length: 15 }, (_, at) => (at < 5 ? 'ORB_BUFFER_EVICTED' : '')),
    )
  })

  it('23: a write inside a stream is answered at once and opens no window', async () => {
    const { scene, a } = await steady({ term: 3, writes: false })
    await scene.play({
      1000: () => {
        a.isRo = true
        scene.write({ inStream: true })
      },
    })
    await scene.clock.advance(20)
    expect(scene.writes.map(ended)).toEqual([['ORB_BOX 7', 2]])
    expect(scene.windows).toBe(0)
  })

  it('24: the new master gives up while what waited drains: the rest goes on waiting, in order', async () => {
    const { scene, a, b, c } = await steady({ term: 1, writes: false })
    b.workMs = 1
    await scene.play({
      1000: () => a.ro(),
      1010: () => {
        for (let count = 0; count < 100; count += 1) scene.write()
      },
      2000: () => b.rw(2),
      2006: () => b.ro(2),
      2600: () => c.rw(3),
    })
    await scene.clock.advance(1000)
    expect(scene.failures).toEqual([])
    expect(scene.windows).toBe(2)
    expect(b.executed.length).toBeGreaterThan(0)
    expect(c.executed.length).toBeGreaterThan(0)
    expect(c.executed).toEqual([...c.executed].sort((x, y) => x - y))
    expect(Math.max(...b.executed)).toBeLessThan(Math.min(...c.executed) + 9)
  })

  it('36: the replicaset is closed with five waiting: five errors, slots returned', async () => {
    const { scene, a } = await steady({ term: 3, writes: false })
    const windows = windowsOf(scene)
    await scene.play({
      1000: () => a.ro(),
      1010: () => {
        for (let count = 0; count < 5; count += 1) scene.write()
      },
    })
    await scene.clock.run(scene.replicaset.close())
    expect(scene.failures).toEqual(Array(5).fill('ORB_CONNECTION_CLOSED'))
    expect(windows.map(({ why }) => why)).toEqual(['removed'])
    expect(scene.replicaset.stats().buffered.now).toBe(0)
    scene.write()
    expect(scene.writes.at(-1)?.result).toBe('ORB_CONNECTION_CLOSED')
    await scene.clock.advance(10)
    expect(scene.clock.pendingTimers).toBe(0)
  })

  it.each([1, 8, 64])('38: 400 writes of 50 ms drain with at most %i in flight', async (drainConcurrency) => {
    const { scene, a, b } = await steady({
      term: 3,
      writes: false,
      buffer: { drainConcurrency, windowMs: 60_000, maxDurationMs: 60_000 },
    })
    let most = 0
    await scene.play({
      1000: () => a.ro(),
      1010: () => {
        for (let count = 0; count < 400; count += 1) scene.write()
      },
      1020: () => {
        b.workMs = 50
        b.rw(4)
      },
    })
    while (scene.writes.some(({ result }) => result === undefined)) {
      most = Math.max(most, scene.replicaset.stats().buffered.draining)
      await scene.clock.advance(10)
    }
    const wallMs = Math.max(...scene.writes.map(({ endMs }) => endMs)) - 1021
    expect(wallMs).toBeGreaterThan((400 / drainConcurrency) * 50)
    expect(wallMs).toBeLessThan(Math.ceil(400 / drainConcurrency) * 53 + 10)
    expect(most).toBe(drainConcurrency)
  })
})

describe('timelines: starting, polling, other ways to find out', () => {
  it('25: the first write comes before anybody is connected', async () => {
    const { scene, a, b, c } = silent()
    for (const { peer } of [a, b, c]) peer.refusal = new Error('ECONNREFUSED')
    scene.write()
    await scene.play({
      40: () => {
        for (const instance of [a, b, c]) instance.revive()
      },
      500: () => b.rw(1),
    })
    await scene.clock.advance(20)
    expect(scene.events).toEqual(['0 window opened no_master', '501 master b', '501 window newer_term'])
    expect(scene.writes.map(ended)).toEqual([['', 503]])
  })

  it('27: an old master that is polled, others with events: the new one is found by its event', async () => {
    const { scene, a, b } = await steady({ old: ['a'] })
    expect(scene.replicaset.info().mode).toBe('polling')
    await scene.play({ 1000: () => a.ro(), 1800: () => b.rw() })
    await finish(scene, 2500)
    expect(scene.failures).toEqual([])
    expect(scene.events).toContain('1801 master b')
  })

  it('28: the answer of a poll that was sent before the refusal does not close the window', async () => {
    const { scene, a, b } = await steady({
      old: ['a', 'b', 'c'],
      writes: false,
      pollIntervalMs: 970,
      pollSearchIntervalMs: 2_000,
    })
    a.functions.set('box.info', (_args, request, self) => {
      // What was true when it was asked, said 15 ms later.
      const then = self.boxInfo()
      scene.clock.schedule(15, () => request.reply([then]))
    })
    let write: TestWrite | undefined
    // The poll goes out at about 990.
    await scene.play({
      1000: () => {
        a.isRo = true
        write = scene.write()
      },
    })
    await scene.clock.advance(40)
    expect(scene.replicaset.stats().windows.refused).toBe(1)
    expect(write?.result).toBeUndefined()
    b.isRo = false
    await scene.clock.advance(3_000)
    expect(write?.sentTo.at(-1)).toBe('b')
  })

  it('29: polling only: a refusal that names the new master cuts the search to milliseconds', async () => {
    const { scene, a, b } = await steady({ old: ['a', 'b', 'c'], writes: false })
    a.refusalFields = new Map<string, unknown>([
      ['reason', 'election'],
      ['leader_uuid', b.uuid],
      ['term', 2],
    ])
    await scene.play({
      1000: () => {
        a.isRo = true
        b.isRo = false
        scene.write()
      },
    })
    await scene.clock.advance(20)
    expect(scene.writes[0]?.sentTo).toEqual(['a', 'b'])
    expect(scene.writes[0]?.waitMs).toBeLessThan(10)
  })

  it('30: refusals that name the reporter or nobody we know are no reason for anything', async () => {
    const { scene, a, b } = await steady({ term: 3, writes: false })
    const names = [a.uuid, '00000000-0000-4000-a000-00000000dead']
    await scene.play({
      1000: () => {
        for (const leader of names) {
          a.isRo = true
          a.refusalFields = new Map([
            ['reason', 'election'],
            ['leader_uuid', leader],
          ])
          scene.write()
        }
      },
      1001: () => a.ro(),
      2000: () => b.rw(4),
    })
    await scene.clock.advance(100)
    expect(scene.failures).toEqual([])
    expect(scene.replicaset.stats()).toMatchObject({ hints: 2, hintsIgnored: 2 })
    expect(scene.writes.every(({ sentTo }) => sentTo.join('') === 'ab')).toBe(true)
  })

  it('31: somebody reports a newer term and nobody else claims: after two seconds the old claim is accepted with a warning', async () => {
    const { scene, c } = await steady({ term: 1 })
    const alerts: string[] = []
    scene.replicaset.on('alert', ({ code }) => alerts.push(code))
    await scene.play({ 1000: () => c.ro(2) })
    await finish(scene, 4000)
    expect(scene.failures).toEqual([])
    expect(alerts).toEqual(['stale_claim_accepted'])
    expect(scene.longestWaitMs).toBeGreaterThan(1900)
    expect(scene.longestWaitMs).toBeLessThan(2100)
  })

  it('32: as 31, and the elected one comes within the grace', async () => {
    const { scene, b, c } = await steady({ term: 1 })
    await scene.play({ 1000: () => c.ro(2), 1500: () => b.rw(2) })
    await finish(scene, 3000)
    expect(scene.failures).toEqual([])
    expect(scene.events).toContain('1501 master b')
    expect(scene.replicaset.stats().staleClaims).toBe(0)
  })

  it('33: the master restarts and is loading for a second: writes wait', async () => {
    const { scene, a } = await steady({ term: 3 })
    await scene.play({
      1050: () => a.kill(),
      1100: () => {
        a.revive()
        a.loading = { code: 116, message: 'Instance bootstrap hasn’t finished yet' }
        a.status = 'loading'
        a.isRo = false
        a.say()
      },
      2100: () => {
        a.loading = undefined
        a.status = 'running'
        a.rw()
      },
    })
    await finish(scene, 3000)
    expect(scene.failures).toEqual([])
    expect(scene.windows).toBe(1)
  })

  it('33b: an event that says writable while the instance still answers "loading"', async () => {
    const { scene, a } = await steady({ term: 3, writes: false })
    await scene.play({
      1000: () => {
        a.loading = { code: 116, message: 'loading' }
        a.peer.values.set('box.status', { is_ro: true, status: 'loading' })
        scene.write()
      },
      2000: () => {
        a.loading = undefined
        a.rw()
      },
    })
    await scene.clock.advance(1000)
    expect(scene.writes.map(ended)).toEqual([['', 1003]])
    expect(scene.replicaset.stats().windows.not_ready).toBe(1)
  })

  it('34: two replicasets: each is released by its own evidence only', async () => {
    const clock = new VirtualClock()
    const holdBudget = createHoldBudget()
    const first = await steady({ clock, name: 'A', holdBudget })
    const second = await steady({ clock, name: 'B', holdBudget })
    await first.scene.play({
      1000: () => {
        first.a.ro()
        second.a.ro()
      },
      1500: () => first.b.rw(2),
      2500: () => second.b.rw(2),
    })
    await finish(first.scene, 3500)
    second.scene.stopWriting()
    await clock.advance(1000)
    expect([...first.scene.failures, ...second.scene.failures]).toEqual([])
    expect(first.scene.events).toContain('1501 window newer_term')
    expect(second.scene.events).toContain('2501 window newer_term')
  })

  it('35: repeated events in steady state change nothing', async () => {
    const { scene, a, b, c } = await steady({ term: 3 })
    for (let count = 0; count < 40; count += 1) {
      for (const instance of [a, b, c]) instance.say()
      await scene.clock.advance(50)
    }
    expect(scene.replicaset.info().epoch).toBe(1)
    expect(Object.values(scene.replicaset.stats().fences).every((count) => count === 0)).toBe(true)
    expect(scene.windows).toBe(0)
    await finish(scene, 2200)
  })

  it('37: only our own link to the master is cut: nobody else is declared master, and the error says what is the matter', async () => {
    const { scene, a } = await steady({ term: 3, writes: false })
    await scene.play({ 1000: () => a.kill(), 1100: () => scene.write() })
    await scene.clock.advance(12_000)
    const [write] = scene.writes
    expect(write?.result).toBe('ORB_BUFFER_WINDOW')
    expect(write?.error.message).toContain('a is unreachable from here')
    expect(write?.error.message).toContain('b: read-only')
    expect(scene.replicaset.master()).toBeUndefined()
  })

  it('40: an instance that listens before it is configured is neither master nor read from', async () => {
    const { scene, a, b, c } = silent()
    a.rw(1)
    c.ro(1)
    b.isRo = false
    b.functions.set('box.info', (_args, request) => request.error(274, 'Please call box.cfg{} first'))
    await scene.clock.advance(5_000)
    const readers = new Set<string>()
    for (let count = 0; count < 12; count += 1) {
      const [row] = await scene.clock.run(scene.replicaset.callbro<[string]>('who'))
      readers.add(row)
    }
    expect([...readers].sort()).toEqual(['a', 'c'])
    expect(scene.replicaset.master()?.id).toBe('a')
  })

  it('41: an orphan is adopted right after it is none any more', async () => {
    const { scene, a } = await steady({ term: 3 })
    await scene.play({
      1050: () => a.kill(),
      1200: () => {
        a.revive()
        a.status = 'orphan'
        a.isRo = true
        a.say()
      },
      4200: () => {
        a.status = 'running'
        a.rw()
      },
    })
    await finish(scene, 5000)
    expect(scene.failures).toEqual([])
    expect(scene.events).toContain('4201 master a')
  })
})

describe('timelines: our own clock', () => {
  /** A clock whose timers fire late once, as after a blocked loop or a stopped process. */
  it('39: our own loop is blocked for 10 s: nobody is declared silent, nothing is dialled, no window opens', async () => {
    const { scene } = await steady({ term: 3, writes: false, clock: new StallingClock() })
    await scene.until(2000)
    const dials = scene.dials
    const clock = scene.clock as StallingClock
    clock.stall(10_000)
    await clock.advance(5_000)
    expect(scene.dials).toBe(dials)
    expect(scene.windows).toBe(0)
    expect(scene.replicaset.info().epoch).toBe(1)
    expect(scene.replicaset.info().instances.some(({ silent }) => silent)).toBe(false)
    expect(scene.events).toHaveLength(1)
  })

  it('42: the wall clock jumps during a window: no limit moves', async () => {
    class JumpingClock extends VirtualClock {
      override wallNow(): number {
        return this.now() < 1500 ? 1_000_000_000 : 1_000_000_000 + 3_600_000 * (this.now() % 2 === 0 ? 1 : -1)
      }
    }
    const { scene, a, b } = await steady({ term: 3, writes: false, clock: new JumpingClock() })
    await scene.play({
      1000: () => a.ro(),
      1100: () => scene.write(),
      1200: () => scene.write({ timeout: 700 }),
      2000: () => b.rw(4),
    })
    await scene.clock.advance(100)
    expect(scene.writes.map(ended)).toEqual([
      ['', 903],
      ['ORB_NO_MASTER', 700],
    ])
  })
})

/** Its time can jump ahead without anything running, as the time of a blocked process does. */
class StallingClock extends VirtualClock {
  #stalledMs = 0

  override now(): number {
    return super.now() + this.#stalledMs
  }

  stall(ms: number): void {
    this.#stalledMs += ms
  }
}
