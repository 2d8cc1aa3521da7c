/** What a connection can be told, its defaults, and what is refused at the door. */
import { ConfigError, type ConfigProblem, type DecodeOptions, InvalidArgumentError } from '@orbweaver/iproto'
import { addressProblem, type ParsedUri, parseUri } from './address.js'
import { type Environment, resolveEnvironment } from './environment.js'
import type { Credential } from './handshake.js'
import type { PipelineLimits } from './pipeline.js'
import type { ReconnectPolicy } from './reconnect.js'
import type { Address } from './transport.js'

/**
 * Options of `connect` and `createConnection`. Settings of time are milliseconds and end in `Ms`: more than 0, `Infinity`
 * for none where that is said. Anything else, and any unknown name, is a `ConfigError` that lists all problems at once.
 */
export interface ConnectionOptions {
  /** Where to: a string as `parseUri` takes it (`user:password@host:3301`, `unix/:/path`, …) or an address object. Required. */
  readonly uri: string | Address
  /** Who to be; default guest. Used exactly as given, without escapes. */
  readonly user?: string
  /** Needs `user`. Default with a user: the empty password, which is not the same as none. */
  readonly password?: string
  /** In place of a password: SHA-1 of it, 20 bytes. Needs `user`. */
  readonly hash1?: Uint8Array
  /** One deadline for everything until the connection is usable: resolving, socket, greeting, ID, login. Default 5,000; Infinity: none. net.box: `connect_timeout`. */
  readonly connectTimeoutMs?: number
  /** How long a request may take when the call does not say (`timeout`). Default 10,000; Infinity: none. */
  readonly requestTimeoutMs?: number
  /** How long `close()` waits for outstanding requests when the call does not say. Default 5,000; 0: not at all. */
  readonly closeTimeoutMs?: number
  /** How to come back after a failed or lost connection; false: do not. net.box: `reconnect_after`. */
  readonly reconnect?: Partial<ReconnectPolicy> | false
  /** Requests the server may have at once; more wait. Requests that ended early count until their late answer comes. Default 16,384. */
  readonly maxInFlight?: number
  /** Bytes of requests the server may have at once. Default 64 MiB. */
  readonly maxInFlightBytes?: number
  /** Requests that may wait for room, for the connection, or for the schema; more are refused with `QueueFullError`. Default 65,536. */
  readonly maxQueued?: number
  /** Bytes of waiting requests. Default 64 MiB. */
  readonly maxQueuedBytes?: number
  /** Largest answer that is accepted. Default 256 MiB. */
  readonly maxFrameBytes?: number
  /** How values of answers appear in JavaScript; each call may say otherwise. Default: the defaults of `DecodeOptions`. */
  readonly decode?: DecodeOptions
  /** Ask the server for tuples with field names (3.0 and newer): rows become `Tuple`. Default false. */
  readonly tupleFormats?: boolean
  /** Time, chance and dialling, for tests and other worlds. Default: the system's. */
  readonly environment?: Partial<Environment>
}

/** Options with all their values. */
export interface ResolvedOptions {
  readonly address: Address
  readonly credential: Credential | undefined
  readonly connectTimeoutMs: number
  readonly requestTimeoutMs: number
  readonly closeTimeoutMs: number
  readonly reconnect: ReconnectPolicy
  readonly limits: PipelineLimits
  readonly maxFrameBytes: number
  readonly decode: DecodeOptions | undefined
  readonly tupleFormats: boolean
  readonly environment: Environment
}

/** @throws ConfigError with every problem and its path */
export function resolveOptions(options: ConnectionOptions): ResolvedOptions {
  const check = new OptionCheck(options)
  const parsed = check.uri()
  const credential = check.credential(parsed)
  const resolved = {
    connectTimeoutMs: check.duration('connectTimeoutMs', DEFAULT_CONNECT_TIMEOUT_MS),
    requestTimeoutMs: check.duration('requestTimeoutMs', DEFAULT_REQUEST_TIMEOUT_MS),
    closeTimeoutMs: check.duration('closeTimeoutMs', DEFAULT_CLOSE_TIMEOUT_MS, 0),
    reconnect: check.reconnect(),
    limits: {
      maxInFlight: check.count('maxInFlight', 16_384),
      maxInFlightBytes: check.count('maxInFlightBytes', 67_108_864),
      maxQueued: check.count('maxQueued', 65_536, 0),
      maxQueuedBytes: check.count('maxQueuedBytes', 67_108_864, 0),
    },
    maxFrameBytes: check.count('maxFrameBytes', 268_435_456),
    decode: check.decode(),
    tupleFormats: check.flag('tupleFormats', false),
  }
  check.unknownNames(OPTION_NAMES, '')
  if (check.problems.length > 0 || parsed === undefined) {
    throw new ConfigError(check.problems, { subject: 'connection options' })
  }
  return { ...resolved, address: parsed.address, credential, environment: resolveEnvironment(options.environment) }
}

/**
 * The instant by which something must be over.
 * @param timeout - of the call; undefined: `defaultMs`
 * @throws InvalidArgumentError unless it is a number of more than 0 (`Infinity`: none)
 */
