/* Map-reduce over a whole cluster in memory, under virtual time: what it costs, what it survives, and what it never answers. */
import { decodeValue } from '@orbweaver/iproto'
import type { RawValue } from '@orbweaver/iproto'
import { MapReduceError } from '@orbweaver/router'
import type { Storage } from '@orbweaver/storage'
import { KEEPS_REFS } from '@orbweaver/vshard'
import { afterEach, describe, expect, it } from 'vitest'
import { VirtualCluster } from './virtual-cluster.js'
import type { VirtualClusterOptions } from './virtual-cluster.js'

let cluster: VirtualCluster
/** Masters that run `slow` wait for this. */
const gates: (() => void)[] = []
let started: string[] = []

afterEach(async () => {
  for (const open of gates.splice(0)) open()
  await cluster.close()
})

async function start(options: VirtualClusterOptions): Promise<void> {
  started = []
  cluster = await new VirtualCluster({ setUp, ...options }).start()
}

function setUp(storage: Storage): void {
  storage.define('buckets', (context) => context.space('_bucket').count())
  storage.define('ids', (context) =>
    context
      .space('_bucket')
      .select()
      .map(([id]) => id),
  )
  storage.define('who', () => storage.name)
  storage.define('nothing', () => undefined)
  storage.define('fail_on_b', () => {
    if (storage.name.startsWith('b')) throw new Error('b broke')
    return storage.name
  })
  storage.define('slow', async (context) => {
    started.push(storage.name)
    await new Promise<void>((resolve) => gates.push(resolve))
    return context.space('_bucket').count()
  })
  // Reads some buckets, waits, and reads the rest: what a long map does.
  storage.define('lingering', async (context) => {
    const first = context.space('_bucket').select([12], { iterator: 'LT' })
    await new Promise<void>((resolve) => cluster.clock.schedule(40, resolve))
    const second = context.space('_bucket').select([12], { iterator: 'GE' })
    return [...first, ...second].map(([id]) => id)
  })
  storage.define('own', (_context, common, own) => [common, own])
}

const total = (results: ReadonlyMap<string, unknown[]>): number =>
  [...results.values()].reduce((sum, [count]) => sum + Number(count), 0)

describe('a full map', () => {
  it('takes two round trips', async () => {
    await start({ spread: [3, 3, 2], latencyMs: 50 })
    const began = cluster.clock.now()
    const results = await cluster.wait(cluster.router.mapCallrw('buckets'))
    expect(Object.fromEntries(results)).toEqual({ a: [3], b: [3], c: [2] })
    expect(cluster.clock.now() - began).toBe(200)
    expect(cluster.refs).toEqual({})
  })

  it('of some buckets takes two round trips too', async () => {
    await start({ spread: [3, 3, 2], latencyMs: 50 })
    const began = cluster.clock.now()
    const results = await cluster.wait(cluster.router.mapCallrw('who', [], { bucketIds: [1, 2, 8] }))
    expect(Object.fromEntries(results)).toEqual({ a: ['a1'], c: ['c1'] })
    expect(cluster.clock.now() - began).toBe(200)
  })
})

