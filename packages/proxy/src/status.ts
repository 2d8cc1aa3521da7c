/* Clients and lanes as an operator sees them, one by one. */
import type { Activity, Client, PinReason } from './client.js'
import type { Lane } from './lane.js'

/** One client. */
export interface ClientStatus {
  /** Never used again: what `kill` takes. */
  readonly id: number
  readonly peer: string
  readonly user: string
  readonly activity: Activity
  /** Why it has a connection of its own. */
  readonly pin: PinReason | undefined
  /** At targets. */
  readonly inFlight: number
  /** Requests that wait in the proxy, and their bytes. */
  readonly waiting: number
  readonly waitingBytes: number
  /** Replies it has not taken yet. */
  readonly unreadBytes: number
}

/** One connection to a target. */
export interface LaneStatus {
  readonly id: number
  readonly target: string
  readonly user: string
  /** Whether clients share it. */
  readonly isShared: boolean
  readonly state: 'open' | 'draining'
  readonly inFlight: number
  readonly inFlightBytes: number
  /** Clients that wait for their turn on it. */
  readonly waiting: number
  readonly transactions: number
}

export function clientStatus(client: Client): ClientStatus {
  const { session, activity, pin, inFlight, backlog, backlogBytes } = client
  return {
    id: session.id,
    peer: session.peer,
    user: session.user,
    activity,
    pin,
    inFlight,
    waiting: backlog,
    waitingBytes: backlogBytes,
    unreadBytes: session.pendingBytes,
  }
}

export function laneStatus(lane: Lane, user: string, isShared: boolean): LaneStatus {
  return {
    id: lane.id,
    target: lane.target.name,
    user,
    isShared,
    state: lane.isOpen ? 'open' : 'draining',
    inFlight: lane.slots.used,
    inFlightBytes: lane.slots.usedBytes,
    waiting: lane.waiting,
    transactions: lane.transactions,
  }
}
