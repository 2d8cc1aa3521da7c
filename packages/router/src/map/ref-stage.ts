/*
 * The first half of every map, hold and page: a promise of all storages concerned that no bucket moves.
 *
 * A map and a move can block each other across two storages: the receiver has given its reference to the map, so the move must
 * wait; the bucket of the move is readonly on the sender, so the map must wait. Hence rounds that grow: at the end of one
 * everything is given back for a moment, in which the move goes on. For the same reason nothing is asked for while a replicaset
 * has no master: a dead replicaset must not keep the buckets of the others in place.
 */
import type { Clock } from '@orbweaver/connection'
import { isOrbweaverError } from '@orbweaver/iproto'
import type { OrbweaverError } from '@orbweaver/iproto'
import { VshardError } from '@orbweaver/vshard'
import { MapReduceError, NoRouteError } from '../errors.js'
import type { RoutedSet } from '../topology.js'
import type { HeldRef } from './held-ref.js'
import type { MapOwner, RefRun } from './map-owner.js'
import { WHOLE_STORAGE } from './ref-request.js'
import { isWorthRetrying } from './ref-retry.js'
import { RefRound } from './ref-round.js'
import type { BegunRound, Obstacle } from './ref-round.js'

/** References that cover what was asked for, each bucket once. */
export interface Refs {
  readonly held: readonly HeldRef[]
  /** Replicasets that could not be reached; the others have all buckets. By id, with the reason. */
  readonly skipped: ReadonlyMap<string, string>
}

/** A call has at least two rounds. */
const FIRST_ROUND_MS = 1_000
/**
 * For how long the usual course of a map may hold references while others are not given. Where none is given nobody is kept from
 * anything: the storages have much to do.
 */
const HOLDING_MS = 250
const LONGEST_ROUND_MS = 16_000
/** Between two rounds, as a part of the last one: what waits for the storages gets its turn. */
const PAUSE_SHARE = 0.05
const LONGEST_PAUSE_MS = 250
/** Part of a round in which replicasets without a master may find one before the others are asked. */
const MASTERS_SHARE = 0.5
const EXPLAIN_SHARE = 0.5

/** How long a round lasts that holds something from its beginning on. @param leftMs - for all rounds */
export function holdingMs(leftMs: number): number {
  return Math.min(HOLDING_MS, leftMs / 2)
}

/** How long a round may last that holds nothing. @param leftMs - for all rounds */
export function firstRoundMs(leftMs: number): number {
  return Math.min(FIRST_ROUND_MS, leftMs / 2)
}

/**
 * References of all replicasets.
 * @param begun - the first round, if that was begun elsewhere
 * @throws MapReduceError; nothing is held then
 */
export function refAll(owner: MapOwner, run: RefRun, begun?: BegunRound): Promise<Refs> {
  return inRounds(owner, run, (round) => refAllIn(owner, round), begun)
}

/**
 * Tries until all references are there, or their time is over.
 * @param attempt - undefined: not in this round; what the round holds is given back
 */
export async function inRounds<T>(
  owner: MapOwner,
  run: RefRun,
  attempt: (round: RefRound) => Promise<T | undefined>,
  begun?: BegunRound,
): Promise<T> {
  const { clock, random } = owner
  const obstacles = new Map<RoutedSet, Obstacle>()
  const leftMs = run.refDeadline - (begun?.began ?? clock.now())
  let roundMs = begun === undefined || begun.requests.length === 0 ? firstRoundMs(leftMs) : holdingMs(leftMs)
  for (let taken = begun; ; taken = undefined, roundMs = Math.min(roundMs * 2, LONGEST_ROUND_MS)) {
    const began = taken?.began ?? clock.now()
    const end = Math.min(run.refDeadline, endOfRound(clock, began, roundMs))
    const round = new RefRound(owner, run, end, obstacles, taken)
    const explainAt = began + (round.end - began) * EXPLAIN_SHARE
    const cancel = clock.schedule(Math.max(0, explainAt - clock.now()), () => round.explain())
    try {
      const result = await attempt(round)
      if (result !== undefined) return result
      round.noteObstacles()
    } catch (error) {
      round.noteObstacles()
      round.drop()
      if (!isOrbweaverError(error) || !(round.isOutdated || mayPass(error)) || clock.now() >= run.refDeadline)
        throw error
    } finally {
      cancel()
    }
    round.drop()
    if (clock.now() >= run.refDeadline) throw notGranted(owner, run, obstacles)
    const pauseMs = Math.min(LONGEST_PAUSE_MS, roundMs * PAUSE_SHARE) * (0.5 + random())
    await new RefRound(owner, run, run.refDeadline, obstacles).pause(pauseMs)
  }
}

/**
 * Rounds end together, those of all maps and of all routers whose clocks agree: a move gets its turn on a storage when nobody has a
 * reference there, which maps that let go one by one would keep from happening.
 * @returns half a length to one and a half behind the beginning, but not in the past
 */
