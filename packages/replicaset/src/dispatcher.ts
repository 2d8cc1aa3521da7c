/**
 * Where each request goes, and what its outcome means: to the master or a reader at once, back to another instance, into the
 * window, or to its caller. On the usual way (there is a master, the answer is an answer) nothing is kept for a request.
 */
import { type Connection, ConnectionClosedError, RequestAbortedError } from '@orbweaver/connection'
import { isOrbweaverError, type OrbweaverError, type Reply } from '@orbweaver/iproto'
import type { Attempt, CallMode, InstanceHandle } from './attempt.js'
import { chooseReader, type ReadCandidate, type ReadContext } from './balancer.js'
import { decodeToken, type Dispatched, encodeToken } from './dispatch-token.js'
import type { Alert } from './alerts.js'
import { type DiscoveryHost, MasterDiscovery } from './discovery.js'
import {
  BufferEvictedError,
  BufferFullError,
  BufferWindowError,
  MasterConflictError,
  NoInstanceError,
  NoMasterError,
  type ReplicasetErrorDetails,
} from './errors.js'
import { FailoverBuffer, type WindowEnd, type WindowReason, type WindowRecord } from './failover-buffer.js'
import { readSignal, type Signal } from './failover-signal.js'
import { type HoldShare, ledgerOf } from './hold-budget.js'
import { type Held, type HoldEnd, HoldQueue } from './hold-queue.js'
import type { Instance } from './instance.js'
import { lagOf } from './lag.js'
import type { Settings } from './options.js'
import { WaitingReads } from './waiting-reads.js'

/** What the dispatcher tells the handle in front of it. */
export interface DispatcherEvents {
  master(instance: Instance | undefined): void
  /** `end` is undefined at the opening. */
  window(window: WindowRecord, end: { readonly why: WindowEnd; readonly ms: number } | undefined): void
  alert(alert: Alert): void
}

export interface DispatcherCounts {
  resentOldEpoch: number
  rereads: number
  readonly dispatched: Record<CallMode, number>
}

export class Dispatcher implements DiscoveryHost {
  readonly counts: DispatcherCounts = {
    resentOldEpoch: 0,
    rereads: 0,
    dispatched: { rw: 0, ro: 0, bro: 0, re: 0, bre: 0 },
  }
  readonly discovery: MasterDiscovery
  readonly buffer: FailoverBuffer
  readonly reads: WaitingReads
  /** Repeatable calls that met "read-only" inside user code: what it means is known when the fence is answered. */
  readonly parked: HoldQueue
  readonly share: HoldShare
  readonly #settings: Settings
  readonly #events: DispatcherEvents
  /** What is kept beside attempts that had to wait or were sent again. */
  readonly #held = new WeakMap<Attempt, Held>()
  #tracked = 0
  #arrivals = 0
  #writeToken = 0
  #cancelReadTimer: (() => void) | undefined
  #isClosed = false

  constructor(settings: Settings, events: DispatcherEvents) {
    this.#settings = settings
    this.#events = events
    const { clock } = settings.environment
    this.share = ledgerOf(settings.holdBudget).join()
    this.discovery = new MasterDiscovery(settings, this)
    this.buffer = new FailoverBuffer(settings.limits, this.share, {
      clock,
      run: (held) => this.#runWrite(held),
      giveUp: (held, end, reason) => this.#giveUp(held, end, reason),
      opened: (window) => this.#events.window(window, undefined),
      ended: (window, why, endedMs) => this.#events.window(window, { why, ms: endedMs - window.openedMs }),
      lost: () => ({ T0: this.discovery.maxTerm, M0: this.discovery.last }),
    })
    this.reads = new WaitingReads(
      clock,
      this.share,
      (held) => this.#runRead(held),
      (held, end) => this.#giveUp(held, end, 'no_master'),
    )
    this.parked = new HoldQueue(
      clock,
      this.share,
      (held, end) => this.#giveUp(held, end, 'refused'),
      () => undefined,
    )
    this.discovery.start()
  }

  // ---- the seam

