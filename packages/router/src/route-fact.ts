/* What is learnt about one bucket, and when it may change the route: late news never overwrites newer (failover.md C3). */
import { UNKNOWN } from './route-table.js'

/** `from` and `owner` are indexes of sets; `sent` is the moment at which the request was sent that brought it. */
export type RouteFact =
  /** `from` does not have it; `owner`: whom it named (UNKNOWN: nobody, or nobody we know, whose id is in `destination`). */
  | {
      readonly kind: 'moved'
      readonly bucketId: number
      readonly sent: number
      readonly from: number
      readonly owner: number
      readonly destination?: string | undefined
    }
  /** `owner` answered for it, listed it, or was found to have it. */
  | {
      readonly kind: 'owned'
      readonly bucketId: number
      readonly sent: number
      readonly owner: number
      /** A replica says so, which may lag behind: good only where nothing is known. */
      readonly isReplica?: boolean
    }
  /** A whole sweep of `from` did not list it. */
  | { readonly kind: 'unlisted'; readonly bucketId: number; readonly sent: number; readonly from: number }

/** What an entry becomes by a fact: its value when the fact is older than the entry, or speaks of another owner's past. */
export function accept(fact: RouteFact, value: number, stamp: number): number {
  if (fact.sent < stamp) return value
  switch (fact.kind) {
    case 'owned':
      return fact.isReplica === true && value !== UNKNOWN ? value : fact.owner
    case 'moved':
      if (fact.owner === fact.from) return value // it names itself: a transfer, not a route
      if (fact.owner === UNKNOWN) return value === fact.from ? UNKNOWN : value
      return value === fact.from || value === UNKNOWN ? fact.owner : value
    case 'unlisted':
      return value === fact.from ? UNKNOWN : value
  }
}
