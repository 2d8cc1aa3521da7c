/* The calls of the Lua router against storages of vshard, and what those answered: ours sends the same, without its storms. */
import { decodeValue, Key } from '@orbweaver/iproto'
import { uuidOf } from '@orbweaver/connection/testing'
import { readFileSync } from 'node:fs'
import { afterEach, describe, expect, it } from 'vitest'
import type { Router } from '../src/index.js'
import { failure, FakeCluster, Raised } from './fake-cluster.js'
import type { FakeAnswer } from './fake-cluster.js'

interface Exchange {
  readonly to: string
  readonly function: string
  readonly args: readonly unknown[]
  readonly replyBodyHex: string
  readonly error?: string
  readonly errorCode?: number
}

interface Sequence {
  readonly name: string
  readonly about: string
  /** The Lua router sent so many, of which equal ones are recorded once. */
  readonly exchangesTotal?: number
  readonly exchanges: readonly Exchange[]
}

function read<T>(name: string): T {
  return JSON.parse(readFileSync(new URL(`vectors/${name}.json`, import.meta.url), 'utf8')) as T
}

const VECTORS = read<{ ids: Record<string, string>; sequences: Sequence[] }>('call-sequences')
const IDS = VECTORS.ids as { rs1: string; rs2: string; rs3: string }

let cluster: FakeCluster

afterEach(() => cluster.close())

/** Three replicasets by the uuids of the recording; their storages answer with the recorded bodies. */
async function replay(sequence: Sequence, weights: readonly number[] = [1, 1, 1]): Promise<Router> {
  cluster = new FakeCluster({ rs1: ['rs1'], rs2: ['rs2'], rs3: ['rs3'] }, 10)
  const router = cluster.router({
    config: {
      ...cluster.config,
      identification: 'uuid',
      replicasets: cluster.config.replicasets.map((set, i) => ({
        id: IDS[set.id as keyof typeof IDS],
        master: 'auto',
        weight: weights[i]!,
        instances: [{ id: uuidOf(set.id), uri: `${set.id}:3301` }],
      })),
    },
  })
  await cluster.clock.advance(200)
  cluster.answer = ({ who, call, args }): FakeAnswer => {
    const found = sequence.exchanges.find(
      (exchange) =>
        exchange.to === who &&
        exchange.function === `vshard.storage.${call}` &&
        (call === 'sync' || JSON.stringify(exchange.args) === JSON.stringify(args)),
    )
    if (found === undefined) return undefined
    if (found.error !== undefined) return new Raised(found.errorCode!, found.error)
    const body = decodeValue(Buffer.from(found.replyBodyHex, 'hex'), { maps: 'map' }) as Map<number, unknown[]>
    return body.get(Key.data)!
  }
  return router
}

const sequenceOf = (name: string): Sequence => VECTORS.sequences.find((sequence) => sequence.name === name)!
const sent = (): string[] =>
  cluster.seen.map(({ who, call, args }) => `${who} ${call} ${JSON.stringify(args)}`).toSorted()
const recorded = ({ exchanges }: Sequence): string[] =>
  exchanges
    .map(({ to, function: name, args }) => `${to} ${name.replace('vshard.storage.', '')} ${JSON.stringify(args)}`)
    .toSorted()

