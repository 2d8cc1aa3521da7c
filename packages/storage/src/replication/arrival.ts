/* What to do with something that arrives from a peer. Pure: rules in their order, the first that applies decides. */
import type { History } from './history.js'
import { accepts, compareEpochs } from './role.js'
import type { RoleState } from './role.js'
import type { Epoch, RowTransaction } from './transaction.js'
import { lastLsn } from './transaction.js'
import { covers, lsnOf } from './vclock.js'
import type { Vclock } from './vclock.js'

/** Where the receiving instance stands. */
export interface Standing {
  readonly self: number
  readonly role: RoleState
  readonly history: History
  readonly vclock: Vclock
  /** A promotion that does not include all that is here: only a state that knows it may come in. */
  readonly diverged: Epoch | undefined
}

/**
 * - `apply`: it is the next one of its origin
 * - `known`: it is here already
 * - `late`: of a term that is over, or from somebody a later term was not promised to
 * - `gap`: something before it is missing
 * - `diverged`: it proves that some of what is here never happened
 */
export type Verdict = 'apply' | 'known' | 'late' | 'gap' | 'diverged'

interface Rule {
  readonly verdict: Verdict
  /** @param epoch - the term it was made in, and whose term that is */
  readonly applies: (here: Standing, arriving: RowTransaction, epoch: Epoch, peer: number) => boolean
}

const isKnown: Rule['applies'] = ({ vclock }, arriving) => lastLsn(arriving) <= lsnOf(vclock, arriving.origin)
const isForbidden: Rule['applies'] = ({ role, self }, _, { term }, peer) => !accepts(role, term, peer, self)
const isGap: Rule['applies'] = ({ vclock }, { origin, lsn }) => lsn !== lsnOf(vclock, origin) + 1

/** Rows of a transaction. */
const ROW_RULES: readonly Rule[] = [
  { verdict: 'known', applies: isKnown },
  { verdict: 'late', applies: isForbidden },
  { verdict: 'diverged', applies: ({ diverged }) => diverged !== undefined },
  { verdict: 'gap', applies: isGap },
]

const isOlder: Rule['applies'] = ({ role }, _, epoch) => compareEpochs(epoch, role) < 0

/** A promotion. That its number is known proves nothing: it may have been another row's here. */
const PROMOTION_RULES: readonly Rule[] = [
  { verdict: 'known', applies: ({ role }, _, epoch) => compareEpochs(epoch, role) === 0 },
  { verdict: 'known', applies: (...all) => isOlder(...all) && isKnown(...all) },
  { verdict: 'late', applies: isOlder },
  { verdict: 'late', applies: isForbidden },
  { verdict: 'diverged', applies: ({ vclock }, { promotion }) => !covers(promotion!.vclock, vclock) },
  { verdict: 'gap', applies: isGap },
  { verdict: 'gap', applies: ({ vclock }, { promotion }) => !covers(vclock, promotion!.vclock) },
]

/** What becomes of a transaction from `peer`. */
export function judge(here: Standing, transaction: RowTransaction, peer: number): Verdict {
  const { promotion } = transaction
  const epoch = promotion ?? epochOf(here, transaction.origin)
  for (const rule of promotion === undefined ? ROW_RULES : PROMOTION_RULES)
    if (rule.applies(here, transaction, epoch, peer)) return rule.verdict
  return 'apply'
}

/** Of the next row of `origin`. */
export function epochOf({ history }: Standing, origin: number): Epoch {
  return { term: history.termOf(origin), leader: origin }
}

/** Whether a whole state may replace the one here: `apply`, `known` when it holds nothing new, or `late`. */
export function judgeState(
  here: Standing,
  state: { readonly epoch: Epoch; readonly vclock: Vclock },
  peer: number,
): Verdict {
  const { role, diverged, self, vclock } = here
  if (compareEpochs(state.epoch, diverged ?? role) < 0 || !accepts(role, state.epoch.term, peer, self)) return 'late'
  const isSame = diverged === undefined && compareEpochs(state.epoch, role) === 0
  return isSame && covers(vclock, state.vclock) ? 'known' : 'apply'
}
