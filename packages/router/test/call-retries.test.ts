/* What a call makes of each answer of a storage: every row of vshard's table of errors, and the scenarios of a moving bucket. */
import { RequestTimeoutError } from '@orbweaver/connection'
import { decodeValue } from '@orbweaver/iproto'
import type { BoxError, RawValue } from '@orbweaver/iproto'
import { VSHARD_ERRORS, VshardError } from '@orbweaver/vshard'
import type { VshardErrorName } from '@orbweaver/vshard'
import { afterEach, describe, expect, it } from 'vitest'
import { NoRouteError } from '../src/index.js'
import type { Router } from '../src/index.js'
import { failure, FakeCluster, Raised, SILENT } from './fake-cluster.js'

let cluster: FakeCluster

afterEach(() => cluster.close())

const BUCKETS = 20

/** Buckets 1 to 10 on a, the others on b, all known. */
async function start(sets: Readonly<Record<string, readonly string[]>> = { a: ['a1'], b: ['b1'] }): Promise<Router> {
  cluster = new FakeCluster(sets, BUCKETS)
  cluster.put('a', 1, 10, 'active')
  cluster.put('b', 11, 20, 'active')
  return cluster.readyRouter()
}

const run = <T>(work: Promise<T>): Promise<T> => cluster.clock.run(work)

describe('every refusal of a storage', () => {
  const RETRIED: ReadonlySet<VshardErrorName> = new Set([
    'WRONG_BUCKET',
    'TRANSFER_IS_IN_PROGRESS',
    'BUCKET_IS_LOCKED',
    'NON_MASTER',
  ])
  const names = Object.keys(VSHARD_ERRORS) as VshardErrorName[]

  it.each(names.filter((name) => !RETRIED.has(name)))('%s is the answer, after one try', async (name) => {
    const router = await start()
    cluster.answer = ({ call }) => (call === 'call' ? [null, VshardError.of(name).toWire()] : undefined)
    const error = await run(failure(router.callrw(1, 'echo')))
    expect(error).toMatchObject({ code: 'ORB_VSHARD', vshardName: name })
    expect((error as VshardError).executed).toBe(name === 'BUCKET_IS_CORRUPTED' ? 'yes' : 'no')
    expect(cluster.count('call')).toBe(1)
  })

  it.each([...RETRIED])(
    '%s is retried once it can help, without a storm, and succeeds when it is over',
    async (name) => {
      const router = await start()
      let isRefusing = true
      cluster.answer = ({ call, who }) =>
        call === 'call' && isRefusing
          ? [
              null,
              VshardError.of(
                name,
                name === 'NON_MASTER' ? { replica: who, replicaset: 'a' } : { bucket_id: 1 },
              ).toWire(),
            ]
          : undefined
      const call = router.callrw(1, 'echo', ['x'], { timeout: 8_000 })
      await cluster.clock.advance(1_000)
      expect(cluster.count('call')).toBeGreaterThan(0)
      expect(cluster.count('call')).toBeLessThan(15)
      isRefusing = false
      expect(await run(call)).toEqual(['x'])
    },
  )

  it.each(['WRONG_BUCKET', 'TRANSFER_IS_IN_PROGRESS', 'BUCKET_IS_LOCKED'] as const)(
    '%s for ever ends at the deadline, with that as the reason',
    async (name) => {
      const router = await start()
      cluster.answer = ({ call }) =>
        call === 'call' ? [null, VshardError.of(name, { bucket_id: 1 }).toWire()] : undefined
      const startMs = cluster.clock.now()
      const error = await run(failure(router.callrw(1, 'echo', [], { timeout: 500 })))
      expect(cluster.clock.now() - startMs).toBe(500)
      expect(error).toBeInstanceOf(RequestTimeoutError)
      expect(error).toMatchObject({ executed: 'no', cause: { vshardName: name } })
      expect(cluster.count('call')).toBeLessThan(15)
    },
  )

  it('that is raised as a text of JSON is restored', async () => {
    const router = await start()
    const disabled = VshardError.of('STORAGE_IS_DISABLED', { reason: 'it is' })
    cluster.answer = ({ call }) => (call === 'call' ? new Raised(32, disabled.toWireText()) : undefined)
    expect(await run(failure(router.callrw(1, 'echo')))).toMatchObject({
      vshardName: 'STORAGE_IS_DISABLED',
      executed: 'no',
    })
    expect(cluster.count('call')).toBe(1)
  })

  it('STORAGE_IS_DISABLED sends a read to the next instance', async () => {
    const router = await start({ a: ['a1', 'a2'], b: ['b1'] })
    const disabled = VshardError.of('STORAGE_IS_DISABLED', { reason: 'it is' })
    cluster.answer = ({ call, who }) =>
      call === 'call' && who === 'a1' ? new Raised(32, disabled.toWireText()) : undefined
    expect(await run(router.callro(1, 'who'))).toEqual(['a2'])
  })
})