export function deadlineOf(nowMs: number, timeout: number | undefined, defaultMs: number): number {
  if (timeout === undefined) return nowMs + defaultMs
  if (typeof timeout !== 'number' || !(timeout > 0)) {
    throw new InvalidArgumentError(
      `timeout is ${show(timeout)}, expected milliseconds of more than 0, or Infinity for none`,
    )
  }
  return nowMs + timeout
}

/** @throws InvalidArgumentError unless `timeout` is undefined or a number of at least 0 */
export function closeTimeoutOf(timeout: number | undefined, defaultMs: number): number {
  if (timeout === undefined) return defaultMs
  if (typeof timeout !== 'number' || !(timeout >= 0)) {
    throw new InvalidArgumentError(
      `timeout is ${show(timeout)}, expected milliseconds of at least 0, or Infinity for none`,
    )
  }
  return timeout
}

/** @throws InvalidArgumentError naming an option that does not exist, with the one that was probably meant */
export function refuseUnknownOptions(options: object, known: ReadonlySet<string>, call: string): void {
  for (const name of Object.keys(options)) {
    if (!known.has(name)) throw new InvalidArgumentError(`${call} has no option "${name}"${suggestion(name, known)}`)
  }
}

class OptionCheck {
  readonly problems: ConfigProblem[] = []
  readonly #options: Readonly<Record<string, unknown>>

  constructor(options: unknown) {
    const isObject = typeof options === 'object' && options !== null && !Array.isArray(options)
    this.#options = isObject ? (options as Record<string, unknown>) : {}
    if (!isObject) this.#problem('', `expected an options object, got ${show(options)}`)
  }

  uri(): ParsedUri | undefined {
    const { uri } = this.#options
    if (uri === undefined) {
      this.#problem('uri', 'is missing: give an address such as "localhost:3301"')
      return undefined
    }
    if (typeof uri !== 'string') {
      const problem = addressProblem(uri)
      if (problem !== undefined) this.#problem('uri', problem)
      return problem === undefined ? { address: uri as Address, user: undefined, password: undefined } : undefined
    }
    try {
      return parseUri(uri)
    } catch (error) {
      if (!(error instanceof InvalidArgumentError)) throw error
      this.#problem('uri', error.message)
      return undefined
    }
  }

  credential(parsed: ParsedUri | undefined): Credential | undefined {
    const user = this.#text('user') ?? parsed?.user
    const password = this.#text('password') ?? parsed?.password
    const hash1 = this.#options['hash1']
    for (const name of ['user', 'password'] as const) {
      const here = this.#options[name]
      const there = parsed?.[name]
      if (here !== undefined && there !== undefined && here !== there) {
        this.#problem(name, 'differs from the one in the uri: give it once')
      }
    }
    if (user === undefined) {
      if (password !== undefined) this.#problem('password', 'needs a user: a password alone names nobody')
      if (hash1 !== undefined) this.#problem('hash1', 'needs a user: a hash alone names nobody')
      return undefined
    }
    if (user === '') this.#problem('user', 'is empty: leave it out to be guest')
    if (hash1 === undefined) return { user, password: password ?? '' }
    if (!(hash1 instanceof Uint8Array) || hash1.length !== 20) this.#problem('hash1', 'expected 20 bytes')
    if (password !== undefined) this.#problem('hash1', 'stands in place of a password: give one of them')
    return { user, hash1: hash1 as Uint8Array }
  }

  reconnect(): ReconnectPolicy {
    const { reconnect } = this.#options
    if (reconnect === undefined) return DEFAULT_RECONNECT
    if (reconnect === false) return { ...DEFAULT_RECONNECT, retries: 0 }
    if (typeof reconnect !== 'object' || reconnect === null) {
      this.#problem('reconnect', `expected false or an object, got ${show(reconnect)}`)
      return DEFAULT_RECONNECT
    }
    const part = new OptionCheck(reconnect)
    const policy = {
      minDelayMs: part.duration('minDelayMs', DEFAULT_RECONNECT.minDelayMs),
      maxDelayMs: part.duration('maxDelayMs', DEFAULT_RECONNECT.maxDelayMs),
      jitter: part.share('jitter', DEFAULT_RECONNECT.jitter),
      retries: part.count('retries', DEFAULT_RECONNECT.retries, 0, true),
    }
    part.unknownNames(RECONNECT_NAMES, '')
    if (policy.minDelayMs > policy.maxDelayMs) part.#problem('minDelayMs', 'is more than maxDelayMs')
    for (const { path, message } of part.problems) this.#problem(`reconnect.${path}`, message)
    return policy
  }

  decode(): DecodeOptions | undefined {
    const { decode } = this.#options
    if (decode === undefined) return undefined
    if (typeof decode !== 'object' || decode === null) {
      this.#problem('decode', `expected an object, got ${show(decode)}`)
      return undefined
    }
    for (const [name, value] of Object.entries(decode)) {
      const allowed = DECODE_VALUES.get(name)
      if (allowed === undefined)
        this.#problem(`decode.${name}`, `is not known${suggestion(name, new Set(DECODE_VALUES.keys()))}`)
      else if (value !== undefined && !allowed.includes(value as string)) {
        this.#problem(`decode.${name}`, `expected one of ${allowed.join(', ')}, got ${show(value)}`)
      }
    }
    return decode
  }

