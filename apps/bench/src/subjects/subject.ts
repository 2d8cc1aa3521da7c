import type { Round } from '../round.js'

/** Somebody who is measured, set up for one case. */
export interface Subject {
  /** @param patienceMs - how long after its end a round waits for what is still missing */
  round(seconds: number, patienceMs: number): Promise<Round>
}
