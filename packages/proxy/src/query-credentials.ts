/* Hashes from the master's own `_user`, read by a user who may: always the ones of today, and nothing to keep in step. */
import { type Address, type Clock, type Connection, createConnection, type Environment } from '@orbweaver/connection'
import type { CredentialSource } from './auth.js'
import { hashIn } from './learn-credentials.js'

export interface QueryParts {
  readonly environment: Environment
  /** Who may read `_user`. */
  readonly user: string
  readonly password: string
  /** How long a hash counts as known, in milliseconds. */
  readonly ttlMs: number
  readonly timeoutMs: number
  /** Where the master is; undefined: there is none. */
  address(): Address | undefined
}

interface Known {
  readonly hash2: Buffer | undefined
  readonly at: number
}

export class QueryCredentials implements CredentialSource {
  readonly #parts: QueryParts
  readonly #known = new Map<string, Known>()
  readonly #asking = new Map<string, Promise<Buffer | undefined>>()
  #refreshesLeft = MAX_REFRESHES
  #refilledAt = 0
  #connection: Connection | undefined
  #connectedTo: Address | undefined

  constructor(parts: QueryParts) {
    this.#parts = parts
  }

  hash2(user: string): Promise<Uint8Array | undefined> {
    const known = this.#known.get(user)
    const isFresh = known !== undefined && this.#clock.now() - known.at < this.#parts.ttlMs
    return isFresh ? Promise.resolve(known.hash2) : this.#ask(user)
  }

  /** Looks again, a few times in a row and then once a second: wrong passwords must not cost the master a request each. */
  refresh(user: string): Promise<Uint8Array | undefined> {
    const now = this.#clock.now()
    const refills = Math.floor((now - this.#refilledAt) / REFILL_MS)
    this.#refilledAt += refills * REFILL_MS
    this.#refreshesLeft = Math.min(this.#refreshesLeft + refills, MAX_REFRESHES)
    if (this.#refreshesLeft === 0) return Promise.resolve(this.#known.get(user)?.hash2)
    this.#refreshesLeft--
    return this.#ask(user)
  }

  close(): void {
    this.#connection?.destroy()
    this.#connection = this.#connectedTo = undefined
  }

  get #clock(): Clock {
    return this.#parts.environment.clock
  }

  #ask(user: string): Promise<Buffer | undefined> {
    const asking = this.#asking.get(user) ?? this.#read(user).finally(() => this.#asking.delete(user))
    this.#asking.set(user, asking)
    return asking
  }

  async #read(user: string): Promise<Buffer | undefined> {
    const connection = this.#connect()
    if (connection === undefined) return undefined
    const rows = await connection.select(USER_SPACE, [user], { index: NAME_INDEX, timeout: this.#parts.timeoutMs })
    const hash2 = hashIn(rows[0])
    if (this.#known.size >= MAX_KNOWN) this.#known.clear()
    this.#known.set(user, { hash2, at: this.#clock.now() })
    return hash2
  }

  #connect(): Connection | undefined {
    const address = this.#parts.address()
    if (address === this.#connectedTo) return this.#connection
    this.close()
    this.#connectedTo = address
    if (address === undefined) return undefined
    const { user, password, environment } = this.#parts
    this.#connection = createConnection({ uri: address, user, password, environment })
    this.#known.clear()
    return this.#connection
  }
}

const USER_SPACE = 304
const NAME_INDEX = 2
const MAX_REFRESHES = 20
const REFILL_MS = 1_000
/** Names are chosen by clients. */
const MAX_KNOWN = 10_000
