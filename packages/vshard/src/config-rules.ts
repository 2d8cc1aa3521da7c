/* The rules between parts of a configuration: what may be there only once, and what contradicts what. They work on a
 * view that each shape of configuration makes of itself, with its own paths, and they look at whatever is there: a
 * problem with one part must not hide the problems with the others. Source: `cfg.lua` of vshard 0.1.42. */
import type { ConfigProblem } from '@orbweaver/iproto'
import { pathText } from './config-values.js'

type Path = readonly PropertyKey[]

interface InstanceView {
  readonly path: Path
  readonly id: unknown
  readonly uri: unknown
  /** A flag; undefined when absent. */
  readonly master: unknown
  readonly rebalancer: unknown
}

export interface ReplicasetView {
  readonly path: Path
  readonly id: unknown
  readonly weight: unknown
  readonly isMasterAuto: boolean
  readonly rebalancer: unknown
  readonly instances: readonly InstanceView[]
}

export interface ClusterView {
  readonly path: Path
  readonly identification: 'uuid' | 'name'
  readonly replicasets: readonly ReplicasetView[]
  readonly weights: readonly {
    readonly path: Path
    readonly from: unknown
    readonly to: unknown
    readonly weight: unknown
  }[]
}

/** Every rule between parts that the configuration breaks. */
export function contradictionsIn(view: ClusterView): ConfigProblem[] {
  const instances = view.replicasets.flatMap((replicaset) => replicaset.instances)
  return [
    ...sharedAddresses(instances),
    ...sharedIds(view, instances),
    ...view.replicasets.flatMap(masterProblems),
    ...rebalancerProblems(view.replicasets),
    ...weightProblems(view),
    ...ownZoneProblems(view),
  ]
}

function sharedAddresses(instances: readonly InstanceView[]): ConfigProblem[] {
  return repeated(
    instances.map(({ path, uri }) => ({ path: [...path, 'uri'], key: keyOf(uri) })),
    (first) => `is the address of ${first} too: give every instance its own`,
  )
}

/** With names as ids a replicaset and an instance may have the same one. */
function sharedIds(view: ClusterView, instances: readonly InstanceView[]): ConfigProblem[] {
  const replicasetIds = view.replicasets.map(({ path, id }) => ({ path, key: keyOf(id) }))
  const instanceIds = instances.map(({ path, id }) => ({ path, key: keyOf(id) }))
  const groups = view.identification === 'name' ? [replicasetIds, instanceIds] : [[...replicasetIds, ...instanceIds]]
  return groups.flatMap((group) => repeated(group, (first) => `has the id of ${first}: give each its own`))
}

function masterProblems({ isMasterAuto, instances }: ReplicasetView): ConfigProblem[] {
  if (isMasterAuto) {
    return instances
      .filter(({ master }) => master !== undefined && master !== null)
      .map(({ path }) =>
        problem([...path, 'master'], 'contradicts the master "auto" of its replicaset: leave out one of them'),
      )
  }
  const [first, ...others] = instances.filter(({ master }) => master === true)
  return others.map(({ path }) =>
    problem([...path, 'master'], `is a second master beside ${pathText(first!.path)}: a replicaset has one at most`),
  )
}

function rebalancerProblems(replicasets: readonly ReplicasetView[]): ConfigProblem[] {
  const problems: ConfigProblem[] = []
  let chosen: Path | undefined
  for (const { path, rebalancer, instances } of replicasets) {
    for (const place of [
      { path, rebalancer, isInstance: false },
      ...instances.map((one) => ({ ...one, isInstance: true })),
    ]) {
      if (place.rebalancer !== true) continue
      const at = [...place.path, 'rebalancer']
      if (place.isInstance && rebalancer === false) {
        problems.push(problem(at, 'is true, but its replicaset excludes the rebalancer: change one of them'))
      } else if (chosen !== undefined) {
        problems.push(problem(at, `is a second place for the rebalancer beside ${pathText(chosen)}: keep one`))
      }
      chosen ??= place.path
    }
  }
  return problems
}

function weightProblems({ path, replicasets }: ClusterView): ConfigProblem[] {
  if (replicasets.length === 0 || replicasets.some(({ weight }) => weight !== 0)) return []
  return [problem(path, 'has no replicaset with a weight above 0: give at least one a weight')]
}

function ownZoneProblems({ weights }: ClusterView): ConfigProblem[] {
  return weights
    .filter(({ from, to, weight }) => keyOf(from) === keyOf(to) && typeof weight === 'number' && weight !== 0)
    .map(({ path, weight }) => problem(path, `is ${String(weight)} for a zone and itself: write 0 or leave it out`))
}

/** A problem for each place whose key an earlier place has. Places without a key are left out. */
function repeated(
  places: readonly { readonly path: Path; readonly key: string | undefined }[],
  message: (first: string) => string,
): ConfigProblem[] {
  const first = new Map<string, Path>()
  const problems: ConfigProblem[] = []
  for (const { path, key } of places) {
    if (key === undefined) continue
    const earlier = first.get(key)
    if (earlier === undefined) first.set(key, path)
    else problems.push(problem(path, message(pathText(earlier))))
  }
  return problems
}

function keyOf(value: unknown): string | undefined {
  return typeof value === 'string' || typeof value === 'number' ? String(value) : undefined
}

function problem(path: Path, message: string): ConfigProblem {
  return { path: pathText(path), message }
}
