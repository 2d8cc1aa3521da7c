/*
 * Finding buckets nobody has told about. All masters are asked at once, whatever the number of callers that wait for a bucket, and the
 * first that has it ends the search. Many buckets at once are looked for in the pages of discovery instead, a thousand to a request.
 */
import type { Clock } from '@orbweaver/connection'
import { callRequest, decodeData } from '@orbweaver/iproto'
import type { OrbweaverError } from '@orbweaver/iproto'
import { bucketStatCall, readBucketStat, VshardError } from '@orbweaver/vshard'
import type { BucketStatReply } from '@orbweaver/vshard'
import { askPage } from './bucket-pages.js'
import { NoRouteError, RouterClosedError } from './errors.js'
import type { RouteWorker } from './route-worker.js'
import { callSet, orbweaverErrorOf } from './set-call.js'
import type { RoutedSet, Topology } from './topology.js'

/** How long one round of asking may take; a caller's own deadline may be nearer. */
const ROUND_TIMEOUT_MS = 5_000
/** Nobody has it: it may be on its way, so it is looked for again after a pause. */
const FIRST_PAUSE_MS = 50
const LONGEST_PAUSE_MS = 1_000
/** From so many buckets on pages are cheaper than questions for each. */
const MANY = 16

export class BucketLookup {
  readonly #topology: Topology
  readonly #routes: RouteWorker
  readonly #clock: Clock
  readonly #random: () => number
  readonly #unknownOwner: (destination: string) => void
  readonly #searches = new Map<number, Search>()
  /** Begun in this turn. */
  #begun: Search[] = []
  /** Woken when the replicasets are others. */
  readonly #sleepers = new Set<() => void>()
  /** Questions for one bucket so far, each to all replicasets. */
  rounds = 0
  /** Pages read for many at once so far. */
  pages = 0

  /** @param unknownOwner - told of owners that storages name and nobody has configured */
  constructor(
    topology: Topology,
    routes: RouteWorker,
    clock: Clock,
    random: () => number,
    unknownOwner: (destination: string) => void,
  ) {
    this.#unknownOwner = unknownOwner
    this.#topology = topology
    this.#routes = routes
    this.#clock = clock
    this.#random = random
  }

  /** Buckets that are looked for now. */
  get size(): number {
    return this.#searches.size
  }

