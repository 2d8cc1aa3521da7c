import { ConfigError } from '@orbweaver/iproto'
import { describe, expect, expectTypeOf, test } from 'vitest'
import {
  type CheckedClusterConfig,
  type ClusterConfig,
  readTopology,
  readVshardConfig,
  type TopologyFile,
  validateClusterConfig,
  VSHARD_DEFAULTS,
  writeVshardConfig,
  zoneDistance,
} from '../src/index.js'
import { readVectors } from './vectors.js'

interface ConfigVector {
  readonly name: string
  readonly ok: boolean
  readonly input: unknown
  readonly defaults?: Readonly<Record<string, unknown>>
  readonly replicaset_weight?: number
  readonly error?: string
}

const { cases } = readVectors<{ cases: readonly ConfigVector[] }>('config')

describe('vshard configuration: accepted with the same values after defaults', () => {
  test.each(cases.filter(({ ok }) => ok))('$name', ({ input, defaults, replicaset_weight: weight }) => {
    const config = readVshardConfig(input)
    expect(asVshardOptions(config)).toEqual(withoutDeprecated(defaults!))
    for (const replicaset of config.replicasets) expect(replicaset.weight).toBe(weight)
  })
})

describe('a configuration written in the words of vshard', () => {
  // An address without a login gets the cluster's, which the reader leaves to whoever dials.
  test.each(cases.filter(({ ok, name }) => ok && name !== 'number-uri'))(
    'is read back as it was: $name',
    ({ input }) => {
      const config = readVshardConfig(input)
      expect(readVshardConfig(JSON.parse(JSON.stringify(writeVshardConfig(config))))).toEqual(config)
    },
  )

  test('carries the login of the cluster, zones, flags and database options', () => {
    const config = readVshardConfig({
      identification_mode: 'name_as_key',
      bucket_count: 10,
      zone: 1,
      weights: { 1: { 2: 5 } },
      sched_ref_quota: 7,
      sync_timeout: 2.5,
      memtx_memory: 1_000_000,
      sharding: {
        a: {
          uuid: 'aaaaaaaa-aaaa-4aaa-8aaa-000000000000',
          master: 'auto',
          lock: true,
          replicas: { a1: { uri: 'storage:p%40ss@host:3301', zone: 1, read_only: true } },
        },
        b: { weight: 0.5, replicas: { b1: { uri: 'storage:p%40ss@host:3302', master: true, rebalancer: true } } },
      },
    })
    expect(readVshardConfig(writeVshardConfig(config))).toEqual(config)
    const plain = { ...config, replicasets: config.replicasets.slice(0, 1) }
    const [set] = plain.replicasets
    const bare = { ...plain, replicasets: [{ ...set!, instances: [{ ...set!.instances[0]!, uri: 'host:3301' }] }] }
    expect(writeVshardConfig(bare)).toMatchObject({
      sharding: { a: { replicas: { a1: { uri: 'storage:p%40ss@host:3301' } } } },
    })
  })
})

/** Where each refused case is wrong. */
const PLACES: Readonly<Record<string, string>> = {
  'not-a-map': '',
  'no-sharding': 'sharding',
  'two-masters':
    'sharding["11111111-1111-4111-8111-111111111111"].replicas["31111111-1111-4111-8111-111111111111"].master',
  'auto-with-master-flag':
    'sharding["11111111-1111-4111-8111-111111111111"].replicas["21111111-1111-4111-8111-111111111111"].master',
  'bad-master-mode': 'sharding["11111111-1111-4111-8111-111111111111"].master',
  'duplicate-uri':
    'sharding["11111111-1111-4111-8111-111111111111"].replicas["31111111-1111-4111-8111-111111111111"].uri',
  'no-uri': 'sharding["11111111-1111-4111-8111-111111111111"].replicas["31111111-1111-4111-8111-111111111111"].uri',
  'all-weights-zero': 'sharding',
  'negative-weight': 'sharding["11111111-1111-4111-8111-111111111111"].weight',
  'bucket-count-zero': 'bucket_count',
  'bucket-count-float': 'bucket_count',
  'bucket-count-string': 'bucket_count',
  'discovery-mode': 'discovery_mode',
  'rebalancer-mode': 'rebalancer_mode',
  'rebalancer-contradiction':
    'sharding["11111111-1111-4111-8111-111111111111"].replicas["21111111-1111-4111-8111-111111111111"].rebalancer',
  'own-zone-weight': 'weights[0]',
  'zone-boolean': 'zone',
  'uuid-in-uuid-mode': 'sharding["11111111-1111-4111-8111-111111111111"].uuid',
  'name-mode-with-name': 'sharding.rs1.replicas.a.name',
  'negative-quota': 'sched_ref_quota',
  'master-number':
    'sharding["11111111-1111-4111-8111-111111111111"].replicas["21111111-1111-4111-8111-111111111111"].master',
}

