/* One instance of a local cluster through all its lives: started, killed, frozen, started again. */
import { systemClock } from '@orbweaver/connection'
import { InvalidArgumentError } from '@orbweaver/iproto'
import type { ClusterConfig, ReplicasetConfig } from '@orbweaver/vshard'
import type { RunningInstance } from './engine-driver.js'

/** One instance of a running cluster. */
export interface ClusterInstance {
  readonly id: string
  readonly name: string
  readonly replicasetId: string
  /** `host:port`. */
  readonly uri: string
  readonly isRunning: boolean
  /** Makes it the master of its replicaset: a planned switch when the old one lives, a failover when it does not. */
  promote(): Promise<void>
  /** Ends it at once, as kill -9 does. */
  kill(): Promise<void>
  /** Ends it in order. */
  stop(): Promise<void>
  /** Stops it from doing anything, its sockets stay open. Needs a process of its own. */
  freeze(): void
  thaw(): void
  /** Starts it again after `kill` or `stop`; it catches up from the others. */
  restart(): Promise<void>
}

type Starter = () => Promise<RunningInstance>

export class ManagedInstance implements ClusterInstance {
  readonly id: string
  readonly name: string
  readonly uri: string
  readonly replicasetId: string
  readonly #starter: Starter
  readonly #onPromoted: () => void
  readonly #onExit: (instance: ClusterInstance, how: number | string) => void
  #running: RunningInstance | undefined
  #isClosed = false
  /** Its end was asked for. */
  #isEnding = false

  constructor(
    what: { id: string; name: string; uri: string; replicaset: ReplicasetConfig },
    starter: Starter,
    onPromoted: () => void,
    onExit: (instance: ClusterInstance, how: number | string) => void,
  ) {
    this.id = what.id
    this.name = what.name
    this.uri = what.uri
    this.replicasetId = what.replicaset.id
    this.#starter = starter
    this.#onPromoted = onPromoted
    this.#onExit = onExit
  }

  get isRunning(): boolean {
    return this.#running !== undefined
  }

  async restart(): Promise<void> {
    if (this.#isClosed) throw new InvalidArgumentError('The cluster is closed')
    if (this.#running !== undefined) throw new InvalidArgumentError(`Instance ${this.name} is running`)
    const running = await this.#starter()
    if (this.#isClosed) {
      // Closed while it started.
      running.signal('SIGKILL')
      await running.exited
      throw new InvalidArgumentError('The cluster is closed')
    }
    this.#isEnding = false
    this.#running = running
    void running.exited.then((how) => {
      if (this.#running !== running) return
      this.#running = undefined
      if (!this.#isEnding) this.#onExit(this, how)
    })
  }

  async promote(): Promise<void> {
    const running = this.#require()
    await new Promise<void>((resolve, reject) => {
      const cancel = systemClock.schedule(PROMOTE_TIMEOUT_MS, () =>
        reject(new Error(`Instance ${this.name} did not answer its promotion within ${PROMOTE_TIMEOUT_MS} ms`)),
      )
      running.promote().then(
        () => {
          cancel()
          resolve()
        },
        (error: unknown) => {
          cancel()
          reject(error instanceof Error ? error : new Error(String(error)))
        },
      )
    })
    this.#onPromoted()
  }

  async apply(config: ClusterConfig): Promise<void> {
    await this.#running?.apply(config)
  }

  /** Ends it for good: it cannot be started again. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.stop()
  }

  async kill(): Promise<void> {
    await this.#end('SIGKILL')
  }

  async stop(): Promise<void> {
    const running = this.#running
    if (running === undefined) return
    this.#isEnding = true
    // A frozen process takes its SIGTERM only when it runs; one that does not end in time is killed.
    running.signal('SIGTERM')
    const cancel = systemClock.schedule(STOP_TIMEOUT_MS, () => running.signal('SIGKILL'))
    await running.exited
    cancel()
    this.#running = undefined
  }

  freeze(): void {
    this.#require().signal('SIGSTOP')
  }

  thaw(): void {
    this.#require().signal('SIGCONT')
  }

  async #end(signal: 'SIGKILL'): Promise<void> {
    const running = this.#running
    if (running === undefined) return
    this.#isEnding = true
    running.signal(signal)
    await running.exited
    this.#running = undefined
  }

  #require(): RunningInstance {
    if (this.#running === undefined) throw new InvalidArgumentError(`Instance ${this.name} is not running`)
    return this.#running
  }
}

const STOP_TIMEOUT_MS = 5_000
/** Longer than an instance itself tries. */
const PROMOTE_TIMEOUT_MS = 15_000
