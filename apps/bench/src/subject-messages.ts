/* What the bench and the process of a subject say to each other, over the channel of node:child_process. */
import type { ClusterConfig } from '@orbweaver/vshard'
import type { Round } from './round.js'

/** What is shared by all subjects of a case. */
export interface Stage {
  /** Of a Tarantool on 127.0.0.1; 0 where a case needs none. */
  readonly port: number
  /** Of a cluster of storages. */
  readonly cluster: ClusterConfig | undefined
}

export type ToSubject =
  | { readonly say: 'setUp'; readonly subject: string; readonly caseId: string; readonly stage: Stage }
  | { readonly say: 'round'; readonly seconds: number; readonly patienceMs: number }
  | { readonly say: 'end' }

export type FromSubject =
  | { readonly say: 'ready' }
  | { readonly say: 'done'; readonly round: Round }
  | { readonly say: 'failed'; readonly message: string }
