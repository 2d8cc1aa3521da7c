import type { Credential, Environment } from '@orbweaver/connection'
import { ConfigError, isObject, optionProblems, optionRule, shownValue } from '@orbweaver/iproto'
import type { ConfigProblem, OptionRule, OptionRules } from '@orbweaver/iproto'
import type { ServerLimits } from '@orbweaver/server'
import type { ReplicasetConfig } from '@orbweaver/vshard'
import type { JournalFiles } from './journal/journal-files.js'
import type { PeerDefinition } from './replication/options.js'
import { ACCESS_VERB } from './users.js'
import type { UserOptions } from './users.js'

/** An embedded storage: one instance, alone or one of a replicaset. */
export interface StorageOptions {
  /** Name of this instance, for people and for vshard where instances are identified by name. */
  readonly name: string
  /** What the others of its replicaset know it by: with `replication.peers` it must be theirs. Default: that of the data in `dir`, else random. */
  readonly uuid?: string
  readonly replicasetUuid?: string
  readonly replicasetName?: string
  /** Who may log in. `guest` always exists, without rights. */
  readonly users?: Readonly<Record<string, UserOptions>>
  /** The other instances of its replicaset. Without them it is writable from the start. */
  readonly replication?: {
    /** Number of this instance in the replicaset, from 1: the same everywhere. */
    readonly number: number
    readonly peers: readonly PeerDefinition[]
    readonly credential?: Credential
    /** Instances that must have a write before it is acknowledged. Default 1: this one. */
    readonly quorum?: number
    /** How long a write waits for them, in milliseconds. Default 5,000. */
    readonly quorumTimeoutMs?: number
  }
  /**
   * `none`: everything is in memory only. `full`: a write that was acknowledged is on disk in `dir`, and there after any end of
   * the process; call `open()` first. Default `none`.
   */
  readonly durability?: 'none' | 'full'
  /** Directory of this instance alone, created when it is missing; or something that behaves like one. */
  readonly dir?: string | JournalFiles
  /** Bytes of journal after which a snapshot is taken. Default 64 MiB. */
  readonly snapshotBytes?: number
  /** Transactions after which a snapshot is taken. Default 1,000,000. */
  readonly snapshotRows?: number
  /** Serves `vshard.storage.*`. */
  readonly vshard?: VshardOptions
  /** What the greeting says; clients decide by it what to send. Default 2.11.0. */
  readonly version?: string
  readonly limits?: ServerLimits
  /** How long listeners of `before` may hold up a move, a demotion or the end of the storage, in milliseconds. Default 5,000. */
  readonly hookTimeoutMs?: number
  readonly environment?: Partial<Environment>
}

export interface VshardOptions {
  readonly bucketCount: number
  /** How replicasets and instances are called in errors and destinations. Default `uuid`. */
  readonly identification?: 'uuid' | 'name'
  /** Turns in a row a storage reference may take while a move of a bucket waits. vshard: `sched_ref_quota`. Default 300. */
  readonly schedRefQuota?: number
  /** Turns in a row a move may take while a reference waits. vshard: `sched_move_quota`. Default 1. */
  readonly schedMoveQuota?: number
  /** All replicasets of the cluster, this instance's own included: where buckets can move, and with which weights. Default none. */
  readonly replicasets?: readonly ReplicasetConfig[]
  /** How this instance logs in at other replicasets, where their uris name nobody. */
  readonly credential?: Credential
  /** Name or number of the index that makes a space sharded. vshard: `shard_index`. Default `bucket_id`. */
  readonly shardIndex?: string | number
  /** Where the rebalancer runs: `auto` on one master of the cluster, `manual` where a configuration says so, `off` nowhere. Default `auto`. */
  readonly rebalancerMode?: 'auto' | 'manual' | 'off'
  /** Disbalance in percent up to which nothing is moved. Default 1. */
  readonly rebalancerDisbalanceThreshold?: number
  /** Buckets this replicaset receives at the same time. Default 100. */
  readonly rebalancerMaxReceiving?: number
  /** Buckets it sends at the same time, at most 15. Default 1. */
  readonly rebalancerMaxSending?: number
  /** Limit of sending one bucket, in milliseconds. Default Infinity. */
  readonly rebalancerBucketSendTimeoutMs?: number
  /** Default timeout of `sync`. Default 1,000. */
  readonly syncTimeoutMs?: number
  /** How long a replica that does not confirm may hold up a move, in milliseconds. Default 10,000. */
  readonly moveSyncTimeoutMs?: number
  /** Bytes of rows in one message of a move (at least one row). Default 1 MiB. */
  readonly maxChunkBytes?: number
}

