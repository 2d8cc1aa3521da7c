/* A map-reduce under way, and what comes of it. */
import { RequestAbortedError } from '@orbweaver/connection'
import type { RoutedSet } from '../topology.js'

/** What the function returned on each replicaset, by its id: a list of one value, empty for none. */
export interface MapResult<T extends unknown[] = unknown[]> extends Map<string, T> {
  /** Replicasets that were not mapped because they could not be reached, by id, with the reason: the others have all buckets. */
  readonly skipped: ReadonlyMap<string, string>
}

/** @param sets - those that were mapped; the result has them in the order of the configuration, not of arrival */
export function mapResult<T extends unknown[]>(
  sets: readonly RoutedSet[],
  arrived: ReadonlyMap<string, T>,
  skipped: ReadonlyMap<string, string>,
): MapResult<T> {
  const results = sets.toSorted((a, b) => a.index - b.index).map(({ id }): [string, T] => [id, arrived.get(id)!])
  // Not enumerable: where nothing was skipped, the result equals a Map of the same entries.
  return Object.defineProperty(new Map(results), 'skipped', { value: skipped }) as MapResult<T>
}

/** Runs a map. Results are told as they arrive; `signal` ends it. */
export type MapRunner<T extends unknown[]> = (
  arrived: (replicasetId: string, values: T) => void,
  signal: AbortSignal,
) => Promise<MapResult<T>>

/**
 * The promise of a map's whole result, and, for `for await`, its results one by one as they arrive. A result that is read early is
 * only good when the iteration ends without an error: before that another replicaset may fail, or turn out to have changed its
 * master. Leaving the loop early ends the map as an abort does.
 * @example for await (const [replicasetId, [count]] of router.mapCallrw<[number]>('count')) …
 */
export interface MapCall<T extends unknown[] = unknown[]>
  extends Promise<MapResult<T>>, AsyncIterable<readonly [replicasetId: string, values: T]> {}

/** Begins a map at once, whether its results will be read one by one or as a whole. */
export function startMap<T extends unknown[]>(run: MapRunner<T>): MapCall<T> {
  const results = new ArrivingResults<T>()
  const whole = run((replicasetId, values) => results.add(replicasetId, values), results.left.signal)
  const read = (): AsyncIterator<readonly [string, T]> => {
    // Its failure is thrown by the loop: nobody needs to await the promise as well.
    whole.catch(() => undefined)
    return results.read(whole)
  }
  return Object.assign(whole, { [Symbol.asyncIterator]: read })
}

class ArrivingResults<T extends unknown[]> {
  /** Aborted when a reader leaves. */
  readonly left: AbortController = new AbortController()
  readonly #arrived: (readonly [string, T])[] = []
  #isOver = false
  #wake: () => void = () => undefined

  add(replicasetId: string, values: T): void {
    this.#arrived.push([replicasetId, values])
    this.#wake()
  }

  async *read(whole: Promise<unknown>): AsyncGenerator<readonly [string, T], void> {
    const end = (): void => {
      this.#isOver = true
      this.#wake()
    }
    whole.then(end, end)
    try {
      for (let next = 0; ; next++) {
        while (next >= this.#arrived.length && !this.#isOver)
          await new Promise<void>((resolve) => {
            this.#wake = resolve
          })
        const result = this.#arrived[next]
        if (result === undefined) break
        yield result
      }
      await whole
    } finally {
      if (!this.#isOver)
        this.left.abort(new RequestAbortedError('The loop over its results was left', { executed: 'unknown' }))
    }
  }
}
