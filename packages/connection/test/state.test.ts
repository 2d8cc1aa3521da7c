import { describe, expect, it } from 'vitest'
import { AuthError, ConnectError, ConnectionClosedError, ConnectionLostError } from '../src/errors.js'
import { isLoginRefusal } from '../src/handshake.js'
import { BoxError } from '@orbweaver/iproto'
import {
  type ConnectionState,
  type Effect,
  type LinkEvent,
  STABLE_AFTER_MS,
  transition,
  type TransitionContext,
} from '../src/state.js'

const refused = new ConnectError('refused', { stage: 'dial', peer: 'p' })
const badLogin = new AuthError('no', { user: 'u', peer: 'p', cause: BoxError.of(47, 'bad') })
const lost = new ConnectionLostError('lost', { executed: 'unknown' })
const leaving = new ConnectionLostError('shutting down', { executed: 'unknown' })
const closed = new ConnectionClosedError('closed', { executed: 'no' })

function context(retries = Number.POSITIVE_INFINITY, nowMs = 10_000): TransitionContext {
  return {
    nowMs,
    policy: { minDelayMs: 50, maxDelayMs: 5_000, jitter: 0, retries },
    isLoginRefusal,
    closedByCaller: () => closed,
  }
}

const STATES: Readonly<Record<string, ConnectionState>> = {
  initial: { name: 'initial', attempt: 2 },
  auth: { name: 'auth', attempt: 2 },
  active: { name: 'active', attempt: 2, sinceMs: 9_990 },
  graceful_shutdown: { name: 'graceful_shutdown', attempt: 2, sinceMs: 9_990, cause: leaving },
  error_reconnect: { name: 'error_reconnect', attempt: 2, cause: refused },
  error: { name: 'error', cause: refused },
  closing: { name: 'closing' },
  closed: { name: 'closed' },
}

/** State, event, next state, effects. Every pair that is not listed changes nothing. */
const TABLE: readonly [state: string, event: LinkEvent, next: ConnectionState, effects: readonly Effect['do'][]][] = [
  ['initial', { type: 'loginSent' }, { name: 'auth', attempt: 2 }, []],
  ['initial', { type: 'opened' }, { name: 'active', attempt: 2, sinceMs: 10_000 }, ['begin', 'tellConnectors']],
  ['auth', { type: 'opened' }, { name: 'active', attempt: 2, sinceMs: 10_000 }, ['begin', 'tellConnectors']],
  [
    'initial',
    { type: 'attemptFailed', cause: refused },
    { name: 'error_reconnect', attempt: 2, cause: refused },
    ['tellConnectors', 'pause'],
  ],
  [
    'auth',
    { type: 'attemptFailed', cause: badLogin },
    { name: 'error_reconnect', attempt: 2, cause: badLogin },
    ['failWaiting', 'tellConnectors', 'pause'],
  ],
  ['error_reconnect', { type: 'retryDue' }, { name: 'initial', attempt: 3 }, ['dial']],
  ['error', { type: 'wanted' }, { name: 'initial', attempt: 0 }, ['dial']],
  [
    'active',
    { type: 'lost', cause: lost },
    { name: 'error_reconnect', attempt: 2, cause: lost },
    ['hangUp', 'failInFlight', 'pause'],
  ],
  [
    'graceful_shutdown',
    { type: 'lost', cause: lost },
    { name: 'error_reconnect', attempt: 2, cause: lost },
    ['hangUp', 'failInFlight', 'pause'],
  ],
  [
    'closing',
    { type: 'lost', cause: lost },
    { name: 'closed' },
    ['hangUp', 'failInFlight', 'failWaiting', 'tellConnectors', 'finish'],
  ],
  [
    'active',
    { type: 'serverShutdown', cause: leaving },
    { name: 'graceful_shutdown', attempt: 2, sinceMs: 9_990, cause: leaving },
    ['drain'],
  ],
  [
    'graceful_shutdown',
    { type: 'drained' },
    { name: 'error_reconnect', attempt: 2, cause: leaving },
    ['hangUp', 'failInFlight', 'pause'],
  ],
  ['closing', { type: 'drained' }, { name: 'closed' }, ['hangUp', 'finish']],
  ['active', { type: 'close' }, { name: 'closing' }, ['drain']],
  ['graceful_shutdown', { type: 'close' }, { name: 'closing' }, ['drain']],
  ...['initial', 'auth', 'error_reconnect', 'error'].map(
    (state): [string, LinkEvent, ConnectionState, readonly Effect['do'][]] => [
      state,
      { type: 'close' },
      { name: 'closed' },
      ['hangUp', 'failInFlight', 'failWaiting', 'tellConnectors', 'finish'],
    ],
  ),
  ...['initial', 'auth', 'active', 'graceful_shutdown', 'error_reconnect', 'error', 'closing'].map(
    (state): [string, LinkEvent, ConnectionState, readonly Effect['do'][]] => [
      state,
      { type: 'destroy', cause: closed },
      { name: 'closed' },
      ['hangUp', 'failInFlight', 'failWaiting', 'tellConnectors', 'finish'],
    ],
  ),
]

