import type { Address, Credential, Environment } from '@orbweaver/connection'
import { ConfigError } from '@orbweaver/iproto'
import type { ServerLimits } from '@orbweaver/server'
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
}

/** A started storage's addresses. */
export interface ListenResult {
  readonly address: Address
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
  const { replication, vshard } = options
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
  if (vshard !== undefined && (!Number.isInteger(vshard.bucketCount) || vshard.bucketCount < 1)) {
    problems.push({ path: 'vshard.bucketCount', message: `is ${vshard.bucketCount}, expected a positive integer` })
  }
  if (problems.length > 0) throw new ConfigError(problems, { subject: 'storage' })
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i