describe('the outcome of a function', () => {
  it('is final, also when it looks like a routing error', async () => {
    const router = await start()
    const wrong = VshardError.of('WRONG_BUCKET', { bucket_id: 1, destination: 'b' }).toWire()
    expect(await run(router.callrw(1, 'echo', [null, wrong]))).toEqual([null, wrong])
    cluster.answer = ({ call }) => (call === 'call' ? [false, { ...wrong }] : undefined)
    expect(await run(failure(router.callrw(1, 'echo')))).toMatchObject({ vshardName: 'WRONG_BUCKET', executed: 'yes' })
    expect([cluster.count('call'), router.stats().retries]).toEqual([2, 0])
  })

  it('that it raised is its own error, after one execution', async () => {
    const router = await start()
    const raised = { type: 'ClientError', base_type: 'ClientError', code: 32, message: 'it broke', trace: [] }
    cluster.answer = ({ call }) => (call === 'call' ? [false, raised] : undefined)
    const error = (await run(failure(router.callrw(1, 'echo')))) as BoxError
    expect([error.code, error.boxCode, error.message, error.executed]).toEqual(['ORB_BOX', 32, 'it broke', 'yes'])
    expect(cluster.count('call')).toBe(1)
  })

  it('that it met a read-only database is retried for idempotent writes only', async () => {
    const router = await start()
    const readonly = { type: 'ClientError', code: 7, message: 'read-only', base_type: 'ClientError', trace: [] }
    const wrapped = { type: 'ClientError', code: 32, message: 'read-only', name: 'PROC_LUA', details: readonly }
    let left = 0
    cluster.answer = ({ call }) =>
      call === 'call' && left-- > 0 ? [false, left % 2 === 0 ? wrapped : readonly] : undefined
    left = 1
    expect(await run(failure(router.callrw(1, 'who')))).toMatchObject({ code: 'ORB_BOX', executed: 'yes' })
    expect(cluster.count('call')).toBe(1)
    left = 4
    expect(await run(router.callrw(1, 'who', [], { idempotent: true }))).toEqual(['a1'])
    left = 1_000
    const over = await run(failure(router.callrw(1, 'who', [], { idempotent: true, timeout: 500 })))
    expect(over).toMatchObject({ code: 'ORB_REQUEST_TIMEOUT', executed: 'yes' })
  })

  it('comes as bytes where that is asked for, errors do not', async () => {
    const router = await start()
    const values = await run(router.callrw<RawValue[]>(1, 'echo', [1, null, { a: [2] }], { raw: true }))
    expect(values.map(({ bytes }) => decodeValue(Buffer.from(bytes)))).toEqual([1, null, { a: [2] }])
    expect(await run(router.callrw(1, 'echo', [], { raw: true }))).toEqual([])
    cluster.put('a', 1, 1, 'sent', 'b')
    cluster.put('b', 1, 1, 'active')
    expect(await run(router.callrw(1, 'echo', [7], { raw: true }))).toHaveLength(1)
  })
})

describe('a network fault', () => {
  it('before anything is sent to any owner lets a write wait for it', async () => {
    const router = await start()
    cluster.stop('a1')
    await cluster.clock.settle()
    const call = router.callrw(1, 'who', [], { timeout: 5_000 })
    await cluster.clock.advance(1_000)
    cluster.restart('a1')
    expect(await run(call)).toEqual(['a1'])
    expect(cluster.count('call')).toBe(1)
  })

  it('behind a write is unknown, and the write is not repeated', async () => {
    const router = await start()
    cluster.answer = ({ call }) => (call === 'call' ? SILENT : undefined)
    const call = failure(router.callrw(1, 'echo'))
    await cluster.clock.advance(10)
    cluster.peers.get('a1')!.cut()
    expect(await run(call)).toMatchObject({ code: 'ORB_CONNECTION_LOST', executed: 'unknown' })
    expect(cluster.count('call')).toBe(1)
  })

  it('behind an idempotent write lets it be sent again', async () => {
    const router = await start()
    cluster.answer = ({ call }) => (call === 'call' ? SILENT : undefined)
    const call = router.callrw(1, 'who', [], { idempotent: true })
    await cluster.clock.advance(10)
    cluster.answer = () => undefined
    cluster.peers.get('a1')!.cut()
    expect(await run(call)).toEqual(['a1'])
    expect(cluster.count('call')).toBe(2)
  })

  it('behind a read sends it to another instance', async () => {
    const router = await start({ a: ['a1', 'a2'], b: ['b1'] })
    cluster.answer = ({ call, who }) => (call === 'call' && who === 'a1' ? SILENT : undefined)
    const call = router.callro(1, 'who')
    await cluster.clock.advance(10)
    cluster.peers.get('a1')!.cut()
    expect(await run(call)).toEqual(['a2'])
  })

  it('that is only silence ends a try of a read at requestTimeout, and the next instance is asked', async () => {
    const router = await start({ a: ['a1', 'a2'], b: ['b1'] })
    cluster.answer = ({ call, who }) => (call === 'call' && who === 'a1' ? SILENT : undefined)
    const startMs = cluster.clock.now()
    expect(await run(router.callro(1, 'who', [], { requestTimeout: 100, timeout: 1_000 }))).toEqual(['a2'])
    expect(cluster.clock.now() - startMs).toBeLessThan(200)
  })
})

