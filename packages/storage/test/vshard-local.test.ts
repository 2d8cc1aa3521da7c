/* What vshard offers to the process of the storage itself: references, switches, monitoring. */
import { BoxError } from '@orbweaver/iproto'
import { VshardError } from '@orbweaver/vshard'
import { describe, expect, it } from 'vitest'
import { MemoryCluster } from './vshard-cluster.js'
import { startAlone } from './memory.js'
import type { Alone } from './memory.js'

async function started(): Promise<Alone> {
  const alone = startAlone({ vshard: { bucketCount: 10 } })
  await alone.wait(alone.storage.call('vshard.storage.bucket_force_create', 1, 10))
  return alone
}

describe('a reference of this process', () => {
  it('holds until it is disposed of, and is listed with its age and owner', async () => {
    const { clock, storage, wait } = await started()
    {
      await using _ref = await wait(storage.ref({ timeout: 100 }))
      await clock.advance(5_000)
      expect(storage.vshard.refs.list()).toEqual([
        { id: '-1/1', owner: 'local', ageMs: 5_000, leftMs: Infinity, isUsed: false },
      ])
      expect(storage.vshard.info().scheduler.ref.running).toBe(1)
    }
    expect(storage.vshard.refs.list()).toEqual([])
    expect(storage.vshard.info().scheduler.ref.running).toBe(0)
  })

  it('expires when it should, and disposing of it then is an error that says so', async () => {
    const { clock, storage, wait } = await started()
    const ref = await wait(storage.ref({ timeout: 100, expire: 1_000 }))
    await clock.advance(1_001)
    expect(storage.info().storageRefs).toBe(0)
    await expect(ref[Symbol.asyncDispose]()).rejects.toThrow(/expired or was deleted: buckets may have moved since/)
  })

  it('waits for buckets on their way, no longer than it was told', async () => {
    const { storage, wait } = await started()
    storage.vshard.recovery.pause()
    storage.space('_bucket').update([3], [['=', 1, 'readonly']])
    await expect(wait(storage.ref({ timeout: 200 }))).rejects.toMatchObject({ boxCode: 78 })
    const waiting = storage.ref({ timeout: 10_000 })
    storage.vshard.recovery.resume() // makes the bucket active again
    await (await wait(waiting))[Symbol.asyncDispose]()
  })

  it('is refused where this instance is no master', async () => {
    const cluster = await new MemoryCluster({ replicasets: 1, instances: 2 }).start()
    await expect(cluster.wait(cluster.at('a2').ref({ timeout: 100 }))).rejects.toMatchObject({
      vshardName: 'NON_MASTER',
    })
    await cluster.close()
  })
})

describe('references of sessions', () => {
  it('can be deleted one by one or all at once; a map that ran under one fails', async () => {
    const { clock, connect, storage, wait } = await started()
    storage.define('slow', () => new Promise((resolve) => clock.schedule(1_000, () => resolve('done'))))
    const client = connect()
    for (const id of [1, 2, 3]) await wait(client.call('vshard.storage._call', ['storage_ref', id, 60]))
    const [first] = storage.vshard.refs.list()
    expect(first).toMatchObject({
      owner: expect.stringMatching(/^session \d+$/) as string,
      leftMs: expect.any(Number) as number,
    })
    const map = client.call('vshard.storage._call', ['storage_map', 2, 'slow', []])
    await clock.advance(10)
    expect(storage.vshard.refs.list().map(({ isUsed }) => isUsed)).toEqual([false, true, false])
    expect(storage.vshard.refs.unref(first!.id)).toBe(true)
    expect(storage.vshard.refs.unref(first!.id)).toBe(false)
    expect(storage.vshard.refs.unrefAll()).toBe(2)
    expect(await wait(map)).toMatchObject([null, { name: 'STORAGE_REF_USE' }])
    expect(storage.vshard.info().scheduler.ref.running).toBe(0)
  })

  it('do not outlive a session that ends while it waits for one', async () => {
    const { clock, connect, storage } = await started()
    storage.vshard.recovery.pause()
    storage.space('_bucket').update([3], [['=', 1, 'readonly']])
    const client = connect()
    client.call('vshard.storage._call', ['storage_ref', 1, 60]).catch(() => undefined)
    await clock.advance(100)
    client.destroy()
    await clock.advance(100)
    storage.vshard.recovery.resume()
    await clock.advance(1_000)
    expect(storage.info().storageRefs).toBe(0)
    expect(storage.vshard.info().scheduler.ref).toMatchObject({ running: 0, waiting: 0 })
  })
})

