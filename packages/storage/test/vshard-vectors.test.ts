/*
 * What a real vshard 0.1.42 answered to these calls, this storage answers too: values, refusals with their fields, references and
 * their sessions. Texts of failures of Lua and their traces are Lua's own and not compared.
 */
import { readFileSync } from 'node:fs'
import { createConnection } from '@orbweaver/connection'
import type { Connection, Environment } from '@orbweaver/connection'
import { VirtualClock } from '@orbweaver/connection/testing'
import { BoxError } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import type { ReplicasetConfig } from '@orbweaver/vshard'
import { createStorage, values } from '../src/index.js'
import type { Storage } from '../src/index.js'
import { during } from './memory.js'

interface Step {
  readonly on?: string
  readonly session?: number
  readonly user?: string
  readonly function?: string
  readonly args?: readonly unknown[]
  readonly status?: number
  readonly reply?: readonly unknown[]
  readonly setup?: string
  readonly check?: string
  readonly value?: unknown
  readonly errorMessage?: string
  readonly summarised?: readonly string[]
}

interface Scenarios {
  readonly ids: Readonly<Record<string, string>>
  readonly scenarios: readonly { readonly name: string; readonly steps: readonly Step[] }[]
}

const BUCKETS = 1_250

function load(file: string): Scenarios {
  return JSON.parse(readFileSync(new URL(`vectors/${file}.json`, import.meta.url), 'utf8')) as Scenarios
}

const IDS = load('storage-call').ids

/** The vectors' notation as JavaScript values. */
function read(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(read)
  if (typeof value !== 'object' || value === null) return value
  const object = value as Record<string, unknown>
  if ('$double' in object) return object['$double']
  if ('$int' in object) return BigInt(object['$int'] as string)
  if ('$map' in object) return new Map((object['$map'] as [unknown, unknown][]).map(([key, item]) => [key, read(item)]))
  return Object.fromEntries(Object.entries(object).map(([key, item]) => [key, read(item)]))
}

/** Absent fields and nil ones are the same to a reader; a failure of Lua keeps its type and code only. */
function comparable(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(comparable)
  if (value instanceof BoxError) return { code: value.boxCode }
  if (value instanceof Map)
    return new Map(
      [...value]
        .filter(([, item]) => item !== null && item !== undefined)
        .map(([key, item]) => [key, comparable(item)]),
    )
  if (typeof value !== 'object' || value === null) return value
  const object = value as Record<string, unknown>
  if ('$error' in object) return { code: (object['$error'] as [{ code: number }])[0].code }
  if ('base_type' in object) return { code: object['code'] }
  if ('master_upstream' in object) return { status: (object['master_upstream'] as { status: string }).status }
  if ('vclock' in object) return { vclock: 'differs from run to run' }
  return Object.fromEntries(
    Object.entries(object)
      .filter(([, item]) => item !== null && item !== undefined)
      // Ours says where the bucket went, which vshard does not here.
      .filter(([key]) => key !== 'destination' || object['name'] !== 'BUCKET_IS_LOCKED')
      // The error inside this one is Lua's own text.
      .filter(([key]) => !['message', 'tuple'].includes(key) || object['name'] !== 'BUCKET_RECV_DATA_ERROR')
      .map(([key, item]) => [key, comparable(item)]),
  )
}

function defineFunctions(storage: Storage): void {
  storage.define('echo', (_context, ...args) => values(...args))
  storage.define('ret_nothing', () => undefined)
  storage.define('ret_nil', () => null)
  storage.define('ret_multi', () => values(1, 'two', [3], 4))
  storage.define('ret_holes', () => values(null, 2, null))
  storage.define('ret_nil_err', () => values(null, { code: 77, message: 'application error' }))
  storage.define('ret_false_err', () => values(false, 'plain text error'))
  storage.define('hang', () => new Promise<never>(() => undefined))
  storage.define('raise_lua', () => {
    throw new Error('lua failure')
  })
  storage.define('raise_table', () => {
    // eslint-disable-next-line typescript/only-throw-error -- what the captured function does
    throw { reason: 'a table' }
  })
  storage.define('raise_box', (context) => context.space('nowhere'))
  storage.define('raise_box_custom', () => {
    throw BoxError.of(1_000, 'custom reason', { boxType: 'CustomError' })
  })
  storage.define('customer_page', (context, after, limit) =>
    context.space('customer').select([after], { iterator: 'GT', limit: Number(limit) }),
  )
}

