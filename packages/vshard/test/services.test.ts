import { BodyReader, BoxError, callRequest, Key, MalformedFrameError, type Request } from '@orbweaver/iproto'
import { describe, expect, test } from 'vitest'
import * as vshard from '../src/index.js'
import { readVectors, valueOf } from './vectors.js'

interface Step {
  readonly function?: string
  readonly args?: readonly unknown[]
  readonly status?: number
  readonly reply?: readonly unknown[]
  readonly replyBodyHex?: string
  readonly errorMessage?: string
}

interface Scenario {
  readonly name: string
  readonly steps: readonly Step[]
}

type Args = readonly unknown[]
type Reader = (values: readonly unknown[]) => unknown

/** How to make each call again from the arguments that were recorded, and how to read its reply. */
const CALLS: Readonly<Record<string, { make(args: Args): vshard.ServiceCall; read: Reader }>> = {
  'vshard.storage.bucket_stat': { make: ([id]) => vshard.bucketStatCall(num(id)), read: vshard.readBucketStat },
  'vshard.storage.buckets_discovery': {
    make: ([options]) => vshard.bucketsDiscoveryCall((options as { from: number }).from),
    read: vshard.readBucketsDiscovery,
  },
  'vshard.storage.buckets_count': { make: () => vshard.bucketsCountCall(), read: vshard.readBucketsCount },
  'vshard.storage.bucket_force_create': {
    make: ([first, count]) => vshard.bucketForceCreateCall(num(first), num(count)),
    read: vshard.readBucketForceCreate,
  },
  'vshard.storage.bucket_force_drop': {
    make: ([id]) => vshard.bucketForceDropCall(num(id)),
    read: vshard.readBucketForceDrop,
  },
  'vshard.storage.sync': { make: ([seconds]) => vshard.storageSyncCall(ms(seconds)), read: vshard.readStorageSync },
  'vshard.storage.buckets_info': {
    make: ([id]) => vshard.bucketsInfoCall(id === undefined ? undefined : num(id)),
    read: vshard.readBucketsInfo,
  },
  'vshard.storage.bucket_send': {
    make: ([id, to, options = {}]) => {
      const { timeout } = options as { timeout?: number }
      return vshard.bucketSendCall(num(id), str(to), timeout === undefined ? {} : { timeout: ms(timeout) })
    },
    read: vshard.readBucketSend,
  },
  'vshard.storage.bucket_recv': {
    make: ([id, from, data, options]) => {
      const { generation, is_last: isLast, timeout } = options as Readonly<Record<string, number | boolean>>
      return vshard.bucketRecvCall({
        ...{
          bucketId: num(id),
          from: str(from),
          data: data as vshard.BucketChunk['data'],
          generation: num(generation),
        },
        ...(isLast !== undefined && { isLast: true }),
        ...(timeout !== undefined && { timeoutMs: ms(timeout) }),
      })
    },
    read: vshard.readBucketRecv,
  },
  'vshard.storage.rebalancer_request_state': {
    make: () => vshard.rebalancerRequestStateCall(),
    read: vshard.readRebalancerRequestState,
  },
  'vshard.storage.rebalancer_apply_routes': {
    make: ([routes]) => vshard.rebalancerApplyRoutesCall(new Map(Object.entries(routes as Record<string, number>))),
    read: vshard.readRebalancerApplyRoutes,
  },
  info: {
    make: ([options]) =>
      vshard.infoCall(
        options === undefined ? {} : { health: { timeoutMs: ms((options as { timeout: number }).timeout) } },
      ),
    read: vshard.readInfo,
  },
  storage_ref: { make: ([id, time]) => vshard.storageRefCall(num(id), ms(time)), read: vshard.readStorageRef },
  storage_ref_make_with_buckets: {
    make: ([id, time, ids]) => vshard.storageRefMakeWithBucketsCall(num(id), ms(time), ids as number[]),
    read: vshard.readStorageRefMakeWithBuckets,
  },
  storage_ref_check_with_buckets: {
    make: ([id, ids]) => vshard.storageRefCheckWithBucketsCall(num(id), ids as number[]),
    read: vshard.readStorageRefCheckWithBuckets,
  },
  storage_map: {
    make: ([id, name, args]) => vshard.storageMapCall(num(id), str(name), args as unknown[]),
    read: vshard.readStorageMap,
  },
  storage_unref: { make: ([id]) => vshard.storageUnrefCall(num(id)), read: vshard.readStorageUnref },
  bucket_test_gc: { make: ([ids]) => vshard.bucketTestGcCall(ids as number[]), read: vshard.readBucketTestGc },
  bucket_test_send: {
    make: ([ids, options]) => vshard.bucketTestSendCall(ids as number[], ms((options as { timeout: number }).timeout)),
    read: vshard.readBucketTestSend,
  },
  recovery_bucket_stat: {
    make: ([id]) => vshard.recoveryBucketStatCall(num(id)),
    read: vshard.readRecoveryBucketStat,
  },
  storage_bucket_checkpoint: {
    make: ([time]) => vshard.storageBucketCheckpointCall(ms(time)),
    read: vshard.readStorageBucketCheckpoint,
  },
}

