import { OrbweaverError } from '@orbweaver/iproto'
import { formatAddress } from './address.js'
import { type FrameChannel, openChannel, STAGE_WORDS } from './channel.js'
import { type ConnectTrace, traceConnect, traceConnected } from './diagnostics.js'
import { ConnectError } from './errors.js'
import type { ResolvedOptions } from './options.js'
import type { Transport } from './transport.js'

/** Told how an attempt ends: exactly one of `opened` and `failed`, once, and nothing after `cancel`. */
export interface AttemptHooks {
  loginSent(): void
  opened(channel: FrameChannel, transport: Transport): void
  failed(cause: OrbweaverError): void
}

/** One attempt to get a usable connection: dial, then handshake, under one deadline. */
export class Attempt {
  readonly #options: ResolvedOptions
  readonly #features: readonly number[]
  readonly #hooks: AttemptHooks
  readonly #abort = new AbortController()
  readonly #deadline: number
  readonly #trace: ConnectTrace | undefined
  readonly #peer: string
  #cancelTimer: (() => void) | undefined
  #transport: Transport | undefined
  #isOver = false

  constructor(options: ResolvedOptions, features: readonly number[], attempt: number, hooks: AttemptHooks) {
    this.#options = options
    this.#features = features
    this.#hooks = hooks
    this.#peer = formatAddress(options.address)
    this.#deadline = options.environment.clock.now() + options.connectTimeoutMs
    this.#trace = traceConnect(this.#peer, attempt)
  }

  start(): void {
    const { address, connectTimeoutMs, environment } = this.#options
    this.#cancelTimer = environment.clock.schedule(connectTimeoutMs, () => {
      this.#fail(this.#failure(`no answer in time while waiting for ${STAGE_WORDS.dial}`))
    })
    environment.dial(address, this.#abort.signal).then(
      (transport) => this.#dialled(transport),
      (error: unknown) => this.#fail(this.#failure(dialProblem(error), error)),
    )
  }

  /** Ends it without telling the hooks. */
  cancel(cause: OrbweaverError | undefined): void {
    if (this.#isOver) return
    this.#end()
    this.#abort.abort(cause)
    this.#transport?.destroy(cause)
    traceConnected(this.#trace, cause ?? this.#failure('the attempt was cancelled'))
  }

  #dialled(transport: Transport): void {
    if (this.#isOver) {
      transport.destroy()
      return
    }
    this.#cancelTimer?.()
    this.#transport = transport
    const { credential, environment, maxFrameBytes } = this.#options
    openChannel(
      transport,
      {
        features: this.#features,
        deadline: this.#deadline,
        maxFrameBytes,
        onStage: (stage) => {
          if (stage === 'auth' && !this.#isOver) this.#hooks.loginSent()
        },
        ...(credential === undefined ? {} : { credential }),
      },
      environment,
    ).then(
      (channel) => this.#opened(channel, transport),
      (error: unknown) =>
        this.#fail(error instanceof OrbweaverError ? error : this.#failure(dialProblem(error), error)),
    )
  }

  #opened(channel: FrameChannel, transport: Transport): void {
    if (this.#isOver) {
      channel.destroy()
      return
    }
    this.#end()
    traceConnected(this.#trace, { version: channel.version })
    this.#hooks.opened(channel, transport)
  }

  #fail(cause: OrbweaverError): void {
    if (this.#isOver) return
    this.#end()
    this.#abort.abort(cause)
    traceConnected(this.#trace, cause)
    this.#hooks.failed(cause)
  }

  #end(): void {
    this.#isOver = true
    this.#cancelTimer?.()
  }

  #failure(problem: string, cause?: unknown): ConnectError {
    return new ConnectError(`Cannot connect to ${this.#peer}: ${problem}`, {
      stage: 'dial',
      peer: this.#peer,
      ...(cause === undefined ? {} : { cause }),
    })
  }
}

/** Several addresses of one name fail with one error each; the list says more than its wrapper's empty message. */
function dialProblem(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) return error.errors.map(dialProblem).join('; ')
  return error instanceof Error ? error.message : String(error)
}
