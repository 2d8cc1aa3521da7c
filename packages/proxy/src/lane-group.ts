/* All lanes of one login, one feature set and one target: opened when somebody needs one, more where the load asks for it. */
import { AuthError, type Clock, type FrameChannel, reconnectDelayMs } from '@orbweaver/connection'
import { BoxError, type OrbweaverError } from '@orbweaver/iproto'
import { Lane, type LaneOwner } from './lane.js'
import type { ResolvedLimits } from './limits.js'
import type { Login } from './login.js'
import type { Target } from './target.js'

/** Somebody who needs a lane of a group that has none. */
export interface LaneWaiter {
  laneReady(): void
  /** The target refuses this login, with its own error. */
  laneRefused(error: BoxError): void
}

export class LaneGroup implements LaneOwner {
  readonly target: Target
  readonly login: Login
  /** Features of the clients that change what a target sends, in ascending order. */
  readonly mask: readonly number[]
  readonly #lanes: Lane[] = []
  readonly #waiters = new Set<LaneWaiter>()
  #isOpening = false
  #attempt = 0
  #cancelRetry: (() => void) | undefined
  #isClosed = false
  /** Whether this target has taken this login before: a refusal then means that the password was changed. */
  #wasTaken = false
  /** Why the last attempt failed, for people. */
  lastFailure = 'it is not connected yet'
  /** The target's refusal of this login; undefined once it took it again. */
  refusal: BoxError | undefined

  /** false: of one client alone. */
  readonly isShared: boolean

  constructor(target: Target, login: Login, mask: readonly number[], isShared: boolean) {
    this.target = target
    this.login = login
    this.mask = mask
    this.isShared = isShared
  }

  get clock(): Clock {
    return this.target.clock
  }

  get limits(): ResolvedLimits {
    return this.target.limits
  }

  get lanes(): readonly Lane[] {
    return this.#lanes
  }

  /** The password of this login was changed on the target after it had been right. */
  get isStale(): boolean {
    return this.#wasTaken && this.refusal !== undefined && this.#lanes.length === 0
  }

  /** The open lane with least to do; undefined: wait for one. */
  pick(): Lane | undefined {
    let best: Lane | undefined
    let least = Number.POSITIVE_INFINITY
    for (const lane of this.#lanes) {
      if (!lane.isOpen) continue
      const load = lane.slots.usedBytes + lane.slots.used + (lane.isBlocked ? BLOCKED_LOAD : 0)
      if (load >= least) continue
      best = lane
      least = load
    }
    return best
  }

  /** Tells the waiter when there is a lane, and sees to it that one is opened. */
  wait(waiter: LaneWaiter): void {
    this.#waiters.add(waiter)
    this.#openIfWanted()
  }

  stopWaiting(waiter: LaneWaiter): void {
    this.#waiters.delete(waiter)
  }

  /** The target has come up: whoever waits need not wait for the next attempt. */
  targetUp(): void {
    this.#attempt = 0
    this.#cancelRetry?.()
    this.#cancelRetry = undefined
    this.#openIfWanted()
  }

  /** Opens a lane before anybody needs it. */
  warmUp(): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.pick() !== undefined) {
        resolve()
        return
      }
      const waiter: LaneWaiter = {
        laneReady: resolve,
        laneRefused: (error) => {
          this.stopWaiting(waiter)
          reject(error)
        },
      }
      this.wait(waiter)
    })
  }

  /** Another lane beside those there are: for when one is not enough. */
  grow(): void {
    if (this.#lanes.length < this.limits.maxLanesPerKey && !this.#isOpening && !this.#isClosed) void this.#open()
  }

  /** All lanes finish what they have and end. */
  drainAndClose(why: Error): void {
    for (const lane of [...this.#lanes]) lane.drainAndClose(why)
  }

  /** Ends all lanes at once. */
  destroyLanes(cause: Error): void {
    for (const lane of [...this.#lanes]) lane.destroy(cause)
  }

  close(cause: Error): void {
    this.#isClosed = true
    this.#cancelRetry?.()
    this.#waiters.clear()
    this.destroyLanes(cause)
  }

  // ---- what lanes report --------------------------------------------------------------------------------------------

  laneEvent(lane: Lane, body: Buffer): void {
    this.target.laneEvent(lane, body)
  }

  laneClosed(lane: Lane, cause: OrbweaverError): void {
    const at = this.#lanes.indexOf(lane)
    if (at >= 0) this.#lanes.splice(at, 1)
    this.lastFailure = cause.message
    this.target.laneClosed(lane, cause)
    this.#openIfWanted()
  }

  laneBlocked(): void {
    if (this.isShared && this.#lanes.every((lane) => lane.isBlocked || !lane.isOpen)) this.grow()
  }

  laneQuiet(): void {
    this.target.laneQuiet()
  }

  // ---- inside -------------------------------------------------------------------------------------------------------

  #openIfWanted(): void {
    if (this.#isClosed || this.#isOpening || this.#cancelRetry !== undefined || this.#waiters.size === 0) return
    if (this.pick() !== undefined) {
      this.#tellReady()
      return
    }
    // One prober for all: while the target is known to be down, its monitor tells us when to try.
    if (this.target.state !== 'down' && this.target.state !== 'stopping') void this.#open()
  }

  async #open(): Promise<void> {
    this.#isOpening = true
    let channel: FrameChannel
    try {
      channel = await this.target.openLane(this.login.credential, this.mask)
    } catch (error) {
      this.#isOpening = false
      if (!this.#isClosed) this.#failed(error)
      return
    }
    this.#isOpening = false
    if (this.#isClosed) {
      channel.destroy()
      return
    }
    const lane = new Lane(this.target.nextLaneId(), channel, this)
    this.#lanes.push(lane)
    this.#attempt = 0
    this.#wasTaken = true
    this.refusal = undefined
    this.login.confirmedAt = this.clock.now()
    this.target.laneOpened(lane)
    this.#tellReady()
  }

  #tellReady(): void {
    const waiters = [...this.#waiters]
    this.#waiters.clear()
    for (const waiter of waiters) waiter.laneReady()
  }

  #failed(error: unknown): void {
    this.lastFailure = error instanceof Error ? error.message : String(error)
    if (error instanceof AuthError && error.cause instanceof BoxError) {
      this.refusal = error.cause
      for (const waiter of [...this.#waiters]) waiter.laneRefused(error.cause)
    } else {
      this.target.connectFailed(error)
    }
    if (this.#waiters.size === 0) return
    const delayMs = reconnectDelayMs(this.#attempt++, this.target.random(), RETRY)
    this.#cancelRetry = this.clock.schedule(delayMs, () => {
      this.#cancelRetry = undefined
      this.#openIfWanted()
    })
  }
}

/** More than any number of small requests: a blocked lane is taken when there is no other. */
const BLOCKED_LOAD = 1e12
const RETRY = { minDelayMs: 100, maxDelayMs: 5_000, jitter: 0.2, retries: Number.POSITIVE_INFINITY }
