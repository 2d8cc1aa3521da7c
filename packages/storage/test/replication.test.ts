import { BoxError } from '@orbweaver/iproto'
import { afterEach, describe, expect, it } from 'vitest'
import { createStorage } from '../src/index.js'
import type { LinkInfo, Storage, StorageOptions } from '../src/index.js'
import { MemoryReplicaset } from './memory.js'

const SPACE = { format: [{ name: 'id', type: 'unsigned' }] } as const

let set: MemoryReplicaset

afterEach(async () => {
  await set.close()
})

async function threeWithMaster(
  options: { quorum?: number; quorumTimeoutMs?: number } = { quorum: 2 },
): Promise<MemoryReplicaset> {
  set = new MemoryReplicaset(3, options)
  await set.clock.advance(100)
  await set.wait(set.at(1).promote())
  set.at(1).createSpace('s', SPACE)
  await set.clock.advance(10)
  return set
}

function idsOn(number: number): unknown[] {
  return set
    .at(number)
    .space<[number]>('s')
    .select()
    .map(([id]) => id)
}

describe('a replicaset', () => {
  it('has no master until one is promoted, and takes no writes', async () => {
    set = new MemoryReplicaset(3)
    await set.clock.advance(100)
    expect([1, 2, 3].map((number) => set.at(number).isReadonly)).toEqual([true, true, true])
    expect(() => set.at(1).createSpace('s', SPACE)).toThrow(BoxError)
  })

  it('carries definitions and data to all instances, and acknowledges when a quorum has them', async () => {
    await threeWithMaster()
    const client = set.connect(1)
    await set.wait(client.insert('s', [7]))
    expect([idsOn(2), idsOn(3)]).toContainEqual([7])
    await set.clock.advance(100)
    expect([idsOn(1), idsOn(2), idsOn(3)]).toEqual([[7], [7], [7]])
  })

  it('refuses writes on a replica with the master and the term in the error', async () => {
    await threeWithMaster()
    const error = await set.wait(
      set
        .connect(2)
        .insert('s', [1])
        .then(
          () => undefined,
          (cause: unknown) => cause,
        ),
    )
    expect(error).toBeInstanceOf(BoxError)
    expect((error as BoxError).boxCode).toBe(7)
    const { fields } = error as BoxError
    expect(fields.get('reason')).toBe('election')
    expect(fields.get('term')).toBe(2)
    expect(fields.get('leader_id')).toBe(1)
    expect(String(fields.get('leader_uuid'))).toBe(set.at(1).uuid)
  })

  it('switches its master without losing an acknowledged write, and the old one refuses from then on', async () => {
    await threeWithMaster()
    const client = set.connect(1)
    for (let id = 1; id <= 20; id++) await set.wait(client.insert('s', [id]))
    await set.wait(set.at(2).promote())
    expect([1, 2, 3].map((number) => set.at(number).isReadonly)).toEqual([true, false, true])
    expect(set.at(2).term).toBe(3)
    await set.wait(set.connect(2).insert('s', [21]))
    await set.clock.advance(100)
    expect(idsOn(1)).toHaveLength(21)
    expect(idsOn(3)).toHaveLength(21)
  })

  it('fails over from a dead master with every acknowledged write', async () => {
    await threeWithMaster()
    const client = set.connect(1)
    for (let id = 1; id <= 20; id++) await set.wait(client.insert('s', [id]))
    await set.isolate(1)
    await set.wait(set.at(3).promote())
    expect(idsOn(3)).toHaveLength(20)
    await set.wait(set.connect(3).insert('s', [21]))
  })

  it('keeps a master that is cut off from acknowledging, and takes back what it wrote alone', async () => {
    await threeWithMaster({ quorum: 2, quorumTimeoutMs: 1_000 })
    const client = set.connect(1)
    await set.wait(client.insert('s', [1]))
    await set.isolate(1)
    const alone = await set.wait(
      client.insert('s', [666]).then(
        () => undefined,
        (cause: unknown) => cause,
      ),
    )
    expect((alone as BoxError).boxCode).toBe(216)
    expect((alone as BoxError).executed).toBe('unknown')
    await set.wait(set.at(2).promote())
    await set.wait(set.connect(2).insert('s', [2]))
    await set.rejoin(1)
    await set.clock.advance(10_000)
    expect(set.at(1).isReadonly).toBe(true)
    expect(set.at(1).term).toBe(set.at(2).term)
    expect(idsOn(1)).toEqual([1, 2])
    expect(idsOn(3)).toEqual([1, 2])
  })

  it('refuses to promote when too few answer to be sure of every acknowledged write', async () => {
    await threeWithMaster()
    set.isolated.add(1)
    await set.isolate(2)
    await expect(set.wait(set.at(3).promote())).rejects.toThrow(/1 of the 2 instances it needs agree/)
    expect(set.at(3).isReadonly).toBe(true)
  })

  it('lets only the newer of two candidates become the master', async () => {
    await threeWithMaster()
    const results = await set.wait(Promise.allSettled([set.at(2).promote(), set.at(3).promote()]))
    const masters = [1, 2, 3].filter((number) => !set.at(number).isReadonly)
    expect(masters.length).toBeLessThanOrEqual(1)
    expect(results.filter((result) => result.status === 'fulfilled')).toHaveLength(masters.length)
    await set.wait(set.at(2).promote())
    expect([1, 2, 3].filter((number) => !set.at(number).isReadonly)).toEqual([2])
  })

  it('promotes the master again without harm', async () => {
    await threeWithMaster()
    const { term } = set.at(1)
    await set.wait(set.at(1).promote())
    expect(set.at(1).term).toBe(term)
  })

  it('brings an instance that was away up to date', async () => {
    await threeWithMaster()
    await set.isolate(3)
    const client = set.connect(1)
    for (let id = 1; id <= 50; id++) await set.wait(client.insert('s', [id]))
    await set.rejoin(3)
    expect(idsOn(3)).toHaveLength(50)
    expect(set.at(3).info().links.get(1)).toMatchObject({ name: 'follow' })
  })

  it('tells watchers on every instance of each switch, with its term', async () => {
    await threeWithMaster()
    const seen: [number, unknown][] = []
    for (const number of [1, 2, 3]) set.connect(number).watch('box.election', (value) => seen.push([number, value]))
    await set.clock.advance(50)
    seen.length = 0
    await set.wait(set.at(2).promote())
    await set.clock.advance(50)
    const last = (number: number): unknown => seen.findLast(([from]) => from === number)?.[1]
    expect(last(1)).toEqual({ term: 3, role: 'follower', is_ro: true, leader: 2 })
    expect(last(2)).toEqual({ term: 3, role: 'leader', is_ro: false, leader: 2 })
    expect(last(3)).toEqual({ term: 3, role: 'follower', is_ro: true, leader: 2 })
  })

  it('copies itself to a newcomer in slices, and goes on with its other work between them', async () => {
    await threeWithMaster()
    set.at(1).createSpace('wide', {
      format: [
        { name: 'id', type: 'unsigned' },
        { name: 'text', type: 'string' },
      ],
    })
    const wide = set.at(1).space<[number, string]>('wide')
    const rows = 4_000
    for (let id = 0; id < rows; id++) wide.insert([id, 'x'.repeat(500)])
    await set.clock.advance(1_000)
    const turns: number[] = []
    const newcomer = set.replace(3)
    // Writes of others, between the slices of the copy: they are in it or follow it.
    const client = set.connect(1)
    for (let id = rows; id < rows + 50; id++) {
      await set.wait(client.insert('wide', [id, 'y']))
      turns.push(id)
    }
    await newcomer
    await set.clock.advance(5_000)
    expect(turns).toHaveLength(50)
    expect(set.at(3).space('wide').count()).toBe(rows + 50)
    expect(set.at(3).info().links.get(1)).toMatchObject({ name: 'follow' })
  })
})