describe('results', () => {
  it('keep what is nothing, and come from replicasets without buckets too', async () => {
    await start({ spread: [3, 3, 0] })
    expect(Object.fromEntries(await cluster.wait(cluster.router.mapCallrw('nothing')))).toEqual({ a: [], b: [], c: [] })
    const results = await cluster.wait(cluster.router.mapCallrw('buckets'))
    expect(Object.fromEntries(results)).toEqual({ a: [3], b: [3], c: [0] })
    expect(results.skipped).toEqual(new Map())
  })

  it('come as the bytes they were sent in, when asked for', async () => {
    await start({ spread: [1, 1] })
    const results = await cluster.wait(cluster.router.mapCallrw<[RawValue]>('ids', [], { raw: true }))
    expect([...results.values()].map(([{ bytes }]) => decodeValue(Buffer.from(bytes)))).toEqual([[1], [2]])
    expect(Object.fromEntries(await cluster.wait(cluster.router.mapCallrw('nothing', [], { raw: true })))).toEqual({
      a: [],
      b: [],
    })
    expect(await cluster.failure(cluster.router.mapCallrw('fail_on_b', [], { raw: true }))).toMatchObject({
      replicasetId: 'b',
    })
  })

  it('are read as they arrive', async () => {
    await start({ spread: [2, 2, 2] })
    const seen: string[] = []
    const read = async (): Promise<void> => {
      for await (const [id] of cluster.router.mapCallrw('slow')) seen.push(id)
    }
    const reading = read()
    await cluster.clock.advance(50)
    expect(started).toEqual(['a1', 'b1', 'c1'])
    gates[2]!()
    await cluster.clock.settle()
    expect(seen).toEqual(['c'])
    gates[0]!()
    await cluster.clock.settle()
    expect(seen).toEqual(['c', 'a'])
    gates[1]!()
    await cluster.wait(reading)
    expect(seen).toEqual(['c', 'a', 'b'])
  })

  it('that are read end with the error of the map', async () => {
    await start({ spread: [2, 2] })
    const read = async (): Promise<void> => {
      for await (const [id] of cluster.router.mapCallrw('fail_on_b')) expect(id).toBe('a')
    }
    expect(await cluster.failure(read())).toMatchObject({ stage: 'map', replicasetId: 'b', executed: 'yes' })
  })

  it('that are not read to the end end the map', async () => {
    await start({ spread: [2, 2] })
    const call = cluster.router.mapCallrw('slow')
    const iterator = call[Symbol.asyncIterator]()
    const first = iterator.next()
    await cluster.clock.advance(50)
    gates[0]!()
    expect((await cluster.wait(first)).value).toEqual(['a', [2]])
    await cluster.wait(iterator.return!())
    expect(await cluster.failure(call)).toMatchObject({ code: 'ORB_REQUEST_ABORTED', executed: 'unknown' })
  })
})

/** A bucket that is on its way as far as its storage knows, until the returned function is called. */
function unrest(name: string): () => void {
  const { recovery } = cluster.at(name).vshard
  const buckets = cluster.at(name).space('_bucket')
  const [id] = cluster.bucketsOf(name)
  // It would bring a bucket back at once that no move of this storage made readonly.
  recovery.pause()
  buckets.replace([id, 'readonly'])
  return () => {
    buckets.replace([id, 'active'])
    recovery.resume()
  }
}

const ROUND_TRIP_MS = 40

