/* Holding all buckets in place, and maps on replicas, over a cluster in memory under virtual time. */
import type { BucketHold, HoldLostError } from '@orbweaver/router'
import type { Storage } from '@orbweaver/storage'
import { KEEPS_REFS } from '@orbweaver/vshard'
import { afterEach, describe, expect, it } from 'vitest'
import { VirtualCluster } from './virtual-cluster.js'
import type { VirtualClusterOptions } from './virtual-cluster.js'

let cluster: VirtualCluster
const gates: (() => void)[] = []

afterEach(async () => {
  for (const open of gates.splice(0)) open()
  await cluster.close()
})

function setUp(storage: Storage): void {
  storage.define('who', () => storage.name)
  storage.define('buckets', (context) => context.space('_bucket').count())
  storage.define('notes', (context) =>
    context
      .space('notes')
      .select()
      .map(([id]) => id),
  )
  storage.define('slow', async (context) => {
    await new Promise<void>((resolve) => gates.push(resolve))
    return context.space('_bucket').count()
  })
  if (!storage.isReadonly) storage.createSpace('notes', { format: [{ name: 'id', type: 'unsigned' }] })
}

async function start(options: VirtualClusterOptions): Promise<void> {
  cluster = await new VirtualCluster({ setUp, ...options }).start()
}

/** Whether a bucket of `a` can move to `b` within a second. */
async function canMove(): Promise<boolean> {
  const moving = cluster.move(cluster.bucketsOf('a1')[0]!, 'a', 'b', 1_000)
  return cluster.wait(
    moving.then(
      () => true,
      () => false,
    ),
  )
}

const lossOf = (hold: BucketHold): HoldLostError => hold.signal.reason as HoldLostError

describe('held buckets', () => {
  it('stay where they are much longer than one reference lives, and move when they are released', async () => {
    await start({ spread: [3, 3, 0] })
    const hold = await cluster.wait(cluster.router.holdBuckets())
    for (let i = 0; i < 4; i++) {
      await cluster.clock.advance(40_000)
      expect(await canMove()).toBe(false)
    }
    expect(hold.signal.aborted).toBe(false)
    expect(cluster.refs).toEqual({ a1: 1, b1: 1, c1: 1 })
    await hold.release()
    expect(hold.signal.aborted).toBe(true)
    await cluster.clock.advance(10)
    expect(cluster.refs).toEqual({})
    expect(await canMove()).toBe(true)
    await hold.release()
  })

  it('are free at the end of the block that holds them', async () => {
    await start({ spread: [2, 2] })
    {
      await using hold = await cluster.wait(cluster.router.holdBuckets())
      expect(hold.skipped).toEqual(new Map())
      expect(await canMove()).toBe(false)
    }
    expect(await canMove()).toBe(true)
  })

  it('can be mapped meanwhile', async () => {
    await start({ spread: [2, 2] })
    await using _hold = await cluster.wait(cluster.router.holdBuckets())
    expect(Object.fromEntries(await cluster.wait(cluster.router.mapCallrw('buckets')))).toEqual({ a: [2], b: [2] })
  })

  it('are free when the hold expires, which is an error for whoever relied on it', async () => {
    await start({ spread: [2, 2] })
    const hold = await cluster.wait(cluster.router.holdBuckets({ expire: 50_000 }))
    await cluster.clock.advance(49_000)
    expect(await canMove()).toBe(false)
    await cluster.clock.advance(2_000)
    expect(lossOf(hold)).toMatchObject({ code: 'ORB_HOLD_LOST', replicasetId: undefined })
    expect(await canMove()).toBe(true)
    await expect(hold.release()).rejects.toThrow('Buckets are not held any more: the hold expired after 50000 ms')
  })

  it('are free when the router is gone', async () => {
    await start({ spread: [2, 2] })
    const router = cluster.newRouter()
    await cluster.wait(router.ready())
    const hold = await cluster.wait(router.holdBuckets())
    await cluster.wait(router.close({ timeout: 0 }))
    expect(lossOf(hold)).toMatchObject({ code: 'ORB_HOLD_LOST' })
    await cluster.clock.advance(10)
    expect(cluster.refs).toEqual({})
    expect(await canMove()).toBe(true)
  })

  it('are lost with the connection that holds them, and the others are released', async () => {
    await start({ spread: [2, 2] })
    const hold = await cluster.wait(cluster.router.holdBuckets())
    cluster.cut('b1')
    await cluster.clock.advance(100)
    expect(lossOf(hold)).toMatchObject({ code: 'ORB_HOLD_LOST', replicasetId: 'b' })
    expect(cluster.refs).toEqual({})
    await expect(hold.release()).rejects.toThrow(/Buckets of replicaset b are not held any more/)
  })

  it('stay held when the master changes, where storages keep their references for the next one', async () => {
    await start({ spread: [2, 2], instances: 2, quorum: 2 })
    const hold = await cluster.wait(cluster.router.holdBuckets())
    await cluster.wait(cluster.at('a2').promote())
    await cluster.clock.advance(1_000)
    expect(hold.signal.aborted).toBe(false)
    expect(cluster.refs).toEqual({ a2: 1, b1: 1 })
    expect(await canMove()).toBe(false)
    await cluster.clock.advance(60_000)
    expect(hold.signal.aborted).toBe(false)
    await hold.release()
  })

  it('are lost when the master changes where they do not', async () => {
    await start({ spread: [2, 2], instances: 2, quorum: 2 })
    for (const name of cluster.names)
      cluster.at(name).define(KEEPS_REFS, () => {
        throw new Error('no such procedure')
      })
    const hold = await cluster.wait(cluster.router.holdBuckets())
    await cluster.wait(cluster.at('a2').promote())
    await cluster.clock.advance(1_000)
    expect(lossOf(hold)).toMatchObject({ replicasetId: 'a' })
    expect(cluster.refs).toEqual({})
  })

  it('are not held at all when one storage does not agree in time', async () => {
    await start({ spread: [2, 2] })
    cluster.cut('b1')
    expect(await cluster.failure(cluster.router.holdBuckets({ timeout: 2_000 }))).toMatchObject({
      code: 'ORB_MAP_REDUCE',
      stage: 'ref',
      replicasetId: 'b',
    })
    await cluster.clock.advance(10)
    expect(cluster.refs).toEqual({})
    expect(await cluster.failure(cluster.router.holdBuckets({ expire: -1 }))).toMatchObject({
      code: 'ORB_INVALID_ARGUMENT',
    })
  })
})

