/* Where the rebalancer runs, and what one round of it would do. Pure. */
import { planBalance } from '@orbweaver/vshard'
import type { BalancePlan, RebalancerState, ReplicasetConfig } from '@orbweaver/vshard'

/** Where it runs: on one instance, or on whoever is the master of one replicaset. */
export interface RebalancerPlace {
  readonly replicasetId: string
  /** Absent: its master. */
  readonly instanceId?: string
}

/** Source: vshard 0.1.42: what says `rebalancer = true`; in mode auto else the smallest id of a fixed master, else of a replicaset. */
export function rebalancerPlace(
  replicasets: Iterable<ReplicasetConfig>,
  mode: 'auto' | 'manual' | 'off',
): RebalancerPlace | undefined {
  if (mode === 'off') return undefined
  const all = [...replicasets].toSorted((a, b) => (a.id < b.id ? -1 : 1))
  for (const { id, instances, rebalancer } of all) {
    const pinned = instances.find((instance) => instance.rebalancer === true)
    if (pinned !== undefined) return { replicasetId: id, instanceId: pinned.id }
    if (rebalancer === true) return { replicasetId: id }
  }
  if (mode === 'manual') return undefined
  const masters = all
    .flatMap((set) => {
      const master = set.instances.find((instance) => instance.id === set.master)
      const isExcluded = set.rebalancer === false || master?.rebalancer === false
      return master === undefined || isExcluded ? [] : [{ replicasetId: set.id, instanceId: master.id }]
    })
    .toSorted((a, b) => (a.instanceId < b.instanceId ? -1 : 1))
  if (masters[0] !== undefined) return masters[0]
  const auto = all.find((set) => set.master === 'auto' && set.rebalancer !== false)
  return auto === undefined ? undefined : { replicasetId: auto.id }
}

export type RoundPlan =
  | { readonly is: 'wait'; readonly problem: string }
  | { readonly is: 'balanced' | 'move'; readonly plan: BalancePlan }

/** What to do about these counts. */
export function planRound(
  replicasets: ReadonlyMap<string, ReplicasetConfig>,
  states: ReadonlyMap<string, RebalancerState>,
  options: { readonly bucketCount: number; readonly thresholdPercent: number },
): RoundPlan {
  const total = [...states.values()].reduce((sum, { activeCount, pinnedCount }) => sum + activeCount + pinnedCount, 0)
  if (total !== options.bucketCount) {
    return { is: 'wait', problem: `the replicasets have ${total} active buckets of ${options.bucketCount}` }
  }
  const plan = planBalance(
    new Map(
      [...states].map(([id, { activeCount, pinnedCount }]) => {
        const { weight, lock } = replicasets.get(id) ?? {}
        return [id, { count: activeCount + pinnedCount, pinned: pinnedCount, weight: weight ?? 1, lock: lock === true }]
      }),
    ),
  )
  return { is: plan.disbalancePercent <= options.thresholdPercent ? 'balanced' : 'move', plan }
}
