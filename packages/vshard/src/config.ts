/* The configuration of a cluster as everything inside the project takes it: camelCase, milliseconds, lists in place of
 * maps by id. `readVshardConfig` and `readTopology` make it from other shapes. */

/** One instance of a replicaset. */
export interface InstanceConfig {
  /** The uuid or the name, whichever identifies instances in this cluster. */
  readonly id: string
  /** Checked against the greeting of the instance when it is known. */
  readonly uuid?: string
  readonly name?: string
  /** As Tarantool writes addresses: `host:port`, `user:password@host:port`, a port, `unix/:path`. */
  readonly uri: string
  /** Where the instance stands; zones are compared by their text. */
  readonly zone?: string | number
  /** Whether the rebalancer runs on this instance; at most one place of the whole cluster says true. */
  readonly rebalancer?: boolean
  /** Options of the database of this instance (`box.cfg`), by Tarantool's own names. */
  readonly boxOptions?: Readonly<Record<string, unknown>>
}

/** One replicaset: instances with the same data. */
export interface ReplicasetConfig {
  /** The uuid or the name, whichever identifies replicasets in this cluster. */
  readonly id: string
  readonly uuid?: string
  readonly name?: string
  readonly instances: readonly InstanceConfig[]
  /** The id of the instance that is the master, or `auto`: whoever is writable. Absent: there is none. */
  readonly master?: 'auto' | string
  /** Its share of the buckets relative to the others', at least 0. Default 1. */
  readonly weight?: number
  /** A locked replicaset neither gives nor takes buckets. Default false. */
  readonly lock?: boolean
  /** True: the rebalancer runs on its master. False: on none of its instances. */
  readonly rebalancer?: boolean
}

/** How far two zones are from each other, for the choice of an instance to read from. */
export interface ZoneWeight {
  readonly from: string | number
  readonly to: string | number
  /** At least 0; 0 for the own zone. */
  readonly weight: number
}

/** Options of vshard with its defaults. Names are vshard's in camelCase, times in milliseconds with `Ms`. */
export interface VshardOptions {
  /** Name or number of the index that makes a space sharded. */
  readonly shardIndex: string | number
  /** Disbalance in percent from which buckets are moved. */
  readonly rebalancerDisbalanceThreshold: number
  /** Buckets a replicaset receives at the same time. */
  readonly rebalancerMaxReceiving: number
  /** Buckets a replicaset sends at the same time, at most 15. */
  readonly rebalancerMaxSending: number
  /** Limit of sending one batch of buckets. */
  readonly rebalancerBucketSendTimeoutMs: number
  readonly rebalancerMode: 'auto' | 'manual' | 'off'
  /** Default of `sync`, and how long a demoted master waits for its replicas. */
  readonly syncTimeoutMs: number
  /** How long handles of an old configuration live. */
  readonly connectionOutdateDelayMs: number
  /** Timeout of the router's health request. */
  readonly failoverPingTimeoutMs: number
  /** Failed health requests in a row that make an instance unhealthy. */
  readonly failoverSequentialFailCount: number
  /** Period of health requests. */
  readonly failoverIntervalMs: number
  /** Lag or idle time from which replication counts as broken. */
  readonly failoverReplicaLagLimitMs: number
  readonly discoveryMode: 'on' | 'once' | 'off'
  /** Turns a scheduler gives to refs before a waiting move; may be fractional, 0 never insists. */
  readonly schedRefQuota: number
  /** Turns it gives to moves before a waiting ref. */
  readonly schedMoveQuota: number
  /** `manual`: vshard leaves the database configuration alone. */
  readonly boxCfgMode: 'auto' | 'manual'
  /** `manual_access`: vshard creates no user and no grants. */
  readonly schemaManagementMode: 'auto' | 'manual_access'
  /** Whether Lua clients read the schema when they connect. */
  readonly connectionFetchSchema: boolean
}

/** A cluster. What is left out of {@link VshardOptions} has vshard's default ({@link VSHARD_DEFAULTS}). */
export interface ClusterConfig extends Partial<VshardOptions> {
  /** Total buckets of the cluster; cannot change while the cluster lives. */
  readonly bucketCount: number
  /** What the ids of replicasets and instances are: in errors, destinations and results. */
  readonly identification: 'uuid' | 'name'
  /** Login of the router and of the storages among themselves, where an instance's uri names none. */
  readonly user: string
  readonly password: string
  readonly replicasets: readonly ReplicasetConfig[]
  /** Zone of the reader (the router). */
  readonly zone?: string | number
  readonly weights?: readonly ZoneWeight[]
  /** Options of the databases of all instances (`box.cfg`), by Tarantool's own names. */
  readonly boxOptions?: Readonly<Record<string, unknown>>
}

/** A configuration that was checked, with every default filled in. */
export type CheckedClusterConfig = ClusterConfig & VshardOptions

/** vshard 0.1.42's defaults. */
export const VSHARD_DEFAULTS: VshardOptions = {
  shardIndex: 'bucket_id',
  rebalancerDisbalanceThreshold: 1,
  rebalancerMaxReceiving: 100,
  rebalancerMaxSending: 1,
  rebalancerBucketSendTimeoutMs: Infinity,
  rebalancerMode: 'auto',
  syncTimeoutMs: 1000,
  connectionOutdateDelayMs: 0,
  failoverPingTimeoutMs: 5000,
  failoverSequentialFailCount: 3,
  failoverIntervalMs: 1000,
  failoverReplicaLagLimitMs: 30_000,
  discoveryMode: 'on',
  schedRefQuota: 300,
  schedMoveQuota: 1,
  boxCfgMode: 'auto',
  schemaManagementMode: 'auto',
  connectionFetchSchema: true,
}

/** vshard's default number of buckets. */
export const DEFAULT_BUCKET_COUNT = 3000

/**
 * How far `to` is from `from`, as the order of instances to read from needs it: 0 within one zone, Infinity where the
 * matrix says nothing or a zone is unknown.
 */
export function zoneDistance(
  weights: readonly ZoneWeight[],
  from: string | number | undefined,
  to: string | number | undefined,
): number {
  if (from === undefined || to === undefined) return Infinity
  if (String(from) === String(to)) return 0
  const found = weights.find((entry) => String(entry.from) === String(from) && String(entry.to) === String(to))
  return found?.weight ?? Infinity
}
