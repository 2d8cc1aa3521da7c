/* Buckets on their way between replicasets: rows and records, in order and through failures. */
import { readFileSync } from 'node:fs'
import { VshardError } from '@orbweaver/vshard'
import { afterEach, describe, expect, it } from 'vitest'
import type { Values } from '../src/index.js'
import { MemoryCluster } from './vshard-cluster.js'

let cluster: MemoryCluster

afterEach(async () => {
  await cluster.close()
})

function rowsOf(name: string, bucketId: number): unknown[] {
  return cluster.at(name).space('s').select([bucketId], { index: 'bucket_id' })
}

describe('a move', () => {
  it('brings all rows over, counts the generation up, and leaves nothing behind but where it went', async () => {
    cluster = await new MemoryCluster({ replicasets: 2, instances: 2 }).start()
    const a = cluster.at('a1')
    for (let i = 0; i < 2_500; i++) a.space('s').insert([1_000 + i, 3, i])
    await cluster.wait(a.vshard.sendBucket(3, 'b'))
    await cluster.clock.advance(200)
    expect(cluster.owners(3)).toEqual({ b: 'active' })
    expect(rowsOf('a1', 3)).toEqual([])
    expect(rowsOf('b1', 3)).toHaveLength(2_501)
    expect(rowsOf('b2', 3)).toHaveLength(2_501)
    expect(cluster.side('b1').buckets.get(3)?.generation).toBe(1)
    const [nothing, error] = await cluster.wait(a.call('vshard.storage.bucket_stat', 3))
    expect(nothing).toBeNull()
    expect(error).toMatchObject({ name: 'WRONG_BUCKET', destination: 'b' })
    await cluster.wait(cluster.at('b1').vshard.sendBucket(3, 'a'))
    await cluster.clock.advance(200)
    expect(cluster.owners(3)).toEqual({ a: 'active' })
    expect(cluster.side('a2').buckets.get(3)?.generation).toBe(2)
  })

  it('sends what vshard sends, in its order', async () => {
    const { sequences } = JSON.parse(
      readFileSync(new URL('vectors/storage-sequences.json', import.meta.url), 'utf8'),
    ) as { sequences: { name: string; exchanges: { to: string; function: string; args: unknown[] }[] }[] }
    const names: Readonly<Record<string, string>> = { s1_a: 'a1', s1_b: 'a2', s2_a: 'b1' }
    const wanted = sequences
      .find(({ name }) => name === 'bucket-send')!
      .exchanges.map(({ to, function: called, args }) => messageOf(names[to]!, called, args))
    cluster = await new MemoryCluster({ replicasets: 2, instances: 2 }).start()
    for (let i = 0; i < 2_300; i++)
      cluster
        .at('a1')
        .space('s')
        .insert([1_000 + i, 3, 'row'])
    const sent: string[] = []
    for (const name of cluster.names)
      for (const called of ['vshard.storage._call', 'vshard.storage.bucket_recv'])
        cluster.intercept(name, called, (run, args) => {
          sent.push(messageOf(name, called, args))
          return run()
        })
    await cluster.wait(cluster.at('a1').vshard.sendBucket(3, 'b'))
    await cluster.clock.advance(200)
    // Recovery asks whenever it likes, and who the master is was known to the captured storages by configuration.
    const isOfMove = (message: string): boolean => !/recovery_bucket_stat|info/.test(message)
    expect(sent.filter(isOfMove)).toEqual(wanted.filter(isOfMove))
  })

  it('is refused for a pinned bucket, which is served as ever', async () => {
    cluster = await new MemoryCluster({ replicasets: 2 }).start()
    const a = cluster.at('a1')
    a.vshard.pinBucket(3)
    a.vshard.pinBucket(3)
    await expect(cluster.wait(a.vshard.sendBucket(3, 'b'))).rejects.toMatchObject({ vshardName: 'BUCKET_IS_PINNED' })
    a.define('echo', (_context, value) => value)
    expect(await cluster.wait(a.call('vshard.storage.call', 3, 'write', 'echo', [1]))).toEqual([true, 1])
    a.vshard.unpinBucket(3)
    await cluster.wait(a.vshard.sendBucket(3, 'b'))
    expect(cluster.owners(3)['b']).toBe('active')
    expect(() => a.vshard.pinBucket(3)).toThrow(VshardError)
  })

  it('does not begin while a replica is away: the bucket takes writes, and the reason names the replica', async () => {
    cluster = await new MemoryCluster({ replicasets: 2, instances: 3, vshard: { moveSyncTimeoutMs: 2_000 } }).start()
    cluster.isolate('a3')
    await cluster.clock.advance(7_000) // links notice by silence
    const a = cluster.at('a1')
    const began = cluster.clock.now()
    const error = await failureWhile(a.vshard.sendBucket(3, 'b'), () =>
      expect(cluster.side('a1').buckets.get(3)?.status).toBe('active'),
    )
    expect(cluster.clock.now() - began).toBeLessThan(2_500)
    expect(error).toMatchObject({ boxCode: 78 })
    expect(String((error as { fields: Map<string, unknown> }).fields.get('reason'))).toContain(cluster.at('a3').uuid)
    expect(a.vshard.info().alerts.map(([name]) => name)).toEqual(['UNREACHABLE_REPLICA', 'LOW_REDUNDANCY'])
    a.vshard.setWrittenOff(cluster.at('a3').uuid, true)
    await cluster.wait(a.vshard.sendBucket(3, 'b'))
    await cluster.clock.advance(500)
    expect(cluster.owners(3)).toEqual({ b: 'active' })
  })

  it('waits for storage references on both sides, taking writes meanwhile, and goes when they end', async () => {
    cluster = await new MemoryCluster({ replicasets: 2 }).start()
    const [a, b] = [cluster.at('a1'), cluster.at('b1')]
    for (const holder of [a, b]) {
      const ref = await cluster.wait(holder.ref({ timeout: 1_000 }))
      let isDone = false
      const sending = a.vshard.sendBucket(holder === a ? 3 : 4, 'b').then(() => (isDone = true))
      let writable = 0
      for (let i = 0; i < 100; i++) {
        await cluster.clock.advance(50)
        const status = cluster.side('a1').buckets.get(holder === a ? 3 : 4)?.status
        if (status === 'active') writable++
      }
      expect(isDone).toBe(false)
      expect(writable).toBeGreaterThan(60)
      expect(a.vshard.info().transfers[0]?.step).toMatch(/waiting for a turn|sending rows/)
      await ref[Symbol.asyncDispose]()
      await cluster.wait(sending)
    }
    await cluster.clock.advance(100)
    expect([cluster.owners(3), cluster.owners(4)]).toEqual([{ b: 'active' }, { b: 'active' }])
  })

  it('lets running writes end by themselves, and refuses new ones only when they do not', async () => {
    cluster = await new MemoryCluster({ replicasets: 2 }).start()
    const a = cluster.at('a1')
    a.define(
      'slow',
      (_context, ms) => new Promise((resolve) => cluster.clock.schedule(Number(ms), () => resolve('done'))),
    )
    const short = a.call('vshard.storage.call', 3, 'write', 'slow', [300])
    const sending = a.vshard.sendBucket(3, 'b')
    await cluster.clock.advance(200)
    expect(cluster.side('a1').buckets.get(3)?.status).toBe('active')
    expect(await cluster.wait(short)).toEqual([true, 'done'])
    await cluster.wait(sending)
    const long = a.call('vshard.storage.call', 4, 'write', 'slow', [60_000])
    const late = cluster.wait(a.vshard.sendBucket(4, 'b', { refTimeout: 3_000 }))
    await expect(late).rejects.toMatchObject({ boxCode: 78 })
    expect(cluster.owners(4)).toEqual({ a: 'active' })
    void long
  })

  it('goes in messages bounded in rows and bytes, and other requests are answered between them', async () => {
    cluster = await new MemoryCluster({ replicasets: 2, vshard: { maxChunkBytes: 2_000 } }).start()
    const [a] = [cluster.at('a1')]
    for (let i = 0; i < 5_000; i++) a.space('s').insert([1_000 + i, 3, 'x'.repeat(i % 50)])
    const sizes: number[] = []
    let answered = 0
    const client = cluster.connect('a1')
    cluster.intercept('b1', 'vshard.storage.bucket_recv', (run, args) => {
      const rows = (args[2] as [string, unknown[]][]).flatMap(([, tuples]) => tuples)
      sizes.push(rows.length)
      void client.ping().then(() => answered++)
      return run()
    })
    await cluster.wait(a.vshard.sendBucket(3, 'b'))
    expect(sizes.length).toBeGreaterThan(50)
    expect(Math.max(...sizes)).toBeLessThanOrEqual(1_000)
    expect(answered).toBeGreaterThanOrEqual(sizes.length - 2)
    await cluster.clock.advance(500)
    expect(rowsOf('b1', 3)).toHaveLength(5_001)
    expect(rowsOf('a1', 3)).toEqual([])
  })

  it.each([
    ['its time is over', { timeout: 1_000 }, (run: () => unknown) => pause(400).then(run)],
    [
      'the receiver dies half-way',
      { chunkTimeout: 1_000 },
      (_run: () => unknown) => new Promise<never>(() => undefined),
    ],
  ])(
    'that fails since %s leaves the bucket writable at its source and nothing elsewhere',
    async (_why, limits, fault) => {
      cluster = await new MemoryCluster({ replicasets: 2, vshard: { maxChunkBytes: 20 } }).start()
      for (let i = 0; i < 40; i++)
        cluster
          .at('a1')
          .space('s')
          .insert([1_000 + i, 3, 'row'])
      let messages = 0
      cluster.intercept('b1', 'vshard.storage.bucket_recv', (run) => (++messages < 4 ? run() : fault(run)))
      await expect(cluster.wait(cluster.at('a1').vshard.sendBucket(3, 'b', limits))).rejects.toThrow(/Timeout/)
      await cluster.clock.advance(20_000)
      expect(cluster.owners(3)).toEqual(messages > 0 ? { a: 'active' } : {})
      expect(rowsOf('a1', 3)).toHaveLength(41)
      expect(rowsOf('b1', 3)).toEqual([])
    },
  )
})

