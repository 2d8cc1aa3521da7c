/** What a replicaset can be told, its defaults, and what is refused at the door. */
import { type Environment, type ReconnectPolicy, resolveEnvironment } from '@orbweaver/connection'
import { ConfigError, type ConfigProblem, isObject } from '@orbweaver/iproto'
import type { Dialect } from './attempt.js'
import { checkDefinition, type ReplicasetDefinition } from './definition.js'
import type { BufferLimits } from './failover-buffer.js'
import { createHoldBudget, HOLD_DEFAULTS, type HoldBudget } from './hold-budget.js'
import type { InstanceSettings } from './instance.js'
import type { OnConflict } from './master-rules.js'

/** Distance of a zone from ours; smaller is nearer. undefined: not known, which is farthest. */
export type ZoneWeights = (from: string | number, to: string | number) => number | undefined

/** Holding requests through a failover. */
export interface BufferOptions {
  /** `off`: a write that finds no master fails at once. `observe`: as off, and what would have waited is counted. Default `on`. */
  readonly mode?: 'on' | 'off' | 'observe'
  /** Longest wait of one request, over all its waits; its own deadline may be nearer. Default 10,000: a default election takes 3.5 to 4 s. */
  readonly windowMs?: number
  /** Longest window; at least `windowMs`. Default 20,000. */
  readonly maxDurationMs?: number
  /** After a window that ended by time, writes fail at once for so long, or until a master is found. Default 20,000. */
  readonly cooldownMs?: number
  /** Waiting requests; only without a `holdBudget`. Default 10,000. */
  readonly size?: number
  /** Their bytes; only without a `holdBudget`. Default 64 MiB. */
  readonly bytes?: number
  /** Only without a `holdBudget`. Default 16. */
  readonly minShare?: number
  /** Requests in flight while what waited drains. Default 8. */
  readonly drainConcurrency?: number
  /** Times one request is sent, for all reasons together. Default 5. */
  readonly maxAttempts?: number
  /** More windows than this, and writes fail at once. Default 10. */
  readonly maxWindowsPerMinute?: number
}

/** Options of `createReplicaset`. Times are milliseconds. */
export interface ReplicasetOptions {
  readonly definition: ReplicasetDefinition
  /** Who to be, at instances whose uri does not say; default guest. */
  readonly user?: string
  readonly password?: string
  /** The words of what runs on the instances, such as vshard's storages. */
  readonly dialect?: Dialect
  /** Slots and bytes of waiting requests, shared with others. Default: one of its own, by `buffer`. */
  readonly holdBudget?: HoldBudget
  readonly buffer?: BufferOptions
  /** Where we stand. */
  readonly zone?: string | number
  /** Default: our own zone is near, all others are equally far. */
  readonly zoneWeights?: ZoneWeights
  /** Several instances claim with the same right. `keep`: the current master stays. `error`: writes fail. Default `keep`. */
  readonly onConflict?: OnConflict
  /** Whom to take among equal claims when there is no current master; the id of an instance. */
  readonly preferred?: string
  /** Connections to each instance; the first carries events and pings too. Default 1. */
  readonly connections?: number
  /** One deadline for everything until a connection is usable. Default 5,000. */
  readonly connectTimeoutMs?: number
  /** How to come back to an instance. Default: 50 to 1,000 doubling, for ever: it is wanted within about a second of being ready. */
  readonly reconnect?: Partial<Omit<ReconnectPolicy, 'retries'>>
  /** How long a call may take when it does not say. Default 10,000; Infinity: none. */
  readonly requestTimeoutMs?: number
  /** A ping goes where nothing else was received for so long. Default 1,000. */
  readonly pingIntervalMs?: number
  /** An instance from which nothing came for so long is silent: nothing is sent to it. Default 2,000; more than `pingIntervalMs`. */
  readonly silentAfterMs?: number
  /** A connection that was silent for so long is made anew. Default 20,000. */
  readonly redialSilentAfterMs?: number
  /** Polls of instances without events, while no master is known. Default 500. */
  readonly pollSearchIntervalMs?: number
  /** The same while one is known. Default 5,000. */
  readonly pollIntervalMs?: number
  /** Default 1,000. */
  readonly pollTimeoutMs?: number
  /** How often an unanswered fence is repeated. Default 500. */
  readonly lookTimeoutMs?: number
  /** How long a claim with an old term must stay alone before it is believed. Default 2,000. */
  readonly staleGraceMs?: number
  /** How long requests in flight may finish at an instance that shuts down. Default 2,500. */
  readonly stopTimeoutMs?: number
  /** Reads leave an instance alone for so long after it said that it cannot serve. Default 5,000 (vshard's). */
  readonly restMs?: number
  /** How often replicas are asked how far they are behind. Default: only once a call asks for `maxLagMs`, then 1,000. */
  readonly lagIntervalMs?: number
  readonly environment?: Partial<Environment>
}

