/* What a storage tells of itself by events, over the wire and within the process. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { Uuid } from '@orbweaver/iproto'
import { afterEach, describe, expect, it } from 'vitest'
import { MemoryCluster } from './vshard-cluster.js'
import { MemoryReplicaset, startAlone } from './memory.js'

const SPACE = { format: [{ name: 'id', type: 'unsigned' }] } as const

/** Lines of the log while a test runs. */
const lines: { event: string; storage: string; [field: string]: unknown }[] = []
const keep = (line: unknown): void => {
  if ((line as { package: string }).package === 'storage') lines.push(line as (typeof lines)[number])
}
afterEach(() => {
  unsubscribe('orbweaver:log', keep)
  lines.length = 0
})

describe('the events of a storage', () => {
  it('say who it is, what it is, and in which term, as Tarantool says it', async () => {
    const set = new MemoryReplicaset(2)
    await set.clock.advance(100)
    await set.wait(set.at(2).promote())
    await set.clock.advance(100)
    const seen = new Map<string, unknown>()
    const client = set.connect(1)
    for (const key of ['box.id', 'box.status', 'box.election', 'box.schema', 'box.shutdown', 'nobody.set.it'])
      client.watch(key, (value) => seen.set(key, value))
    await set.clock.advance(50)
    expect(Object.fromEntries(seen)).toEqual({
      'box.id': { id: 1, instance_uuid: Uuid.from(set.at(1).uuid) },
      'box.status': { is_ro: true, is_ro_cfg: false, status: 'running' },
      'box.election': { term: 2, role: 'follower', is_ro: true, leader: 2 },
      'box.schema': { version: expect.any(Number) as number },
      'box.shutdown': undefined,
      'nobody.set.it': undefined,
    })
    await set.wait(client.close())
    await set.close()
  })

  it('tell the version of the schema that replies carry, on every instance, with every change', async () => {
    const set = new MemoryReplicaset(2)
    await set.clock.advance(100)
    await set.wait(set.at(1).promote())
    await set.clock.advance(100)
    const versions: number[] = []
    const client = set.connect(2)
    client.watch('box.schema', (value) => versions.push((value as { version: number }).version))
    await set.clock.advance(50)
    set.at(1).createSpace('s', SPACE)
    await set.clock.advance(50)
    set.at(1).dropSpace('s')
    await set.clock.advance(50)
    expect(versions).toHaveLength(3)
    expect(versions).toEqual([...versions].toSorted((a, b) => a - b))
    expect(new Set(versions).size).toBe(3)
    set.at(1).createSpace('t', SPACE)
    await set.clock.advance(50)
    // A request of the version that was told is taken, one of another version is refused: they are the same number.
    expect(versions.at(-1)).toBe(
      (set.at(2) as unknown as { engine: { schema: { version: number } } }).engine.schema.version,
    )
    await set.wait(client.close())
    await set.close()
  })

  it('are told where they change, and not where they do not', async () => {
    const set = new MemoryReplicaset(3)
    await set.clock.advance(100)
    await set.wait(set.at(1).promote())
    await set.clock.advance(100)
    const seen = new Map<string, unknown[]>()
    for (const key of ['box.id', 'box.status', 'box.election'])
      set.at(3).watch(key, (value) => seen.set(key, [...(seen.get(key) ?? []), value]))
    await set.clock.advance(50)
    await set.wait(set.at(2).promote())
    await set.clock.advance(100)
    // The third instance follows another one now: its role is what it was.
    expect(seen.get('box.id')).toHaveLength(1)
    expect(seen.get('box.status')).toEqual([{ is_ro: true, is_ro_cfg: false, status: 'running' }])
    const leaders = seen.get('box.election')!.map((value) => (value as { leader: number }).leader)
    expect([leaders[0], leaders.at(-1)]).toEqual([1, 2])
    await set.close()
  })

  it('of the storage itself cannot be set by the application', async () => {
    const { storage, wait } = startAlone()
    for (const key of ['box.status', 'box.mine']) expect(() => storage.broadcast(key, 1)).toThrow(/storage's own/)
    expect(() => storage.broadcast(5 as unknown as string, 1)).toThrow(/key of an event is 5, expected a string/)
    storage.broadcast('mine', { a: 1 })
    await wait(storage.close({ graceMs: 0 }))
  })
})

describe('vshard.storage.election', () => {
  it('has no value before the side of vshard is started, and then tells every change of a field', async () => {
    const storageAlone = startAlone({ vshard: { bucketCount: 10 } }, { isStarted: false })
    const seen: unknown[] = []
    storageAlone.storage.watch('vshard.storage.election', (value) => seen.push(value))
    await storageAlone.clock.settle()
    storageAlone.storage.start()
    await storageAlone.clock.settle()
    await storageAlone.wait(storageAlone.storage.demote())
    await storageAlone.clock.settle()
    await storageAlone.wait(storageAlone.storage.promote())
    await storageAlone.clock.settle()
    expect(seen).toEqual([
      undefined,
      { term: 1, role: 'leader', is_ro: false, leader: 1 },
      { term: 1, role: 'follower', is_ro: true, leader: 1 },
      { term: expect.any(Number) as number, role: 'leader', is_ro: false, leader: 1 },
    ])
    await storageAlone.wait(storageAlone.storage.close({ graceMs: 0 }))
  })

  it('says who is the master by configuration where the configuration says so, and follows it', async () => {
    const cluster = await new MemoryCluster({ replicasets: 1, instances: 2 }).start()
    const seen = new Map<string, unknown>()
    for (const name of cluster.names) {
      const client = cluster.connect(name)
      client.watch('vshard.storage.election', (value) => seen.set(name, value))
    }
    await cluster.clock.advance(50)
    const follower = { term: 2, role: 'follower', is_ro: true, leader: 1 }
    expect(seen.get('a1')).toEqual({ ...follower, role: 'leader', is_ro: false })
    expect(seen.get('a2')).toEqual(follower)
    const replicasets = cluster.config.map((set) => ({ ...set, master: 'a2' }))
    for (const name of cluster.names) cluster.at(name).vshard.configure({ replicasets })
    await cluster.clock.advance(50)
    expect(seen.get('a1')).toMatchObject({ role: 'leader', is_master_cfg: false })
    expect(seen.get('a2')).toEqual({ ...follower, is_master_cfg: true })
    await cluster.close()
  })

  it('is nothing where there is no vshard', async () => {
    const { storage, clock, wait } = startAlone()
    const seen: unknown[] = []
    storage.watch('vshard.storage.election', (value) => seen.push(value))
    await clock.settle()
    expect(seen).toEqual([undefined])
    await wait(storage.close({ graceMs: 0 }))
  })
})

describe('a watcher of this process', () => {
  it('gets the value of the moment, then the newest after each change, until it is taken away', async () => {
    const { storage, clock, wait } = startAlone()
    const seen: unknown[] = []
    storage.broadcast('k', { n: 0 })
    const stop = storage.watch('k', (value) => seen.push(value))
    expect(seen).toEqual([])
    await clock.settle()
    storage.broadcast('k', { n: 1 })
    storage.broadcast('k', { n: 2 })
    await clock.settle()
    storage.broadcast('k', undefined)
    await clock.settle()
    stop()
    stop()
    storage.broadcast('k', { n: 3 })
    await clock.settle()
    expect(seen).toEqual([{ n: 0 }, { n: 2 }, undefined])
    await wait(storage.close({ graceMs: 0 }))
  })

  it('that throws, at once or later, is a line of the log and disturbs nobody', async () => {
    subscribe('orbweaver:log', keep)
    const { storage, clock, wait } = startAlone()
    const seen: unknown[] = []
    storage.watch('k', () => {
      throw new Error('at once')
    })
    storage.watch('k', () => Promise.reject(new Error('later')))
    storage.watch('k', (value) => seen.push(value))
    storage.broadcast('k', 1)
    await clock.settle()
    expect(seen).toEqual([1])
    expect(
      lines.map(({ event, storage: name, listener, error }) => [event, name, listener, (error as Error).message]),
    ).toEqual([
      ['listener failed', 'alone', "watch('k')", 'at once'],
      ['listener failed', 'alone', "watch('k')", 'later'],
    ])
    await wait(storage.close({ graceMs: 0 }))
  })

  it('of box.shutdown does not hold the storage up', async () => {
    const { storage, clock, wait } = startAlone()
    const seen: unknown[] = []
    storage.watch('box.shutdown', (value) => seen.push(value))
    await clock.settle()
    const before = clock.now()
    await wait(storage.close())
    await clock.settle()
    expect(clock.now() - before).toBeLessThan(1_000)
    expect(seen).toEqual([undefined, true])
  })
})