/** Calls that nobody makes here (they take what only a Lua program has), or that are misuse. */
const NOT_OURS = ['test_api', 'no_such_service', 'create_replicaset_recovery_point', 'vshard.storage.bucket_collect']

const scenarios = ['storage-services', 'storage-public', 'bucket-transfer'].flatMap((file) =>
  readVectors<{ scenarios: readonly Scenario[] }>(file).scenarios.map((scenario) => ({
    ...scenario,
    name: `${file}: ${scenario.name}`,
  })),
)

describe('every recorded call is made again, and its recorded reply is read', () => {
  test.each(scenarios)('$name', ({ steps }) => {
    let seen = 0
    for (const step of steps) {
      const key = keyOf(step)
      if (key === undefined || step.status !== 0) continue
      const call = CALLS[key]
      if (call === undefined) throw new Error(`no way to make the call ${key}`)
      const args = step.args!.slice(step.function === vshard.STORAGE_FUNCTIONS.service ? 1 : 0)
      const made = call.make(args.map(valueOf))
      expect(made.name).toBe(step.function)
      if (!OPTIONAL_ARGS.has(key)) expect(made.args).toEqual(valueOf(step.args))
      const values = repliedTo(step)
      if (values === undefined) continue
      expectReading(call.read(values), values)
      seen++
    }
    expect(seen).toBe(
      steps.filter((step) => keyOf(step) !== undefined && step.status === 0 && step.replyBodyHex).length,
    )
  })
})

/** vshard leaves out what has a default; we write it. */
const OPTIONAL_ARGS = new Set(['vshard.storage.bucket_force_create', 'vshard.storage.bucket_send'])

function keyOf({ function: name, args }: Step): string | undefined {
  const key = name === vshard.STORAGE_FUNCTIONS.service ? str(args![0]) : name
  return key === undefined || key === vshard.STORAGE_FUNCTIONS.call || NOT_OURS.includes(key) ? undefined : key
}

/** The values of the reply, from its recorded bytes. */
function repliedTo(step: Step): readonly unknown[] | undefined {
  if (step.replyBodyHex === undefined) return undefined
  return new BodyReader(Buffer.from(step.replyBodyHex, 'hex')).requireArray(Key.data)
}

/** A reading says what the first two values say. */
function expectReading(reading: unknown, [value, error]: readonly unknown[]): void {
  if ((reading as { kind?: string }).kind !== undefined) {
    expect(reading).toMatchObject({ kind: value === null ? 'absent' : 'present' })
  } else {
    expect(reading).toMatchObject({ ok: value !== null || error === undefined })
  }
  const found = (reading as { error?: vshard.VshardError | BoxError }).error
  if (found === undefined) return
  const { message } = error instanceof BoxError ? error : (error as { message: string })
  expect(found.message).toBe(message)
}