describe('a map that fails leaves nothing held one round trip later', () => {
  const spread = [2, 2, 2, 2]

  async function expectFree(): Promise<void> {
    await cluster.clock.advance(ROUND_TRIP_MS)
    expect(cluster.refs).toEqual({})
    await cluster.wait(cluster.move(cluster.bucketsOf('a1')[0]!, 'a', 'b', 1_000))
  }

  it('when one storage gives no reference', async () => {
    await start({ spread, latencyMs: ROUND_TRIP_MS / 2 })
    const rest = unrest('c1')
    const error = await cluster.failure(cluster.router.mapCallrw('buckets', [], { timeout: 900 }))
    expect(error).toMatchObject({ stage: 'ref', executed: 'no', replicasetId: 'c', instanceId: 'c1' })
    rest()
    await expectFree()
  })

  it('when the answer of a storage is an error that no retry changes', async () => {
    await start({ spread, latencyMs: ROUND_TRIP_MS / 2 })
    const call = cluster.at('c1')
    call.define('vshard.storage._call', () => {
      throw new Error('broken')
    })
    const began = cluster.clock.now()
    const error = await cluster.failure(cluster.router.mapCallrw('buckets'))
    expect(error).toMatchObject({ stage: 'ref', executed: 'no', replicasetId: 'c', instanceId: 'c1' })
    expect(cluster.clock.now() - began).toBeLessThan(100)
    await cluster.clock.advance(ROUND_TRIP_MS)
    expect(cluster.refs).toEqual({})
  })

  it('when a shard is down', async () => {
    await start({ spread, latencyMs: ROUND_TRIP_MS / 2 })
    cluster.cut('d1')
    const error = (await cluster.failure(cluster.router.mapCallrw('buckets', [], { timeout: 3_000 }))) as MapReduceError
    expect(error).toMatchObject({ stage: 'ref', executed: 'no', replicasetId: 'd' })
    expect([...error.obstacles.keys()]).toEqual(['d'])
    await expectFree()
  })

  it('when a bucket of a partial map moves all the time', async () => {
    await start({ spread, latencyMs: ROUND_TRIP_MS / 2 })
    const stop = new AbortController()
    const moving = (async () => {
      while (!stop.signal.aborted) {
        const [from, to] = cluster.bucketsOf('c1').includes(5) ? ['c', 'd'] : ['d', 'c']
        await cluster.move(5, from, to).catch(() => undefined)
        await new Promise<void>((resolve) => cluster.clock.schedule(5, resolve))
      }
    })()
    const results = await cluster.wait(cluster.router.mapCallrw('ids', [], { bucketIds: [1, 5], timeout: 20_000 }))
    expect([...results.values()].flat(2)).toEqual(expect.arrayContaining([1, 5]))
    stop.abort()
    await cluster.wait(moving)
    await expectFree()
  })

  it('when its caller aborts it while references are asked for, also where one is granted late', async () => {
    await start({ spread, latencyMs: ROUND_TRIP_MS / 2 })
    const rest = unrest('c1')
    const abort = new AbortController()
    const call = cluster.router.mapCallrw('buckets', [], { signal: abort.signal })
    await cluster.clock.advance(200)
    expect(cluster.refs).toEqual({ a1: 1, b1: 1, d1: 1 })
    const aborted = cluster.clock.now()
    abort.abort(new Error('enough'))
    expect(await cluster.failure(call)).toMatchObject({ code: 'ORB_REQUEST_ABORTED', executed: 'no' })
    expect(cluster.clock.now()).toBe(aborted)
    await cluster.clock.advance(ROUND_TRIP_MS)
    expect(cluster.refs).toEqual({})
    // The waiting storage grants its reference now: nobody wants it.
    rest()
    await expectFree()
  })

  it('when its caller aborts it before the first answer is in', async () => {
    await start({ spread, latencyMs: ROUND_TRIP_MS / 2 })
    const abort = new AbortController()
    const call = cluster.router.mapCallrw('buckets', [], { signal: abort.signal })
    await cluster.clock.advance(ROUND_TRIP_MS * 0.75)
    expect(cluster.refs).toEqual({ a1: 1, b1: 1, c1: 1, d1: 1 })
    abort.abort()
    expect(await cluster.failure(call)).toMatchObject({ code: 'ORB_REQUEST_ABORTED', executed: 'no' })
    await cluster.clock.advance(ROUND_TRIP_MS * 0.5)
    expect(cluster.refs).toEqual({})
  })

  it('when the function raises', async () => {
    await start({ spread, latencyMs: ROUND_TRIP_MS / 2 })
    const error = await cluster.failure(cluster.router.mapCallrw('fail_on_b'))
    expect(error).toMatchObject({ stage: 'map', executed: 'yes', replicasetId: 'b', instanceId: 'b1' })
    expect(String(error)).toContain('b broke')
    await expectFree()
  })

  it('when its caller aborts it while the function runs', async () => {
    await start({ spread, latencyMs: ROUND_TRIP_MS / 2 })
    const abort = new AbortController()
    const call = cluster.router.mapCallrw('slow', [], { signal: abort.signal })
    await cluster.clock.advance(200)
    abort.abort()
    expect(await cluster.failure(call)).toMatchObject({ code: 'ORB_REQUEST_ABORTED', executed: 'unknown' })
    for (const open of gates.splice(0)) open()
    await expectFree()
  })
})

describe('values', () => {
  it('appear as the router was told, also where the function fails', async () => {
    await start({ spread: [2, 2] })
    const router = cluster.newRouter({ decode: { strings: 'bytes', integers: 'bigint' } })
    await cluster.wait(router.ready())
    expect((await cluster.wait(router.mapCallrw('buckets'))).get('a')).toEqual([2n])
    expect(await cluster.failure(router.mapCallrw('fail_on_b'))).toMatchObject({ replicasetId: 'b', executed: 'yes' })
  })
})

