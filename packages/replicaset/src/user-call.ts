/** A call made with the methods users call: the one place where a promise meets the path without promises. */
import {
  type Clock,
  type PendingRequest,
  RequestAbortedError,
  type ReplySink,
  type SendOptions,
} from '@orbweaver/connection'
import {
  dataSlice,
  decodeData,
  type DecodeOptions,
  FrameHeader,
  FrameWriter,
  InvalidArgumentError,
  isOrbweaverError,
  MalformedFrameError,
  type OrbweaverError,
  RawValue,
  rawRequest,
  type Reply,
  type Request,
  type RequestClass,
} from '@orbweaver/iproto'
import type { Attempt, CallMode, InstanceHandle } from './attempt.js'
import { type CallTrace, traceCall, traceEnd } from './diagnostics.js'
import type { Dispatcher } from './dispatcher.js'

/** Options of all calls of a replicaset. */
export interface ReplicasetCallOptions {
  /** Milliseconds for everything, waits and repetitions included; Infinity: none. Default: `requestTimeoutMs` of the replicaset. */
  readonly timeout?: number
  /** Reads: milliseconds for each instance that is asked; then another is asked. Default: none of its own. vshard: `request_timeout`. */
  readonly requestTimeout?: number
  /** Ends the call with `RequestAbortedError`. What was sent is not undone. */
  readonly signal?: AbortSignal
  /** Running it twice does no harm: it is sent again after its answer was lost. Default: false for `rw`, true for reads. */
  readonly idempotent?: boolean
  /** Writes with the same key keep their order while they wait for a master. */
  readonly orderKey?: string
  /** Reads: only from instances that are at most so many milliseconds behind the master. Asks the replicas regularly from then on. */
  readonly maxLagMs?: number
  /** Reads: without an answer for so long another instance is asked too, and the first answer counts. */
  readonly hedge?: { readonly delayMs: number }
  /** How values of the answer appear. */
  readonly decode?: DecodeOptions
  /** Leave the returned values undecoded: the promise gives a `RawValue` holding the array of them. Default false. */
  readonly raw?: boolean
}

/** An answer with its story. */
export interface DetailedResult<T> {
  readonly value: T
  /** Id of the instance that gave it. */
  readonly instance: string
  /** Times it was sent. */
  readonly tries: number
  /** From the call to the answer. */
  readonly ms: number
}

/** Which instance an error came from, if it came from one. */
export function instanceOf(error: unknown): string | undefined {
  return typeof error === 'object' && error !== null ? INSTANCES.get(error) : undefined
}

/** What calls need of their replicaset. */
export interface CallOwner {
  readonly id: string
  readonly clock: Clock
  readonly dispatcher: Dispatcher
  readonly requestTimeoutMs: number
}

/** How an answer becomes what the method promised. */
export type ReadAnswer<T> = (reply: Reply, call: UserCall<T>) => T

/** Rejects with InvalidArgumentError for options that make no sense. */
export function startCall<T>(
  owner: CallOwner,
  mode: CallMode,
  request: Request,
  options: ReplicasetCallOptions,
  read: ReadAnswer<T>,
): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    checkOptions(mode, options)
    const call = new UserCall<T>(owner, mode, request, options, read, resolve, reject)
    if (options.hedge !== undefined) call.hedgeAfter(options.hedge.delayMs)
    owner.dispatcher.dispatch(call, mode)
  })
}

/** The values a function returned, or the rows of a statement. */
export function readValues<T>(reply: Reply, { options }: UserCall<T>): T {
  return readData<T>(reply, options)
}

export function readDetailed<T>(reply: Reply, call: UserCall<DetailedResult<T>>): DetailedResult<T> {
  const { instance, tries, ageMs } = call
  return { value: readData<T>(reply, call.options), instance: instance?.id ?? '', tries, ms: ageMs }
}

function readData<T>(reply: Reply, { raw, decode }: ReplicasetCallOptions): T {
  return raw === true ? (new RawValue(dataSlice(reply)) as T) : decodeData<T>(reply, decode)
}

export class UserCall<T> implements Attempt, ReplySink {
  readonly deadline: number
  readonly options: ReplicasetCallOptions
  /** Who was asked last. */
  instance: InstanceHandle | undefined
  tries = 0
  readonly #owner: CallOwner
  readonly #mode: CallMode
  readonly #read: ReadAnswer<T>
  readonly #resolve: (value: T) => void
  readonly #reject: (error: OrbweaverError) => void
  readonly #startMs: number
  readonly #trace: CallTrace | undefined
  #request: Request
  #bytes = 0
  #token = 0
  #isOver = false
  #hedging: Hedging<T> | undefined

