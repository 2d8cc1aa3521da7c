/** The bench's end of a subject: starts its process, runs rounds in it, and starts it anew when it hangs. */
import { type ChildProcess, spawn } from 'node:child_process'
import type { BenchCase } from './cases.js'
import type { SubjectName } from './cases/bench-case.js'
import type { Placement } from './placement.js'
import type { Round } from './round.js'
import type { FromSubject, Stage, ToSubject } from './subject-messages.js'

/** The argument that makes the program a subject instead of the bench. */
export const SUBJECT_FLAG = '--as-subject'

export interface SubjectOptions {
  readonly name: SubjectName
  readonly benchCase: BenchCase
  readonly stage: Stage
  readonly placement: Placement
  /** The program's main file. */
  readonly main: string
  /** Folder for CPU profiles. */
  readonly profile: string | undefined
}

export class SubjectHandle {
  readonly name: SubjectName
  readonly #options: SubjectOptions
  #child: ChildProcess | undefined

  constructor(options: SubjectOptions) {
    this.name = options.name
    this.#options = options
  }

  /**
   * Runs one round. A process that lost requests is not used again: the next round begins with a fresh one.
   * @throws Error with the subject's own words, or that it did not answer
   */
  async round(seconds: number): Promise<Round> {
    try {
      if (this.#child === undefined) await this.#start(seconds)
      const answer = await this.#ask({ say: 'round', seconds, patienceMs: PATIENCE_MS }, seconds * 1_000 + PATIENCE_MS)
      if (answer.say !== 'done') throw new Error(`${this.name} answered a round with ${answer.say}`)
      if (answer.round.lost > 0) this.kill()
      return answer.round
    } catch (error) {
      this.kill()
      throw error
    }
  }

  /** Lets the process end by itself, so that it can write its profile. */
  async end(): Promise<void> {
    const child = this.#child
    this.#child = undefined
    if (child === undefined) return
    const exited = new Promise<void>((resolve) => {
      child.once('exit', () => resolve())
    })
    const timer = setTimeout(() => child.kill('SIGKILL'), EXIT_MS)
    child.send({ say: 'end' } satisfies ToSubject)
    await exited
    clearTimeout(timer)
  }

  kill(): void {
    this.#child?.kill('SIGKILL')
    this.#child = undefined
  }

  async #start(seconds: number): Promise<void> {
    const { name, benchCase, stage, placement, main, profile } = this.#options
    const profiling =
      profile === undefined
        ? []
        : [
            '--cpu-prof',
            `--cpu-prof-dir=${profile}`,
            `--cpu-prof-name=${benchCase.id}.${name.replaceAll(/[ ,]+/g, '-')}.cpuprofile`,
          ]
    const [command, ...args] = [...placement.prefix, process.execPath, ...profiling, main, SUBJECT_FLAG]
    this.#child = spawn(command, args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
    const { id, setUpSeconds = SET_UP_S } = benchCase
    await this.#ask({ say: 'setUp', subject: name, caseId: id, stage }, setUpSeconds * 1_000)
    // Compiled code and full caches are what is measured: the first round is thrown away.
    await this.#ask(
      { say: 'round', seconds: Math.min(seconds, WARM_UP_S), patienceMs: PATIENCE_MS },
      seconds * 1_000 + PATIENCE_MS,
    )
  }

  #ask(question: ToSubject, limitMs: number): Promise<FromSubject> {
    const child = this.#child
    if (child === undefined) return Promise.reject(new Error(`${this.name} is not running`))
    return new Promise((resolve, reject) => {
      const finish = (end: () => void): void => {
        clearTimeout(timer)
        child.off('message', onMessage)
        child.off('exit', onExit)
        child.off('error', onError)
        end()
      }
      const onMessage = (message: unknown): void => {
        const answer = message as FromSubject
        finish(() => (answer.say === 'failed' ? reject(new Error(`${this.name}: ${answer.message}`)) : resolve(answer)))
      }
      const onExit = (code: number | null, signal: string | null): void => {
        finish(() => reject(new Error(`${this.name} ended (${signal ?? code ?? 'unknown'}) in the middle of a round`)))
      }
      const onError = (error: Error): void => finish(() => reject(error))
      // The process waits for lost requests by itself; this is for one that does not even answer.
      const timer = setTimeout(
        () => finish(() => reject(new Error(`${this.name} does not answer`))),
        limitMs + SILENCE_MS,
      )
      child.on('message', onMessage)
      child.once('exit', onExit)
      child.once('error', onError)
      child.send(question)
    })
  }
}

/** How long the last answers of a round are waited for. */
const PATIENCE_MS = 2_000
const SILENCE_MS = 5_000
const SET_UP_S = 20
const EXIT_MS = 10_000
const WARM_UP_S = 0.5
