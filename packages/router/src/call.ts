/*
 * One call of a function on a bucket, from the first try to the answer. The object is everything at once: what waits in a
 * replicaset's window, what is told the reply, and the state of the retries; nothing is allocated per try.
 *
 * A storage's refusal is answered by something that changes the odds: WRONG_BUCKET by going where the bucket is, a transfer by
 * waiting. What the user's function returned or raised is final. Limits are of time, never of the number of tries.
 */
import { RequestAbortedError, RequestTimeoutError } from '@orbweaver/connection'
import type { ReplySink } from '@orbweaver/connection'
import { callRequest, decodeData, isOrbweaverError } from '@orbweaver/iproto'
import type { DecodeOptions, OrbweaverError, Reply, Request, RequestClass } from '@orbweaver/iproto'
import type { Attempt, CallMode, InstanceHandle } from '@orbweaver/replicaset'
import { readStorageCall, storageCall, VshardError } from '@orbweaver/vshard'
import type { BucketLookup } from './lookup.js'
import { UNKNOWN } from './route-table.js'
import type { RouteWorker } from './route-worker.js'
import type { RoutedSet, Topology } from './topology.js'
import type { Clock } from '@orbweaver/connection'

/** What calls need of their router. */
export interface CallOwner {
  readonly clock: Clock
  readonly random: () => number
  readonly topology: Topology
  readonly routes: RouteWorker
  readonly lookup: BucketLookup
  readonly calls: { retries: number; hops: number }
}

export interface BucketCallOptions {
  readonly mode: CallMode
  /** Milliseconds the caller gave it, for the message when they are over. */
  readonly timeoutMs: number
  readonly deadline: number
  readonly signal: AbortSignal | undefined
  readonly decode: DecodeOptions | undefined
}

/** What a refusal of a storage calls for; a name that is absent is the caller's answer. */
const REACTION: Readonly<Record<string, 'follow' | 'wait'>> = {
  WRONG_BUCKET: 'follow',
  TRANSFER_IS_IN_PROGRESS: 'wait',
  BUCKET_IS_LOCKED: 'wait',
}

/** Hops without a pause: one for a stale route, one for a route that was stale there too. */
const FREE_HOPS = 2
const HOP_PAUSE_MS = 10
const LONGEST_HOP_PAUSE_MS = 200
const WAIT_PAUSE_MS = 50
const LONGEST_WAIT_PAUSE_MS = 500

export class BucketCall implements Attempt, ReplySink {
  readonly deadline: number
  readonly bytes: number
  readonly requestClass: RequestClass = 'code'
  readonly idempotent: boolean
  readonly orderKey = undefined
  readonly signal: AbortSignal | undefined
  readonly #owner: CallOwner
  readonly #options: BucketCallOptions
  readonly #bucketId: number
  readonly #request: Request
  readonly #resolve: (values: unknown[]) => void
  readonly #reject: (error: OrbweaverError) => void
  #set: RoutedSet | undefined
  #epoch = 0
  /** Sequence number of the last try, for the facts its answer brings. */
  #sent = 0
  #hops = 0
  #waits = 0
  #last: OrbweaverError | undefined

  constructor(
    owner: CallOwner,
    bucketId: number,
    name: string,
    args: readonly unknown[],
    options: BucketCallOptions,
    resolve: (values: unknown[]) => void,
    reject: (error: OrbweaverError) => void,
  ) {
    const isWrite = options.mode === 'rw'
    const call = storageCall(bucketId, isWrite ? 'write' : 'read', name, args)
    this.#owner = owner
    this.#options = options
    this.#bucketId = bucketId
    this.#request = callRequest(call.name, call.args)
    this.#resolve = resolve
    this.#reject = reject
    this.deadline = options.deadline
    this.signal = options.signal
    this.idempotent = !isWrite
    this.bytes = ATTEMPT_BYTES
  }

  /** Sends it where the route says, or finds the route first. */
  start(): void {
    const index = this.#owner.routes.table.lookup(this.#bucketId)
    const set = index === UNKNOWN ? undefined : this.#owner.topology.at(index)
    if (set === undefined) this.#search()
    else this.#dispatch(set)
  }

  // ---- what the replicaset asks and the connection tells ------------------------------------------------------------

  run(instance: InstanceHandle, epoch: number): 'sent' | 'elsewhere' {
    const set = this.#set!
    const index = this.#owner.routes.table.lookup(this.#bucketId)
    if (index !== set.index && index !== UNKNOWN && this.#hops === 0) {
      const moved = this.#owner.topology.at(index)
      if (moved !== undefined) {
        // It moved while the call waited for a master.
        this.#owner.clock.soon(() => this.#dispatch(moved))
        return 'elsewhere'
      }
    }
    this.#epoch = epoch
    this.#sent = this.#owner.routes.tick()
    const { signal } = this.#options
    instance.send(
      this.#request,
      signal === undefined ? { deadline: this.deadline } : { deadline: this.deadline, signal },
      this,
    )
    return 'sent'
  }

  giveUp(error: OrbweaverError): void {
    this.#reject(error)
  }