  constructor(
    owner: CallOwner,
    mode: CallMode,
    request: Request,
    options: ReplicasetCallOptions,
    read: ReadAnswer<T>,
    resolve: (value: T) => void,
    reject: (error: OrbweaverError) => void,
  ) {
    this.#owner = owner
    this.#mode = mode
    this.#request = request
    this.options = options
    this.#read = read
    this.#resolve = resolve
    this.#reject = reject
    this.#startMs = owner.clock.now()
    this.deadline = this.#startMs + (options.timeout ?? owner.requestTimeoutMs)
    this.#trace = traceCall(owner.id, mode, request.type)
  }

  get requestClass(): RequestClass {
    return this.#request.requestClass
  }

  get idempotent(): boolean {
    return this.options.idempotent ?? this.#mode !== 'rw'
  }

  get orderKey(): string | undefined {
    return this.options.orderKey
  }

  get signal(): AbortSignal | undefined {
    return this.options.signal
  }

  get maxLagMs(): number | undefined {
    return this.options.maxLagMs
  }

  /** Since the call. */
  get ageMs(): number {
    return this.#owner.clock.now() - this.#startMs
  }

  /** Asked only when it has to wait: then its arguments are copied, so that they are those of the moment of the call. */
  get bytes(): number {
    if (this.#bytes === 0) {
      const body = bodyOf(this.#request)
      this.#request = rawRequest(this.#request.type, this.#request.requestClass, body)
      this.#bytes = body.length + OVERHEAD_BYTES
    }
    return this.#bytes
  }

  run(instance: InstanceHandle, token: number): 'sent' {
    this.instance = instance
    this.tries += 1
    this.#token = token
    const pending = instance.send(this.#request, this.sendOptions(), this)
    if (this.#hedging !== undefined) this.#hedging.first = pending
    return 'sent'
  }

  giveUp(error: OrbweaverError): void {
    this.lost(error)
  }

  done(reply: Reply): void {
    if (!this.#owner.dispatcher.settle(this, this.#token, reply)) this.answered(reply, this.instance)
  }

  failed(error: OrbweaverError): void {
    if (this.#owner.dispatcher.settle(this, this.#token, error) || this.#isOver) return
    tag(error, this.instance)
    if (error.executed === 'unknown' && this.#hedging?.second?.takesOver(error) === true) return
    this.lost(error)
  }

  hedgeAfter(delayMs: number): void {
    const { clock, dispatcher } = this.#owner
    const hedging: Hedging<T> = { first: undefined, second: undefined, cancel: undefined }
    this.#hedging = hedging
    hedging.cancel = clock.schedule(delayMs, () => {
      const second = new SecondQuestion<T>(this, dispatcher)
      if (dispatcher.dispatchBeside(second, this.#mode, second.others)) hedging.second = second
    })
  }

  get request(): Request {
    return this.#request
  }

  sendOptions(): SendOptions {
    const { signal, requestTimeout } = this.options
    const deadline =
      requestTimeout === undefined ? this.deadline : Math.min(this.deadline, this.#owner.clock.now() + requestTimeout)
    return signal === undefined ? { deadline } : { deadline, signal }
  }

  /** The final answer. */
  answered(reply: Reply, instance: InstanceHandle | undefined): void {
    if (this.#isOver) return
    this.#end()
    this.instance = instance
    let value: T
    try {
      value = this.#read(reply, this)
    } catch (error) {
      const unreadable = asUnreadable(error)
      tag(unreadable, instance)
      this.#tell(unreadable)
      this.#reject(unreadable)
      return
    }
    this.#tell(undefined)
    this.#resolve(value)
  }

  /** The final failure. */
  lost(error: OrbweaverError): void {
    if (this.#isOver) return
    this.#end()
    this.#tell(error)
    this.#reject(error)
  }

  #end(): void {
    this.#isOver = true
    const hedging = this.#hedging
    if (hedging === undefined) return
    hedging.cancel?.()
    const superfluous = new RequestAbortedError('Another instance has answered first', { executed: 'unknown' })
    hedging.first?.abandon(superfluous)
    hedging.second?.abandon(superfluous)
    this.#owner.dispatcher.withdraw(this)
  }

  #tell(error: OrbweaverError | undefined): void {
    if (this.#trace !== undefined) traceEnd(this.#trace, this.instance?.id, error)
  }
}

/** What a hedged read keeps beside itself. */
interface Hedging<T> {
  first: PendingRequest | undefined
  second: SecondQuestion<T> | undefined
  cancel: (() => void) | undefined
}

/** The second question of a hedged read. Its own failures mean nothing unless the first has failed as well. */
class SecondQuestion<T> implements Attempt, ReplySink {
  readonly deadline: number
  readonly bytes = 0
  readonly requestClass: RequestClass
  readonly idempotent: boolean = false
  readonly orderKey: string | undefined = undefined
  readonly maxLagMs: number | undefined
  readonly #call: UserCall<T>
  readonly #dispatcher: Dispatcher
  #instance: InstanceHandle | undefined
  #pending: PendingRequest | undefined
  #token = 0
  /** The failure of the first question, once it has failed. */
  #firstFailure: OrbweaverError | undefined
  #isOver = false

  constructor(call: UserCall<T>, dispatcher: Dispatcher) {
    this.#call = call
    this.#dispatcher = dispatcher
    this.deadline = call.deadline
    this.requestClass = call.requestClass
    this.maxLagMs = call.maxLagMs
  }

  /** Who was asked already. */
  get others(): ReadonlySet<number> {
    const { instance } = this.#call
    return new Set(instance === undefined ? [] : [this.#dispatcher.slotOf(instance)])
  }

  run(instance: InstanceHandle, token: number): 'sent' {
    this.#instance = instance
    this.#token = token
    this.#call.tries += 1
    this.#pending = instance.send(this.#call.request, this.#call.sendOptions(), this)
    return 'sent'
  }

  giveUp(error: OrbweaverError): void {
    this.failed(error)
  }

  done(reply: Reply): void {
    this.#isOver = true
    if (!this.#dispatcher.settle(this, this.#token, reply)) this.#call.answered(reply, this.#instance)
  }

  failed(error: OrbweaverError): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#dispatcher.settle(this, this.#token, error)
    tag(error, this.#instance)
    // What the function raised is an answer like any other.
    if (error.executed === 'yes') this.#call.lost(error)
    else if (this.#firstFailure !== undefined) this.#call.lost(this.#firstFailure)
  }

  /** The first question has failed. @returns whether this one is still out and may save the call */
  takesOver(error: OrbweaverError): boolean {
    this.#firstFailure = error
    return !this.#isOver
  }

  abandon(cause: OrbweaverError): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#pending?.abandon(cause)
  }
}

function checkOptions(mode: CallMode, options: ReplicasetCallOptions): void {
  if (options === NO_OPTIONS) return
  for (const name of Object.keys(options)) {
    if (!OPTION_NAMES.has(name)) throw new InvalidArgumentError(`A call of a replicaset has no option "${name}"`)
  }
  for (const name of ['timeout', 'requestTimeout'] as const) {
    const value = options[name]
    if (value !== undefined && !(typeof value === 'number' && value > 0)) {
      throw new InvalidArgumentError(
        `${name} is ${String(value)}, expected milliseconds of more than 0, or Infinity for none`,
      )
    }
  }
  for (const name of ['requestTimeout', 'maxLagMs', 'hedge'] as const) {
    if (mode === 'rw' && options[name] !== undefined)
      throw new InvalidArgumentError(`${name} is for reads, and this is a write`)
  }
}

/** The encoded body: what the arguments are now. @throws InvalidArgumentError */
function bodyOf(request: Request): Buffer {
  const writer = new FrameWriter({ slabBytes: 512 })
  writer.request(request, 0)
  const frame = Buffer.concat(writer.take())
  const header = new FrameHeader()
  header.read(frame)
  return frame.subarray(header.bodyStart, header.bodyEnd)
}

function asUnreadable(error: unknown): OrbweaverError {
  if (isOrbweaverError(error) && error.executed === 'yes') return error
  const message = error instanceof Error ? error.message : String(error)
  return new MalformedFrameError(`The answer cannot be read: ${message}`, { executed: 'yes', cause: error })
}

function tag(error: OrbweaverError, instance: InstanceHandle | undefined): void {
  if (instance !== undefined) INSTANCES.set(error, instance.id)
}

/** What calls without options are given. */
export const NO_OPTIONS: ReplicasetCallOptions = {}

const INSTANCES = new WeakMap<object, string>()
const OPTION_NAMES: ReadonlySet<string> = new Set<keyof ReplicasetCallOptions>([
  'timeout',
  'requestTimeout',
  'signal',
  'idempotent',
  'orderKey',
  'maxLagMs',
  'hedge',
  'decode',
  'raw',
])
/** What a waiting call costs beside its body. */
const OVERHEAD_BYTES = 256
