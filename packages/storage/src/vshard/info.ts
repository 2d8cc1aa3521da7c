/*
 * What the storage says of its health: alerts with vshard's names, texts and thresholds, and the whole of it in the shape of
 * `vshard.storage.info()` (vectors: info.json).
 */
import { toSeconds, VshardError } from '@orbweaver/vshard'
import type { ReplicasetConfig, VshardErrorName } from '@orbweaver/vshard'
import type { BucketStatus } from './bucket-record.js'
import type { InternalParts, MasterUpstream } from './internal-services.js'

/** 0 green, 1 yellow, 2 orange, 3 red. */
export type HealthStatus = 0 | 1 | 2 | 3

export interface Alert {
  readonly name: VshardErrorName
  readonly text: string
  readonly status: HealthStatus
}

export interface InfoParts extends InternalParts {
  readonly isEnabled: boolean
  /** How many other instances this replicaset has. */
  readonly replicaCount: number
}

/* Lag of the last row, or silence of a broken link, in milliseconds: vshard's 1, 5 and 10 seconds. */
const SOFT_MS = 1_000
const HARD_MS = 5_000
const FAIL_MS = 10_000

export function alertsOf(parts: InfoParts): Alert[] {
  const { buckets, identity } = parts
  const alerts = identity.isMaster ? masterAlerts(parts) : replicaAlerts(parts)
  if (buckets.count('sending') > 0 && buckets.count('receiving') > 0) alerts.push(alert('INVALID_REBALANCING', 1))
  return alerts
}

export function worstOf(alerts: readonly Alert[]): HealthStatus {
  return alerts.reduce<HealthStatus>((worst, { status }) => (status > worst ? status : worst), 0)
}

function masterAlerts({ identity, own, replicaCount }: InfoParts): Alert[] {
  const { unconnected } = own
  const alerts = unconnected.map((replica) => alert('UNREACHABLE_REPLICA', 1, { replica }))
  const available = replicaCount - unconnected.length
  if (replicaCount > 0 && available === 0)
    alerts.push(alert('UNREACHABLE_REPLICASET', 3, { replicaset: identity.replicasetId }))
  else if (replicaCount > 1 && available === 1) alerts.push(alert('LOW_REDUNDANCY', 2))
  return alerts
}

function replicaAlerts(parts: InfoParts): Alert[] {
  const { identity } = parts
  const upstream = parts.masterUpstream()
  if (upstream === undefined) return [alert('MISSING_MASTER', 2, { replicaset: identity.replicasetId })]
  if (upstream.status !== 'follow') {
    const fields = { replicaset: identity.replicasetId, reason: upstream.status }
    return [alert('UNREACHABLE_MASTER', statusOfSilence(upstream.idleMs), fields)]
  }
  const { lagMs = 0 } = upstream
  if (lagMs >= FAIL_MS) return [alert('OUT_OF_SYNC', 3)]
  if (lagMs < SOFT_MS) return []
  return [alert('HIGH_REPLICATION_LAG', lagMs >= HARD_MS ? 2 : 1, { lag: toSeconds(lagMs) })]
}

function statusOfSilence(idleMs: number | undefined): HealthStatus {
  if (idleMs === undefined) return 1
  return idleMs > FAIL_MS ? 3 : idleMs > HARD_MS ? 2 : 1
}

function alert(name: VshardErrorName, status: HealthStatus, fields: Record<string, unknown> = {}): Alert {
  return { name, text: VshardError.of(name, fields).message, status }
}

/** Buckets by status, as vshard counts them: those that have left are its garbage, pinned ones are active, too. */
export function storageInfo(parts: InfoParts): Record<string, unknown> {
  const { buckets, identity, isEnabled, isLocked, name, settings } = parts
  const alerts = alertsOf(parts)
  const count = (status: BucketStatus): number => buckets.count(status)
  const own = settings.replicasets.get(identity.replicasetId)?.instances.find(({ id }) => id === identity.instanceId)
  return {
    replicasets: Object.fromEntries(
      [...settings.replicasets.values()].map((replicaset) => [replicaset.id, replicasetInfo(parts, replicaset)]),
    ),
    bucket: {
      total: buckets.size,
      active: count('active') + count('pinned'),
      pinned: count('pinned'),
      readonly: count('readonly'),
      sending: count('sending'),
      receiving: count('receiving'),
      garbage: count('sent'),
      ...(isLocked ? { lock: true } : {}),
    },
    ...(own === undefined ? {} : { uri: withoutPassword(own.uri) }),
    identification_mode: name === undefined ? 'uuid_as_key' : 'name_as_key',
    status: worstOf(alerts),
    is_enabled: isEnabled,
    replication: identity.isMaster ? { status: 'master' } : replicationInfo(parts.masterUpstream()),
    alerts: alerts.map((each) => [each.name, each.text]),
  }
}

function replicationInfo(upstream: MasterUpstream | undefined): Record<string, unknown> {
  if (upstream === undefined) return { status: 'slave' }
  const { status, idleMs, lagMs } = upstream
  if (status !== 'follow') return { status, ...(idleMs === undefined ? {} : { idle: toSeconds(idleMs) }) }
  return { status, ...(lagMs === undefined ? {} : { lag: toSeconds(lagMs) }) }
}

function replicasetInfo(parts: InfoParts, replicaset: ReplicasetConfig): Record<string, unknown> {
  const { id, uuid, name, master, instances } = replicaset
  const isNamed = parts.name !== undefined
  const named = { ...(uuid === undefined ? {} : { uuid }), ...(isNamed ? { name: name ?? id } : {}) }
  if (master === undefined || master === 'auto') return { ...named, master: master ?? 'missing' }
  const instance = instances.find((candidate) => candidate.id === master)
  if (instance === undefined) return { ...named, master: 'missing' }
  const state = masterState(parts, replicaset)
  return {
    ...named,
    master: {
      uri: withoutPassword(instance.uri),
      ...(isNamed ? { name: instance.name ?? master } : {}),
      // As vshard, which knows it of the peer it is connected to.
      ...(state === undefined ? {} : { state, uuid: instance.uuid ?? master }),
    },
  }
}

function masterState({ cluster, identity }: InfoParts, { id, master }: ReplicasetConfig): string | undefined {
  if (id !== identity.replicasetId) return cluster.find(id)?.masterState
  return identity.isMaster && master === identity.instanceId ? 'active' : undefined
}

/** `user:password@host:port` as `user@host:port`. */
function withoutPassword(uri: string): string {
  return uri.replace(/^([^:@/]*):[^@]*@/, '$1@')
}