describe('vshard configuration: refused, with the place and the way out', () => {
  const refused = cases.filter(({ ok }) => !ok)

  test.each(refused)('$name', ({ name, input }) => {
    const problems = problemsOf(() => readVshardConfig(input))
    expect(problems).toHaveLength(1)
    expect(problems[0]!.path).toBe(PLACES[name])
    expect(problems[0]!.message).toMatch(ADVICE)
  })

  test('every refused case has its place here', () => {
    expect(Object.keys(PLACES).toSorted()).toEqual(refused.map(({ name }) => name).toSorted())
  })

  test('all problems come at once, also when one of them is a wrong type', () => {
    const config = {
      bucket_count: 0,
      sync_timeout: '1s',
      rebalancer_max_sending: 16,
      weights: { a: { a: 1, b: -1 }, c: 5 },
      sharding: {
        rs1: {
          weight: 0,
          master: 'auto',
          rebalancer: true,
          replicas: { a: { uri: 'h:1', master: false }, b: { uri: 'h:1' } },
        },
        rs2: { weight: 0, lock: 1, replicas: { a: { uri: '', rebalancer: true, zone: {} }, c: 5 } },
        rs3: [],
      },
    }
    const problems = problemsOf(() => readVshardConfig(config))
    expect(problems.map(({ path }) => path).toSorted()).toEqual(
      [
        'bucket_count',
        'sync_timeout',
        'rebalancer_max_sending',
        'weights.a.a',
        'weights.a.b',
        'weights.c',
        'sharding.rs1.replicas.a.master',
        'sharding.rs1.replicas.b.uri',
        'sharding.rs2.lock',
        'sharding.rs2.replicas.a',
        'sharding.rs2.replicas.a.uri',
        'sharding.rs2.replicas.a.rebalancer',
        'sharding.rs2.replicas.a.zone',
        'sharding.rs2.replicas.c',
        'sharding.rs3',
      ].toSorted(),
    )
    for (const { message } of problems) expect(message).toMatch(ADVICE)
  })

  test('the message of the error lists every problem with its path', () => {
    expect(() => readVshardConfig({ bucket_count: 0 })).toThrow(
      'Invalid vshard configuration: sharding: is missing, must be a map from the id of a replicaset to its options; ' +
        'bucket_count: is 0, must be a whole number of at least 1',
    )
  })

  const weights: [string, unknown, string | undefined][] = [
    ['a map of maps', { 1: { 2: 3 } }, undefined],
    ['a Map of Maps', new Map([[1, new Map([[2, 3]])]]), undefined],
    ['a list of triples', [['a', 'b', 1]], undefined],
    ['a number', 5, 'weights'],
    ['a pair', [['a', 'b']], 'weights[0]'],
    ['a negative weight', [['a', 'b', -1]], 'weights[0][2]'],
    ['a zone that is a flag', [[true, 'b', 1]], 'weights[0][0]'],
    ['a weight of the own zone', new Map([[1, new Map([[1, 3]])]]), 'weights["1"]["1"]'],
  ]
  test.each(weights)('weights as %s', (_, value, path) => {
    const read = (): unknown => readVshardConfig({ sharding: {}, weights: value })
    expect(path === undefined ? [] : [path]).toEqual(problemsOf(read).map((problem) => problem.path))
  })
})

