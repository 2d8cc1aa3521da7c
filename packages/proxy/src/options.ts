/* What a proxy can be told, and what is refused at the door: all problems at once. */
import {
  type Address,
  addressProblem,
  type Environment,
  formatAddress,
  parseUri,
  resolveEnvironment,
  type Transport,
} from '@orbweaver/connection'
import { ConfigError, isObject, isOrbweaverError, optionProblems, optionRule } from '@orbweaver/iproto'
import type { ConfigProblem, OptionRule, OptionRules } from '@orbweaver/iproto'
import { type AdminOptions, isLoopback } from './admin.js'
import type { VerifyPolicy } from './auth.js'
import type { BalanceOptions } from './balancing.js'
import type { BounceOptions } from './bounce.js'
import { type ProxyLimits, type ResolvedLimits, resolveLimits, shown } from './limits.js'
import { FunctionNames, ReadRules, type SplitOptions } from './routing.js'
import {
  type ListenOptions,
  type ListenTls,
  certificateProblem,
  networksOf,
  type TargetTls,
  tlsAddress,
} from './listener.js'

/** Something in this process that speaks the protocol without a socket: an embedded storage, another proxy. */
export interface Embedded {
  connect(options?: { user?: string }): Transport
  /** sha1(sha1(password)) of a user, for the credential mode `storage`; undefined: no such user, or one without a password. */
  hash2?(user: string): Uint8Array | undefined
}

/** Where an instance is. */
export type TargetDefinition =
  /** `host:3301`, `unix/:/path`, or an address object; without credentials, for the clients bring theirs. */
  | {
      readonly uri: string | Address
      readonly weight?: number
      /** Where it is, for `balance.policy: 'zone-first'`. */
      readonly zone?: string
      /** The connections to it are encrypted: for builds of Tarantool that do so, and for other proxies. */
      readonly tls?: TargetTls
    }
  | { readonly embedded: Embedded; readonly weight?: number; readonly zone?: string }

/** Where the hashes of passwords come from. */
export type CredentialOptions =
  | {
      /** Users and what Tarantool keeps of their passwords in `_user`: base64 of sha1(sha1(password)). */
      readonly mode: 'static'
      readonly users: Readonly<Record<string, string>>
      /**
       * When a login that matches is shown to the master as well: with each login, when the last confirmation is older than
       * `verifyTtlMs`, or never (then somebody whose password was changed gets in as long as the list says so). Default `always`.
       */
      readonly verify?: VerifyPolicy
      /**
       * Whether a reconfiguration ends clients whose user has another hash than before, or none any more. Default false: they stay, as
       * sessions of a server do when a password is changed.
       */
      readonly evictChangedUsers?: boolean
    }
  | {
      /** They are read from `_user` of the master, by a user who may read it. */
      readonly mode: 'query'
      readonly user: string
      readonly password: string
      /** How long a hash counts as known, in milliseconds. Default 30,000. */
      readonly credentialTtlMs?: number
      readonly verify?: VerifyPolicy
    }
  /** Nowhere from: the master judges each login itself, over a connection opened for each client that has connected. */
  | { readonly mode: 'learn' }
  /** The users of the master itself are asked, which is embedded in this process. */
  | { readonly mode: 'storage' }

/** Calls that need a session of their client's own. */
export interface PinOptions {
  /** Functions that keep something in `box.session`: who calls one gets a connection of its own. A `*` at the end covers all that begin so. */
  readonly functions?: readonly string[]
}

/** What is sent once more. */
export interface RetryOptions {
  /**
   * Reads whose connection was lost: SELECT, PING, WATCH_ONCE and calls of `split.readFunctions`, outside streams, when nothing of
   * their answer was here. Default false.
   */
  readonly reads?: boolean
}

export interface PoolOptions {
  /** How clients of a user are served: on shared lanes, or each on a connection of its own. Default `multiplex`. */
  readonly mode?: Readonly<Record<string, 'multiplex' | 'session'>>
  /** What a turn of a user's client is worth, relative to others. Default 1. */
  readonly weights?: Readonly<Record<string, number>>
  /** What becomes of clients in `session` mode when the master changes: closed, or moved, as if sessions held nothing. Default `close`. */
  readonly onFailover?: Readonly<Record<string, 'close' | 'rebind'>>
}