describe('arguments', () => {
  it('are those of the call, also when the caller changes them afterwards', async () => {
    await start({ spread: [1, 1], latencyMs: 50 })
    const args = [1, ['list']]
    const call = cluster.router.mapCallrw('own', args)
    await cluster.clock.advance(10)
    args[0] = 2
    expect([...(await cluster.wait(call)).values()]).toEqual([[[1, ['list']]], [[1, ['list']]]])
  })

  it('that cannot be encoded are refused before anybody is asked', async () => {
    await start({ spread: [1, 1], latencyMs: 50 })
    const call = cluster.router.mapCallrw('own', [1, () => 1])
    expect(await cluster.failure(call)).toMatchObject({ code: 'ORB_INVALID_ARGUMENT', executed: 'no' })
    await cluster.clock.advance(200)
    expect(cluster.refs).toEqual({})
  })
})

describe('the end of the router', () => {
  it('ends maps that wait for references at once', async () => {
    await start({ spread: [2, 2] })
    const router = cluster.newRouter()
    await cluster.wait(router.ready())
    const rest = unrest('b1')
    const call = cluster.failure(router.mapCallrw('buckets'))
    await cluster.clock.advance(20)
    const began = cluster.clock.now()
    const closing = router.close({ timeout: 5_000 })
    expect(await call).toMatchObject({ code: 'ORB_ROUTER_CLOSED', executed: 'no' })
    expect(cluster.clock.now() - began).toBeLessThan(20)
    rest()
    await cluster.wait(closing)
  })
})

describe('the time of a map', () => {
  it('is kept: references that are not granted before end the call, and it says who waits for what', async () => {
    await start({ spread: [2, 2] })
    const rest = unrest('b1')
    const began = cluster.clock.now()
    const error = (await cluster.failure(
      cluster.router.mapCallrw('slow', [], { timeout: 3_000, mapTimeout: 2_000 }),
    )) as MapReduceError
    expect(cluster.clock.now() - began).toBeLessThanOrEqual(1_010)
    expect(error).toMatchObject({ stage: 'ref', executed: 'no', replicasetId: 'b', instanceId: 'b1' })
    expect(error.obstacles).toEqual(new Map([['b', 'it waits for bucket 3 (readonly)']]))
    expect(error.message).toContain('b1 of replicaset b: it waits for bucket 3 (readonly)')
    expect(started).toEqual([])
    rest()
  })

  it('is the whole time when the references came early', async () => {
    await start({ spread: [2, 2] })
    const call = cluster.router.mapCallrw('slow', [], { timeout: 3_000, mapTimeout: 2_000 })
    await cluster.clock.advance(2_900)
    for (const open of gates.splice(0)) open()
    expect(total(await cluster.wait(call))).toBe(4)
  })
})

describe('a map and a move that block each other', () => {
  it('both go on: what the map holds is given back for a moment', async () => {
    await start({ spread: [2, 2] })
    const rest = unrest('b1')
    // A sender that keeps its bucket readonly until the receiver has its turn, which the map's reference prevents.
    const began = cluster.clock.now()
    const call = cluster.router.mapCallrw('buckets', [], { timeout: 10_000 })
    await cluster.clock.advance(100)
    expect(cluster.refs).toEqual({ a1: 1 })
    const sender = (async () => {
      while (cluster.refs['a1'] !== undefined) await new Promise<void>((resolve) => cluster.clock.schedule(5, resolve))
      rest()
    })()
    expect(total(await cluster.wait(call))).toBe(4)
    await cluster.wait(sender)
    expect(cluster.clock.now() - began).toBeLessThan(3_000)
  })

  it('maps let go together, since a move needs a moment in which nobody holds anything', async () => {
    await start({ spread: [2, 2] })
    const other = cluster.newRouter()
    await cluster.wait(other.ready())
    const rest = unrest('b1')
    const calls = []
    const most: number[] = []
    for (const router of [cluster.router, other, cluster.router, other]) {
      calls.push(router.mapCallrw('buckets', [], { timeout: 10_000 }))
      await cluster.clock.advance(35)
    }
    expect(cluster.refs).toEqual({ a1: 4 })
    for (let i = 0; i < 500 && cluster.refs['a1'] !== undefined; i++) {
      most.push(cluster.refs['a1'])
      await cluster.clock.advance(1)
    }
    expect([new Set(most), cluster.refs]).toEqual([new Set([4]), {}])
    rest()
    for (const results of await cluster.wait(Promise.all(calls))) expect(total(results)).toBe(4)
  })
})

