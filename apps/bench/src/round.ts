/** One round of one subject: as many requests as fit into a time, with a fixed number of them in flight. */

/** What a round gave. Times of requests are sampled, since reading the clock for each would be a cost of its own. */
export interface Round {
  /** Requests answered, or values coded. */
  readonly requests: number
  readonly elapsedMs: number
  /** CPU time of the measured process, helper threads included. */
  readonly cpuUs: number
  /** Sampled times of requests in microseconds; undefined where none are taken. */
  readonly p50Us: number | undefined
  readonly p99Us: number | undefined
  /** Requests that had no answer when the patience of the bench was over. */
  readonly lost: number
  /** Memory of a measured server. */
  readonly residentBytes?: number
  /** The longest that a ping had to wait. */
  readonly longestPauseMs?: number
}

/** CPU time spent so far by whoever is measured, in microseconds. */
export type CpuMeter = () => number

const ownCpu: CpuMeter = () => {
  const { user, system } = process.cpuUsage()
  return user + system
}

/** One request in this many is timed. */
export const SAMPLE_EVERY = 64

/** Begins when it is made. */
export class Stopwatch {
  readonly #startedMs = performance.now()
  readonly #cpuNow: CpuMeter
  readonly #cpuUs: number

  constructor(cpuNow: CpuMeter = ownCpu) {
    this.#cpuNow = cpuNow
    this.#cpuUs = cpuNow()
  }

  stop(requests: number, samplesMs: readonly number[], lost: number): Round {
    const sorted = samplesMs.toSorted((a, b) => a - b)
    const at = (share: number): number | undefined => {
      const ms = sorted[Math.floor(share * (sorted.length - 1))]
      return ms === undefined ? undefined : ms * 1_000
    }
    return {
      requests,
      elapsedMs: performance.now() - this.#startedMs,
      cpuUs: this.#cpuNow() - this.#cpuUs,
      p50Us: at(0.5),
      p99Us: at(0.99),
      lost,
    }
  }
}

export interface RoundOptions {
  readonly inFlight: number
  readonly seconds: number
  /** How long after the end of the round its last answers are waited for. */
  readonly patienceMs: number
  /** Whose CPU time is counted. Default: this process's. */
  readonly cpuNow?: CpuMeter
}

/**
 * Keeps requests of a client with promises in flight.
 * @param request - makes the request of this number; its rejection ends the round
 */
export async function promiseRound(
  request: (index: number) => Promise<unknown>,
  options: RoundOptions,
): Promise<Round> {
  const { inFlight, seconds, patienceMs } = options
  const samplesMs: number[] = []
  let next = 0
  let answered = 0
  const stage = { isOver: false }
  const lane = async (): Promise<void> => {
    while (!stage.isOver) {
      const index = next
      next += 1
      if (index % SAMPLE_EVERY === 0) {
        const askedMs = performance.now()
        await request(index)
        samplesMs.push(performance.now() - askedMs)
      } else {
        await request(index)
      }
      answered += 1
    }
  }
  const stopwatch = new Stopwatch(options.cpuNow)
  const end = setTimeout(() => {
    stage.isOver = true
  }, seconds * 1_000)
  let cancelPatience = (): void => {}
  const patience = new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, seconds * 1_000 + patienceMs)
    cancelPatience = () => clearTimeout(timer)
  })
  try {
    await Promise.race([Promise.all(Array.from({ length: inFlight }, lane)), patience])
    return stopwatch.stop(answered, samplesMs, next - answered)
  } finally {
    stage.isOver = true
    clearTimeout(end)
    cancelPatience()
  }
}

/** Does the same work again and again for a time. @param work - done `batch` times between two looks at the clock */
export function busyRound(work: () => void, seconds: number, batch: number): Round {
  const stopwatch = new Stopwatch()
  const endMs = performance.now() + seconds * 1_000
  let done = 0
  while (performance.now() < endMs) {
    for (let i = 0; i < batch; i += 1) work()
    done += batch
  }
  return stopwatch.stop(done, [], 0)
}