const EVENTS: readonly LinkEvent[] = [
  { type: 'loginSent' },
  { type: 'opened' },
  { type: 'attemptFailed', cause: refused },
  { type: 'lost', cause: lost },
  { type: 'retryDue' },
  { type: 'wanted' },
  { type: 'serverShutdown', cause: leaving },
  { type: 'drained' },
  { type: 'close' },
  { type: 'destroy', cause: closed },
]

describe('transition', () => {
  it.each(TABLE)('%s, %j', (state, event, next, effects) => {
    const result = transition(STATES[state] as ConnectionState, event, context())
    expect(result.state).toEqual(next)
    expect(result.effects.map((effect) => effect.do)).toEqual(effects)
  })

  const listed = new Set(TABLE.map(([state, event]) => `${state} ${event.type}`))
  // A failed attempt is listed once per kind of cause; both connecting states treat them alike.
  listed.add('initial attemptFailed').add('auth attemptFailed')
  const unlisted = Object.keys(STATES).flatMap((state) =>
    EVENTS.filter((event) => !listed.has(`${state} ${event.type}`)).map((event) => [state, event] as const),
  )
  it.each(unlisted)('%s is not changed by %j', (state, event) => {
    const result = transition(STATES[state] as ConnectionState, event, context())
    expect(result.state).toBe(STATES[state])
    expect(result.effects).toEqual([])
  })

  it('gives up when no retry is left, and ends what waits', () => {
    const afterFailure = transition(
      { name: 'initial', attempt: 1 },
      { type: 'attemptFailed', cause: refused },
      context(1),
    )
    expect(afterFailure.state).toEqual({ name: 'error', cause: refused })
    expect(afterFailure.effects.map((effect) => effect.do)).toEqual(['failWaiting', 'tellConnectors'])
    const afterLoss = transition({ name: 'active', attempt: 0, sinceMs: 0 }, { type: 'lost', cause: lost }, context(0))
    expect(afterLoss.state).toEqual({ name: 'error', cause: lost })
    expect(afterLoss.effects.map((effect) => effect.do)).toEqual(['hangUp', 'failInFlight', 'failWaiting'])
  })

  it('starts from the shortest pause again only after a connection that was stable', () => {
    const flapping = transition(
      { name: 'active', attempt: 5, sinceMs: 10_001 - STABLE_AFTER_MS },
      { type: 'lost', cause: lost },
      context(),
    )
    expect(flapping.state).toMatchObject({ attempt: 5 })
    const stable = transition(
      { name: 'active', attempt: 5, sinceMs: 10_000 - STABLE_AFTER_MS },
      { type: 'lost', cause: lost },
      context(),
    )
    expect(stable.state).toMatchObject({ attempt: 0 })
  })
})
