/* Keeping every bucket of the cluster where it is for as long as a program needs: for migrations, checks, backups. */
import { HoldLostError } from '../errors.js'
import type { MapOwner, RefRun } from './map-owner.js'
import { REF_LIFE_MS, RefKeeper } from './ref-keeper.js'
import { refAll } from './ref-stage.js'
import type { Refs } from './ref-stage.js'

export interface HoldOptions {
  /** Milliseconds within which all storages must agree. Default: of the router. */
  readonly timeout?: number
  /** Milliseconds after which the hold ends by itself. Default `Infinity`: when it is released, or this program ends. */
  readonly expire?: number
  /** Gives up while the storages are being asked; later it changes nothing. */
  readonly signal?: AbortSignal
}

/** All buckets stay where they are until this is released. */
export interface BucketHold extends AsyncDisposable {
  /**
   * Aborted as soon as buckets may move again. Its reason is a HoldLostError where that was not asked for: pass the signal to
   * whatever relies on the hold.
   */
  readonly signal: AbortSignal
  /** Replicasets that are not held because they could not be reached, by id: the others have all buckets. */
  readonly skipped: ReadonlyMap<string, string>
  /** Lets buckets move again. @throws HoldLostError when they may have moved before: the hold had expired, or was lost */
  release(): Promise<void>
}

/** @throws MapReduceError, RequestAbortedError; nothing is held then */
export async function holdBuckets(owner: MapOwner, run: RefRun, expireMs: number): Promise<BucketHold> {
  const refs = await refAll(owner, run)
  return new Hold(owner, refs, run.deadline, expireMs)
}

/**
 * When references of a hold expire if they are not renewed. Waiting for one counts in its life: it must be alive when the last
 * storage agrees.
 */
export function holdDeadline(refDeadline: number): number {
  return refDeadline + REF_LIFE_MS
}

class Hold implements BucketHold {
  readonly skipped: ReadonlyMap<string, string>
  readonly #ended = new AbortController()
  readonly #keeper: RefKeeper
  readonly #cancelExpiry: () => void
  #lost: HoldLostError | undefined
  #isReleased = false

  constructor(owner: MapOwner, refs: Refs, refsExpire: number, expireMs: number) {
    this.skipped = refs.skipped
    this.#keeper = new RefKeeper(owner, refs.held, refsExpire, (error) => this.#lose(error))
    this.#cancelExpiry = owner.clock.schedule(expireMs, () => {
      this.#keeper.stop()
      this.#lose(new HoldLostError(undefined, `the hold expired after ${expireMs} ms`))
    })
  }

  get signal(): AbortSignal {
    return this.#ended.signal
  }

  release(): Promise<void> {
    const lost = this.#lost
    if (!this.#isReleased) {
      this.#isReleased = true
      this.#cancelExpiry()
      this.#keeper.stop()
      if (lost === undefined) this.#ended.abort(new Error('The hold was released'))
    }
    return lost === undefined ? Promise.resolve() : Promise.reject(lost)
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release()
  }

  #lose(error: HoldLostError): void {
    this.#cancelExpiry()
    this.#lost = error
    this.#ended.abort(error)
  }
}
