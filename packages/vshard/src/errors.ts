/* The errors of vshard in both directions: made here by name, and recognised in what a storage sends. They travel as maps
 * (`type` is "ShardingError") inside results, or as the JSON text of such a map inside an IPROTO error 32 when a storage
 * raises them. */
import { BoxError, ErrorCode, type Executed, InvalidArgumentError, OrbweaverError } from '@orbweaver/iproto'
import { VSHARD_ERRORS, type VshardErrorKind, type VshardErrorName } from './error-table.js'
import { entriesOf, fieldOf, isRecord } from './lua-map.js'

/** An error of vshard: what the router and the storages tell each other and the application. */
export class VshardError extends OrbweaverError {
  readonly code = 'ORB_VSHARD' as const
  /** `WRONG_BUCKET`, `NON_MASTER`, …; a name of a newer vshard is kept as it came. */
  readonly vshardName: VshardErrorName | (string & {})
  /** 1..42 for the kinds of {@link VSHARD_ERRORS}. */
  readonly vshardCode: number
  /** What else travels, by the names of the wire: `bucket_id`, `destination`, `reason`, …; absent ones are not there. */
  readonly fields: ReadonlyMap<string, unknown>

  /** For errors of kinds that are not known here; the others are made with {@link VshardError.of}. */
  constructor(
    kind: { readonly name: string; readonly code: number; readonly message: string },
    fields: ReadonlyMap<string, unknown>,
    options: ErrorOptions & { executed?: Executed } = {},
  ) {
    super(kind.message, { executed: 'no', ...options })
    this.vshardName = kind.name
    this.vshardCode = kind.code
    this.fields = fields
  }

  /**
   * An error by its name, with the message vshard gives it.
   * @param fields - by the names of {@link VSHARD_ERRORS}; undefined and null ones do not travel
   * @param options - `executed` is `no` by default: these errors refuse a request before it runs
   * @throws InvalidArgumentError for a name or a field that is not in the table
   * @example VshardError.of('NO_ROUTE_TO_BUCKET', { bucket_id: 7 })
   */
  static of(
    name: VshardErrorName,
    fields: Readonly<Record<string, unknown>> = {},
    options: ErrorOptions & { executed?: Executed } = {},
  ): VshardError {
    const kind = VSHARD_ERRORS[name]
    if (kind === undefined) throw new InvalidArgumentError(`There is no vshard error named ${name}`)
    const known = [...kind.fields, ...placeholdersOf(kind.text)]
    const wrong = Object.keys(fields).find((field) => !known.includes(field))
    if (wrong !== undefined) throw new InvalidArgumentError(`${name} has no field ${wrong}, only ${known.join(', ')}`)
    const travelling = kind.fields.filter((field) => fields[field] !== undefined && fields[field] !== null)
    const message = messageOf(kind, fields)
    return new VshardError(
      { name, code: kind.code, message },
      new Map(travelling.map((field) => [field, fields[field]])),
      options,
    )
  }

  /** The bucket it is about. */
  get bucketId(): number | undefined {
    return asNumber(this.fields.get('bucket_id'))
  }

  /** Id of the replicaset where the bucket is or goes to. */
  get destination(): string | undefined {
    return asText(this.fields.get('destination'))
  }

  /** Id of the replicaset it is about. */
  get replicaset(): string | undefined {
    return asText(this.fields.get('replicaset'))
  }

  /** Id of the instance that gave the error (NON_MASTER), or that it is about. */
  get replica(): string | undefined {
    return asText(this.fields.get('replica'))
  }

  /** Id of the instance that is the master, as far as the reporter knows. */
  get master(): string | undefined {
    return asText(this.fields.get('master'))
  }

  get reason(): string | undefined {
    return asText(this.fields.get('reason'))
  }

  /** The map that travels, with the names of the wire. What `[nil, error]` of a storage holds. */
  toWire(): Record<string, unknown> {
    return {
      type: SHARDING_ERROR,
      code: this.vshardCode,
      name: this.vshardName,
      message: this.message,
      ...Object.fromEntries(this.fields),
    }
  }

  /** The JSON text a storage raises as the message of an IPROTO error 32. */
  toWireText(): string {
    return toJson(this.toWire())
  }
}

/**
 * The vshard error in a value of a reply: a map whose `type` is "ShardingError", with a numeric `code` and a `message`.
 * @returns undefined when it is something else
 */
export function asVshardError(value: unknown, options: { executed?: Executed } = {}): VshardError | undefined {
  const parts = partsOf(value)
  if (parts === undefined || parts.type !== SHARDING_ERROR) return undefined
  return new VshardError(
    { name: parts.name ?? nameOfCode(parts.code), code: parts.code, message: parts.message },
    parts.fields,
    { ...options, ...causeOf(parts, options) },
  )
}

/**
 * Any error as a storage puts it into a result: a vshard error, an unpacked box error (a map), an error object, or a text
 * when the connection has no error extension.
 *
 * Tarantool 3 wraps every failure of a Lua function into error 32 and keeps the original in `details`: that one becomes
 * the `cause`. A null, and a value that is no error at all, becomes a BoxError 0 with the value's text.
 * @param options - `executed`: what the place where it was found says about the request; default `yes`
 */
