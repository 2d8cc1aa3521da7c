/*
 * What becomes of a bucket whose move was interrupted, by what the other side says. Source: vshard 0.1.42, with a few cells
 * more: a sending bucket that somebody serves with a newer generation has left (the original asks about it forever); a
 * receiving one whose sender does not know of the send any more is not ours.
 */
import type { BucketRecord, BucketStatus } from './bucket-record.js'

/** What another replicaset says about the bucket. */
export interface RemoteBucket {
  readonly status: BucketStatus
  readonly generation: number
  /** A move of it runs there at this moment. */
  readonly isTransferring: boolean
  /** It is the other side of this move, not somebody who was asked because that one has no record. */
  readonly isPeer: boolean
}

export type Verdict = 'active' | 'sent' | 'garbage' | 'wait'

type Answer = BucketStatus | 'nowhere'
type Row = Readonly<Record<Answer, Verdict>>

/** How the other record's generation compares; `lowerElsewhere`: older, and found with somebody who is not the peer of this move. */
type Relation = 'higher' | 'equal' | 'lower' | 'lowerElsewhere'

const RULES: Readonly<Record<'sending' | 'receiving', Readonly<Record<Relation, Row>>>> = {
  sending: {
    // An unfinished receiver may yet give up: then it is nowhere else.
    higher: row('sent', { receiving: 'wait' }),
    equal: row('wait', { active: 'sent', pinned: 'sent', sent: 'active', garbage: 'active', nowhere: 'active' }),
    // Whatever is over there is older than this send, so this send never arrived.
    lower: row('active', { active: 'wait', pinned: 'wait' }),
    lowerElsewhere: row('active', { active: 'wait', pinned: 'wait' }),
  },
  receiving: {
    higher: row('garbage'),
    equal: row('garbage', { sent: 'active', garbage: 'active', nowhere: 'active', receiving: 'wait' }),
    // The sender lost the record of this send (its master changed): it will serve the bucket.
    lower: row('garbage', { sent: 'active', garbage: 'active', receiving: 'active' }),
    lowerElsewhere: row('garbage', { sending: 'active', sent: 'active', garbage: 'active', receiving: 'active' }),
  },
}

/** @param remote - undefined: no replicaset has the bucket */
export function verdictOf(local: BucketRecord, remote: RemoteBucket | undefined): Verdict {
  if (local.status === 'readonly') return 'active'
  if (local.status !== 'sending' && local.status !== 'receiving') return 'wait'
  if (remote === undefined) return RULES[local.status].equal.nowhere
  if (remote.isTransferring) return 'wait'
  return RULES[local.status][relationOf(local, remote)][remote.status]
}

function relationOf(local: BucketRecord, remote: RemoteBucket): Relation {
  if (remote.generation === local.generation) return 'equal'
  if (remote.generation > local.generation) return 'higher'
  return remote.isPeer ? 'lower' : 'lowerElsewhere'
}

function row(rest: Verdict, cells: Partial<Record<Answer, Verdict>> = {}): Row {
  return {
    active: rest,
    pinned: rest,
    readonly: rest,
    sending: rest,
    sent: rest,
    receiving: rest,
    garbage: rest,
    nowhere: rest,
    ...cells,
  }
}
