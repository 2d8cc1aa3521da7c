/* Learning routes: at the start, in the background, and for buckets nobody has told about. */
import { afterEach, describe, expect, it } from 'vitest'
import type { NoRouteError } from '../src/index.js'
import { failure, FakeCluster, Raised, SILENT } from './fake-cluster.js'

let cluster: FakeCluster

afterEach(() => cluster.close())

const pages = (who?: string): number => cluster.count('buckets_discovery', who)

/** Buckets spread evenly over replicasets with one instance each. */
function spread(sets: number, bucketCount: number): void {
  const names = Array.from({ length: sets }, (_, i) => `s${i}`)
  cluster = new FakeCluster(Object.fromEntries(names.map((name) => [name, [`${name}x`]])), bucketCount)
  const share = bucketCount / sets
  for (const [i, name] of names.entries()) cluster.put(name, i * share + 1, (i + 1) * share, 'active')
}

describe('discovery', () => {
  it.each([1, 2, 10])(
    'learns 30,000 buckets of %d replicasets in pages of a thousand, without a pause',
    async (sets) => {
      spread(sets, 30_000)
      cluster.latencyMs = 1
      const router = cluster.router({ discoveryMode: 'on' })
      await cluster.clock.run(router.ready())
      expect(cluster.clock.now()).toBeLessThan(50 + 20 + (30_000 / sets / 1_000 + 1) * 2)
      expect(pages()).toBeLessThanOrEqual(30 + sets)
    },
  )

  it('reads on gently when everything is known: one sweep in ten minutes, spread over them', async () => {
    spread(2, 10_000)
    const router = cluster.router({ discoveryMode: 'on' })
    await cluster.clock.run(router.ready())
    await cluster.clock.advance(1_000)
    const first = pages()
    await cluster.clock.advance(60_000)
    expect(pages() - first).toBeLessThanOrEqual(4)
    await cluster.clock.advance(1_140_000)
    // Two sweeps of two replicasets, of six pages each.
    expect(pages() - first).toBeGreaterThan(16)
    expect(pages() - first).toBeLessThan(36)
  })

  it('notices by itself what left a replicaset while nobody called', async () => {
    spread(2, 2_000)
    const router = cluster.router({ discoveryMode: 'on' })
    await cluster.clock.run(router.ready())
    cluster.put('s0', 1, 1, undefined)
    cluster.move(2, 's0', 's1')
    await cluster.clock.advance(1_300_000)
    expect([router.locate(1), router.locate(2), router.locate(3)]).toEqual([undefined, 's1', 's0'])
  })

  it('once reads everything once, off nothing', async () => {
    spread(2, 2_000)
    const once = cluster.router({ discoveryMode: 'once' })
    const off = cluster.router({ discoveryMode: 'off' })
    await cluster.clock.run(once.ready())
    await cluster.clock.advance(1_000)
    const read = pages()
    await cluster.clock.advance(3_600_000)
    expect([pages(), off.info().known]).toEqual([read, 0])
    off.setDiscoveryMode('once')
    await cluster.clock.run(off.ready())
    off.setDiscoveryMode('off')
  })

  it('looks again soon while buckets are missing', async () => {
    spread(2, 2_000)
    cluster.put('s0', 5, 5, 'sending', 's1')
    const router = cluster.router({ discoveryMode: 'on' })
    const ready = router.ready({ timeout: 30_000 })
    await cluster.clock.advance(3_000)
    expect(router.info().known).toBe(1_999)
    cluster.move(5, 's0', 's1')
    await cluster.clock.run(ready)
    expect(router.locate(5)).toBe('s1')
  })

  it('takes no bucket for a route that its storage cannot serve', async () => {
    cluster = new FakeCluster({ a: ['a1'], b: ['b1'] }, 6)
    cluster.put('a', 1, 1, 'pinned')
    cluster.put('a', 2, 2, 'sending', 'b')
    cluster.put('b', 2, 2, 'receiving', 'a')
    cluster.put('a', 3, 3, 'sent', 'b')
    cluster.put('b', 3, 3, 'active')
    cluster.put('a', 4, 4, 'garbage', 'b')
    cluster.put('b', 5, 6, 'active')
    for (const order of ['a first', 'b first']) {
      const late = order === 'a first' ? 'b1' : 'a1'
      cluster.answer = () => undefined
      const router = cluster.router({ discoveryMode: 'off' })
      await cluster.clock.advance(200)
      let isHeld = true
      cluster.answer = ({ call, who }) =>
        call === 'buckets_discovery' && who === late && isHeld ? new Raised(32, 'later') : undefined
      router.setDiscoveryMode('once')
      await cluster.clock.advance(100)
      isHeld = false
      await cluster.clock.advance(20_000)
      expect([1, 2, 3, 4, 5].map((id) => router.locate(id))).toEqual(['a', undefined, 'b', undefined, 'b'])
      // A read goes where it can be read: at the source of the transfer.
      expect(await cluster.clock.run(router.callro(2, 'who'))).toEqual(['a1'])
    }
  })

  it('of a replicaset that fails holds up no other, names it, and goes on when it is back', async () => {
    spread(3, 3_000)
    cluster.stop('s1x')
    cluster.answer = ({ who }) => (who === 's2x' ? SILENT : undefined)
    const router = cluster.router({ discoveryMode: 'on' })
    await cluster.clock.advance(500)
    expect(router.info().known).toBe(1_000)
    expect(await cluster.clock.run(router.callrw(5, 'who'))).toEqual(['s0x'])
    const startMs = cluster.clock.now()
    const error = (await cluster.clock.run(
      failure(router.callrw(1_500, 'who', [], { timeout: 3_000 })),
    )) as NoRouteError
    expect(cluster.clock.now() - startMs).toBe(3_000)
    expect(error.message).toMatch(/s0: does not have it; s1: .*; s2: /)
    cluster.restart('s1x')
    cluster.answer = () => undefined
    await cluster.clock.run(router.ready({ timeout: 60_000 }))
    expect(await cluster.clock.run(router.callrw(1_500, 'who'))).toEqual(['s1x'])
  })

  it('spoils nothing by one bad replicaset: one is down, one has only a replica, and all of it heals', async () => {
    cluster = new FakeCluster({ a: ['a1', 'a2'], b: ['b1', 'b2'], c: ['c1', 'c2'] }, 30)
    for (const [i, set] of ['a', 'b', 'c'].entries()) cluster.put(set, i * 10 + 1, i * 10 + 10, 'active')
    for (const name of ['b1', 'b2', 'c1']) cluster.stop(name)
    const router = cluster.router({ discoveryMode: 'on' })
    await cluster.clock.advance(500)
    const run = <T>(work: Promise<T>): Promise<T> => cluster.clock.run(work)
    expect(await run(router.callrw(1, 'who'))).toEqual(['a1'])
    expect(await run(router.callro(21, 'who'))).toEqual(['c2'])
    const [dead, readOnly] = [
      router.callrw(11, 'who', [], { timeout: 500 }),
      router.callrw(21, 'who', [], { timeout: 500 }),
    ]
    const errors = (await run(Promise.all([failure(dead), failure(readOnly)]))) as Error[]
    expect(errors[0]!.message).toMatch(/\bb\b/)
    expect(errors[1]!.message).toMatch(/\bc\b/)
    for (const name of ['b1', 'b2', 'c1']) cluster.restart(name)
    for (const [bucketId, name] of [
      [11, 'b1'],
      [21, 'c1'],
    ] as const)
      expect(await run(router.callrw(bucketId, 'who'))).toEqual([name])
    await run(router.ready({ timeout: 30_000 }))
  })

  it('does not listen to a storage that was set up for another number of buckets, and says which', async () => {
    spread(2, 2_000)
    cluster.put('s1', 1_501, 2_000, undefined)
    cluster.put('s1', 2_001, 2_100, 'active')
    const router = cluster.router({ discoveryMode: 'on' })
    const alerts: string[] = []
    router.on('alert', ({ message }) => alerts.push(message))
    await cluster.clock.advance(1_000)
    expect(alerts).toEqual([expect.stringContaining('Replicaset s1 lists bucket 2001')])
    expect(router.info().alerts).toContainEqual(expect.objectContaining({ name: 'INVALID_CFG', replicaset: 's1' }))
    expect([router.locate(1), router.locate(1_200)]).toEqual(['s0', undefined])
  })

  it('reads all again when more than one call in a hundred goes to the wrong replicaset', async () => {
    spread(2, 2_000)
    const router = cluster.router({ discoveryMode: 'on' })
    await cluster.clock.run(router.ready())
    await cluster.clock.advance(1_000)
    for (let id = 1; id <= 500; id++) cluster.move(id, 's0', 's1')
    const before = pages()
    for (let id = 1; id <= 9; id++) await cluster.clock.run(router.callrw(id, 'who'))
    await cluster.clock.advance(1_000)
    expect(pages()).toBe(before)
    await cluster.clock.run(router.callrw(10, 'who'))
    await cluster.clock.advance(1_000)
    expect(pages() - before).toBeGreaterThanOrEqual(2)
    expect(router.locate(400)).toBe('s1')
  })

  it('ends at once when the router is closed', async () => {
    spread(2, 30_000)
    cluster.latencyMs = 5
    const router = cluster.router({ discoveryMode: 'on' })
    await cluster.clock.advance(120)
    const before = pages()
    expect(before).toBeGreaterThan(0)
    const closing = router.close({ timeout: 0 })
    await cluster.clock.advance(60_000)
    await closing
    expect(pages() - before).toBeLessThanOrEqual(2)
  })

  it('of many routers that start together begins a little apart', async () => {
    spread(1, 1_000)
    for (let i = 0; i < 50; i++) cluster.router({ discoveryMode: 'once' })
    await cluster.clock.advance(1_000)
    const times = new Set(cluster.seen.map(({ atMs }) => Math.round(atMs)))
    expect(times.size).toBeGreaterThan(20)
  })
})