describe('as the Lua router', () => {
  it('bootstrap: the same counts and ranges, in the order of the ids', async () => {
    const sequence = sequenceOf('bootstrap')
    const router = await replay(sequence, [1, 1, 2])
    expect(await cluster.clock.run(router.bootstrap())).toBe(true)
    const ranges = cluster.seen.filter(({ call }) => call === 'bucket_force_create')
    // Who gets the remainder, and Lua's order of replicasets, are by chance.
    const sizes = (pairs: readonly (readonly [string, unknown])[]): unknown => [
      pairs.find(([who]) => who === 'rs3')![1],
      pairs.map(([, size]) => Number(size)).toSorted((a, b) => a - b),
    ]
    expect(sizes(ranges.map(({ who, args }) => [who, args[1]] as const))).toEqual(
      sizes(
        sequence.exchanges
          .filter(({ function: name }) => name.endsWith('bucket_force_create'))
          .map(({ to, args }) => [to, args[1]] as const),
      ),
    )
    const inOrder = ['rs2', 'rs1', 'rs3'].map((set) => ranges.find(({ who }) => who === set)!.args as [number, number])
    let next = 1
    for (const [first, count] of inOrder) {
      expect(first).toBe(next)
      next += count
    }
    expect(next).toBe(11)
  })

  it('bootstrap-again: NON_EMPTY, or nothing where that is allowed', async () => {
    const router = await replay(sequenceOf('bootstrap-again'))
    expect(await cluster.clock.run(failure(router.bootstrap()))).toMatchObject({
      vshardName: 'NON_EMPTY',
      executed: 'no',
    })
    expect(await cluster.clock.run(router.bootstrap({ ifNotBootstrapped: true }))).toBe(false)
    expect(cluster.count('bucket_force_create')).toBe(0)
  })

  it('resolve-unknown: everybody is asked at once, then the owner is called', async () => {
    const sequence = sequenceOf('resolve-unknown')
    const router = await replay(sequence)
    expect(await cluster.clock.run(router.callrw(9, 'echo', ['x']))).toEqual(['x'])
    expect(sent()).toEqual(recorded(sequence))
  })

  it('resolve-known, call-modes: nobody is asked', async () => {
    const sequence = sequenceOf('call-modes')
    const router = await replay({
      ...sequence,
      exchanges: [...sequence.exchanges, ...sequenceOf('resolve-known').exchanges],
    })
    router.report({ bucketId: 9, from: IDS.rs1, destination: IDS.rs2 })
    await cluster.clock.settle()
    for (const method of ['callro', 'callbro', 'callre', 'callbre'] as const)
      expect(await cluster.clock.run(router[method](9, 'echo', [method]))).toEqual([method])
    expect(await cluster.clock.run(router.callrw(9, 'echo', ['y']))).toEqual(['y'])
    expect(sent()).toEqual([...recorded(sequence), ...recorded(sequenceOf('resolve-known'))].toSorted())
  })

  it('redirect: the old owner names the new one, nobody else is asked', async () => {
    const sequence = sequenceOf('redirect')
    const router = await replay(sequence)
    router.report({ bucketId: 2, from: IDS.rs3, destination: IDS.rs1 })
    await cluster.clock.settle()
    expect(await cluster.clock.run(router.callrw(2, 'echo', ['redirected']))).toEqual(['redirected'])
    expect(sent()).toEqual(recorded(sequence))
    expect(router.locate(2)).toBe(IDS.rs2)
  })

  it.each([
    ['no-such-bucket', [], 'ORB_NO_ROUTE'],
    ['transfer-in-progress', ['w'], 'ORB_REQUEST_TIMEOUT'],
  ] as const)('%s: the same requests, in a handful instead of hundreds', async (name, args, code) => {
    const sequence = sequenceOf(name)
    const router = await replay(sequence)
    router.report({ bucketId: 2, from: IDS.rs3, destination: IDS.rs2 })
    await cluster.clock.settle()
    expect(await cluster.clock.run(failure(router.callrw(2, 'echo', args, { timeout: 300 })))).toMatchObject({
      code,
      executed: 'no',
    })
    expect(cluster.seen.length).toBeLessThan(sequence.exchangesTotal! / 20)
    for (const line of sent()) expect(recorded(sequence)).toContain(line)
  })

  it('read-while-sending: the source still serves reads', async () => {
    const sequence = sequenceOf('read-while-sending')
    const router = await replay(sequence)
    router.report({ bucketId: 2, from: IDS.rs1, destination: IDS.rs3 })
    await cluster.clock.settle()
    expect(await cluster.clock.run(router.callro(2, 'echo', ['r']))).toEqual(['r'])
    expect(sent()).toEqual(recorded(sequence))
  })

  it('storage-error: what is raised as JSON is an error by its name', async () => {
    const router = await replay(sequenceOf('storage-error'))
    router.report({ bucketId: 10, from: IDS.rs1, destination: IDS.rs2 })
    await cluster.clock.settle()
    expect(await cluster.clock.run(failure(router.callrw(10, 'echo')))).toMatchObject({
      vshardName: 'STORAGE_IS_DISABLED',
      reason: 'storage is disabled explicitly',
      executed: 'no',
    })
    expect(cluster.seen).toHaveLength(1)
  })

  it('sync: all at once, each with the time that is left', async () => {
    const router = await replay(sequenceOf('sync'))
    await cluster.clock.run(router.sync({ timeout: 5_000 }))
    expect(cluster.seen.map(({ who, call, args }) => [who, call, args])).toEqual(
      ['rs1', 'rs2', 'rs3'].map((set) => [set, 'sync', [5]]),
    )
  })
})

interface Profile {
  readonly about: string
  readonly tarantool: string
  readonly steps: readonly {
    readonly args: readonly [number, 'read' | 'write', string, unknown[]?]
    readonly replyBodyHex: string
  }[]
}

