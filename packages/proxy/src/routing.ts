/* What kind each request is, and which requests a replica may serve. Tables; nothing here knows a connection. */
import { Key, RequestType } from '@orbweaver/iproto'
import { firstElement, peekKey, textAt, uintAt } from './peek.js'

/** How the proxy treats a type of request. */
export const Kind = {
  /** Forwarded as it is. */
  shared: 0,
  /** DML: looked at for changes of session settings. */
  dml: 1,
  /** CALL: looked at for vshard's refs and for names that replicas may serve. */
  call: 2,
  execute: 3,
  prepare: 4,
  transaction: 5,
  watch: 6,
  unwatch: 7,
  login: 8,
  identify: 9,
  replication: 10,
  unknown: 11,
} as const
export type Kind = (typeof Kind)[keyof typeof Kind]

/** Types up to this one fit into the one byte that a lane writes for them. */
const MAX_FORWARDED_TYPE = 127

const KINDS: Uint8Array = new Uint8Array(MAX_FORWARDED_TYPE + 1).fill(Kind.unknown)
for (const [kind, types] of [
  [
    Kind.shared,
    [
      RequestType.select,
      RequestType.call16,
      RequestType.eval,
      RequestType.nop,
      RequestType.insertArrow,
      RequestType.ping,
      RequestType.vote,
      RequestType.voteDeprecated,
      RequestType.watchOnce,
    ],
  ],
  [Kind.dml, [RequestType.insert, RequestType.replace, RequestType.update, RequestType.delete, RequestType.upsert]],
  [Kind.call, [RequestType.call]],
  [Kind.execute, [RequestType.execute]],
  [Kind.prepare, [RequestType.prepare]],
  [Kind.transaction, [RequestType.begin, RequestType.commit, RequestType.rollback]],
  [Kind.watch, [RequestType.watch]],
  [Kind.unwatch, [RequestType.unwatch]],
  [Kind.login, [RequestType.auth]],
  [Kind.identify, [RequestType.id]],
  [
    Kind.replication,
    [
      RequestType.join,
      RequestType.subscribe,
      RequestType.fetchSnapshot,
      RequestType.register,
      RequestType.joinMeta,
      RequestType.joinSnapshot,
    ],
  ],
] as const) {
  for (const type of types) KINDS[type] = kind
}

export function kindOf(type: number): Kind {
  return (KINDS[type] ?? Kind.unknown) as Kind
}

/** Types that a request of an unknown kind may have to be passed on at all. */
export function isForwardable(type: number): boolean {
  return type <= MAX_FORWARDED_TYPE
}

/** What a stream may carry; a server answers others with 229. Source: Tarantool 3.2.1, observed. */
export const IN_STREAM: ReadonlySet<number> = new Set<number>([
  RequestType.select,
  RequestType.insert,
  RequestType.replace,
  RequestType.update,
  RequestType.delete,
  RequestType.upsert,
  RequestType.call,
  RequestType.call16,
  RequestType.eval,
  RequestType.execute,
  RequestType.prepare,
  RequestType.ping,
  RequestType.begin,
  RequestType.commit,
  RequestType.rollback,
])

/** Read/write split: which requests replicas serve. */
export interface SplitOptions {
  /** Default false: everything goes to the master. */
  readonly enabled?: boolean
  /** Names of functions that only read; a `*` at the end covers all that begin so. */
  readonly readFunctions?: readonly string[]
  /** Spaces whose reads stay on the master, by id or name. */
  readonly masterSpaces?: readonly (number | string)[]
  /** Whether SQL that starts with SELECT, VALUES, EXPLAIN or PRAGMA counts as a read. Default false. */
  readonly sql?: boolean
  /** How long after a client's last write its reads stay on the master, in milliseconds. Default 1,000. */
  readonly readAfterWriteMs?: number
}

/** Names of functions; a `*` at the end of one covers all that begin so. */
export class FunctionNames {
  readonly #whole: ReadonlySet<string>
  readonly #beginnings: readonly string[]

  constructor(names: readonly string[]) {
    this.#whole = new Set(names.filter((name) => !name.endsWith('*')))
    this.#beginnings = names.filter((name) => name.endsWith('*')).map((name) => name.slice(0, -1))
  }

  has(name: string): boolean {
    return this.#whole.has(name) || this.#beginnings.some((beginning) => name.startsWith(beginning))
  }

  /** Whether a body of CALL names one of them. */
  isIn(body: Buffer): boolean {
    if (this.#whole.size === 0 && this.#beginnings.length === 0) return false
    const name = textAt(body, peekKey(body, Key.functionName, 'last'))?.toString()
    return name !== undefined && this.has(name)
  }
}

/** Decides by the table of the design: what it does not name is a write. */
export class ReadRules {
  readonly isEnabled: boolean
  readonly readAfterWriteMs: number
  readonly #functions: FunctionNames
  readonly #masterIds: ReadonlySet<number>
  readonly #masterNames: ReadonlySet<string>
  readonly #sql: boolean

