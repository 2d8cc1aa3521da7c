/* The proxy in numbers. */
import type { Activity, Client } from './client.js'
import type { Counters } from './counters.js'
import type { Gate } from './gate.js'
import type { Target, TargetState } from './target.js'
import type { WatchRelay } from './watch-relay.js'

/** One target as an operator sees it. */
export interface TargetStatus {
  readonly name: string
  readonly uri: string
  readonly state: TargetState
  readonly isRw: boolean
  readonly isRo: boolean
  readonly version: string | undefined
  /** What it says of itself; undefined where it cannot say. */
  readonly isReadonly: boolean | undefined
  readonly term: number | undefined
  readonly lanes: number
  readonly inFlight: number
  /** Why it could not be reached last. */
  readonly lastFailure: string | undefined
}

/** What the proxy is doing and has done. */
export interface ProxyStats {
  /** Connected now. */
  readonly clients: number
  readonly clientsBy: Readonly<Record<Activity, number>>
  /** Connections to targets that carry requests now. */
  readonly lanes: number
  /** Requests in flight at targets now, orphans included. */
  readonly inFlight: number
  /** Received from clients so far. */
  readonly requests: number
  readonly replies: number
  readonly pushes: number
  /** Answered with an error of the proxy's own; of those, with an unknown outcome. */
  readonly synthesized: number
  readonly unknownOutcomes: number
  readonly logins: number
  readonly badLogins: number
  readonly staleLogins: number
  readonly lanesOpened: number
  readonly lanesClosed: number
  readonly streamsBroken: number
  readonly readingPauses: number
  readonly slowReadersClosed: number
  readonly statementReprepares: number
  readonly pins: number
  readonly unexpectedReplies: number
  readonly failovers: number
  readonly watchKeys: number
  readonly watchSubscriptions: number
  readonly eventsDelivered: number
  /** Calls that were sent again to another replicaset, or later. */
  readonly bounces: number
  readonly rw: string | undefined
  readonly ro: readonly string[]
  /** Counts the changes of the master. */
  readonly epoch: number
  readonly isPaused: boolean
  /** Requests that wait at the gate. */
  readonly buffered: number
  readonly bufferedBytes: number
  readonly targets: readonly TargetStatus[]
}

export interface StatsParts {
  readonly counters: Counters
  readonly clients: readonly Client[]
  readonly sessions: number
  readonly targets: readonly Target[]
  readonly rw: Target | undefined
  readonly ro: readonly Target[]
  readonly epoch: number
  readonly gate: Gate
  readonly relay: WatchRelay
  readonly bounces: number
}

export function proxyStats(parts: StatsParts): ProxyStats {
  const { counters, relay, gate } = parts
  const targets = parts.targets.map((target) => statusOf(target, parts))
  const clientsBy: Record<Activity, number> = { idle: 0, active: 0, queued: 0, paused: 0, pinned: 0 }
  for (const client of parts.clients) clientsBy[client.activity]++
  const { requests, bytes } = gate.measure()
  let unexpectedReplies = 0
  for (const target of parts.targets) for (const lane of target.lanes()) unexpectedReplies += lane.unexpectedReplies
  return {
    clients: parts.sessions,
    clientsBy,
    lanes: sum(targets, ({ lanes }) => lanes),
    inFlight: sum(targets, ({ inFlight }) => inFlight),
    requests: counters.requests,
    replies: counters.replies,
    pushes: counters.pushes,
    synthesized: counters.synthesized,
    unknownOutcomes: counters.unknownOutcomes,
    logins: counters.logins,
    badLogins: counters.badLogins,
    staleLogins: counters.staleLogins,
    lanesOpened: counters.lanesOpened,
    lanesClosed: counters.lanesClosed,
    streamsBroken: counters.streamsBroken,
    readingPauses: counters.readingPauses,
    slowReadersClosed: counters.slowReadersClosed,
    statementReprepares: counters.reprepared,
    pins: counters.pins,
    unexpectedReplies,
    failovers: counters.failovers,
    watchKeys: relay.keys,
    watchSubscriptions: relay.subscriptions,
    eventsDelivered: relay.delivered,
    bounces: parts.bounces,
    rw: parts.rw?.name,
    ro: parts.ro.map(({ name }) => name),
    epoch: parts.epoch,
    isPaused: gate.isClosed,
    buffered: requests,
    bufferedBytes: bytes,
    targets,
  }
}

function statusOf(target: Target, { rw, ro }: StatsParts): TargetStatus {
  const { name, uri, state, version, isReadonly, term, inFlight, lastFailure } = target
  return {
    name,
    uri,
    state,
    isRw: target === rw,
    isRo: ro.includes(target),
    version,
    isReadonly,
    term,
    lanes: [...target.lanes()].length,
    inFlight,
    lastFailure: state === 'up' ? undefined : lastFailure,
  }
}

function sum<T>(items: readonly T[], of: (item: T) => number): number {
  return items.reduce((total, item) => total + of(item), 0)
}
