/*
 * How an instance becomes the master: it asks the others to promise a new term, takes over what they have, and writes the
 * promotion. A master that is promoted again asks whether it still is one: it cannot know by itself.
 */
import { connect } from '@orbweaver/connection'
import type { Credential, Environment } from '@orbweaver/connection'
import { BoxError } from '@orbweaver/iproto'
import type { Reply } from '@orbweaver/iproto'
import { boxErrors } from '../errors.js'
import type { PeerDefinition } from './options.js'
import { PositionWaiters } from './position-waiters.js'
import { promiseRequest, readPromiseAnswer } from './promise-request.js'
import type { PromiseAnswer } from './promise-request.js'
import { compareEpochs, promise, promisesNeeded } from './role.js'
import type { RoleState } from './role.js'
import type { Epoch } from './transaction.js'
import { covers, joined } from './vclock.js'
import type { Vclock } from './vclock.js'

const PROMISE_TIMEOUT_MS = 1_000
const DEFAULT_TIMEOUT_MS = 10_000

/** The instance that is promoted. */
export interface Candidate {
  readonly role: RoleState
  readonly vclock: Vclock
  /** It gives the promise itself: remembers it, and stops writing where it was the master. */
  promised(next: RoleState): void
  /** Writes the promotion and is the master from then on. */
  becomeMaster(term: number): void
  /** undefined: everything written so far is on this instance's own disk. */
  whenDurable(): Promise<void> | undefined
}

export interface PromoterOptions {
  readonly number: number
  readonly peers: readonly PeerDefinition[]
  readonly credential: Credential | undefined
  readonly quorum: number
  readonly environment: Environment
}

/** What became of the question to all others. */
interface Answers {
  readonly given: readonly PromiseAnswer[]
  /** Why the others gave none, by instance. */
  readonly refusals: readonly string[]
  /** The highest term one of them told that refused; 0: none refused. */
  readonly passed: number
}

export class Promoter {
  readonly #options: PromoterOptions
  readonly #candidate: Candidate
  readonly #arrivals: PositionWaiters
  #isRunning = false

  constructor(options: PromoterOptions, candidate: Candidate) {
    this.#options = options
    this.#candidate = candidate
    this.#arrivals = new PositionWaiters(options.environment.clock)
  }

  /**
   * @param options.timeout - milliseconds for all of it, default 10,000
   * @throws BoxError 1 when too few answer (it names the others and why) or a newer candidate is at work, 78 when rows of the others do
   * not arrive in time, 216 when its disk does not take the promotion in time
   */
  async promote({ timeout = DEFAULT_TIMEOUT_MS }: { timeout?: number } = {}): Promise<void> {
    if (this.#isRunning) throw boxErrors.illegalParams('A promotion of this instance is under way')
    this.#isRunning = true
    const deadline = this.#options.environment.clock.now() + timeout
    try {
      const known = this.#candidate.role.isWritable ? await this.#confirm(deadline) : 0
      if (known !== undefined) await this.#promote(deadline, known, false)
    } finally {
      this.#isRunning = false
    }
  }

  /** Rows or a promotion have come in. */
  arrived(): void {
    this.#arrivals.look()
  }

  get #needed(): number {
    const { peers, quorum } = this.#options
    return promisesNeeded(peers.length + 1, quorum)
  }

  /**
   * Whether the master still is one. Without a quorum nobody can say otherwise: its own word is enough.
   * @returns undefined when it is; else the highest term that was promised to somebody else
   */
  async #confirm(deadline: number): Promise<number | undefined> {
    if (this.#needed === 1) return undefined
    const { term } = this.#candidate.role
    const answers = await this.#ask(term, deadline)
    const { role } = this.#candidate
    if (answers.passed > 0 || !role.isWritable || role.term !== term) return Math.max(answers.passed, role.promised)
    this.#requireEnough(answers)
    return undefined
  }

