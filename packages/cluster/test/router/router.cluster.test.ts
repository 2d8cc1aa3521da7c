/* The router over a cluster of embedded storages in this process, by real sockets. */
import { type BoxError } from '@orbweaver/iproto'
import { type Clock, systemClock } from '@orbweaver/connection'
import { createRouter, MapReduceError, NoRouteError } from '@orbweaver/router'
import type { Router } from '@orbweaver/router'
import { values } from '@orbweaver/storage'
import { VshardError } from '@orbweaver/vshard'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { startCluster } from '../../src/index.js'
import type { Cluster, SetUp } from '../../src/index.js'

const BUCKETS = 300

const setUp: SetUp = (storage) => {
  storage.define('echo', (_context, ...args) => values(...args))
  storage.define('who', () => storage.name)
  storage.define('nothing', () => undefined)
  storage.define('nil_and_error', () => values(null, { code: 77, message: 'application error' }))
  storage.define('fail', () => {
    throw new Error('it broke')
  })
  storage.define('fail_on_b', () => {
    if (storage.name.startsWith('b')) throw new Error('b broke')
    return storage.name
  })
  storage.define('looks_like_routing', () =>
    values(null, VshardError.of('WRONG_BUCKET', { bucket_id: 1, reason: 'mine' }).toWire()),
  )
  storage.define('count', (context) => context.space('_bucket').count())
  storage.define('refs', () => storage.info().storageRefs)
  storage.define('own_args', (_context, ...args) => args)
  storage.define('executions', () => executions.get(storage.name) ?? 0)
  storage.define('executed', () => {
    executions.set(storage.name, (executions.get(storage.name) ?? 0) + 1)
    throw new Error('after doing something')
  })
  storage.define('refuse_refs', (context, status) => {
    // Recovery would bring a bucket back at once that no move of this storage made readonly.
    if (status === 'readonly') storage.vshard.recovery.pause()
    context.space('_bucket').replace([1, status])
    if (status === 'active') storage.vshard.recovery.resume()
    return true
  })
}
const executions = new Map<string, number>()

let cluster: Cluster
const routers: Router[] = []

beforeAll(async () => {
  cluster = await startCluster({
    replicasets: 2,
    instances: 2,
    quorum: 1,
    bucketCount: BUCKETS,
    identification: 'name',
    inProcess: true,
    setUp,
  })
})

afterEach(async () => {
  for (const router of routers.splice(0)) await router.close({ timeout: 0 })
})

afterAll(() => cluster.close())

function start(options: Partial<Parameters<typeof createRouter>[0]> = {}): Router {
  const router = createRouter({ config: cluster.config, ...options })
  routers.push(router)
  return router
}

function failureOf(work: Promise<unknown>): Promise<unknown> {
  return work.then(
    (value) => {
      throw new Error(`It succeeded with ${JSON.stringify(value)}`)
    },
    (error: unknown) => error,
  )
}

