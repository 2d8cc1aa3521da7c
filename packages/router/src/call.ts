/*
 * One call of a function on a bucket, from the first try to the answer. The object is everything at once: what waits in a
 * replicaset's window, what is told the reply, and the state of the retries; nothing is allocated per try.
 *
 * A storage's refusal is answered by something that changes the odds: WRONG_BUCKET by going where the bucket is, a transfer by
 * waiting and then asking who has the bucket. What the user's function returned or raised is final. Limits are of time, never of
 * the number of tries.
 */
import { RequestAbortedError, RequestTimeoutError } from '@orbweaver/connection'
import type { Clock, ReplySink, SendOptions } from '@orbweaver/connection'
import { BoxError, callRequest, decodeData, ErrorCode, isOrbweaverError } from '@orbweaver/iproto'
import type { DecodeOptions, Executed, OrbweaverError, Reply, Request, RequestClass } from '@orbweaver/iproto'
import type { Attempt, CallMode, InstanceHandle } from '@orbweaver/replicaset'
import { readStorageCall, restoreError, storageCall, VshardError } from '@orbweaver/vshard'
import type { RouterCallOptions } from './call-options.js'
import { traceCall, traceCallEnd } from './diagnostics.js'
import type { CallTrace } from './diagnostics.js'
import { NoRouteError } from './errors.js'
import type { BucketLookup } from './lookup.js'
import { rawValues } from './raw-values.js'
import { UNKNOWN } from './route-table.js'
import type { RouteWorker } from './route-worker.js'
import { stableRank } from './stable-order.js'
import type { RoutedSet, Topology } from './topology.js'

/** What calls need of their router. */
export interface CallOwner {
  readonly name: string
  readonly clock: Clock
  readonly random: () => number
  readonly topology: Topology
  readonly routes: RouteWorker
  readonly lookup: BucketLookup
  readonly decode: DecodeOptions | undefined
  readonly counts: CallCounts
  /** A route was wrong. */
  wrongRoute(): void
  /** A storage named an owner that is not configured. */
  unknownOwner(destination: string): void
}

/** Counted since the start. */
export interface CallCounts {
  calls: number
  /** Refusals of storages that were answered by another try. */
  retries: number
  /** Retries because the bucket was elsewhere. */
  hops: number
}

/** What a refusal of a storage calls for; a name that is absent is the caller's answer. */
const REACTION: Readonly<Record<string, 'follow' | 'wait' | 'master'>> = {
  WRONG_BUCKET: 'follow',
  TRANSFER_IS_IN_PROGRESS: 'wait',
  BUCKET_IS_LOCKED: 'wait',
  NON_MASTER: 'master',
}

/** Hops without a pause: one for a stale route, one for a route that was stale there too. */
const FREE_HOPS = 2
const HOP_PAUSE_MS = 10
const LONGEST_HOP_PAUSE_MS = 200
const WAIT_PAUSE_MS = 50
const LONGEST_WAIT_PAUSE_MS = 500
/**
 * Waits after which the bucket is looked for instead: where a replica is down, the storage that sent a bucket keeps its record, and
 * answers that it is locked for as long.
 */
const PATIENT_WAITS = 2

export class BucketCall implements Attempt, ReplySink {
  readonly deadline: number
  readonly requestClass: RequestClass = 'code'
  readonly orderKey = undefined
  readonly bytes: number
  readonly #owner: CallOwner
  readonly #options: RouterCallOptions
  readonly #mode: CallMode
  readonly #bucketId: number
  readonly #timeoutMs: number
  readonly #request: Request
  readonly #resolve: (values: unknown[]) => void
  readonly #reject: (error: OrbweaverError) => void
  readonly #trace: CallTrace | undefined
  #set: RoutedSet | undefined
  #instance: InstanceHandle | undefined
  #epoch = 0
  /** Moment of the last try, for the facts its answer brings. */
  #sent = 0
  #tries = 0
  #hops = 0
  #waits = 0
  /** Index of the set before the last hop. */
  #cameFrom = UNKNOWN
  /** What stood in the way last. */
  #last: VshardError | BoxError | undefined

