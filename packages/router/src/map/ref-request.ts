/*
 * Asking for one reference. Whoever does not want it any more must not just forget it: the storage may grant it later, and
 * would keep it for its whole time. So a dropped request stays behind until its answer is in, and gives back what came too late.
 */
import type { ReplySink } from '@orbweaver/connection'
import { callRequest, decodeData, isOrbweaverError, RequestType } from '@orbweaver/iproto'
import type { BodyWriter, OrbweaverError, Reply, Request } from '@orbweaver/iproto'
import type { Attempt, CallMode, InstanceHandle, PinnedSession } from '@orbweaver/replicaset'
import {
  readStorageRef,
  readStorageRefMakeWithBuckets,
  SERVICES,
  storageRefMakeWithBucketsCall,
  toSeconds,
} from '@orbweaver/vshard'
import type { BucketsRefReply, ServiceReply } from '@orbweaver/vshard'
import type { RoutedSet } from '../topology.js'
import { onlyUint } from './first-value.js'
import { HeldRef, sendUnref } from './held-ref.js'
import type { MapOwner } from './map-owner.js'
import { serviceHead } from './service-head.js'

/** What kind of reference: how it is asked for, and whether an answer grants it. */
export interface RefTerms<T> {
  writeBody(out: BodyWriter, id: number, timeoutMs: number): void
  /** @throws MalformedFrameError */
  read(reply: Reply): ServiceReply<T>
  isGranted(value: T): boolean
}

const REF_HEAD = serviceHead(SERVICES.storageRef, 2)

/** Of a whole storage; the value is the number of its buckets. */
export const WHOLE_STORAGE: RefTerms<number> = {
  writeBody: (out, id, timeoutMs) => {
    out.raw(REF_HEAD)
    out.uint(id)
    out.value(toSeconds(timeoutMs))
  },
  read: (reply) => {
    const count = onlyUint(reply)
    return count === undefined ? readStorageRef(decodeData(reply)) : { ok: true, value: count }
  },
  isGranted: () => true,
}

/** For the sake of some buckets; none is given where all of them are gone. */
export function forBuckets(bucketIds: readonly number[]): RefTerms<BucketsRefReply> {
  return {
    writeBody: (out, id, timeoutMs) => {
      const { name, args } = storageRefMakeWithBucketsCall(id, timeoutMs, bucketIds)
      callRequest(name, args).writeBody(out)
    },
    read: (reply) => readStorageRefMakeWithBuckets(decodeData(reply)),
    isGranted: ({ isReferenced }) => isReferenced,
  }
}

export type RefOutcome<T> =
  | { readonly kind: 'granted'; readonly value: T; readonly ref: HeldRef }
  | { readonly kind: 'declined'; readonly value: T }
  | { readonly kind: 'failed'; readonly error: OrbweaverError }

/** Who wants a reference. */
export interface RefListener {
  /** It has an outcome. May be called before the request's `start` returned. */
  refAnswered(request: RefRequest<unknown>): void
}

/** Beyond the time of the reference itself, for its answer to come. */
const ANSWER_MS = 1_000

/** The object is everything at once: what waits for a master, what is sent, and what is told the answer. */
export class RefRequest<T> implements Attempt, Request, ReplySink {
  readonly type: number = RequestType.call
  readonly bytes = 256
  readonly requestClass = 'code'
  readonly idempotent = false
  readonly orderKey = undefined
  /** Ends the wait for an instance; what was sent is answered by the storage in its time. */
  readonly deadline: number
  readonly set: RoutedSet
  outcome: RefOutcome<T> | undefined
  readonly #owner: MapOwner
  readonly #terms: RefTerms<T>
  readonly #mode: CallMode
  #listener: RefListener
  #id = 0
  #timeoutMs = 0
  #epoch = 0
  #instance: InstanceHandle | undefined
  #session: PinnedSession | undefined
  #isDropped = false

  /** @param deadline - when the reference expires by itself; the storage is told what is left of it */
  constructor(
    owner: MapOwner,
    set: RoutedSet,
    mode: CallMode,
    terms: RefTerms<T>,
    deadline: number,
    listener: RefListener,
  ) {
    this.#owner = owner
    this.set = set
    this.#mode = mode
    this.#terms = terms
    this.deadline = deadline
    this.#listener = listener
  }

  start(): this {
    this.set.replicaset.dispatch(this, this.#mode)
    return this
  }

  /** Somebody else waits for it from now on. */
  handTo(listener: RefListener): void {
    this.#listener = listener
  }

  /** Who was asked; undefined while there is nobody to ask. */
  get asked(): InstanceHandle | undefined {
    return this.#instance
  }

  /** It is not needed (any more): what was granted or still will be is given back. */
  drop(): void {
    if (this.#isDropped) return
    this.#isDropped = true
    if (this.outcome?.kind === 'granted') this.outcome.ref.release()
    if (this.outcome !== undefined || this.set.replicaset.withdraw(this)) return
    // The answer may be on its way already: then this frees the storage one round trip sooner.
    if (this.#session !== undefined && !this.#session.lost) sendUnref(this.#owner, this.#session, this.#id)
  }

  // ---- what the replicaset asks and the connection tells ------------------------------------------------------------

  run(instance: InstanceHandle, epoch: number): 'sent' | 'elsewhere' {
    if (this.#isDropped) return 'elsewhere'
    this.#id = this.#owner.nextRefId()
    this.#epoch = epoch
    this.#instance = instance
    this.#session = instance.pin()
    this.#timeoutMs = Math.max(0, this.deadline - this.#owner.clock.now())
    this.#session.send(this, { deadline: this.deadline + ANSWER_MS }, this)
    return 'sent'
  }

  writeBody(out: BodyWriter): void {
    this.#terms.writeBody(out, this.#id, this.#timeoutMs)
  }

  giveUp(error: OrbweaverError): void {
    this.#ended({ kind: 'failed', error })
  }

  done(reply: Reply): void {
    if (this.#isTakenBack(reply)) return
    const outcome = this.#read(reply)
    if (this.#isDropped && outcome.kind === 'granted') outcome.ref.release()
    this.#ended(outcome)
  }

  failed(error: OrbweaverError): void {
    if (this.#isTakenBack(error)) return
    this.#ended({ kind: 'failed', error })
  }

  // ---- inside -------------------------------------------------------------------------------------------------------

  #read(reply: Reply): RefOutcome<T> {
    try {
      const answer = this.#terms.read(reply)
      if (!answer.ok) return { kind: 'failed', error: answer.error }
      const { value } = answer
      if (!this.#terms.isGranted(value)) return { kind: 'declined', value }
      const ref = new HeldRef(this.#owner, this.set, this.#id, this.#instance!, this.#session!)
      return { kind: 'granted', value, ref }
    } catch (error) {
      if (isOrbweaverError(error)) return { kind: 'failed', error }
      throw error
    }
  }

  /** The replicaset will run it again, maybe elsewhere: what this try had is over. It may do so before it returns. */
  #isTakenBack(outcome: Reply | OrbweaverError): boolean {
    const session = this.#session
    const instance = this.#instance
    this.#session = undefined
    this.#instance = undefined
    if (this.set.replicaset.settle(this, this.#epoch, outcome)) return true
    this.#session = session
    this.#instance = instance
    return false
  }

  #ended(outcome: RefOutcome<T>): void {
    this.outcome = outcome
    if (!this.#isDropped) this.#listener.refAnswered(this)
  }
}
