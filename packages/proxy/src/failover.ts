/*
 * The safe change of the master, by hand: nothing new goes to the old one, what is there ends, the master is changed, and
 * only then everything goes on at the new one.
 *
 *   PREPARE > PAUSE > DRAIN > HANDOVER > SWITCH > RESUME
 *                 \______ROLLBACK______/
 */
import type { Clock } from '@orbweaver/connection'
import { OrbweaverError } from '@orbweaver/iproto'
import { NotWritableError, TargetUnavailableError } from './errors.js'
import type { FailoverDefaults } from './options.js'
import type { Target } from './target.js'

export type FailoverOutcome = 'ok' | 'forced' | 'rolled_back' | 'cancelled'
export type FailoverStep = 'prepare' | 'pause' | 'drain' | 'handover' | 'switch' | 'resume'

export interface FailoverOptions extends FailoverDefaults {
  /** Makes the new master writable. Told its name. */
  readonly promote?: (target: string) => Promise<void>
  /** Makes the old master read-only. Told its name. */
  readonly demote?: (target: string) => Promise<void>
  /** Waits until the new master has everything the old one wrote. */
  readonly waitReplicated?: (from: string, to: string) => Promise<void>
  /** What to do when requests are still in flight after `drainTimeoutMs`. Default `rollback`: all stays as it was. */
  readonly onDrainTimeout?: 'rollback' | 'force'
  /** Does not wait for the old master at all (it is dead or hangs), and closes clients that the new one cannot serve. */
  readonly force?: boolean
}

/** What a change of the master was like. Times in milliseconds. */
export interface FailoverReport {
  /** undefined: there was no master. */
  readonly from: string | undefined
  readonly to: string
  /** Counts the changes of the master. */
  readonly epoch: number
  readonly outcome: FailoverOutcome
  /** From beginning to end. */
  readonly ms: number
  readonly prepareMs: number
  /** How long requests waited. */
  readonly pauseMs: number
  readonly drainMs: number
  readonly handoverMs: number
  /** The most that waited at one time. */
  readonly bufferedMax: number
  readonly bufferedBytesMax: number
  /** Whether everything in flight at the old master ended by itself. */
  readonly drained: boolean
  /** Requests answered without knowing their outcome. */
  readonly failedUnknown: number
  readonly brokenStreams: number
  readonly closedClients: number
  /** Users whose login the new master refused while it was prepared. */
  readonly refusedLogins: readonly string[]
}

/** The change did not take place: the master is the one it was before, unless `report.outcome` says `forced`. `cause` says why. */
export class FailoverError extends OrbweaverError {
  readonly code = 'ORB_FAILOVER' as const
  readonly report: FailoverReport

  constructor(message: string, report: FailoverReport, options: ErrorOptions = {}) {
    super(message, { ...options, executed: 'no' })
    this.report = report
  }
}

export interface FailoverHost {
  readonly clock: Clock
  readonly rw: Target | undefined
  readonly epoch: number
  readonly totals: { readonly unknownOutcomes: number; readonly brokenStreams: number }
  /** The most that waited at the gate since it was closed. */
  readonly buffered: { readonly requests: number; readonly bytes: number }
  /** Stops what goes to the master. */
  holdRequests(): void
  /** Lets it go on. */
  releaseRequests(): void
  /** Clients that were promised what a target lacks, by their numbers. */
  clientsLacking(target: Target): number[]
  closeClients(clients: readonly number[]): void
  /** Asks streams that may hold a transaction whether they do. */
  probeStreams(): void
  switchTo(target: Target): void
  stepChanged(step: FailoverStep, from: Target | undefined, to: Target): void
}

/** One change of the master. Run it once. */
export class Failover {
  readonly to: Target
  readonly #host: FailoverHost
  readonly #options: FailoverOptions
  readonly #limits: Required<FailoverDefaults>
  readonly #startedAt: number
  #wake: (() => void) | undefined
  #isCancelled = false
  #isCancellable = true
  #times = { prepareMs: 0, pauseMs: 0, drainMs: 0, handoverMs: 0 }
  #drained = false
  #closed: readonly number[] = []
  #refusedLogins: readonly string[] = []