  constructor(options: SplitOptions = {}) {
    this.isEnabled = options.enabled ?? false
    this.readAfterWriteMs = options.readAfterWriteMs ?? 1_000
    this.#functions = new FunctionNames(options.readFunctions ?? [])
    const spaces = options.masterSpaces ?? []
    this.#masterIds = new Set(spaces.filter((space) => typeof space === 'number'))
    this.#masterNames = new Set(spaces.filter((space) => typeof space === 'string'))
    this.#sql = options.sql ?? false
  }

  /** Whether a replica may serve this request. @param preparedText - of the statement that EXECUTE names by its id */
  isRead(type: number, body: Buffer, preparedText?: string): boolean {
    switch (type) {
      case RequestType.select:
        return !this.#isMasterSpace(body)
      case RequestType.watchOnce:
        return true
      case RequestType.call:
      case RequestType.call16:
        return this.#isReadCall(body)
      case RequestType.execute:
        return this.#sql && isReadStatement(preparedText ?? statementText(body) ?? '')
      default:
        return false
    }
  }

  #isMasterSpace(body: Buffer): boolean {
    if (this.#masterIds.size > 0 && this.#masterIds.has(uintAt(body, peekKey(body, Key.spaceId, 'last')))) return true
    if (this.#masterNames.size === 0) return false
    const name = textAt(body, peekKey(body, Key.spaceName, 'last'))
    return name !== undefined && this.#masterNames.has(name.toString())
  }

  #isReadCall(body: Buffer): boolean {
    const name = textAt(body, peekKey(body, Key.functionName, 'last'))?.toString()
    if (name === undefined) return false
    if (this.#functions.has(name)) return true
    return name === 'vshard.storage.call' && vshardMode(body) === 'read'
  }
}

/** SQL_TEXT of EXECUTE or PREPARE; undefined when it names a statement by its id. */
export function statementText(body: Buffer): string | undefined {
  return textAt(body, peekKey(body, Key.sqlText, 'last'))?.toString()
}

/** STMT_ID of EXECUTE or PREPARE; undefined when it carries text. */
export function statementId(body: Buffer): number | undefined {
  const id = uintAt(body, peekKey(body, Key.stmtId, 'last'))
  return id < 0 ? undefined : id
}

/** SQL that changes the session for everybody who shares it. */
export function changesSession(text: string): boolean {
  return (
    /^set\s+session\b/i.test(withoutLeadingNoise(text)) || (/_session_settings/i.test(text) && !isReadStatement(text))
  )
}

export function startsTransaction(text: string): boolean {
  return /^start\s+transaction\b/i.test(withoutLeadingNoise(text))
}

/** DML on `_session_settings` changes the session as well. */
export function isSessionSettingsDml(body: Buffer): boolean {
  const id = uintAt(body, peekKey(body, Key.spaceId, 'last'))
  const name = textAt(body, peekKey(body, Key.spaceName, 'last'))
  return name === undefined ? id === SESSION_SETTINGS : name.equals(SESSION_SETTINGS_NAME)
}

/**
 * Calls of vshard's storage that take or give back refs: those belong to the session, so routers that share one would take
 * each other's for their own.
 */
export function isStorageRefCall(body: Buffer): boolean {
  const name = textAt(body, peekKey(body, Key.functionName))
  if (name === undefined || name.length !== STORAGE_CALL.length || !name.equals(STORAGE_CALL)) return false
  const args = peekKey(body, Key.tuple)
  const service = args < 0 ? undefined : textAt(body, firstElement(body, args))
  return service !== undefined && /^storage_(ref|map|unref)/.test(service.toString('latin1'))
}

function isReadStatement(text: string): boolean {
  const rest = withoutLeadingNoise(text)
  return /^(select|values|explain|pragma)\b/i.test(rest) && !rest.replace(/;\s*$/, '').includes(';')
}

/** SQL may begin with white space and comments. */
function withoutLeadingNoise(text: string): string {
  return text.replace(/^(?:\s+|--[^\n]*(?:\n|$)|\/\*[\s\S]*?\*\/)+/, '')
}

function vshardMode(body: Buffer): string | undefined {
  const args = peekKey(body, Key.tuple)
  if (args < 0) return undefined
  const bucket = firstElement(body, args)
  const width = bucket < 0 ? 0 : uintBytes(body[bucket] ?? 0xc0)
  return width === 0 ? undefined : textAt(body, bucket + width)?.toString()
}

function uintBytes(first: number): number {
  if (first < 0x80) return 1
  return first >= 0xcc && first <= 0xcf ? 1 + (1 << (first - 0xcc)) : 0
}

const SESSION_SETTINGS = 380
const SESSION_SETTINGS_NAME = Buffer.from('_session_settings')
const STORAGE_CALL = Buffer.from('vshard.storage._call')
