/**
 * Finding the master and keeping an eye on it: feeds what the instances say to the rules, carries out what the rules ask
 * for, and tells the replicaset when there is a master, another one, or none. All news is worked on at once, without I/O.
 */
import type { Clock } from '@orbweaver/connection'
import { type Alert, conflictAlert, lastingAlerts, liarAlert, staleAlert } from './alerts.js'
import { type InstanceDefinition, isSameAddress, type ReplicasetDefinition } from './definition.js'
import { log } from './diagnostics.js'
import type { InstanceReason } from './errors.js'
import type { WindowEnd, WindowReason } from './failover-buffer.js'
import { agreedReplicaset, identityProblem } from './identity.js'
import { Instance, type InstanceOwner } from './instance.js'
import { applyNews, type InstanceNews, type InstanceView, type LookReason, stateOf } from './instance-view.js'
import { isStale, nextSelectionMs, type Selection, selectMaster, whyNotMaster } from './master-rules.js'
import type { Settings } from './options.js'

/** `UNKNOWN`: there was no master yet. `LOST`: there was one. */
export type MasterState = 'UNKNOWN' | 'STABLE' | 'LOST' | 'CLOSED'

export interface Pair {
  readonly id: string
  readonly generation: number
}

export interface DiscoveryHost {
  /** There is a master, or another one; `epoch` has grown. */
  adopted(instance: Instance): void
  /** There was a master, and is none. */
  lost(): void
  /** Views changed; called after every piece of news, once its consequences are drawn. */
  changed(): void
  alerted(alert: Alert): void
}

export interface DiscoveryCounts {
  masterChanges: number
  readonly fences: Record<LookReason | 'stale' | 'hint', number>
  polls: number
  liars: number
  staleClaims: number
  badEvents: number
  hints: number
  hintsIgnored: number
}

export class MasterDiscovery implements InstanceOwner {
  readonly counts: DiscoveryCounts = {
    masterChanges: 0,
    fences: {
      refused: 0,
      'not master': 0,
      code: 0,
      pending: 0,
      repeat: 0,
      announced: 0,
      'not ready': 0,
      stale: 0,
      hint: 0,
    },
    polls: 0,
    liars: 0,
    staleClaims: 0,
    badEvents: 0,
    hints: 0,
    hintsIgnored: 0,
  }
  /** +1 on every adoption. */
  epoch = 0
  /** Highest term seen: by events, polls and fields of errors. */
  maxTerm = 0
  state: MasterState = 'UNKNOWN'
  /** Whoever gets writes now. */
  master: Instance | undefined
  /** The last master, also after its loss. */
  last: Pair | undefined
  /** All who claim with the same right; empty: no conflict. */
  conflict: readonly string[] = []
  /** Why there is no master. */
  lossReason: WindowReason = 'no_master'
  /** Several claim and none may be taken: writes fail instead of waiting. */
  isUndecided = false
  readonly #settings: Settings
  readonly #clock: Clock
  readonly #host: DiscoveryHost
  #definition: ReplicasetDefinition
  /** In order of distance. */
  #instances: Instance[] = []
  readonly #bySlot = new Map<number, Instance>()
  #slots = 0
  #looks = 0
  #announced: string | undefined
  /** What the instances agree to be members of. */
  #replicasetUuid: string | undefined
  readonly #hintedMs = new Map<Instance, number>()
  #stale: { readonly instance: Instance; readonly generation: number; hasLooked: boolean } | undefined
  #cancelStale: (() => void) | undefined
  #cancelPoll: (() => void) | undefined
  #cancelPulse: (() => void) | undefined
  #cancelSelection: (() => void) | undefined
  #cancelLag: (() => void) | undefined
  #lagIntervalMs: number | undefined

  constructor(settings: Settings, host: DiscoveryHost) {
    this.#settings = settings
    this.#definition = settings.definition
    this.#clock = settings.environment.clock
    this.#host = host
    this.#lagIntervalMs = settings.lagIntervalMs
  }

  /** Creates the instances, which dial at once. */
  start(): void {
    this.#applyDefinition(this.#definition)
    this.#schedulePoll()
    this.#schedulePulse()
    this.#scheduleLag()
  }

  get definition(): ReplicasetDefinition {
    return this.#definition
  }

  /** In order of distance. */
  get instances(): readonly Instance[] {
    return this.#instances
  }

  find(id: string): Instance | undefined {
    return this.#instances.find((instance) => instance.id === id)
  }

  bySlot(slot: number): Instance | undefined {
    return this.#bySlot.get(slot)
  }

  get configured(): string | undefined {
    const { master } = this.#definition
    return master === undefined || master === 'auto' ? undefined : master
  }

