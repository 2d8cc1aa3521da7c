/*
 * Who may do what. Rights are a small part of Tarantool's: everything, or named functions and spaces; enough to develop
 * against the rights production will have.
 */
import { hash2Of } from '@orbweaver/iproto'
import { boxErrors } from './errors.js'

export interface UserOptions {
  readonly password?: string
  /** base64 of sha1(sha1(password)), as Tarantool keeps it in `_user`; instead of `password`. */
  readonly passwordHash?: string
  /** `super` may do everything. Otherwise what is named here; default: nothing. */
  readonly rights?: 'super' | UserRights
}

export interface UserRights {
  /** Functions it may call; a `*` at the end covers all that begin so. */
  readonly execute?: readonly string[]
  /** Spaces it may read. */
  readonly read?: readonly string[]
  /** Spaces it may read and write. */
  readonly write?: readonly string[]
}

type Access = 'execute' | 'read' | 'write'

const VERB: Readonly<Record<Access, string>> = { execute: 'Execute', read: 'Read', write: 'Write' }

interface User {
  readonly hash2: Uint8Array | undefined
  readonly rights: 'super' | UserRights
}

export class Users {
  readonly #users = new Map<string, User>()

  constructor(users: Readonly<Record<string, UserOptions>>) {
    this.#users.set('guest', { hash2: undefined, rights: {} })
    for (const [name, options] of Object.entries(users)) this.set(name, options)
  }

  /** Adds a user or replaces it; sessions keep the login they have. */
  set(name: string, options: UserOptions): void {
    const hash2 =
      options.passwordHash === undefined
        ? options.password === undefined
          ? undefined
          : hash2Of(options.password)
        : Buffer.from(options.passwordHash, 'base64')
    this.#users.set(name, { hash2, rights: options.rights ?? {} })
  }

  hash2(user: string): Uint8Array | undefined {
    return this.#users.get(user)?.hash2
  }

  /** @throws BoxError 42 */
  check(user: string, access: Access, name: string): void {
    const rights = this.#users.get(user)?.rights ?? {}
    if (rights === 'super') return
    const granted =
      access === 'execute'
        ? rights.execute
        : access === 'read'
          ? [...(rights.read ?? []), ...(rights.write ?? [])]
          : rights.write
    if (granted?.some((pattern) => matches(pattern, name)) === true) return
    throw boxErrors.accessDenied(VERB[access], access === 'execute' ? 'function' : 'space', name, user)
  }
}

function matches(pattern: string, name: string): boolean {
  return pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : pattern === name
}