/** Two replicasets as they were captured: rs1 with a replica, rs2 alone. */
const INSTANCES = ['rs1.master', 'rs1.replica', 'rs2.master'] as const
type InstanceName = (typeof INSTANCES)[number]

const CONFIG: readonly ReplicasetConfig[] = ['rs1', 'rs2'].map((set) => ({
  id: IDS[set]!,
  uuid: IDS[set]!,
  master: IDS[`${set}.master`]!,
  instances: INSTANCES.filter((name) => name.startsWith(set)).map((name) => ({ id: IDS[name]!, uri: `${name}:1` })),
}))

class Replay {
  readonly #clock = new VirtualClock()
  readonly #storages = new Map<string, Storage>()
  readonly #sessions = new Map<string, Connection>()
  /** The scenario's set-up of each bucket, with the counters of its users gone: made again before each call. */
  #bucketSetUp: (() => void) | undefined
  #isSenderSilent = false
  /** What storages greet with: clients agree on nothing with one of 2.6.0. */
  readonly #version: string | undefined

  constructor(version?: string) {
    this.#version = version
    for (const name of INSTANCES) this.#storages.set(name, this.#create(name))
  }

  async prepare(scenario: string): Promise<void> {
    for (const storage of this.#storages.values()) storage.start()
    await this.#clock.advance(500)
    await this.#wait(this.#at('rs1.master').promote())
    for (const set of ['rs1', 'rs2'] as const) {
      const master = this.#at(`${set}.master`)
      // The captured storages were set up with the protection of `_bucket` off, their recovery and collector paused.
      if (!scenario.startsWith('send')) for (const job of [master.vshard.recovery, master.vshard.gc]) job.pause()
      master.vshard.setBucketProtection(scenario === 'force-create-drop')
      makeSpaces(master)
      const first = set === 'rs1' ? 1 : BUCKETS + 1
      await this.#wait(master.call('vshard.storage.bucket_force_create', first, BUCKETS))
    }
    if (scenario === 'receive-blocked')
      await this.#wait(this.#at('rs2.master').call('vshard.storage.bucket_force_create', 2_510, 2))
    if (scenario.startsWith('receive')) this.#playSender()
    if (STATUS_SCENARIOS.has(scenario))
      for (const [id, status] of STATUSES) this.#setStatus(id, status, status === 'active' ? undefined : 'rs2')
    await this.#clock.advance(500)
  }

  /** What this storage answers, and what the captured one did; undefined for a step that only prepares. */
  async run(step: Step, scenario: string): Promise<{ what: string; got: unknown; wanted: unknown } | undefined> {
    if (step.setup !== undefined) await this.#setUp(step.setup)
    if (step.check === 'total number of refs on the storage') {
      this.#sessions.get('rs1.master/3/root')?.destroy()
      await this.#clock.advance(10)
      return { what: step.check, got: this.#at('rs1.master').info().storageRefs, wanted: step.value }
    }
    if (step.function === undefined) return undefined
    if (scenario === 'bucket-states') this.#bucketSetUp?.()
    const on = (step.on ?? 'rs1.master') as InstanceName
    if (scenario === 'disabled-storage') this.#at(on).vshard[step.status === 0 ? 'enable' : 'disable']()
    const args = (read(step.args) as unknown[]) ?? []
    const calling = this.#connection(on, step.session ?? 1, step.user ?? 'root').call(step.function, args)
    const answer = await this.#wait(calling.catch((error: unknown) => error))
    // What follows a move in the background has happened when the next step was captured.
    if (scenario === 'send') await this.#clock.advance(500)
    const what = `${step.function}(${JSON.stringify(step.args)})`
    if (step.status !== 0) return { what, got: failure(answer as BoxError), wanted: wantedFailure(step) }
    return { what, got: comparable(summarised(step, answer)), wanted: comparable(read(step.reply)) }
  }

  async call(on: InstanceName, { function: called, args }: Step): Promise<unknown[]> {
    return this.#wait(this.#connection(on, 1, 'root').call(called!, read(args) as unknown[]))
  }

  async close(): Promise<void> {
    for (const storage of this.#storages.values()) await this.#wait(storage.close({ graceMs: 0 }))
  }

  #at(name: InstanceName): Storage {
    return this.#storages.get(name)!
  }

  #wait<T>(work: Promise<T>): Promise<T> {
    return during(this.#clock, work)
  }

  #create(name: InstanceName): Storage {
    const [set] = name.split('.') as [string]
    const peers = INSTANCES.filter((peer) => peer.startsWith(set))
    const credential = { user: 'root', password: 'r' }
    const environment: Partial<Environment> = {
      clock: this.#clock,
      random: () => 0.5,
      dial: (address) => Promise.resolve(this.#at((address as { host: string }).host as InstanceName).connect()),
    }
    const storage = createStorage({
      name,
      uuid: IDS[name]!,
      replicasetUuid: IDS[set]!,
      users: { root: { password: 'r', rights: 'super' }, nobody: { password: 'n' } },
      replication: {
        number: peers.indexOf(name) + 1,
        peers: peers.flatMap((peer, i) =>
          peer === name ? [] : [{ number: i + 1, uuid: IDS[peer]!, address: { host: peer, port: 1 } }],
        ),
        credential,
      },
      vshard: { bucketCount: 2_500, replicasets: CONFIG, credential, rebalancerMode: 'off' },
      ...(this.#version === undefined ? {} : { version: this.#version }),
      environment,
    })
    defineFunctions(storage)
    return storage
  }

  #connection(on: InstanceName, session: number, user: string): Connection {
    const key = `${on}/${session}/${user}`
    let connection = this.#sessions.get(key)
    if (connection === undefined) {
      connection = createConnection({
        uri: { connect: () => this.#at(on).connect({ user }) },
        environment: { clock: this.#clock, random: () => 0.5 },
      })
      this.#sessions.set(key, connection)
    }
    return connection
  }

  /** The test plays rs1, which must say that it sends. */
  #playSender(): void {
    this.#at('rs1.master').define('vshard.storage._call', (_context, service, id) => {
      if (this.#isSenderSilent) return new Promise<never>(() => undefined)
      return service === 'info' ? { is_master: true } : { id, status: 'sending', generation: 1, is_transfering: true }
    })
  }

  #setStatus(id: number, status: string, destination: string | undefined): void {
    const space = this.#at('rs1.master').space('_bucket')
    space.delete([id])
    space.replace(hasDestination(status) ? [id, status, IDS[destination ?? '']!, { generation: 1 }] : [id, status])
  }

  async #setUp(text: string): Promise<void> {
    const match = /^bucket (\d+) on rs1 is (\w+)(?: with destination (\w+))?$/.exec(text)
    if (match !== null) {
      const [, id, status, destination] = match
      this.#bucketSetUp = () => this.#setStatus(Number(id), status!, destination)
      this.#bucketSetUp()
      return
    }
    await this.#setUps[text]?.()
  }

