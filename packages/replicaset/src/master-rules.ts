/**
 * Who is the master, from what is believed of each instance. Pure: views and the time in, a verdict out; evaluated after
 * every change of a view. The master is who is *writable*, not who is leader: a leader may still be read-only, and without
 * elections nobody leads. Terms order claims only when they differ, since without elections the term is 1 for ever.
 */
import { type InstanceView, stateOf } from './instance-view.js'

export type OnConflict = 'keep' | 'error'

/** One instance as the rules see it. */
export interface Candidate {
  readonly id: string
  readonly view: InstanceView
}

export interface SelectionContext {
  /** The master so far: who, and in which of its generations. */
  readonly current: { readonly id: string; readonly generation: number } | undefined
  /** Highest term ever seen in this replicaset: by events, polls and fields of errors. */
  readonly maxTerm: number
  readonly nowMs: number
  readonly onConflict: OnConflict
  /** Whom an operator has just promoted: first among equal claims. */
  readonly announced: string | undefined
  /** Whom to take among equal claims when the current master is none of them. */
  readonly preferred: string | undefined
  /** The configuration names the master: nobody is discovered. */
  readonly configured: string | undefined
}

export type Selection =
  /** `conflict`: all who claim with the same right, empty when there is only one. */
  | { readonly kind: 'master'; readonly id: string; readonly conflict: readonly string[] }
  | { readonly kind: 'conflict'; readonly ids: readonly string[] }
  /** `stale`: the one whose claim is alone and has an old term; it is accepted after a grace. */
  | { readonly kind: 'none'; readonly stale: string | undefined }

export function selectMaster(candidates: readonly Candidate[], context: SelectionContext): Selection {
  if (context.configured !== undefined) return configuredMaster(candidates, context.configured)
  const eligible = candidates.filter(({ view }) => isEligible(view, context.nowMs))
  const claims = eligible.filter(({ view }) => !isStale(view, context.maxTerm) && !view.silent)
  if (claims.length === 0) return { kind: 'none', stale: newestClaim(eligible.filter(({ view }) => !view.silent)) }
  const newest = Math.max(...claims.map(({ view }) => view.term ?? NO_TERM))
  const best = claims.filter(({ view }) => (view.term ?? NO_TERM) === newest)
  const [only] = best
  if (only !== undefined && best.length === 1) return { kind: 'master', id: only.id, conflict: [] }
  const ids = best.map(({ id }) => id)
  if (context.announced !== undefined && ids.includes(context.announced))
    return { kind: 'master', id: context.announced, conflict: ids }
  if (context.onConflict === 'keep') {
    const kept = best.find(
      ({ id, view }) => id === context.current?.id && view.generation === context.current.generation,
    )
    if (kept !== undefined) return { kind: 'master', id: kept.id, conflict: ids }
    if (context.preferred !== undefined && ids.includes(context.preferred))
      return { kind: 'master', id: context.preferred, conflict: ids }
  }
  return { kind: 'conflict', ids }
}

/** Whether its claim counts at all. */
function isEligible(view: InstanceView, nowMs: number): boolean {
  return (
    (stateOf(view) === 'RW' || (view.state === 'up' && view.configuredMaster === true)) &&
    !view.stopping &&
    !view.refused &&
    view.misidentified === undefined &&
    view.configuredMaster !== false &&
    nowMs >= view.liesUntilMs
  )
}

/** Whether somebody of this replicaset has seen a later term than the one this instance claims with. */
export function isStale(view: InstanceView, maxTerm: number): boolean {
  return view.term !== undefined && view.term < maxTerm && !view.staleAccepted
}

/** When the passing of time alone may change the verdict; Infinity: never. */
export function nextSelectionMs(candidates: readonly Candidate[], nowMs: number): number {
  let next = Number.POSITIVE_INFINITY
  for (const { view } of candidates) {
    if (view.liesUntilMs > nowMs && view.liesUntilMs < next) next = view.liesUntilMs
  }
  return next
}

/** Why an instance takes no writes, in words for errors and `info()`; undefined: it could. */
export function whyNotMaster(view: InstanceView, maxTerm: number, nowMs: number): string | undefined {
  if (view.state !== 'up') return view.unknownReason ?? 'not connected'
  if (view.misidentified !== undefined) return view.misidentified
  if (view.stopping) return 'shutting down'
  if (view.silent) return 'does not answer'
  if (view.refused) return 'refused a write and has not confirmed its role since'
  const state = stateOf(view)
  if (state === 'RO') return 'read-only'
  if (state === 'RW_PENDING') return 'writable, its term is not known yet'
  if (state !== 'RW') return view.unknownReason ?? 'role unknown'
  if (view.configuredMaster === false) return 'writable, but not the configured master'
  if (nowMs < view.liesUntilMs) return 'set aside: it claims to be writable and refuses writes'
  if (isStale(view, maxTerm)) return `writable with the old term ${String(view.term)}, the newest is ${String(maxTerm)}`
  return undefined
}

function configuredMaster(candidates: readonly Candidate[], id: string): Selection {
  const view = candidates.find((candidate) => candidate.id === id)?.view
  const isUsable =
    view?.state === 'up' && !view.loading && !view.stopping && !view.silent && view.misidentified === undefined
  return isUsable ? { kind: 'master', id, conflict: [] } : { kind: 'none', stale: undefined }
}

function newestClaim(claims: readonly Candidate[]): string | undefined {
  let newest: Candidate | undefined
  for (const claim of claims) {
    if (newest === undefined || (claim.view.term ?? NO_TERM) > (newest.view.term ?? NO_TERM)) newest = claim
  }
  return newest?.id
}

/** A claim without a term ranks below every claim with one. */
const NO_TERM = -1
