/*
 * Turns between two kinds of work that exclude each other: storage references (map-reduce wants the buckets to stay) and moves (the
 * rebalancer wants them to go). Each kind has a quota of turns in a row; beyond it, it goes on only while nobody of the other kind
 * waits. Without this a busy map-reduce would keep a cluster from ever rebalancing, or the other way round.
 *
 * The rules are vshard's (scheduler of 0.1.42), with two differences: a waiter is looked at after every change, so none sleeps on after
 * its obstacle is gone, and within a kind the first to come is the first to go. Pure: no time; whoever waits with a deadline
 * gives up by itself.
 */

export type TurnKind = 'ref' | 'move'

export interface SchedulerQuotas {
  /** References in a row while a move waits; may be a fraction; 0: never insists on its turn. */
  readonly ref: number
  /** Moves in a row while a reference waits. */
  readonly move: number
}

/** What can be seen of one kind. */
export interface TurnState {
  /** Turns taken and not ended. */
  readonly running: number
  readonly waiting: number
  /** Turns taken in a row since the other kind's last one. */
  readonly strike: number
  readonly quota: number
}

interface Waiter {
  readonly order: number
  readonly joins: boolean
  readonly grant: () => void
}

export interface TurnOptions {
  /**
   * May start beside a turn of its own kind that runs already, whatever the quota: the other kind has to wait for that one anyway.
   * For a move that another storage's move depends on: if it queued behind a reference here, and the reference waited for
   * that move over there, all three would stand still.
   */
  readonly joins?: boolean
}

interface Side {
  running: number
  strike: number
  quota: number
  readonly queue: Set<Waiter>
}

const OTHER = { ref: 'move', move: 'ref' } as const

export class Scheduler {
  readonly #sides: Record<TurnKind, Side>
  #order = 0
  #isPumping = false

  constructor(quotas: SchedulerQuotas) {
    this.#sides = {
      ref: { running: 0, strike: 0, quota: quotas.ref, queue: new Set() },
      move: { running: 0, strike: 0, quota: quotas.move, queue: new Set() },
    }
  }

  state(kind: TurnKind): TurnState {
    const { running, strike, quota, queue } = this.#sides[kind]
    return { running, waiting: queue.size, strike, quota }
  }

  /**
   * Asks for a turn. `granted` is called when it comes: at once, within this call, or later from within another one.
   * @returns gives up waiting; nothing happens when the turn has come already
   */
  start(kind: TurnKind, granted: () => void, options: TurnOptions = {}): () => void {
    const { queue } = this.#sides[kind]
    const waiter: Waiter = { order: this.#order++, joins: options.joins === true, grant: granted }
    queue.add(waiter)
    this.#pump()
    return () => {
      if (queue.delete(waiter)) this.#pump()
    }
  }

  /** Ends turns that were granted. */
  end(kind: TurnKind, count: number = 1): void {
    const side = this.#sides[kind]
    if (count > side.running) throw new RangeError(`${count} turns of kind ${kind} end, ${side.running} were running`)
    side.running -= count
    this.#pump()
  }

  configure(quotas: SchedulerQuotas): void {
    this.#sides.ref.quota = quotas.ref
    this.#sides.move.quota = quotas.move
    this.#pump()
  }

  #mayStart(kind: TurnKind): boolean {
    const side = this.#sides[kind]
    const other = this.#sides[OTHER[kind]]
    if (other.running > 0) return false
    return other.queue.size === 0 || other.quota === 0 || side.strike < side.quota
  }

  /** Grants whatever may start, the longest waiting first, until nothing may. */
  #pump(): void {
    // A granted turn may ask for or end another one from within: that changes the state this loop looks at, nothing else.
    if (this.#isPumping) return
    this.#isPumping = true
    try {
      for (let next = this.#next(); next !== undefined; next = this.#next()) {
        const { kind, waiter } = next
        const side = this.#sides[kind]
        side.queue.delete(waiter)
        side.running++
        side.strike++
        this.#sides[OTHER[kind]].strike = 0
        waiter.grant()
      }
    } finally {
      this.#isPumping = false
    }
  }

  #next(): { kind: TurnKind; waiter: Waiter } | undefined {
    const ref = this.#head('ref')
    const move = this.#head('move')
    if (ref === undefined) return move
    return move === undefined || ref.waiter.order < move.waiter.order ? ref : move
  }

  #head(kind: TurnKind): { kind: TurnKind; waiter: Waiter } | undefined {
    const { queue, running } = this.#sides[kind]
    const [first] = queue
    if (first === undefined) return undefined
    if (this.#mayStart(kind)) return { kind, waiter: first }
    if (running === 0) return undefined
    const joining = [...queue].find(({ joins }) => joins)
    return joining === undefined ? undefined : { kind, waiter: joining }
  }
}
