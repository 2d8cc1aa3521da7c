import { InvalidArgumentError } from '@orbweaver/iproto'

/**
 * A call under way whose pushed messages are read with `for await`. The iteration ends with the call, however that ended;
 * `result` says how. Up to 10,000 messages wait for a reader; one more ends the iteration with an error, while the call
 * goes on.
 */
export class PushedCall<T> implements AsyncIterable<unknown> {
  #result: Promise<T> | undefined
  readonly #values: unknown[] = []
  #wake: (() => void) | undefined
  #isOver = false
  #overflow: Error | undefined

  /** The call's own promise: its returned values, or its error. */
  get result(): Promise<T> {
    if (this.#result === undefined) throw new InvalidArgumentError('This call has not begun')
    return this.#result
  }

  follow(result: Promise<T>): this {
    this.#result = result
    const finish = (): void => {
      this.#isOver = true
      this.#wake?.()
    }
    // Its rejection belongs to whoever awaits `result`; here only the end matters.
    result.then(finish, finish)
    return this
  }

  offer(value: unknown): void {
    if (this.#values.length >= MAX_WAITING) {
      this.#overflow ??= new InvalidArgumentError(`More than ${String(MAX_WAITING)} pushed messages wait to be read`)
      return
    }
    this.#values.push(value)
    this.#wake?.()
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<unknown, void> {
    for (;;) {
      while (this.#values.length > 0) yield this.#values.shift()
      if (this.#overflow !== undefined) throw this.#overflow
      if (this.#isOver) return
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
  }
}

const MAX_WAITING = 10_000