/** Options with all their values. */
export interface Settings {
  readonly definition: ReplicasetDefinition
  readonly dialect: Dialect | undefined
  readonly holdBudget: HoldBudget
  readonly limits: BufferLimits
  readonly zone: string | number | undefined
  readonly zoneWeights: ZoneWeights
  readonly onConflict: OnConflict
  readonly preferred: string | undefined
  readonly instance: InstanceSettings
  readonly requestTimeoutMs: number
  readonly pollSearchIntervalMs: number
  readonly pollIntervalMs: number
  readonly staleGraceMs: number
  readonly restMs: number
  readonly lagIntervalMs: number | undefined
  readonly environment: Environment
}

/** @throws ConfigError with every problem and its path */
export function resolveReplicasetOptions(options: ReplicasetOptions): Settings {
  if (!isObject(options) || !isObject(options.definition)) {
    const message = 'expected the replicaset: { id, instances: [{ id, uri }] }'
    throw new ConfigError([{ path: 'definition', message }], { subject: 'replicaset options' })
  }
  const check = new Check()
  for (const name of Object.keys(options)) if (!NAMES.has(name)) check.problem(name, 'is no option')
  const { buffer = {} } = options
  for (const name of Object.keys(buffer)) if (!BUFFER_NAMES.has(name)) check.problem(`buffer.${name}`, 'is no option')
  const definition = check.definition(options.definition)
  const mode = buffer.mode ?? 'on'
  if (!['on', 'off', 'observe'].includes(mode)) check.problem('buffer.mode', 'must be on, off or observe')
  const limits: BufferLimits = {
    mode,
    windowMs: check.duration('buffer.windowMs', buffer.windowMs, 10_000),
    maxDurationMs: check.duration('buffer.maxDurationMs', buffer.maxDurationMs, Math.max(20_000, buffer.windowMs ?? 0)),
    cooldownMs: check.duration('buffer.cooldownMs', buffer.cooldownMs, 20_000, 0),
    drainConcurrency: check.count('buffer.drainConcurrency', buffer.drainConcurrency, 8),
    maxAttempts: check.count('buffer.maxAttempts', buffer.maxAttempts, 5),
    maxWindowsPerMinute: check.count('buffer.maxWindowsPerMinute', buffer.maxWindowsPerMinute, 10),
  }
  if (limits.maxDurationMs < limits.windowMs)
    check.problem('buffer.maxDurationMs', `is less than windowMs (${String(limits.windowMs)})`)
  const pingIntervalMs = check.duration('pingIntervalMs', options.pingIntervalMs, 1_000)
  const silentAfterMs = check.duration('silentAfterMs', options.silentAfterMs, 2 * pingIntervalMs)
  const redialSilentAfterMs = check.duration(
    'redialSilentAfterMs',
    options.redialSilentAfterMs,
    Math.max(20_000, 2 * silentAfterMs),
  )
  if (silentAfterMs <= pingIntervalMs)
    check.problem('silentAfterMs', `must be more than pingIntervalMs (${String(pingIntervalMs)})`)
  if (redialSilentAfterMs <= silentAfterMs)
    check.problem('redialSilentAfterMs', `must be more than silentAfterMs (${String(silentAfterMs)})`)
  const onConflict = options.onConflict ?? 'keep'
  if (onConflict !== 'keep' && onConflict !== 'error') check.problem('onConflict', 'must be keep or error')
  if (options.password !== undefined && options.user === undefined)
    check.problem('password', 'needs a user: a password alone names nobody')
  const environment = resolveEnvironment(options.environment)
  const settings: Settings = {
    definition,
    dialect: options.dialect,
    holdBudget: options.holdBudget ?? check.budget(buffer),
    limits,
    zone: options.zone,
    zoneWeights: options.zoneWeights ?? ((from, to) => (from === to ? 0 : undefined)),
    onConflict,
    preferred: options.preferred,
    instance: {
      user: options.user,
      password: options.password,
      connections: check.count('connections', options.connections, 1),
      connectTimeoutMs: check.duration('connectTimeoutMs', options.connectTimeoutMs, 5_000),
      reconnect: { minDelayMs: 50, maxDelayMs: 1_000, ...options.reconnect },
      pingIntervalMs,
      silentAfterMs,
      redialSilentAfterMs,
      lookTimeoutMs: check.duration('lookTimeoutMs', options.lookTimeoutMs, 500),
      pollTimeoutMs: check.duration('pollTimeoutMs', options.pollTimeoutMs, 1_000),
      stopTimeoutMs: check.duration('stopTimeoutMs', options.stopTimeoutMs, 2_500),
      dialect: options.dialect,
      environment,
    },
    requestTimeoutMs: check.duration('requestTimeoutMs', options.requestTimeoutMs, 10_000),
    pollSearchIntervalMs: check.duration('pollSearchIntervalMs', options.pollSearchIntervalMs, 500),
    pollIntervalMs: check.duration('pollIntervalMs', options.pollIntervalMs, 5_000),
    staleGraceMs: check.duration('staleGraceMs', options.staleGraceMs, 2_000),
    restMs: check.duration('restMs', options.restMs, 5_000),
    lagIntervalMs:
      options.lagIntervalMs === undefined ? undefined : check.duration('lagIntervalMs', options.lagIntervalMs, 1_000),
    environment,
  }
  if (check.problems.length > 0) throw new ConfigError(check.problems, { subject: 'replicaset options' })
  return settings
}

