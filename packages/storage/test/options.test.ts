/* Options that cannot be right are refused at the door: where, what was found, what is expected. */
import { ConfigError } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { createStorage } from '../src/index.js'
import type { SpaceOptions, StorageOptions, UserOptions } from '../src/index.js'
import { startAlone } from './memory.js'

const UUID = 'aaaaaaaa-aaaa-4aaa-8aaa-000000000001'
const peer = { number: 2, uuid: UUID, address: { host: 'h', port: 1 } }

/** Each line of what was refused. */
function problemsOf(work: () => unknown): string[] {
  try {
    work()
  } catch (error) {
    if (error instanceof ConfigError) return error.problems.map(({ path, message }) => `${path} ${message}`)
    throw error
  }
  return []
}

describe('createStorage', () => {
  it.each<[object, RegExp]>([
    [{ names: 'x' }, /^names is not known; known are name, uuid, .*, environment$/],
    [{ name: '' }, /^name is '', expected a non-empty string$/],
    [{ uuid: 'x' }, /^uuid is 'x', expected a uuid$/],
    [{ replicasetUuid: 5 }, /^replicasetUuid is 5, expected a uuid$/],
    [{ replicasetName: null }, /^replicasetName is null, expected/],
    [{ durability: 'half' }, /^durability is 'half', expected 'none' or 'full'$/],
    [{ durability: 'full' }, /^dir is needed/],
    [{ dir: 5 }, /^dir is 5, expected the path/],
    [{ snapshotBytes: '64' }, /^snapshotBytes is '64', expected a positive integer$/],
    [{ version: 3 }, /^version is 3, expected a version/],
    [{ hookTimeoutMs: Infinity }, /^hookTimeoutMs is Infinity, expected a finite number from 0$/],
    [{ hookTimeoutMs: '5' }, /^hookTimeoutMs is '5'/],
    [{ environment: { cock: {} } }, /^environment\.cock is not known; known are clock, random, dial$/],
    [{ environment: 5 }, /^environment is 5, expected an object/],
    [{ limits: 5 }, /^limits is 5, expected an object$/],
    [{ limits: { maxSession: 5 } }, /^limits\.maxSession is not a limit; known are/],
    [{ users: [] }, /^users is a list, expected users by their names$/],
    [{ users: { a: 'secret' } }, /^users\.a is 'secret', expected an object with password/],
    [{ users: { a: { pasword: 'x' } } }, /^users\.a\.pasword is not known; known are password, passwordHash, rights$/],
    [{ users: { a: { password: 12345 } } }, /^users\.a\.password is a number that does not fit, expected a string$/],
    [
      { users: { a: { passwordHash: 'short' } } },
      /^users\.a\.passwordHash is a string that does not fit, expected base64/,
    ],
    [{ users: { a: { rights: 'all' } } }, /^users\.a\.rights is 'all', expected 'super' or an object/],
    [{ users: { a: { rights: { execute: 'f' } } } }, /^users\.a\.rights\.execute is 'f', expected a list of names/],
    [{ users: { a: { rights: { read: [5] } } } }, /^users\.a\.rights\.read is a list, expected a list of names/],
    [
      { users: { a: { rights: { call: [] } } } },
      /^users\.a\.rights\.call is not known; known are execute, read, write, universe$/,
    ],
    [
      { users: { a: { rights: { universe: ['everything'] } } } },
      /^users\.a\.rights\.universe is a list, expected a list of execute, read, write, create, alter, drop$/,
    ],
    [{ replication: [] }, /^replication is a list, expected an object with number, peers/],
    [{ replication: { number: 0, peers: [] } }, /^replication\.number is 0, expected an integer from 1$/],
    [{ replication: { number: 1 } }, /^replication\.peers is missing, expected a list of the other instances$/],
    [{ replication: { number: 1, peers: [], quorums: 1 } }, /^replication\.quorums is not known/],
    [
      { replication: { number: 1, peers: [peer], quorum: 3 } },
      /^replication\.quorum is 3, expected 1 to 2, the number of instances$/,
    ],
    [{ replication: { number: 2, peers: [peer] } }, /^replication\.peers the numbers 2, 2 are not all different$/],
    [
      { replication: { number: 1, peers: [{ ...peer, uuid: 'x' }] } },
      /^replication\.peers\[0\]\.uuid is 'x', expected a uuid$/,
    ],
    [
      { replication: { number: 1, peers: [{ ...peer, address: 'h:1' }] } },
      /^replication\.peers\[0\]\.address is 'h:1', expected an address: \{ host, port \}/,
    ],
    [
      { replication: { number: 1, peers: [], credential: { user: 'u', passwort: 'p' } } },
      /^replication\.credential\.passwort is not known; known are user, password, hash1$/,
    ],
    [
      { replication: { number: 1, peers: [], quorumTimeoutMs: -1 } },
      /^replication\.quorumTimeoutMs is -1, expected a number from 0$/,
    ],
    [{ vshard: {} }, /^vshard\.bucketCount is missing, expected a positive integer$/],
    [
      { vshard: { bucketCount: 10, identification: 'number' } },
      /^vshard\.identification is 'number', expected 'uuid' or 'name'$/,
    ],
    [
      { vshard: { bucketCount: 10, rebalancerMode: 'on' } },
      /^vshard\.rebalancerMode is 'on', expected 'auto', 'manual' or 'off'$/,
    ],
    [
      { vshard: { bucketCount: 10, sched_ref_quota: 3 } },
      /^vshard\.sched_ref_quota is not known; known are bucketCount, /,
    ],
    [{ vshard: { bucketCount: 10, schedRefQuota: NaN } }, /^vshard\.schedRefQuota is NaN, expected a number from 0$/],
    [
      { vshard: { bucketCount: 10, rebalancerMaxSending: 16 } },
      /^vshard\.rebalancerMaxSending is 16, expected an integer from 1 to 15$/,
    ],
    [
      { vshard: { bucketCount: 10, replicasets: {} } },
      /^vshard\.replicasets is an object, expected a list of the replicasets of the cluster$/,
    ],
    [{ vshard: { bucketCount: 10, replicasets: [{ id: 'a' }] } }, /^vshard\.replicasets\.a\.instances is missing/],
    [
      { vshard: { bucketCount: 10, replicasets: [{ id: 'a', instances: [{ id: 'a1' }] }] } },
      /^vshard\.replicasets\.a\.instances\[0\]\.uri is missing/,
    ],
    [
      { vshard: { bucketCount: 10, replicasets: [{ id: 'a', instances: [], locked: true }] } },
      /^vshard\.replicasets\.a\.locked is not known/,
    ],
  ])('refuses %o', (options, line) => {
    const problems = problemsOf(() => createStorage({ name: 'x', ...options }))
    expect(problems).toHaveLength(1)
    expect(problems[0]).toMatch(line)
  })

  it('names everything that is wrong, at every level, and shows no password', () => {
    const options = {
      nam: 'x',
      users: { a: { password: { secret: 'hunter2' }, passwordHash: 'hunter2', rights: { read: 'x' } } },
      vshard: { bucketCount: 0 },
      replication: { number: 1, peers: [{}] },
    }
    const problems = problemsOf(() => createStorage(options as unknown as StorageOptions))
    expect(problems.map((problem) => problem.split(' ')[0])).toEqual([
      'nam',
      'name',
      'users.a.password',
      'users.a.passwordHash',
      'users.a.passwordHash',
      'users.a.rights.read',
      'replication.peers[0].number',
      'replication.peers[0].uuid',
      'replication.peers[0].address',
      'vshard.bucketCount',
    ])
    expect(problems.join()).not.toContain('hunter2')
  })

  it.each([undefined, null, 'x', []])('refuses %o in place of options', (options) => {
    expect(problemsOf(() => createStorage(options as unknown as StorageOptions))[0]).toMatch(
      /expected an object with name/,
    )
  })
})