describe('messages of an abandoned transfer', () => {
  it('are void, however late they come', async () => {
    cluster = await new MemoryCluster({ replicasets: 3 }).start()
    const a = cluster.at('a1')
    let isDelayed = true
    const answers: (readonly unknown[])[] = []
    cluster.intercept('b1', 'vshard.storage.bucket_recv', async (run) => {
      if (isDelayed) await pause(5_000)
      const reply = (await run()) as Values
      answers.push(reply.list)
      return reply
    })
    await expect(cluster.wait(a.vshard.sendBucket(3, 'b', { chunkTimeout: 300 }))).rejects.toThrow(/Timeout/)
    await cluster.clock.advance(1_000)
    expect(cluster.owners(3)).toEqual({ a: 'active' })
    await cluster.wait(a.vshard.sendBucket(3, 'c'))
    isDelayed = false
    for (let i = 0; i < 200; i++) {
      await cluster.clock.advance(50)
      expect(cluster.writers(3)).toEqual(['c'])
    }
    expect(answers).toMatchObject([
      [null, { name: 'WRONG_BUCKET', reason: expect.stringMatching(/^the sender's bucket is/) as string }],
    ])
    expect(cluster.owners(3)).toEqual({ c: 'active' })
  })
})

describe('recovery', () => {
  it('waits for a peer that cannot answer, and says for whom and since when', async () => {
    cluster = await new MemoryCluster({ replicasets: 2 }).start()
    cluster.intercept('b1', 'vshard.storage.bucket_recv', () => {
      cluster.isolate('b1')
      return new Promise<never>(() => undefined)
    })
    await expect(cluster.wait(cluster.at('a1').vshard.sendBucket(3, 'b', { timeout: 3_000 }))).rejects.toThrow(
      /Timeout|link between/,
    )
    await cluster.clock.advance(30_000)
    expect(cluster.owners(3)).toEqual({ a: 'sending' })
    const { recovery } = cluster.at('a1').vshard.info()
    expect(recovery.problem).toMatch(/^bucket 3 is sending \(replicaset b\): replicaset b: /)
    expect(recovery.problemAgeMs).toBeGreaterThan(10_000)
    // It asks now and then, not all the time.
    const { passes } = recovery
    await cluster.clock.advance(60_000)
    expect(cluster.at('a1').vshard.info().recovery.passes - passes).toBeLessThan(30)
    cluster.rejoin('b1')
    await cluster.clock.advance(15_000)
    expect(cluster.owners(3)).toEqual({ a: 'active' })
    expect(cluster.at('a1').vshard.info().recovery.problem).toBeUndefined()
  })

  it('keeps its hands off a bucket whose routine has not finished, and takes it up when it has', async () => {
    cluster = await new MemoryCluster({ replicasets: 2, instances: 2 }).start()
    const release: (() => void)[] = []
    cluster.intercept('b1', 'vshard.storage.bucket_recv', async (run, args) => {
      if ((args[3] as Record<string, unknown>)['is_last'] === true)
        await new Promise<void>((resolve) => release.push(resolve))
      return run()
    })
    const sending = cluster.at('a1').vshard.sendBucket(3, 'b')
    await cluster.clock.advance(20_000)
    expect(cluster.owners(3)).toEqual({ a: 'sent', b: 'receiving' })
    expect(rowsOf('a1', 3)).toHaveLength(1)
    release[0]!()
    await cluster.wait(sending)
    await cluster.clock.advance(100)
    expect(cluster.owners(3)).toEqual({ b: 'active' })
    expect(rowsOf('a1', 3)).toEqual([])
  })
})

describe('collection', () => {
  async function readOnReplica(): Promise<{ reading: Promise<readonly unknown[]> }> {
    cluster = await new MemoryCluster({ replicasets: 2, instances: 2 }).start()
    cluster.at('a2').define('read_slowly', async (context) => {
      await pause(2_000)
      return context.space('s').select([3], { index: 'bucket_id' }).length
    })
    const reading = cluster.at('a2').call('vshard.storage.call', 3, 'read', 'read_slowly', [])
    await cluster.wait(cluster.at('a1').vshard.sendBucket(3, 'b'))
    return { reading }
  }

  it('waits for a reader on a replica, who sees everything, and follows soon after it', async () => {
    const { reading } = await readOnReplica()
    await cluster.clock.advance(1_000)
    expect(cluster.owners(3)).toEqual({ a: 'sent', b: 'active' })
    expect(cluster.at('a1').vshard.info().gc.problem).toContain('bucket 3 is sent, and still used on a replica')
    expect(await cluster.wait(reading)).toEqual([true, 1])
    await cluster.clock.advance(1_500)
    expect(cluster.owners(3)).toEqual({ b: 'active' })
  })

  it('waits for a replica that is away until it is written off; a read there fails, it never gives a part', async () => {
    const { reading } = await readOnReplica()
    cluster.isolate('a2')
    await cluster.clock.advance(10_000)
    expect(await cluster.wait(reading)).toEqual([true, 1]) // its data is still there
    expect(cluster.owners(3)).toEqual({ a: 'sent', b: 'active' })
    expect(cluster.at('a1').vshard.info().gc.problem).toContain(cluster.at('a2').uuid)
    const again = cluster.at('a2').call('vshard.storage.call', 4, 'read', 'read_slowly', [])
    cluster.at('a1').vshard.setWrittenOff(cluster.at('a2').uuid, true)
    await cluster.wait(cluster.at('a1').vshard.sendBucket(4, 'b'))
    await cluster.clock.advance(100)
    expect(cluster.owners(4)).toEqual({ b: 'active' })
    cluster.rejoin('a2')
    await cluster.wait(again)
    const [isDone, error] = await cluster.wait(
      (async () => {
        const long = cluster.at('a2').call('vshard.storage.call', 5, 'read', 'read_slowly', [])
        cluster.isolate('a2')
        await cluster.at('a1').vshard.sendBucket(5, 'b')
        cluster.rejoin('a2')
        return long
      })(),
    )
    // The rows may have gone under this reader: it is told so, unless it was faster than the news.
    if (isDone === null) expect(error).toMatchObject({ name: 'BUCKET_IS_CORRUPTED' })
    else expect(isDone).toBe(true)
  })
})

describe('a change of masters', () => {
  it('keeps buckets where running writes of the former master are, and the late write gets an error', async () => {
    cluster = await new MemoryCluster({ replicasets: 2, instances: 2, quorum: 2 }).start()
    cluster.at('a1').define('write_late', async (context) => {
      await pause(1_000)
      context.space('s').insert([777, 3, 'too late'])
    })
    const writing = cluster.at('a1').call('vshard.storage.call', 3, 'write', 'write_late', [])
    await cluster.wait(cluster.at('a2').promote())
    const sending = cluster.at('a2').vshard.sendBucket(3, 'b')
    await cluster.clock.advance(500)
    expect(cluster.writers(3)).toEqual([])
    expect(cluster.owners(3)['b']).toBeUndefined()
    expect(await cluster.wait(writing)).toMatchObject([false, { code: 32, details: { boxCode: 7 } }])
    await cluster.wait(sending)
    await cluster.clock.advance(500)
    expect(cluster.owners(3)).toEqual({ b: 'active' })
    for (const name of cluster.names) expect(cluster.at(name).space('s').get([777])).toBeUndefined()
  })

  it.each([
    [500, true],
    [10_000, false],
  ])(
    'that is planned waits for a write of %d ms within its bound, and refuses new ones meanwhile',
    async (ms, isDone) => {
      cluster = await new MemoryCluster({ replicasets: 1, instances: 2, quorum: 2 }).start()
      const a1 = cluster.at('a1')
      a1.define('write_late', async (context) => {
        await pause(ms)
        context.space('s').insert([777, 3, 'in time?'])
      })
      const writing = a1.call('vshard.storage.call', 3, 'write', 'write_late', [])
      const demoting = a1.demote({ timeout: 1_000 })
      await cluster.clock.advance(100)
      expect(a1.isReadonly).toBe(false)
      expect(await cluster.wait(a1.call('vshard.storage.call', 4, 'write', 'write_late', []))).toMatchObject([
        null,
        { name: 'NON_MASTER' },
      ])
      await cluster.wait(demoting)
      expect(a1.isReadonly).toBe(true)
      const reply = await cluster.wait(writing)
      expect(reply[0]).toBe(isDone)
      expect(a1.space('s').get([777]) !== undefined).toBe(isDone)
    },
  )

  it.each([true, false])('with maps of the former master respected: %s', async (isRespected) => {
    cluster = await new MemoryCluster({ replicasets: 2, instances: 2, quorum: 2 }).start()
    if (!isRespected) {
      // As the original: nobody asks the former master about its maps.
      for (const name of ['a1', 'a2', 'b1', 'b2'])
        for (const asked of ['orbweaver.vshard.await_refs', 'vshard.storage._call'])
          cluster.intercept(name, asked, (run, args) =>
            asked.startsWith('orbweaver') ? true : args[0] === 'bucket_test_send' ? undefined : run(),
          )
    }
    const maps = ['a1', 'b1'].map((name) => cluster.connect(name))
    for (const map of maps)
      expect(await cluster.wait(map.call('vshard.storage._call', ['storage_ref', 1, 10]))).toEqual([10])
    await cluster.wait(cluster.at('a2').promote())
    await cluster.wait(cluster.at('b2').promote())
    const leaving = cluster.at('a2').vshard.sendBucket(3, 'b')
    const arriving = cluster.at('b2').vshard.sendBucket(13, 'a')
    await cluster.clock.advance(5_000)
    const moved = [cluster.writers(3)[0], cluster.writers(13)[0]]
    if (!isRespected) {
      expect(moved).toEqual(['b', 'a'])
      return
    }
    expect(moved).toEqual(['a', 'b'])
    // Waiting blocks neither writes nor other maps.
    const other = cluster.connect('a2')
    expect(await cluster.wait(other.call('vshard.storage._call', ['storage_ref', 1, 1]))).toEqual([10])
    for (const map of maps) await cluster.wait(map.call('vshard.storage._call', ['storage_unref', 1]))
    await cluster.wait(Promise.all([leaving, arriving]))
    expect([cluster.writers(3), cluster.writers(13)]).toEqual([['b'], ['a']])
  })

  it('without a quorum lets a new master touch buckets only when its predecessor has stopped', async () => {
    cluster = await new MemoryCluster({ replicasets: 2, instances: 2, quorum: 1 }).start()
    cluster.isolate('a1')
    await cluster.clock.advance(7_000)
    await cluster.wait(cluster.at('a2').promote())
    const a2 = cluster.at('a2')
    expect(a2.vshard.info()).toMatchObject({ isMaster: true, isSynced: false })
    await expect(cluster.wait(a2.vshard.sendBucket(3, 'b'))).rejects.toMatchObject({ vshardName: 'MASTER_NOT_SYNCED' })
    expect(await cluster.wait(a2.call('vshard.storage.rebalancer_request_state'))).toMatchObject([
      null,
      { name: 'MASTER_NOT_SYNCED' },
    ])
    a2.define('echo', (_context, value) => value)
    expect(await cluster.wait(a2.call('vshard.storage.call', 3, 'write', 'echo', [1]))).toEqual([true, 1])
    a2.vshard.setWrittenOff(cluster.at('a1').uuid, true)
    await cluster.clock.advance(60_000)
    expect(a2.vshard.info().isSynced).toBe(true)
    cluster.rejoin('a1')
  })
})

function messageOf(to: string, called: string, args: readonly unknown[]): string {
  if (called === 'vshard.storage._call') return `${to}: ${String(args[0])} ${JSON.stringify(args[1])}`
  const { generation, is_last: isLast = false } = args[3] as { generation: number; is_last?: boolean }
  return `${to}: ${called} of bucket ${String(args[0])}, generation ${generation}${isLast ? ', last' : ''}`
}

async function failureWhile(work: Promise<unknown>, look: () => void): Promise<unknown> {
  const ended: unknown[] = []
  work.then(
    () => ended.push(undefined),
    (error: unknown) => ended.push(error),
  )
  while (ended.length === 0) {
    await cluster.clock.advance(20)
    look()
  }
  return ended[0]
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => cluster.clock.schedule(ms, resolve))
}