describe('a storage', () => {
  it('that is disabled refuses every function of vshard, and serves them again when it is enabled', async () => {
    const { storage, wait } = await started()
    storage.vshard.disable()
    const error = await wait(storage.call('vshard.storage.buckets_count').catch((cause: unknown) => cause))
    expect(error).toBeInstanceOf(BoxError)
    expect(JSON.parse((error as Error).message)).toMatchObject({ name: 'STORAGE_IS_DISABLED' })
    expect(storage.vshard.info().isEnabled).toBe(false)
    storage.vshard.enable()
    expect(await wait(storage.call('vshard.storage.buckets_count'))).toEqual([10])
  })

  it('dumps a readable bucket, and refuses one that is not here', async () => {
    const { connect, storage, wait } = await started()
    storage.createSpace('s', {
      format: [
        { name: 'id', type: 'unsigned' },
        { name: 'bucket_id', type: 'unsigned' },
      ],
      indexes: [
        { name: 'pk', parts: ['id'] },
        { name: 'bucket_id', parts: ['bucket_id'], isUnique: false },
      ],
    })
    for (const id of [1, 2, 3]) storage.space('s').insert([id, 1 + (id % 2)])
    const client = connect()
    expect(await wait(client.call('vshard.storage.bucket_collect', [2]))).toEqual([
      [
        [
          's',
          [
            [1, 2],
            [3, 2],
          ],
        ],
      ],
    ])
    expect(await wait(client.call('vshard.storage.bucket_collect', [77]))).toMatchObject([
      null,
      { name: 'WRONG_BUCKET' },
    ])
    client.destroy()
  })

  it('without vshard says so', () => {
    const { storage } = startAlone()
    expect(() => storage.vshard).toThrow(/serves no vshard/)
    expect(() => storage.ref({ timeout: 1 })).toThrow(/serves no vshard/)
  })

  it('tells where a bucket is that it has locked, once it knows', async () => {
    const cluster = await new MemoryCluster({ replicasets: 2 }).start()
    const a = cluster.at('a1')
    a.define('echo', (_context, value) => value)
    expect(await cluster.wait(a.call('vshard.storage.call', 3, 'read', 'echo', [1]))).toEqual([true, 1])
    a.vshard.gc.pause()
    await cluster.wait(a.vshard.sendBucket(3, 'b'))
    expect(await cluster.wait(a.call('vshard.storage.call', 3, 'read', 'echo', [1]))).toMatchObject([
      null,
      { name: 'BUCKET_IS_LOCKED', destination: 'b' },
    ])
    a.vshard.gc.resume()
    await cluster.clock.advance(100)
    expect(await cluster.wait(a.call('vshard.storage.call', 3, 'read', 'echo', [1]))).toMatchObject([
      null,
      { name: 'WRONG_BUCKET', destination: 'b' },
    ])
    const moved = await cluster.wait(
      cluster.connect('a1').call('vshard.storage._call', ['storage_ref_make_with_buckets', 1, 5, [3, 4]]),
    )
    expect(moved).toEqual([{ is_done: true, moved: [{ id: 3, dst: 'b' }] }])
    await cluster.clock.advance(180_000)
    expect(await cluster.wait(a.call('vshard.storage.bucket_stat', 3))).toEqual([
      null,
      VshardError.of('WRONG_BUCKET', { bucket_id: 3, reason: 'Not found' }).toWire(),
    ])
    await cluster.close()
  })

  it.each([
    [{ rebalancerMaxSending: 16 }, 'vshard.rebalancerMaxSending: is 16, expected an integer from 1 to 15'],
    [{ maxChunkBytes: 0 }, 'vshard.maxChunkBytes: is 0, expected a positive integer'],
    [{ schedRefQuota: -1 }, 'vshard.schedRefQuota: is -1, expected a number from 0'],
    [{ replicasets: [{ id: 'a', weight: -1, instances: [] }] }, 'vshard.replicasets.a.weight: is -1'],
    [
      {
        replicasets: [
          { id: 'a', instances: [] },
          { id: 'a', instances: [] },
        ],
      },
      'the ids a, a are not all different',
    ],
  ])('refuses %o at the door and when it is configured anew, and goes on as before', async (options, message) => {
    expect(() => startAlone({ vshard: { bucketCount: 10, ...options } })).toThrow(message)
    const { storage } = await started()
    expect(() => storage.vshard.configure(options)).toThrow(message)
    expect(storage.vshard.info().rebalancer.thresholdPercent).toBe(1)
  })
})