  constructor(
    owner: CallOwner,
    mode: CallMode,
    bucketId: number,
    name: string,
    args: readonly unknown[],
    options: RouterCallOptions,
    timeoutMs: number,
    resolve: (values: unknown[]) => void,
    reject: (error: OrbweaverError) => void,
  ) {
    const call = storageCall(bucketId, mode === 'rw' ? 'write' : 'read', name, args)
    this.#owner = owner
    this.#mode = mode
    this.#bucketId = bucketId
    this.#options = options
    this.#timeoutMs = timeoutMs
    this.#request = callRequest(call.name, call.args)
    this.#resolve = resolve
    this.#reject = reject
    this.deadline = owner.clock.now() + timeoutMs
    this.bytes = ATTEMPT_BYTES
    this.#trace = traceCall(owner.name, mode, bucketId, name)
    owner.counts.calls++
  }

  get idempotent(): boolean {
    return this.#options.idempotent ?? this.#mode !== 'rw'
  }

  get signal(): AbortSignal | undefined {
    return this.#options.signal
  }

  get maxLagMs(): number | undefined {
    return this.#options.maxLagMs
  }

  get rank(): ((instance: InstanceHandle) => number) | undefined {
    return this.#options.prefer === undefined ? undefined : stableRank(this.#bucketId, this.#set!.definition)
  }

  /** Sends it where the route says, or finds the route first. */
  start(): void {
    const index = this.#owner.routes.table.lookup(this.#bucketId)
    const set = index === UNKNOWN ? undefined : this.#owner.topology.at(index)
    if (set === undefined) this.#search()
    else this.#dispatch(set, this.#mode)
  }

  // ---- what the replicaset asks and the connection tells ------------------------------------------------------------

