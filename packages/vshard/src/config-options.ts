/* One table for the options of vshard in both spellings: what they may be, and how a value of vshard's becomes ours. */
import type { z } from 'zod'
import type { VshardOptions } from './config.js'
import * as values from './config-values.js'

export interface OptionRule {
  readonly name: keyof VshardOptions
  /** The name in vshard's own configuration. */
  readonly vshardName: string
  /** A second name it may have there; the first one wins. */
  readonly alias?: string
  readonly schema: z.ZodType
  /** Seconds in vshard's configuration, milliseconds in ours. */
  readonly isTime: boolean
}

export const OPTION_RULES: readonly OptionRule[] = [
  option('shardIndex', 'shard_index', values.indexRef),
  option('rebalancerDisbalanceThreshold', 'rebalancer_disbalance_threshold', values.nonNegative),
  option('rebalancerMaxReceiving', 'rebalancer_max_receiving', values.count),
  option('rebalancerMaxSending', 'rebalancer_max_sending', values.countUpTo(15)),
  time('rebalancerBucketSendTimeoutMs', 'rebalancer_bucket_send_timeout', values.positive),
  option('rebalancerMode', 'rebalancer_mode', values.oneOf('auto', 'manual', 'off')),
  time('syncTimeoutMs', 'sync_timeout', values.nonNegative),
  time('connectionOutdateDelayMs', 'connection_outdate_delay', values.nonNegative),
  time('failoverPingTimeoutMs', 'failover_ping_timeout', values.positive),
  option('failoverSequentialFailCount', 'failover_sequential_fail_count', values.count),
  time('failoverIntervalMs', 'failover_interval', values.positive),
  time('failoverReplicaLagLimitMs', 'failover_replica_lag_limit', values.positive),
  option('discoveryMode', 'discovery_mode', values.oneOf('on', 'once', 'off')),
  { ...option('schedRefQuota', 'sched_ref_quota', values.nonNegative), alias: 'scheduler_slice_storage_ref' },
  { ...option('schedMoveQuota', 'sched_move_quota', values.nonNegative), alias: 'scheduler_slice_bucket_move' },
  option('boxCfgMode', 'box_cfg_mode', values.oneOf('auto', 'manual')),
  option('schemaManagementMode', 'schema_management_mode', values.oneOf('auto', 'manual_access')),
  option('connectionFetchSchema', 'connection_fetch_schema', values.flag),
]

/** Options of older versions that vshard 0.1.42 still takes and does not look at. */
export const DEPRECATED_OPTIONS: ReadonlySet<string> = new Set([
  'collect_bucket_garbage_interval',
  'collect_lua_garbage',
])

function option(name: keyof VshardOptions, vshardName: string, schema: z.ZodType): OptionRule {
  return { name, vshardName, schema, isTime: false }
}

function time(name: keyof VshardOptions, vshardName: string, schema: z.ZodType): OptionRule {
  return { name, vshardName, schema, isTime: true }
}
