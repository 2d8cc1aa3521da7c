/* vshard's options with their defaults filled in; replaced as a whole when the configuration changes. */
import type { Credential } from '@orbweaver/connection'
import { VSHARD_DEFAULTS } from '@orbweaver/vshard'
import type { ReplicasetConfig } from '@orbweaver/vshard'
import type { VshardOptions } from '../config.js'

export interface VshardSettings {
  readonly bucketCount: number
  readonly replicasets: ReadonlyMap<string, ReplicasetConfig>
  readonly credential: Credential | undefined
  readonly shardIndex: string | number
  readonly rebalancerMode: 'auto' | 'manual' | 'off'
  readonly rebalancerDisbalanceThreshold: number
  readonly rebalancerMaxReceiving: number
  readonly rebalancerMaxSending: number
  readonly rebalancerBucketSendTimeoutMs: number
  readonly syncTimeoutMs: number
  readonly moveSyncTimeoutMs: number
  readonly maxChunkBytes: number
  readonly schedRefQuota: number
  readonly schedMoveQuota: number
}

export function resolveVshardSettings(options: VshardOptions): VshardSettings {
  const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as VshardOptions
  return {
    ...VSHARD_DEFAULTS,
    moveSyncTimeoutMs: DEFAULT_MOVE_SYNC_TIMEOUT_MS,
    maxChunkBytes: DEFAULT_MAX_CHUNK_BYTES,
    ...given,
    credential: options.credential,
    replicasets: new Map((options.replicasets ?? []).map((replicaset) => [replicaset.id, replicaset])),
  }
}

/** vshard waits for a minute, with the bucket readonly. */
const DEFAULT_MOVE_SYNC_TIMEOUT_MS = 10_000
const DEFAULT_MAX_CHUNK_BYTES = 1024 * 1024
