import type { Credential, Environment } from '@orbweaver/connection'
import { ConfigError } from '@orbweaver/iproto'
import type { ServerLimits } from '@orbweaver/server'
import type { ReplicasetConfig } from '@orbweaver/vshard'
import type { JournalFiles } from './journal/journal-files.js'
import type { PeerDefinition } from './replication/replication.js'
import type { UserOptions } from './users.js'

/** An embedded storage: one instance, alone or one of a replicaset. */
export interface StorageOptions {
  /** Name of this instance, for people and for vshard where instances are identified by name. */
  readonly name: string
  /** Default: random. */
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
  const problems: { path: string; message: string }[] = []
  if (typeof options.name !== 'string' || options.name === '')
    problems.push({ path: 'name', message: 'must be a non-empty string' })
  for (const path of ['uuid', 'replicasetUuid'] as const) {
    const value = options[path]
    if (value !== undefined && !UUID.test(value)) problems.push({ path, message: `is '${value}', which is not a uuid` })
  }
  problems.push(...rightsProblems(options.users ?? {}))
  const { replication, vshard, durability = 'none' } = options
  if (replication !== undefined && !Array.isArray(replication.peers)) {
    throw new ConfigError([{ path: 'replication.peers', message: 'must be a list of the other instances' }], {
      subject: 'storage',
    })
  }
  if (durability !== 'none' && durability !== 'full')
    problems.push({ path: 'durability', message: `is '${String(durability)}', expected 'none' or 'full'` })
  if (durability === 'full' && (options.dir === undefined || options.dir === ''))
    problems.push({ path: 'dir', message: "is needed with durability 'full': a directory of this instance alone" })
  for (const path of ['snapshotBytes', 'snapshotRows'] as const) {
    const value = options[path]
    if (value !== undefined && (!Number.isSafeInteger(value) || value < 1))
      problems.push({ path, message: `is ${value}, expected a positive integer` })
  }
  if (replication !== undefined) {
    const numbers = [replication.number, ...replication.peers.map((peer) => peer.number)]
    if (numbers.some((number) => !Number.isInteger(number) || number < 1))
      problems.push({ path: 'replication', message: 'numbers of instances are integers from 1' })
    if (new Set(numbers).size !== numbers.length)
      problems.push({ path: 'replication.peers', message: `the numbers ${numbers.join(', ')} are not all different` })
    const quorum = replication.quorum ?? 1
    if (!Number.isInteger(quorum) || quorum < 1 || quorum > numbers.length) {
      problems.push({
        path: 'replication.quorum',
        message: `is ${quorum}, expected 1 to ${numbers.length}, the number of instances`,
      })
    }
  }
  if (vshard !== undefined) problems.push(...vshardProblems(vshard))
  if (problems.length > 0) throw new ConfigError(problems, { subject: 'storage' })
}

interface NumberRule {
  readonly isRight: (value: number) => boolean
  readonly expected: string
}

const POSITIVE_INTEGER: NumberRule = {
  isRight: (value) => Number.isInteger(value) && value >= 1,
  expected: 'a positive integer',
}
const FROM_ZERO: NumberRule = { isRight: (value) => value >= 0, expected: 'a number from 0' }

const VSHARD_NUMBERS: Readonly<Partial<Record<keyof VshardOptions, NumberRule>>> = {
  bucketCount: POSITIVE_INTEGER,
  schedRefQuota: FROM_ZERO,
  schedMoveQuota: FROM_ZERO,
  rebalancerDisbalanceThreshold: FROM_ZERO,
  rebalancerMaxReceiving: { isRight: (value) => Number.isInteger(value) && value >= 0, expected: 'an integer from 0' },
  rebalancerMaxSending: {
    isRight: (value) => Number.isInteger(value) && value >= 1 && value <= 15,
    expected: 'an integer from 1 to 15',
  },
  rebalancerBucketSendTimeoutMs: FROM_ZERO,
  syncTimeoutMs: FROM_ZERO,
  moveSyncTimeoutMs: FROM_ZERO,
  maxChunkBytes: POSITIVE_INTEGER,
}

/** What cannot be right in the options of vshard. */
export function vshardProblems(options: VshardOptions): { path: string; message: string }[] {
  const problems: { path: string; message: string }[] = []
  for (const [name, { isRight, expected }] of Object.entries(VSHARD_NUMBERS)) {
    const value = options[name as keyof VshardOptions]
    if (value === undefined && name !== 'bucketCount') continue
    if (typeof value !== 'number' || !isRight(value))
      problems.push({
        path: `vshard.${name}`,
        message: `is ${typeof value === 'number' ? value : JSON.stringify(value)}, expected ${expected}`,
      })
  }
  const ids = (options.replicasets ?? []).map(({ id }) => id)
  if (new Set(ids).size !== ids.length)
    problems.push({ path: 'vshard.replicasets', message: `the ids ${ids.join(', ')} are not all different` })
  for (const { id, weight = 1 } of options.replicasets ?? []) {
    if (!Number.isFinite(weight) || weight < 0)
      problems.push({ path: `vshard.replicasets.${id}.weight`, message: `is ${weight}, expected a number from 0` })
  }
  return problems
}

/** Rights that are not understood must not silently be none. */
function rightsProblems(users: Readonly<Record<string, UserOptions>>): { path: string; message: string }[] {
  return Object.entries(users).flatMap(([name, { rights }]) => {
    const path = `users.${name}.rights`
    if (rights === undefined || rights === 'super') return []
    if (typeof rights !== 'object')
      return [{ path, message: `is '${String(rights)}', expected 'super' or lists: execute, read, write` }]
    return Object.entries(rights).flatMap(([kind, list]) => {
      if (!RIGHTS.has(kind))
        return [{ path: `${path}.${kind}`, message: 'is no right; known are execute, read and write' }]
      return list === undefined || Array.isArray(list)
        ? []
        : [{ path: `${path}.${kind}`, message: 'must be a list of names' }]
    })
  })
}

const RIGHTS: ReadonlySet<string> = new Set(['execute', 'read', 'write'])
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i
