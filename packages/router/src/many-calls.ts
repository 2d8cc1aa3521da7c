/*
 * Many calls on buckets at once, grouped by the replicasets their routes name: each group has its own number of calls in flight, so
 * that a slow replicaset holds up only its own, and what goes to one replicaset goes out together.
 */
import { InvalidArgumentError } from '@orbweaver/iproto'
import type { OrbweaverError } from '@orbweaver/iproto'

/** One call of many. */
export interface ManyCall {
  readonly bucketId: number
  readonly name: string
  readonly args?: readonly unknown[]
}

/** How one of many ended. */
export type ManyOutcome<T extends unknown[] = unknown[]> =
  | { readonly ok: true; readonly values: T }
  | { readonly ok: false; readonly error: OrbweaverError }

/** Calls of one group that are out at the same time. */
const IN_FLIGHT = 1_024

/** Starts one call; told its end once. */
export type CallStarter = (
  call: ManyCall,
  resolve: (values: unknown[]) => void,
  reject: (error: OrbweaverError) => void,
) => void

/** @param groupOf - a number that calls of the same replicaset share */
export function runMany(
  calls: readonly ManyCall[],
  groupOf: (call: ManyCall) => number,
  start: CallStarter,
): Promise<ManyOutcome[]> {
  return new Promise((resolve) => {
    const outcomes: ManyOutcome[] = Array.from({ length: calls.length })
    let left = calls.length
    if (left === 0) {
      resolve(outcomes)
      return
    }
    const groups = new Map<number, number[]>()
    for (const [at, call] of calls.entries()) {
      const group = groupOf(call)
      const members = groups.get(group)
      if (members === undefined) groups.set(group, [at])
      else members.push(at)
    }
    const ended = (at: number, outcome: ManyOutcome): void => {
      outcomes[at] = outcome
      left--
      if (left === 0) resolve(outcomes)
    }
    for (const members of groups.values()) runGroup(members, calls, start, ended)
  })
}

function runGroup(
  members: readonly number[],
  calls: readonly ManyCall[],
  start: CallStarter,
  ended: (at: number, outcome: ManyOutcome) => void,
): void {
  let next = 0
  let inFlight = 0
  let isStarting = false
  const over = (at: number, outcome: ManyOutcome): void => {
    inFlight--
    ended(at, outcome)
    startSome()
  }
  const startSome = (): void => {
    // A call may end while it starts: then the loop goes on, it does not nest.
    if (isStarting) return
    isStarting = true
    while (inFlight < IN_FLIGHT && next < members.length) {
      const at = members[next++]!
      inFlight++
      start(
        calls[at]!,
        (values) => over(at, { ok: true, values }),
        (error) => over(at, { ok: false, error }),
      )
    }
    isStarting = false
  }
  startSome()
}

/** @throws InvalidArgumentError */
export function checkMany(calls: unknown): void {
  if (!Array.isArray(calls)) throw new InvalidArgumentError('Expected a list of calls: { bucketId, name, args }')
  for (const [i, call] of calls.entries()) {
    if (typeof call !== 'object' || call === null)
      throw new InvalidArgumentError(`Call ${i} of the list is no object: expected { bucketId, name, args }`)
  }
}
