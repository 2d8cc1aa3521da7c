/** What clients and targets may cost. Every number is a bound on memory or on time. */
export interface ProxyLimits {
  /** Clients at one time. Default 10,000. */
  readonly maxClients?: number
  /** Clients at one time of one user. Default: no limit of its own. */
  readonly maxClientsPerUser?: number
  /** Clients at one time from one address; those of a unix socket are not counted. Default: no limit of its own. */
  readonly maxClientsPerAddress?: number
  /** Largest frame of a client that has logged in, in bytes. Default 64 MiB. */
  readonly maxFrameBytes?: number
  /** Largest frame of a guest, in bytes. Default 64 KiB. */
  readonly maxFrameBytesBeforeLogin?: number
  /** Largest reply of a target, in bytes. Default 256 MiB. */
  readonly maxReplyBytes?: number
  /** How long a frame may stay incomplete, in milliseconds. Default 30,000. */
  readonly frameTimeoutMs?: number
  /** How long a client may take no byte of its replies, in milliseconds. Default 60,000. */
  readonly stallTimeoutMs?: number
  /** How long a client may be connected without a request, in milliseconds. Default 60,000; Infinity: for ever. */
  readonly silentTimeoutMs?: number
  /** Malformed frames of one client before it is closed. Default 10. */
  readonly maxMalformedFrames?: number
  /** Failed logins on one connection before it is closed. Default 5. */
  readonly authFailuresPerConnection?: number
  /** Requests of one client in flight; its socket is not read beyond. Default 1,024. */
  readonly maxInflightPerClient?: number
  /** Bytes of one client's requests that wait in the proxy; its socket is not read beyond. Default 256 KiB. */
  readonly maxBacklogBytes?: number
  /** Unread replies of one client, in bytes, above which its requests are no longer read. Default 1 MiB. */
  readonly clientOutSoftBytes?: number
  /**
   * Unread replies of one client, in bytes, above which it gets a connection of its own, whose replies can be left at the
   * target. Default 8 MiB.
   */
  readonly clientOutPinBytes?: number
  /** Unread replies of one client, in bytes, above which it is closed. Default 64 MiB. */
  readonly clientOutHardBytes?: number
  /** Unread replies of all clients, in bytes; above it the client with most is closed. Default 512 MiB. */
  readonly totalOutBytes?: number
  /** Requests in flight on one lane; a power of two. Default 8,192. */
  readonly maxInflightPerLane?: number
  /** Bytes of requests in flight on one lane. Default 8 MiB. */
  readonly maxInflightBytesPerLane?: number
  /** Lanes of one user, feature set and target. Default 8. */
  readonly maxLanesPerKey?: number
  /** How long a lane without requests stays, in milliseconds. Default 60,000. */
  readonly laneIdleMs?: number
  /** How long a request waits for a connection to its target, in milliseconds. Default 1,000. */
  readonly connectWaitMs?: number
  /** How long one attempt to connect may take, in milliseconds. Default 5,000. */
  readonly connectTimeoutMs?: number
  /** How long a request may be in flight before it is answered with error 78, in milliseconds. Default 0: for ever. */
  readonly requestTimeoutMs?: number
  /** Silence with requests in flight after which a lane is asked for a sign of life, in milliseconds. Default 1,000. */
  readonly pingIntervalMs?: number
  /** Silence of an idle lane after which it is asked, in milliseconds. Default 5,000. */
  readonly idlePingMs?: number
  /** How long that sign may take, in milliseconds; missing twice, the lane is closed. Default 3,000. */
  readonly pingTimeoutMs?: number
  /** How long a request waits while the proxy is paused, in milliseconds from its arrival. Default 10,000. */
  readonly pauseMaxWaitMs?: number
  /** Requests that wait during a pause; beyond, clients are not read. Default 10,000. */
  readonly pauseMaxRequests?: number
  /** Bytes of such requests. Default 64 MiB. */
  readonly pauseMaxBytes?: number
  /** Clients that go on in one turn of the loop when a pause ends. Default 64. */
  readonly resumeConcurrency?: number
  /** Open transactions on one lane. Default 64. */
  readonly maxOpenTransactionsPerLane?: number
  /** How long a transaction may stay open without a request, in milliseconds. Default 60,000. */
  readonly idleInTransactionMs?: number
  /** Keys one client may watch. Default 1,000. */
  readonly maxWatchKeysPerClient?: number
  /** Largest value of a watched key, in bytes. Default 1 MiB. */
  readonly maxEventBytes?: number
  /** Prepared statements of one client. Default 200. */
  readonly maxStatementsPerClient?: number
  /** Text of the prepared statements of one client, in bytes. Default 1 MiB. */
  readonly maxStatementBytesPerClient?: number
  /** Clients with a connection of their own. Default: a tenth of `maxClients`. */
  readonly maxPinned?: number
  /** How long a target that announces its end is still served, in milliseconds; less than its own 3 s. Default 2,500. */
  readonly backendStopMs?: number
  /** How long the secret of a login that nobody uses is kept for reconnects, in milliseconds. Default 600,000. */
  readonly forgetAfterMs?: number
  /** How long a login counts as confirmed under `verify: 'ttl'`, in milliseconds. Default 10,000. */
  readonly verifyTtlMs?: number
}