describe('what the readings hold', () => {
  test('an instance: master or not, its name, its replication in milliseconds', () => {
    const health = { master_upstream: { status: 'follow', idle: 0.5, lag: 0.001 } }
    expect(vshard.readInfo([{ is_master: true, name: null, health }])).toEqual({
      ok: true,
      value: { isMaster: true, name: undefined, masterUpstream: { status: 'follow', idleMs: 500, lagMs: 1 } },
    })
    expect(vshard.readInfo([{ is_master: false, name: 'a', health: [] }])).toEqual({
      ok: true,
      value: { isMaster: false, name: 'a', masterUpstream: undefined },
    })
  })

  test('a bucket record with position keys beside the names', () => {
    const map = new Map<unknown, unknown>([
      ...([
        [1, 14],
        [2, 'sending'],
        [3, 'rs2'],
        [4, { generation: 1 }],
      ] as const),
      ...([
        ['id', 14],
        ['status', 'sending'],
        ['destination', 'rs2'],
        ['opts', { generation: 1 }],
      ] as const),
      ['is_transfering', true],
    ])
    expect(vshard.readBucketStat([map, null])).toEqual({
      kind: 'present',
      bucket: { id: 14, status: 'sending', destination: 'rs2', generation: 1, isTransferring: true },
      unreadable: undefined,
    })
  })

  test('a bucket that cannot be read comes with the reason', () => {
    const error = vshard.VshardError.of('WRONG_BUCKET', {
      bucket_id: 15,
      reason: 'read is prohibited',
      destination: 'rs2',
    })
    const record = { id: 15, status: 'sent', destination: 'rs2' }
    expect(vshard.readBucketStat([record, error.toWire()])).toMatchObject({
      kind: 'present',
      bucket: { status: 'sent', destination: 'rs2', generation: 0 },
      unreadable: { vshardName: 'WRONG_BUCKET', destination: 'rs2' },
    })
  })

  test('a page of discovery, an empty one that is not the last, the last one, the plain list', () => {
    expect(vshard.readBucketsDiscovery([{ buckets: [1, 2], next_from: 1001 }])).toEqual({
      ok: true,
      value: { buckets: [1, 2], nextFrom: 1001 },
    })
    expect(vshard.readBucketsDiscovery([{ buckets: [], next_from: 5 }])).toMatchObject({ value: { nextFrom: 5 } })
    expect(vshard.readBucketsDiscovery([{ buckets: [3] }])).toMatchObject({ value: { nextFrom: undefined } })
    expect(vshard.readBucketsDiscovery([[1, 2, 3]])).toMatchObject({
      value: { buckets: [1, 2, 3], nextFrom: undefined },
    })
  })

  test('a ref for buckets: taken or not, and where the missing ones went', () => {
    const moved = [{ id: 1259, dst: 'rs2', status: 'sent' }, { id: 7 }]
    expect(vshard.readStorageRefMakeWithBuckets([{ moved, is_done: true }])).toEqual({
      ok: true,
      value: {
        isReferenced: true,
        moved: [
          { id: 1259, destination: 'rs2', status: 'sent' },
          { id: 7, destination: undefined, status: undefined },
        ],
      },
    })
    expect(vshard.readStorageRefMakeWithBuckets([{ moved: [] }])).toMatchObject({ value: { isReferenced: false } })
  })

  test('a mapped function: its value, a null value, none', () => {
    expect(vshard.readStorageMap([true, 'x', 'ignored'])).toEqual({ ok: true, value: ['x'] })
    expect(vshard.readStorageMap([true, null])).toEqual({ ok: true, value: [null] })
    expect(vshard.readStorageMap([true])).toEqual({ ok: true, value: [] })
  })

  test('a refused ref had no effect, a failed function ran', () => {
    const refused = vshard.VshardError.of('STORAGE_REF_USE', { reason: 'no ref' }).toWire()
    expect(vshard.readStorageMap([null, refused])).toMatchObject({ ok: false, error: { executed: 'no' } })
    const failed = { type: 'ClientError', code: 32, message: 'boom' }
    expect(vshard.readStorageMap([null, failed])).toMatchObject({ ok: false, error: { executed: 'yes' } })
  })

  test('a vclock as a map, as a list, with large numbers', () => {
    const want = {
      ok: true,
      value: new Map([
        [1, 10],
        [2, 7],
      ]),
    }
    expect(
      vshard.readStorageBucketCheckpoint([
        {
          vclock: new Map([
            [1, 10],
            [2, 7],
          ]),
        },
      ]),
    ).toEqual(want)
    expect(vshard.readStorageBucketCheckpoint([{ vclock: [10, 7] }])).toEqual(want)
    expect(
      vshard.readStorageBucketCheckpoint([
        {
          vclock: new Map([
            [1, 10n],
            [2, 7n],
          ]),
        },
      ]),
    ).toEqual(want)
  })

  test('records with counters, one by one or none', () => {
    const record = { id: 50, status: 'active', generation: 2, ref_ro: 3, rw_lock: true }
    expect(vshard.readBucketsInfo([new Map([[50, record]])])).toEqual({
      ok: true,
      value: [
        {
          ...{ id: 50, status: 'active', destination: undefined, generation: 2, isTransferring: false },
          ...{ readRefs: 3, writeRefs: 0, readLocked: false, writeLocked: true },
        },
      ],
    })
    expect(vshard.readBucketsInfo([[]])).toEqual({ ok: true, value: [] })
  })

  test('no record of a bucket is an answer to recovery', () => {
    expect(vshard.readRecoveryBucketStat([])).toEqual({ ok: true, value: { bucket: undefined } })
    expect(vshard.readRecoveryBucketStat([null])).toEqual({ ok: true, value: { bucket: undefined } })
  })
})

