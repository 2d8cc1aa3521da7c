/**
 * Who serves a read: a fixed table, by call mode. Pure but for the turn taking, whose state are the `credit` numbers.
 *
 * | mode | first choice | then |
 * | --- | --- | --- |
 * | ro  | the nearest that is usable | the master, an instance of unknown role |
 * | bro | all usable in turn, by weight | the same |
 * | re  | the nearest usable that is not the master | the same |
 * | bre | all usable but the master in turn | the same |
 *
 * Nearest: by zone distance, among equals a configured master first, then as defined. The order of vshard's router.
 */
import type { CallMode } from './attempt.js'
import { type InstanceView, stateOf } from './instance-view.js'

/** What the choice needs to know of an instance. */
export interface ReadCandidate {
  readonly slot: number
  readonly view: InstanceView
  readonly restUntilMs: number
  /** Written by `chooseReader` only. */
  credit: number
}

export interface ReadContext {
  readonly nowMs: number
  /** In order of distance. */
  readonly masterSlot: number | undefined
  /** Instances that refused this very read. */
  readonly tried: ReadonlySet<number>
  /** Shares of balanced reads by slot. */
  readonly weightOf: (candidate: ReadCandidate) => number
  /** Whether it is near enough behind the master for this read. */
  readonly isFresh: (candidate: ReadCandidate) => boolean
}

/** @param candidates - in order of distance */
export function chooseReader<C extends ReadCandidate>(
  candidates: readonly C[],
  mode: CallMode,
  context: ReadContext,
): C | undefined {
  const skipsMaster = mode === 're' || mode === 'bre'
  const isBalanced = mode === 'bro' || mode === 'bre'
  const usable = candidates.filter(
    (candidate) =>
      isUsable(candidate, context) &&
      isRoleKnown(candidate.view) &&
      context.isFresh(candidate) &&
      !(skipsMaster && candidate.slot === context.masterSlot),
  )
  const first = isBalanced ? takeTurn(usable, context) : usable[0]
  if (first !== undefined) return first
  const master = candidates.find(({ slot }) => slot === context.masterSlot)
  if (master !== undefined && isUsable(master, context)) return master
  return candidates.find((candidate) => isUsable(candidate, context) && isLastResort(candidate.view, context))
}

/** Whether a read may be sent there at all. */
function isUsable({ slot, view, restUntilMs }: ReadCandidate, { nowMs, tried }: ReadContext): boolean {
  return isReachable(view) && nowMs >= restUntilMs && !tried.has(slot)
}

function isReachable(view: InstanceView): boolean {
  return view.state === 'up' && !view.stopping && !view.silent && view.misidentified === undefined
}

function isRoleKnown(view: InstanceView): boolean {
  return view.ro !== undefined
}

/** An instance that says nothing may be half configured: it is asked only when it has said nothing for a while and nobody else can serve. */
function isLastResort(view: InstanceView, { nowMs }: ReadContext): boolean {
  const state = stateOf(view)
  return (state === 'MUTE' || state === 'LEGACY') && nowMs - view.sinceMs >= LAST_RESORT_AFTER_MS
}

/** Smooth weighted turns: over any stretch each gets its share, and equals alternate. */
function takeTurn<C extends ReadCandidate>(candidates: readonly C[], { weightOf }: ReadContext): C | undefined {
  const weighted = candidates.some((candidate) => weightOf(candidate) > 0)
  let total = 0
  let best: C | undefined
  for (const candidate of candidates) {
    const weight = weighted ? weightOf(candidate) : 1
    if (weight === 0) continue
    total += weight
    candidate.credit += weight
    if (best === undefined || candidate.credit > best.credit) best = candidate
  }
  if (best !== undefined) best.credit -= total
  return best
}

/** Long enough for an answer of a healthy instance to come first. */
const LAST_RESORT_AFTER_MS = 1_000