describe('a replicaset that cannot be reached', () => {
  it('is skipped, and named, when the others have all buckets', async () => {
    await start({ spread: [3, 3, 0] })
    cluster.cut('c1')
    const results = await cluster.wait(cluster.router.mapCallrw('buckets'))
    expect(Object.fromEntries(results)).toEqual({ a: [3], b: [3] })
    expect(results.skipped).toEqual(new Map([['c', 'no master is known']]))
  })

  it('is waited for when it has some', async () => {
    await start({ spread: [3, 3, 2] })
    cluster.cut('c1')
    const call = cluster.router.mapCallrw('buckets')
    // Nobody else is kept from moving buckets meanwhile.
    for (let i = 0; i < 23; i++) {
      await cluster.clock.advance(100)
      expect(cluster.refs).toEqual({})
    }
    await cluster.wait(cluster.move(1, 'a', 'b', 500))
    cluster.mend('c1')
    expect(total(await cluster.wait(call))).toBe(8)
  })
})

/** Storages that promise nothing about references when another instance becomes the master, as those in Lua. */
function forgetPromise(): void {
  for (const name of cluster.names)
    cluster.at(name).define(KEEPS_REFS, () => {
      throw new Error('no such procedure')
    })
}

describe('a change of master', () => {
  const options = { spread: [2, 2], instances: 2, quorum: 2 }

  /** Changes the master while both storages map. @returns the total, or the error */
  async function mapAcross(change: () => Promise<void>): Promise<unknown> {
    const call = cluster.router.mapCallrw('slow')
    const outcome: Promise<unknown> = Promise.resolve(call).then(
      (results) => total(results),
      (error: unknown) => error,
    )
    await cluster.clock.advance(50)
    expect(started.toSorted()).toEqual(['a1', 'b1'])
    await change()
    await cluster.clock.advance(1_000)
    for (const open of gates.splice(0)) open()
    return cluster.wait(outcome)
  }

  const promote = (name: string) => async (): Promise<void> => {
    await cluster.wait(cluster.at(name).promote())
    await cluster.clock.advance(500)
  }

  it('during a map does no harm where storages keep their references', async () => {
    await start(options)
    const outcome = await mapAcross(promote('a2'))
    expect(outcome).toBe(4)
  })

  it('during a map makes it fail where they do not', async () => {
    await start(options)
    forgetPromise()
    const outcome = await mapAcross(promote('a2'))
    expect(outcome).toMatchObject({ stage: 'map', executed: 'yes', replicasetId: 'a', instanceId: 'a1' })
    expect(String(outcome)).toMatch(/master of replicaset a changed during the map, from a1, to a2/)
  })

  it('there and back again makes it fail, too', async () => {
    await start(options)
    forgetPromise()
    const outcome = await mapAcross(async () => {
      await promote('a2')()
      await promote('a1')()
      expect(cluster.router.routeAll().get('a')!.master()?.id).toBe('a1')
    })
    expect(String(outcome)).toMatch(/master of replicaset a changed during the map/)
  })

  it('between reference and map begins again, since nothing was executed', async () => {
    await start({ ...options, latencyMs: 20 })
    forgetPromise()
    const rest = unrest('b1')
    const call = cluster.router.mapCallrw('who')
    await cluster.clock.advance(100)
    expect(cluster.refs).toEqual({ a1: 1 })
    await promote('a2')()
    rest()
    expect(Object.fromEntries(await cluster.wait(call))).toEqual({ a: ['a2'], b: ['b1'] })
    await cluster.clock.advance(100)
    expect(cluster.refs).toEqual({})
  })
})

describe('a lost connection', () => {
  it('before anything was mapped is no reason to fail', async () => {
    await start({ spread: [2, 2], latencyMs: 20 })
    const call = cluster.router.mapCallrw('who')
    await cluster.clock.advance(15)
    cluster.cut('a1')
    cluster.mend('a1')
    expect(Object.fromEntries(await cluster.wait(call))).toEqual({ a: ['a1'], b: ['b1'] })
  })

  it('during the map is one, and the function is not called twice', async () => {
    await start({ spread: [2, 2], latencyMs: 20 })
    const call = cluster.router.mapCallrw('slow')
    await cluster.clock.advance(100)
    cluster.cut('a1')
    cluster.mend('a1')
    expect(await cluster.failure(call)).toMatchObject({ stage: 'map', executed: 'unknown', replicasetId: 'a' })
    await cluster.clock.advance(5_000)
    expect(started).toEqual(['a1', 'b1'])
  })
})