describe('createSpace', () => {
  const id = { name: 'id', type: 'unsigned' }
  it.each<[object, RegExp]>([
    [{}, /^format is missing, expected a list of fields$/],
    [{ format: [id], index: [] }, /^index is not known; known are format, indexes, isLocal, ifNotExists$/],
    [{ format: [id], isLocal: 'yes' }, /^isLocal is 'yes', expected true or false$/],
    [{ format: [] }, /^format has no fields/],
    [{ format: ['id'] }, /^format\[0\] is 'id', expected an object with name, type, isNullable$/],
    [{ format: [{ name: 'id', type: 'uint' }] }, /^format\[0\]\.type is 'uint', expected a type of field/],
    [{ format: [{ ...id, nullable: true }] }, /^format\[0\]\.nullable is not known/],
    [{ format: [id, id] }, /^format\[1\]\.name is 'id', which another field has already$/],
    [
      { format: [{ name: 'id' }] },
      /^format\[0\]\.type index 'primary' cannot be built over field 'id' of type 'any', which is the type of a field without one; expected unsigned, /,
    ],
    [
      { format: [{ name: 'id', type: 'map' }] },
      /^format\[0\]\.type index 'primary' cannot be built over field 'id' of type 'map'; expected/,
    ],
    [{ format: [{ ...id, isNullable: true }] }, /^format\[0\]\.isNullable is true, but the primary key/],
    [{ format: [id], indexes: [] }, /^indexes is an empty list/],
    [
      { format: [id], indexes: [{ name: 'pk' }] },
      /^indexes\[0\]\.parts is missing, expected a list of names of fields/,
    ],
    [{ format: [id], indexes: [{ name: 'pk', parts: 'id' }] }, /^indexes\[0\]\.parts is 'id', expected a list/],
    [
      { format: [id], indexes: [{ name: 'pk', parts: [] }] },
      /^indexes\[0\]\.parts is a list, expected a list of names of fields, one at least$/,
    ],
    [
      { format: [id], indexes: [{ name: 'pk', parts: ['ID'] }] },
      /^indexes\[0\]\.parts\[0\] is 'ID', which is no field of the format; it has id$/,
    ],
    [
      { format: [id], indexes: [{ name: 'pk', parts: ['id'], unique: true }] },
      /^indexes\[0\]\.unique is not known; known are name, type, isUnique, parts$/,
    ],
    [
      { format: [id], indexes: [{ name: 'pk', parts: ['id'], type: 'rtree' }] },
      /^indexes\[0\]\.type is 'rtree', expected 'tree' or 'hash'$/,
    ],
    [
      { format: [id], indexes: [{ name: 'pk', parts: ['id'], isUnique: false }] },
      /^indexes\[0\]\.isUnique is false, expected true/,
    ],
    [
      {
        format: [id],
        indexes: [
          { name: 'pk', parts: ['id'] },
          { name: 'pk', parts: ['id'] },
        ],
      },
      /^indexes\[1\]\.name is 'pk', which another index has already$/,
    ],
    [
      {
        format: [id, { name: 'a', isNullable: true }],
        indexes: [
          { name: 'pk', parts: ['id'] },
          { name: 'a', parts: ['a'] },
        ],
      },
      /^indexes\[1\]\.parts\[0\] index 'a' cannot be built over field 'a' of type 'any'/,
    ],
  ])('refuses %o', (options, line) => {
    const { storage } = startAlone()
    const problems = problemsOf(() => storage.createSpace('s', options as SpaceOptions))
    expect(problems).toHaveLength(1)
    expect(problems[0]).toMatch(line)
    expect(() => storage.space('s')).toThrow(/does not exist/)
  })

  it('refuses a name that is none', () => {
    const { storage } = startAlone()
    expect(() => storage.createSpace('', { format: [{ name: 'id', type: 'unsigned' }] })).toThrow(
      /name of a space is ''/,
    )
  })
})

