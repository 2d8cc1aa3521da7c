/** Runs cases: all subjects of a case in turns, round by round, so that what disturbs the machine disturbs all of them. */
import type { BenchCase } from './cases.js'
import type { Placement } from './placement.js'
import type { CaseRounds, SubjectRounds } from './results.js'
import type { Round } from './round.js'
import type { Stage } from './subject-messages.js'
import { SubjectHandle } from './subject-handle.js'

export interface RunOptions {
  readonly rounds: number
  readonly seconds: number
  readonly stage: Stage
  readonly placement: Placement
  readonly main: string
  readonly profile: string | undefined
}

export async function runCase(benchCase: BenchCase, options: RunOptions): Promise<CaseRounds> {
  const runners = benchCase.subjects.map((name) => new Runner(new SubjectHandle({ ...options, name, benchCase })))
  try {
    for (let round = 0; round < options.rounds; round += 1) {
      // Another one begins each time: whoever follows a noisy neighbour is not always the same.
      for (const offset of runners.keys()) await runners[(round + offset) % runners.length]!.round(options.seconds)
    }
    await Promise.all(runners.map((runner) => runner.subject.end()))
  } finally {
    for (const { subject } of runners) subject.kill()
  }
  return { benchCase, subjects: runners.map((runner) => runner.result) }
}

class Runner {
  readonly subject: SubjectHandle
  readonly #rounds: Round[] = []
  #failure: string | undefined

  constructor(subject: SubjectHandle) {
    this.subject = subject
  }

  async round(seconds: number): Promise<void> {
    if (this.#failure !== undefined) return
    try {
      this.#rounds.push(await this.subject.round(seconds))
    } catch (error) {
      this.#failure = error instanceof Error ? error.message : String(error)
    }
  }

  get result(): SubjectRounds {
    return { subject: this.subject.name, rounds: this.#rounds, failure: this.#failure }
  }
}