describe('a map on replicas', () => {
  it('runs where the masters are not, under references on the masters to its end', async () => {
    await start({ spread: [2, 2], instances: 2 })
    expect(Object.fromEntries(await cluster.wait(cluster.router.mapCallro('who')))).toEqual({ a: ['a2'], b: ['b2'] })
    const call = cluster.router.mapCallro('slow', [], { timeout: Infinity })
    await cluster.clock.advance(100_000)
    expect(cluster.refs).toEqual({ a1: 1, a2: 1, b1: 1, b2: 1 })
    expect(await canMove()).toBe(false)
    for (const open of gates.splice(0)) open()
    expect(Object.fromEntries(await cluster.wait(call))).toEqual({ a: [2], b: [2] })
    await cluster.clock.advance(10)
    expect(cluster.refs).toEqual({})
  })

  it('sees everything that was written before it began', async () => {
    await start({ spread: [2, 2], instances: 2, peerLatencyMs: 10 })
    for (let id = 0; id < 20; id++) {
      cluster.at('a1').space('notes').insert([id])
      const results = await cluster.wait(cluster.router.mapCallro<[number[]]>('notes'))
      expect(results.get('a')![0]).toHaveLength(id + 1)
    }
  })

  it('reads the master where a replica does not catch up', async () => {
    await start({ spread: [2, 2], instances: 2 })
    cluster.cut('a2', 'a1')
    cluster.at('a1').space('notes').insert([1])
    const results = await cluster.wait(cluster.router.mapCallro('who', [], { timeout: 4_000 }))
    expect(Object.fromEntries(results)).toEqual({ a: ['a1'], b: ['b2'] })
  })

  it('is for all buckets', async () => {
    await start({ spread: [2, 2] })
    const options = { bucketIds: [1] } as object
    expect(await cluster.failure(cluster.router.mapCallro('who', [], options))).toMatchObject({
      code: 'ORB_INVALID_ARGUMENT',
    })
    const unknown = { bucketids: [1] } as object
    expect(await cluster.failure(cluster.router.mapCallrw('who', [], unknown))).toMatchObject({
      code: 'ORB_CONFIG',
      executed: 'no',
    })
  })

  it('fails when a master did not keep its buckets to the end', async () => {
    await start({ spread: [2, 2], instances: 2 })
    const call = cluster.router.mapCallro('slow')
    await cluster.clock.advance(1_000)
    cluster.cut('a1')
    await cluster.clock.advance(100)
    for (const open of gates.splice(0)) open()
    const error = await cluster.failure(call)
    expect(['ORB_HOLD_LOST', 'ORB_MAP_REDUCE']).toContain((error as HoldLostError).code)
    await cluster.clock.advance(10)
    expect(cluster.refs).toEqual({})
  })
})