describe('a call', () => {
  it('is useful at once, before anything is discovered', async () => {
    const router = start({ discoveryMode: 'off' })
    expect(await router.callrw(1, 'who')).toEqual(['a1'])
    expect(await router.callrw(BUCKETS, 'who')).toEqual(['b1'])
    expect([router.locate(1), router.locate(BUCKETS)]).toEqual(['a', 'b'])
  })

  it('shares one lookup among all that wait for the same bucket', async () => {
    const router = start({ discoveryMode: 'off' })
    const names = await Promise.all(Array.from({ length: 200 }, () => router.callrw<[string]>(7, 'who')))
    expect(new Set(names.map(([name]) => name))).toEqual(new Set(['a1']))
    expect(router.stats().lookups).toBe(1)
  })

  it('gives back the values of the function, three at the most', async () => {
    const router = start()
    expect(await router.callrw(1, 'echo', [1, 'two', [3], 4])).toEqual([1, 'two', [3]])
    expect(await router.callro(1, 'nothing')).toEqual([])
    expect(await router.callrw(1, 'nil_and_error')).toEqual([null, { code: 77, message: 'application error' }])
  })

  it('takes what the function says for final, also when it looks like a routing error', async () => {
    const router = start()
    expect((await failureOf(router.callrw(1, 'fail'))) as BoxError).toMatchObject({
      boxCode: 32,
      message: 'it broke',
      executed: 'yes',
    })
    expect((await failureOf(router.callrw(1, 'no_such_function'))) as BoxError).toMatchObject({ boxCode: 33 })
    expect((await router.callrw<[null, { name: string }]>(1, 'looks_like_routing'))[1].name).toBe('WRONG_BUCKET')
    await failureOf(router.callrw(1, 'executed'))
    expect(executions.get('a1')).toBe(1)
    expect(router.stats().retries).toBe(0)
  })

  it.each([0, -1, BUCKETS + 1, 1.5, Number.NaN])('refuses bucket id %d before anything is sent', async (bucketId) => {
    expect(await failureOf(start().callrw(bucketId, 'who'))).toMatchObject({
      code: 'ORB_INVALID_ARGUMENT',
      executed: 'no',
    })
  })

  it('sends reads where they may go', async () => {
    const router = start()
    await router.ready()
    expect(await router.callrw(1, 'who')).toEqual(['a1'])
    expect(await router.callre(1, 'who')).toEqual(['a2'])
    const seen = new Set<string>()
    for (let i = 0; i < 10; i++) seen.add((await router.callbro<[string]>(1, 'who'))[0])
    expect(seen).toEqual(new Set(['a1', 'a2']))
  })

  it('waits for a bucket in transfer and fails with that reason at its deadline', async () => {
    const router = start()
    await router.ready()
    await router.callrw(2, 'refuse_refs', ['readonly'])
    try {
      expect(await router.callro(1, 'who')).toHaveLength(1)
      const error = await failureOf(router.callrw(1, 'who', [], { timeout: 300 }))
      expect(error).toMatchObject({ code: 'ORB_REQUEST_TIMEOUT', executed: 'no' })
      expect((error as Error).message).toContain('Bucket 1 is locked')
      expect((error as Error).cause).toMatchObject({ vshardName: 'BUCKET_IS_LOCKED' })
      const waiting = router.callrw(1, 'who', [], { timeout: 5_000 })
      await router.callrw(2, 'refuse_refs', ['active'])
      expect(await waiting).toEqual(['a1'])
    } finally {
      await router.callrw(2, 'refuse_refs', ['active'])
    }
  })

  it('ends at once when its caller aborts it', async () => {
    const router = start()
    await router.ready()
    await router.callrw(2, 'refuse_refs', ['readonly'])
    try {
      const abort = new AbortController()
      const waiting = failureOf(router.callrw(1, 'who', [], { signal: abort.signal }))
      abort.abort(new Error('enough'))
      expect(await waiting).toMatchObject({ code: 'ORB_REQUEST_ABORTED' })
    } finally {
      await router.callrw(2, 'refuse_refs', ['active'])
    }
  })

  it('of a bucket nobody has says whom it asked', async () => {
    const config = { ...cluster.config, bucketCount: BUCKETS + 1 }
    const error = await failureOf(
      start({ config, discoveryMode: 'off' }).callrw(BUCKETS + 1, 'who', [], { timeout: 200 }),
    )
    expect(error).toBeInstanceOf(NoRouteError)
    expect([...(error as NoRouteError).answers.keys()].toSorted()).toEqual(['a', 'b'])
  })

  it('is refused by a closed router', async () => {
    const router = start()
    await router.close()
    expect(await failureOf(router.callrw(1, 'who'))).toMatchObject({ code: 'ORB_ROUTER_CLOSED' })
  })
})

describe('a router that is closed', () => {
  it('leaves no timer behind, also when its discovery had just begun', async () => {
    const timers: { pending: number } = { pending: 0 }
    const clock: Clock = {
      ...systemClock,
      schedule: (delayMs, task, options) => {
        timers.pending++
        let isOver = false
        const over = (): void => {
          if (!isOver) timers.pending--
          isOver = true
        }
        const cancel = systemClock.schedule(
          delayMs,
          () => {
            over()
            task()
          },
          options,
        )
        return () => {
          over()
          cancel()
        }
      },
    }
    const router = createRouter({ config: cluster.config, environment: { clock } })
    await router.callrw(1, 'who')
    await router.close()
    await expect.poll(() => timers.pending).toBe(0)
  })
})

describe('discovery', () => {
  it('of a fresh router works where the master is dead and its replicas live', async () => {
    await cluster.instance('b1').stop()
    try {
      const router = start()
      await router.ready()
      expect(await router.callro(BUCKETS, 'who')).toEqual(['b2'])
    } finally {
      await cluster.instance('b1').restart()
      await cluster.instance('b1').promote()
    }
  })

  it('learns all routes, and says how many buckets each replicaset has', async () => {
    const router = start()
    await router.ready()
    const { known, replicasets } = router.info()
    expect(known).toBe(BUCKETS)
    expect(replicasets.map(({ id, master, buckets }) => [id, master, buckets])).toEqual([
      ['a', 'a1', 150],
      ['b', 'b1', 150],
    ])
  })

  it('that is off learns only what calls need', async () => {
    const router = start({ discoveryMode: 'off' })
    await router.callrw(1, 'who')
    await expect(router.ready({ timeout: 50 })).rejects.toThrow(/299 of 300 buckets are not known/)
  })
})

