/*
 * One call of one replicaset that is not bound to a bucket, as a promise: discovery pages, lookups.
 * These are few; calls of users go without a promise per stage (call.ts).
 */
import { isOrbweaverError } from '@orbweaver/iproto'
import type { OrbweaverError, Reply, Request, RequestClass } from '@orbweaver/iproto'
import type { ReplySink, SendOptions } from '@orbweaver/connection'
import type { Attempt, CallMode, InstanceHandle, Replicaset } from '@orbweaver/replicaset'

export interface SetCallOptions {
  readonly mode: CallMode
  readonly deadline: number
  readonly signal?: AbortSignal
  /** Whether it may be sent again after an answer was lost. */
  readonly idempotent: boolean
}

export interface SetCallResult {
  readonly reply: Reply
  readonly instance: InstanceHandle
  readonly epoch: number
}

/** Sends a request to an instance of `set` and gives its reply. Rejects with the error of the last try. */
export function callSet(set: Replicaset, request: Request, options: SetCallOptions): Promise<SetCallResult> {
  return new Promise((resolve, reject) => {
    set.dispatch(new SetCall(set, request, options, resolve, reject), options.mode)
  })
}

class SetCall implements Attempt, ReplySink {
  readonly deadline: number
  readonly bytes = 256
  readonly requestClass: RequestClass
  readonly idempotent: boolean
  readonly orderKey = undefined
  readonly signal: AbortSignal | undefined
  readonly #set: Replicaset
  readonly #request: Request
  readonly #options: SetCallOptions
  readonly #resolve: (result: SetCallResult) => void
  readonly #reject: (error: OrbweaverError) => void
  #instance: InstanceHandle | undefined
  #epoch = 0

  constructor(
    set: Replicaset,
    request: Request,
    options: SetCallOptions,
    resolve: (result: SetCallResult) => void,
    reject: (error: OrbweaverError) => void,
  ) {
    this.deadline = options.deadline
    this.signal = options.signal
    this.requestClass = request.requestClass
    this.idempotent = options.idempotent
    this.#set = set
    this.#request = request
    this.#options = options
    this.#resolve = resolve
    this.#reject = reject
  }

  run(instance: InstanceHandle, epoch: number): 'sent' {
    this.#instance = instance
    this.#epoch = epoch
    const { signal } = this.#options
    const sendOptions: SendOptions = { deadline: this.deadline, ...(signal === undefined ? {} : { signal }) }
    instance.send(this.#request, sendOptions, this)
    return 'sent'
  }

  giveUp(error: OrbweaverError): void {
    this.#reject(error)
  }

  done(reply: Reply): void {
    if (this.#set.settle(this, this.#epoch, reply)) return
    this.#resolve({ reply, instance: this.#instance!, epoch: this.#epoch })
  }

  failed(error: OrbweaverError): void {
    if (!this.#set.settle(this, this.#epoch, error)) this.#reject(error)
  }
}

/** What a rejected promise of ours carries; anything else is a fault and goes up. */
export function orbweaverErrorOf(error: unknown): OrbweaverError {
  if (isOrbweaverError(error)) return error
  throw error
}