  run(instance: InstanceHandle, epoch: number): 'sent' | 'elsewhere' {
    const { clock, routes, topology } = this.#owner
    const set = this.#set!
    const index = routes.table.lookup(this.#bucketId)
    if (index !== set.index && index !== UNKNOWN && this.#hops === 0 && this.#waits === 0) {
      const moved = topology.at(index)
      if (moved !== undefined) {
        // It moved while the call waited for a master.
        clock.soon(() => this.#dispatch(moved, this.#mode))
        return 'elsewhere'
      }
    }
    this.#instance = instance
    this.#epoch = epoch
    this.#sent = routes.tick()
    this.#tries++
    instance.send(this.#request, this.#sendOptions(), this)
    return 'sent'
  }

  giveUp(error: OrbweaverError): void {
    if (!this.#isOutdated(error)) this.#fail(error)
  }

  done(reply: Reply): void {
    const set = this.#set!
    if (set.replicaset.settle(this, this.#epoch, reply)) return
    try {
      const values = this.#options.raw === true ? rawValues(reply) : undefined
      this.#answered(
        set,
        values === undefined ? readStorageCall(decodeData(reply, this.#owner.decode)) : { kind: 'returned', values },
      )
    } catch (error) {
      if (!isOrbweaverError(error)) throw error
      this.#fail(error)
    }
  }

  failed(error: OrbweaverError): void {
    if (this.#set!.replicaset.settle(this, this.#epoch, error) || this.#isOutdated(error)) return
    if (error instanceof BoxError) this.#fail(restoreError(error) ?? error)
    else if (error instanceof RequestTimeoutError && this.#last !== undefined) this.#fail(this.#timeout(error.executed))
    else this.#fail(error)
  }

  // ---- inside -------------------------------------------------------------------------------------------------------

  #sendOptions(): SendOptions {
    const { requestTimeout, signal } = this.#options
    const deadline =
      requestTimeout === undefined ? this.deadline : Math.min(this.deadline, this.#owner.clock.now() + requestTimeout)
    return signal === undefined ? { deadline } : { deadline, signal }
  }

  #answered(set: RoutedSet, answer: ReturnType<typeof readStorageCall>): void {
    if (answer.kind === 'raised' && this.#mode === 'rw' && this.idempotent && isReadonly(answer.error)) {
      // The master was switched while the function ran.
      this.#retry(answer.error)
      this.#wait(set)
      return
    }
    if (answer.kind !== 'refused') {
      const { routes } = this.#owner
      if (routes.table.lookup(this.#bucketId) !== set.index)
        routes.report({
          kind: 'owned',
          bucketId: this.#bucketId,
          owner: set.index,
          sent: this.#sent,
          isReplica: !this.#isFromMaster(set),
        })
      if (answer.kind === 'returned') this.#succeed(answer.values as unknown[])
      else this.#fail(answer.error)
      return
    }
    const { error } = answer
    const reaction = error instanceof VshardError ? REACTION[error.vshardName] : undefined
    // A master that is named by the configuration stays: nobody else will come.
    if (reaction === undefined || (reaction === 'master' && (set.definition.master ?? 'auto') !== 'auto')) {
      this.#fail(error)
      return
    }
    this.#retry(error)
    if (reaction === 'follow') this.#follow(set, error as VshardError)
    else this.#wait(set)
  }

  #retry(error: VshardError | BoxError): void {
    this.#last = error
    this.#owner.counts.retries++
  }

  /** It is on its way, or its master is not one: later it may be served, here or elsewhere. */
  #wait(set: RoutedSet): void {
    const wait = this.#waits++
    this.#pause(Math.min(WAIT_PAUSE_MS * 1.5 ** wait, LONGEST_WAIT_PAUSE_MS), () => {
      if (wait < PATIENT_WAITS) this.#dispatch(set, this.#mode)
      else this.#search()
    })
  }

  #follow(set: RoutedSet, error: VshardError): void {
    const { counts, routes, topology } = this.#owner
    const owner = topology.find(error.destination)
    const hop = this.#hops++
    counts.hops++
    if (owner === undefined && error.destination !== undefined) this.#owner.unknownOwner(error.destination)
    if (this.#isFromMaster(set)) {
      this.#owner.wrongRoute()
      routes.report({
        kind: 'moved',
        bucketId: this.#bucketId,
        from: set.index,
        owner: owner?.index ?? UNKNOWN,
        destination: error.destination,
        sent: this.#sent,
      })
    } else if (set.replicaset.master() !== undefined) {
      // A replica that lags behind does not know yet what its master has, or still names where the bucket went long ago.
      this.#hop(hop, () => this.#dispatch(set, 'rw'))
      return
    }
    const cameFrom = this.#cameFrom
    this.#cameFrom = set.index
    if (owner === undefined) this.#hop(hop, () => this.#search())
    // Two that name each other: the bucket is between them.
    else if (owner.index === set.index || owner.index === cameFrom) this.#wait(owner)
    else this.#hop(hop, () => this.#dispatch(owner, this.#mode))
  }

  #hop(hop: number, go: () => void): void {
    if (hop < FREE_HOPS) go()
    else this.#pause(Math.min(HOP_PAUSE_MS * 2 ** (hop - FREE_HOPS), LONGEST_HOP_PAUSE_MS), go)
  }

  #isFromMaster(set: RoutedSet): boolean {
    return set.replicaset.master() === this.#instance
  }

  /** Nothing ran, and the replicaset it was meant for is another one now: it starts again with what is configured. */
  #isOutdated(error: OrbweaverError): boolean {
    const set = this.#set!
    if (error.executed !== 'no' || this.#owner.topology.at(set.index)?.replicaset === set.replicaset) return false
    this.#owner.clock.soon(() => this.#start())
    return true
  }

  #start(): void {
    if (!this.#isOver()) this.start()
  }

  #dispatch(set: RoutedSet, mode: CallMode): void {
    if (this.#tries > 0 && this.#isOver()) return
    this.#set = set
    set.replicaset.dispatch(this, mode)
  }

  /** A search is shared and as patient as its most patient caller; this call leaves it at its own deadline. */
  #search(): void {
    if (this.#isOver()) return
    const { clock, lookup } = this.#owner
    let isWaiting = true
    const stopWaiting = this.#until(this.deadline - clock.now(), () => {
      isWaiting = false
      // A timer may be a little early.
      if (!this.#isOver()) this.#expire()
    })
    lookup.find(this.#bucketId, this.deadline).then(
      (set) => {
        stopWaiting()
        if (isWaiting) this.#dispatch(set, this.#mode)
      },
      (error: unknown) => {
        stopWaiting()
        if (!isOrbweaverError(error)) throw error
        if (!isWaiting) return
        if (error instanceof NoRouteError) this.#expire(error)
        else this.#fail(error)
      },
    )
  }

  /** Waits with jitter, at most to the deadline. */
  #pause(ms: number, then: () => void): void {
    const { clock, random } = this.#owner
    const left = Math.max(0, this.deadline - clock.now())
    this.#until(Math.min(ms * (0.8 + 0.4 * random()), left), then)
  }

  /** Runs `then` after `ms`; an abort of the caller ends the wait before. Returns what cancels it. */
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

  /** Whether an earlier try may have had an effect: only idempotent calls are tried again after one that did. */
  get #soFar(): Executed {
    return this.#last?.executed ?? 'no'
  }