/** Defaults of `failOverTo`. */
export interface FailoverDefaults {
  /** Until the new master is reached and logged in to. Default 5,000. */
  readonly prepareTimeoutMs?: number
  /** Until nothing is in flight at the old one. Default 5,000. */
  readonly drainTimeoutMs?: number
  /** Until the new one is writable. Default 10,000. */
  readonly handoverTimeoutMs?: number
  /** All of it. Default 20,000. */
  readonly failoverTimeoutMs?: number
}

export interface ProxyOptions {
  /** Where `listen()` without an argument accepts clients. */
  readonly listen?: readonly ListenOptions[]
  /** Instances by the names they are called by here. */
  readonly targets?: Readonly<Record<string, TargetDefinition>>
  /** The master, by name. Without one, requests are refused until `setRw`. */
  readonly rw?: string
  /** Instances that serve reads, by name; used when `split` is enabled. */
  readonly ro?: readonly string[]
  /** Default: no user but guest. */
  readonly credentials?: CredentialOptions
  readonly pool?: PoolOptions
  readonly split?: SplitOptions
  /** How replicas share the reads. */
  readonly balance?: BalanceOptions
  readonly pin?: PinOptions
  readonly retry?: RetryOptions
  /** Whether writes are refused with error 7 while the master says that it is read-only. Default false: the master refuses them. */
  readonly rejectWhenReadOnly?: boolean
  /** A door for operators. Default: none. */
  readonly admin?: AdminOptions
  /** Whether requests are measured for `metrics()`. Default: whether there is a door for operators. */
  readonly isMetered?: boolean
  /** Calls of `vshard.storage.call` go to the replicaset of their bucket. Default: they go where everything goes. */
  readonly bounce?: BounceOptions
  readonly failover?: FailoverDefaults
  readonly limits?: ProxyLimits
  /** What greetings say. Default: the lowest version among the targets. */
  readonly version?: string
  /**
   * Instance uuid of greetings: `zero`, which clients that compare uuids take for "not known"; `target`, that of the master of
   * the moment; or one of your own. Default `zero`.
   */
  readonly uuid?: string
  /** Whether request types that are unknown here are passed on. Default false: error 48, as a server answers them. */
  readonly forwardUnknown?: boolean
  readonly environment?: Partial<Environment>
}

export interface ResolvedTarget {
  readonly address: Address
  /** What makes it the same target after a reconfiguration: its address as text, or the thing in this process. */
  readonly identity: unknown
  readonly weight: number
  readonly zone: string | undefined
  readonly embedded: Embedded | undefined
}

export interface ResolvedOptions {
  readonly listen: readonly ListenOptions[]
  readonly targets: ReadonlyMap<string, ResolvedTarget>
  readonly rw: string | undefined
  readonly ro: readonly string[]
  readonly credentials: CredentialOptions
  readonly verify: VerifyPolicy
  readonly modes: Readonly<Record<string, 'multiplex' | 'session'>>
  readonly weights: Readonly<Record<string, number>>
  readonly onFailover: Readonly<Record<string, 'close' | 'rebind'>>
  readonly bounce: BounceOptions | undefined
  readonly split: SplitOptions
  readonly balance: BalanceOptions
  readonly pinned: FunctionNames
  readonly pin: PinOptions
  readonly retriesReads: boolean
  readonly rejectWhenReadOnly: boolean
  readonly admin: AdminOptions | undefined
  readonly isMetered: boolean
  readonly rules: ReadRules
  readonly failover: Required<FailoverDefaults>
  readonly limits: ResolvedLimits
  readonly version: string | undefined
  readonly uuid: string
  readonly forwardUnknown: boolean
  readonly environment: Environment
}