describe('a bucket that is elsewhere', () => {
  it('costs 1,000 calls with the same old route one wrong hop each and one new table, and no search', async () => {
    const router = await start()
    cluster.move(1, 'a', 'b')
    const { generation } = router.stats()
    const calls = Array.from({ length: 1_000 }, () => router.callrw(1, 'who'))
    for (const values of await run(Promise.all(calls))) expect(values).toEqual(['b1'])
    const { hops, lookups, generation: after } = router.stats()
    expect([hops, lookups, after - generation]).toEqual([1_000, 0, 1])
    expect([cluster.count('call', 'a1'), cluster.count('call', 'b1'), router.locate(1)]).toEqual([1_000, 1_000, 'b'])
    await run(router.callrw(1, 'who'))
    expect(cluster.count('call', 'a1')).toBe(1_000)
  })

  it('is looked for once, whoever waits, when nobody says where it went', async () => {
    const router = await start()
    cluster.put('a', 1, 1, undefined)
    cluster.put('b', 1, 1, 'active')
    const calls = Array.from({ length: 100 }, () => router.callrw(1, 'who'))
    for (const values of await run(Promise.all(calls))) expect(values).toEqual(['b1'])
    expect([cluster.count('bucket_stat', 'a1'), cluster.count('bucket_stat', 'b1')]).toEqual([1, 1])
  })

  it('that nobody has ends at the deadline with what each replicaset said', async () => {
    const router = await start()
    cluster.put('a', 1, 1, undefined)
    const startMs = cluster.clock.now()
    const error = (await run(failure(router.callrw(1, 'who', [], { timeout: 2_000 })))) as NoRouteError
    expect(cluster.clock.now() - startMs).toBe(2_000)
    expect(error).toBeInstanceOf(NoRouteError)
    expect(Object.fromEntries(error.answers)).toEqual({ a: 'does not have it', b: 'does not have it' })
    expect(error).toMatchObject({ executed: 'no', cause: { vshardName: 'WRONG_BUCKET' } })
    expect(cluster.seen.length).toBeLessThan(20)
  })

  it('between two that name each other is waited for, and served soon after the end of it', async () => {
    const router = await start()
    const wrong = (destination: string): readonly unknown[] => [
      null,
      VshardError.of('WRONG_BUCKET', { bucket_id: 1, reason: 'moved', destination }).toWire(),
    ]
    let isCircle = true
    cluster.answer = ({ call, set }) => (call === 'call' && isCircle ? wrong(set === 'a' ? 'b' : 'a') : undefined)
    const patient = router.callrw(1, 'who', [], { timeout: 5_000 })
    const impatient = failure(router.callrw(1, 'who', [], { timeout: 500 }))
    await cluster.clock.advance(2_000)
    expect(await impatient).toMatchObject({
      code: 'ORB_REQUEST_TIMEOUT',
      executed: 'no',
      cause: { vshardName: 'WRONG_BUCKET' },
    })
    expect(cluster.count('call')).toBeLessThan(18)
    isCircle = false
    const endMs = cluster.clock.now()
    expect(await run(patient)).toEqual(['a1'])
    expect(cluster.clock.now() - endMs).toBeLessThan(1_000)
  })

  it('whose owner is down for two seconds while others name it: five seconds are enough, half a one names the owner', async () => {
    const router = await start()
    cluster.move(1, 'a', 'b')
    cluster.stop('b1')
    await cluster.clock.settle()
    const patient = router.callrw(1, 'who', [], { timeout: 5_000 })
    const impatient = failure(router.callrw(1, 'who', [], { timeout: 500 }))
    await cluster.clock.advance(2_000)
    expect((await impatient) as Error).toMatchObject({ executed: 'no' })
    expect(((await impatient) as Error).message).toMatch(/replicaset b had no master/i)
    cluster.restart('b1')
    expect(await run(patient)).toEqual(['b1'])
    expect(cluster.seen.length).toBeLessThan(10)
  })

  it('that moves there and back every 50 ms fails no call and makes no storm', async () => {
    const router = await start()
    let owner = 'a'
    let moves = 0
    const moving = (): void => {
      const to = owner === 'a' ? 'b' : 'a'
      cluster.move(1, owner, to)
      owner = to
      if (++moves < 40) cluster.clock.schedule(50, moving)
    }
    cluster.clock.schedule(50, moving)
    const calls: Promise<unknown>[] = []
    for (let i = 0; i < 2_000; i++) {
      calls.push(router.callrw(1, 'echo', [i]))
      await cluster.clock.advance(1)
    }
    expect(await run(Promise.all(calls))).toHaveLength(2_000)
    expect(router.stats().hops / 2_000).toBeLessThan(3)
  })

  it('and stays locked at its old owner, which a dead replica keeps from forgetting it, is found at the new one', async () => {
    const router = await start()
    cluster.put('a', 1, 1, 'locked')
    cluster.put('b', 1, 1, 'active')
    cluster.answer = ({ call, who }) => {
      const wrong = VshardError.of('WRONG_BUCKET', { bucket_id: 1, reason: 'read is prohibited', destination: 'b' })
      return call === 'bucket_stat' && who === 'a1'
        ? [{ id: 1, status: 'sent', destination: 'b' }, wrong.toWire()]
        : undefined
    }
    expect(await run(router.callrw(1, 'who', [], { timeout: 2_000 }))).toEqual(['b1'])
    expect(router.locate(1)).toBe('b')
  })

  it('is never looked for at the destination of a transfer, only where it was accepted', async () => {
    const router = await start()
    cluster.put('a', 1, 1, 'sending', 'b')
    cluster.put('b', 1, 1, 'receiving', 'a')
    const call = router.callrw(1, 'who')
    await cluster.clock.advance(120)
    expect([cluster.count('call', 'a1') > 1, cluster.count('call', 'b1')]).toEqual([true, 0])
    expect(await run(router.callro(1, 'who'))).toEqual(['a1'])
    cluster.move(1, 'a', 'b')
    expect(await run(call)).toEqual(['b1'])
  })
})

