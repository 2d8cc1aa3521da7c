/* The ideal spread of buckets, and who has to send how many to whom to reach it. Source: the balance and route
 * calculation of vshard 0.1.42, with one order for ties (by id) where Lua's iteration order decides. */
import { InvalidArgumentError } from '@orbweaver/iproto'

/** What the ideal count of a replicaset depends on. */
export interface BalanceShare {
  /** Relative, at least 0. Default 1. */
  readonly weight?: number
  /** Buckets that may not leave; a part of `count`. Default 0. */
  readonly pinned?: number
}

/** A replicaset as the rebalancer sees it. */
export interface BalanceState extends BalanceShare {
  /** Active and pinned buckets it has now. */
  readonly count: number
  /** A locked replicaset and its buckets are left out. Default false. */
  readonly lock?: boolean
}

/** What a round of rebalancing would do. */
export interface BalancePlan {
  readonly ideal: ReadonlyMap<string, number>
  /** How many each one lacks; negative: has to give away. */
  readonly needed: ReadonlyMap<string, number>
  /** Largest deviation in percent of the ideal; Infinity when one that should be empty is not. */
  readonly disbalancePercent: number
  /** Who deviates so; undefined when nobody deviates. */
  readonly disbalanced: string | undefined
  /** From source to destination to number of buckets. */
  readonly routes: ReadonlyMap<string, ReadonlyMap<string, number>>
}

/**
 * How many of `bucketCount` buckets each replicaset should have: in proportion to the weights, whole numbers, the
 * remainder spread over those with a fractional share in the reverse order of ids. A replicaset whose pinned buckets
 * exceed its share keeps them, and the rest is divided among the others.
 * @throws InvalidArgumentError for a negative or infinite weight, or when buckets are left that nobody with a weight can take
 */
export function idealBalance(
  replicasets: ReadonlyMap<string, BalanceShare>,
  bucketCount: number,
): ReadonlyMap<string, number> {
  const ideal = new Map<string, number>()
  let sharing = [...replicasets].toSorted(([a], [b]) => (a < b ? -1 : 1))
  for (const [id, { weight }] of sharing) assertWeight(id, weight ?? 1)
  let rest = bucketCount
  for (;;) {
    const shares = divide(sharing, rest)
    const overfull = sharing.filter(([id, { pinned }]) => (pinned ?? 0) > shares.get(id)!)
    if (overfull.length === 0) {
      for (const [id, share] of shares) ideal.set(id, share)
      return new Map([...replicasets.keys()].map((id) => [id, ideal.get(id)!]))
    }
    for (const [id, { pinned }] of overfull) {
      ideal.set(id, pinned ?? 0)
      rest -= pinned ?? 0
    }
    sharing = sharing.filter(([id]) => !ideal.has(id))
  }
}

/** The whole plan of one round; the ids of locked replicasets are in none of its maps. */
export function planBalance(replicasets: ReadonlyMap<string, BalanceState>): BalancePlan {
  const open = new Map([...replicasets].filter(([, { lock }]) => lock !== true))
  const total = [...open.values()].reduce((sum, { count }) => sum + count, 0)
  const ideal = idealBalance(open, total)
  const needed = new Map([...open].map(([id, { count }]) => [id, ideal.get(id)! - count]))
  let disbalancePercent = 0
  let disbalanced: string | undefined
  for (const id of [...open.keys()].toSorted()) {
    const percent = deviation(ideal.get(id)!, open.get(id)!.count)
    if (percent > disbalancePercent) {
      disbalancePercent = percent
      disbalanced = id
    }
  }
  return { ideal, needed, disbalancePercent, disbalanced, routes: routesFor(needed) }
}

/** Everyone who gives puts into a pool; every taker in turn drains it. */
function routesFor(needed: ReadonlyMap<string, number>): Map<string, Map<string, number>> {
  const ids = [...needed.keys()].toSorted()
  const pool = ids.filter((id) => needed.get(id)! < 0).map((id) => ({ id, left: -needed.get(id)! }))
  const routes = new Map<string, Map<string, number>>()
  for (const taker of ids) {
    let missing = Math.max(0, needed.get(taker)!)
    for (const giver of pool) {
      const count = Math.min(missing, giver.left)
      if (count === 0) continue
      giver.left -= count
      missing -= count
      const from = routes.get(giver.id) ?? new Map<string, number>()
      routes.set(giver.id, from.set(taker, count))
    }
  }
  return routes
}

function deviation(ideal: number, count: number): number {
  if (ideal === 0) return count === 0 ? 0 : Infinity
  return (Math.abs(ideal - count) / ideal) * 100
}

/** Shares rounded up, then the excess taken back one by one from those that were rounded. */
function divide(sharing: readonly (readonly [string, BalanceShare])[], buckets: number): Map<string, number> {
  const weights = sharing.reduce((sum, [, { weight }]) => sum + (weight ?? 1), 0)
  if (weights === 0 && buckets > 0) {
    throw new InvalidArgumentError(
      `${buckets} buckets are left and no replicaset that may take them has a weight above 0`,
    )
  }
  const shares = new Map<string, number>()
  const rounded: string[] = []
  for (const [id, { weight }] of sharing) {
    const exact = weights === 0 ? 0 : ((weight ?? 1) * buckets) / weights
    // A share such as 99.99999999999999 is the whole number that floating point missed.
    const whole = Math.round(exact)
    const isWhole = Math.abs(exact - whole) < 1e-9 * Math.max(1, exact)
    shares.set(id, isWhole ? whole : Math.ceil(exact))
    if (!isWhole) rounded.push(id)
  }
  let excess = [...shares.values()].reduce((sum, share) => sum + share, 0) - buckets
  for (const id of rounded) {
    if (excess <= 0) break
    shares.set(id, shares.get(id)! - 1)
    excess--
  }
  return shares
}

function assertWeight(id: string, weight: number): void {
  if (!Number.isFinite(weight) || weight < 0) {
    throw new InvalidArgumentError(`The weight of replicaset ${id} is ${weight}, it must be a number of at least 0`)
  }
}
