/*
 * Buckets whose move runs on this instance now, in either direction. In memory only: what is in here is off limits to the
 * collector and to recovery; what is not, and has a state of a move, is theirs to repair.
 */
import type { Clock } from '@orbweaver/connection'
import { VshardError } from '@orbweaver/vshard'
import { log } from '../diagnostics.js'
import type { Buckets } from './buckets.js'
import { CauseLog } from './cause-log.js'

/** A move as its operator sees it. */
export interface TransferInfo {
  readonly bucketId: number
  readonly direction: 'send' | 'receive'
  /** The other replicaset. */
  readonly peer: string
  /** What it does or waits for at the moment. */
  readonly step: string
  /** When it began, on the storage's clock (milliseconds). */
  readonly since: number
}

/** A wait that lasts longer is worth a line of the log. */
const LONG_WAIT_MS = 1_000

export class Transfers {
  readonly #buckets: Buckets
  readonly #clock: Clock
  readonly #storageName: string
  readonly #causes: CauseLog
  readonly #running = new Map<number, TransferInfo>()
  readonly #cancelWatch = new Map<number, () => void>()

  constructor(buckets: Buckets, { clock, storageName }: { readonly clock: Clock; readonly storageName: string }) {
    this.#buckets = buckets
    this.#clock = clock
    this.#storageName = storageName
    this.#causes = new CauseLog(clock)
  }

  has(id: number): boolean {
    return this.#running.has(id)
  }

  get size(): number {
    return this.#running.size
  }

  list(): TransferInfo[] {
    return [...this.#running.values()]
  }

  /** @throws VshardError WRONG_BUCKET when the bucket is on its way already */
  begin(bucketId: number, direction: TransferInfo['direction'], peer: string): void {
    if (this.#running.has(bucketId))
      throw VshardError.of('WRONG_BUCKET', { bucket_id: bucketId, reason: 'transfer is already in progress' })
    this.#running.set(bucketId, { bucketId, direction, peer, step: 'starting', since: this.#clock.now() })
  }

  /** @param step - begins with `waiting` where it may last: then whoever reads the log learns of it */
  step(bucketId: number, step: string): void {
    const transfer = this.#running.get(bucketId)
    if (transfer === undefined) return
    const now = { ...transfer, step }
    this.#running.set(bucketId, now)
    this.#cancelWatch.get(bucketId)?.()
    this.#cancelWatch.delete(bucketId)
    if (!step.startsWith('waiting')) return
    this.#cancelWatch.set(
      bucketId,
      this.#clock.schedule(LONG_WAIT_MS, () => this.#lasts(now)),
    )
  }

  /** Buckets wait together: the one whose wait is told stands for all. */
  #lasts({ bucketId, direction, peer, step }: TransferInfo): void {
    this.#causes.met(`${direction} ${peer} ${step}`, () =>
      log('warn', this.#storageName, 'move waits', () => ({ bucketId, direction, peer, step })),
    )
  }

  end(bucketId: number): void {
    this.#cancelWatch.get(bucketId)?.()
    this.#cancelWatch.delete(bucketId)
    if (this.#running.delete(bucketId)) this.#buckets.touch()
  }
}