  /**
   * @param known - the highest term somebody has told of: an instance that was away does not know it by itself
   * @param isLast - whoever has promised a higher term follows nobody of this one: with the first such news it is asked again
   */
  async #promote(deadline: number, known: number, isLast: boolean): Promise<void> {
    const { clock } = this.#options.environment
    const { number } = this.#options
    const term = Math.max(this.#candidate.role.promised, known) + 1
    this.#candidate.promised(promise(this.#candidate.role, term, number)!)
    const answers = await this.#ask(term, deadline)
    if (answers.passed >= term && !isLast) return this.#promote(deadline, answers.passed, true)
    this.#requireEnough(answers)
    // Its own promise counts, so it must be as safe as theirs.
    await this.#onDisk(deadline)
    const { epoch, vclock } = this.#furthest(answers.given)
    await this.#arrivals.wait(() => {
      const order = compareEpochs(this.#candidate.role, epoch)
      return order > 0 || (order === 0 && covers(this.#candidate.vclock, vclock))
    }, deadline - clock.now())
    const { promised, promisedTo } = this.#candidate.role
    if (promised !== term || promisedTo !== number)
      throw boxErrors.illegalParams(`Instance ${promisedTo} asked for the newer term ${promised}`)
    this.#candidate.becomeMaster(term)
    // Whoever asked for it counts on it from now on.
    return this.#onDisk(deadline)
  }

  /**
   * What the candidate must have: everything of those who are in the latest epoch. Whoever is in an older one has nothing else that
   * was acknowledged, and may have rows that never happened.
   */
  #furthest(given: readonly PromiseAnswer[]): { epoch: Epoch; vclock: Vclock } {
    const { role, vclock } = this.#candidate
    const all: PromiseAnswer[] = [...given, { term: role.term, leader: role.leader, vclock }]
    const epoch = all.reduce((latest, answer) => (compareEpochs(answer, latest) > 0 ? answer : latest))
    const current = all.filter((answer) => compareEpochs(answer, epoch) === 0)
    return { epoch, vclock: current.reduce<Vclock>((most, answer) => joined(most, answer.vclock), new Map()) }
  }

  /** What the candidate has written so far is on its disk. @throws BoxError 216 when it is not in time */
  #onDisk(deadline: number): Promise<void> | undefined {
    const { clock } = this.#options.environment
    const written = this.#candidate.whenDurable()
    if (written === undefined) return undefined
    return new Promise((resolve, reject) => {
      const cancel = clock.schedule(Math.max(0, deadline - clock.now()), () =>
        reject(boxErrors.journalPending('the disk takes longer than the promotion may')),
      )
      written.then(resolve, reject).finally(cancel)
    })
  }

  #requireEnough({ given, refusals }: Answers): void {
    if (given.length + 1 >= this.#needed) return
    throw boxErrors.illegalParams(
      `Instance ${this.#options.number} cannot be promoted: ${given.length + 1} of the ${this.#needed} instances it needs agree (${refusals.join('; ')})`,
    )
  }

  async #ask(term: number, deadline: number): Promise<Answers> {
    const { peers } = this.#options
    const results = await Promise.allSettled(peers.map((peer) => this.#askOne(peer, term, deadline)))
    const given: PromiseAnswer[] = []
    const refusals: string[] = []
    let passed = 0
    for (const [i, result] of results.entries()) {
      if (result.status === 'fulfilled') given.push(result.value)
      else {
        refusals.push(`instance ${peers[i]!.number}: ${(result.reason as Error).message}`)
        passed = Math.max(passed, termIn(result.reason))
      }
    }
    return { given, refusals, passed }
  }

  async #askOne(peer: PeerDefinition, term: number, deadline: number): Promise<PromiseAnswer> {
    const { credential, number, environment } = this.#options
    const timeout = Math.max(1, Math.min(PROMISE_TIMEOUT_MS, deadline - environment.clock.now()))
    const connection = await connect({
      uri: peer.address,
      ...credential,
      connectTimeoutMs: timeout,
      reconnect: false,
      environment,
    })
    try {
      const reply = await new Promise<Reply>((resolve, reject) => {
        const options = { deadline: environment.clock.now() + timeout }
        connection.send(promiseRequest(term, number), options, { done: resolve, failed: reject })
      })
      return readPromiseAnswer(reply)
    } finally {
      connection.destroy()
    }
  }
}

/** The term the refusing instance has promised, as its error tells. */
function termIn(error: unknown): number {
  const term = error instanceof BoxError ? error.fields.get('term') : undefined
  return typeof term === 'number' ? term : 0
}
