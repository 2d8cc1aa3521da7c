/*
 * Finding a bucket nobody has told about: all masters are asked at once, whatever the number of callers that wait for the answer. The
 * first that has it ends the search.
 */
import type { Clock } from '@orbweaver/connection'
import { callRequest, decodeData } from '@orbweaver/iproto'
import { bucketStatCall, readBucketStat } from '@orbweaver/vshard'
import { NoRouteError } from './errors.js'
import type { RouteWorker } from './route-worker.js'
import { callSet, orbweaverErrorOf } from './set-call.js'
import type { RoutedSet, Topology } from './topology.js'

/** How long one round of asking may take; a caller's own deadline may be nearer. */
const ROUND_TIMEOUT_MS = 5_000
/** Nobody has it: it may be on its way, so it is looked for again after a pause. */
const FIRST_PAUSE_MS = 50
const LONGEST_PAUSE_MS = 1_000

interface Search {
  readonly promise: Promise<RoutedSet>
  deadline: number
}

export class BucketLookup {
  readonly #topology: Topology
  readonly #routes: RouteWorker
  readonly #clock: Clock
  readonly #searches = new Map<number, Search>()
  /** Rounds of asking so far. */
  rounds = 0

  constructor(topology: Topology, routes: RouteWorker, clock: Clock) {
    this.#topology = topology
    this.#routes = routes
    this.#clock = clock
  }

  /** The set that has the bucket. Rejects with NoRouteError at the deadline of the most patient caller. */
  find(bucketId: number, deadline: number): Promise<RoutedSet> {
    const running = this.#searches.get(bucketId)
    if (running !== undefined) {
      running.deadline = Math.max(running.deadline, deadline)
      return running.promise
    }
    const patience = { deadline }
    const search: Search = Object.assign(patience, { promise: this.#search(bucketId, patience) })
    this.#searches.set(bucketId, search)
    return search.promise
  }

  async #search(bucketId: number, patience: { readonly deadline: number }): Promise<RoutedSet> {
    try {
      for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
        const { found, answers } = await this.#round(bucketId, patience.deadline)
        if (found !== undefined) return found
        if (patience.deadline - this.#clock.now() <= pause) throw new NoRouteError(bucketId, answers)
        await new Promise<void>((resolve) => this.#clock.schedule(pause, resolve))
      }
    } finally {
      this.#searches.delete(bucketId)
    }
  }

  async #round(
    bucketId: number,
    deadline: number,
  ): Promise<{ found: RoutedSet | undefined; answers: Map<string, string> }> {
    this.rounds++
    const answers = new Map<string, string>()
    const limit = Math.min(deadline, this.#clock.now() + ROUND_TIMEOUT_MS)
    const sent = this.#routes.tick()
    const asked = this.#topology.sets.map(async (set) => {
      const answer = await this.#ask(set, bucketId, limit)
      answers.set(set.id, answer)
      if (answer !== 'has it') throw new Error(answer)
      return set
    })
    try {
      const found = await Promise.any(asked)
      this.#routes.report({ kind: 'owned', bucketId, owner: found.index, sent })
      return { found, answers }
    } catch (error) {
      if (!(error instanceof AggregateError)) throw error
      return { found: undefined, answers }
    }
  }

  /** What one set says, in words. */
  async #ask(set: RoutedSet, bucketId: number, deadline: number): Promise<string> {
    const { name, args } = bucketStatCall(bucketId)
    try {
      const { reply } = await callSet(set.replicaset, callRequest(name, args), {
        mode: set.replicaset.master() === undefined ? 'ro' : 'rw',
        deadline,
        idempotent: true,
      })
      const stat = readBucketStat(decodeData(reply))
      if (stat.kind === 'absent') return 'does not have it'
      return stat.unreadable === undefined ? 'has it' : `has it, ${stat.bucket.status}`
    } catch (error) {
      return orbweaverErrorOf(error).message
    }
  }
}
