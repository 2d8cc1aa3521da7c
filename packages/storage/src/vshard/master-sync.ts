/*
 * A new master may not touch buckets before it has everything its predecessors did to them. Under a quorum the promotion itself
 * proves that. Without one every other instance is asked for its position, which a former master gives only once it takes no
 * writes any more; whoever is gone for good must be written off by the operator.
 */
import { readStorageBucketCheckpoint, storageBucketCheckpointCall } from '@orbweaver/vshard'
import { covers } from '../replication/vclock.js'
import type { Vclock } from '../replication/vclock.js'
import { BackgroundService } from './background-service.js'
import type { VshardParts } from './vshard-parts.js'

/** What it reads of its instance. */
export interface MasterState {
  readonly term: number
  readonly isMaster: boolean
  readonly vclock: Vclock
  /** A promotion proves that nothing acknowledged is missing. */
  readonly hasQuorum: boolean
}

const ASK_MS = 42_000
const PAUSE_MS = 100
/** Rows of a checkpoint that do not arrive: ask again. */
const ROWS_MS = 5_000
const ROWS_POLL_MS = 20

export class MasterSync extends BackgroundService {
  readonly #parts: VshardParts
  readonly #state: MasterState
  #syncedTerm: number | undefined

  constructor(parts: VshardParts, state: MasterState) {
    super('masterSync', parts, () => this.#sync())
    this.#parts = parts
    this.#state = state
  }

  get isSynced(): boolean {
    if (!this.#state.isMaster) return false
    return this.#state.hasQuorum || this.#syncedTerm === this.#state.term
  }

  async #sync(): Promise<{ problem: string | undefined; againMs: number | undefined }> {
    const { isMaster, term } = this.#state
    if (!isMaster || this.isSynced) return { problem: undefined, againMs: undefined }
    try {
      const positions = await this.#parts.own.askAll(
        storageBucketCheckpointCall(ASK_MS),
        readStorageBucketCheckpoint,
        ASK_MS + PAUSE_MS,
      )
      const isHere = await this.#arrived(positions)
      if (isHere && this.#state.isMaster && this.#state.term === term) {
        this.#syncedTerm = term
        // Whoever waits for a synchronised master looks again.
        this.#parts.buckets.touch()
      }
      return {
        problem: isHere ? undefined : 'rows of another instance have not arrived',
        againMs: isHere ? undefined : PAUSE_MS,
      }
    } catch (error) {
      return { problem: error instanceof Error ? error.message : String(error), againMs: PAUSE_MS }
    }
  }

  async #arrived(positions: readonly Vclock[]): Promise<boolean> {
    const { clock } = this.#parts
    const deadline = clock.now() + ROWS_MS
    for (;;) {
      if (positions.every((position) => covers(this.#state.vclock, position))) return true
      if (clock.now() >= deadline || !this.isActive) return false
      await new Promise<void>((resolve) => clock.schedule(ROWS_POLL_MS, resolve))
    }
  }
}