  /** `events` when every instance has said something by itself, else polls go beside the events. */
  get mode(): 'events' | 'polling' {
    return this.#instances.every(({ view }) => view.watch === 'yes' && view.heard) ? 'events' : 'polling'
  }

  /** Every instance and why it is not the master. */
  reasons(): InstanceReason[] {
    const nowMs = this.#clock.now()
    return this.#instances.map(({ id, view }) => ({
      instance: id,
      reason:
        whyNotMaster(view, this.maxTerm, nowMs) ?? (this.isUndecided ? 'writable, and not the only one' : 'writable'),
    }))
  }

  alerts(): Alert[] {
    const { maxTerm, conflict, configured } = this
    return lastingAlerts(this.#instances, { conflict, maxTerm, configured, nowMs: this.#clock.now() })
  }

  // ---- what the instances tell (InstanceOwner)

  takeLook(): number {
    this.#looks += 1
    return this.#looks
  }

  news(instance: Instance, news: InstanceNews): void {
    if (this.state === 'CLOSED' || this.#bySlot.get(instance.slot) !== instance) return
    const before = instance.view
    const { view, look, isLiar } = applyNews(before, news, { nowMs: this.#clock.now(), nextLook: this.#looks + 1 })
    instance.view = view
    if ('term' in news && news.term !== undefined) this.seeTerm(news.term)
    if (look !== undefined) {
      this.counts.fences[look] += 1
      instance.look(this.takeLook())
    }
    if (isLiar === true) {
      this.counts.liars += 1
      this.#alert(liarAlert(instance.id))
    }
    if (view === before) return
    if (stateOf(view) === 'RW_PENDING' && stateOf(before) !== 'RW_PENDING') instance.watchPending()
    this.evaluate()
  }

  badEvent(instance: Instance, key: string): void {
    this.counts.badEvents += 1
    log('info', 'bad event', () => ({ replicaset: this.#definition.id, instance: instance.id, key }))
  }

  leaderSeen(instance: Instance, memberId: number): void {
    const leader = this.#instances.find(({ identity }) => identity?.memberId === memberId)
    if (leader !== undefined && leader !== instance && leader !== this.master) this.#lookAt(leader)
  }

  identitySeen(): void {
    this.#checkIdentities()
  }

  fenceAnswered(instance: Instance): void {
    const stale = this.#stale
    if (stale?.instance === instance && stale.hasLooked && stale.generation === instance.view.generation)
      this.#acceptStale(instance)
    this.#host.changed()
  }

  lagSeen(): void {
    this.#host.changed()
  }

  log(level: 'info' | 'warn', event: string, fields: () => Readonly<Record<string, unknown>>): void {
    log(level, event, () => ({ replicaset: this.#definition.id, ...fields() }))
  }

  // ---- what requests find out

  /** Somebody reports a term. */
  seeTerm(term: number): void {
    if (term > this.maxTerm) this.maxTerm = term
  }

  /** A refusal named somebody: a reason to look there, never to believe it. */
  hint(name: string, reporter: Instance): void {
    this.counts.hints += 1
    const wanted = name.toLowerCase()
    const target = this.#instances.find(
      ({ id, uuid, definition }) =>
        id === name ||
        uuid?.toLowerCase() === wanted ||
        definition.uuid?.toLowerCase() === wanted ||
        definition.name === name,
    )
    if (target === undefined || target === reporter || target.view.state !== 'up') this.counts.hintsIgnored += 1
    else this.#lookAt(target)
  }

  /** An outside orchestrator has just promoted it. */
  announce(instance: Instance): void {
    this.#announced = instance.id
    if (instance.view.state === 'up') this.news(instance, { type: 'announced' })
    else this.evaluate()
  }

  // ---- the verdict

  evaluate(): void {
    if (this.state === 'CLOSED') return
    const nowMs = this.#clock.now()
    const selection = selectMaster(this.#instances, {
      current: this.state === 'STABLE' ? this.last : undefined,
      maxTerm: this.maxTerm,
      nowMs,
      onConflict: this.#settings.onConflict,
      announced: this.#announced,
      preferred: this.#settings.preferred,
      configured: this.configured,
    })
    this.#seeConflict(selection)
    if (selection.kind === 'master') this.#found(selection.id)
    else this.#lose()
    this.#watchStale(selection.kind === 'none' ? selection.stale : undefined)
    this.#scheduleSelection(nowMs)
    this.#host.changed()
  }

  reconfigure(definition: ReplicasetDefinition): void {
    this.#applyDefinition(definition)
    this.evaluate()
  }

  /** Stops everything; the instances are the caller's to close. */
  close(): void {
    this.state = 'CLOSED'
    this.master = undefined
    for (const cancel of [
      this.#cancelStale,
      this.#cancelPoll,
      this.#cancelPulse,
      this.#cancelSelection,
      this.#cancelLag,
    ])
      cancel?.()
  }

  #found(id: string): void {
    const instance = this.find(id)
    if (instance === undefined) return
    const pair = { id, generation: instance.view.generation }
    const isSame = this.state === 'STABLE' && this.last?.id === pair.id && this.last.generation === pair.generation
    if (isSame) {
      if (this.#announced === id) this.#announced = undefined
      return
    }
    this.state = 'STABLE'
    this.last = pair
    this.master = instance
    this.epoch += 1
    this.counts.masterChanges += 1
    this.#host.adopted(instance)
    if (this.#announced === id) this.#announced = undefined
    this.#schedulePoll()
  }

  #lose(): void {
    if (this.state !== 'STABLE') {
      const view = this.last === undefined ? undefined : this.find(this.last.id)?.view
      if (this.state === 'LOST' && view !== undefined) this.lossReason = lossReason(view)
      return
    }
    const view = this.master?.view
    this.state = 'LOST'
    this.master = undefined
    this.lossReason = view === undefined ? 'no_master' : lossReason(view)
    this.#host.lost()
    // Whoever has no events may be the new one already.
    this.#pollNow()
    this.#schedulePoll()
  }

  /** The word of an operator ends the window even if the instance was the master before. */
  endOf(instance: Instance, T0: number, M0: Pair | undefined): WindowEnd {
    if (this.#announced === instance.id) return 'operator'
    if ((instance.view.term ?? 0) > T0) return 'newer_term'
    return instance.id === M0?.id ? 'same_instance' : 'other_instance'
  }

  #seeConflict(selection: Selection): void {
    const ids = selection.kind === 'conflict' ? selection.ids : selection.kind === 'master' ? selection.conflict : []
    this.isUndecided = selection.kind === 'conflict'
    const isNews = ids.length > 0 && ids.join('\n') !== this.conflict.join('\n')
    this.conflict = ids
    if (isNews) this.#alert(conflictAlert(ids))
  }

  #alert(alert: Alert): void {
    log('warn', alert.code, () => ({
      replicaset: this.#definition.id,
      message: alert.message,
      instances: alert.instances,
    }))
    this.#host.alerted(alert)
  }

  #lookAt(instance: Instance): void {
    const nowMs = this.#clock.now()
    if (nowMs - (this.#hintedMs.get(instance) ?? Number.NEGATIVE_INFINITY) < HINT_INTERVAL_MS) return
    this.#hintedMs.set(instance, nowMs)
    this.counts.fences.hint += 1
    instance.look(this.takeLook())
  }

  // ---- a claim with an old term that nobody disputes

  #watchStale(id: string | undefined): void {
    const instance = id === undefined ? undefined : this.find(id)
    if (instance === this.#stale?.instance && instance?.view.generation === this.#stale?.generation) return
    this.#cancelStale?.()
    this.#stale = undefined
    if (instance === undefined) return
    this.#stale = { instance, generation: instance.view.generation, hasLooked: false }
    this.#lookAtStale(this.#settings.staleGraceMs)
  }

  #lookAtStale(delayMs: number): void {
    this.#cancelStale = this.#schedule(delayMs, () => {
      const stale = this.#stale
      if (stale === undefined) return
      stale.hasLooked = true
      this.counts.fences.stale += 1
      this.#lookAtStale(this.#settings.instance.lookTimeoutMs)
      stale.instance.look(this.takeLook())
    })
  }

  #acceptStale(instance: Instance): void {
    if (stateOf(instance.view) !== 'RW' || !isStale(instance.view, this.maxTerm)) return
    this.counts.staleClaims += 1
    this.#alert(staleAlert(instance.id, instance.view.term, this.maxTerm))
    this.news(instance, { type: 'staleAccepted' })
  }

  // ---- timers

  #schedulePoll(): void {
    this.#cancelPoll?.()
    const { pollIntervalMs, pollSearchIntervalMs, environment } = this.#settings
    const intervalMs = this.state === 'STABLE' ? pollIntervalMs : pollSearchIntervalMs
    this.#cancelPoll = this.#schedule(intervalMs * (0.9 + 0.2 * environment.random()), () => {
      this.#pollNow()
      this.#schedulePoll()
    })
  }

  /** All that say nothing by themselves, in parallel. */
  #pollNow(): void {
    if (this.mode === 'events') return
    for (const instance of this.#instances) {
      const { view } = instance
      if (view.state !== 'up' || (view.watch === 'yes' && view.ro !== undefined)) continue
      this.counts.polls += 1
      instance.poll()
    }
  }

  #schedulePulse(): void {
    const { clock } = this.#settings.environment
    const beatMs = this.#settings.instance.pingIntervalMs / BEATS_PER_PING
    const dueMs = clock.now() + beatMs
    this.#cancelPulse = this.#schedule(beatMs, () => {
      const lateMs = clock.now() - dueMs
      if (lateMs <= beatMs / 2) this.#beat(0)
      // Our own loop was blocked: what the instances said meanwhile comes in first, and the time is not held against them.
      else clock.soon(() => clock.soon(() => this.#beat(lateMs)))
      this.#schedulePulse()
    })
  }

  #beat(lateMs: number): void {
    if (this.state === 'CLOSED') return
    const nowMs = this.#clock.now()
    for (const instance of this.#instances) instance.beat(nowMs, lateMs)
  }

  #scheduleSelection(nowMs: number): void {
    this.#cancelSelection?.()
    this.#cancelSelection = undefined
    const nextMs = nextSelectionMs(this.#instances, nowMs)
    if (nextMs === Number.POSITIVE_INFINITY) return
    this.#cancelSelection = this.#schedule(nextMs - nowMs, () => this.evaluate())
  }

  /** From now on the replicas are asked how far they are behind. */
  wantLag(): void {
    if (this.#lagIntervalMs !== undefined) return
    this.#lagIntervalMs = DEFAULT_LAG_INTERVAL_MS
    this.#askLag()
    this.#scheduleLag()
  }

  #scheduleLag(): void {
    if (this.#lagIntervalMs === undefined) return
    this.#cancelLag = this.#schedule(this.#lagIntervalMs, () => {
      this.#askLag()
      this.#scheduleLag()
    })
  }

  #askLag(): void {
    for (const instance of this.#instances) if (instance !== this.master) instance.askLag()
  }

  #schedule(delayMs: number, task: () => void): () => void {
    return this.#clock.schedule(delayMs, task, { ref: false })
  }

  // ---- membership and identity

  #applyDefinition(definition: ReplicasetDefinition): void {
    this.#definition = definition
    const kept: Instance[] = []
    for (const wanted of definition.instances) kept.push(this.#keepOrMake(wanted))
    const removed = this.#instances.filter((instance) => !kept.includes(instance))
    this.#instances = this.#byDistance(kept)
    for (const instance of removed) this.#retire(instance)
    this.#checkIdentities()
  }

  #keepOrMake(wanted: InstanceDefinition): Instance {
    const known = this.find(wanted.id)
    if (known !== undefined && isSameAddress(known.definition, wanted)) {
      known.definition = wanted
      return known
    }
    this.#slots += 1
    const instance = new Instance(wanted, this.#slots, this.#settings.instance, this)
    this.#bySlot.set(instance.slot, instance)
    return instance
  }

  /** What is in flight there may finish; nothing new goes there. */
  #retire(instance: Instance): void {
    this.#bySlot.delete(instance.slot)
    this.#hintedMs.delete(instance)
    void instance.close(this.#settings.instance.stopTimeoutMs)
  }

  #byDistance(instances: readonly Instance[]): Instance[] {
    const { zone, zoneWeights } = this.#settings
    const distanceOf = ({ definition }: Instance): number => {
      if (zone === undefined || definition.zone === undefined) return Number.POSITIVE_INFINITY
      return zoneWeights(zone, definition.zone) ?? (zone === definition.zone ? 0 : Number.POSITIVE_INFINITY)
    }
    const rankOf = (instance: Instance): number => (instance.id === this.configured ? 0 : 1)
    // Subtracting infinities gives NaN, so distances are compared.
    return [...instances].sort((a, b) => compare(distanceOf(a), distanceOf(b)) || rankOf(a) - rankOf(b))
  }

  #checkIdentities(): void {
    const { uuid, isAnother } = agreedReplicaset(this.#instances, this.#replicasetUuid)
    this.#replicasetUuid = uuid
    // Its terms are its own.
    if (isAnother) this.maxTerm = 0
    for (const each of this.#instances) {
      this.news(each, { type: 'identified', problem: identityProblem(each, this.#definition.id, uuid) })
    }
  }
}

function lossReason(view: InstanceView): WindowReason {
  if (view.state !== 'up') return 'unreachable'
  if (view.stopping) return 'stopping'
  if (view.silent) return 'silent'
  return view.refused ? 'refused' : 'no_master'
}

function compare(a: number, b: number): number {
  return a === b ? 0 : a < b ? -1 : 1
}

const BEATS_PER_PING = 4
const HINT_INTERVAL_MS = 100
const DEFAULT_LAG_INTERVAL_MS = 1_000
