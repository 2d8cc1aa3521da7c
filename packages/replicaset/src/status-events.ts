/**
 * What the servers' built-in keys and polls say, taken apart with suspicion: before `box.cfg` the keys hold empty maps, and
 * any instance may be half configured. A value without the expected booleans says nothing; it is never read as "writable".
 */
import { Uuid } from '@orbweaver/iproto'

/** Keys every server from 2.10 on broadcasts. `box.shutdown` is acknowledged by the connection itself too. */
export const WATCHED_KEYS = {
  status: 'box.status',
  election: 'box.election',
  shutdown: 'box.shutdown',
  id: 'box.id',
} as const

/** `box.status`: `{is_ro, is_ro_cfg, status}`. Source: Tarantool 3.2.1, seen on the wire. */
export interface StatusValue {
  /** True for any reason to refuse writes, and while the instance does not run yet (`loading`, `orphan`, `hot_standby`). */
  readonly isRo: boolean
  readonly status: string | undefined
  /** It serves nothing yet. */
  readonly isLoading: boolean
}

/** `box.election`: `{term, role, is_ro, leader}`. A replica without elections has `{}` here until its `is_ro` first changes. */
export interface ElectionValue {
  readonly term: number
  readonly isRo: boolean
  /** Numeric id of the leader within the replicaset; undefined: unknown (0 on the wire). */
  readonly leader: number | undefined
}

/** `box.id`: who the peer is. */
export interface IdentityValue {
  readonly memberId: number | undefined
  readonly instanceUuid: string | undefined
  readonly replicasetUuid: string | undefined
  readonly instanceName: string | undefined
}

/** What a poll tells. */
export interface PollValue {
  readonly isRo: boolean
  /** Only where the answer has one: `box.info.election` exists since 2.6.1. */
  readonly term: number | undefined
  readonly identity: IdentityValue | undefined
}

/** One other instance as `box.info.replication` shows it. */
export interface UpstreamValue {
  readonly uuid: string
  /** undefined: it does not follow that instance. */
  readonly status: string | undefined
  readonly lagMs: number | undefined
}

/** @returns undefined when the value is no status */
export function readStatus(value: unknown): StatusValue | undefined {
  const isRo = field(value, 'is_ro')
  if (typeof isRo !== 'boolean') return undefined
  const status = field(value, 'status')
  const text = typeof status === 'string' ? status : undefined
  return { isRo: isRo || (text !== undefined && text !== 'running'), status: text, isLoading: text === 'loading' }
}

/** @returns undefined when the value is no election state */
export function readElection(value: unknown): ElectionValue | undefined {
  const isRo = field(value, 'is_ro')
  const term = count(field(value, 'term'))
  if (typeof isRo !== 'boolean' || term === undefined) return undefined
  const leader = count(field(value, 'leader'))
  return { term, isRo, leader: leader === 0 ? undefined : leader }
}

/** Whether the value of `box.shutdown` says that the instance is leaving. */
export function readShutdown(value: unknown): boolean {
  return value === true
}

/** @returns undefined when the value names nobody */
export function readIdentity(value: unknown): IdentityValue | undefined {
  const identity: IdentityValue = {
    memberId: count(field(value, 'id')),
    instanceUuid: uuidText(field(value, 'instance_uuid')),
    replicasetUuid: uuidText(field(value, 'replicaset_uuid')),
    instanceName: text(field(value, 'instance_name')),
  }
  return identity.instanceUuid === undefined && identity.replicasetUuid === undefined ? undefined : identity
}

/** `is_master_cfg` of a dialect's election key; undefined when it says nothing. */
export function readConfiguredMaster(value: unknown): boolean | undefined {
  const flag = field(value, 'is_master_cfg')
  return typeof flag === 'boolean' ? flag : undefined
}

/**
 * The first value of a CALL of `box.info`. `status` other than `running` (loading, orphan) is read-only for now.
 * @returns undefined for an unexpected shape
 */
export function readBoxInfo(info: unknown): PollValue | undefined {
  const isRo = field(info, 'ro')
  if (typeof isRo !== 'boolean') return undefined
  const status = field(info, 'status')
  return {
    isRo: isRo || (typeof status === 'string' && status !== 'running'),
    term: count(field(field(info, 'election'), 'term')),
    identity: {
      memberId: count(field(info, 'id')),
      instanceUuid: uuidText(field(info, 'uuid')),
      replicasetUuid: uuidText(field(field(info, 'cluster'), 'uuid') ?? field(field(info, 'replicaset'), 'uuid')),
      instanceName: text(field(info, 'name')),
    },
  }
}

/** The replication part of `box.info`, for lag. */
export function readUpstreams(info: unknown): readonly UpstreamValue[] {
  const replication = field(info, 'replication')
  const entries: unknown[] =
    replication instanceof Map
      ? [...replication.values()]
      : typeof replication === 'object' && replication !== null
        ? Object.values(replication)
        : []
  const upstreams: UpstreamValue[] = []
  for (const entry of entries) {
    const uuid = uuidText(field(entry, 'uuid'))
    if (uuid === undefined) continue
    const upstream = field(entry, 'upstream')
    const lag = field(upstream, 'lag')
    upstreams.push({
      uuid,
      status: text(field(upstream, 'status')),
      lagMs: typeof lag === 'number' && lag >= 0 ? lag * 1_000 : undefined,
    })
  }
  return upstreams
}

/** A uuid in either of its forms on the wire, as lower-case text. */
export function uuidText(value: unknown): string | undefined {
  if (value instanceof Uuid) return value.toString()
  return typeof value === 'string' && value !== '' ? value.toLowerCase() : undefined
}

function field(value: unknown, name: string): unknown {
  if (value instanceof Map) return value.get(name)
  if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined
  return (value as Readonly<Record<string, unknown>>)[name]
}

function count(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : undefined
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined
}
