/* What the proxy may promise in its answer to ID: what every instance has that a client may come to be served by. */
import { Feature } from '@orbweaver/iproto'

export interface Agreement {
  /** Protocol version that these features make up. */
  readonly version: number
  readonly features: ReadonlySet<number>
}

/**
 * @param targets - features of each target that was reached
 * @returns undefined when no target knows ID: then neither does the proxy
 */
export function agreementOf(targets: readonly ReadonlySet<number>[]): Agreement | undefined {
  const [first, ...rest] = targets
  if (first === undefined) return { version: 0, features: new Set() }
  const features = new Set([...first].filter((feature) => rest.every((other) => other.has(feature))))
  if (features.size === 0) return undefined
  let version = 0
  for (const feature of features) version = Math.max(version, VERSION_OF_FEATURE[feature] ?? 0)
  return { version, features }
}

/** Protocol version that brought each feature. Source: iproto_features.h, Tarantool 3.3. */
const VERSION_OF_FEATURE: Readonly<Record<number, number>> = {
  [Feature.streams]: 1,
  [Feature.transactions]: 1,
  [Feature.errorExtension]: 2,
  [Feature.watchers]: 3,
  [Feature.pagination]: 4,
  [Feature.names]: 5,
  [Feature.watchOnce]: 6,
  [Feature.dmlTupleExtension]: 7,
  [Feature.callReturnTupleExtension]: 7,
  [Feature.callArgumentTupleExtension]: 7,
  [Feature.fetchSnapshotCursor]: 8,
  [Feature.isSync]: 9,
  [Feature.insertArrow]: 10,
}
