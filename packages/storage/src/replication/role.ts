/*
 * Who may write, in which term. Pure: a state and its transitions; whoever holds it announces changes and moves rows.
 *
 * A promotion has two halves, as in any consensus with terms. First the candidate asks the others to `promise` a term: from
 * then on they take rows of older terms from nobody but the candidate, and a master that promises stops writing. When
 * enough have promised that every acknowledged write is on one of them, and the candidate has all they have, it writes the
 * promotion and becomes writable. Whoever applies it follows.
 */
import type { Epoch } from './transaction.js'

export interface RoleState extends Epoch {
  /** The term of the last promotion applied; 1 before the first. */
  readonly term: number
  /** Number of the instance that was promoted in `term`, 0 when nobody was. */
  readonly leader: number
  /** The highest term promised; never below `term`. */
  readonly promised: number
  /** Number of the candidate it was promised to. */
  readonly promisedTo: number
  readonly isWritable: boolean
}

export const INITIAL_ROLE: RoleState = { term: 1, leader: 0, promised: 1, promisedTo: 0, isWritable: false }

/** The largest term that is understood: behind it numbers are no longer exact. */
export const MAX_TERM: number = 2 ** 52

/**
 * Negative: `a` is older. Promises keep two instances from being promoted in one term; without a quorum two that cannot reach
 * each other may be, and then the one of the higher number stays.
 */
export function compareEpochs(a: Epoch, b: Epoch): number {
  return a.term - b.term || a.leader - b.leader
}

/** The state after promising `term` to `candidate`, or undefined when a term at least as high was promised to somebody else. */
export function promise(state: RoleState, term: number, candidate: number): RoleState | undefined {
  if (term < state.promised || (term === state.promised && candidate !== state.promisedTo)) return undefined
  return { ...state, promised: term, promisedTo: candidate, isWritable: false }
}

/**
 * The state after a promotion came from elsewhere; one that is not newer changes nothing. Nobody becomes writable by what it is told,
 * not by a promotion of its own either: an instance that lost its data gets that back from the others, in the middle of rows of its own
 * which it does not have yet, and would give their numbers to other rows.
 */
export function follow(state: RoleState, { term, leader }: Epoch): RoleState {
  if (compareEpochs({ term, leader }, state) <= 0) return state
  const isNewest = term >= state.promised
  return {
    term,
    leader,
    promised: Math.max(term, state.promised),
    promisedTo: isNewest ? leader : state.promisedTo,
    isWritable: false,
  }
}

/** The state of the instance that has just written its own promotion. */
export function lead(state: RoleState, promotion: Epoch): RoleState {
  return { ...follow(state, promotion), isWritable: promotion.term >= state.promised }
}

/** Writing stops; the term stays. */
export function stepDown(state: RoleState): RoleState {
  return { ...state, isWritable: false }
}

/**
 * Whether anything of `term` (rows, a promotion, a whole state) may be taken from `peer`: of the present always, older things
 * only on the way to a promised term, from its candidate or by the candidate itself until it is the master.
 */
export function accepts(state: RoleState, term: number, peer: number, self: number): boolean {
  if (term < state.term) return false
  return term >= state.promised || peer === state.promisedTo || state.promisedTo === self
}

/** What an instance says it has on its disk. */
export interface Acknowledgement {
  /** Its last row of the master. */
  readonly lsn: number
  /** The highest term it has promised. */
  readonly term: number
}

/**
 * Whether an acknowledgement counts for the quorum of what was written here. Positions mean something only within one term: under
 * another one the same number may be another row. And what was written before the promotion counts only together with it: until
 * then a master of a term in between, who never had it, may turn up.
 * @param since - number of the row of its promotion
 */
export function counts(state: RoleState, since: number, { term, lsn }: Acknowledgement): boolean {
  return term === state.term && state.promised === state.term && lsn >= since
}

/**
 * How many of `instances` must promise: so many that one of them has every write that `quorum` instances have, and that no two
 * candidates get them for one term. Without a quorum the candidate's own word is enough.
 */
export function promisesNeeded(instances: number, quorum: number): number {
  if (quorum <= 1) return 1
  return Math.max(instances - quorum + 1, Math.floor(instances / 2) + 1)
}