describe('a map-reduce', () => {
  it('counts every bucket once', async () => {
    const counts = await start().mapCallrw<[number]>('count')
    expect(counts).toEqual(
      new Map([
        ['a', [150]],
        ['b', [150]],
      ]),
    )
  })

  it('keeps results that are nothing', async () => {
    expect([...(await start().mapCallrw('nothing')).values()]).toEqual([[], []])
  })

  it('of some buckets goes to their replicasets only, with their own arguments', async () => {
    const router = start({ discoveryMode: 'off' })
    expect(await router.mapCallrw('who', [], { bucketIds: [1, 2, 3, 3] })).toEqual(new Map([['a', ['a1']]]))
    const results = await router.mapCallrw<[unknown[]]>('own_args', ['shared'], {
      bucketArgs: new Map([
        [1, 'one'],
        [2, 'two'],
        [BUCKETS, 'last'],
      ]),
    })
    expect(results.get('a')).toEqual([
      [
        'shared',
        new Map([
          [1, 'one'],
          [2, 'two'],
        ]),
      ],
    ])
    expect(results.get('b')).toEqual([['shared', new Map([[BUCKETS, 'last']])]])
    expect(await router.mapCallrw('who', [], { bucketIds: [] })).toEqual(new Map())
  })

  it('that fails names the stage and the replicaset, and leaves no reference anywhere', async () => {
    const router = start()
    const error = await failureOf(router.mapCallrw('fail_on_b'))
    expect(error).toBeInstanceOf(MapReduceError)
    expect(error).toMatchObject({ stage: 'map', replicasetId: 'b', instanceId: 'b1', executed: 'yes' })
    expect((error as Error).message).toContain('b broke')
    await expect
      .poll(async () => [await router.callrw(1, 'refs'), await router.callrw(BUCKETS, 'refs')])
      .toEqual([[0], [0]])
  })

  it('waits for buckets to come to rest within its time, and maps nothing when they do not', async () => {
    const router = start()
    await router.ready()
    await router.callrw(2, 'refuse_refs', ['readonly'])
    try {
      const error = await failureOf(router.mapCallrw('executed', [], { timeout: 300 }))
      expect(error).toMatchObject({ stage: 'ref', replicasetId: 'a', executed: 'no' })
      expect(executions.get('b1')).toBeUndefined()
      const waiting = router.mapCallrw<[number]>('count', [], { timeout: 5_000 })
      await router.callrw(2, 'refuse_refs', ['active'])
      expect([...(await waiting).values()]).toEqual([[150], [150]])
    } finally {
      await router.callrw(2, 'refuse_refs', ['active'])
    }
    await expect
      .poll(async () => [await router.callrw(1, 'refs'), await router.callrw(BUCKETS, 'refs')])
      .toEqual([[0], [0]])
  })

  it('refuses to count when the buckets do not add up', async () => {
    const config = { ...cluster.config, bucketCount: BUCKETS + 5 }
    const error = await failureOf(start({ config }).mapCallrw('count'))
    expect(error).toMatchObject({ stage: 'check', executed: 'no' })
    expect((error as MapReduceError).cause).toMatchObject({ vshardName: 'UNKNOWN_BUCKETS' })
  })

  it('refuses options that exclude each other', async () => {
    const router = start()
    expect(await failureOf(router.mapCallrw('count', [], { bucketIds: [1], bucketArgs: new Map() }))).toMatchObject({
      code: 'ORB_INVALID_ARGUMENT',
    })
    expect(await failureOf(router.mapCallrw('count', [], { timeout: 100, mapTimeout: 200 }))).toMatchObject({
      code: 'ORB_INVALID_ARGUMENT',
    })
  })
})

describe('a change of master', () => {
  it('in the middle of writes fails none of them', async () => {
    const router = start()
    await router.ready()
    const ended = new AbortController()
    let done = 0
    const failures: string[] = []
    const write = async (): Promise<void> => {
      while (!ended.signal.aborted) {
        await router.callrw(10, 'who').then(
          () => done++,
          (error: unknown) => failures.push((error as Error).message),
        )
      }
    }
    const writers = Array.from({ length: 8 }, write)
    await expect.poll(() => done).toBeGreaterThan(50)
    await cluster.instance('a2').promote()
    await expect.poll(() => router.routeAll().get('a')?.master()?.id).toBe('a2')
    const before = done
    await expect.poll(() => done).toBeGreaterThan(before + 50)
    ended.abort()
    await Promise.all(writers)
    expect(failures).toEqual([])
    expect(await router.callrw(10, 'who')).toEqual(['a2'])
    await cluster.instance('a1').promote()
  })
})
