/* What the bench and the process of a subject say to each other, over the channel of node:child_process. */
import type { Round } from './round.js'

export type ToSubject =
  | { readonly say: 'setUp'; readonly subject: string; readonly caseId: string; readonly port: number }
  | { readonly say: 'round'; readonly seconds: number; readonly patienceMs: number }
  | { readonly say: 'end' }

export type FromSubject =
  | { readonly say: 'ready' }
  | { readonly say: 'done'; readonly round: Round }
  | { readonly say: 'failed'; readonly message: string }
