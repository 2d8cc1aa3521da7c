/* Our own shape of configuration, given by a program or a file. */
import { ConfigError } from '@orbweaver/iproto'
import type { z } from 'zod'
import { type CheckedClusterConfig, type ClusterConfig, VSHARD_DEFAULTS, type VshardOptions } from './config.js'
import { OPTION_RULES } from './config-options.js'
import { type ClusterView, contradictionsIn, type ReplicasetView } from './config-rules.js'
import { decodeUri } from './config-uri.js'
import * as values from './config-values.js'
import { fieldOf, itemsOf } from './lua-map.js'

/**
 * Checks a {@link ClusterConfig} and fills in vshard's defaults. Options that are not known are refused by nobody and
 * not kept.
 * @throws ConfigError with every problem, its path and what to write there
 */
export function validateClusterConfig(value: unknown): CheckedClusterConfig {
  const problems = [
    ...values.problemsWith(CLUSTER_SCHEMA, value),
    ...contradictionsIn(viewOf(value)),
    ...unknownMasters(value),
  ]
  if (problems.length > 0) throw new ConfigError(problems, { subject: 'cluster configuration' })
  const config = value as ClusterConfig
  return {
    bucketCount: config.bucketCount,
    identification: config.identification,
    user: config.user,
    password: config.password,
    replicasets: config.replicasets.map((replicaset) => ({ weight: 1, ...replicaset })),
    ...values.present('zone', config.zone),
    ...values.present('weights', config.weights),
    ...values.present('boxOptions', config.boxOptions),
    ...VSHARD_DEFAULTS,
    ...givenOptions(config),
  }
}

function givenOptions(config: ClusterConfig): Partial<VshardOptions> {
  const given = OPTION_RULES.map(({ name }) => [name, config[name]] as const)
  return Object.fromEntries(given.filter(([, option]) => option !== undefined))
}

const INSTANCE = values.options('a map with the id and the uri of the instance', {
  id: values.filledText,
  uuid: values.filledText.optional(),
  name: values.filledText.optional(),
  uri: values.uri,
  zone: values.zone.optional(),
  rebalancer: values.flag.optional(),
})

const REPLICASET = values.options('a map with the id and the instances of the replicaset', {
  id: values.filledText,
  uuid: values.filledText.optional(),
  name: values.filledText.optional(),
  instances: values.listOf('a list of instances', INSTANCE),
  master: values.filledText.optional(),
  weight: values.weight.optional(),
  lock: values.flag.optional(),
  rebalancer: values.flag.optional(),
})

const CLUSTER_SCHEMA: z.ZodType = values.options('a map of options', {
  bucketCount: values.count,
  identification: values.oneOf('uuid', 'name'),
  user: values.filledText,
  password: values.text,
  replicasets: values.listOf('a list of replicasets', REPLICASET),
  zone: values.zone.optional(),
  weights: values
    .listOf(
      'a list of { from, to, weight }',
      values.options('{ from, to, weight }', { from: values.zone, to: values.zone, weight: values.nonNegative }),
    )
    .optional(),
  ...Object.fromEntries(OPTION_RULES.map(({ name, schema }) => [name, schema.optional()])),
})

function viewOf(value: unknown): ClusterView {
  return {
    path: ['replicasets'],
    identification: fieldOf(value, 'identification') === 'name' ? 'name' : 'uuid',
    replicasets: itemsOf(fieldOf(value, 'replicasets')).map((replicaset, i): ReplicasetView => {
      const path = ['replicasets', i]
      return {
        path,
        id: fieldOf(replicaset, 'id'),
        weight: fieldOf(replicaset, 'weight') ?? 1,
        isMasterAuto: fieldOf(replicaset, 'master') === 'auto',
        rebalancer: fieldOf(replicaset, 'rebalancer'),
        instances: itemsOf(fieldOf(replicaset, 'instances')).map((instance, j) => ({
          path: [...path, 'instances', j],
          id: fieldOf(instance, 'id'),
          uri: decodeUri(fieldOf(instance, 'uri'))?.uri,
          master: undefined,
          rebalancer: fieldOf(instance, 'rebalancer'),
        })),
      }
    }),
    weights: itemsOf(fieldOf(value, 'weights')).map((entry, i) => ({
      path: ['weights', i],
      from: fieldOf(entry, 'from'),
      to: fieldOf(entry, 'to'),
      weight: fieldOf(entry, 'weight'),
    })),
  }
}

/** A master is `auto` or the id of an instance of the same replicaset. */
function unknownMasters(value: unknown): { path: string; message: string }[] {
  return itemsOf(fieldOf(value, 'replicasets')).flatMap((replicaset, i) => {
    const master = fieldOf(replicaset, 'master')
    if (typeof master !== 'string' || master === 'auto') return []
    const ids = itemsOf(fieldOf(replicaset, 'instances')).map((instance) => fieldOf(instance, 'id'))
    if (ids.includes(master)) return []
    const message = `is ${JSON.stringify(master)}, must be "auto" or the id of an instance of this replicaset`
    return [{ path: values.pathText(['replicasets', i, 'master']), message }]
  })
}