  readonly #setUps: Readonly<Record<string, () => unknown>> = {
    'bucket 18 on rs1 becomes sent (destination rs2), counter object kept': () =>
      this.#at('rs1.master')
        .space('_bucket')
        .replace([18, 'sent', IDS['rs2']!, { generation: 1 }]),
    'bucket protection switched off': () => this.#at('rs1.master').vshard.setBucketProtection(false),
    'no sending and receiving buckets any more': () => {
      for (const id of [14, 16]) this.#setStatus(id, 'active', undefined)
    },
    'no garbage bucket any more': () => this.#setStatus(17, 'active', undefined),
    'no readonly bucket any more, one sent and one pinned bucket left': () => this.#setStatus(13, 'active', undefined),
    'rebalancer disabled by API': () => this.#at('rs1.master').vshard.rebalancer.pause(),
    'receiving quota exhausted': () => this.#at('rs2.master').vshard.configure({ rebalancerMaxReceiving: 0 }),
    'replicaset rs2 locked': () =>
      this.#at('rs2.master').vshard.configure({
        replicasets: CONFIG.map((set) => (set.id === IDS['rs2'] ? { ...set, lock: true } : set)),
      }),
    'the bucket is already being transferred by another call': async () => {
      this.#at('rs2.master').vshard.configure({ rebalancerMaxReceiving: 1, replicasets: CONFIG })
      this.#isSenderSilent = true
      void this.#connection('rs2.master', 99, 'root')
        .call('vshard.storage.bucket_recv', [2_603, IDS['rs1'], [], { generation: 1 }])
        .catch(() => undefined)
      await this.#clock.advance(10)
    },
    'bucket 55 has an rw ref (a running write)': async () => {
      void this.#connection('rs1.master', 98, 'root')
        .call('vshard.storage.call', [55, 'write', 'hang', []])
        .catch(() => undefined)
      await this.#clock.advance(10)
    },
  }
}