describe('a replica that lags behind', () => {
  it('does not bring an old route back by its pages', async () => {
    const router = await start({ a: ['a1', 'a2'], b: ['b1'] })
    cluster.move(1, 'a', 'b')
    await run(router.callrw(1, 'who'))
    // The replica of the old owner has not heard of the move, and nobody else of its replicaset can be asked.
    cluster.putOn('a2', 1, 1, 'active')
    cluster.stop('a1')
    await cluster.clock.advance(100)
    router.setDiscoveryMode('once')
    await cluster.clock.advance(1_000)
    expect([cluster.count('buckets_discovery', 'a2') > 0, router.locate(1), router.locate(2)]).toEqual([true, 'b', 'a'])
  })

  it('of the new owner sends a read to its master, and the route stays', async () => {
    const router = await start({ a: ['a1', 'a2'], b: ['b1'] })
    cluster.putOn('a2', 1, 1, undefined)
    expect(await run(router.callre(1, 'who'))).toEqual(['a1'])
    expect([router.locate(1), router.stats().lookups]).toEqual(['a', 0])
  })
})

it('an unreadable destination is no error: the call goes on by a search', async () => {
  const router = await start()
  cluster.put('a', 1, 1, undefined)
  cluster.put('b', 1, 1, 'active')
  const unreadable = {
    ...VshardError.of('WRONG_BUCKET', { bucket_id: 1, reason: 'gone' }).toWire(),
    destination: { not: 'an id' },
  }
  cluster.answer = ({ call, who }) => (call === 'call' && who === 'a1' ? [null, unreadable] : undefined)
  expect(await run(router.callrw(1, 'who'))).toEqual(['b1'])
})

it('a call that is aborted while it waits ends at once, and so does one that was aborted before', async () => {
  const router = await start()
  cluster.put('a', 1, 1, 'locked')
  const abort = new AbortController()
  const waiting = failure(router.callrw(1, 'who', [], { signal: abort.signal }))
  await cluster.clock.advance(10)
  abort.abort(new Error('enough'))
  await cluster.clock.settle()
  expect(await waiting).toMatchObject({ code: 'ORB_REQUEST_ABORTED', cause: { message: 'enough' } })
  const sent = cluster.seen.length
  expect(await run(failure(router.callrw(1, 'who', [], { signal: abort.signal })))).toMatchObject({
    code: 'ORB_REQUEST_ABORTED',
  })
  expect(cluster.seen.length).toBe(sent)
})
