/* The file that says where a running cluster is, as `npm start -- --topology FILE` writes it: JSON that any program can
 * read. */
import { ConfigError } from '@orbweaver/iproto'
import type { z } from 'zod'
import { type CheckedClusterConfig, type InstanceConfig, type ReplicasetConfig, VSHARD_DEFAULTS } from './config.js'
import { type ClusterView, contradictionsIn, type ReplicasetView } from './config-rules.js'
import * as values from './config-values.js'
import { fieldOf, itemsOf } from './lua-map.js'

/** The content of a topology file. */
export interface TopologyFile {
  readonly bucketCount: number
  /** Whether the uuids or the names are the ids. */
  readonly identification: 'uuid' | 'name'
  readonly user: string
  readonly password: string
  readonly replicasets: readonly TopologyReplicaset[]
  readonly proxy: TopologyProxy | null
  /** Address of the live page. */
  readonly page: string | null
}

export interface TopologyReplicaset {
  readonly name: string
  readonly uuid: string
  /** Null: the replica with `master: true`. */
  readonly master: 'auto' | null
  readonly replicas: readonly TopologyReplica[]
}

export interface TopologyReplica {
  readonly name: string
  readonly uuid: string
  readonly host: string
  readonly port: number
  readonly master?: boolean
  readonly zone?: string | number
}

/** Where the proxy listens, and who may log in there. */
export interface TopologyProxy {
  readonly host: string
  readonly port: number
  readonly user: string
  readonly password: string
}

/** A cluster with what stands in front of it. */
export type Topology = CheckedClusterConfig & {
  readonly proxy: TopologyProxy | undefined
  readonly page: string | undefined
}

/**
 * Reads the parsed content of a topology file. The result is a configuration of the cluster that router and replicasets
 * take as it is.
 * @throws ConfigError with every problem, its path and what to write there
 */
export function readTopology(value: unknown): Topology {
  const problems = [...values.problemsWith(TOPOLOGY_SCHEMA, value), ...contradictionsIn(viewOf(value))]
  if (problems.length > 0) throw new ConfigError(problems, { subject: 'topology' })
  const file = value as TopologyFile
  return {
    bucketCount: file.bucketCount,
    identification: file.identification,
    user: file.user,
    password: file.password,
    replicasets: file.replicasets.map((replicaset) => replicasetOf(replicaset, file.identification)),
    ...VSHARD_DEFAULTS,
    proxy: file.proxy ?? undefined,
    page: file.page ?? undefined,
  }
}

function replicasetOf(
  { name, uuid, master, replicas }: TopologyReplicaset,
  identification: 'uuid' | 'name',
): ReplicasetConfig {
  const instances = replicas.map((replica): InstanceConfig => {
    const id = identification === 'uuid' ? replica.uuid : replica.name
    const { uuid, name } = replica
    return { id, uuid, name, uri: hostAndPort(replica), ...values.present('zone', replica.zone) }
  })
  const flagged = replicas.findIndex((replica) => replica.master === true)
  return {
    id: identification === 'uuid' ? uuid : name,
    uuid,
    name,
    instances,
    ...values.present('master', master ?? instances[flagged]?.id),
    weight: 1,
  }
}

/** An IPv6 address goes into brackets. */
function hostAndPort({ host, port }: TopologyReplica): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`
}

const REPLICA = values.options('a map with the address of the instance', {
  name: values.filledText,
  uuid: values.filledText,
  host: values.filledText,
  port: values.port,
  master: values.flag.nullish(),
  zone: values.zone.nullish(),
})

const TOPOLOGY_SCHEMA: z.ZodType = values.options('the content of a topology file', {
  bucketCount: values.count,
  identification: values.oneOf('uuid', 'name'),
  user: values.filledText,
  password: values.text,
  replicasets: values.listOf(
    'a list of replicasets',
    values.options('a map with the replicas of the replicaset', {
      name: values.filledText,
      uuid: values.filledText,
      master: values.oneOf('auto').nullish(),
      replicas: values.listOf('a list of instances', REPLICA),
    }),
  ),
  proxy: values
    .options('the address of the proxy or null', {
      host: values.filledText,
      port: values.port,
      user: values.filledText,
      password: values.text,
    })
    .nullish(),
  page: values.filledText.nullish(),
})

function viewOf(value: unknown): ClusterView {
  const identification = fieldOf(value, 'identification') === 'name' ? 'name' : 'uuid'
  return {
    path: ['replicasets'],
    identification,
    replicasets: itemsOf(fieldOf(value, 'replicasets')).map((replicaset, i): ReplicasetView => {
      const path = ['replicasets', i]
      return {
        path,
        id: fieldOf(replicaset, identification),
        weight: 1,
        isMasterAuto: fieldOf(replicaset, 'master') === 'auto',
        rebalancer: undefined,
        instances: itemsOf(fieldOf(replicaset, 'replicas')).map((replica, j) => ({
          path: [...path, 'replicas', j],
          id: fieldOf(replica, identification),
          uri: `${String(fieldOf(replica, 'host'))}:${String(fieldOf(replica, 'port'))}`,
          master: fieldOf(replica, 'master') === false ? undefined : fieldOf(replica, 'master'),
          rebalancer: undefined,
        })),
      }
    }),
    weights: [],
  }
}