  /** Rejects when the time is over or the caller gave up. */
  #isOver(): boolean {
    const { signal } = this.#options
    if (signal?.aborted === true) {
      this.#fail(
        new RequestAbortedError('The call was aborted by its caller', { cause: signal.reason, executed: this.#soFar }),
      )
      return true
    }
    if (this.deadline > this.#owner.clock.now()) return false
    this.#expire()
    return true
  }

  /** The time is over. That nobody has the bucket is an answer, unless a storage said meanwhile that it is on its way. */
  #expire(notFound = this.#owner.lookup.failureOf(this.#bucketId)): void {
    const isLooked =
      this.#last === undefined || (this.#last instanceof VshardError && REACTION[this.#last.vshardName] === 'follow')
    if (!isLooked || notFound === undefined) this.#fail(this.#timeout(this.#soFar))
    else if (this.#last === undefined) this.#fail(notFound)
    else this.#fail(new NoRouteError(this.#bucketId, notFound.answers, { cause: this.#last }))
  }

  /** The time is over, and this is what stood in the way. */
  #timeout(executed: Executed): OrbweaverError {
    const reason = this.#last === undefined ? '' : `; the last answer was: ${this.#last.message}`
    return new RequestTimeoutError(
      `Bucket ${this.#bucketId} could not be reached within ${this.#timeoutMs} ms${reason}`,
      { executed, ...(this.#last === undefined ? {} : { cause: this.#last }) },
    )
  }

  #succeed(values: unknown[]): void {
    if (this.#trace !== undefined) this.#traced(this.#trace, undefined)
    this.#resolve(values)
  }

  #fail(error: OrbweaverError): void {
    if (this.#trace !== undefined) this.#traced(this.#trace, error)
    this.#reject(error)
  }

  #traced(trace: CallTrace, error: OrbweaverError | undefined): void {
    trace.replicaset = this.#set?.id
    trace.instance = this.#instance?.id
    trace.tries = this.#tries
    traceCallEnd(trace, error)
  }
}

/** What a function raises where it cannot write. Tarantool 3 wraps it, and keeps the original as the cause. */
function isReadonly(error: VshardError | BoxError): boolean {
  const { cause } = error
  return [error, cause].some((each) => each instanceof BoxError && each.boxCode === ErrorCode.readonly)
}

/** What a waiting call counts in the hold budget; its arguments are not measured. */
const ATTEMPT_BYTES = 512
