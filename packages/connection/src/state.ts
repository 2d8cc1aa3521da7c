/**
 * The states of a connection and the one place that changes them. Pure: an event comes in, the next state and what the
 * driver has to do come out. Sockets, timers and requests belong to the driver (`link.ts`).
 */
import type { OrbweaverError } from '@orbweaver/iproto'
import type { ReconnectPolicy } from './reconnect.js'

/** net.box's own names where it has the state, so that a Tarantool user needs no dictionary. */
export type ConnectionState =
  /** Dialling, waiting for the greeting and for what the server can do. `attempt` counts from 0 since the last stable connection. */
  | { readonly name: 'initial'; readonly attempt: number }
  /** Waiting for the answer to the login. */
  | { readonly name: 'auth'; readonly attempt: number }
  /** Usable. */
  | { readonly name: 'active'; readonly attempt: number; readonly sinceMs: number }
  /** The server announced its shutdown: what is outstanding finishes, new requests wait for the next connection. */
  | {
      readonly name: 'graceful_shutdown'
      readonly attempt: number
      readonly sinceMs: number
      readonly cause: OrbweaverError
    }
  /** Pausing before the next attempt. `cause` is why the last one failed or ended. */
  | { readonly name: 'error_reconnect'; readonly attempt: number; readonly cause: OrbweaverError }
  /** Gave up: no attempt is left. `connect()` starts again. */
  | { readonly name: 'error'; readonly cause: OrbweaverError }
  /** `close()` was called; what is outstanding finishes, nothing new is taken. */
  | { readonly name: 'closing' }
  /** The end. */
  | { readonly name: 'closed' }

export type StateName = ConnectionState['name']

/** What happens to a connection. */
export type LinkEvent =
  | { readonly type: 'loginSent' }
  | { readonly type: 'opened' }
  | { readonly type: 'attemptFailed'; readonly cause: OrbweaverError }
  | { readonly type: 'lost'; readonly cause: OrbweaverError }
  | { readonly type: 'retryDue' }
  /** Somebody asks for a connection now. */
  | { readonly type: 'wanted' }
  | { readonly type: 'serverShutdown'; readonly cause: OrbweaverError }
  /** Nothing is outstanding any more. */
  | { readonly type: 'drained' }
  | { readonly type: 'close' }
  | { readonly type: 'destroy'; readonly cause: OrbweaverError }

/** What the driver must do next, in this order. */
export type Effect =
  | { readonly do: 'dial' }
  /** Wait the pause that belongs to this attempt, then report `retryDue`. */
  | { readonly do: 'pause'; readonly attempt: number }
  /** The channel is up: a new generation begins. */
  | { readonly do: 'begin' }
  /** End the dial or the channel and forget it. */
  | { readonly do: 'hangUp'; readonly cause: OrbweaverError | undefined }
  | { readonly do: 'failInFlight'; readonly cause: OrbweaverError }
  | { readonly do: 'failWaiting'; readonly cause: OrbweaverError }
  /** Answer those who wait in `connect()`. */
  | { readonly do: 'tellConnectors'; readonly cause: OrbweaverError | undefined }
  /** Report `drained` as soon as nothing is outstanding. */
  | { readonly do: 'drain' }
  /** The last effect of all: release every timer and listener. */
  | { readonly do: 'finish' }

export interface Transition {
  readonly state: ConnectionState
  readonly effects: readonly Effect[]
}

export interface TransitionContext {
  readonly nowMs: number
  readonly policy: ReconnectPolicy
  /** Whether the cause of a failed attempt is a refused login: then nobody waits for the next attempt. */
  readonly isLoginRefusal: (cause: OrbweaverError) => boolean
  /** The error of requests that a close by the caller ends. */
  readonly closedByCaller: () => OrbweaverError
}

/** A connection that lived this long was stable: the next pause starts from the shortest again. */
export const STABLE_AFTER_MS = 1_000