  dispatch(attempt: Attempt, mode: CallMode): void {
    this.counts.dispatched[mode] += 1
    if (mode !== 'rw') {
      this.#dispatchRead(attempt, mode)
      return
    }
    const { master } = this.discovery
    if (master !== undefined && !this.buffer.mustFollow(attempt.orderKey)) attempt.run(master, this.#writeToken)
    else this.#dispatchLater(attempt)
  }

  settle(attempt: Attempt, token: number, outcome: Reply | OrbweaverError): boolean {
    const { dialect } = this.#settings
    // The usual end: an answer, and nobody who could tell more about it.
    if (this.#tracked === 0 && dialect === undefined && !isOrbweaverError(outcome)) return false
    const signal = readSignal(attempt, outcome, dialect)
    const held = this.#tracked === 0 ? undefined : this.#held.get(attempt)
    const isTaken =
      signal.kind !== 'final' && !this.#isClosed && this.#takeBack(attempt, held, decodeToken(token), signal)
    if (!isTaken && held !== undefined) this.#forget(held)
    this.buffer.goOn()
    return isTaken
  }

  /** Takes back an attempt that waits: neither `run` nor `giveUp` will follow. @returns false: it does not wait */
  withdraw(attempt: Attempt): boolean {
    const held = this.#held.get(attempt)
    if (held === undefined) return false
    const isOut = this.buffer.withdraw(held) || this.reads.queue.withdraw(held) || this.parked.withdraw(held)
    if (isOut) this.#forget(held)
    return isOut
  }

  /** Sends a read to somebody else than those. @returns false: there is nobody else */
  dispatchBeside(attempt: Attempt, mode: CallMode, others: ReadonlySet<number>): boolean {
    const reader = this.#isClosed ? undefined : this.#choose(mode, others, attempt)
    if (reader === undefined) return false
    attempt.run(reader, encodeToken(this.discovery.epoch, reader.slot, mode))
    return true
  }

  /** For what needs more of a connection than requests; undefined: it is not connected any more. */
  connectionOf(instance: InstanceHandle): Connection | undefined {
    return this.discovery.instances.find((each) => each === instance)?.connection
  }

  slotOf(instance: InstanceHandle): number {
    return this.discovery.instances.find((each) => each === instance)?.slot ?? 0
  }

  /** Every waiting request is answered; nothing starts any more. */
  close(): void {
    this.#isClosed = true
    this.discovery.close()
    this.buffer.close()
    this.reads.queue.close()
    this.parked.close()
    this.#cancelReadTimer?.()
    this.share.leave()
  }

  // ---- what discovery tells

  adopted(instance: Instance): void {
    this.#writeToken = encodeToken(this.discovery.epoch, instance.slot, 'rw')
    this.#events.master(instance)
    const { window } = this.buffer
    this.buffer.resume(this.discovery.endOf(instance, window?.T0 ?? 0, window?.M0))
  }

  lost(): void {
    this.#events.master(undefined)
  }

  changed(): void {
    if (this.parked.length > 0) this.#unpark()
    this.reads.wake()
  }

  alerted(alert: Alert): void {
    this.#events.alert(alert)
  }

  // ---- writes

  #dispatchLater(attempt: Attempt): void {
    const { lossReason, isUndecided, master } = this.discovery
    const held = this.#track(attempt, 'rw', 0, 0)
    if (this.#isClosed) {
      this.#giveUp(held, { type: 'closed' }, lossReason)
    } else if (master !== undefined) {
      this.buffer.follow(held)
    } else if (isUndecided) {
      this.#fail(
        held,
        new MasterConflictError(
          `Several instances of replicaset ${this.#id} are writable`,
          this.#details(held, 'no_master'),
        ),
      )
    } else if (attempt.inStream === true) {
      this.#giveUp(held, { type: 'skipped', why: 'off' }, lossReason)
    } else {
      const skip = this.buffer.hold(held, lossReason)
      if (skip !== undefined) this.#giveUp(held, { type: 'skipped', why: skip }, lossReason)
    }
  }

