/* One page of the buckets a replicaset serves, as facts about routes. */
import { callRequest, decodeData } from '@orbweaver/iproto'
import { bucketsDiscoveryCall, readBucketsDiscovery } from '@orbweaver/vshard'
import type { RouteFact } from './route-fact.js'
import { callSet } from './set-call.js'
import type { RoutedSet } from './topology.js'

export interface BucketPage {
  readonly buckets: readonly number[]
  /** Where the next page begins; undefined: this was the last. */
  readonly nextFrom: number | undefined
  /** Moment of the question. */
  readonly sent: number
  /** No master was known: a replica told, which may lag behind. */
  readonly isReplica: boolean
  readonly facts: readonly RouteFact[]
}

/**
 * @param sent - the moment of the question
 * @throws the errors of a call of a replicaset, and what the storage says
 */
export async function askPage(set: RoutedSet, from: number, sent: number, deadline: number): Promise<BucketPage> {
  const isReplica = set.replicaset.master() === undefined
  const { name, args } = bucketsDiscoveryCall(from)
  const { reply } = await callSet(set.replicaset, callRequest(name, args), {
    mode: isReplica ? 'ro' : 'rw',
    deadline,
    idempotent: true,
  })
  const page = readBucketsDiscovery(decodeData(reply))
  if (!page.ok) throw page.error
  const { buckets, nextFrom } = page.value
  return {
    buckets,
    nextFrom,
    sent,
    isReplica,
    facts: buckets.map((bucketId) => ({ kind: 'owned', bucketId, sent, owner: set.index, isReplica })),
  }
}
