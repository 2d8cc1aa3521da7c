/* Which replica serves a read. Pure: what is known of the replicas goes in, one of them comes out. */

/** How replicas share the reads. */
export interface BalanceOptions {
  /**
   * `least-inflight`: least in flight for its weight, and in turns where that is equal; `round-robin`; `random-2`: the better one
   * of two taken at random; `zone-first`: as the first, among those of the proxy's own `zone` while there are any. Default
   * `least-inflight`.
   */
  readonly policy?: 'least-inflight' | 'round-robin' | 'random-2' | 'zone-first'
  /** Where the proxy is, in the words of `targets.….zone`. */
  readonly zone?: string
  /** How long a replica that has come back gets less than its share, growing from a tenth, in milliseconds. Default 5,000. */
  readonly slowStartMs?: number
  /** Replicas further behind serve no reads, in milliseconds. Default: no limit. */
  readonly maxReplicaLagMs?: number
  /** How far a target is behind, in milliseconds; undefined: not known. The proxy itself does not ask. */
  readonly lagMs?: (target: string) => number | undefined
  /** Whether a replica of which that is not known serves reads. Default true. */
  readonly servesWithoutLag?: boolean
}

/** What is known of a replica. */
export interface Replica {
  readonly name: string
  readonly weight: number
  readonly zone: string | undefined
  readonly inFlight: number
  /** Instant on the clock at which it came back; -Infinity: it was always here. */
  readonly upSince: number
}

export class Balancer {
  readonly #options: BalanceOptions
  readonly #random: () => number
  #turn = 0

  constructor(options: BalanceOptions, random: () => number) {
    this.#options = options
    this.#random = random
  }

  /** @param replicas - those that can be reached */
  pick<R extends Replica>(replicas: readonly R[], now: number): R | undefined {
    const { maxReplicaLagMs, policy = 'least-inflight', zone } = this.#options
    let fit =
      maxReplicaLagMs === undefined ? replicas : replicas.filter(({ name }) => this.#isCurrent(name, maxReplicaLagMs))
    if (policy === 'zone-first') {
      const near = fit.filter((replica) => replica.zone !== undefined && replica.zone === zone)
      if (near.length > 0) fit = near
    }
    if (fit.length === 0) return undefined
    this.#turn++
    if (policy === 'round-robin') return this.#inTurn(fit, now)
    if (policy === 'random-2' && fit.length > 2) {
      const first = Math.floor(this.#random() * fit.length)
      const second = (first + 1 + Math.floor(this.#random() * (fit.length - 1))) % fit.length
      fit = [fit[first]!, fit[second]!]
    }
    return this.#least(fit, now)
  }

  #least<R extends Replica>(fit: readonly R[], now: number): R | undefined {
    let best: R | undefined
    let least = Number.POSITIVE_INFINITY
    for (let i = 0; i < fit.length; i++) {
      const replica = fit[(this.#turn + i) % fit.length]!
      const share = this.#shareOf(replica, now)
      // With the one to come: else weights and shares would say nothing while all are idle.
      const load = (replica.inFlight + 1) / (replica.weight * share)
      if (load >= least) continue
      best = replica
      least = load
    }
    return best
  }

  /** One that has just come back is passed over in most turns. */
  #inTurn<R extends Replica>(fit: readonly R[], now: number): R {
    for (let i = 0; i < fit.length; i++) {
      const replica = fit[(this.#turn + i) % fit.length]!
      const share = this.#shareOf(replica, now)
      if (share >= 1 || this.#random() < share) return replica
    }
    return fit[this.#turn % fit.length]!
  }

  #shareOf({ upSince }: Replica, now: number): number {
    const { slowStartMs = DEFAULT_SLOW_START_MS } = this.#options
    const elapsed = now - upSince
    return elapsed >= slowStartMs ? 1 : FIRST_SHARE + (1 - FIRST_SHARE) * (elapsed / slowStartMs)
  }

  #isCurrent(name: string, maxLagMs: number): boolean {
    const lagMs = this.#options.lagMs?.(name)
    return lagMs === undefined ? this.#options.servesWithoutLag !== false : lagMs <= maxLagMs
  }
}

const DEFAULT_SLOW_START_MS = 5_000
const FIRST_SHARE = 0.1
