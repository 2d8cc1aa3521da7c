/*
 * Counters of the requests that use a bucket now. While there are any, the bucket's data stays; a write reference also keeps it
 * from being sent. A bucket that was used once keeps its counters until it is gone: their locks follow its status, and answer
 * alone from then on (vshard 0.1.42). Refusals are those of vshard's table of status against mode.
 */
import type { Clock } from '@orbweaver/connection'
import { VshardError } from '@orbweaver/vshard'
import { BUCKET_STATUS } from './bucket-record.js'
import type { BucketRecord, BucketStatus } from './bucket-record.js'
import type { Buckets } from './buckets.js'
import { Waiters } from './waiters.js'

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
  /** No more references of that mode are given. */
  readonly readLock: boolean
  readonly writeLock: boolean
}

interface Counters {
  read: number
  write: number
  readLock: boolean
  writeLock: boolean
}

/** One reference that was given: only the counters it was taken from take it back. */
export interface BucketRef {
  readonly id: number
  readonly mode: BucketMode
  readonly counters: BucketCounters
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
  readonly #writesEnded: Waiters
  #writes = 0
  #isClosedToWrites = false

  constructor(buckets: Buckets, identity: VshardIdentity, clock: Clock) {
    this.#buckets = buckets
    this.#identity = identity
    this.#writesEnded = new Waiters(clock)
  }

  /** Takes a reference, or says why not. */
  take(id: number, mode: BucketMode): BucketRef | VshardError {
    const refusal = this.#refusal(id, mode)
    if (refusal !== undefined) return refusal
    let counters = this.#counters.get(id)
    if (counters === undefined) {
      counters = {
        read: 0,
        write: 0,
        readLock: false,
        writeLock: !BUCKET_STATUS[this.#buckets.get(id)!.status].isWritable,
      }
      this.#counters.set(id, counters)
    }
    counters[mode]++
    if (mode === 'write') this.#writes++
    return { id, mode, counters }
  }

  /** Gives it back; or says that the bucket vanished meanwhile, so that what was read may be a part only. */
  release({ id, mode, counters: taken }: BucketRef): VshardError | undefined {
    if (mode === 'write') this.#writes--
    const counters = this.#counters.get(id)
    if (counters === undefined || counters !== taken) {
      if (mode === 'write') this.#writesEnded.wake()
      return VshardError.of('BUCKET_IS_CORRUPTED', {
        bucket_id: id,
        reason: `no ${mode === 'read' ? 'ro' : 'rw'} refs on unref`,
      })
    }
    counters[mode]--
    // The collector waits for the last reader of a bucket that has left, a move for the last writer.
    if (mode === 'read' && counters.read === 0 && counters.readLock) this.#buckets.touch()
    if (mode === 'write' && counters.write === 0) this.#writesEnded.wake()
    return undefined
  }

  /** undefined: it was not used yet, or is gone. */
  of(id: number): BucketCounters | undefined {
    return this.#counters.get(id)
  }

  /** Write references of all buckets. */
  get writes(): number {
    return this.#writes
  }

  /** Whether the writes to these buckets end within the time; without ids: those to all buckets. */
  async writesEnded(deadline: number, ids?: readonly number[]): Promise<boolean> {
    const isQuiet = (): boolean =>
      ids === undefined ? this.#writes === 0 : ids.every((id) => (this.#counters.get(id)?.write ?? 0) === 0)
    return this.#writesEnded.until(isQuiet, deadline)
  }

  /** Gives no write references any more until it is opened again: the role is about to go. */
  setClosedToWrites(isClosed: boolean): void {
    this.#isClosedToWrites = isClosed
  }

  /** Takes note of a record that changed: locks follow the status. */
  note(id: number, record: BucketRecord | undefined): void {
    const counters = this.#counters.get(id)
    if (counters === undefined) return
    const isUsed = counters.read + counters.write > 0
    // Used garbage: only a master that could not ask this instance makes it. Its readers must learn that they read a part.
    if (record === undefined || record.status === 'receiving' || (record.status === 'garbage' && isUsed)) {
      this.#counters.delete(id)
      this.#writesEnded.wake()
      return
    }
    const { isReadable, isWritable } = BUCKET_STATUS[record.status]
    counters.readLock = !isReadable
    counters.writeLock = !isWritable
  }

  /** Takes note that all records were replaced. */
  noteAll(): void {
    for (const id of [...this.#counters.keys()]) this.note(id, this.#buckets.get(id))
  }

  /** Why a bucket does not serve a mode now. */
  #refusal(id: number, mode: BucketMode): VshardError | undefined {
    const record = this.#buckets.get(id)
    const counters = this.#counters.get(id)
    if (counters !== undefined && (mode === 'read' ? counters.readLock : counters.writeLock)) {
      // vshard gives no destination here, so a router must ask everybody; it reads one where it is.
      return VshardError.of('BUCKET_IS_LOCKED', { bucket_id: id, destination: record?.destination })
    }
    if (counters === undefined) {
      if (record === undefined) return this.#absent(id)
      const refusal = REFUSALS[record.status][mode]
      if (refusal !== undefined) return refusal(record)
    }
    if (mode === 'write' && (this.#isClosedToWrites || !this.#identity.isMaster)) return nonMaster(this.#identity)
    return undefined
  }

  #absent(id: number): VshardError {
    return VshardError.of('WRONG_BUCKET', {
      bucket_id: id,
      reason: 'Not found',
      destination: this.#buckets.redirects.get(id),
    })
  }

  /** Why a record cannot be read, as `bucket_stat` says it beside the record. */
  unreadable(id: number): VshardError | undefined {
    const record = this.#buckets.get(id)
    return record === undefined ? this.#absent(id) : REFUSALS[record.status].read?.(record)
  }

  /** Why a bucket takes no writes, by its status and the role alone. */
  unwritable(id: number): VshardError | undefined {
    const record = this.#buckets.get(id)
    if (record === undefined) return this.#absent(id)
    return REFUSALS[record.status].write?.(record) ?? (this.#identity.isMaster ? undefined : nonMaster(this.#identity))
  }
}

export function nonMaster({ instanceId, replicasetId, masterId }: VshardIdentity): VshardError {
  return VshardError.of('NON_MASTER', { replica: instanceId, replicaset: replicasetId, master: masterId })
}