describe('vshard configuration: what is made of it', () => {
  test('replicasets and instances with ids, masters, options of the database', () => {
    const config = readVshardConfig({
      bucket_count: 100,
      zone: 1,
      weights: { 1: { 2: 3 } },
      failover_ping_timeout: 2.5,
      memtx_memory: 1024,
      collect_lua_garbage: true,
      sharding: {
        'uuid-1': {
          weight: 2,
          lock: true,
          replicas: {
            'uuid-a': { uri: 'storage:s%40crt@127.0.0.1:3301', name: 'a', master: true, zone: 1 },
            'uuid-b': { uri: 3302, listen: 'localhost:3302', rebalancer: true, master: null },
          },
        },
        'uuid-2': { master: 'auto', replicas: { 'uuid-c': { uri: { uri: 'h:3303', login: 'me', password: 'p@ss' } } } },
        'uuid-3': { rebalancer: false, replicas: [] },
      },
    })
    expect(config).toEqual({
      ...VSHARD_DEFAULTS,
      failoverPingTimeoutMs: 2500,
      bucketCount: 100,
      identification: 'uuid',
      user: 'storage',
      password: 's@crt',
      zone: 1,
      weights: [{ from: '1', to: '2', weight: 3 }],
      boxOptions: { memtx_memory: 1024 },
      replicasets: [
        {
          ...{ id: 'uuid-1', uuid: 'uuid-1', weight: 2, lock: true, master: 'uuid-a' },
          instances: [
            { id: 'uuid-a', uuid: 'uuid-a', name: 'a', uri: 'storage:s%40crt@127.0.0.1:3301', zone: 1 },
            { id: 'uuid-b', uuid: 'uuid-b', uri: '3302', rebalancer: true, boxOptions: { listen: 'localhost:3302' } },
          ],
        },
        {
          ...{ id: 'uuid-2', uuid: 'uuid-2', weight: 1, master: 'auto' },
          instances: [{ id: 'uuid-c', uuid: 'uuid-c', uri: 'me:p%40ss@h:3303' }],
        },
        { id: 'uuid-3', uuid: 'uuid-3', weight: 1, rebalancer: false, instances: [] },
      ],
    })
  })

  test('with names as keys the uuid is extra, and a replicaset and an instance may share a name', () => {
    const config = readVshardConfig({
      identification_mode: 'name_as_key',
      sharding: { x: { uuid: 'u1', replicas: { x: { uri: 'h:1', uuid: 'u2' } } } },
    })
    expect(config.identification).toBe('name')
    expect(config.replicasets[0]).toMatchObject({ id: 'x', name: 'x', uuid: 'u1' })
    expect(config.replicasets[0]!.instances[0]).toMatchObject({ id: 'x', name: 'x', uuid: 'u2' })
  })

  test('without a login anywhere it is guest without a password', () => {
    expect(readVshardConfig({ sharding: {} })).toMatchObject({ user: 'guest', password: '', replicasets: [] })
  })

  test('an empty Lua table, which travels as a list, is an empty map', () => {
    expect(readVshardConfig({ sharding: [] }).replicasets).toEqual([])
  })

  test('the quotas of the scheduler have a second name each, which their own name goes before', () => {
    const read = (options: object): unknown => readVshardConfig({ sharding: {}, ...options })
    const aliased = read({ scheduler_slice_storage_ref: 7, scheduler_slice_bucket_move: 0.5 })
    expect(aliased).toMatchObject({ schedRefQuota: 7, schedMoveQuota: 0.5 })
    expect(aliased).not.toHaveProperty('boxOptions')
    expect(read({ scheduler_slice_storage_ref: 7, sched_ref_quota: 8 })).toMatchObject({ schedRefQuota: 8 })
    const problems = problemsOf(() => read({ scheduler_slice_bucket_move: -1 }))
    expect(problems).toEqual([
      { path: 'scheduler_slice_bucket_move', message: 'is -1, must be a number of at least 0' },
    ])
  })

  const uris: [unknown, boolean][] = [
    ['localhost:3301', true],
    ['user:pass@[::1]:3301', true],
    ['unix/:/tmp/s.sock', true],
    ['u:p@unix/:/tmp/s.sock', true],
    ['tcp://h:3301', true],
    [3301, true],
    ['', false],
    ['two words', false],
    ['u:%zz@h:1', false],
    [-1, false],
    [true, false],
    [{ login: 'x' }, false],
  ]
  test.each(uris)('the address %j: %s', (uri, isFine) => {
    const read = (): unknown => readVshardConfig({ sharding: { rs: { replicas: { a: { uri } } } } })
    expect(problemsOf(read).map(({ path }) => path)).toEqual(isFine ? [] : ['sharding.rs.replicas.a.uri'])
  })
})

const CLUSTER: ClusterConfig = {
  bucketCount: 10,
  identification: 'name',
  user: 'u',
  password: 'p',
  replicasets: [
    {
      id: 'rs1',
      master: 'a',
      instances: [
        { id: 'a', uri: 'h:1' },
        { id: 'b', uri: 'h:2', zone: 'z' },
      ],
    },
    { id: 'rs2', master: 'auto', weight: 3, instances: [{ id: 'c', uri: 'h:3' }] },
  ],
}