/** @throws ConfigError with every problem and its path */
export function resolveOptions(options: ProxyOptions): ResolvedOptions {
  const problems = [...optionProblems('', options, SHAPE), ...shapesOfTargets(options)]
  // What follows looks into the parts: a part of the wrong shape ends it, an unknown name does not.
  const isReadable = problems.every(({ path }) => path !== '' && !Object.hasOwn(SHAPE, path.split('.', 1)[0]!))
  if (!isReadable) throw new ConfigError(problems, { subject: 'proxy' })
  const targets = resolveTargets(options.targets ?? {}, problems)
  checkRoles(options, targets, problems)
  checkListeners(options.listen ?? [], problems)
  const credentials: CredentialOptions = options.credentials ?? { mode: 'static', users: {} }
  checkCredentials(credentials, problems)
  checkAdmin(options.admin, problems)
  problems.push(
    ...optionProblems('balance', options.balance ?? {}, BALANCE),
    ...optionProblems('pin', options.pin ?? {}, PIN),
    ...optionProblems('retry', options.retry ?? {}, RETRY),
  )
  checkPositive('failover', { ...options.failover }, DEFAULT_FAILOVER, problems)
  const limits = resolveLimits(options.limits ?? {}, problems)
  const uuid = options.uuid ?? 'zero'
  if (uuid !== 'zero' && uuid !== 'target' && !UUID.test(uuid))
    problems.push({ path: 'uuid', message: `is '${uuid}', expected zero, target or a uuid` })
  if (problems.length > 0) throw new ConfigError(problems, { subject: 'proxy' })
  return {
    listen: options.listen ?? [],
    targets,
    rw: options.rw,
    ro: options.ro ?? [],
    credentials,
    verify:
      'verify' in credentials ? (credentials.verify ?? 'always') : credentials.mode === 'storage' ? 'never' : 'always',
    modes: options.pool?.mode ?? {},
    weights: options.pool?.weights ?? {},
    onFailover: options.pool?.onFailover ?? {},
    bounce: options.bounce,
    split: options.split ?? {},
    balance: options.balance ?? {},
    pin: options.pin ?? {},
    pinned: new FunctionNames(options.pin?.functions ?? []),
    retriesReads: options.retry?.reads ?? false,
    rejectWhenReadOnly: options.rejectWhenReadOnly ?? false,
    admin: options.admin,
    isMetered: options.isMetered ?? options.admin !== undefined,
    rules: new ReadRules(options.split),
    failover: { ...DEFAULT_FAILOVER, ...options.failover },
    limits,
    version: options.version,
    uuid: uuid === 'zero' ? ZERO_UUID : uuid,
    forwardUnknown: options.forwardUnknown ?? false,
    environment: resolveEnvironment(options.environment),
  }
}

/** A target from an address as text. @throws InvalidArgumentError */
export function targetAt(uri: string): ResolvedTarget {
  const { address } = parseUri(uri)
  return { address, identity: formatAddress(address), weight: 1, zone: undefined, embedded: undefined }
}

function resolveTargets(
  definitions: Readonly<Record<string, TargetDefinition>>,
  problems: { path: string; message: string }[],
): Map<string, ResolvedTarget> {
  const targets = new Map<string, ResolvedTarget>()
  for (const [name, definition] of Object.entries(definitions)) {
    const path = `targets.${name}`
    const weight = definition.weight ?? 1
    if (!(weight > 0)) problems.push({ path: `${path}.weight`, message: `is ${weight}, expected a number above 0` })
    const address = resolveAddress(definition, path, problems)
    if (address === undefined) continue
    const embedded = 'embedded' in definition ? definition.embedded : undefined
    const identity = identityOf(definition, address)
    const tls = 'uri' in definition ? definition.tls : undefined
    const dialled = tls === undefined ? address : tlsAddress(address, tls)
    targets.set(name, { address: dialled, identity, weight, zone: definition.zone, embedded })
  }
  return targets
}

function identityOf(definition: TargetDefinition, address: Address): unknown {
  if ('embedded' in definition) return definition.embedded
  if ('connect' in address) return address.connect
  return definition.tls === undefined
    ? formatAddress(address)
    : `tls ${formatAddress(address)} ${JSON.stringify(definition.tls)}`
}

function resolveAddress(
  definition: TargetDefinition,
  path: string,
  problems: { path: string; message: string }[],
): Address | undefined {
  if ('embedded' in definition) {
    const { embedded } = definition
    return { connect: () => embedded.connect() }
  }
  if (typeof definition.uri !== 'string') {
    const problem = addressProblem(definition.uri)
    if (problem === undefined) return definition.uri
    problems.push({ path: `${path}.uri`, message: problem })
    return undefined
  }
  try {
    const { address, user } = parseUri(definition.uri)
    if (user !== undefined) {
      problems.push({
        path: `${path}.uri`,
        message: 'holds credentials; clients bring theirs, so give an address only',
      })
    }
    return address
  } catch (error) {
    if (!isOrbweaverError(error)) throw error
    problems.push({ path: `${path}.uri`, message: error.message })
    return undefined
  }
}