const STATUSES: readonly (readonly [id: number, status: string])[] = [
  [11, 'active'],
  [12, 'pinned'],
  [13, 'readonly'],
  [14, 'sending'],
  [15, 'sent'],
  [16, 'receiving'],
  [17, 'garbage'],
]
const STATUS_SCENARIOS: ReadonlySet<string> = new Set([
  'recovery_bucket_stat',
  'ref-waits-for-writable',
  'bucket_test_gc',
  'rebalancer_request_state-busy',
])

function hasDestination(status: string): boolean {
  return ['sending', 'sent', 'receiving', 'garbage'].includes(status)
}

function makeSpaces(storage: Storage): void {
  const index = { name: 'bucket_id', parts: ['bucket_id'], isUnique: false }
  storage.createSpace('customer', {
    format: [
      { name: 'customer_id', type: 'unsigned' },
      { name: 'bucket_id', type: 'unsigned' },
      { name: 'name', type: 'string' },
    ],
    indexes: [{ name: 'customer_id', parts: ['customer_id'] }, index],
  })
  storage.createSpace('account', {
    format: [
      { name: 'account_id', type: 'unsigned' },
      { name: 'customer_id', type: 'unsigned' },
      { name: 'bucket_id', type: 'unsigned' },
      { name: 'balance', type: 'unsigned' },
      { name: 'name', type: 'string' },
    ],
    indexes: [{ name: 'account_id', parts: ['account_id'] }, index],
  })
}

/** The text of an error of vshard is JSON, whose order of fields is its own affair. */
function failure(error: BoxError): unknown {
  return error.message.startsWith('{')
    ? { code: error.boxCode, ...(JSON.parse(error.message) as object) }
    : { code: error.boxCode }
}

function wantedFailure({ status, errorMessage }: Step): unknown {
  return errorMessage?.startsWith('{') === true
    ? { code: status, ...(JSON.parse(errorMessage) as object) }
    : { code: status }
}

function summarised(step: Step, answer: unknown): unknown {
  if (step.summarised === undefined || !Array.isArray(answer)) return answer
  const [page, ...rest] = answer as [{ buckets: number[] }]
  const { buckets } = page
  const [first] = buckets
  const isConsecutive = buckets.every((id, i) => id === first! + i)
  return [
    { ...page, buckets: { first, last: buckets.at(-1), count: buckets.length, consecutive: isConsecutive } },
    ...rest,
  ]
}

/** `application-errors` is below. */
const REPLAYED: Readonly<Record<string, readonly string[]>> = {
  'storage-call': ['values', 'not-master', 'bucket-states', 'locked-bucket'],
  'storage-services': [
    'storage-ref',
    'storage-ref-sessions',
    'storage-ref-on-replica',
    'partial-refs',
    'recovery_bucket_stat',
    'ref-waits-for-writable',
    'bucket_test_gc',
    'rebalancer_request_state-busy',
    'info',
    'checkpoint',
    'misc',
  ],
  'storage-public': ['buckets', 'discovery', 'force-create-drop'],
  'bucket-transfer': ['receive', 'receive-blocked', 'send', 'send-errors'],
  exceptions: ['disabled-storage', 'usage', 'access'],
}

/** Functions of the captured cluster that read its own data. */
function isOfThatCluster(step: Step): boolean {
  const args = JSON.stringify(step.args ?? [])
  return args.includes('customer_')
}

describe.each(Object.entries(REPLAYED))('the captured scenarios of %s', (file, names) => {
  const { scenarios } = load(file)

  it.each(names)('%s: every answer is the same', async (name) => {
    const scenario = scenarios.find((candidate) => candidate.name === name)!
    const replay = new Replay()
    try {
      await replay.prepare(name)
      let compared = 0
      for (const step of scenario.steps) {
        if (isOfThatCluster(step)) continue
        // Ref 7 was taken before the captured part of its scenario begins.
        if (step.args?.[0] === 'storage_map' && step.args[1] === 7)
          await replay.run({ ...step, args: ['storage_ref', 7, 10], reply: [BUCKETS] }, name)
        const answer = await replay.run(step, name)
        if (answer === undefined) continue
        expect({ [answer.what]: answer.got }).toEqual({ [answer.what]: answer.wanted })
        compared++
      }
      expect(compared).toBeGreaterThan(0)
    } finally {
      await replay.close()
    }
  })
})