  constructor(to: Target, options: FailoverOptions, defaults: Required<FailoverDefaults>, host: FailoverHost) {
    this.to = to
    this.#host = host
    this.#options = options
    this.#limits = { ...defaults, ...definedOf(options, defaults) }
    this.#startedAt = host.clock.now()
  }

  /** Something has happened that it may wait for. */
  poke(): void {
    this.#wake?.()
  }

  /** Everything stays as it is. @returns false when it is too late for that */
  cancel(): boolean {
    if (!this.#isCancellable) return false
    this.#isCancelled = true
    this.poke()
    return true
  }

  /** @throws FailoverError, TargetUnavailableError (nothing was changed, and nothing was paused) */
  async run(): Promise<FailoverReport> {
    const host = this.#host
    const from = host.rw
    const before = host.totals
    const finish = (outcome: FailoverOutcome): FailoverReport => this.#report(from, outcome, before)
    host.stepChanged('prepare', from, this.to)
    await this.#prepare(from)
    if (from === this.to) return finish('ok')
    const pausedAt = host.clock.now()
    host.stepChanged('pause', from, this.to)
    host.holdRequests()
    let outcome: FailoverOutcome = 'ok'
    try {
      host.stepChanged('drain', from, this.to)
      if (from !== undefined) outcome = await this.#drain(from)
      host.stepChanged('handover', from, this.to)
      await this.#handOver(from)
      host.stepChanged('switch', from, this.to)
      if (this.#options.force === true) this.#closeUnserved()
      host.switchTo(this.to)
    } catch (error) {
      this.#times.pauseMs = host.clock.now() - pausedAt
      const report = finish(this.#isCancelled ? 'cancelled' : 'rolled_back')
      host.releaseRequests()
      throw new FailoverError(`The master stays ${from?.name ?? 'unset'}: ${textOf(error)}`, report, { cause: error })
    }
    this.#times.pauseMs = host.clock.now() - pausedAt
    const report = finish(outcome)
    host.stepChanged('resume', from, this.to)
    host.releaseRequests()
    return report
  }

  async #prepare(from: Target | undefined): Promise<void> {
    const { clock } = this.#host
    const startedAt = clock.now()
    const deadline = startedAt + this.#limits.prepareTimeoutMs
    const isUp = await this.#until(() => this.to.state === 'up', deadline)
    if (!isUp) throw new TargetUnavailableError(this.to.name, this.to.lastFailure ?? `it is ${this.to.state}`)
    const lacking = this.#host.clientsLacking(this.to)
    if (lacking.length > 0 && this.#options.force !== true) {
      throw new TargetUnavailableError(this.to.name, `it lacks features that ${lacking.length} clients were promised`, {
        clients: lacking,
      })
    }
    // The same users in the same shapes as at the old master: the first requests at the new one need not wait for a login.
    const refused = new Set<string>()
    const opened = (from?.groups() ?? [])
      .filter((group) => group.isShared && group.login.clients > 0 && group.lanes.length > 0)
      .map((group) =>
        this.to
          .group(group.login, group.mask)
          .warmUp()
          .catch(() => void refused.add(group.login.user)),
      )
    let isOpened = false
    void Promise.all(opened).then(() => {
      isOpened = true
      this.poke()
    })
    if (!(await this.#until(() => isOpened, deadline))) {
      throw new TargetUnavailableError(this.to.name, `logging in took more than ${this.#limits.prepareTimeoutMs} ms`)
    }
    this.#refusedLogins = [...refused]
    this.#times.prepareMs = clock.now() - startedAt
  }

  async #drain(from: Target): Promise<FailoverOutcome> {
    const { clock } = this.#host
    const startedAt = clock.now()
    if (this.#options.force === true) {
      for (const group of from.groups()) group.destroyLanes(new Error('the master is changed by force'))
      return 'forced'
    }
    this.#host.probeStreams()
    this.#drained = await this.#until(() => from.isQuiet, startedAt + this.#limits.drainTimeoutMs)
    this.#times.drainMs = clock.now() - startedAt
    if (this.#drained) return 'ok'
    if (this.#options.onDrainTimeout !== 'force') {
      throw new Error(
        `requests or transactions were still open at ${from.name} after ${this.#limits.drainTimeoutMs} ms`,
      )
    }
    for (const group of from.groups()) group.destroyLanes(new Error('the master was changed before this was answered'))
    return 'forced'
  }

  async #handOver(from: Target | undefined): Promise<void> {
    const { clock } = this.#host
    const startedAt = clock.now()
    const totalDeadline = this.#startedAt + this.#limits.failoverTimeoutMs
    const deadline = Math.min(startedAt + this.#limits.handoverTimeoutMs, totalDeadline)
    const { demote, promote, waitReplicated } = this.#options
    if (demote !== undefined && from !== undefined) {
      await this.#within(demote(from.name), deadline, `demoting ${from.name}`)
      // The old master cannot write any more: going back would be no better than going on.
      this.#isCancellable = false
      await this.#until(() => from.isReadonly !== false || from.state !== 'up', deadline)
    }
    if (waitReplicated !== undefined && from !== undefined) {
      await this.#within(waitReplicated(from.name, this.to.name), deadline, `waiting for the rows of ${from.name}`)
    }
    if (promote !== undefined) await this.#within(promote(this.to.name), deadline, `promoting ${this.to.name}`)
    const isWritable = await this.#until(
      () => this.to.isReadonly !== true,
      this.#isCancellable ? deadline : totalDeadline,
    )
    this.#times.handoverMs = clock.now() - startedAt
    if (!isWritable) throw new NotWritableError(this.to.name, this.#times.handoverMs)
    this.#isCancellable = false
  }

  #closeUnserved(): void {
    this.#closed = this.#host.clientsLacking(this.to)
    this.#host.closeClients(this.#closed)
  }

  /** @returns whether the condition held before the deadline @throws when cancelled */
  async #until(condition: () => boolean, deadline: number): Promise<boolean> {
    const { clock } = this.#host
    for (;;) {
      if (this.#isCancelled) throw new Error('it was cancelled')
      if (condition()) return true
      const leftMs = deadline - clock.now()
      if (leftMs <= 0) return false
      await new Promise<void>((resolve) => {
        const cancel = clock.schedule(leftMs, resolve)
        this.#wake = () => {
          cancel()
          resolve()
        }
      })
      this.#wake = undefined
    }
  }

  async #within(work: Promise<void>, deadline: number, what: string): Promise<void> {
    let outcome: { readonly error: unknown } | undefined
    const settle = (error: unknown): void => {
      outcome = { error }
      this.poke()
    }
    work.then(() => settle(undefined), settle)
    if (!(await this.#until(() => outcome !== undefined, deadline))) throw new Error(`${what} took too long`)
    if (outcome?.error !== undefined)
      throw new Error(`${what} failed: ${textOf(outcome.error)}`, { cause: outcome.error })
  }

  #report(from: Target | undefined, outcome: FailoverOutcome, before: FailoverHost['totals']): FailoverReport {
    const { clock, epoch, totals, buffered } = this.#host
    return {
      from: from?.name,
      to: this.to.name,
      epoch,
      outcome,
      ms: clock.now() - this.#startedAt,
      ...this.#times,
      bufferedMax: buffered.requests,
      bufferedBytesMax: buffered.bytes,
      drained: this.#drained,
      failedUnknown: totals.unknownOutcomes - before.unknownOutcomes,
      brokenStreams: totals.brokenStreams - before.brokenStreams,
      closedClients: this.#closed.length,
      refusedLogins: this.#refusedLogins,
    }
  }
}

function definedOf(options: FailoverOptions, names: object): Partial<Required<FailoverDefaults>> {
  return Object.fromEntries(Object.entries(options).filter(([name, value]) => name in names && value !== undefined))
}

function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
