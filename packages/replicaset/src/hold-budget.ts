/**
 * Slots and bytes of waiting requests, shared by all replicasets of a router. Every member has a minimum share nobody else
 * can take, so that one failover cannot starve another. Law: the slots taken are the requests that wait, over all members.
 */
export interface HoldBudget {
  /** Requests that may wait at once, over all members. */
  readonly size: number
  /** Their bytes. */
  readonly bytes: number
  /** Requests reserved for each member; less when there are more members than fit. */
  readonly minShare: number
}

export interface HoldBudgetOptions {
  /** Default 10,000: expected writes per second times the length of an outage (2,500/s for 4 s). */
  readonly size?: number
  /** Default 64 MiB. */
  readonly bytes?: number
  /** Default 16. */
  readonly minShare?: number
}

export const HOLD_DEFAULTS = { size: 10_000, bytes: 67_108_864, minShare: 16 } as const

/** A budget to be given to several replicasets. @throws RangeError for sizes that are not positive integers */
export function createHoldBudget(options: HoldBudgetOptions = {}): HoldBudget {
  const budget: HoldBudget = {
    size: options.size ?? HOLD_DEFAULTS.size,
    bytes: options.bytes ?? HOLD_DEFAULTS.bytes,
    minShare: options.minShare ?? HOLD_DEFAULTS.minShare,
  }
  for (const [name, value] of Object.entries(budget)) {
    if (!Number.isInteger(value) || value < (name === 'minShare' ? 0 : 1)) {
      throw new RangeError(`${name} of a hold budget is ${String(value)}, expected a positive integer`)
    }
  }
  return budget
}

/** The ledger of a budget; the same for everybody who was given the same budget. */
export function ledgerOf(budget: HoldBudget): HoldLedger {
  let ledger = LEDGERS.get(budget)
  if (ledger === undefined) {
    ledger = new HoldLedger(budget)
    LEDGERS.set(budget, ledger)
  }
  return ledger
}

export class HoldLedger {
  readonly #budget: HoldBudget
  readonly #members = new Set<HoldShare>()

  constructor(budget: HoldBudget) {
    this.#budget = budget
  }

  join(): HoldShare {
    const share = new HoldShare(this)
    this.#members.add(share)
    return share
  }

  leave(share: HoldShare): void {
    this.#members.delete(share)
  }

  /** Requests that wait, over all members. */
  get taken(): number {
    let taken = 0
    for (const { slots } of this.#members) taken += slots
    return taken
  }

  /** Whether this member may take one more of that many bytes. Only asked when a request has to wait. */
  hasRoom(share: HoldShare, bytes: number): boolean {
    const { size, bytes: allBytes } = this.#budget
    const reserved = Math.min(this.#budget.minShare, Math.floor(size / this.#members.size))
    const reservedBytes = Math.floor((allBytes * reserved) / size)
    let slots = Math.max(share.slots + 1, reserved)
    let used = Math.max(share.bytes + bytes, reservedBytes)
    for (const member of this.#members) {
      if (member === share) continue
      slots += Math.max(member.slots, reserved)
      used += Math.max(member.bytes, reservedBytes)
    }
    return slots <= size && used <= allBytes
  }
}

/** What one replicaset has taken of a budget. */
export class HoldShare {
  slots = 0
  bytes = 0
  readonly #ledger: HoldLedger

  constructor(ledger: HoldLedger) {
    this.#ledger = ledger
  }

  /** @returns false: no room */
  take(bytes: number): boolean {
    if (!this.#ledger.hasRoom(this, bytes)) return false
    this.slots += 1
    this.bytes += bytes
    return true
  }

  give(bytes: number): void {
    this.slots -= 1
    this.bytes -= bytes
  }

  leave(): void {
    this.#ledger.leave(this)
  }
}

const LEDGERS = new WeakMap<HoldBudget, HoldLedger>()