function checkRoles(
  options: ProxyOptions,
  targets: ReadonlyMap<string, ResolvedTarget>,
  problems: { path: string; message: string }[],
): void {
  const known = Object.keys(options.targets ?? {})
  const check = (path: string, name: string): void => {
    if (!targets.has(name) && !known.includes(name)) {
      problems.push({ path, message: `is '${name}', which is no target; there are ${known.join(', ') || 'none'}` })
    }
  }
  if (options.rw !== undefined) check('rw', options.rw)
  for (const [i, name] of (options.ro ?? []).entries()) check(`ro[${i}]`, name)
  for (const [id, { rw, ro = [] }] of Object.entries(options.bounce?.shards ?? {})) {
    check(`bounce.shards.${id}.rw`, rw)
    for (const [i, name] of ro.entries()) check(`bounce.shards.${id}.ro[${i}]`, name)
  }
  if (new Set(options.ro).size !== (options.ro ?? []).length)
    problems.push({ path: 'ro', message: 'names a target twice' })
}

function checkListeners(listen: readonly ListenOptions[], problems: { path: string; message: string }[]): void {
  const seen = new Set<string>()
  for (const [i, address] of listen.entries()) {
    const problem = addressProblem(address, 0)
    if (problem !== undefined) {
      problems.push({ path: `listen[${i}]`, message: problem })
      continue
    }
    if ('connect' in address)
      problems.push({ path: `listen[${i}]`, message: 'is a function, which cannot be listened on' })
    const key = formatAddress(address)
    checkDoor(address, `listen[${i}]`, problems)
    const isFreePort = 'port' in address && address.port === 0
    if (seen.has(key) && !isFreePort) problems.push({ path: `listen[${i}]`, message: 'is listed twice' })
    seen.add(key)
  }
}

function checkDoor({ tls, proxyProtocol }: ListenOptions, path: string, problems: ConfigProblem[]): void {
  if (tls !== undefined) {
    problems.push(...optionProblems(`${path}.tls`, tls, LISTEN_TLS))
    const problem = certificateProblem(tls)
    if (problem !== undefined) problems.push({ path: `${path}.tls`, message: problem })
  }
  if (proxyProtocol === undefined) return
  const { trusted } = proxyProtocol
  if (!Array.isArray(trusted) || networksOf(trusted) === undefined) {
    problems.push({
      path: `${path}.proxyProtocol.trusted`,
      message: 'expected a list of addresses or networks, such as 10.0.0.0/8',
    })
  }
}

function checkAdmin(admin: AdminOptions | undefined, problems: ConfigProblem[]): void {
  if (admin === undefined) return
  problems.push(...optionProblems('admin', admin, ADMIN))
  if (admin.token === undefined && typeof admin.host === 'string' && !isLoopback(admin.host)) {
    problems.push({
      path: 'admin.token',
      message: `is missing: an address that others reach (${admin.host}) needs one`,
    })
  }
}

function checkCredentials(credentials: CredentialOptions, problems: { path: string; message: string }[]): void {
  if (credentials.mode === 'static') {
    checkUsers(credentials.users, problems)
    const { evictChangedUsers } = credentials
    if (evictChangedUsers !== undefined && typeof evictChangedUsers !== 'boolean')
      problems.push({ path: 'credentials.evictChangedUsers', message: 'expected true or false' })
  } else if (credentials.mode === 'query') {
    for (const name of ['user', 'password'] as const) {
      if (typeof credentials[name] !== 'string')
        problems.push({ path: `credentials.${name}`, message: 'must be a string' })
    }
    const { credentialTtlMs } = credentials
    if (credentialTtlMs !== undefined && !(credentialTtlMs > 0)) {
      problems.push({
        path: 'credentials.credentialTtlMs',
        message: `is ${credentialTtlMs}, expected a number above 0`,
      })
    }
  } else if (!MODES.has(credentials.mode)) {
    problems.push({ path: 'credentials.mode', message: 'is not known, expected static, query, learn or storage' })
  }
}

function checkUsers(users: Readonly<Record<string, string>>, problems: { path: string; message: string }[]): void {
  for (const [user, hash] of Object.entries(users)) {
    const bytes = typeof hash === 'string' ? Buffer.from(hash, 'base64') : NO_BYTES
    if (bytes.length !== HASH_BYTES || !BASE64_OF_20_BYTES.test(hash)) {
      problems.push({
        path: `credentials.users.${user}`,
        message: `expected base64 of ${HASH_BYTES} bytes (sha1(sha1(password)), as in _user)`,
      })
    }
  }
}