describe('our own configuration', () => {
  test('is filled with the defaults and keeps what is given', () => {
    const config = validateClusterConfig({
      ...CLUSTER,
      schedRefQuota: 5,
      weights: [{ from: 1, to: 2, weight: 3 }],
      zone: 1,
    })
    expect(config).toEqual({
      ...VSHARD_DEFAULTS,
      ...CLUSTER,
      ...{ schedRefQuota: 5, weights: [{ from: 1, to: 2, weight: 3 }], zone: 1 },
      replicasets: [{ weight: 1, ...CLUSTER.replicasets[0] }, CLUSTER.replicasets[1]],
    })
    expectTypeOf(config).toEqualTypeOf<CheckedClusterConfig>()
    expectTypeOf(config.schedRefQuota).toEqualTypeOf<number>()
  })

  test('a checked configuration is fine again', () => {
    const checked = validateClusterConfig(CLUSTER)
    expect(validateClusterConfig(checked)).toEqual(checked)
  })

  const wrong: [string, unknown, string[]][] = [
    ['nothing', undefined, ['']],
    ['a text', 'x', ['']],
    ['no user, no buckets', { ...CLUSTER, user: '', bucketCount: undefined }, ['bucketCount', 'user']],
    ['a master that is not there', withReplicaset({ master: 'z' }), ['replicasets[0].master']],
    ['a weight without end', withReplicaset({ weight: Infinity }), ['replicasets[0].weight']],
    [
      'an instance twice',
      withReplicaset({ id: 'rs3' }, true),
      [
        'replicasets[2].instances[0].uri',
        'replicasets[2].instances[1].uri',
        'replicasets[2].instances[0]',
        'replicasets[2].instances[1]',
      ],
    ],
    ['no weight at all', { ...CLUSTER, replicasets: [{ ...CLUSTER.replicasets[1], weight: 0 }] }, ['replicasets']],
    ['a quota that is a text', { ...CLUSTER, schedMoveQuota: '1' }, ['schedMoveQuota']],
    ['a weight of the own zone', { ...CLUSTER, weights: [{ from: 1, to: '1', weight: 2 }] }, ['weights[0]']],
    [
      'two rebalancers',
      { ...CLUSTER, replicasets: CLUSTER.replicasets.map((one) => ({ ...one, rebalancer: true })) },
      ['replicasets[1].rebalancer'],
    ],
  ]
  test.each(wrong)('%s is refused', (_, value, paths) => {
    const problems = problemsOf(() => validateClusterConfig(value))
    expect(problems.map(({ path }) => path)).toEqual(paths)
    for (const { message } of problems) expect(message).toMatch(ADVICE)
  })

  test('with uuids as ids a replicaset and an instance may not share one', () => {
    const shared = {
      ...CLUSTER,
      identification: 'uuid',
      replicasets: [{ id: 'x', instances: [{ id: 'x', uri: 'h:1' }] }],
    }
    expect(problemsOf(() => validateClusterConfig(shared)).map(({ path }) => path)).toEqual([
      'replicasets[0].instances[0]',
    ])
    expect(problemsOf(() => validateClusterConfig({ ...shared, identification: 'name' }))).toEqual([])
  })

  function withReplicaset(change: object, append = false): unknown {
    const changed = { ...CLUSTER.replicasets[0], ...change }
    return { ...CLUSTER, replicasets: append ? [...CLUSTER.replicasets, changed] : [changed] }
  }
})

const TOPOLOGY: TopologyFile = {
  bucketCount: 3000,
  identification: 'uuid',
  user: 'storage',
  password: 'secret',
  replicasets: [
    {
      ...{ name: 'west', uuid: 'u1', master: 'auto' },
      replicas: [
        { name: 'west-1', uuid: 'u11', host: '127.0.0.1', port: 3301, zone: 1 },
        { name: 'west-2', uuid: 'u12', host: '::1', port: 3302 },
      ],
    },
    {
      ...{ name: 'east', uuid: 'u2', master: null },
      replicas: [
        { name: 'east-1', uuid: 'u21', host: 'h', port: 3301, master: false },
        { name: 'east-2', uuid: 'u22', host: 'h', port: 3302, master: true },
      ],
    },
  ],
  proxy: { host: '127.0.0.1', port: 3300, user: 'app', password: 'x' },
  page: null,
}

