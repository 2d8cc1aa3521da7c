import type { Clock } from '@orbweaver/connection'

/**
 * Virtual time for many short lives: what needs no time runs between two timers in microtasks and next ticks only, without
 * turns of the real event loop. Enough for memory transports and promises; nothing that waits for the outside world may take
 * part.
 */
export class QuickClock implements Clock {
  #nowMs = 0
  #sequence = 0
  #soon: (() => void)[] = []
  /** A heap by due time, then by order of scheduling. */
  readonly #heap: Timer[] = []

  now(): number {
    return this.#nowMs
  }

  wallNow(): number {
    return this.#nowMs
  }

  schedule(delayMs: number, task: () => void): () => void {
    if (delayMs === Number.POSITIVE_INFINITY) return () => undefined
    this.#sequence += 1
    const timer: Timer = { dueMs: this.#nowMs + (delayMs > 0 ? delayMs : 0), order: this.#sequence, task }
    this.#push(timer)
    return () => {
      timer.task = undefined
    }
  }

  soon(task: () => void): void {
    this.#soon.push(task)
  }

  async settle(): Promise<void> {
    for (let quiet = 0; quiet < QUIET_HOPS;) {
      await nextTick()
      quiet += 1
      if (this.#soon.length === 0) continue
      quiet = 0
      const tasks = this.#soon
      this.#soon = []
      for (const task of tasks) task()
    }
  }

  async advance(ms: number): Promise<void> {
    const untilMs = this.#nowMs + ms
    await this.settle()
    for (let next = this.#heap[0]; next !== undefined && next.dueMs <= untilMs; next = this.#heap[0]) {
      this.#pop()
      if (next.task === undefined) continue
      this.#nowMs = Math.max(this.#nowMs, next.dueMs)
      next.task()
      await this.settle()
    }
    this.#nowMs = untilMs
  }

  #push(timer: Timer): void {
    const heap = this.#heap
    let at = heap.length
    heap.push(timer)
    while (at > 0) {
      const parent = (at - 1) >> 1
      const above = heap[parent]!
      if (!isLater(above, timer)) break
      heap[at] = above
      at = parent
    }
    heap[at] = timer
  }

  #pop(): void {
    const heap = this.#heap
    const last = heap.pop()
    if (last === undefined || heap.length === 0) return
    let at = 0
    for (;;) {
      let child = 2 * at + 1
      if (child >= heap.length) break
      if (child + 1 < heap.length && isLater(heap[child]!, heap[child + 1]!)) child += 1
      if (!isLater(last, heap[child]!)) break
      heap[at] = heap[child]!
      at = child
    }
    heap[at] = last
  }
}

/** Everything that was queued as a microtask or next tick runs before it resolves. */
function nextTick(): Promise<void> {
  return new Promise((resolve) => {
    process.nextTick(resolve)
  })
}

interface Timer {
  readonly dueMs: number
  readonly order: number
  task: (() => void) | undefined
}

function isLater(timer: Timer, than: Timer): boolean {
  return timer.dueMs > than.dueMs || (timer.dueMs === than.dueMs && timer.order > than.order)
}

/** A chain of promises may pass through several next ticks before it schedules something. */
const QUIET_HOPS = 4