describe('a reply of another shape is named, not guessed at', () => {
  const wrong: [string, () => unknown][] = [
    ['storage.call without a status', () => vshard.readStorageCall([])],
    ['storage.call with a number', () => vshard.readStorageCall([5])],
    ['bucket_stat without a record', () => vshard.readBucketStat([null])],
    ['bucket_stat with an unknown status', () => vshard.readBucketStat([{ id: 1, status: 'lost' }])],
    ['buckets_count with a text', () => vshard.readBucketsCount(['5'])],
    ['buckets_discovery with a text inside', () => vshard.readBucketsDiscovery([{ buckets: ['1'] }])],
    ['storage_ref with a negative number', () => vshard.readStorageRef([-1])],
    ['storage_map with false', () => vshard.readStorageMap([false])],
    ['info without is_master', () => vshard.readInfo([{}])],
    ['moved without ids', () => vshard.readStorageRefCheckWithBuckets([{ moved: [{}] }])],
    ['a vclock of texts', () => vshard.readStorageBucketCheckpoint([{ vclock: { a: 'b' } }])],
  ]
  test.each(wrong)('%s', (_, read) => {
    expect(read).toThrow(MalformedFrameError)
    expect(read).toThrow(/answered \[.*\], which is not the form of its replies/)
  })
})

describe('vshard.storage.call', () => {
  const { scenarios: recorded } = readVectors<{ scenarios: readonly Scenario[] }>('storage-call')
  const steps = recorded.flatMap(({ name, steps: all }) => {
    const calls = all.filter((step) => step.function === vshard.STORAGE_FUNCTIONS.call && step.replyBodyHex)
    return calls.map((step, i) => ({ ...step, name: `${name} ${i + 1}: ${JSON.stringify(step.args)}` }))
  })

  test.each(steps)('reads the reply of $name', (step) => {
    const [status, ...rest] = repliedTo(step)!
    const reply = vshard.readStorageCall([status, ...rest])
    if (status === true) {
      expect(reply).toEqual({ kind: 'returned', values: rest })
      return
    }
    const { message } = rest[0] as { message: string }
    expect(reply).toMatchObject({
      kind: status === false ? 'raised' : 'refused',
      error: { message, executed: status === false ? 'yes' : 'no' },
    })
  })

  test('is asked with the bucket, the mode, the function and its arguments', () => {
    const { name, args } = vshard.storageCall(7, 'write', 'customer_add', [{ id: 1 }])
    expect(name).toBe('vshard.storage.call')
    expect(args).toEqual([7, 'write', 'customer_add', [{ id: 1 }]])
    expectTypeIsRequest(callRequest(name, args))
    expect(vshard.storageCall(7, 'read', 'f').args).toEqual([7, 'read', 'f', []])
  })

  test('a bucket that turned out corrupted behind the call: the function ran', () => {
    const error = vshard.VshardError.of('BUCKET_IS_CORRUPTED', { bucket_id: 1, reason: 'no refs' }).toWire()
    expect(vshard.readStorageCall([null, error])).toMatchObject({ kind: 'refused', error: { executed: 'yes' } })
  })
})

test('exceptions of a storage are restored from their recorded text', () => {
  const { scenarios: recorded } = readVectors<{ scenarios: readonly Scenario[] }>('exceptions')
  const texts = recorded.flatMap(({ steps }) => steps.flatMap(({ errorMessage }) => errorMessage ?? []))
  const restored = texts.map((text) => vshard.restoreError(BoxError.of(32, text, { boxType: 'LuajitError' })))
  expect(restored.some((error) => error instanceof vshard.VshardError)).toBe(true)
  for (const [i, error] of restored.entries()) expect(error !== undefined).toBe(texts[i]!.startsWith('{'))
})

test('no limit is written as the 500 years that vshard takes for infinity', () => {
  expect(vshard.toSeconds(Infinity)).toBe(15_768_000_000)
  expect(vshard.toSeconds(1500)).toBe(1.5)
})

function expectTypeIsRequest(request: Request): void {
  expect(request.requestClass).toBe('code')
}

function num(value: unknown): number {
  return value as number
}

function str(value: unknown): string {
  return value as string
}

function ms(seconds: unknown): number {
  return (seconds as number) * 1000
}
