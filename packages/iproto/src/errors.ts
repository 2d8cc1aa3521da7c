import { errorCodeName } from './error-codes.js'

/**
 * Whether the peer may have acted on the request that this error ended: `no` = it surely had no effect (never written,
 * or refused before it ran), `yes` = it ran and this is its final answer, `unknown` = neither is sure.
 */
export type Executed = 'no' | 'unknown' | 'yes'

/** Base of every error of this family of packages: what happened (`code`) and whether the request may have run (`executed`). */
export abstract class OrbweaverError extends Error {
  /** Stable across versions and across two copies of this package: branch on it, not on the class. */
  abstract readonly code: `ORB_${string}`
  readonly executed: Executed

  constructor(message: string, options: ErrorOptions & { executed: Executed }) {
    super(message, options)
    this.name = new.target.name
    this.executed = options.executed
  }
}

/** True for an OrbweaverError of any copy of this package: it looks at `code` and `executed`, not at the class. */
export function isOrbweaverError(value: unknown): value is OrbweaverError {
  if (!(value instanceof Error)) return false
  const { code, executed } = value as Partial<OrbweaverError>
  return (
    typeof code === 'string' &&
    code.startsWith('ORB_') &&
    (executed === 'no' || executed === 'unknown' || executed === 'yes')
  )
}

/** One entry of a Tarantool error stack, as it travels under key 0x52 and in extension type 3. */
export interface BoxErrorEntry {
  /** `ClientError`, `AccessDeniedError`, `CustomError`, `LuajitError`, … : kept as it came, also when unknown. */
  readonly type: string
  /** Source file of the server (or Lua chunk) that raised it. */
  readonly file: string
  /** Line in `file`; 0..4294967295, the largest meaning "unknown" on some servers. */
  readonly line: number
  /** Never match on it: messages change between versions and are cut at a NUL byte. */
  readonly message: string
  /** System errno, 0 when it was no system call. */
  readonly errno: number
  /** 0..4294967295; applications may raise any number. */
  readonly code: number
  /** Extra fields by name; may hold user data (`old_tuple`, `key`), so do not log them by default. */
  readonly fields: ReadonlyMap<string, unknown>
}

/** What one entry may leave out in `BoxError.of`. */
export interface BoxErrorDetails {
  /** Default `yes`: the server answered. */
  readonly executed?: Executed
  /** Default `ClientError`, or `AccessDeniedError` for code 42. */
  readonly boxType?: string
  readonly fields?: ReadonlyMap<string, unknown>
  readonly cause?: BoxError
  readonly file?: string
  readonly line?: number
  readonly errno?: number
}

/**
 * The server's answer to a request that failed, with its whole stack. It is also the JavaScript form of extension type 3
 * (an error object returned or passed as a value) and is encoded back to it.
 *
 * `cause` is the next entry of the stack as a BoxError of its own, undefined at the end. `executed` follows the table of
 * {@link executedOf} when it came as a reply; an error that came as a value has `yes`.
 */
export class BoxError extends OrbweaverError {
  readonly code = 'ORB_BOX' as const
  /** Code of the newest entry; not cut to 15 bits as the frame's type is. */
  readonly boxCode: number
  /** Type name of the newest entry, as the server sent it. */
  readonly boxType: string
  /** Symbolic name of the code without `ER_` (`READONLY`), from our own table; `UNKNOWN` for foreign codes. */
  readonly boxName: string
  readonly fields: ReadonlyMap<string, unknown>
  readonly file: string
  readonly line: number
  readonly errno: number
  /** The whole stack, newest first; never empty. */
  readonly entries: readonly BoxErrorEntry[]

  /** @throws InvalidArgumentError when there are none or more than 256 entries, or a number in one is no unsigned 32-bit integer */
  constructor(entries: readonly BoxErrorEntry[], options: { executed: Executed }) {
    const first = entries[0]
    if (first === undefined) throw new InvalidArgumentError('A BoxError needs at least one entry')
    if (entries.length > MAX_ERROR_ENTRIES) {
      throw new InvalidArgumentError(`A BoxError holds at most ${MAX_ERROR_ENTRIES} entries, not ${entries.length}`)
    }
    for (const [i, entry] of entries.entries()) assertEntry(entry, i)
    const rest = entries.slice(1)
    super(first.message, rest.length === 0 ? options : { ...options, cause: new BoxError(rest, options) })
    this.boxCode = first.code
    this.boxType = first.type
    this.boxName = errorCodeName(first.code)
    this.fields = first.fields
    this.file = first.file
    this.line = first.line
    this.errno = first.errno
    this.entries = entries
  }

