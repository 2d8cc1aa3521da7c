/**
 * The master, one change after another, for `for await`. A slow reader misses intermediate changes and always gets the
 * newest. Each loop starts with the state of that moment and ends when the replicaset is closed.
 */
export interface MasterState {
  readonly epoch: number
  /** Id of the instance; undefined: none is known. */
  readonly master: string | undefined
}

export class MasterChanges implements AsyncIterable<MasterState> {
  readonly #now: () => MasterState
  readonly #readers = new Set<ChangeReader>()
  #isOver = false

  constructor(now: () => MasterState) {
    this.#now = now
  }

  offer(state: MasterState): void {
    for (const reader of this.#readers) reader.offer(state)
  }

  finish(): void {
    this.#isOver = true
    for (const reader of this.#readers) reader.finish()
    this.#readers.clear()
  }

  [Symbol.asyncIterator](): AsyncIterator<MasterState> {
    const reader = new ChangeReader((gone) => this.#readers.delete(gone))
    if (this.#isOver) {
      reader.finish()
      return reader
    }
    this.#readers.add(reader)
    reader.offer(this.#now())
    return reader
  }
}

class ChangeReader implements AsyncIterator<MasterState> {
  readonly #gone: (reader: ChangeReader) => void
  #newest: MasterState | undefined
  #isOver = false
  #waiting: ((result: IteratorResult<MasterState>) => void)[] = []

  constructor(gone: (reader: ChangeReader) => void) {
    this.#gone = gone
  }

  offer(state: MasterState): void {
    const reader = this.#waiting.shift()
    if (reader === undefined) this.#newest = state
    else reader({ done: false, value: state })
  }

  finish(): void {
    this.#isOver = true
    for (const reader of this.#waiting) reader({ done: true, value: undefined })
    this.#waiting = []
  }

  next(): Promise<IteratorResult<MasterState>> {
    const value = this.#newest
    if (value !== undefined) {
      this.#newest = undefined
      return Promise.resolve({ done: false, value })
    }
    if (this.#isOver) return Promise.resolve({ done: true, value: undefined })
    return new Promise((resolve) => {
      this.#waiting.push(resolve)
    })
  }

  return(): Promise<IteratorResult<MasterState>> {
    this.#newest = undefined
    this.finish()
    this.#gone(this)
    return Promise.resolve({ done: true, value: undefined })
  }
}
