/*
 * What has to be looked after from time to time: silent lanes, idle ones, ones that are not enough, requests that take too
 * long, and the sum of what slow readers hold. One timer for the whole proxy.
 */
import type { Clock } from '@orbweaver/connection'
import type { Client } from './client.js'
import type { Gate } from './gate.js'
import type { Lane } from './lane.js'
import type { LaneGroup } from './lane-group.js'
import type { ResolvedLimits } from './limits.js'
import type { Target } from './target.js'

export interface PulseHost {
  readonly clock: Clock
  readonly limits: ResolvedLimits
  readonly gate: Gate
  isPauseFull: boolean
  targets(): readonly Target[]
  everyClient(): Iterable<Client>
}

export class Pulse {
  readonly #host: PulseHost
  /** Since when the group's lanes have had more than they can take. */
  readonly #loadedSince = new WeakMap<LaneGroup, number>()
  #cancel: (() => void) | undefined
  #slowAt = 0

  constructor(host: PulseHost) {
    this.#host = host
  }

  start(): void {
    this.#next()
  }

  stop(): void {
    this.#cancel?.()
    this.#cancel = undefined
  }

  #next(): void {
    const { clock } = this.#host
    const dueAt = clock.now() + INTERVAL_MS
    this.#cancel = clock.schedule(INTERVAL_MS, () => {
      // After a stall of our own, what has arrived in the meantime goes first: it may be the sign of life we miss.
      if (clock.now() - dueAt > INTERVAL_MS / 2) clock.soon(() => clock.soon(() => this.#beat()))
      else this.#beat()
    })
  }

  #beat(): void {
    if (this.#cancel === undefined) return
    const host = this.#host
    const now = host.clock.now()
    for (const target of host.targets()) {
      for (const group of target.groups()) this.#lookAfter(group, now)
    }
    if (host.gate.isClosed) {
      const { requests, bytes } = host.gate.measure()
      host.isPauseFull = requests >= host.limits.pauseMaxRequests || bytes >= host.limits.pauseMaxBytes
    } else {
      host.isPauseFull = false
    }
    if (now - this.#slowAt >= SLOW_INTERVAL_MS) {
      this.#slowAt = now
      this.#limitReplies()
    }
    this.#next()
  }

  #lookAfter(group: LaneGroup, now: number): void {
    let isLoaded = group.lanes.length > 0
    for (const lane of [...group.lanes]) {
      if (lane.pulse(now) > 0) group.target.monitorSuspect(true)
      if (isIdle(lane, now, this.#host.limits.laneIdleMs)) lane.drainAndClose(new Error('it was idle'))
      if (lane.slots.usedBytes < LOADED_BYTES && lane.channel.pendingBytes < LOADED_UNWRITTEN_BYTES) isLoaded = false
    }
    if (!isLoaded) {
      this.#loadedSince.delete(group)
      return
    }
    const since = this.#loadedSince.get(group)
    if (since === undefined) this.#loadedSince.set(group, now)
    else if (now - since >= LOADED_MS && group.isShared) {
      this.#loadedSince.delete(group)
      group.grow()
    }
  }

  /** All clients together may not hold more than so much: the one with most goes first. */
  #limitReplies(): void {
    let sum = 0
    let largest: Client | undefined
    for (const client of this.#host.everyClient()) {
      const { pendingBytes } = client.session
      sum += pendingBytes
      if (largest === undefined || pendingBytes > largest.session.pendingBytes) largest = client
    }
    if (sum > this.#host.limits.totalOutBytes && largest !== undefined) {
      largest.session.destroy(
        new Error(`All clients together left ${sum} bytes of replies unread, and this one most of them`),
      )
    }
  }
}

function isIdle(lane: Lane, now: number, laneIdleMs: number): boolean {
  return (
    lane.isOpen &&
    lane.slots.used === 0 &&
    lane.waiting === 0 &&
    lane.streams.size === 0 &&
    now - lane.lastUsedAt >= laneIdleMs
  )
}

const INTERVAL_MS = 50
const SLOW_INTERVAL_MS = 250
/** One connection is best for small requests; a server stops reading one whose unanswered requests fill its input buffers. */
const LOADED_BYTES = 24_576
const LOADED_UNWRITTEN_BYTES = 262_144
const LOADED_MS = 50