/** @throws ConfigError naming every option that cannot be right */
export function validateStorageOptions(options: StorageOptions): void {
  const problems = optionProblems('', options, STORAGE)
  if (isObject(options)) {
    const { users, replication, vshard, limits, environment, durability, dir } = options
    if (isObject(users)) for (const [name, user] of Object.entries(users)) problems.push(...userProblems(name, user))
    if (replication !== undefined) problems.push(...replicationProblems(replication))
    if (vshard !== undefined) problems.push(...vshardProblems(vshard))
    if (limits !== undefined && !isObject(limits))
      problems.push({ path: 'limits', message: `is ${shownValue(limits)}, expected an object` })
    if (environment !== undefined) problems.push(...optionProblems('environment', environment, ENVIRONMENT))
    if (durability === 'full' && dir === undefined)
      problems.push({ path: 'dir', message: "is needed with durability 'full': a directory of this instance alone" })
  }
  if (problems.length > 0) throw new ConfigError(problems, { subject: 'storage' })
}

// ---- users -----------------------------------------------------------------------------------------------------------

/** What cannot be right in the options of one user. Rights that are not understood must not silently be none. */
export function userProblems(name: string, user: unknown): ConfigProblem[] {
  const path = `users.${name}`
  const problems = optionProblems(path, user, USER)
  if (!isObject(user)) return problems
  const { rights, password, passwordHash } = user
  if (password !== undefined && passwordHash !== undefined)
    problems.push({ path: `${path}.passwordHash`, message: 'is given beside a password, expected one of them' })
  if (isObject(rights)) problems.push(...optionProblems(`${path}.rights`, rights, RIGHTS))
  return problems
}

const NAMES: OptionRule = {
  expected: "a list of names ('*' at the end of one covers all that begin so)",
  fits: (value) => Array.isArray(value) && value.every((name) => typeof name === 'string' && name !== ''),
}

const UNIVERSE_RIGHTS = Object.keys(ACCESS_VERB)

const RIGHTS: OptionRules = {
  execute: NAMES,
  read: NAMES,
  write: NAMES,
  universe: {
    expected: `a list of ${UNIVERSE_RIGHTS.join(', ')}`,
    fits: (value) => Array.isArray(value) && value.every((right) => UNIVERSE_RIGHTS.includes(String(right))),
  },
}

const HASH_BYTES = 20

const USER: OptionRules = {
  password: { expected: 'a string', fits: (value) => typeof value === 'string', isSecret: true },
  passwordHash: {
    expected: 'base64 of sha1(sha1(password)), 20 bytes',
    fits: (value) => typeof value === 'string' && Buffer.from(value, 'base64').length === HASH_BYTES,
    isSecret: true,
  },
  rights: {
    expected: "'super' or an object with execute, read, write, universe",
    fits: (value) => value === 'super' || isObject(value),
  },
}

// ---- replication -----------------------------------------------------------------------------------------------------

function replicationProblems(replication: unknown): ConfigProblem[] {
  const problems = optionProblems('replication', replication, REPLICATION)
  if (!isObject(replication)) return problems
  const { number, peers, quorum, credential } = replication
  if (credential !== undefined) problems.push(...optionProblems('replication.credential', credential, CREDENTIAL))
  if (!Array.isArray(peers)) return problems
  for (const [i, peer] of peers.entries()) problems.push(...optionProblems(`replication.peers[${i}]`, peer, PEER))
  const numbers = [number, ...peers.map((peer: unknown) => (isObject(peer) ? peer['number'] : undefined))]
  const given = numbers.filter((each) => each !== undefined)
  if (new Set(given).size !== given.length)
    problems.push({
      path: 'replication.peers',
      message: `the numbers ${given.map(shownValue).join(', ')} are not all different`,
    })
  if (quorum !== undefined && !optionRule.integer(1, numbers.length).fits(quorum)) {
    problems.push({
      path: 'replication.quorum',
      message: `is ${shownValue(quorum)}, expected 1 to ${numbers.length}, the number of instances`,
    })
  }
  return problems
}

const REPLICATION: OptionRules = {
  number: optionRule.required(optionRule.integer(1)),
  peers: optionRule.required({ ...optionRule.list, expected: 'a list of the other instances' }),
  credential: optionRule.object,
  quorum: optionRule.anything, // judged with the number of instances
  quorumTimeoutMs: optionRule.fromZero,
}

const PEER: OptionRules = {
  number: optionRule.required(optionRule.integer(1)),
  uuid: optionRule.required(optionRule.uuid),
  address: optionRule.required({
    expected: 'an address: { host, port }, { path } or { connect }',
    fits: (value) =>
      isObject(value) &&
      ((typeof value['host'] === 'string' && optionRule.integer(0, 65_535).fits(value['port'])) ||
        typeof value['path'] === 'string' ||
        typeof value['connect'] === 'function'),
  }),
}

