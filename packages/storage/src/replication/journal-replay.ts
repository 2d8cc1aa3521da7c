/* An instance's own past, read back from its directory: as it was applied, with nobody told. */
import { MalformedFrameError } from '@orbweaver/iproto'
import type { Row } from '@orbweaver/iproto'
import type { Engine, RowBody } from '../engine/engine.js'
import type { ReplicaState } from './replica-state.js'
import { follow } from './role.js'
import type { RowLog } from './row-log.js'
import type { SnapshotHead, StreamFrame, Vote } from './stream-codec.js'
import { TransactionReader } from './transaction-reader.js'
import type { RowTransaction } from './transaction.js'

export class JournalReplay {
  readonly #engine: Engine
  readonly #state: ReplicaState
  readonly #log: RowLog
  readonly #isAlone: boolean
  readonly #transactions = new TransactionReader()

  /** @param options.isAlone - it has no peers: others cannot have gone on meanwhile, so it may write at once */
  constructor(options: { engine: Engine; state: ReplicaState; log: RowLog; isAlone: boolean }) {
    this.#engine = options.engine
    this.#state = options.state
    this.#log = options.log
    this.#isAlone = options.isAlone
  }

  rows(rows: readonly RowBody[]): void {
    this.#engine.load(rows)
  }

  snapshot(head: SnapshotHead, vote: Vote): void {
    this.#state.role = { ...this.#state.replace(head), isWritable: this.#state.role.isWritable }
    this.#vote(vote)
    this.#log.clear(head.vclock)
  }

  /** @throws MalformedFrameError for a frame that belongs in no journal */
  frame(frame: StreamFrame, header: Row): void {
    switch (frame.is) {
      case 'vote':
        this.#vote(frame.vote)
        return
      case 'promotion':
        this.#transaction(this.#transactions.promotion(header, frame.promotion))
        return
      case 'row': {
        if (frame.isLocal) {
          this.#engine.load([frame.row])
          return
        }
        const transaction = this.#transactions.add(header, frame.row)
        if (transaction !== undefined) this.#transaction(transaction)
        return
      }
      case 'position':
      case 'heartbeat':
      case 'snapshotHead':
      case 'snapshotRows':
        throw new MalformedFrameError(`A journal holds no frame of kind '${frame.is}'`)
    }
  }

  #vote({ term, candidate }: Vote): void {
    this.#state.role = { ...this.#state.role, promised: term, promisedTo: candidate }
  }

  #transaction(transaction: RowTransaction): void {
    const { role } = this.#state
    this.#engine.load(transaction.rows)
    if (!this.#isAlone) this.#log.append(transaction, role.leader)
    this.#state.take(transaction)
    // Whoever was the master must be promoted again: others may have gone on in the meantime.
    if (transaction.promotion !== undefined)
      this.#state.role = { ...follow(role, transaction.promotion), isWritable: this.#isAlone }
  }
}
