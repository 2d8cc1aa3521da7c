/*
 * References for some buckets: only the replicasets that have them take part. A storage says which of the buckets it was asked for
 * are gone, and where to; those are looked for there, until each bucket is where a reference keeps it.
 */
import { readStorageRefCheckWithBuckets, storageRefCheckWithBucketsCall } from '@orbweaver/vshard'
import type { MovedBucket, ServiceReply } from '@orbweaver/vshard'
import { UNKNOWN } from '../route-table.js'
import type { RoutedSet } from '../topology.js'
import type { HeldRef } from './held-ref.js'
import type { MapOwner, RefRun } from './map-owner.js'
import { forBuckets } from './ref-request.js'
import { isWorthRetrying } from './ref-retry.js'
import type { RefRound } from './ref-round.js'
import { areUndoubted, inRounds, isFinal, refused } from './ref-stage.js'
import type { Refs } from './ref-stage.js'

export interface BucketRefs extends Refs {
  /** Which of the buckets each replicaset has. */
  readonly owned: ReadonlyMap<RoutedSet, readonly number[]>
}

/** References of the replicasets that have these buckets. @throws MapReduceError, NoRouteError; nothing is held then */
export function refBuckets(owner: MapOwner, run: RefRun, wanted: ReadonlySet<number>): Promise<BucketRefs> {
  return inRounds(owner, run, (round) => refBucketsIn(owner, round, wanted))
}

/** Searches that end in a circle: the bucket is on its way, and a pause helps more than asking. */
const FREE_HOPS = 2
const HOP_PAUSE_MS = 20

async function refBucketsIn(
  owner: MapOwner,
  round: RefRound,
  wanted: ReadonlySet<number>,
): Promise<BucketRefs | undefined> {
  const owned = new Map<RoutedSet, number[]>()
  let missing = [...wanted]
  for (let hop = 0; missing.length > 0; hop++) {
    if (hop > FREE_HOPS) await round.pause(HOP_PAUSE_MS * (hop - FREE_HOPS))
    const groups = await round.ended(grouped(owner, missing, round.end))
    if (groups === undefined) return undefined
    const sent = owner.routes.tick()
    const answers = await askGroups(round, groups)
    if (answers === undefined) return undefined
    missing = []
    for (const { set, bucketIds, moved } of answers) {
      const gone = new Set(moved.map(({ id }) => id))
      for (const bucket of moved) report(owner, set, bucket, sent)
      missing.push(...gone)
      const kept = bucketIds.filter((id) => !gone.has(id))
      // One that has a reference stays, also when all its buckets are gone: it may be needed again.
      if (kept.length > 0) owned.set(set, [...(owned.get(set) ?? []), ...kept])
    }
    // Facts take effect in `soon`: what moved is looked up in the new table.
    if (missing.length > 0) await round.ended(new Promise<void>((resolve) => owner.clock.soon(resolve)))
  }
  const held = round.refs
  if (round.isOutdated || !(await areUndoubted(round, held))) return undefined
  for (const { set } of held) if (!owned.has(set)) owned.set(set, [])
  return { held, skipped: new Map(), owned }
}

interface GroupAnswer {
  readonly set: RoutedSet
  readonly bucketIds: readonly number[]
  readonly moved: readonly MovedBucket[]
}

/** undefined: not in this round. */
async function askGroups(
  round: RefRound,
  groups: ReadonlyMap<RoutedSet, readonly number[]>,
): Promise<readonly GroupAnswer[] | undefined> {
  const held = new Map(round.refs.map((ref) => [ref.set, ref]))
  const requests = [...groups].flatMap(([set, bucketIds]) =>
    held.has(set) ? [] : [{ bucketIds, request: round.ask(set, forBuckets(bucketIds)) }],
  )
  const checks = round.ended(
    Promise.all(
      [...groups].flatMap(([set, bucketIds]) => {
        const ref = held.get(set)
        return ref === undefined ? [] : [check(ref, bucketIds, round.end)]
      }),
    ),
  )
  const [checked, areAnswered] = await Promise.all([
    checks,
    round.until(
      () =>
        requests.every(({ request: { outcome } }) => outcome !== undefined) ||
        requests.some(({ request: { outcome } }) => isFinal(outcome)),
    ),
  ])
  if (checked === undefined || !areAnswered) return undefined
  const answers: GroupAnswer[] = []
  for (const { bucketIds, request } of requests) {
    const { asked, outcome, set } = request
    if (outcome === undefined) return undefined
    if (outcome.kind !== 'failed') answers.push({ set, bucketIds, moved: outcome.value.moved })
    else if (isFinal(outcome)) throw refused(set, asked?.id, outcome.error)
    else return undefined
  }
  for (const { answer, bucketIds, ref } of checked) {
    if (answer.ok) answers.push({ set: ref.set, bucketIds, moved: answer.value.moved })
    else if (!isWorthRetrying(answer.error)) throw refused(ref.set, ref.instance.id, answer.error)
    else {
      round.note(ref.set, answer.error.message, { instanceId: ref.instance.id, error: answer.error })
      return undefined
    }
  }
  return answers
}

interface Checked {
  readonly ref: HeldRef
  readonly bucketIds: readonly number[]
  readonly answer: ServiceReply<{ readonly moved: readonly MovedBucket[] }>
}

async function check(ref: HeldRef, bucketIds: readonly number[], deadline: number): Promise<Checked> {
  const call = storageRefCheckWithBucketsCall(ref.id, bucketIds)
  return { ref, bucketIds, answer: await ref.ask(call, readStorageRefCheckWithBuckets, { deadline }) }
}

function report({ routes, topology }: MapOwner, from: RoutedSet, { id, destination }: MovedBucket, sent: number): void {
  const owner = topology.find(destination)?.index ?? UNKNOWN
  routes.report({ kind: 'moved', bucketId: id, from: from.index, owner, sent })
}

async function grouped(
  { lookup, routes, topology }: MapOwner,
  bucketIds: readonly number[],
  deadline: number,
): Promise<Map<RoutedSet, number[]>> {
  const sets = await Promise.all(
    bucketIds.map(async (bucketId) => topology.at(routes.table.lookup(bucketId)) ?? lookup.find(bucketId, deadline)),
  )
  const groups = new Map<RoutedSet, number[]>()
  for (const [i, set] of sets.entries()) {
    const group = groups.get(set)
    if (group === undefined) groups.set(set, [bucketIds[i]!])
    else group.push(bucketIds[i]!)
  }
  return groups
}