const CREDENTIAL: OptionRules = {
  user: optionRule.required(optionRule.text),
  password: { expected: 'a string', fits: (value) => typeof value === 'string', isSecret: true },
  hash1: { expected: 'sha1(password), 20 bytes', fits: (value) => value instanceof Uint8Array, isSecret: true },
}

// ---- vshard ----------------------------------------------------------------------------------------------------------

/** What cannot be right in the options of vshard. */
export function vshardProblems(options: VshardOptions): ConfigProblem[] {
  const problems = optionProblems('vshard', options, VSHARD)
  if (!isObject(options)) return problems
  const { credential, replicasets } = options
  if (credential !== undefined) problems.push(...optionProblems('vshard.credential', credential, CREDENTIAL))
  if (!Array.isArray(replicasets)) return problems
  const ids = replicasets.map((replicaset) => (isObject(replicaset) ? replicaset['id'] : undefined))
  if (new Set(ids).size !== ids.length)
    problems.push({ path: 'vshard.replicasets', message: `the ids ${ids.join(', ')} are not all different` })
  for (const [i, replicaset] of replicasets.entries()) {
    const path = typeof ids[i] === 'string' ? `vshard.replicasets.${ids[i]}` : `vshard.replicasets[${i}]`
    problems.push(...optionProblems(path, replicaset, REPLICASET))
    if (!isObject(replicaset) || !Array.isArray(replicaset['instances'])) continue
    for (const [j, instance] of replicaset['instances'].entries())
      problems.push(...optionProblems(`${path}.instances[${j}]`, instance, INSTANCE))
  }
  return problems
}

const VSHARD: OptionRules = {
  bucketCount: optionRule.required(optionRule.positiveInteger),
  identification: optionRule.oneOf('uuid', 'name'),
  schedRefQuota: optionRule.fromZero,
  schedMoveQuota: optionRule.fromZero,
  replicasets: { ...optionRule.list, expected: 'a list of the replicasets of the cluster' },
  credential: optionRule.object,
  shardIndex: {
    expected: 'the name of an index or its number',
    fits: (value) => optionRule.text.fits(value) || optionRule.integer(0).fits(value),
  },
  rebalancerMode: optionRule.oneOf('auto', 'manual', 'off'),
  rebalancerDisbalanceThreshold: optionRule.fromZero,
  rebalancerMaxReceiving: optionRule.integer(0),
  rebalancerMaxSending: optionRule.integer(1, 15),
  rebalancerBucketSendTimeoutMs: optionRule.fromZero,
  syncTimeoutMs: optionRule.fromZero,
  moveSyncTimeoutMs: optionRule.fromZero,
  maxChunkBytes: optionRule.positiveInteger,
}

/* What a router reads of the same configuration is not this storage's to judge. */
const REPLICASET: OptionRules = {
  id: optionRule.required(optionRule.text),
  uuid: optionRule.anything,
  name: optionRule.anything,
  instances: optionRule.required({ ...optionRule.list, expected: 'a list of instances' }),
  master: { expected: "'auto' or the id of an instance", fits: optionRule.text.fits },
  weight: optionRule.finiteFromZero,
  lock: optionRule.flag,
  rebalancer: optionRule.flag,
}

const INSTANCE: OptionRules = {
  id: optionRule.required(optionRule.text),
  uuid: optionRule.anything,
  name: optionRule.anything,
  uri: optionRule.required({ expected: 'an address', fits: (value) => optionRule.text.fits(value) || isObject(value) }),
  zone: optionRule.anything,
  weight: optionRule.anything,
  rebalancer: optionRule.flag,
  boxOptions: optionRule.anything,
}

// ---- the storage itself ----------------------------------------------------------------------------------------------

const ENVIRONMENT: OptionRules = { clock: optionRule.object, random: optionRule.function, dial: optionRule.function }

const STORAGE: OptionRules = {
  name: optionRule.required(optionRule.text),
  uuid: optionRule.uuid,
  replicasetUuid: optionRule.uuid,
  replicasetName: optionRule.text,
  users: { ...optionRule.object, expected: 'users by their names' },
  replication: optionRule.anything, // judged by tables of their own
  durability: optionRule.oneOf('none', 'full'),
  dir: { expected: 'the path of a directory', fits: (value) => optionRule.text.fits(value) || isObject(value) },
  snapshotBytes: optionRule.positiveInteger,
  snapshotRows: optionRule.positiveInteger,
  vshard: optionRule.anything,
  version: {
    expected: 'a version such as 2.11.0',
    fits: (value) => typeof value === 'string' && /^\d+\.\d+/.test(value),
  },
  limits: optionRule.anything,
  hookTimeoutMs: optionRule.finiteFromZero,
  environment: optionRule.anything,
}