describe('vshard.configure', () => {
  it.each<[object, RegExp]>([
    [{ bucketCount: 20 }, /^vshard\.bucketCount is 20, and cannot be another than it was$/],
    [{ identification: 'name' }, /^vshard\.identification is 'name', and cannot be another than it was$/],
    [{ weights: {} }, /^vshard\.weights is not known; known are bucketCount, /],
  ])('refuses %o, and leaves everything as it was', (options, line) => {
    const { storage } = startAlone({ vshard: { bucketCount: 10, rebalancerDisbalanceThreshold: 5 } })
    const problems = problemsOf(() => storage.vshard.configure({ rebalancerDisbalanceThreshold: 7, ...options }))
    expect(problems).toHaveLength(1)
    expect(problems[0]).toMatch(line)
    expect(storage.vshard.info().rebalancer.thresholdPercent).toBe(5)
  })
})

describe('what is given to a storage later', () => {
  it('is checked alike', () => {
    const { storage } = startAlone()
    expect(() => storage.define('g', 5 as unknown as () => void)).toThrow("Function 'g' is 5, expected a function")
    expect(() => storage.define(5 as unknown as string, () => 1)).toThrow('The name of a function is 5')
    expect(() => storage.watch('k', 'x' as unknown as () => void)).toThrow(
      "The watcher of 'k' is 'x', expected a function",
    )
    expect(() => storage.watch(null as unknown as string, () => 1)).toThrow('The key of an event is null')
    expect(() => storage.setUser('', {})).toThrow('The name of a user is')
    expect(problemsOf(() => storage.setUser('a', { right: 'super' } as UserOptions))).toEqual([
      'users.a.right is not known; known are password, passwordHash, rights',
    ])
    expect(problemsOf(() => storage.setUser('a', 'super' as UserOptions))).toHaveLength(1)
  })
})