  /**
   * One entry by its code and message, for servers and tests.
   * @example BoxError.of(ErrorCode.readonly, 'The instance is read-only', { fields: new Map([['reason', 'config']]) })
   */
  static of(boxCode: number, message: string, details: BoxErrorDetails = {}): BoxError {
    const entry: BoxErrorEntry = {
      type: details.boxType ?? (boxCode === ACCESS_DENIED ? 'AccessDeniedError' : 'ClientError'),
      file: details.file ?? '',
      line: details.line ?? 0,
      message,
      errno: details.errno ?? 0,
      code: boxCode,
      fields: details.fields ?? new Map(),
    }
    return new BoxError([entry, ...(details.cause?.entries ?? [])], { executed: details.executed ?? 'yes' })
  }
}

/** Bytes that are not the protocol: truncated, left over, of the wrong type, nested too deep. */
export class MalformedFrameError extends OrbweaverError {
  readonly code = 'ORB_MALFORMED_FRAME' as const
  constructor(message: string, options: ErrorOptions & { executed?: Executed } = {}) {
    super(message, { executed: 'unknown', ...options })
  }
}

/** A frame larger than the limit of whoever reads or writes it. */
export class FrameTooLargeError extends OrbweaverError {
  readonly code = 'ORB_FRAME_TOO_LARGE' as const
  readonly sizeBytes: number
  readonly maxFrameBytes: number
  /** `executed` is `unknown` for a frame that came in (the default) and `no` for one that was not sent. */
  constructor(sizeBytes: number, maxFrameBytes: number, options: { executed?: Executed } = {}) {
    super(`A frame of ${sizeBytes} bytes exceeds the limit of ${maxFrameBytes} bytes`, {
      executed: 'unknown',
      ...options,
    })
    this.sizeBytes = sizeBytes
    this.maxFrameBytes = maxFrameBytes
  }
}

/** Something this server cannot do, found out before anything was sent; `executed` is `no`. */
export class UnsupportedFeatureError extends OrbweaverError {
  readonly code = 'ORB_UNSUPPORTED_FEATURE' as const
  readonly feature: string
  constructor(feature: string, detail: string) {
    super(detail, { executed: 'no' })
    this.feature = feature
  }
}

/** A value or option a caller passed that has no meaning here; the message names where it sits. `executed` is `no`. */
export class InvalidArgumentError extends OrbweaverError {
  readonly code = 'ORB_INVALID_ARGUMENT' as const
  constructor(message: string, options: ErrorOptions = {}) {
    super(message, { ...options, executed: 'no' })
  }
}

/** One thing that is wrong in a configuration. */
export interface ConfigProblem {
  /** Where, as a path of the configuration: `replicasets[0].weight`; empty for the whole. */
  readonly path: string
  /** What is wrong and how to put it right. */
  readonly message: string
}

/** A configuration that cannot be used: all its problems at once, each with its path. `executed` is `no`. */
export class ConfigError extends OrbweaverError {
  readonly code = 'ORB_CONFIG' as const
  readonly problems: readonly ConfigProblem[]
  /** @param options.subject - what was configured, in front of the list; default `configuration` */
  constructor(problems: readonly ConfigProblem[], options: { subject?: string } = {}) {
    const list = problems.map(({ path, message }) => (path === '' ? message : `${path}: ${message}`))
    super(`Invalid ${options.subject ?? 'configuration'}: ${list.join('; ')}`, { executed: 'no' })
    this.problems = problems
  }
}

const ACCESS_DENIED = 42

/** Real stacks hold a handful of entries; a hostile one must not become a chain of thousands of errors. */
export const MAX_ERROR_ENTRIES = 256

function assertEntry(entry: BoxErrorEntry, i: number): void {
  for (const key of ['line', 'errno', 'code'] as const) {
    const value = entry[key]
    if (!Number.isInteger(value) || value < 0 || value > 0xffffffff) {
      throw new InvalidArgumentError(`entries[${i}].${key} is ${value}, expected an unsigned 32-bit integer`)
    }
  }
}
