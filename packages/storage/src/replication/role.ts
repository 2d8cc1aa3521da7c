/*
 * Who may write, in which term. Pure: a state and its transitions; whoever holds it announces changes and moves rows.
 *
 * A promotion has two halves, as in any consensus with terms. First the candidate asks the others to `promise` a term: from
 * then on they take rows of older terms from nobody but the candidate, and a master that promises stops writing. When
 * enough have promised that every acknowledged write is on one of them, and the candidate has all they have, it writes the
 * promotion and becomes writable. Whoever applies it follows.
 */
export interface RoleState {
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

/** The state after promising `term` to `candidate`, or undefined when a term at least as high was promised to somebody else. */
export function promise(state: RoleState, term: number, candidate: number): RoleState | undefined {
  if (term < state.promised || (term === state.promised && candidate !== state.promisedTo)) return undefined
  return { ...state, promised: term, promisedTo: candidate, isWritable: false }
}

/** The state after a promotion was applied; a term that is not newer changes nothing. */
export function follow(state: RoleState, term: number, leader: number, self: number): RoleState {
  if (term <= state.term) return state
  const isNewest = term >= state.promised
  return {
    term,
    leader,
    promised: Math.max(term, state.promised),
    promisedTo: isNewest ? leader : state.promisedTo,
    isWritable: isNewest && leader === self,
  }
}

/** Writing stops; the term stays. */
export function stepDown(state: RoleState): RoleState {
  return { ...state, isWritable: false }
}

/**
 * Whether rows of `term` may be taken from `peer`: rows of the present always, older ones only on the way to a promised term,
 * from its candidate or by the candidate itself until it is the master.
 */
export function accepts(state: RoleState, term: number, peer: number, self: number): boolean {
  return (
    term >= state.promised || peer === state.promisedTo || (state.promisedTo === self && state.term < state.promised)
  )
}

/** How many of `instances` must promise so that one of them has every write that `quorum` instances have. */
export function promisesNeeded(instances: number, quorum: number): number {
  return instances - quorum + 1
}