class Check {
  readonly problems: ConfigProblem[] = []

  problem(path: string, message: string): void {
    this.problems.push({ path, message })
  }

  duration(path: string, value: number | undefined, byDefault: number, least?: number): number {
    if (value === undefined) return byDefault
    const isRight = typeof value === 'number' && (least === undefined ? value > 0 : value >= least)
    if (!isRight)
      this.problem(
        path,
        `is ${String(value)}, expected milliseconds of ${least === undefined ? 'more than 0' : `at least ${String(least)}`}`,
      )
    return value
  }

  count(path: string, value: number | undefined, byDefault: number): number {
    if (value === undefined) return byDefault
    if (!Number.isInteger(value) || value < 1) this.problem(path, `is ${String(value)}, expected a positive integer`)
    return value
  }

  definition(definition: ReplicasetDefinition): ReplicasetDefinition {
    try {
      return checkDefinition(definition, 'definition')
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error
      this.problems.push(...error.problems)
      return definition
    }
  }

  budget(buffer: BufferOptions): HoldBudget {
    const size = this.count('buffer.size', buffer.size, HOLD_DEFAULTS.size)
    const bytes = this.count('buffer.bytes', buffer.bytes, HOLD_DEFAULTS.bytes)
    const minShare = this.count('buffer.minShare', buffer.minShare, HOLD_DEFAULTS.minShare)
    return this.problems.length > 0 ? createHoldBudget() : createHoldBudget({ size, bytes, minShare })
  }
}

const NAMES: ReadonlySet<string> = new Set<keyof ReplicasetOptions>([
  'definition',
  'user',
  'password',
  'dialect',
  'holdBudget',
  'buffer',
  'zone',
  'zoneWeights',
  'onConflict',
  'preferred',
  'connections',
  'connectTimeoutMs',
  'reconnect',
  'requestTimeoutMs',
  'pingIntervalMs',
  'silentAfterMs',
  'redialSilentAfterMs',
  'pollSearchIntervalMs',
  'pollIntervalMs',
  'pollTimeoutMs',
  'lookTimeoutMs',
  'staleGraceMs',
  'stopTimeoutMs',
  'restMs',
  'lagIntervalMs',
  'environment',
])
const BUFFER_NAMES: ReadonlySet<string> = new Set<keyof BufferOptions>([
  'mode',
  'windowMs',
  'maxDurationMs',
  'cooldownMs',
  'size',
  'bytes',
  'minShare',
  'drainConcurrency',
  'maxAttempts',
  'maxWindowsPerMinute',
])
