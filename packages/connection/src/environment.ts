import { type Clock, systemClock } from './clock.js'
import { dialSocket } from './tcp-transport.js'
import type { Dial } from './transport.js'

/** Everything a package takes from the outside world: time, chance, and how to reach a peer. */
export interface Environment {
  readonly clock: Clock
  /** A number in [0, 1), for jitter and choices; never for anything secret. */
  readonly random: () => number
  readonly dial: Dial
}

/** Node's timers, `Math.random`, and sockets. */
export const systemEnvironment: Environment = { clock: systemClock, random: Math.random, dial: dialSocket }

/** The given parts over those of the system. A field that is present and undefined counts as absent. */
export function resolveEnvironment(partial: Partial<Environment> | undefined): Environment {
  if (partial === undefined) return systemEnvironment
  return {
    clock: partial.clock ?? systemEnvironment.clock,
    random: partial.random ?? systemEnvironment.random,
    dial: partial.dial ?? systemEnvironment.dial,
  }
}
