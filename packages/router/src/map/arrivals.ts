/* Results of a map in the order in which they arrive, and as one result at the end. */
import type { RoutedSet } from '../topology.js'

/** What the function returned on each replicaset, by its id: a list of one value, empty for none. */
export interface MapResult<T extends unknown[] = unknown[]> extends Map<string, T> {
  /** Replicasets that were not mapped because they could not be reached, by id, with the reason: the others have all buckets. */
  readonly skipped: ReadonlyMap<string, string>
}

export class Arrivals<T extends unknown[] = unknown[]> {
  readonly #sets: RoutedSet[] = []
  readonly #values: T[] = []
  #wakers: (() => void)[] | undefined

  add(set: RoutedSet, values: T): void {
    this.#sets.push(set)
    this.#values.push(values)
    this.wake()
  }

  get count(): number {
    return this.#sets.length
  }

  /** @param i - below the count */
  at(i: number): readonly [replicasetId: string, values: T] {
    return [this.#sets[i]!.id, this.#values[i]!]
  }

  /** Resolves at the next `add` or `wake`. */
  change(): Promise<void> {
    return new Promise((resolve) => {
      this.#wakers ??= []
      this.#wakers.push(resolve)
    })
  }

  wake(): void {
    const wakers = this.#wakers
    if (wakers === undefined) return
    this.#wakers = undefined
    for (const wake of wakers) wake()
  }

  /** All of them in the order of the configuration. */
  result(skipped: ReadonlyMap<string, string>): MapResult<T> {
    const sets = this.#sets
    const result = new Map<string, T>()
    if (isAscending(sets)) for (let i = 0; i < sets.length; i++) result.set(sets[i]!.id, this.#values[i]!)
    else for (const i of this.#ascending()) result.set(sets[i]!.id, this.#values[i]!)
    // Not enumerable: where nothing was skipped, the result equals a Map of the same entries.
    return Object.defineProperty(result, 'skipped', { value: skipped }) as MapResult<T>
  }

  #ascending(): number[] {
    const sets = this.#sets
    return sets.map((_set, i) => i).sort((a, b) => sets[a]!.index - sets[b]!.index)
  }
}

function isAscending(sets: readonly RoutedSet[]): boolean {
  for (let i = 1; i < sets.length; i++) if (sets[i - 1]!.index > sets[i]!.index) return false
  return true
}
