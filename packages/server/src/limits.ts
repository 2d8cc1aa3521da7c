import { ConfigError } from '@orbweaver/iproto'

/**
 * What a peer may cost before it is cut off. Every number is a bound on memory or time that a hostile or broken
 * client could otherwise choose; the defaults are those of the design of the proxy and the storage.
 */
export interface ServerLimits {
  /** Largest frame of a session that has logged in, in bytes. Default 64 MiB. */
  readonly maxFrameBytes?: number
  /** Largest frame before the first successful login, in bytes. Default 64 KiB. */
  readonly maxFrameBytesBeforeLogin?: number
  /** Sessions at one time; a further connection is closed at once. Default 10,000. */
  readonly maxSessions?: number
  /** Unread replies of one session, in bytes, above which its requests are no longer read; at least 256 KiB, what a transport takes anyway. Default 16 MiB. */
  readonly maxPendingBytes?: number
  /** How long a session may take no byte of its pending replies, in milliseconds. Default 60,000. */
  readonly stallTimeoutMs?: number
  /** How long a frame may stay incomplete, in milliseconds. Default 60,000. */
  readonly frameTimeoutMs?: number
  /** How long the greeting may take to be made, in milliseconds. Default 5,000. */
  readonly greetTimeoutMs?: number
  /** Malformed frames of one session before it is closed. Default 100. */
  readonly maxMalformedFrames?: number
  /** Failed logins of one session before it is closed. Default 10. */
  readonly maxFailedLogins?: number
  /** Keys one session may watch. Default 1,000. */
  readonly maxWatchedKeys?: number
}

const LEAST_PENDING_BYTES = 256 * 1024

const DEFAULT_LIMITS: Required<ServerLimits> = {
  maxFrameBytes: 64 * 1024 * 1024,
  maxFrameBytesBeforeLogin: 64 * 1024,
  maxSessions: 10_000,
  maxPendingBytes: 16 * 1024 * 1024,
  stallTimeoutMs: 60_000,
  frameTimeoutMs: 60_000,
  greetTimeoutMs: 5_000,
  maxMalformedFrames: 100,
  maxFailedLogins: 10,
  maxWatchedKeys: 1_000,
}

/**
 * The limits with their defaults.
 * @throws ConfigError naming each limit that is not a positive number
 */
export function resolveLimits(limits: ServerLimits = {}): Required<ServerLimits> {
  const problems: { path: string; message: string }[] = []
  for (const [name, value] of Object.entries(limits)) {
    if (!(name in DEFAULT_LIMITS)) {
      problems.push({
        path: `limits.${name}`,
        message: `is not a limit; known are ${Object.keys(DEFAULT_LIMITS).join(', ')}`,
      })
    } else if (value !== undefined && !(typeof value === 'number' && value > 0)) {
      problems.push({ path: `limits.${name}`, message: `is ${String(value)}, expected a number above 0` })
    }
  }
  if (problems.length > 0) throw new ConfigError(problems, { subject: 'server' })
  const given = Object.fromEntries(Object.entries(limits).filter(([, value]) => value !== undefined))
  const resolved = { ...DEFAULT_LIMITS, ...given }
  return { ...resolved, maxPendingBytes: Math.max(resolved.maxPendingBytes, LEAST_PENDING_BYTES) }
}
