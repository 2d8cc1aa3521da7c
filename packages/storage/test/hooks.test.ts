/* What an application may put before a move, a demotion and the end of a storage, and around changes of buckets and roles. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { afterEach, describe, expect, it } from 'vitest'
import type { BucketEvent } from '../src/index.js'
import { MemoryCluster } from './vshard-cluster.js'
import { startAlone } from './memory.js'

let cluster: MemoryCluster | undefined
const lines: { event: string; [field: string]: unknown }[] = []
const keep = (line: unknown): void => {
  if ((line as { package: string }).package === 'storage') lines.push(line as (typeof lines)[number])
}

afterEach(async () => {
  unsubscribe('orbweaver:log', keep)
  lines.length = 0
  await cluster?.close()
  cluster = undefined
})

describe('before a move', () => {
  it('listeners are told of it while the bucket still takes writes, and the move waits for them', async () => {
    cluster = await new MemoryCluster({ replicasets: 2 }).start()
    const a = cluster.at('a1')
    const told: unknown[] = []
    a.before('move', async ({ bucketId, destination, signal }) => {
      told.push([bucketId, destination, cluster!.owners(bucketId), signal.aborted])
      await new Promise<void>((resolve) => cluster!.clock.schedule(1_000, resolve))
      told.push(cluster!.owners(bucketId))
    })
    const moving = a.vshard.sendBucket(3, 'b')
    await cluster.clock.advance(500)
    expect(a.vshard.info().transfers).toMatchObject([
      { bucketId: 3, step: expect.stringContaining('application') as string },
    ])
    await cluster.wait(moving)
    expect(told).toEqual([[3, 'b', { a: 'active' }, false], { a: 'active' }])
    expect(cluster.writers(3)).toEqual(['b'])
  })

  it('a listener that throws refuses this move, in words, and nothing else', async () => {
    subscribe('orbweaver:log', keep)
    cluster = await new MemoryCluster({ replicasets: 2 }).start()
    const a = cluster.at('a1')
    const stop = a.before('move', ({ bucketId }) => {
      if (bucketId === 3) throw new Error('bucket 3 is being exported')
    })
    await expect(cluster.wait(a.vshard.sendBucket(3, 'b'))).rejects.toMatchObject({
      boxCode: 32,
      message: 'The move of bucket 3 to replicaset b was refused here: bucket 3 is being exported',
      executed: 'no',
    })
    expect(cluster.owners(3)).toEqual({ a: 'active' })
    expect(lines).toMatchObject([{ event: 'hook failed', hook: 'move', bucketId: 3, destination: 'b' }])
    // The same over the wire, as a refusal and not as an exception.
    expect(await cluster.wait(cluster.connect('a1').call('vshard.storage.bucket_send', [3, 'b']))).toMatchObject([
      null,
      { code: 32, message: expect.stringContaining('bucket 3 is being exported') as string },
    ])
    await cluster.wait(a.vshard.sendBucket(4, 'b'))
    stop()
    await cluster.wait(a.vshard.sendBucket(3, 'b'))
    expect(cluster.writers(3)).toEqual(['b'])
  })

  it('a listener that takes too long is told so by its signal, and the move goes on', async () => {
    subscribe('orbweaver:log', keep)
    cluster = await new MemoryCluster({ replicasets: 2 }).start()
    const a = cluster.at('a1')
    let abortedAt: number | undefined
    const { clock } = cluster
    const begun = clock.now()
    a.before('move', ({ signal }) => {
      signal.addEventListener('abort', () => {
        abortedAt = clock.now() - begun
      })
      return new Promise<never>(() => undefined)
    })
    await cluster.wait(a.vshard.sendBucket(3, 'b'))
    expect(abortedAt).toBe(5_000)
    expect(cluster.writers(3)).toEqual(['b'])
    expect(lines.filter(({ event }) => event.startsWith('hook'))).toMatchObject([
      { event: 'hook timed out', hook: 'move', timeoutMs: 5_000 },
    ])
  })

  it('waits no longer than the move itself may take', async () => {
    cluster = await new MemoryCluster({ replicasets: 2 }).start()
    const a = cluster.at('a1')
    a.before('move', () => new Promise<never>(() => undefined))
    const begun = cluster.clock.now()
    await cluster.wait(a.vshard.sendBucket(3, 'b', { timeout: 1_000 })).catch(() => undefined)
    expect(cluster.clock.now() - begun).toBeLessThan(1_500)
  })

  it('refusals do not stop a rebalancing: other buckets go', async () => {
    cluster = await new MemoryCluster({
      replicasets: 2,
      bucketCount: 20,
      vshard: { rebalancerMode: 'auto' },
    }).start([20, 0])
    let asked = 0
    cluster.at('a1').before('move', ({ bucketId }) => {
      asked++
      if (bucketId <= 10) throw new Error('a low number')
    })
    await cluster.clock.advance(60_000)
    expect(cluster.isAtRest).toBe(true)
    expect([...cluster.side('b1').buckets.idsOf('active')].toSorted((a, b) => a - b)).toEqual([
      11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
    ])
    // Each refused bucket was asked about a few times at the most.
    expect(asked).toBeLessThan(60)
  })
})

describe('before a demotion', () => {
  it('listeners run together while the instance is still the master; nothing they do refuses it', async () => {
    subscribe('orbweaver:log', keep)
    const { storage, clock, wait } = startAlone()
    const told: unknown[] = []
    storage.before('demote', async () => {
      await new Promise<void>((resolve) => clock.schedule(300, resolve))
      told.push(['slow', storage.isReadonly, clock.now()])
    })
    storage.before('demote', () => {
      told.push(['quick', storage.isReadonly, clock.now()])
      throw new Error('never')
    })
    const begun = clock.now()
    await wait(storage.demote())
    expect(told).toEqual([
      ['quick', false, begun],
      ['slow', false, begun + 300],
    ])
    expect(storage.isReadonly).toBe(true)
    expect(lines).toMatchObject([{ event: 'hook failed', hook: 'demote' }])
    // There is nothing to lose any more.
    await wait(storage.demote())
    expect(told).toHaveLength(2)
    await wait(storage.close({ graceMs: 0 }))
  })

  it('a listener that hangs holds it up for the configured time only', async () => {
    const { storage, clock, wait } = startAlone({ hookTimeoutMs: 200 })
    storage.before('demote', () => new Promise<never>(() => undefined))
    const begun = clock.now()
    await wait(storage.demote())
    expect(clock.now() - begun).toBeLessThan(400)
    expect(storage.isReadonly).toBe(true)
    await wait(storage.close({ graceMs: 0 }))
  })
})

describe('before the end', () => {
  it('everything is still served, and the end comes all the same', async () => {
    const { storage, connect, clock, wait } = startAlone({ hookTimeoutMs: 1_000 })
    storage.define('hello', () => 'hello')
    const client = connect()
    await wait(client.ping())
    const answers: unknown[] = []
    storage.before('shutdown', async ({ signal }) => {
      answers.push(await client.call('hello'))
      await client.close()
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
      throw new Error('nobody stops it')
    })
    const begun = clock.now()
    await wait(storage.close())
    expect(answers).toEqual([['hello']])
    expect(clock.now() - begun).toBeGreaterThanOrEqual(1_000)
    expect(clock.now() - begun).toBeLessThan(1_500)
  })

  it('is not asked about a hook that is none', async () => {
    const { storage, wait } = startAlone()
    expect(() => storage.before('breakfast' as 'move', () => undefined)).toThrow(/known are move, demote, shutdown/)
    expect(() => storage.before('move', 5 as unknown as () => void)).toThrow(/expected a function/)
    await wait(storage.close({ graceMs: 0 }))
  })
})

describe('listeners of the role', () => {
  it('hear at once what already is, then of each change, and of the end', async () => {
    cluster = await new MemoryCluster({ replicasets: 1, instances: 2 }).start()
    const told: string[] = []
    for (const name of cluster.names) {
      cluster.at(name).vshard.onMasterEnable(() => told.push(`${name} enabled`))
      cluster.at(name).vshard.onMasterDisable(() => told.push(`${name} disabled`))
    }
    expect(told.splice(0)).toEqual(['a1 enabled', 'a2 disabled'])
    await cluster.wait(cluster.at('a2').promote())
    await cluster.clock.advance(200)
    expect(told.splice(0)).toEqual(['a1 disabled', 'a2 enabled'])
    await cluster.close()
    cluster = undefined
    expect(told).toEqual(['a2 disabled'])
  })

  it('hear nothing behind their end, and what they throw is a line of the log', async () => {
    subscribe('orbweaver:log', keep)
    const { storage, wait } = startAlone({ vshard: { bucketCount: 10 } }, { isStarted: false })
    const told: string[] = []
    const stop = storage.vshard.onMasterEnable(() => told.push('first'))
    storage.vshard.onMasterEnable(() => {
      throw new Error('no')
    })
    storage.vshard.onMasterEnable(() => told.push('third'))
    expect(told).toEqual([])
    storage.start()
    expect(told.splice(0)).toEqual(['first', 'third'])
    expect(lines).toMatchObject([{ event: 'listener failed', listener: 'onMasterEnable' }])
    stop()
    await wait(storage.demote())
    await wait(storage.promote())
    expect(told).toEqual(['third'])
    await wait(storage.close({ graceMs: 0 }))
  })
})

describe('a listener of bucket events', () => {
  /** A sharded cluster with 2,500 rows in bucket 3 of replicaset a, and a space of its own on each instance for notes. */
  async function started(): Promise<MemoryCluster> {
    cluster = await new MemoryCluster({ replicasets: 2 }).start()
    for (const name of ['a1', 'b1'])
      cluster.at(name).createSpace('notes', {
        format: [
          { name: 'id', type: 'unsigned' },
          { name: 'text', type: 'string' },
        ],
      })
    for (let i = 0; i < 2_500; i++)
      cluster
        .at('a1')
        .space('s')
        .insert([1_000 + i, 3, 'row'])
    return cluster
  }

  /** Writes a note for each event; `fail` may throw behind it. */
  function note(name: string, fail: (event: BucketEvent, count: number) => void = () => undefined): () => void {
    let count = 0
    const notes = cluster!.at(name).space('notes')
    return cluster!.at(name).vshard.onBucketEvent((event) => {
      count++
      notes.insert([
        count,
        `${event.type} of ${event.bucketId} in ${event.spaces.join()} before ${cluster!.at(name).space('s').count()} rows`,
      ])
      fail(event, count)
    })
  }

  const notesOn = (name: string): unknown[] =>
    cluster!
      .at(name)
      .space('notes')
      .select()
      .map(([, text]) => text)

  it('comes first in each transaction of both kinds, and what it writes is a part of it', async () => {
    await started()
    note('a1')
    note('b1')
    await cluster!.wait(cluster!.at('a1').vshard.sendBucket(3, 'b'))
    await cluster!.clock.advance(500)
    expect(notesOn('b1')).toEqual(
      [10, 1_010, 2_010].map((rows) => `bucket_data_recv_txn of 3 in s before ${rows} rows`),
    )
    expect(notesOn('a1')).toEqual([2_510, 1_510, 510].map((rows) => `bucket_data_gc_txn of 3 in s before ${rows} rows`))
  })

  it('that throws undoes a transaction of the collector with its own writes; the job says why, and tries again', async () => {
    subscribe('orbweaver:log', keep)
    await started()
    let isRefusing = true
    note('a1', (_event, count) => {
      if (isRefusing && count >= 2) throw new Error('not yet')
    })
    await cluster!.wait(cluster!.at('a1').vshard.sendBucket(3, 'b'))
    await cluster!.clock.advance(1_000)
    expect(notesOn('a1')).toHaveLength(1)
    expect(cluster!.at('a1').space('s').count()).toBe(1_510)
    expect(cluster!.at('a1').vshard.info().gc.problem).toMatch(/bucket_data_gc_txn.*bucket 3: not yet/)
    expect(cluster!.owners(3)).toEqual({ a: 'garbage', b: 'active' })
    expect(lines.filter(({ event }) => event === 'bucketGc waits')).toHaveLength(1)
    isRefusing = false
    await cluster!.clock.advance(2_000)
    expect(cluster!.owners(3)).toEqual({ b: 'active' })
    expect(cluster!.at('a1').space('s').count()).toBe(9)
    expect(cluster!.at('a1').vshard.info().gc.problem).toBeUndefined()
  })

  it('that throws at the receiver ends the move: the source serves on, nothing stays behind', async () => {
    await started()
    const stop = note('b1', (_event, count) => {
      if (count === 2) throw new Error('no room')
    })
    await expect(cluster!.wait(cluster!.at('a1').vshard.sendBucket(3, 'b'))).rejects.toThrow(/no room/)
    await cluster!.clock.advance(10_000)
    expect(cluster!.owners(3)).toEqual({ a: 'active' })
    expect(cluster!.at('b1').space('s').count()).toBe(10)
    expect(cluster!.at('a1').space('s').count()).toBe(2_510)
    stop()
    await cluster!.wait(cluster!.at('a1').vshard.sendBucket(3, 'b'))
    await cluster!.clock.advance(1_000)
    expect(cluster!.owners(3)).toEqual({ b: 'active' })
  })

  it('must not wait', async () => {
    await started()
    cluster!.at('b1').vshard.onBucketEvent(() => Promise.resolve())
    await expect(cluster!.wait(cluster!.at('a1').vshard.sendBucket(3, 'b'))).rejects.toThrow(/must not wait/)
    expect(() => cluster!.at('b1').vshard.onBucketEvent(5 as unknown as () => void)).toThrow(/expected a function/)
  })
})