describe('an instance that comes up with nothing', () => {
  it('can be promoted at once: the others tell it their term', async () => {
    await threeWithMaster()
    await set.wait(set.at(2).promote())
    const again = await set.replace(3)
    await set.wait(again.promote())
    expect([set.at(1).isReadonly, set.at(2).isReadonly, again.isReadonly]).toEqual([true, true, false])
    expect(again.term).toBeGreaterThan(3)
  })

  it('is not the master again by the promotion of its own that the others still have', async () => {
    await threeWithMaster()
    const client = set.connect(1)
    for (let id = 1; id <= 20; id++) await set.wait(client.insert('s', [id]))
    const again = await set.replace(1)
    const readonlyThen: boolean[] = []
    again.watch('box.election', () => readonlyThen.push(again.isReadonly))
    await set.clock.advance(5_000)
    expect(again.space('s').count()).toBe(20)
    expect(readonlyThen.length).toBeGreaterThan(1)
    expect(readonlyThen).not.toContain(false)
    expect(again.isReadonly).toBe(true)
    await set.wait(again.promote())
    await set.wait(set.connect(1).insert('s', [21]))
    await set.clock.advance(100)
    expect([1, 2, 3].map((number) => idsOn(number).length)).toEqual([21, 21, 21])
  })

  it('says it is loading and lets nobody read until it has what the others have', async () => {
    await threeWithMaster()
    const client = set.connect(1)
    for (let id = 1; id <= 20; id++) await set.wait(client.insert('s', [id]))
    set.isolated.add(3)
    const again = await set.replace(3)
    again.define('count', (context) => context.space('s').count())
    await set.clock.advance(5_000)
    expect(again.info().status).toBe('loading')
    const reader = set.connect(3)
    const uncalled = await set.wait(
      reader.call('count').then(
        () => undefined,
        (error: unknown) => error,
      ),
    )
    expect((uncalled as BoxError).boxCode).toBe(116)
    await set.rejoin(3)
    expect(again.info().status).toBe('running')
    expect(await set.wait(reader.call('count'))).toEqual([20])
  })

  it('is ready at once where nobody has anything', async () => {
    set = new MemoryReplicaset(3)
    await set.clock.advance(200)
    expect([1, 2, 3].map((number) => set.at(number).info().status)).toEqual(['running', 'running', 'running'])
  })
})

