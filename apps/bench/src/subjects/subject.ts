import type { BenchCase } from '../cases.js'
import type { Round } from '../round.js'

/** Somebody who is measured, set up for one case. */
export interface Subject {
  /** @param patienceMs - how long after its end a round waits for what is still missing */
  round(seconds: number, patienceMs: number): Promise<Round>
}

/** @param port - of the server on 127.0.0.1; 0 for cases that need none */
export type SubjectMaker = (benchCase: BenchCase, port: number) => Promise<Subject>
