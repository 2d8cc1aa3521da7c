import type { Environment } from '@orbweaver/connection'
import { ConfigError, isObject, optionProblems, optionRule } from '@orbweaver/iproto'
import type { DecodeOptions, OptionRule, OptionRules } from '@orbweaver/iproto'
import type { ClusterConfig } from '@orbweaver/vshard'
import type { DiscoveryMode } from './discovery.js'
import type { ReplicasetTuning } from './topology.js'
import type { TopologySource } from './topology-source.js'

export interface RouterOptions {
  /** The cluster, as `readTopology` and `readVshardConfig` of `@orbweaver/vshard` make it. */
  readonly config: ClusterConfig
  /** Where to look for another configuration while the router runs. Default: nowhere; `reconfigure` takes one by hand. */
  readonly topology?: TopologySource
  /** How often `topology` is read when nothing asks for it, in milliseconds. Default 60,000. */
  readonly topologyIntervalMs?: number
  /** What events, traces and logs call it. Default `router`. */
  readonly name?: string
  /** vshard's `discovery_mode`. Default: what the configuration says, else `on`. */
  readonly discoveryMode?: DiscoveryMode
  /** Default of `timeout`, in milliseconds. Default 10,000. */
  readonly callTimeoutMs?: number
  /** How values of answers appear in JavaScript. */
  readonly decode?: DecodeOptions
  /** Options of the replicasets: `buffer`, `connections`, times. All of one router share one buffer of waiting calls. */
  readonly replicasets?: ReplicasetTuning
  readonly environment?: Partial<Environment>
}

const duration: OptionRule = {
  expected: 'milliseconds above 0, or Infinity',
  fits: (value) => typeof value === 'number' && value > 0,
}

const OPTIONS: OptionRules = {
  config: optionRule.anything,
  topology: {
    expected: 'a source of configurations: { read }',
    fits: (value) => isObject(value) && typeof value['read'] === 'function',
  },
  topologyIntervalMs: duration,
  name: optionRule.text,
  discoveryMode: optionRule.oneOf('on', 'once', 'off'),
  callTimeoutMs: duration,
  decode: optionRule.object,
  replicasets: {
    expected: 'an object without what the router itself decides',
    fits: (value) => isObject(value) && !DECIDED.some((name) => value[name] !== undefined),
  },
  environment: optionRule.object,
}
const DECIDED = ['definition', 'user', 'password', 'dialect', 'holdBudget', 'zone', 'zoneWeights', 'environment']

/** @throws ConfigError with every problem; those of `config` come from the check of the configuration itself */
export function validateOptions(options: RouterOptions): void {
  const problems = optionProblems('', options, OPTIONS)
  if (problems.length > 0) throw new ConfigError(problems, { subject: 'router options' })
}
