/* vshard's own configuration (snake_case, seconds, maps by id), read into ours. Accepts and refuses what vshard 0.1.42
 * does. */
import { ConfigError } from '@orbweaver/iproto'
import { z } from 'zod'
import {
  type CheckedClusterConfig,
  DEFAULT_BUCKET_COUNT,
  type InstanceConfig,
  type ReplicasetConfig,
  VSHARD_DEFAULTS,
  type ZoneWeight,
} from './config.js'
import { DEPRECATED_OPTIONS, OPTION_RULES, type OptionRule } from './config-options.js'
import { type ClusterView, contradictionsIn } from './config-rules.js'
import { decodeUri } from './config-uri.js'
import * as values from './config-values.js'
import { entriesOf, fieldOf, isRecord } from './lua-map.js'

/**
 * Reads a configuration of vshard: what `vshard.router.cfg` and `vshard.storage.cfg` take, as it comes out of YAML or
 * JSON. A null counts as absent. `weights` may be a map of maps or a list of `[from, to, weight]`.
 *
 * `user` and `password` are those of the first address that has a login (`guest` without a password when none has).
 * Options that vshard does not know go to `boxOptions`, as vshard hands them to the database.
 * @throws ConfigError with every problem, its path and what to write there
 */
export function readVshardConfig(value: unknown): CheckedClusterConfig {
  const isNamed = fieldOf(value, 'identification_mode') === 'name_as_key'
  const problems = values.problemsWith(isNamed ? NAMED_SCHEMA : UUID_SCHEMA, value)
  problems.push(...contradictionsIn(viewOf(value, isNamed)))
  if (problems.length > 0) throw new ConfigError(problems, { subject: 'vshard configuration' })
  return clusterOf(value as VshardShape, isNamed)
}

/** The shape that the schema has checked. */
interface VshardShape {
  readonly sharding: Readonly<Record<string, ReplicasetShape>>
  readonly weights?: unknown
  readonly zone?: string | number | null
  readonly bucket_count?: number | null
}

interface ReplicasetShape {
  readonly replicas: Readonly<Record<string, InstanceShape>>
  readonly weight?: number | null
  readonly lock?: boolean | null
  readonly master?: 'auto' | null
  readonly rebalancer?: boolean | null
  readonly uuid?: string | null
}

interface InstanceShape {
  readonly uri: unknown
  readonly name?: string | null
  readonly uuid?: string | null
  readonly zone?: string | number | null
  readonly master?: boolean | null
  readonly rebalancer?: boolean | null
}

function clusterSchema(isNamed: boolean): z.ZodType {
  const forbidden = (mode: string): z.ZodType =>
    z.null({ error: `belongs to identification_mode "${mode}": leave it out, or change the mode` }).optional()
  const uuid = isNamed ? values.filledText.nullish() : forbidden('name_as_key')
  const name = isNamed ? forbidden('uuid_as_key') : values.text.nullish()
  const instance = values.options('a map with the uri of the instance', {
    uri: values.uri,
    name,
    uuid,
    zone: values.zone.nullish(),
    master: values.flag.nullish(),
    rebalancer: values.flag.nullish(),
  })
  const replicaset = values.options('a map with the replicas of the replicaset', {
    replicas: values.byId('a map from the id of an instance to its options', instance),
    weight: values.weight.nullish(),
    lock: values.flag.nullish(),
    master: values.oneOf('auto').nullish(),
    rebalancer: values.flag.nullish(),
    uuid,
  })
  return values.options('a map of options', {
    sharding: values.byId('a map from the id of a replicaset to its options', replicaset),
    weights: WEIGHTS.nullish(),
    zone: values.zone.nullish(),
    bucket_count: values.count.nullish(),
    identification_mode: values.oneOf('uuid_as_key', 'name_as_key').nullish(),
    ...Object.fromEntries(
      OPTION_RULES.flatMap((rule) => vshardNamesOf(rule).map((name) => [name, rule.schema.nullish()])),
    ),
  })
}

/** The parts that rules between parts look at, taken from whatever is there. */
function viewOf(value: unknown, isNamed: boolean): ClusterView {
  return {
    path: ['sharding'],
    identification: isNamed ? 'name' : 'uuid',
    replicasets: pairsOf(fieldOf(value, 'sharding')).map(([id, replicaset]) => ({
      path: ['sharding', id],
      id,
      weight: fieldOf(replicaset, 'weight') ?? 1,
      isMasterAuto: fieldOf(replicaset, 'master') === 'auto',
      rebalancer: fieldOf(replicaset, 'rebalancer'),
      instances: pairsOf(fieldOf(replicaset, 'replicas')).map(([instanceId, instance]) => ({
        path: ['sharding', id, 'replicas', instanceId],
        id: instanceId,
        uri: decodeUri(fieldOf(instance, 'uri'))?.uri,
        master: fieldOf(instance, 'master'),
        rebalancer: fieldOf(instance, 'rebalancer'),
      })),
    })),
    weights: zoneWeightsOf(fieldOf(value, 'weights')),
  }
}

