/* Control operations one after another: a change of the master never meets another one halfway. */
export class ControlQueue {
  #tail: Promise<unknown> = Promise.resolve()
  #pending = 0

  /** Nothing runs and nothing waits. */
  get isIdle(): boolean {
    return this.#pending === 0
  }

  /** Runs `operation` when those before it have ended, however they did. */
  run<T>(operation: () => Promise<T>): Promise<T> {
    this.#pending++
    const result = this.#tail.then(operation)
    const settled = (): void => {
      this.#pending--
    }
    this.#tail = result.then(settled, settled)
    return result
  }
}