function endOfRound(clock: Clock, began: number, roundMs: number): number {
  if (roundMs % HOLDING_MS !== 0) return began + roundMs
  const shiftMs = clock.wallNow() - clock.now()
  const nearest = Math.round((began + roundMs + shiftMs) / roundMs) * roundMs
  return Math.max(nearest, Math.ceil(clock.wallNow() / roundMs) * roundMs) - shiftMs
}

function mayPass(error: OrbweaverError): boolean {
  // A bucket that nobody has may be on its way.
  return error instanceof NoRouteError || isWorthRetrying(error)
}

async function refAllIn(owner: MapOwner, round: RefRound): Promise<Refs | undefined> {
  const { clock, topology } = owner
  const { sets } = topology
  const hasMaster = ({ replicaset }: RoutedSet): boolean => replicaset.master() !== undefined
  if (!round.isBegun)
    await round.until(() => sets.every(hasMaster), clock.now() + (round.end - clock.now()) * MASTERS_SHARE)
  const present = sets.filter((set) => hasMaster(set) || round.requestOf(set) !== undefined)
  const absent = sets.filter((set) => !present.includes(set))
  for (const set of absent) round.note(set, 'no master is known')
  const requests = present.map((set) => round.requestOf(set) ?? round.ask(set, WHOLE_STORAGE))
  await round.until(
    () =>
      requests.every(({ outcome }) => outcome !== undefined) ||
      requests.some(({ outcome }) => outcome?.kind === 'failed'),
  )
  for (const { asked, outcome, set } of requests)
    if (outcome?.kind === 'failed' && isFinal(outcome)) throw refused(set, asked?.id, outcome.error)
  const held = round.refs
  if (held.length < present.length || round.isOutdated) return undefined
  const total = requests.reduce((sum, { outcome }) => sum + (outcome?.kind === 'granted' ? outcome.value : 0), 0)
  const { bucketCount } = owner.routes.table
  if (total !== bucketCount) {
    if (absent.length === 0) throw miscounted(total, bucketCount)
    // Nothing is held while somebody is waited for.
    round.noteObstacles()
    round.drop()
    await round.until(() => sets.every(hasMaster))
    return undefined
  }
  if (!(await areUndoubted(round, held))) return undefined
  return { held, skipped: new Map(absent.map(({ id }) => [id, 'no master is known'])) }
}

/** The masters are still those that gave the references: a storage gives one whatever its role. */
export async function areUndoubted(round: RefRound, held: readonly HeldRef[]): Promise<boolean> {
  const areMasters = await round.ended(Promise.all(held.map((ref) => ref.isOfMaster({ deadline: round.end }))))
  const doubtful = held.filter((_ref, i) => areMasters?.[i] !== true)
  for (const { instance, set } of doubtful) round.note(set, 'the master changed', { instanceId: instance.id })
  return doubtful.length === 0
}

/** Another try can change nothing about it. */
export function isFinal(outcome: { readonly kind: string; readonly error?: OrbweaverError } | undefined): boolean {
  return outcome?.error !== undefined && !isWorthRetrying(outcome.error)
}

export function refused(set: RoutedSet, instanceId: string | undefined, cause: OrbweaverError): MapReduceError {
  return new MapReduceError(`${nameOf(set.id, instanceId)} gives no reference: ${cause.message}`, {
    stage: 'ref',
    executed: 'no',
    cause,
    replicasetId: set.id,
    instanceId,
  })
}

export function miscounted(total: number, bucketCount: number): MapReduceError {
  return new MapReduceError(`The replicasets have ${total} buckets together, expected ${bucketCount}`, {
    stage: 'check',
    executed: 'no',
    cause: VshardError.of('UNKNOWN_BUCKETS', { not_discovered_cnt: bucketCount - total }),
  })
}

function notGranted(owner: MapOwner, run: RefRun, obstacles: ReadonlyMap<RoutedSet, Obstacle>): MapReduceError {
  const [first] = obstacles
  const reasons = [...obstacles].map(([{ id }, { instanceId, reason }]) => `${nameOf(id, instanceId)}: ${reason}`)
  const waitedMs = Math.round(owner.clock.now() - run.started)
  return new MapReduceError(`Not all references were granted within ${waitedMs} ms (${reasons.join('; ')})`, {
    stage: 'ref',
    executed: 'no',
    cause: first?.[1].error,
    replicasetId: first?.[0].id,
    instanceId: first?.[1].instanceId,
    obstacles: new Map([...obstacles].map(([{ id }, { reason }]) => [id, reason])),
  })
}

export function nameOf(setId: string, instanceId: string | undefined): string {
  return instanceId === undefined ? `Replicaset ${setId}` : `${instanceId} of replicaset ${setId}`
}
