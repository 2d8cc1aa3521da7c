/*
 * Consistent map-reduce: every storage first gives a reference, a promise that no bucket moves; when the references cover all
 * buckets, each exactly once, the function runs everywhere. Reference, map and release of one storage travel through one session,
 * because that is where the storage keeps them.
 *
 * The usual course goes without a promise or a timer of its own: all masters are there and give their references at once. Anything
 * else (a failure, a reference that is waited for, a change of master) is for the rounds of ref-stage.ts, which take over what was
 * asked for already.
 */
import type { BodyWriter, DecodeOptions, OrbweaverError } from '@orbweaver/iproto'
import type { RoutedSet } from '../topology.js'
import type { Arrivals, MapResult } from './arrivals.js'
import { refBuckets } from './bucket-stage.js'
import { abortedBy } from './held-ref.js'
import type { HeldRef } from './held-ref.js'
import type { MapArguments } from './map-arguments.js'
import type { RunningMap } from './map-call.js'
import type { MapOwner, RefRun } from './map-owner.js'
import { MapStage } from './map-stage.js'
import type { MapWork } from './map-stage.js'
import { MasterCheck } from './master-check.js'
import type { CheckListener } from './master-check.js'
import { RefRequest, WHOLE_STORAGE } from './ref-request.js'
import type { RefListener } from './ref-request.js'
import { firstRoundMs, holdingMs, refAll } from './ref-stage.js'
import type { Refs } from './ref-stage.js'
import type { Waiting } from './time-sweep.js'

export interface MapRun extends RefRun {
  readonly functionName: string
  readonly args: MapArguments
  readonly isRaw: boolean
  /** Only these buckets; undefined: all replicasets. */
  readonly buckets: ReadonlySet<number> | undefined
}

type Owned = ReadonlyMap<RoutedSet, readonly number[]>

/** One map. Its promise rejects with MapReduceError, NoRouteError, RequestAbortedError, RouterClosedError. */
export class MapReduce implements RunningMap, RefListener, CheckListener, Waiting, MapWork {
  dueMs: number
  readonly #owner: MapOwner
  readonly #run: MapRun
  readonly #arrivals: Arrivals
  readonly #resolve: (result: MapResult) => void
  readonly #reject: (error: unknown) => void
  #phase: 'refs' | 'rounds' | 'map' | 'over' = 'refs'
  /** While references are asked for. */
  #requests: RefRequest<number>[] = []
  #topologyVersion = 0
  #left = 0
  #total = 0
  /** Ends the rounds. */
  #rounds: AbortController | undefined
  #stage: MapStage | undefined
  #held: readonly HeldRef[] = []
  #owned: Owned | undefined
  #skipped: ReadonlyMap<string, string> = NONE

  constructor(
    owner: MapOwner,
    run: MapRun,
    arrivals: Arrivals,
    resolve: (result: MapResult) => void,
    reject: (error: unknown) => void,
  ) {
    this.#owner = owner
    this.#run = run
    this.#arrivals = arrivals
    this.#resolve = resolve
    this.#reject = reject
    this.dueMs = run.started + holdingMs(run.refDeadline - run.started)
  }

  start(): this {
    const { buckets, signal } = this.#run
    if (signal?.aborted === true) {
      this.giveUp(signal.reason)
      return this
    }
    signal?.addEventListener('abort', this)
    if (buckets !== undefined) this.#goOn(refBuckets(this.#owner, this.#boundRun(), buckets))
    else this.#askAll()
    return this
  }