describe('answers of storages that agree on no features', () => {
  for (const { about, steps, tarantool } of read<{ profiles: Profile[] }>('call-profiles').profiles) {
    it.each(steps.map((step, i) => [`${i}: ${JSON.stringify(step.args)}`, step] as const))(
      `Tarantool ${tarantool}, ${about}: %s`,
      async (_name, { args: [, mode, name, args = []], replyBodyHex }) => {
        cluster = new FakeCluster({ a: ['a1'] }, 1)
        cluster.put('a', 1, 1, 'active')
        const router = await cluster.readyRouter()
        const body = decodeValue(Buffer.from(replyBodyHex, 'hex'), { maps: 'map' }) as Map<number, unknown[]>
        const reply = body.get(Key.data)!
        cluster.answer = ({ call }) => (call === 'call' ? reply : undefined)
        const call = router.call(1, mode, name, args)
        if (reply[0] === true) {
          const values = await cluster.clock.run(call)
          expect(values).toHaveLength(reply.length - 1)
          expect(values).toEqual(reply.slice(1).map(plainOf))
        } else {
          const error = (await cluster.clock.run(failure(call))) as Error
          expect(error).toMatchObject({ code: 'ORB_BOX', executed: 'yes' })
          expect(error.message.length).toBeGreaterThan(0)
        }
        expect(cluster.count('call')).toBe(1)
      },
    )
  }
})

/** A map as the object it is decoded to by default. */
function plainOf(value: unknown): unknown {
  if (value instanceof Map) return Object.fromEntries([...value].map(([key, item]) => [String(key), plainOf(item)]))
  return Array.isArray(value) ? value.map(plainOf) : value
}

/* "X is not a master any more, Y is." */
interface MasterCase {
  readonly auto: boolean
  readonly retry: boolean
  readonly known_master?: string
  readonly reported_by?: string
  readonly candidate?: string
  readonly master_after?: string
}

describe('a refusal for want of a master', () => {
  const cases = read<{ cases: MasterCase[] }>('update-master').cases.filter(
    ({ known_master, reported_by }) => known_master !== undefined && known_master === reported_by,
  )
  it.each(cases.map((item) => [JSON.stringify(item), item] as const))(
    '%s',
    async (_name, { auto, candidate, retry }) => {
      cluster = new FakeCluster({ s: ['a', 'b', 'c'] }, 1)
      cluster.put('s', 1, 1, 'active')
      const [set] = cluster.config.replicasets
      const router = await cluster.readyRouter({
        config: { ...cluster.config, replicasets: [{ ...set!, master: auto ? 'auto' : 'a' }] },
      })
      const refusal = {
        type: 'ShardingError',
        code: 2,
        name: 'NON_MASTER',
        message: 'not a master',
        replica: 'a',
        replicaset: 's',
      }
      cluster.answer = ({ call, who }) =>
        call === 'call' && who === 'a'
          ? [null, candidate === undefined ? refusal : { ...refusal, master: candidate }]
          : undefined
      const call = router.callrw(1, 'who', [], { timeout: 3_000 })
      const outcome = call.then(
        (values) => values,
        (error: unknown) => error,
      )
      await cluster.clock.advance(500)
      cluster.setMaster('a', false)
      cluster.setMaster('b', true)
      await cluster.clock.advance(3_000)
      if (retry) expect(await outcome).toEqual(['b'])
      else {
        expect(await outcome).toMatchObject({ vshardName: 'NON_MASTER', executed: 'no' })
        expect(cluster.count('call')).toBe(1)
      }
    },
  )
})

interface PriorityCase {
  readonly name: string
  readonly about: string
  readonly zone?: number | string
  readonly weights?: readonly (readonly [number | string, number | string, number])[]
  readonly auto?: boolean
  readonly replicas: Readonly<Record<string, { readonly master?: boolean; readonly zone?: number | string }>>
  readonly priority: readonly { readonly id: string; readonly weight: number | 'inf' }[]
}

describe('the order of instances for reads', () => {
  it.each(read<{ cases: PriorityCase[] }>('replica-priority').cases.map((item) => [item.about, item] as const))(
    '%s',
    async (_about, { auto, priority, replicas, weights, zone }) => {
      const names = Object.keys(replicas)
      const master = auto === true ? 'auto' : names.find((name) => replicas[name]!.master === true)!
      cluster = new FakeCluster({ s: names }, 1)
      const [set] = cluster.config.replicasets
      const instances = set!.instances.map((instance) => {
        const at = replicas[instance.id]!.zone
        return at === undefined ? instance : { ...instance, zone: at }
      })
      const router = cluster.router({
        config: {
          ...cluster.config,
          replicasets: [{ ...set!, master, instances }],
          ...(zone === undefined ? {} : { zone }),
          ...(weights === undefined ? {} : { weights: weights.map(([from, to, weight]) => ({ from, to, weight })) }),
        },
      })
      const order = router.info().replicasets[0]!.instances.map(({ id }) => id)
      const weightOf = (id: string): number | 'inf' => priority.find((entry) => entry.id === id)!.weight
      expect(order.map(weightOf)).toEqual(priority.map(({ weight }) => weight))
      // Among equals the master is first, and nothing else is said.
      const nearest = order.filter((id) => weightOf(id) === weightOf(order[0]!))
      if (master !== 'auto' && nearest.includes(master)) expect(order[0]).toBe(master)
    },
  )
})
