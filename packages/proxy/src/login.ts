/*
 * Who clients have proved to be. A login is a user together with the secret it was proved with: after a change of the
 * password there are two of the same user, and they never share a connection.
 */
import type { Clock, Credential } from '@orbweaver/connection'

/** One user with one secret. Shared by all clients that proved the same. */
export class Login {
  /** Never used again; part of the key of lanes. */
  readonly id: number
  readonly user: string
  /** SHA-1 of the password: as good as the password itself, so it stays in memory and out of every message. Absent for guest. */
  readonly #hash1: Buffer | undefined
  /** Clients that use it. */
  clients = 0
  /** Instant at which a storage confirmed it last; -Infinity: never. */
  confirmedAt: number = Number.NEGATIVE_INFINITY

  constructor(id: number, user: string, hash1: Uint8Array | undefined) {
    this.id = id
    this.user = user
    this.#hash1 = hash1 === undefined ? undefined : Buffer.from(hash1)
  }

  /** What a lane logs in with; undefined: the session stays guest's. */
  get credential(): Credential | undefined {
    return this.#hash1 === undefined ? undefined : { user: this.user, hash1: this.#hash1 }
  }

  is(user: string, hash1: Uint8Array): boolean {
    return this.user === user && this.#hash1?.equals(hash1) === true
  }

  /** Overwrites the secret. Nothing can be opened with it afterwards. */
  forget(): void {
    this.#hash1?.fill(0)
  }
}

/** All logins that are in use, or were a short time ago. */
export class Logins {
  readonly guest: Login = new Login(0, 'guest', undefined)
  readonly #clock: Clock
  readonly #forgetAfterMs: number
  readonly #onForgotten: (login: Login) => void
  readonly #byUser = new Map<string, Login[]>()
  readonly #timers = new Map<Login, () => void>()
  #lastId = 0

  constructor(options: { clock: Clock; forgetAfterMs: number; onForgotten: (login: Login) => void }) {
    this.#clock = options.clock
    this.#forgetAfterMs = options.forgetAfterMs
    this.#onForgotten = options.onForgotten
  }

  /** The login of this user and secret, new or known. Give it back with `release`. */
  acquire(user: string, hash1: Uint8Array): Login {
    const known = this.#byUser.get(user) ?? []
    let login = known.find((candidate) => candidate.is(user, hash1))
    if (login === undefined) {
      login = new Login(++this.#lastId, user, hash1)
      this.#byUser.set(user, [...known, login])
    }
    this.retain(login)
    return login
  }

  retain(login: Login): void {
    login.clients++
    this.#timers.get(login)?.()
    this.#timers.delete(login)
  }

  /** The last client that goes starts the time after which the secret is overwritten. */
  release(login: Login): void {
    login.clients--
    if (login.clients > 0 || login === this.guest) return
    this.#timers.set(
      login,
      this.#clock.schedule(this.#forgetAfterMs, () => this.#forget(login)),
    )
  }

  /** Clients of a user, whatever their secret. */
  clientsOf(user: string): number {
    if (user === 'guest') return this.guest.clients
    return (this.#byUser.get(user) ?? []).reduce((sum, login) => sum + login.clients, 0)
  }

  close(): void {
    for (const cancel of this.#timers.values()) cancel()
    this.#timers.clear()
    for (const logins of this.#byUser.values()) for (const login of logins) login.forget()
    this.#byUser.clear()
  }

  #forget(login: Login): void {
    this.#timers.delete(login)
    const rest = (this.#byUser.get(login.user) ?? []).filter((other) => other !== login)
    if (rest.length === 0) this.#byUser.delete(login.user)
    else this.#byUser.set(login.user, rest)
    this.#onForgotten(login)
    login.forget()
  }
}
