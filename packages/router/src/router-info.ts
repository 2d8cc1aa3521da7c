/* What a router believes, in vshard's terms: which buckets can be written, read or not at all, and what is wrong. */
import type { InstanceInfo, ReplicasetInfo } from '@orbweaver/replicaset'
import { VshardError } from '@orbweaver/vshard'
import type { ClusterConfig, VshardErrorName } from '@orbweaver/vshard'
import type { RouterAlert } from './alerts.js'
import type { SetDiscovery } from './discovery.js'

/** The worst of what is wrong: vshard's 0 to 3. */
export type RouterStatus = 'green' | 'yellow' | 'orange' | 'red'

/** What calls to a bucket can be expected to do: vshard's words. */
export type BucketAvailability = 'availableRw' | 'availableRo' | 'unreachable' | 'unknown'

export interface RouterInfo {
  readonly name: string
  readonly isEnabled: boolean
  readonly status: RouterStatus
  readonly alerts: readonly RouterAlert[]
  readonly identification: 'uuid' | 'name'
  readonly bucketCount: number
  /** Buckets whose replicaset is known. */
  readonly known: number
  /** All buckets, by what can be done with them. */
  readonly buckets: Readonly<Record<BucketAvailability, number>>
  /** +1 with every other set of replicasets. */
  readonly topologyVersion: number
  readonly replicasets: readonly ReplicasetSummary[]
}

export interface ReplicasetSummary {
  readonly id: string
  readonly name: string | undefined
  readonly uuid: string | undefined
  /** Id of the master, as far as it is known. */
  readonly master: string | undefined
  /** Id of the instance that reads without a wish go to. */
  readonly replica: string | undefined
  /** Buckets known to be there. */
  readonly buckets: number
  readonly availability: Exclude<BucketAvailability, 'unknown'>
  readonly instances: readonly InstanceInfo[]
  /** undefined: it is not read, since discovery is off. */
  readonly discovery: SetDiscovery | undefined
}

/** A replicaset, seen by its router. */
interface SeenSet {
  readonly definition: ClusterConfig['replicasets'][number]
  readonly info: ReplicasetInfo
  readonly buckets: number
  readonly discovery: SetDiscovery | undefined
}

export interface InfoParts {
  readonly name: string
  readonly isEnabled: boolean
  readonly identification: 'uuid' | 'name'
  readonly bucketCount: number
  readonly known: number
  readonly topologyVersion: number
  readonly sets: readonly SeenSet[]
  /** Of the router itself. */
  readonly alerts: readonly RouterAlert[]
}

export function describeRouter(parts: InfoParts): RouterInfo {
  const { bucketCount, known, sets } = parts
  const replicasets = sets.map(summaryOf)
  const buckets: Record<BucketAvailability, number> = {
    availableRw: 0,
    availableRo: 0,
    unreachable: 0,
    unknown: bucketCount - known,
  }
  for (const summary of replicasets) buckets[summary.availability] += summary.buckets
  const found = [
    ...sets.flatMap((set, i) => alertsOf(set, replicasets[i]!)),
    ...parts.alerts.map((alert): [RouterStatus, RouterAlert] => ['yellow', alert]),
  ]
  if (buckets.unknown > 0)
    found.push(['yellow', alertOf('UNKNOWN_BUCKETS', { not_discovered_cnt: buckets.unknown }, undefined)])
  const { alerts: _own, sets: _sets, ...rest } = parts
  return {
    ...rest,
    status: found.reduce<RouterStatus>((worst, [status]) => (RANK[status] > RANK[worst] ? status : worst), 'green'),
    alerts: found.map(([, alert]) => alert),
    buckets,
    replicasets,
  }
}

/** What can be done with the buckets of a replicaset now. */
export function availabilityOf(info: ReplicasetInfo): Exclude<BucketAvailability, 'unknown'> {
  if (info.instances.some(({ id, state }) => id === info.master && isUp(state))) return 'availableRw'
  return info.instances.some(isReadable) ? 'availableRo' : 'unreachable'
}

const RANK: Readonly<Record<RouterStatus, number>> = { green: 0, yellow: 1, orange: 2, red: 3 }

function summaryOf({ definition, info, buckets, discovery }: SeenSet): ReplicasetSummary {
  return {
    id: definition.id,
    name: definition.name,
    uuid: definition.uuid,
    master: info.master,
    replica: info.instances.find(isReadable)?.id,
    buckets,
    availability: availabilityOf(info),
    instances: info.instances,
    discovery,
  }
}

function alertsOf({ definition, info }: SeenSet, summary: ReplicasetSummary): [RouterStatus, RouterAlert][] {
  const { id } = definition
  const found: [RouterStatus, RouterAlert][] = []
  if (info.master === undefined) found.push(['orange', alertOf('MISSING_MASTER', { replicaset: id }, id)])
  else if (summary.availability !== 'availableRw')
    found.push(['orange', alertOf('UNREACHABLE_MASTER', { replicaset: id, reason: 'no connection' }, id)])
  if (summary.availability === 'unreachable')
    found.push(['red', alertOf('UNREACHABLE_REPLICASET', { replicaset: id }, id)])
  // Instances are listed nearest first.
  else if (info.instances[0]?.id !== summary.replica)
    found.push(['yellow', alertOf('SUBOPTIMAL_REPLICA', { replicaset: id }, id)])
  for (const alert of info.alerts) found.push(['yellow', { name: alert.code, message: alert.message, replicaset: id }])
  return found
}

function alertOf(
  name: VshardErrorName,
  fields: Readonly<Record<string, unknown>>,
  replicaset: string | undefined,
): RouterAlert {
  const { message } = VshardError.of(name, fields)
  return replicaset === undefined ? { name, message } : { name, message, replicaset }
}

function isReadable({ state, silent, stopping, restMs }: InstanceInfo): boolean {
  return isUp(state) && !silent && !stopping && restMs === 0
}

function isUp(state: InstanceInfo['state']): boolean {
  return state !== 'DOWN' && state !== 'CONNECTING'
}