function clusterOf(value: VshardShape, isNamed: boolean): CheckedClusterConfig {
  const replicasets = pairsOf<ReplicasetShape>(value.sharding).map(([id, replicaset]) =>
    replicasetOf(id, replicaset, isNamed),
  )
  const login = replicasets
    .flatMap(({ instances }) => instances.map(({ uri }) => decodeUri(uri)))
    .find((uri) => uri?.user !== undefined)
  const weights = zoneWeightsOf(value.weights).map(({ from, to, weight }) => ({ from, to, weight }))
  return {
    bucketCount: value.bucket_count ?? DEFAULT_BUCKET_COUNT,
    identification: isNamed ? 'name' : 'uuid',
    user: login?.user ?? 'guest',
    password: login?.password ?? '',
    replicasets,
    ...values.present('zone', value.zone),
    ...(weights.length > 0 && { weights: weights as ZoneWeight[] }),
    ...boxOptionsOf(value, CLUSTER_KEYS),
    ...VSHARD_DEFAULTS,
    ...Object.fromEntries(OPTION_RULES.flatMap((rule) => optionOf(rule, givenFor(rule, value)))),
  }
}

function replicasetOf(id: string, value: ReplicasetShape, isNamed: boolean): ReplicasetConfig {
  const replicas = pairsOf<InstanceShape>(value.replicas)
  const flagged = replicas.find(([, instance]) => instance.master === true)?.[0]
  return {
    id,
    ...(isNamed ? { name: id, ...values.present('uuid', value.uuid) } : { uuid: id }),
    instances: replicas.map(([instanceId, instance]) => instanceOf(instanceId, instance, isNamed)),
    ...values.present('master', value.master ?? flagged),
    weight: value.weight ?? 1,
    ...values.present('lock', value.lock),
    ...values.present('rebalancer', value.rebalancer),
  }
}

function instanceOf(id: string, value: InstanceShape, isNamed: boolean): InstanceConfig {
  return {
    id,
    ...(isNamed
      ? { name: id, ...values.present('uuid', value.uuid) }
      : { uuid: id, ...values.present('name', value.name) }),
    uri: decodeUri(value.uri)!.uri,
    ...values.present('zone', value.zone),
    ...values.present('rebalancer', value.rebalancer),
    ...boxOptionsOf(value, INSTANCE_KEYS),
  }
}

function vshardNamesOf({ vshardName, alias }: OptionRule): readonly string[] {
  return alias === undefined ? [vshardName] : [vshardName, alias]
}

function givenFor(rule: OptionRule, value: unknown): unknown {
  return vshardNamesOf(rule)
    .map((name) => fieldOf(value, name))
    .find((given) => given !== undefined && given !== null)
}

function optionOf({ name, isTime }: OptionRule, value: unknown): [string, unknown][] {
  if (value === undefined || value === null) return []
  return [[name, isTime && typeof value === 'number' ? value * 1000 : value]]
}

function boxOptionsOf(value: object, known: ReadonlySet<string>): { readonly boxOptions?: Record<string, unknown> } {
  const rest = pairsOf(value).filter(([key, item]) => !known.has(key) && item !== null && item !== undefined)
  return rest.length === 0 ? {} : { boxOptions: Object.fromEntries(rest) }
}

/** Keys and values of a map in any of its forms; nothing of what is no map. */
function pairsOf<T = unknown>(value: unknown): [string, T][] {
  return isRecord(value) ? [...entriesOf(value)].map(([key, item]) => [String(key), item as T]) : []
}

/** Both forms of the matrix as one list. */
function zoneWeightsOf(
  value: unknown,
): { path: readonly PropertyKey[]; from: unknown; to: unknown; weight: unknown }[] {
  if (Array.isArray(value)) {
    return value.flatMap((entry: unknown, i) => {
      const [from, to, weight] = Array.isArray(entry) ? (entry as unknown[]) : []
      return [{ path: ['weights', i], from, to, weight }]
    })
  }
  if (!isRecord(value)) return []
  return [...entriesOf(value)].flatMap(([from, row]) =>
    (isRecord(row) ? [...entriesOf(row)] : []).map(([to, weight]) => ({
      path: ['weights', String(from), String(to)],
      from,
      to,
      weight,
    })),
  )
}

const MATRIX = values.byId(
  'a map from a zone to its weights',
  values.byId('a map from a zone to its weight', values.nonNegative),
)
const TRIPLES = values.listOf(
  'a list of [from, to, weight]',
  values.triple('[from, to, weight]', values.zone, values.zone, values.nonNegative),
)
const WEIGHTS: z.ZodType = values.either((value) => (Array.isArray(value) ? TRIPLES : MATRIX))
const UUID_SCHEMA: z.ZodType = clusterSchema(false)
const NAMED_SCHEMA: z.ZodType = clusterSchema(true)
const CLUSTER_KEYS: ReadonlySet<string> = new Set([
  ...['sharding', 'weights', 'zone', 'bucket_count', 'identification_mode'],
  ...OPTION_RULES.flatMap(vshardNamesOf),
  ...DEPRECATED_OPTIONS,
])
const INSTANCE_KEYS: ReadonlySet<string> = new Set(['uri', 'name', 'uuid', 'zone', 'master', 'rebalancer'])