describe('a topology file', () => {
  test('becomes a configuration whose ids are the uuids', () => {
    const topology = readTopology(JSON.parse(JSON.stringify(TOPOLOGY)))
    expect(topology).toEqual({
      ...VSHARD_DEFAULTS,
      ...{ bucketCount: 3000, identification: 'uuid', user: 'storage', password: 'secret' },
      replicasets: [
        {
          ...{ id: 'u1', uuid: 'u1', name: 'west', master: 'auto', weight: 1 },
          instances: [
            { id: 'u11', uuid: 'u11', name: 'west-1', uri: '127.0.0.1:3301', zone: 1 },
            { id: 'u12', uuid: 'u12', name: 'west-2', uri: '[::1]:3302' },
          ],
        },
        {
          ...{ id: 'u2', uuid: 'u2', name: 'east', master: 'u22', weight: 1 },
          instances: [
            { id: 'u21', uuid: 'u21', name: 'east-1', uri: 'h:3301' },
            { id: 'u22', uuid: 'u22', name: 'east-2', uri: 'h:3302' },
          ],
        },
      ],
      proxy: TOPOLOGY.proxy,
      page: undefined,
    })
    expect(validateClusterConfig(topology).replicasets).toEqual(topology.replicasets)
    expectTypeOf(topology).toExtend<ClusterConfig>()
  })

  test('or the names, with the page and without a proxy', () => {
    const topology = readTopology({ ...TOPOLOGY, identification: 'name', proxy: null, page: 'http://127.0.0.1:8080' })
    expect(topology.replicasets.map(({ id, master }) => [id, master])).toEqual([
      ['west', 'auto'],
      ['east', 'east-2'],
    ])
    expect(topology).toMatchObject({ identification: 'name', proxy: undefined, page: 'http://127.0.0.1:8080' })
  })

  const wrong: [string, unknown, string[]][] = [
    ['an empty file', {}, ['bucketCount', 'identification', 'user', 'password', 'replicasets']],
    ['a port as a text', withReplica({ port: '3301' }), ['replicasets[0].replicas[0].port']],
    ['port 70000', withReplica({ port: 70_000 }), ['replicasets[0].replicas[0].port']],
    ['an address twice', withReplica({ host: 'h' }), ['replicasets[1].replicas[0].uri']],
    ['a master flag beside auto', withReplica({ master: true }), ['replicasets[0].replicas[0].master']],
    ['a uuid twice', withReplica({ uuid: 'u12' }), ['replicasets[0].replicas[1]']],
    ['a proxy without a port', { ...TOPOLOGY, proxy: { ...TOPOLOGY.proxy, port: undefined } }, ['proxy.port']],
  ]
  test.each(wrong)('%s is refused', (_, value, paths) => {
    const problems = problemsOf(() => readTopology(value))
    expect(problems.map(({ path }) => path)).toEqual(paths)
    for (const { message } of problems) expect(message).toMatch(ADVICE)
  })

  function withReplica(change: object): unknown {
    const [west, east] = TOPOLOGY.replicasets
    const [first, ...others] = west!.replicas
    return { ...TOPOLOGY, replicasets: [{ ...west, replicas: [{ ...first, ...change }, ...others] }, east] }
  }
})

test.each([
  [1, 1, 0],
  ['a', 'b', 4],
  ['b', 'a', Infinity],
  [1, 2, 7],
  ['1', 2, 7],
  [undefined, 'a', Infinity],
  ['a', undefined, Infinity],
])('the distance from zone %s to %s is %s', (from, to, distance) => {
  const weights = [
    { from: 'a', to: 'b', weight: 4 },
    { from: 1, to: '2', weight: 7 },
  ]
  expect(zoneDistance(weights, from, to)).toBe(distance)
})

/** What is there or missing, and what to do about it. */
const ADVICE = /^(is|has|belongs|contradicts) .+(must be .+|: .+|leave .+)$/

function problemsOf(read: () => unknown): readonly { path: string; message: string }[] {
  try {
    read()
  } catch (error) {
    if (error instanceof ConfigError) return error.problems
    throw error
  }
  return []
}

/** A read configuration in vshard's own words, as the vectors have it. */
function asVshardOptions(config: CheckedClusterConfig): Record<string, unknown> {
  const options: Record<string, unknown> = {
    bucket_count: config.bucketCount,
    identification_mode: `${config.identification}_as_key`,
    ...config.boxOptions,
  }
  if (config.zone !== undefined) options['zone'] = config.zone
  if (config.weights !== undefined)
    options['weights'] = config.weights.map(({ from, to, weight }) => [from, to, weight])
  for (const name of Object.keys(VSHARD_DEFAULTS) as (keyof typeof VSHARD_DEFAULTS)[]) {
    const isTime = name.endsWith('Ms')
    const value = isTime ? (config[name] as number) / 1000 : config[name]
    const snake = name.replace(/Ms$/, '').replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
    options[snake] = value === Infinity ? 'infinity' : value
  }
  return options
}

/** vshard keeps options it does not look at any more; the default of 0 of one option it does not show. */
function withoutDeprecated(defaults: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const { collect_lua_garbage: _, ...options } = defaults
  return { connection_outdate_delay: 0, ...options }
}