  duration(name: string, otherwise: number, least?: 0): number {
    const value = this.#options[name]
    if (value === undefined) return otherwise
    if (typeof value === 'number' && (least === 0 ? value >= 0 : value > 0)) return value
    const range = least === 0 ? 'at least 0' : 'more than 0'
    this.#problem(name, `expected milliseconds of ${range} (Infinity for none), got ${show(value)}`)
    return otherwise
  }

  count(name: string, otherwise: number, least = 1, mayBeInfinite = false): number {
    const value = this.#options[name]
    if (value === undefined) return otherwise
    if (
      typeof value === 'number' &&
      value >= least &&
      (Number.isSafeInteger(value) || (mayBeInfinite && value === Number.POSITIVE_INFINITY))
    ) {
      return value
    }
    this.#problem(
      name,
      `expected a whole number of at least ${String(least)}${mayBeInfinite ? ', or Infinity' : ''}, got ${show(value)}`,
    )
    return otherwise
  }

  share(name: string, otherwise: number): number {
    const value = this.#options[name]
    if (value === undefined) return otherwise
    if (typeof value === 'number' && value >= 0 && value <= 1) return value
    this.#problem(name, `expected a number in 0..1, got ${show(value)}`)
    return otherwise
  }

  flag(name: string, otherwise: boolean): boolean {
    const value = this.#options[name]
    if (value === undefined) return otherwise
    if (typeof value === 'boolean') return value
    this.#problem(name, `expected true or false, got ${show(value)}`)
    return otherwise
  }

  unknownNames(known: ReadonlySet<string>, prefix: string): void {
    for (const name of Object.keys(this.#options)) {
      if (!known.has(name)) this.#problem(`${prefix}${name}`, `is not known${suggestion(name, known)}`)
    }
  }

  #text(name: string): string | undefined {
    const value = this.#options[name]
    if (value === undefined || typeof value === 'string') return value
    this.#problem(name, `expected a string, got ${show(value)}`)
    return undefined
  }

  #problem(path: string, message: string): void {
    this.problems.push({ path, message })
  }
}

/** `; did you mean "timeout"?` when a known name is at most two edits away. */
function suggestion(name: string, known: ReadonlySet<string>): string {
  let best: string | undefined
  let bestDistance = 3
  for (const candidate of known) {
    const distance = editDistance(name.toLowerCase(), candidate.toLowerCase())
    if (distance < bestDistance) {
      best = candidate
      bestDistance = distance
    }
  }
  return best === undefined ? '' : `; did you mean "${best}"?`
}

/** Levenshtein's: insertions, deletions and replacements that make one of the other. */
function editDistance(a: string, b: string): number {
  let previous = Array.from({ length: b.length + 1 }, (_, i) => i)
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i]
    for (let j = 1; j <= b.length; j += 1) {
      const replaced = (previous[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1)
      row.push(Math.min(replaced, (previous[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1))
    }
    previous = row
  }
  return previous[b.length] ?? 0
}

/** Strings are shown by kind only where they may be secret; here they are numbers in disguise. */
function show(value: unknown): string {
  if (typeof value === 'string') return `the string "${value.length > 20 ? `${value.slice(0, 20)}…` : value}"`
  if (typeof value === 'number' || typeof value === 'boolean' || value === null || value === undefined)
    return String(value)
  return Array.isArray(value) ? 'an array' : `a value of type ${typeof value}`
}

const DEFAULT_CONNECT_TIMEOUT_MS = 5_000
const DEFAULT_REQUEST_TIMEOUT_MS = 10_000
const DEFAULT_CLOSE_TIMEOUT_MS = 5_000
const DEFAULT_RECONNECT: ReconnectPolicy = {
  minDelayMs: 50,
  maxDelayMs: 5_000,
  jitter: 0.2,
  retries: Number.POSITIVE_INFINITY,
}
const RECONNECT_NAMES: ReadonlySet<string> = new Set(Object.keys(DEFAULT_RECONNECT))
const OPTION_NAMES: ReadonlySet<string> = new Set([
  'uri',
  'user',
  'password',
  'hash1',
  'connectTimeoutMs',
  'requestTimeoutMs',
  'closeTimeoutMs',
  'reconnect',
  'maxInFlight',
  'maxInFlightBytes',
  'maxQueued',
  'maxQueuedBytes',
  'maxFrameBytes',
  'decode',
  'tupleFormats',
  'environment',
] satisfies (keyof ConnectionOptions)[])
const DECODE_VALUES: ReadonlyMap<string, readonly string[]> = new Map([
  ['integers', ['auto', 'bigint', 'number']],
  ['maps', ['auto', 'map']],
  ['strings', ['auto', 'bytes']],
])