  /** The caller's signal. */
  handleEvent(): void {
    this.giveUp(this.#run.signal?.reason)
  }

  giveUp(reason: unknown): void {
    switch (this.#phase) {
      case 'refs':
        for (const request of this.#requests) request.drop()
        this.#fail(abortedBy(reason, 'no'))
        return
      case 'rounds':
        this.#rounds?.abort(reason)
        return
      case 'map':
        this.#stage?.abandon(abortedBy(reason, 'unknown'))
        return
      case 'over':
        return
    }
  }

  // ---- references ---------------------------------------------------------------------------------------------------

  #askAll(): void {
    const owner = this.#owner
    const { sets, version } = owner.topology
    this.#topologyVersion = version
    this.#left = sets.length
    for (const { replicaset } of sets) {
      if (replicaset.master() === undefined) {
        this.#goInRounds()
        return
      }
    }
    owner.mapTimes.add(this)
    for (const set of sets) {
      const request = new RefRequest(owner, set, 'rw', WHOLE_STORAGE, this.#run.deadline, this)
      this.#requests.push(request)
      request.start()
      if (this.#phase !== 'refs') return
    }
  }

  refAnswered({ outcome }: RefRequest<unknown>): void {
    if (this.#phase !== 'refs') return
    if (outcome?.kind !== 'granted') {
      this.#goInRounds()
      return
    }
    this.#total += outcome.value as number
    this.#left--
    if (this.#left === 0) this.#allAnswered()
  }

  /** They take long, or the router is closed. */
  due(): void {
    if (this.#phase !== 'refs') return
    const { isClosed, mapTimes } = this.#owner
    const { refDeadline, started } = this.#run
    const leftMs = refDeadline - started
    const isHolding = this.#requests.some(({ outcome }) => outcome !== undefined)
    if (isHolding || isClosed || this.dueMs >= started + firstRoundMs(leftMs)) {
      this.#goInRounds()
    } else {
      this.dueMs += holdingMs(leftMs)
      mapTimes.add(this)
    }
  }

  #allAnswered(): void {
    const held: HeldRef[] = []
    for (const { outcome } of this.#requests) if (outcome?.kind === 'granted') held.push(outcome.ref)
    this.#held = held
    if (this.#total !== this.#owner.routes.table.bucketCount) {
      this.#goInRounds()
      return
    }
    for (const ref of held) if (!ref.isSurelyOfMaster) this.#left++
    if (this.#left === 0) this.#allChecked()
    else for (const ref of held) if (!ref.isSurelyOfMaster) ref.send(new MasterCheck(ref, this), this.#run.refDeadline)
  }

  checked(_ref: HeldRef, isMaster: boolean): void {
    if (this.#phase !== 'refs') return
    if (!isMaster) {
      this.#goInRounds()
      return
    }
    this.#left--
    if (this.#left === 0) this.#allChecked()
  }

  #allChecked(): void {
    const { isClosed, topology } = this.#owner
    if (isClosed || this.#topologyVersion !== topology.version || this.#held.some((ref) => ref.isDoubtful))
      this.#goInRounds()
    else this.#map(this.#held)
  }

  #goInRounds(): void {
    this.#owner.mapTimes.delete(this)
    const requests = this.#requests
    this.#requests = []
    this.#goOn(
      refAll(this.#owner, this.#boundRun(), {
        began: this.#run.started,
        topologyVersion: this.#topologyVersion,
        requests,
      }),
    )
  }

  /** The same times, ended by whatever ends this. */
  #boundRun(): RefRun {
    const { deadline, refDeadline, started } = this.#run
    this.#rounds = new AbortController()
    return { deadline, refDeadline, started, signal: this.#rounds.signal }
  }

  #goOn(asked: Promise<Refs & { readonly owned?: Owned }>): void {
    this.#phase = 'rounds'
    asked.then(
      ({ held, owned, skipped }) => {
        this.#owned = owned
        this.#skipped = skipped
        if (this.#rounds?.signal.aborted === true) {
          for (const ref of held) ref.release()
          this.#fail(abortedBy(this.#rounds.signal.reason, 'no'))
        } else {
          this.#map(held)
        }
      },
      (error: unknown) => this.#fail(error),
    )
  }

  // ---- the map ------------------------------------------------------------------------------------------------------

  #map(held: readonly HeldRef[]): void {
    this.#owner.mapTimes.delete(this)
    this.#phase = 'map'
    this.#stage = new MapStage(this)
    this.#stage.start(held)
  }

  get functionName(): string {
    return this.#run.functionName
  }

  get isRaw(): boolean {
    return this.#run.isRaw
  }

  get decode(): DecodeOptions | undefined {
    return this.#owner.decode
  }

  get deadline(): number {
    return this.#run.deadline
  }

  writeArguments(out: BodyWriter, { set }: HeldRef): void {
    this.#run.args.write(out, this.#owned?.get(set) ?? NO_BUCKETS)
  }

  isSurelyHeld(ref: HeldRef): boolean {
    return ref.isSurelyOfMaster
  }

  isHeld(ref: HeldRef): Promise<boolean> {
    return ref.holds({ deadline: this.#run.deadline })
  }

  arrived(set: RoutedSet, values: unknown[]): void {
    this.#arrivals.add(set, values)
  }

  ended(error: OrbweaverError | undefined): void {
    if (error !== undefined) this.#fail(error)
    else {
      this.#end()
      this.#resolve(this.#arrivals.result(this.#skipped))
    }
  }

  #fail(error: unknown): void {
    this.#end()
    this.#reject(error)
  }

  #end(): void {
    this.#phase = 'over'
    this.#owner.mapTimes.delete(this)
    this.#run.signal?.removeEventListener('abort', this)
  }
}

const NONE: ReadonlyMap<string, string> = new Map()
const NO_BUCKETS: readonly number[] = []