describe('a partial map', () => {
  it('follows buckets that have moved, and gives each storage the arguments of its own', async () => {
    await start({ spread: [3, 3, 2] })
    await cluster.wait(cluster.move(1, 'a', 'c'))
    await cluster.wait(cluster.move(4, 'b', 'c'))
    const bucketArgs = new Map([1, 2, 4].map((id) => [id, `for ${id}`]))
    const results = await cluster.wait(cluster.router.mapCallrw('own', ['common'], { bucketArgs }))
    expect(Object.fromEntries(results)).toEqual({
      a: [['common', new Map([[2, 'for 2']])]],
      c: [
        [
          'common',
          new Map([
            [1, 'for 1'],
            [4, 'for 4'],
          ]),
        ],
      ],
    })
    expect(cluster.router.locate(1)).toBe('c')
  })

  it('asks nobody when there are no buckets', async () => {
    await start({ spread: [1, 1] })
    cluster.cut('a1')
    expect(await cluster.wait(cluster.router.mapCallrw('who', [], { bucketIds: [] }))).toHaveLength(0)
  })

  it('is not held up by replicasets that have none of its buckets', async () => {
    await start({ spread: [2, 2] })
    cluster.cut('b1')
    expect(Object.fromEntries(await cluster.wait(cluster.router.mapCallrw('who', [], { bucketIds: [1] })))).toEqual({
      a: ['a1'],
    })
  })
})

describe.each([1, 2, 3, 4, 5, 6])('maps beside moves, changes of masters and lost connections (seed %d)', (seed) => {
  it('give right results or errors', async () => {
    await start({ spread: [8, 8, 8], instances: 2, quorum: 2, seed, latencyMs: 3 })
    const stop = new AbortController()
    let moves = 0
    const pick = <T>(items: readonly T[]): T => items[Math.floor(cluster.random() * items.length)]!
    const pause = (ms: number): Promise<void> =>
      new Promise((resolve) => cluster.clock.schedule(ms * cluster.random(), resolve))
    const every = async (ms: number, work: () => unknown): Promise<void> => {
      while (!stop.signal.aborted) {
        await pause(ms)
        await Promise.resolve(work()).catch(() => undefined)
      }
    }
    const jobs = [
      ...[1, 2].map(() =>
        every(100, async () => {
          const [from, to] = ['a', 'b', 'c'].toSorted(() => cluster.random() - 0.5) as [string, string]
          const master = cluster.names.find((name) => name.startsWith(from) && !cluster.at(name).isReadonly)
          if (master === undefined) return
          await cluster.at(master).vshard.sendBucket(pick(cluster.bucketsOf(master)), to, { timeout: 5_000 })
          moves++
        }),
      ),
      every(4_000, () => cluster.at(pick(cluster.names)).promote()),
      every(3_000, async () => {
        const name = pick(cluster.names)
        cluster.cut(name)
        await pause(300)
        cluster.mend(name)
      }),
    ]
    const ends = { right: 0, failed: 0 }
    const map = async (): Promise<void> => {
      while (!stop.signal.aborted) {
        await pause(50)
        await cluster.router.mapCallrw<[number[]]>('lingering', [], { timeout: 3_000 }).then(
          (results) => {
            const ids = [...results.values()].flatMap(([own]) => own)
            expect(ids.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 24 }, (_, i) => i + 1))
            ends.right++
          },
          (error: unknown) => {
            if (!(error instanceof MapReduceError)) throw error
            ends.failed++
          },
        )
      }
    }
    const maps = [map(), map()]
    await cluster.clock.advance(60_000)
    stop.abort()
    await cluster.wait(Promise.all([...maps, ...jobs]))
    expect(ends.right).toBeGreaterThan(50)
    expect(moves).toBeGreaterThan(30)
    await cluster.clock.advance(100)
    expect(cluster.refs).toEqual({})
  }, 120_000)
})