export type ResolvedLimits = Required<ProxyLimits>

export const DEFAULT_LIMITS: ResolvedLimits = {
  maxClients: 10_000,
  maxClientsPerUser: Number.POSITIVE_INFINITY,
  maxClientsPerAddress: Number.POSITIVE_INFINITY,
  maxFrameBytes: 67_108_864,
  maxFrameBytesBeforeLogin: 65_536,
  maxReplyBytes: 268_435_456,
  frameTimeoutMs: 30_000,
  stallTimeoutMs: 60_000,
  silentTimeoutMs: 60_000,
  maxMalformedFrames: 10,
  authFailuresPerConnection: 5,
  maxInflightPerClient: 1_024,
  maxBacklogBytes: 262_144,
  clientOutSoftBytes: 1_048_576,
  clientOutPinBytes: 8_388_608,
  clientOutHardBytes: 67_108_864,
  totalOutBytes: 536_870_912,
  maxInflightPerLane: 8_192,
  maxInflightBytesPerLane: 8_388_608,
  maxLanesPerKey: 8,
  laneIdleMs: 60_000,
  connectWaitMs: 1_000,
  connectTimeoutMs: 5_000,
  requestTimeoutMs: 0,
  pingIntervalMs: 1_000,
  idlePingMs: 5_000,
  pingTimeoutMs: 3_000,
  pauseMaxWaitMs: 10_000,
  pauseMaxRequests: 10_000,
  pauseMaxBytes: 67_108_864,
  resumeConcurrency: 64,
  maxOpenTransactionsPerLane: 64,
  idleInTransactionMs: 60_000,
  maxWatchKeysPerClient: 1_000,
  maxEventBytes: 1_048_576,
  maxStatementsPerClient: 200,
  maxStatementBytesPerClient: 1_048_576,
  maxPinned: 1_000,
  backendStopMs: 2_500,
  forgetAfterMs: 600_000,
  verifyTtlMs: 10_000,
}

/** A value of a configuration in a message about it. */
export function shown(value: unknown): string {
  return typeof value === 'number' || typeof value === 'string' || value === null
    ? String(value)
    : `a value of type ${typeof value}`
}

/** The limits with their defaults; what is wrong with them goes to `problems`. */
export function resolveLimits(limits: ProxyLimits, problems: { path: string; message: string }[]): ResolvedLimits {
  const given: Record<string, number> = {}
  for (const [name, value] of Object.entries(limits) as [string, unknown][]) {
    if (value === undefined) continue
    if (!(name in DEFAULT_LIMITS)) {
      problems.push({ path: `limits.${name}`, message: 'is not a limit of the proxy' })
    } else if (typeof value !== 'number' || !(name === 'requestTimeoutMs' ? value >= 0 : value > 0)) {
      problems.push({ path: `limits.${name}`, message: `is ${shown(value)}, expected a number above 0` })
    } else {
      given[name] = value
    }
  }
  const resolved: ResolvedLimits = { ...DEFAULT_LIMITS, ...given }
  const maxPinned = given['maxPinned'] ?? Math.max(1, Math.floor(resolved.maxClients / 10))
  const lane = resolved.maxInflightPerLane
  if (!Number.isInteger(Math.log2(lane))) {
    problems.push({ path: 'limits.maxInflightPerLane', message: `is ${lane}, expected a power of two` })
  }
  if (resolved.clientOutSoftBytes > resolved.clientOutHardBytes) {
    problems.push({
      path: 'limits.clientOutSoftBytes',
      message: `is ${resolved.clientOutSoftBytes}, more than clientOutHardBytes (${resolved.clientOutHardBytes})`,
    })
  }
  if (resolved.maxFrameBytesBeforeLogin > resolved.maxFrameBytes) {
    problems.push({
      path: 'limits.maxFrameBytesBeforeLogin',
      message: `is ${resolved.maxFrameBytesBeforeLogin}, more than maxFrameBytes (${resolved.maxFrameBytes})`,
    })
  }
  return { ...resolved, maxPinned }
}
