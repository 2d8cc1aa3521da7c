/*
 * Who may do what, as Tarantool grants it: named functions and spaces, or everything of a kind ("the universe"). Enough to
 * develop against the rights production will have. There are no roles and no owners: a user has what it was given.
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

/** Names may end with `*`, which covers all that begin so. */
export interface UserRights {
  /** Functions it may call. */
  readonly execute?: readonly string[]
  /** Spaces it may read. */
  readonly read?: readonly string[]
  /** Spaces it may write. Reading them is a right of its own, as in Tarantool. */
  readonly write?: readonly string[]
  /** What it may do to everything there is and will be: Tarantool's grants on `universe`. */
  readonly universe?: readonly UniverseRight[]
}

/**
 * `create`, `alter` and `drop` are for definitions of spaces and indexes; over the wire those are tuples of `_space` and
 * `_index`, which it must be allowed to write, too.
 */
export type UniverseRight = 'execute' | 'read' | 'write' | 'create' | 'alter' | 'drop'

/** Every right, with the word for it in the text of a refusal. */
export const ACCESS_VERB: Readonly<Record<UniverseRight, string>> = {
  execute: 'Execute',
  read: 'Read',
  write: 'Write',
  create: 'Create',
  alter: 'Alter',
  drop: 'Drop',
}

interface User {
  readonly hash2: Uint8Array | undefined
  readonly grants: Grants
}

export class Users {
  readonly #users = new Map<string, User>()

  constructor(users: Readonly<Record<string, UserOptions>>) {
    this.#users.set(GUEST, { hash2: undefined, grants: NOTHING })
    for (const [name, options] of Object.entries(users)) this.set(name, options)
  }

  /** Adds a user or replaces it; sessions keep the login they have, and get the new rights at once. */
  set(name: string, options: UserOptions): void {
    const hash2 =
      options.passwordHash === undefined
        ? options.password === undefined
          ? undefined
          : hash2Of(options.password)
        : Buffer.from(options.passwordHash, 'base64')
    this.#users.set(name, { hash2, grants: grantsOf(options.rights ?? {}) })
  }

  /** Its sessions may do nothing any more. `guest` is left, without rights. @returns whether there was such a user */
  remove(name: string): boolean {
    if (name !== GUEST) return this.#users.delete(name)
    this.#users.set(GUEST, { hash2: undefined, grants: NOTHING })
    return true
  }

  hash2(user: string): Uint8Array | undefined {
    return this.#users.get(user)?.hash2
  }

  /** @throws BoxError 42 unless `user` may do this to the function (`execute`) or the space `name` */
  check(user: string, access: UniverseRight, name: string): void {
    const grants = this.#users.get(user)?.grants ?? NOTHING
    if (grants.universe.has(access) || grants.named.get(access)?.covers(name) === true) return
    throw boxErrors.accessDenied(ACCESS_VERB[access], access === 'execute' ? 'function' : 'space', name, user)
  }

  /** @throws BoxError 42 unless `user` may do this to everything: what EVAL takes */
  checkUniverse(user: string, access: UniverseRight): void {
    if (this.#users.get(user)?.grants.universe.has(access) === true) return
    throw boxErrors.accessDenied(ACCESS_VERB[access], 'universe', '', user)
  }
}

/** Rights as they are asked for: once per request, so nothing is made for a question. */
interface Grants {
  readonly universe: ReadonlySet<UniverseRight>
  readonly named: ReadonlyMap<UniverseRight, Names>
}

class Names {
  readonly #exact: ReadonlySet<string>
  readonly #beginnings: readonly string[]

  constructor(patterns: readonly string[]) {
    this.#exact = new Set(patterns.filter((pattern) => !pattern.endsWith('*')))
    this.#beginnings = patterns.filter((pattern) => pattern.endsWith('*')).map((pattern) => pattern.slice(0, -1))
  }

  covers(name: string): boolean {
    if (this.#exact.has(name)) return true
    for (const beginning of this.#beginnings) if (name.startsWith(beginning)) return true
    return false
  }
}

const GUEST = 'guest'
const NOTHING: Grants = { universe: new Set(), named: new Map() }

function grantsOf(rights: 'super' | UserRights): Grants {
  if (rights === 'super') return { universe: new Set(Object.keys(ACCESS_VERB) as UniverseRight[]), named: new Map() }
  const { universe = [], ...named } = rights
  return {
    universe: new Set(universe),
    named: new Map(
      Object.entries(named).map(([access, names]) => [access as UniverseRight, new Names(names ?? [])] as const),
    ),
  }
}