function checkPositive(
  path: string,
  given: Record<string, unknown>,
  known: object,
  problems: { path: string; message: string }[],
): void {
  for (const [name, value] of Object.entries(given)) {
    if (!(name in known)) problems.push({ path: `${path}.${name}`, message: 'is not known here' })
    else if (value !== undefined && !(typeof value === 'number' && value > 0)) {
      problems.push({ path: `${path}.${name}`, message: `is ${shown(value)}, expected a number above 0` })
    }
  }
}

const DEFAULT_FAILOVER: Required<FailoverDefaults> = {
  prepareTimeoutMs: 5_000,
  drainTimeoutMs: 5_000,
  handoverTimeoutMs: 10_000,
  failoverTimeoutMs: 20_000,
}
const SHAPE: OptionRules = {
  listen: { ...optionRule.list, expected: 'a list of addresses' },
  targets: { ...optionRule.object, expected: 'targets by their names' },
  rw: { ...optionRule.text, expected: 'the name of a target' },
  ro: { ...optionRule.list, expected: 'a list of names of targets' },
  credentials: optionRule.object,
  pool: optionRule.object,
  split: optionRule.object,
  bounce: optionRule.object,
  failover: optionRule.object,
  limits: optionRule.object,
  version: { ...optionRule.text, expected: 'the version that greetings say, such as 2.11.0' },
  uuid: optionRule.text,
  forwardUnknown: optionRule.flag,
  balance: optionRule.object,
  pin: optionRule.object,
  retry: optionRule.object,
  rejectWhenReadOnly: optionRule.flag,
  admin: optionRule.object,
  isMetered: optionRule.flag,
  environment: optionRule.object,
} satisfies Record<keyof ProxyOptions, OptionRule>

const BALANCE: OptionRules = {
  policy: optionRule.oneOf('least-inflight', 'round-robin', 'random-2', 'zone-first'),
  zone: optionRule.text,
  slowStartMs: optionRule.fromZero,
  maxReplicaLagMs: optionRule.fromZero,
  lagMs: optionRule.function,
  servesWithoutLag: optionRule.flag,
} satisfies Record<keyof BalanceOptions, OptionRule>

const PIN: OptionRules = { functions: { ...optionRule.list, expected: 'a list of names of functions' } }
const RETRY: OptionRules = { reads: optionRule.flag }
const ADMIN: OptionRules = {
  host: optionRule.text,
  port: optionRule.required(optionRule.integer(0, 65_535)),
  token: optionRule.text,
  readToken: optionRule.text,
  reload: optionRule.function,
} satisfies Record<keyof AdminOptions, OptionRule>
const LISTEN_TLS: OptionRules = {
  cert: optionRule.required(optionRule.text),
  key: optionRule.required(optionRule.text),
  ca: optionRule.text,
} satisfies Record<keyof ListenTls, OptionRule>
const TARGET_TLS: OptionRules = {
  ca: optionRule.text,
  cert: optionRule.text,
  key: optionRule.text,
  serverName: optionRule.text,
} satisfies Record<keyof TargetTls, OptionRule>

const TARGET: OptionRules = {
  uri: optionRule.anything, // judged as an address
  embedded: {
    expected: 'an embedded storage',
    fits: (value) => isObject(value) && typeof value['connect'] === 'function',
  },
  weight: optionRule.anything, // judged beside its default
  zone: optionRule.text,
  tls: optionRule.object,
}

function shapesOfTargets(options: unknown): ConfigProblem[] {
  const targets = isObject(options) ? options['targets'] : undefined
  return !isObject(targets)
    ? []
    : Object.entries(targets).flatMap(([name, target]: [string, unknown]) => {
        const problems = optionProblems(`targets.${name}`, target, TARGET)
        if (isObject(target) && target['tls'] !== undefined)
          problems.push(...optionProblems(`targets.${name}.tls`, target['tls'], TARGET_TLS))
        if (isObject(target) && 'uri' in target === 'embedded' in target)
          problems.push({ path: `targets.${name}`, message: 'needs a uri, or a storage as `embedded`, and not both' })
        return problems
      })
}

const MODES: ReadonlySet<string> = new Set(['static', 'query', 'learn', 'storage'])
const ZERO_UUID = '00000000-0000-0000-0000-000000000000'
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i
const HASH_BYTES = 20
const BASE64_OF_20_BYTES = /^[A-Za-z\d+/]{27}=$/
const NO_BYTES = Buffer.alloc(0)