  /** @returns whether it was taken back: `run` or `giveUp` has followed, or will */
  #takeBack(
    attempt: Attempt,
    known: Held | undefined,
    token: Dispatched,
    signal: Exclude<Signal, { kind: 'final' }>,
  ): boolean {
    if (token.mode !== 'rw') return this.#readAgain(attempt, known, token, signal)
    const isOld = token.epoch !== this.discovery.epoch
    const instance = isOld ? undefined : this.discovery.bySlot(token.slot)
    const mayRepeat = attempt.inStream !== true
    const again = (reason: WindowReason): boolean =>
      mayRepeat && this.#writeAgain(known ?? this.#track(attempt, 'rw', 1, token.epoch), signal.error, reason, isOld)
    switch (signal.kind) {
      case 'timeout':
      case 'unusable':
        return false
      case 'statementRefused':
      case 'notMaster':
        // A master named by the configuration: its refusal is the answer, since nobody else will come.
        if (this.discovery.configured !== undefined) return isOld && again('refused')
        this.#refused(instance, signal, mayRepeat ? signal.kind : 'codeRefused')
        return again(signal.kind === 'notMaster' ? 'not_master' : 'refused')
      case 'notReady':
        if (instance !== undefined) this.discovery.news(instance, { type: 'notReady', reason: signal.reason })
        return again('not_ready')
      case 'codeRefused': {
        const isStatic = this.discovery.configured !== undefined
        if (!isStatic) this.#refused(instance, signal, 'codeRefused')
        if (!attempt.idempotent || (isStatic && !isOld)) return false
        if (instance === undefined || instance !== this.discovery.master) return again('refused')
        // A look of a moment ago said "writable": then this is the function's own word.
        return (
          mayRepeat &&
          instance.view.fence !== undefined &&
          this.#park(known ?? this.#track(attempt, 'rw', 1, token.epoch), signal.error)
        )
      }
      case 'unsent':
        return again('unreachable')
      case 'lost':
        return attempt.idempotent && again('unreachable')
    }
  }

  /** Tells the rules what a refusal says; yesterday's (`instance` undefined) say nothing. */
  #refused(
    instance: Instance | undefined,
    signal: Extract<Signal, { kind: 'statementRefused' | 'notMaster' | 'codeRefused' }>,
    type: 'statementRefused' | 'notMaster' | 'codeRefused',
  ): void {
    if ('term' in signal && signal.term !== undefined) this.discovery.seeTerm(signal.term)
    if (instance === undefined) return
    this.discovery.news(instance, { type })
    if (signal.hint !== undefined) this.discovery.hint(signal.hint, instance)
  }

  /** To the master of this moment, or into the window. @returns false: neither, the caller's outcome is final */
  #writeAgain(held: Held, cause: OrbweaverError | undefined, reason: WindowReason, isOld: boolean): boolean {
    held.cause = cause ?? held.cause
    if (cause !== undefined && cause.executed !== 'no') held.mayHaveRun = true
    if (this.discovery.master !== undefined) {
      if (held.dispatches >= this.#settings.limits.maxAttempts) {
        this.buffer.exhausted()
        this.#forget(held)
        return false
      }
      if (isOld) this.counts.resentOldEpoch += 1
      this.#runWrite(held)
      return true
    }
    this.buffer.landed(held)
    // Where it may not wait, the caller's own outcome says more than an error of ours.
    if (!this.discovery.isUndecided && this.buffer.hold(held, reason) === undefined) return true
    this.#forget(held)
    return false
  }

  #runWrite(held: Held): 'sent' | 'elsewhere' | undefined {
    const { master } = this.discovery
    if (master === undefined) return undefined
    held.dispatches += 1
    held.epoch = this.discovery.epoch
    const outcome = held.attempt.run(master, this.#writeToken)
    if (outcome === 'elsewhere') this.#forget(held)
    return outcome
  }

  #park(held: Held, cause: OrbweaverError): boolean {
    held.cause = cause
    held.mayHaveRun = true
    this.buffer.landed(held)
    this.parked.add(held)
    return true
  }

  /** The fence is answered, or its instance is not the master any more. */
  #unpark(): void {
    for (const held of this.parked.snapshot()) {
      const { master, epoch } = this.discovery
      const isSameMaster = master !== undefined && held.epoch === epoch
      if (held.place !== 'queued' || (isSameMaster && master.view.fence !== undefined)) continue
      this.parked.take(held)
      const { cause } = held
      if (cause === undefined || (!isSameMaster && this.#writeAgain(held, undefined, 'refused', false))) continue
      this.#fail(held, cause)
    }
  }

  // ---- reads

  #dispatchRead(attempt: Attempt, mode: CallMode): void {
    const reader = this.#isClosed ? undefined : this.#choose(mode, NOBODY, attempt)
    if (reader !== undefined) {
      attempt.run(reader, encodeToken(this.discovery.epoch, reader.slot, mode))
      return
    }
    const held = this.#track(attempt, mode, 0, 0)
    if (this.#isClosed) this.#giveUp(held, { type: 'closed' }, 'no_master')
    else this.#waitForReader(held)
  }

  /** To another instance, or until one can serve. @returns false: the caller's outcome is final */
  #readAgain(
    attempt: Attempt,
    known: Held | undefined,
    { slot, mode, epoch }: Dispatched,
    signal: Exclude<Signal, { kind: 'final' }>,
  ): boolean {
    const instance = this.discovery.bySlot(slot)
    const nowMs = this.#settings.environment.clock.now()
    switch (signal.kind) {
      case 'statementRefused':
      case 'notMaster':
      case 'codeRefused':
        return false
      case 'notReady':
        instance?.rest(nowMs + NOT_READY_REST_MS, signal.reason)
        break
      case 'unusable':
        if (signal.isService) instance?.rest(nowMs + this.#settings.restMs, signal.reason)
        else if (!attempt.idempotent) return false
        break
      case 'unsent':
        break
      case 'lost':
      case 'timeout':
        if (!attempt.idempotent || nowMs >= attempt.deadline) return false
    }
    const held = known ?? this.#track(attempt, mode, 1, epoch)
    held.cause = signal.error ?? held.cause
    held.mayHaveRun ||= signal.kind === 'lost' || signal.kind === 'timeout'
    held.tried.add(slot)
    if (held.dispatches < this.#settings.limits.maxAttempts && this.#runRead(held)) {
      this.counts.rereads += 1
      return true
    }
    switch (signal.kind) {
      case 'timeout':
        // Everybody was asked once: from the beginning, as long as there is time.
        held.tried.clear()
        if (held.dispatches < this.#settings.limits.maxAttempts && this.#runRead(held)) return true
        break
      case 'unsent':
      case 'lost':
      case 'notReady':
        held.dispatches = 0
        this.#waitForReader(held)
        return true
      case 'unusable':
        break
    }
    this.#forget(held)
    return false
  }

  #runRead(held: Held): boolean {
    const reader = this.#choose(held.mode, held.tried, held.attempt)
    if (reader === undefined) return false
    held.dispatches += 1
    const outcome = held.attempt.run(reader, encodeToken(this.discovery.epoch, reader.slot, held.mode))
    if (outcome === 'elsewhere') this.#forget(held)
    return true
  }

  #choose(mode: CallMode, tried: ReadonlySet<number>, { maxLagMs, rank }: Attempt): Instance | undefined {
    const { instances, master } = this.discovery
    if (maxLagMs !== undefined) this.discovery.wantLag()
    const context: ReadContext = {
      nowMs: this.#settings.environment.clock.now(),
      masterSlot: master?.slot,
      tried,
      weightOf,
      isFresh: maxLagMs === undefined ? always : (candidate) => this.#isWithin(candidate as Instance, maxLagMs),
    }
    const candidates = rank === undefined ? instances : [...instances].sort((a, b) => rank(a) - rank(b))
    return chooseReader(candidates, mode, context)
  }

  #isWithin(instance: Instance, maxLagMs: number): boolean {
    const { master } = this.discovery
    if (instance === master) return true
    const lagMs = lagOf(instance, master?.uuid)
    return lagMs !== undefined && lagMs <= maxLagMs
  }

  #waitForReader(held: Held): void {
    this.reads.add(held)
    this.#watchReads()
  }

  /** Instances also become usable by the passing of time. */
  #watchReads(): void {
    if (this.#cancelReadTimer !== undefined || this.reads.queue.length === 0) return
    this.#cancelReadTimer = this.#settings.environment.clock.schedule(READ_RETRY_INTERVAL_MS, () => {
      this.#cancelReadTimer = undefined
      this.reads.wake()
      this.#watchReads()
    })
  }

  // ---- what is kept beside attempts, and how waits end

  #track(attempt: Attempt, mode: CallMode, dispatches: number, epoch: number): Held {
    const known = this.#held.get(attempt)
    if (known !== undefined) return known
    const { clock } = this.#settings.environment
    const sinceMs = clock.now()
    this.#arrivals += 1
    const held: Held = {
      attempt,
      mode,
      order: this.#arrivals,
      sinceMs,
      limitMs: Math.min(sinceMs + this.#settings.limits.windowMs, attempt.deadline),
      dispatches,
      epoch,
      mayHaveRun: false,
      cause: undefined,
      tried: new Set(),
      place: 'outside',
      stopListening: undefined,
    }
    this.#held.set(attempt, held)
    this.#tracked += 1
    return held
  }

  #forget(held: Held): void {
    this.buffer.landed(held)
    if (this.#held.delete(held.attempt)) this.#tracked -= 1
  }

  #fail(held: Held, error: OrbweaverError): void {
    this.#forget(held)
    held.attempt.giveUp(error)
  }

  #giveUp(held: Held, end: HoldEnd, reason: WindowReason): void {
    this.#fail(held, this.#endError(held, end, reason))
  }

  #endError(held: Held, end: HoldEnd, reason: WindowReason): OrbweaverError {
    const executed = held.mayHaveRun ? 'unknown' : 'no'
    const details = this.#details(held, reason)
    const waited = `${String(Math.round(details.bufferedMs))} ms`
    const set = `replicaset ${this.#id}`
    const isRead = held.mode !== 'rw'
    switch (end.type) {
      case 'closed':
        return new ConnectionClosedError(`The ${set} was closed by its owner`, { executed, ...causeOf(held) })
      case 'aborted':
        return new RequestAbortedError(`The request was aborted by its caller while it waited for ${set}`, {
          executed,
          cause: held.attempt.signal?.reason,
        })
      case 'evicted':
        return new BufferEvictedError(
          `Evicted after ${waited}: too many requests wait, and this one had waited longest for ${set}`,
          details,
        )
      case 'full':
        return new BufferFullError(`Too many requests wait, and ${set} has none of its own to give way`, details)
      case 'skipped':
        return new NoMasterError(
          `${this.#noMaster()}, and requests do not wait for one: ${SKIP_TEXTS[end.why]}`,
          details,
        )
      case 'deadline':
        if (isRead)
          return new NoInstanceError(`No instance of ${set} could serve the read within its ${waited}`, details)
        return new NoMasterError(`${this.#noMaster()} within the request's ${waited}`, details)
      case 'windowMs':
      case 'maxDurationMs':
        if (isRead) return new NoInstanceError(`No instance of ${set} could serve the read for ${waited}`, details)
        return new BufferWindowError(
          `${this.#noMaster()} for ${waited}, which is as long as it may wait (${end.type})`,
          details,
        )
    }
  }

  #noMaster(): string {
    const { last, lossReason } = this.discovery
    const lost = last !== undefined && lossReason === 'unreachable' ? `: ${last.id} is unreachable from here` : ''
    return `Replicaset ${this.#id} had no master${lost}`
  }

  #details(held: Held, reason: WindowReason): ReplicasetErrorDetails {
    return {
      replicasetId: this.#id,
      instances: this.discovery.reasons(),
      bufferedMs: this.#settings.environment.clock.now() - held.sinceMs,
      reason,
      executed: held.mayHaveRun ? 'unknown' : 'no',
      ...causeOf(held),
    }
  }

  get #id(): string {
    return this.discovery.definition.id
  }
}

function causeOf({ cause }: Held): { readonly cause?: OrbweaverError } {
  return cause === undefined ? {} : { cause }
}

function weightOf(candidate: ReadCandidate): number {
  return (candidate as Instance).definition.weight ?? 1
}

function always(): boolean {
  return true
}

const NOBODY: ReadonlySet<number> = new Set()
/** A loading instance is wanted within about a second of being ready. */
const NOT_READY_REST_MS = 1_000
const READ_RETRY_INTERVAL_MS = 200
const SKIP_TEXTS = {
  off: 'waiting is switched off',
  observe: 'waiting is only observed',
  cooldown: 'the last wait ended by time, not by a master',
  rate: 'it was lost too often within a minute',
  attempts: 'it was sent too often',
  closed: 'the replicaset is closed',
} as const