/** The profile that is spoken is that of vshard on Tarantool 3: what a function raised is error 32, with the original in `details`. */
describe('what functions raise', { timeout: 30_000 }, () => {
  const profile = (
    JSON.parse(readFileSync(new URL('vectors/profiles.json', import.meta.url), 'utf8')) as {
      profiles: readonly { readonly scenarios: Scenarios['scenarios'] }[]
    }
  ).profiles[0]!

  /** Without the place in a Lua file, the trace, and the address of a table, which are of that run. */
  function raised(value: unknown): unknown {
    const text = (message: unknown): unknown =>
      typeof message === 'string'
        ? message.replace(/^functions\.lua:\d+: /, '').replace(/^table: .*/, 'a table')
        : message
    if (Array.isArray(value)) return value.map(raised)
    if (value instanceof BoxError) return { type: value.boxType, code: value.boxCode, message: text(value.message) }
    if (typeof value !== 'object' || value === null) return text(value)
    const object = value as Record<string, unknown>
    if ('$error' in object) {
      const [{ type, code, message }] = object['$error'] as [{ type: string; code: number; message: string }]
      return { type, code, message: text(message) }
    }
    const { trace: _trace, ...rest } = object
    return Object.fromEntries(Object.entries(rest).map(([key, item]) => [key, raised(item)]))
  }

  /** A raised table: its text is an address there, and what was raised here. */
  function withoutTable(value: unknown): unknown {
    const [, error] = value as [boolean, { message: string; details: unknown }]
    return { ...error, message: 'a table', details: 'a table' }
  }

  const scenarioOf = ({ scenarios }: Pick<Scenarios, 'scenarios'>): readonly Step[] =>
    scenarios.find(({ name }) => name === 'application-errors')!.steps

  it.each([
    ['to a client that has agreed on errors', scenarioOf(load('storage-call')), undefined],
    ['as text to one that has not', scenarioOf(profile), '2.6.0'],
  ])('is told %s as it was captured', async (_what, steps, version) => {
    const replay = new Replay(version)
    try {
      await replay.prepare('values')
      for (const step of steps) {
        const got = raised(await replay.call('rs1.master', step))
        const wanted = raised(step.reply)
        if (step.args![2] === 'raise_table') expect(withoutTable(got)).toEqual(withoutTable(wanted))
        else expect(got).toEqual(wanted)
      }
    } finally {
      await replay.close()
    }
  })

  it.each(['values', 'info', 'ref-waits-for-writable'])(
    'or return is the same to a client that has agreed on nothing: %s',
    async (name) => {
      const replay = new Replay('2.6.0')
      try {
        await replay.prepare(name)
        for (const step of profile.scenarios.find((candidate) => candidate.name === name)!.steps) {
          if (isOfThatCluster(step)) continue
          const answer = (await replay.run(step, name))!
          expect({ [answer.what]: answer.got }).toEqual({ [answer.what]: answer.wanted })
        }
      } finally {
        await replay.close()
      }
    },
  )

  it.each([
    ['an error', undefined, expect.objectContaining({ boxCode: 3 }) as unknown],
    ['a text', '2.6.0', expect.stringMatching(/^Duplicate key exists in unique index/) as unknown],
  ])(
    'is no matter for what the database refuses a service: that travels as it is, as %s',
    async (_what, version, wanted) => {
      const replay = new Replay(version)
      try {
        await replay.prepare('force-create-drop')
        const step = { function: 'vshard.storage.bucket_force_create', args: [1, 2] }
        expect(await replay.call('rs1.master', step)).toEqual([null, wanted])
      } finally {
        await replay.close()
      }
    },
  )

  it('keeps a thrown value that is no error', async () => {
    const replay = new Replay()
    try {
      await replay.prepare('values')
      const [isDone, error] = await replay.call('rs1.master', {
        function: 'vshard.storage.call',
        args: [1, 'read', 'raise_table', []],
      })
      expect(isDone).toBe(false)
      expect(error).toMatchObject({ code: 32, message: "{ reason: 'a table' }", details: { reason: 'a table' } })
    } finally {
      await replay.close()
    }
  })
})
