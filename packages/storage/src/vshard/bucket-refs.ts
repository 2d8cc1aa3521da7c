/*
 * Counters of the requests that use a bucket now. While there are any, the bucket's data stays; a write reference also keeps it
 * from being sent. Refusals are those of vshard's table of status against mode.
 */
import { VshardError } from '@orbweaver/vshard'
import { BUCKET_STATUS } from './bucket-record.js'
import type { BucketRecord, BucketStatus } from './bucket-record.js'
import type { Buckets } from './buckets.js'

export type BucketMode = 'read' | 'write'

/** Who this instance is, as errors name it. */
export interface VshardIdentity {
  readonly instanceId: string
  readonly replicasetId: string
  /** The master as far as it is known. */
  readonly masterId: string | undefined
  readonly isMaster: boolean
}

export interface BucketCounters {
  readonly read: number
  readonly write: number
}

interface Counters {
  read: number
  write: number
}

type Refusal = (record: BucketRecord) => VshardError

const wrongBucket =
  (reason: string): Refusal =>
  ({ id, destination }) =>
    VshardError.of('WRONG_BUCKET', { bucket_id: id, reason, destination })
const inTransfer: Refusal = ({ id, destination }) =>
  VshardError.of('TRANSFER_IS_IN_PROGRESS', { bucket_id: id, destination })

/** What a status answers to a mode; absent: it is served. */
const REFUSALS: Readonly<Record<BucketStatus, Partial<Record<BucketMode, Refusal>>>> = {
  active: {},
  pinned: {},
  readonly: { write: inTransfer },
  sending: { write: inTransfer },
  receiving: { read: wrongBucket('read is prohibited'), write: inTransfer },
  sent: { read: wrongBucket('read is prohibited'), write: wrongBucket('write is prohibited') },
  garbage: { read: wrongBucket('read is prohibited'), write: wrongBucket('write is prohibited') },
}

export class BucketRefs {
  readonly #buckets: Buckets
  readonly #identity: VshardIdentity
  readonly #counters = new Map<number, Counters>()

  constructor(buckets: Buckets, identity: VshardIdentity) {
    this.#buckets = buckets
    this.#identity = identity
  }

  /** Takes a reference, or says why not. */
  take(id: number, mode: BucketMode): VshardError | undefined {
    const refusal = this.#refusal(id, mode)
    if (refusal !== undefined) return refusal
    let counters = this.#counters.get(id)
    if (counters === undefined) {
      counters = { read: 0, write: 0 }
      this.#counters.set(id, counters)
    }
    counters[mode]++
    return undefined
  }

  /** Gives it back; or says that the bucket vanished meanwhile, so that what was read may be a part only. */
  release(id: number, mode: BucketMode): VshardError | undefined {
    const counters = this.#counters.get(id)
    if (counters === undefined || counters[mode] === 0) {
      return VshardError.of('BUCKET_IS_CORRUPTED', { bucket_id: id, reason: `no ${mode} reference is held` })
    }
    counters[mode]--
    if (counters.read === 0 && counters.write === 0) this.#counters.delete(id)
    const record = this.#buckets.get(id)
    if (record === undefined || !BUCKET_STATUS[record.status].isReadable) {
      return VshardError.of('BUCKET_IS_CORRUPTED', {
        bucket_id: id,
        reason: 'the bucket left this instance during the call',
      })
    }
    return undefined
  }

  of(id: number): BucketCounters | undefined {
    return this.#counters.get(id)
  }

  /** Why a bucket does not serve a mode now. */
  #refusal(id: number, mode: BucketMode): VshardError | undefined {
    const record = this.#buckets.get(id)
    if (record === undefined) return VshardError.of('WRONG_BUCKET', { bucket_id: id, reason: 'Not found' })
    const refusal = REFUSALS[record.status][mode]
    if (refusal !== undefined) return refusal(record)
    if (mode === 'write' && !this.#identity.isMaster) {
      const { instanceId: replica, replicasetId: replicaset, masterId: master } = this.#identity
      return VshardError.of('NON_MASTER', { replica, replicaset, master })
    }
    return undefined
  }
}
