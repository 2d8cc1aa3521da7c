/*
 * A map that reads on replicas: references on the masters keep the buckets in place to the end, renewed while the maps run, and
 * no replica is asked before it has what its master had when the reference was given. A replica gives a reference of its own too:
 * the storage's map service wants one.
 */
import { readStorageSync, storageSyncCall } from '@orbweaver/vshard'
import { InvalidArgumentError, isOrbweaverError } from '@orbweaver/iproto'
import type { CallMode } from '@orbweaver/replicaset'
import { MapReduceError } from '../errors.js'
import type { HoldLostError } from '../errors.js'
import type { RoutedSet } from '../topology.js'
import { abortedBy } from './held-ref.js'
import type { HeldRef } from './held-ref.js'
import type { Arrivals, MapResult } from './arrivals.js'
import type { RunningMap } from './map-call.js'
import type { MapOwner } from './map-owner.js'
import type { MapRun } from './map-reduce.js'
import { MapStage } from './map-stage.js'
import { RefKeeper } from './ref-keeper.js'
import { WHOLE_STORAGE } from './ref-request.js'
import { RefRound } from './ref-round.js'
import { isFinal, miscounted, nameOf, refAll, refused } from './ref-stage.js'

/** Part of the time left in which the replicas may catch up; where they do not, the master is read. */
const SYNC_SHARE = 0.25

/** One map on replicas. Its promise rejects with MapReduceError, HoldLostError, RequestAbortedError. */
export class MapOnReplicas implements RunningMap {
  readonly #owner: MapOwner
  readonly #run: MapRun
  readonly #arrivals: Arrivals
  readonly #resolve: (result: MapResult) => void
  readonly #reject: (error: unknown) => void
  readonly #left = new AbortController()

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
  }

  start(): this {
    const { signal } = this.#run
    const left = this.#left.signal
    const run = { ...this.#run, signal: signal === undefined ? left : AbortSignal.any([signal, left]) }
    mapReplicas(this.#owner, run, this.#arrivals).then(this.#resolve, this.#reject)
    return this
  }

  giveUp(reason: unknown): void {
    this.#left.abort(reason)
  }
}

async function mapReplicas(owner: MapOwner, run: MapRun, arrivals: Arrivals): Promise<MapResult> {
  if (run.buckets !== undefined)
    throw new InvalidArgumentError('mapCallro maps all buckets: it takes neither bucketIds nor bucketArgs')
  const masters = await refAll(owner, run)
  let lost: HoldLostError | undefined
  const keeper = new RefKeeper(owner, masters.held, run.deadline, (error) => {
    lost = error
  })
  let readers: readonly HeldRef[] = []
  try {
    const modes = await modesOf(owner, run, masters.held)
    readers = await refReaders(owner, run, modes)
    await mapUnder(owner, run, arrivals, readers, () => lost === undefined)
    if (lost !== undefined) throw lost
    return arrivals.result(masters.skipped)
  } finally {
    keeper.stop()
    for (const reader of readers) reader.release()
  }
}

function mapUnder(
  owner: MapOwner,
  { args, deadline, functionName, isRaw, signal }: MapRun,
  arrivals: Arrivals,
  readers: readonly HeldRef[],
  areHeld: () => boolean,
): Promise<void> {
  if (signal?.aborted === true) throw abortedBy(signal.reason, 'no')
  return new Promise((resolve, reject) => {
    const onAbort = (): void => stage.abandon(abortedBy(signal?.reason, 'unknown'))
    const stage = new MapStage({
      functionName,
      writeArguments: (out) => args.write(out, NO_BUCKETS),
      isRaw,
      decode: owner.decode,
      deadline,
      isSurelyHeld: areHeld,
      isHeld: () => Promise.resolve(areHeld()),
      arrived: (set, values) => arrivals.add(set, values),
      ended: (error) => {
        signal?.removeEventListener('abort', onAbort)
        if (error === undefined) resolve()
        else reject(error)
      },
    })
    signal?.addEventListener('abort', onAbort, { once: true })
    stage.start(readers)
  })
}

/** `re` where all replicas have what the master had, `rw` elsewhere. */
async function modesOf(
  { clock }: MapOwner,
  run: MapRun,
  held: readonly HeldRef[],
): Promise<ReadonlyMap<RoutedSet, CallMode>> {
  const limit = Math.min(LONGEST_SYNC_MS, (run.deadline - clock.now()) * SYNC_SHARE)
  const deadline = clock.now() + limit
  const modes = held.map(async (ref): Promise<[RoutedSet, CallMode]> => {
    try {
      const answer = await ref.ask(storageSyncCall(limit), readStorageSync, { deadline, signal: run.signal })
      return [ref.set, answer.ok ? 're' : 'rw']
    } catch (error) {
      if (isOrbweaverError(error) && run.signal?.aborted !== true) return [ref.set, 'rw']
      throw error
    }
  })
  return new Map(await Promise.all(modes))
}

const LONGEST_SYNC_MS = 5_000
const NO_BUCKETS: readonly number[] = []

async function refReaders(
  owner: MapOwner,
  run: MapRun,
  modes: ReadonlyMap<RoutedSet, CallMode>,
): Promise<readonly HeldRef[]> {
  const round = new RefRound(owner, run, run.refDeadline, new Map())
  const requests = [...modes].map(([set, mode]) => round.ask(set, WHOLE_STORAGE, mode))
  try {
    await round.until(
      () => requests.every(({ outcome }) => outcome !== undefined) || requests.some(({ outcome }) => isFinal(outcome)),
    )
    for (const { asked, outcome, set } of requests) {
      if (outcome?.kind === 'granted') continue
      if (outcome?.kind === 'failed') throw refused(set, asked?.id, outcome.error)
      throw new MapReduceError(`${nameOf(set.id, asked?.id)} has not given its reference in time`, {
        stage: 'ref',
        executed: 'no',
        replicasetId: set.id,
        instanceId: asked?.id,
      })
    }
    const total = requests.reduce((sum, { outcome }) => sum + (outcome?.kind === 'granted' ? outcome.value : 0), 0)
    if (total !== owner.routes.table.bucketCount) throw miscounted(total, owner.routes.table.bucketCount)
    return round.refs
  } catch (error) {
    round.drop()
    throw error
  }
}