describe('a link', () => {
  it('tells how long its peer is silent, and how old its rows were when they came', async () => {
    await threeWithMaster()
    const link = (): LinkInfo => set.at(3).info().links.get(1)!
    await set.wait(set.connect(1).insert('s', [1]))
    await set.clock.advance(50)
    expect(link()).toMatchObject({ name: 'follow', lagMs: 0 })
    await set.clock.advance(1_500)
    expect(link().idleMs).toBeLessThanOrEqual(1_000)
    await set.isolate(3)
    expect(link().name).toBe('disconnected')
    expect(link().idleMs).toBeGreaterThan(5_000)
    await set.wait(set.connect(1).insert('s', [2]))
    const cutFor = 3_000
    await set.clock.advance(cutFor)
    set.isolated.delete(3)
    await set.clock.advance(700)
    expect(idsOn(3)).toEqual([1, 2])
    expect(link().lagMs).toBeGreaterThan(cutFor - 10)
    // The row had waited; the next heartbeat has not.
    await set.clock.advance(1_100)
    expect(link()).toMatchObject({ name: 'follow', lagMs: 0 })
  })

  it('of somebody who is not one of the others is refused, and says why', async () => {
    await threeWithMaster()
    const strange = (change: Partial<StorageOptions>): Storage =>
      createStorage({
        name: 'stranger',
        uuid: 'aaaaaaaa-aaaa-4aaa-8aaa-000000000003',
        replication: {
          number: 3,
          peers: [
            {
              number: 1,
              uuid: set.at(1).uuid,
              address: { connect: () => set.at(1).connect({ user: 'root' }) },
            },
          ],
        },
        environment: set.environment,
        ...change,
      })
    for (const [change, cause] of [
      [{ uuid: 'cccccccc-cccc-4ccc-8ccc-000000000009' }, /^Replica cccccccc-.* is not registered with replica set/],
      [{}, undefined],
    ] as const) {
      const stranger = strange(change)
      stranger.start()
      await set.clock.advance(300)
      const { name, ...rest } = stranger.info().links.get(1)!
      if (cause === undefined) expect(name).toBe('follow')
      else expect('cause' in rest ? rest.cause : '').toMatch(cause)
      await set.wait(stranger.close({ graceMs: 0 }))
    }
  })
})