export function asStorageError(value: unknown, options: { executed?: Executed } = {}): VshardError | BoxError {
  const executed = options.executed ?? 'yes'
  if (value instanceof VshardError) return value
  if (value instanceof BoxError) return new BoxError(value.entries, { executed })
  const sharding = asVshardError(value, { executed })
  if (sharding !== undefined) return sharding
  const parts = partsOf(value)
  if (parts !== undefined) {
    const { cause } = causeOf(parts, { executed })
    const boxCause = cause instanceof BoxError ? { cause } : {}
    const fields = parts.name === undefined ? parts.fields : new Map([['name', parts.name], ...parts.fields])
    return BoxError.of(parts.code, parts.message, { executed, boxType: parts.type, fields, ...boxCause })
  }
  if (typeof value === 'string') return BoxError.of(PROC_LUA, value, { executed, boxType: 'LuajitError' })
  return BoxError.of(0, `No error object, but ${describe(value)}`, { executed })
}

/**
 * The error whose JSON text is the message of an IPROTO error 32: how a vshard storage raises errors (a disabled storage,
 * a forbidden change of `_bucket`). Restored as the Lua router does it, from errors of the types LuajitError and
 * ClientError only; look only at answers to functions whose name starts with `vshard.`.
 *
 * `executed` is `no` for STORAGE_IS_DISABLED, which every function checks first, and as in `error` for the others.
 * @returns undefined when the message is no such text, for example because the server cut it
 */
export function restoreError(error: BoxError): VshardError | BoxError | undefined {
  if (error.boxType !== 'LuajitError' && error.boxType !== 'ClientError') return undefined
  if (!error.message.startsWith('{')) return undefined
  const value = parseJson(error.message)
  const parts = partsOf(value)
  if (parts === undefined) return undefined
  const refused = parts.type === SHARDING_ERROR && parts.code === VSHARD_ERRORS.STORAGE_IS_DISABLED.code
  return asStorageError(value, { executed: refused ? 'no' : error.executed })
}

/**
 * Whether an error of a storage says that time ran out, in one of the ways it can: code 78, type TimedOut, or code 32 with
 * the text "Timeout exceeded".
 */
export function isStorageTimeout(error: VshardError | BoxError): boolean {
  if (!(error instanceof BoxError)) return false
  return (
    error.boxCode === ErrorCode['timeout'] ||
    error.boxType === 'TimedOut' ||
    (error.boxCode === PROC_LUA && error.message === 'Timeout exceeded')
  )
}

/** An error as a map of Lua: the parts every one has, and the rest by name. */
interface ErrorParts {
  readonly type: string
  readonly code: number
  readonly message: string
  readonly name: string | undefined
  readonly fields: ReadonlyMap<string, unknown>
}

function partsOf(value: unknown): ErrorParts | undefined {
  if (!isRecord(value)) return undefined
  const [type, code, message] = [fieldOf(value, 'type'), fieldOf(value, 'code'), fieldOf(value, 'message')]
  if (typeof type !== 'string' || typeof message !== 'string') return undefined
  if (typeof code !== 'number' || !Number.isInteger(code) || code < 0 || code > 0xffffffff) return undefined
  const fields = new Map<string, unknown>()
  for (const [key, item] of entriesOf(value)) {
    if (typeof key === 'string' && !OWN_PARTS.has(key) && item !== null && item !== undefined) fields.set(key, item)
  }
  return { type, code, message, name: asText(fieldOf(value, 'name')), fields }
}

/** The error inside an error: `prev` of a chain, or `details` where Tarantool 3 keeps what a Lua function raised. */
function causeOf(parts: ErrorParts, options: { executed?: Executed }): ErrorOptions {
  const inner = parts.fields.get('prev') ?? parts.fields.get('details')
  const isError = inner instanceof BoxError || inner instanceof VshardError || partsOf(inner) !== undefined
  return isError ? { cause: asStorageError(inner, options) } : {}
}

function nameOfCode(code: number): string {
  const found = Object.entries(VSHARD_ERRORS).find(([, kind]) => kind.code === code)
  return found?.[0] ?? `UNKNOWN_${code}`
}

function messageOf(kind: VshardErrorKind, fields: Readonly<Record<string, unknown>>): string {
  return kind.text.replace(/\{(\w+)\}/g, (_, field: string) => {
    const value = fields[field]
    return field === 'lag' && typeof value === 'number' ? value.toFixed(6) : luaText(value)
  })
}

function placeholdersOf(text: string): string[] {
  return [...text.matchAll(/\{(\w+)\}/g)].map(([, field]) => field!)
}

/** A value as Lua's `%s` prints it, for what errors carry. */
function luaText(value: unknown): string {
  if (value === undefined || value === null) return 'nil'
  if (value instanceof VshardError) return value.toWireText()
  if (value instanceof Error) return value.message
  return typeof value === 'object' ? toJson(value) : `${value as string | number | bigint | boolean}`
}

/** JSON has no 64-bit integers, and of an error object only the message matters to whoever reads the text. */
function toJson(value: unknown): string {
  return JSON.stringify(value, (_, item: unknown) => {
    if (typeof item === 'bigint') return Number(item)
    return item instanceof Error ? item.message : item
  })
}

function describe(value: unknown): string {
  if (value === null || value === undefined) return 'nil'
  return typeof value === 'object' ? 'a value without type, code and message' : `a ${typeof value}`
}

/** A broken text is an answer here, not a fault: undefined. */
function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    if (error instanceof SyntaxError) return undefined
    throw error
  }
}

function asText(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined
}

function asNumber(value: unknown): number | undefined {
  return typeof value === 'number' ? value : undefined
}

const SHARDING_ERROR = 'ShardingError'
const PROC_LUA = 32
const OWN_PARTS: ReadonlySet<string> = new Set(['type', 'code', 'message', 'name'])
