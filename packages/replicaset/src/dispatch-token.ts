/**
 * The token of one dispatch: under which epoch, to which instance, in which mode. One number, so that nothing has to be
 * kept for a request on its way.
 */
import type { CallMode } from './attempt.js'

export interface Dispatched {
  readonly epoch: number
  readonly slot: number
  readonly mode: CallMode
}

/** @param slot - 0..65535 */
export function encodeToken(epoch: number, slot: number, mode: CallMode): number {
  return (epoch * SLOTS + (slot % SLOTS)) * MODES.length + MODE_NUMBERS[mode]
}

export function decodeToken(token: number): Dispatched {
  const mode = token % MODES.length
  const rest = (token - mode) / MODES.length
  const slot = rest % SLOTS
  return { epoch: (rest - slot) / SLOTS, slot, mode: MODES[mode] ?? 'rw' }
}

const SLOTS = 65_536
const MODE_NUMBERS: Readonly<Record<CallMode, number>> = { rw: 0, ro: 1, bro: 2, re: 3, bre: 4 }
const MODES: readonly CallMode[] = ['rw', 'ro', 'bro', 're', 'bre']
