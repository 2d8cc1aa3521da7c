/**
 * Values of a watched key, one after the other, for `for await`. A slow reader misses intermediate values and always gets
 * the newest: the same rule by which the server merges events. Ends when the connection is closed.
 */
export class LatestValues implements AsyncIterableIterator<unknown> {
  #hasValue = false
  #value: unknown
  #error: Error | undefined
  #isOver = false
  #waiting: ((result: Promise<IteratorResult<unknown>>) => void)[] = []
  #release: (() => void) | undefined

  /** Called once, with what ends the subscription. */
  bind(release: () => void): this {
    this.#release = release
    if (this.#isOver) release()
    return this
  }

  offer(value: unknown): void {
    const reader = this.#waiting.shift()
    if (reader !== undefined) {
      reader(Promise.resolve({ done: false, value }))
    } else {
      this.#hasValue = true
      this.#value = value
    }
  }

  fail(error: Error): void {
    if (this.#isOver) return
    this.#error = error
    this.#finish()
  }

  finish(): void {
    this.#finish()
  }

  next(): Promise<IteratorResult<unknown>> {
    if (this.#hasValue) {
      const value = this.#value
      this.#hasValue = false
      this.#value = undefined
      return Promise.resolve({ done: false, value })
    }
    if (this.#isOver) return this.#end()
    return new Promise((resolve) => {
      this.#waiting.push(resolve)
    })
  }

  return(): Promise<IteratorResult<unknown>> {
    this.#hasValue = false
    this.#finish()
    return Promise.resolve({ done: true, value: undefined })
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  #finish(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#release?.()
    const waiting = this.#waiting
    this.#waiting = []
    for (const resolve of waiting) resolve(this.#end())
  }

  #end(): Promise<IteratorResult<unknown>> {
    const error = this.#error
    this.#error = undefined
    return error === undefined ? Promise.resolve({ done: true, value: undefined }) : Promise.reject(error)
  }
}