/** The next state. An event that means nothing in a state (a late timer, a second close) changes nothing. */
export function transition(state: ConnectionState, event: LinkEvent, context: TransitionContext): Transition {
  if (state.name === 'closed') return { state, effects: [] }
  switch (event.type) {
    case 'loginSent':
      return state.name === 'initial' ? { state: { name: 'auth', attempt: state.attempt }, effects: [] } : stay(state)
    case 'opened':
      return isConnecting(state) ? opened(state, context) : stay(state)
    case 'attemptFailed':
      return isConnecting(state) ? attemptFailed(state.attempt, event.cause, context) : stay(state)
    case 'lost':
      return lost(state, event.cause, context)
    case 'retryDue':
      return state.name === 'error_reconnect' ? dial(state.attempt + 1) : stay(state)
    case 'wanted':
      return state.name === 'error' ? dial(0) : stay(state)
    case 'serverShutdown':
      return state.name === 'active'
        ? { state: { ...state, name: 'graceful_shutdown', cause: event.cause }, effects: [{ do: 'drain' }] }
        : stay(state)
    case 'drained':
      return drained(state, context)
    case 'close':
      return close(state, context)
    case 'destroy':
      return { state: { name: 'closed' }, effects: endOfAll(event.cause) }
  }
}

function stay(state: ConnectionState): Transition {
  return { state, effects: [] }
}

type Connecting = Extract<ConnectionState, { name: 'initial' | 'auth' }>

function isConnecting(state: ConnectionState): state is Connecting {
  return state.name === 'initial' || state.name === 'auth'
}

function dial(attempt: number): Transition {
  return { state: { name: 'initial', attempt }, effects: [{ do: 'dial' }] }
}

function opened(state: Connecting, context: TransitionContext): Transition {
  return {
    state: { name: 'active', attempt: state.attempt, sinceMs: context.nowMs },
    effects: [{ do: 'begin' }, { do: 'tellConnectors', cause: undefined }],
  }
}

function attemptFailed(attempt: number, cause: OrbweaverError, context: TransitionContext): Transition {
  const next = pauseOrGiveUp(attempt, cause, context)
  const effects: Effect[] = []
  if (next.name === 'error' || context.isLoginRefusal(cause)) effects.push({ do: 'failWaiting', cause })
  effects.push({ do: 'tellConnectors', cause })
  if (next.name === 'error_reconnect') effects.push({ do: 'pause', attempt })
  return { state: next, effects }
}

function lost(state: ConnectionState, cause: OrbweaverError, context: TransitionContext): Transition {
  if (state.name === 'closing') {
    return { state: { name: 'closed' }, effects: endOfAll(cause) }
  }
  if (state.name !== 'active' && state.name !== 'graceful_shutdown') return stay(state)
  const isStable = context.nowMs - state.sinceMs >= STABLE_AFTER_MS
  const attempt = isStable ? 0 : state.attempt
  const next = pauseOrGiveUp(attempt, cause, context)
  const effects: Effect[] = [
    { do: 'hangUp', cause },
    { do: 'failInFlight', cause },
  ]
  if (next.name === 'error_reconnect') effects.push({ do: 'pause', attempt })
  else effects.push({ do: 'failWaiting', cause })
  return { state: next, effects }
}

function pauseOrGiveUp(
  attempt: number,
  cause: OrbweaverError,
  context: TransitionContext,
): ConnectionState & { name: 'error_reconnect' | 'error' } {
  return attempt < context.policy.retries ? { name: 'error_reconnect', attempt, cause } : { name: 'error', cause }
}

function drained(state: ConnectionState, context: TransitionContext): Transition {
  if (state.name === 'graceful_shutdown') return lost(state, state.cause, context)
  if (state.name === 'closing') {
    return { state: { name: 'closed' }, effects: [{ do: 'hangUp', cause: undefined }, { do: 'finish' }] }
  }
  return stay(state)
}

function close(state: ConnectionState, context: TransitionContext): Transition {
  if (state.name === 'closing') return stay(state)
  const cause = context.closedByCaller()
  if (state.name !== 'active' && state.name !== 'graceful_shutdown') {
    return { state: { name: 'closed' }, effects: endOfAll(cause) }
  }
  return { state: { name: 'closing' }, effects: [{ do: 'drain' }] }
}

function endOfAll(cause: OrbweaverError): readonly Effect[] {
  return [
    { do: 'hangUp', cause },
    { do: 'failInFlight', cause },
    { do: 'failWaiting', cause },
    { do: 'tellConnectors', cause },
    { do: 'finish' },
  ]
}
