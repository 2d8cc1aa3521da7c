/* What a local cluster can be told, and what is refused at the door. */
import { ConfigError, isObject, optionProblems, optionRule } from '@orbweaver/iproto'
import type { ConfigProblem, OptionRules } from '@orbweaver/iproto'
import type { EngineDriver, SetUp } from './engine-driver.js'
import type { ClusterInstance } from './managed-instance.js'

export interface ClusterOptions {
  /** Default 2. */
  readonly replicasets?: number
  /** Instances of each replicaset. Default 3. */
  readonly instances?: number
  /** Default 3,000, as vshard's. */
  readonly bucketCount?: number
  /** Whether errors and results call instances by uuid or by name. Default `uuid`. */
  readonly identification?: 'uuid' | 'name'
  /** The login of routers, replicas and tools. Default `orbweaver`. */
  readonly user?: string
  readonly password?: string
  /** Default 127.0.0.1. */
  readonly host?: string
  /** The first of a row of ports. Default: whichever are free. */
  readonly firstPort?: number
  /** All instances in this process. Default false: each in a process of its own. */
  readonly inProcess?: boolean
  /** Instances that must have a write before it is acknowledged. Default: a majority, so that no failover loses one. */
  readonly quorum?: number
  /** `full`: an instance that ends and is started again has everything it acknowledged. Default `none`. */
  readonly durability?: 'none' | 'full'
  /** Run in every instance before it listens: functions and the like. The URL of a module that exports `setUp`, or (inProcess) a function. */
  readonly setUp?: SetUp | string
  /** URL of a Lua file that every Tarantool runs once it is configured: its functions and spaces. */
  readonly lua?: string
  /** Serve `vshard.storage.*` and create the buckets. Default true. */
  readonly vshard?: boolean
  /** Told as instances come up: `a1 is up (3 of 9)`. */
  readonly onProgress?: (text: string) => void
  /** Told when an instance ends that nobody here ended; `how` is its exit code or signal. */
  readonly onExit?: (instance: ClusterInstance, how: number | string) => void
  /** Aborted while the cluster starts: what has started is ended, and `startCluster` rejects with the reason. */
  readonly signal?: AbortSignal
  /** Default: the embedded engine. */
  readonly engine?: EngineDriver
}

/** @throws ConfigError with every problem */
export function validateClusterOptions(options: ClusterOptions): void {
  const problems = optionProblems('', options, CLUSTER)
  if (isObject(options)) problems.push(...contradictionsIn(options))
  if (problems.length > 0) throw new ConfigError(problems, { subject: 'cluster' })
}

/** What no option says by itself. (Comparisons with what is no number are false: that was told already.) */
function contradictionsIn({
  replicasets = 2,
  instances = 3,
  quorum = 1,
  firstPort = 1,
}: ClusterOptions): ConfigProblem[] {
  const problems: ConfigProblem[] = []
  if (quorum > instances) {
    const message = `is ${quorum}, more than the ${instances} instances of a replicaset`
    problems.push({ path: 'quorum', message })
  }
  const last = firstPort + replicasets * instances - 1
  if (firstPort <= LAST_PORT && last > LAST_PORT)
    problems.push({ path: 'firstPort', message: `is ${firstPort}, and the last instance would need port ${last}` })
  return problems
}

const LAST_PORT = 65_535

const CLUSTER: OptionRules = {
  replicasets: optionRule.positiveInteger,
  instances: optionRule.positiveInteger,
  bucketCount: optionRule.positiveInteger,
  quorum: optionRule.positiveInteger,
  identification: optionRule.oneOf('uuid', 'name'),
  user: optionRule.text,
  password: { expected: 'a string', fits: (value) => typeof value === 'string', isSecret: true },
  host: optionRule.text,
  firstPort: optionRule.integer(1, LAST_PORT),
  inProcess: optionRule.flag,
  durability: optionRule.oneOf('none', 'full'),
  setUp: {
    expected: 'a function, or the URL of a module that exports setUp',
    fits: (value) => typeof value === 'function' || optionRule.text.fits(value),
  },
  lua: { expected: 'the URL of a Lua file', fits: (value) => typeof value === 'string' && URL.canParse(value) },
  vshard: optionRule.flag,
  onProgress: optionRule.function,
  onExit: optionRule.function,
  signal: { expected: 'an AbortSignal', fits: (value) => value instanceof AbortSignal },
  engine: {
    expected: 'an engine: embeddedEngine, or what tarantoolEngine() returns',
    fits: (value) => isObject(value) && typeof value['start'] === 'function',
  },
}