  done(reply: Reply): void {
    const set = this.#set!
    if (set.replicaset.settle(this, this.#epoch, reply)) return
    try {
      this.#answered(set, readStorageCall(decodeData(reply, this.#options.decode)))
    } catch (error) {
      if (!isOrbweaverError(error)) throw error
      this.#reject(error)
    }
  }

  failed(error: OrbweaverError): void {
    if (this.#set!.replicaset.settle(this, this.#epoch, error)) return
    this.#reject(error)
  }

  // ---- inside -------------------------------------------------------------------------------------------------------

  #answered(set: RoutedSet, answer: ReturnType<typeof readStorageCall>): void {
    const { routes } = this.#owner
    if (answer.kind !== 'refused') {
      if (routes.table.lookup(this.#bucketId) !== set.index)
        routes.report({ kind: 'owned', bucketId: this.#bucketId, owner: set.index, sent: this.#sent })
      if (answer.kind === 'returned') this.#resolve(answer.values as unknown[])
      else this.#reject(answer.error)
      return
    }
    const { error } = answer
    const reaction = error instanceof VshardError ? REACTION[error.vshardName] : undefined
    if (reaction === undefined) {
      this.#reject(error)
      return
    }
    this.#last = error
    this.#owner.calls.retries++
    if (reaction === 'wait')
      this.#pause(Math.min(WAIT_PAUSE_MS * 1.5 ** this.#waits++, LONGEST_WAIT_PAUSE_MS), () => this.#dispatch(set))
    else this.#follow(set, error as VshardError)
  }

  #follow(set: RoutedSet, error: VshardError): void {
    const { topology, routes } = this.#owner
    const owner = topology.find(error.destination)
    routes.report({
      kind: 'moved',
      bucketId: this.#bucketId,
      from: set.index,
      owner: owner?.index ?? UNKNOWN,
      sent: this.#sent,
    })
    const hop = this.#hops++
    this.#owner.calls.hops++
    const go = (): void => {
      if (owner !== undefined && owner !== set) this.#dispatch(owner)
      else this.#search()
    }
    if (hop < FREE_HOPS) go()
    else this.#pause(Math.min(HOP_PAUSE_MS * 2 ** (hop - FREE_HOPS), LONGEST_HOP_PAUSE_MS), go)
  }

  #dispatch(set: RoutedSet): void {
    if (this.#isOver()) return
    this.#set = set
    set.replicaset.dispatch(this, this.#options.mode)
  }

  /** A search is shared and as patient as its most patient caller; this call leaves it at its own deadline. */
  #search(): void {
    if (this.#isOver()) return
    let isWaiting = true
    const stopWaiting = this.#until(this.deadline - this.#owner.clock.now(), () => {
      isWaiting = false
      this.#isOver()
    })
    this.#owner.lookup.find(this.#bucketId, this.deadline).then(
      (set) => {
        stopWaiting()
        if (isWaiting) this.#dispatch(set)
      },
      (error: unknown) => {
        stopWaiting()
        if (!isOrbweaverError(error)) throw error
        if (isWaiting) this.#reject(this.#last === undefined ? error : this.#timeout())
      },
    )
  }

  /** Waits with jitter, at most to the deadline. */
  #pause(ms: number, then: () => void): void {
    const { clock, random } = this.#owner
    const left = Math.max(0, this.deadline - clock.now())
    this.#until(Math.min(ms * (0.8 + 0.4 * random()), left), then)
  }

  /** Runs `then` after `ms`; an abort of the caller ends the call before. Returns what cancels it. */
  #until(ms: number, then: () => void): () => void {
    const { signal } = this.#options
    const stop = (): void => {
      cancel()
      signal?.removeEventListener('abort', onAbort)
    }
    const onAbort = (): void => {
      stop()
      then()
    }
    const cancel = this.#owner.clock.schedule(Math.max(0, ms), () => {
      signal?.removeEventListener('abort', onAbort)
      then()
    })
    signal?.addEventListener('abort', onAbort, { once: true })
    return stop
  }

  /** Rejects when the time is over or the caller gave up. */
  #isOver(): boolean {
    const { signal } = this.#options
    if (signal?.aborted === true) {
      this.#reject(
        new RequestAbortedError('The call was aborted by its caller', { cause: signal.reason, executed: 'no' }),
      )
      return true
    }
    if (this.deadline > this.#owner.clock.now()) return false
    this.#reject(this.#timeout())
    return true
  }

  /** The time is over, and this is what stood in the way: nothing was executed, or the answer would have come. */
  #timeout(): OrbweaverError {
    const reason = this.#last === undefined ? '' : `; the last answer was: ${this.#last.message}`
    return new RequestTimeoutError(
      `Bucket ${this.#bucketId} could not be reached within ${this.#options.timeoutMs} ms${reason}`,
      {
        executed: 'no',
        ...(this.#last === undefined ? {} : { cause: this.#last }),
      },
    )
  }
}

/** What a waiting call counts in the hold budget; its arguments are not measured. */
const ATTEMPT_BYTES = 512