describe('a bucket nobody has told about', () => {
  it('costs a first call two round trips', async () => {
    spread(4, 400)
    cluster.latencyMs = 10
    const router = cluster.router()
    await cluster.clock.advance(500)
    const startMs = cluster.clock.now()
    expect(await cluster.clock.run(router.callrw(250, 'who'))).toEqual(['s2x'])
    expect(cluster.clock.now() - startMs).toBe(40)
    expect([router.stats().lookups, router.locate(250), router.info().known]).toEqual([1, 's2', 1])
  })

  it('and a thousand others are found in pages, with far fewer requests than calls', async () => {
    spread(10, 30_000)
    cluster.latencyMs = 5
    const router = cluster.router()
    await cluster.clock.advance(500)
    const ids = Array.from({ length: 1_000 }, (_, i) => 1 + i * 30)
    const startMs = cluster.clock.now()
    const names = await cluster.clock.run(Promise.all(ids.map((id) => router.callrw<[string]>(id, 'who'))))
    expect(names.map(([name]) => name)).toEqual(ids.map((id) => `s${Math.floor((id - 1) / 3_000)}x`))
    expect(cluster.seen.filter(({ call }) => call !== 'call').length).toBeLessThan(60)
    expect(cluster.clock.now() - startMs).toBeLessThan(60)
  })

  it('is found by itself where no page lists it: a bucket on its way is at its source for reads', async () => {
    spread(2, 200)
    cluster.put('s0', 7, 7, 'sending', 's1')
    const router = cluster.router()
    await cluster.clock.advance(500)
    const reads = Array.from({ length: 100 }, (_, i) => router.callro<[string]>(i + 1, 'who'))
    expect((await cluster.clock.run(Promise.all(reads)))[6]).toEqual(['s0x'])
  })

  it('of which the master is unknown is read on a replica', async () => {
    cluster = new FakeCluster({ a: ['a1', 'a2'], b: ['b1'] }, 20)
    cluster.put('a', 1, 10, 'active')
    cluster.put('b', 11, 20, 'active')
    cluster.stop('a1')
    const router = cluster.router()
    await cluster.clock.advance(500)
    expect(await cluster.clock.run(router.callro(1, 'who'))).toEqual(['a2'])
  })

  it('is found at once although other replicasets hang', async () => {
    spread(20, 20_000)
    cluster.answer = ({ set }) => (['s17', 's18', 's19'].includes(set) ? SILENT : undefined)
    const router = cluster.router({ discoveryMode: 'on' })
    await cluster.clock.advance(100)
    const startMs = cluster.clock.now()
    expect(await cluster.clock.run(router.callrw(1, 'who'))).toEqual(['s0x'])
    expect(cluster.clock.now() - startMs).toBeLessThan(100)
    await cluster.clock.advance(500)
    expect(router.info().known).toBe(17_000)
  })

  it('ends with the router: nobody waits on', async () => {
    spread(2, 200)
    cluster.answer = () => SILENT
    const router = cluster.router()
    await cluster.clock.advance(500)
    const waiting = failure(router.callrw(1, 'who'))
    await cluster.clock.advance(10)
    void router.close({ timeout: 0 })
    await cluster.clock.advance(10)
    expect(await waiting).toMatchObject({ code: 'ORB_ROUTER_CLOSED', executed: 'no' })
  })
})
