/* A connection to another instance, opened when it is needed and closed when it was not used for a while, as vshard's storages do. */
import { createConnection, parseUri } from '@orbweaver/connection'
import type { Address, Connection, Credential, Environment } from '@orbweaver/connection'
import { BoxError } from '@orbweaver/iproto'
import { restoreError, VshardError } from '@orbweaver/vshard'
import type { ServiceCall, ServiceReply } from '@orbweaver/vshard'
import { toRefusal } from './refusals.js'

const UNUSED_MS = 30_000

export class InstanceLink {
  readonly id: string
  readonly #uri: string | Address
  readonly #credential: Credential | undefined
  readonly #environment: Environment
  #connection: Connection | undefined
  #inUse = 0
  #cancelTimer: (() => void) | undefined

  constructor(id: string, uri: string | Address, credential: Credential | undefined, environment: Environment) {
    this.id = id
    this.#uri = uri
    // What the uri says goes first.
    this.#credential = typeof uri === 'string' && parseUri(uri).user !== undefined ? undefined : credential
    this.#environment = environment
  }

  /** State of the connection; undefined while there is none. */
  get state(): string | undefined {
    return this.#connection?.state
  }

  /**
   * Calls a service. A refusal is a value.
   * @throws VshardError, BoxError for what the instance raised; BoxError 77 or 78 when it could not be asked, or did not answer in time
   */
  async call<T>(
    { name, args }: ServiceCall,
    read: (values: readonly unknown[]) => ServiceReply<T>,
    timeoutMs: number,
  ): Promise<ServiceReply<T>> {
    const connection = this.#use()
    try {
      return read(await connection.call(name, args, { timeout: Math.max(1, timeoutMs) }))
    } catch (error) {
      throw error instanceof BoxError ? (restoreError(error) ?? error) : toRefusal(error)
    } finally {
      this.#inUse--
      this.#closeLater()
    }
  }

  close(): void {
    this.#cancelTimer?.()
    this.#cancelTimer = undefined
    this.#connection?.destroy()
    this.#connection = undefined
  }

  #use(): Connection {
    this.#inUse++
    this.#cancelTimer?.()
    this.#cancelTimer = undefined
    this.#connection ??= createConnection({
      uri: this.#uri,
      ...this.#credential,
      reconnect: { minDelayMs: 50, maxDelayMs: 1_000 },
      environment: this.#environment,
    })
    return this.#connection
  }

  #closeLater(): void {
    if (this.#inUse > 0 || this.#connection === undefined) return
    this.#cancelTimer = this.#environment.clock.schedule(UNUSED_MS, () => {
      this.#cancelTimer = undefined
      if (this.#inUse === 0) this.close()
    })
  }
}

/** What a call ended with, for conditions on it. */
export function isNonMaster(error: unknown): error is VshardError {
  return error instanceof VshardError && error.vshardName === 'NON_MASTER'
}
