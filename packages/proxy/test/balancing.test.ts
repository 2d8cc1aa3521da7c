import { describe, expect, it } from 'vitest'
import { Balancer, type BalanceOptions, type Replica } from '../src/balancing.js'

function replica(name: string, parts: Partial<Replica> = {}): Replica {
  return { name, weight: 1, zone: undefined, inFlight: 0, upSince: Number.NEGATIVE_INFINITY, ...parts }
}

/** How often each is taken out of so many picks. */
function picks(options: BalanceOptions, replicas: readonly Replica[], now = 0, count = 100): Record<string, number> {
  let state = 1
  const random = (): number => (state = (state * 16_807) % 2_147_483_647) / 2_147_483_647
  const balancer = new Balancer(options, random)
  const taken: Record<string, number> = {}
  for (let i = 0; i < count; i++) {
    const name = balancer.pick(replicas, now)?.name ?? 'none'
    taken[name] = (taken[name] ?? 0) + 1
  }
  return taken
}

/** As `picks`, where each pick stays in flight. */
function fill(options: BalanceOptions, replicas: readonly Replica[], now = 0, count = 110): Record<string, number> {
  const balancer = new Balancer(options, () => 0.5)
  const taken: Record<string, number> = Object.fromEntries(replicas.map(({ name }) => [name, 0]))
  for (let i = 0; i < count; i++) {
    const name = balancer.pick(
      replicas.map((each) => ({ ...each, inFlight: taken[each.name]! })),
      now,
    )!.name
    taken[name] = taken[name]! + 1
  }
  return taken
}

describe('Balancer', () => {
  it('takes turns among those that are equal', () => {
    expect(picks({}, [replica('a'), replica('b')])).toEqual({ a: 50, b: 50 })
    expect(picks({ policy: 'round-robin' }, [replica('a', { inFlight: 9 }), replica('b')])).toEqual({ a: 50, b: 50 })
  })

  it('prefers the one with least in flight for its weight', () => {
    expect(picks({}, [replica('a', { inFlight: 3 }), replica('b', { inFlight: 2 })])).toEqual({ b: 100 })
    expect(fill({}, [replica('a', { weight: 3 }), replica('b')], 0, 100)).toEqual({ a: 75, b: 25 })
  })

  it.each([
    [0, 10],
    [2_500, 39],
    [5_000, 55],
  ])('gives one that came back %i ms ago its share by degrees', (elapsed, about) => {
    const taken = fill({}, [replica('old'), replica('back', { upSince: 0 })], elapsed)
    expect(Math.abs(taken['back']! - about)).toBeLessThanOrEqual(2)
  })

  it('passes over one that has just come back in most turns of round robin', () => {
    const taken = picks({ policy: 'round-robin' }, [replica('old'), replica('back', { upSince: 0 })], 0, 1_000)
    expect(taken['back']).toBeLessThan(150)
    expect(taken['back']).toBeGreaterThan(10)
  })

  it('stays in its own zone while somebody is there', () => {
    const replicas = [replica('near', { zone: 'z1', inFlight: 50 }), replica('far', { zone: 'z2' })]
    expect(picks({ policy: 'zone-first', zone: 'z1' }, replicas)).toEqual({ near: 100 })
    expect(picks({ policy: 'zone-first', zone: 'z3' }, replicas)).toEqual({ far: 100 })
  })

  it('takes the better one of two at random', () => {
    const taken = picks({ policy: 'random-2' }, [replica('a'), replica('b'), replica('busy', { inFlight: 9 })], 0, 300)
    expect(taken['busy'] ?? 0).toBe(0)
    expect(Math.min(taken['a']!, taken['b']!)).toBeGreaterThan(50)
  })

  it('leaves out who is too far behind, and who does not say where that counts', () => {
    const lags: Record<string, number | undefined> = { a: 10, b: 5_000, c: undefined }
    const options: BalanceOptions = { maxReplicaLagMs: 1_000, lagMs: (name) => lags[name] }
    const all = ['a', 'b', 'c'].map((name) => replica(name))
    expect(picks(options, all)).toEqual({ a: 50, c: 50 })
    expect(picks({ ...options, servesWithoutLag: false }, all)).toEqual({ a: 100 })
    expect(picks(options, [replica('b')])).toEqual({ none: 100 })
  })
})