  /** The set that has the bucket. Rejects with NoRouteError at the deadline of the most patient caller. */
  find(bucketId: number, deadline: number): Promise<RoutedSet> {
    const running = this.#searches.get(bucketId)
    if (running !== undefined) {
      running.deadline = Math.max(running.deadline, deadline)
      return running.promise
    }
    const search = new Search(bucketId, deadline)
    this.#searches.set(bucketId, search)
    this.#begun.push(search)
    if (this.#begun.length === 1) this.#clock.soon(() => this.#begin())
    return search.promise
  }

  /** Why the bucket is not found yet; undefined when nobody has answered. */
  failureOf(bucketId: number): NoRouteError | undefined {
    const search = this.#searches.get(bucketId)
    return search === undefined || search.answers.size === 0 ? undefined : this.#notFound(search)
  }

  /** The replicasets are others: who waits before asking again asks now. */
  topologyChanged(): void {
    for (const wake of [...this.#sleepers]) wake()
  }

  /** Every search ends. */
  close(): void {
    for (const search of this.#searches.values()) search.lose(new RouterClosedError())
    this.#searches.clear()
    this.topologyChanged()
  }

  #begin(): void {
    const begun = this.#begun
    this.#begun = []
    if (begun.length < MANY) for (const search of begun) void this.#search(search)
    else void this.#searchMany(begun)
  }

  async #search(search: Search): Promise<void> {
    for (let pause = FIRST_PAUSE_MS; !search.isOver; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
      const version = this.#topology.version
      await this.#roundOrChange(search)
      if (search.isOver) break
      const left = search.deadline - this.#clock.now()
      if (left <= 0) {
        search.lose(this.#notFound(search))
        break
      }
      if (version !== this.#topology.version) pause = FIRST_PAUSE_MS
      else await this.#sleep(Math.min(pause * (0.8 + 0.4 * this.#random()), left))
    }
    if (this.#searches.get(search.bucketId) === search) this.#searches.delete(search.bucketId)
  }

  /** Ends when the bucket is found, when everybody has answered, or when the replicasets change. */
  #roundOrChange(search: Search): Promise<void> {
    return new Promise((resolve, reject) => {
      const over = (): void => {
        this.#sleepers.delete(over)
        resolve()
      }
      this.#sleepers.add(over)
      search.promise.then(over, over)
      this.#round(search).then(over, reject)
    })
  }

  async #round(search: Search): Promise<void> {
    this.rounds++
    const limit = Math.min(search.deadline, this.#clock.now() + ROUND_TIMEOUT_MS)
    const sent = this.#routes.tick()
    await Promise.all(this.#topology.sets.map((set) => this.#ask(set, search, limit, sent)))
  }

  async #ask(set: RoutedSet, search: Search, deadline: number, sent: number): Promise<void> {
    const { bucketId } = search
    const isReplica = set.replicaset.master() === undefined
    const { name, args } = bucketStatCall(bucketId)
    try {
      const { reply } = await callSet(set.replicaset, callRequest(name, args), {
        mode: isReplica ? 'ro' : 'rw',
        deadline,
        idempotent: true,
      })
      const stat = readBucketStat(decodeData(reply))
      const named = destinationIn(stat)
      if (named !== undefined && this.#topology.find(named) === undefined) this.#unknownOwner(named)
      if (stat.kind === 'absent') search.answers.set(set.id, 'does not have it')
      else if (stat.unreadable !== undefined) search.answers.set(set.id, `has it, ${stat.bucket.status}`)
      else this.#found(search, set, sent, isReplica)
    } catch (error) {
      search.answers.set(set.id, orbweaverErrorOf(error).message)
    }
  }

  #found(search: Search, set: RoutedSet, sent: number, isReplica: boolean): void {
    if (this.#topology.at(set.index)?.replicaset !== set.replicaset) return
    this.#routes.report({ kind: 'owned', bucketId: search.bucketId, owner: set.index, sent, isReplica })
    search.win(set)
    this.#searches.delete(search.bucketId)
  }

  /** Pages first; what stands in none of them, because it is on its way, or its replicaset is silent, is asked for by itself. */
  async #searchMany(searches: readonly Search[]): Promise<void> {
    const wanted = searches.toSorted((a, b) => a.bucketId - b.bucketId)
    await Promise.all(this.#topology.sets.map((set) => this.#readPages(set, wanted)))
    for (const search of wanted) if (!search.isOver) void this.#search(search)
  }

  /** Reads the pages of one set that can hold buckets still wanted. */
  async #readPages(set: RoutedSet, wanted: readonly Search[]): Promise<void> {
    const deadline = this.#clock.now() + ROUND_TIMEOUT_MS
    for (let next = 0; ;) {
      while (next < wanted.length && wanted[next]!.isOver) next++
      if (next === wanted.length) return
      try {
        this.pages++
        const { buckets, facts, isReplica, nextFrom, sent } = await askPage(
          set,
          wanted[next]!.bucketId,
          this.#routes.tick(),
          deadline,
        )
        this.#routes.reportPage(facts)
        const listed = new Set(buckets)
        for (const search of wanted.slice(next)) {
          if (search.bucketId >= (nextFrom ?? Infinity)) break
          next++
          if (search.isOver) continue
          if (listed.has(search.bucketId)) this.#found(search, set, sent, isReplica)
          else search.answers.set(set.id, 'does not list it')
        }
        if (nextFrom === undefined) return
      } catch (error) {
        const { message } = orbweaverErrorOf(error)
        for (const search of wanted.slice(next)) if (!search.isOver) search.answers.set(set.id, message)
        return
      }
    }
  }

  #notFound({ bucketId, answers }: Search): NoRouteError {
    const said = this.#topology.sets.map(({ id }): [string, string] => [id, answers.get(id) ?? 'has not answered'])
    return new NoRouteError(bucketId, new Map(said))
  }

  /** Ends early when the replicasets change, or the router is closed. */
  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        cancel()
        this.#sleepers.delete(wake)
        resolve()
      }
      const cancel = this.#clock.schedule(ms, wake)
      this.#sleepers.add(wake)
    })
  }
}

/** Where a storage says that the bucket went. */
function destinationIn(stat: BucketStatReply): string | undefined {
  if (stat.kind === 'present') return stat.bucket.destination
  return stat.error instanceof VshardError ? stat.error.destination : undefined
}

/** One bucket that is looked for, for all who want it. */
class Search {
  readonly bucketId: number
  readonly promise: Promise<RoutedSet>
  /** What each replicaset said last. */
  readonly answers = new Map<string, string>()
  deadline: number
  isOver = false
  #resolve: (set: RoutedSet) => void = () => undefined
  #reject: (error: OrbweaverError) => void = () => undefined

  constructor(bucketId: number, deadline: number) {
    this.bucketId = bucketId
    this.deadline = deadline
    this.promise = new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
  }

  win(set: RoutedSet): void {
    this.isOver = true
    this.#resolve(set)
  }

  lose(error: OrbweaverError): void {
    this.isOver = true
    this.#reject(error)
  }
}
