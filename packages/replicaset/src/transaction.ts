/**
 * Transactions through a replicaset. A transaction lives in one session of the server, so it is tied to the master of its
 * start: if that changes, it fails, and only its caller can know whether to run it again. The start itself waits for a
 * master like any write.
 */
import {
  type Clock,
  type Connection,
  ConnectionLostError,
  type Stream,
  type TransactionOptions,
} from '@orbweaver/connection'
import { isOrbweaverError, type OrbweaverError, type RequestClass } from '@orbweaver/iproto'
import type { Attempt, InstanceHandle } from './attempt.js'
import type { Dispatcher } from './dispatcher.js'

/** Runs `work` in a transaction at the master. See `ReplicasetHandle.transaction`. */
export async function runTransaction<T>(
  dispatcher: Dispatcher,
  clock: Clock,
  requestTimeoutMs: number,
  work: (stream: Stream) => Promise<T>,
  options: TransactionOptions,
): Promise<T> {
  const deadline = clock.now() + (options.timeout ?? requestTimeoutMs)
  for (let tries = 1; ; tries += 1) {
    const connection = await masterConnection(dispatcher, deadline, options.signal)
    await using stream = connection.stream()
    try {
      await stream.begin({
        ...options,
        ...(deadline === Number.POSITIVE_INFINITY ? {} : { timeout: Math.max(1, deadline - clock.now()) }),
      })
    } catch (error) {
      // Nothing has begun: the next master may do.
      if (
        isOrbweaverError(error) &&
        error instanceof ConnectionLostError &&
        error.executed === 'no' &&
        tries < MAX_BEGINS
      )
        continue
      throw error
    }
    const result = await work(stream)
    await stream.commit()
    return result
  }
}

function masterConnection(
  dispatcher: Dispatcher,
  deadline: number,
  signal: AbortSignal | undefined,
): Promise<Connection> {
  return new Promise((resolve, reject) => {
    dispatcher.dispatch(new MasterWait(dispatcher, deadline, signal, resolve, reject), 'rw')
  })
}

/** Waits for a master like a write, and sends nothing. */
class MasterWait implements Attempt {
  readonly deadline: number
  readonly bytes: number = 64
  readonly requestClass: RequestClass = 'transaction'
  readonly idempotent: boolean = false
  readonly orderKey: string | undefined = undefined
  readonly signal: AbortSignal | undefined
  readonly #dispatcher: Dispatcher
  readonly #resolve: (connection: Connection) => void
  readonly #reject: (error: OrbweaverError) => void

  constructor(
    dispatcher: Dispatcher,
    deadline: number,
    signal: AbortSignal | undefined,
    resolve: (connection: Connection) => void,
    reject: (error: OrbweaverError) => void,
  ) {
    this.#dispatcher = dispatcher
    this.deadline = deadline
    this.signal = signal
    this.#resolve = resolve
    this.#reject = reject
  }

  /** `elsewhere`: what follows is the stream's own business. */
  run(instance: InstanceHandle): 'elsewhere' {
    const connection = this.#dispatcher.connectionOf(instance)
    if (connection === undefined)
      this.#reject(
        new ConnectionLostError(`The connection to ${instance.id} was lost before the transaction began`, {
          executed: 'no',
        }),
      )
    else this.#resolve(connection)
    return 'elsewhere'
  }

  giveUp(error: OrbweaverError): void {
    this.#reject(error)
  }
}

const MAX_BEGINS = 5
