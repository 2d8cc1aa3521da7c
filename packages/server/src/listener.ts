import { listen as listenOn, resolveEnvironment } from '@orbweaver/connection'
import type { Address, Environment, Transport } from '@orbweaver/connection'
import { checkOptions, InvalidArgumentError, optionRule } from '@orbweaver/iproto'
import type { OptionRules } from '@orbweaver/iproto'
import { resolveLimits } from './limits.js'
import type { ServerLimits } from './limits.js'
import { FlushQueue } from './flush-queue.js'
import { ReplyWriter } from './reply-writer.js'
import { SessionShell } from './session-shell.js'
import type { SessionOwner } from './session-shell.js'
import type { SessionHandler } from './session.js'

export interface ServerOptions {
  readonly handler: SessionHandler
  readonly limits?: ServerLimits
  readonly environment?: Partial<Environment>
}

/** The accepting end of IPROTO. It knows frames and limits; what requests mean is the handler's. */
export interface Server {
  /**
   * Accepts connections on an address; may be called for several.
   * @returns the address in use: with port 0, the one the system chose
   */
  listen(address: Address): Promise<Address>
  /** The one way in: sockets come through `listen`, in-process connections directly. With `as` the session is logged in already. */
  accept(transport: Transport, as?: { user: string }): void
  /** Sessions of the moment. */
  readonly sessionCount: number
  /** Stops accepting, ends every session behind what it was answered, and resolves when all are gone. Idempotent. */
  close(): Promise<void>
}

/** @throws ConfigError for a limit out of range */
export function createServer(options: ServerOptions): Server {
  checkOptions('server', options, SERVER)
  return new ServerShell(options)
}

const SERVER: OptionRules = {
  handler: optionRule.required({
    expected: 'a session handler, such as `standardFront(parts, next)`',
    fits: (value) =>
      typeof value === 'object' &&
      value !== null &&
      ['greet', 'frame', 'closed'].every((name) => typeof (value as Record<string, unknown>)[name] === 'function'),
  }),
  limits: optionRule.object, // judged by a table of their own
  environment: optionRule.object,
}

class ServerShell implements Server, SessionOwner {
  readonly replies = new ReplyWriter()
  readonly flushes: FlushQueue
  readonly clock: Environment['clock']
  readonly limits: Required<ServerLimits>
  readonly handler: SessionHandler
  readonly #sessions = new Set<SessionShell>()
  readonly #listeners: { close(): Promise<void> }[] = []
  #lastId = 0
  #closing: Promise<void> | undefined
  #whenEmpty: (() => void) | undefined

  constructor(options: ServerOptions) {
    this.clock = resolveEnvironment(options.environment).clock
    this.flushes = new FlushQueue(this.clock)
    this.limits = resolveLimits(options.limits)
    this.handler = options.handler
  }

  get sessionCount(): number {
    return this.#sessions.size
  }

  async listen(address: Address): Promise<Address> {
    if (this.#closing !== undefined) throw new InvalidArgumentError('The server is closed: make another one to listen')
    const listener = await listenOn(address, (transport) => this.accept(transport))
    if (this.#closing !== undefined) {
      await listener.close()
      throw new InvalidArgumentError('The server was closed while it began to listen')
    }
    this.#listeners.push(listener)
    return listener.address
  }

  accept(transport: Transport, as?: { user: string }): void {
    if (this.#closing !== undefined || this.#sessions.size >= this.limits.maxSessions) {
      transport.destroy(
        new Error(
          this.#closing === undefined ? `${this.limits.maxSessions} sessions are open` : 'The server is closing',
        ),
      )
      return
    }
    const session = new SessionShell(++this.#lastId, transport, this)
    this.#sessions.add(session)
    session.start(as)
  }

  ended(session: SessionShell): void {
    this.#sessions.delete(session)
    if (this.#sessions.size === 0) this.#whenEmpty?.()
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    const listeners = Promise.all(this.#listeners.map((listener) => listener.close()))
    const empty = new Promise<void>((resolve) => {
      this.#whenEmpty = resolve
      if (this.#sessions.size === 0) resolve()
    })
    for (const session of [...this.#sessions]) session.close()
    await empty
    await listeners
  }
}
