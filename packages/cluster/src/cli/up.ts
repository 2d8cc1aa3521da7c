/* `orbweaver-cluster up`: starts a cluster, writes down where it is, and takes commands until it is told to end. */
import { randomUUID } from 'node:crypto'
import { access, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { startCluster } from '../cluster.js'
import type { Cluster } from '../cluster.js'
import type { ClusterOptions } from '../cluster-options.js'
import { embeddedEngine } from '../embedded-instance.js'
import type { EngineDriver } from '../engine-driver.js'
import { tarantoolEngine } from '../tarantool-instance.js'
import { topologyOf, writeTopologyFile } from '../topology-file.js'
import { askControl, serveControl } from './control.js'
import type { ControlRequest } from './control.js'
import type { WrittenClusterFile } from './cluster-file.js'
import { readClusterFile } from './cluster-file.js'
import { UsageError, wholeNumber } from './usage.js'
import type { Usage } from './usage.js'

/** @throws UsageError, ConfigError, and what the cluster says when it does not start */
export async function up({ file, options }: Usage, say: (text: string) => void, signal: AbortSignal): Promise<void> {
  await assertNobodyIsThere(file)
  const cluster = await startCluster({ ...clusterOptions(options, say), signal })
  const control = join(tmpdir(), `orbweaver-${randomUUID()}.sock`)
  const down = new AbortController()
  const write = async (): Promise<void> =>
    writeTopologyFile(file, { ...topologyOf(cluster.config), control } as WrittenClusterFile)
  const server = await serveControl(control, async (request) => {
    if (request.command === 'down') {
      down.abort()
      return 'The cluster ends'
    }
    const done = await obey(cluster, request)
    await write()
    return done
  })
  try {
    await write()
    say(`The cluster is up until Ctrl-C; ${file} says where it is`)
    await new Promise<void>((resolveEnd) => {
      for (const source of [signal, down.signal]) source.addEventListener('abort', () => resolveEnd(), { once: true })
    })
    say('Ending')
  } finally {
    server.close()
    await rm(file, { force: true })
    await cluster.close()
  }
}

/** Two clusters must not take each other's file away. */
async function assertNobodyIsThere(file: string): Promise<void> {
  try {
    await access(file)
  } catch {
    return // there is no such file
  }
  const { control } = await readClusterFile(file)
  if (control === undefined) throw new UsageError(`${file} is there already: name another one with --file`)
  const isRunning = await askControl(control, { command: 'ping', args: [] }).then(
    () => true,
    () => false,
  )
  if (isRunning)
    throw new UsageError(`A cluster of ${file} runs already: end it with \`down\`, or name another file with --file`)
}

function clusterOptions(options: Usage['options'], say: (text: string) => void): ClusterOptions {
  const { engine = 'embedded', identification } = options
  const driver = engineNamed(engine)
  const missing = driver.missing()
  if (missing !== undefined) throw new UsageError(missing)
  const given: Record<string, unknown> = {
    replicasets: wholeNumber(options, 'replicasets') ?? 2,
    instances: wholeNumber(options, 'instances') ?? 2,
    bucketCount: wholeNumber(options, 'buckets'),
    firstPort: wholeNumber(options, 'first-port'),
    identification,
    setUp: urlOf(options['set-up']),
    lua: urlOf(options['lua']),
  }
  return {
    ...(Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as ClusterOptions),
    engine: driver,
    onProgress: say,
    onExit: ({ name }, how) => say(`Instance ${name} has ended (${how}), and nobody here ended it`),
  }
}

function engineNamed(name: string): EngineDriver {
  if (name === 'embedded') return embeddedEngine
  if (name === 'tarantool') return tarantoolEngine()
  throw new UsageError(`--engine is '${name}', expected embedded or tarantool`)
}

function urlOf(path: string | undefined): string | undefined {
  return path === undefined ? undefined : pathToFileURL(resolve(path)).href
}

type Order = (cluster: Cluster, args: readonly string[]) => Promise<string> | string

/** Commands by their names. @throws what the cluster says */
const ORDERS: Readonly<Record<string, Order>> = {
  ping: () => 'It runs',
  promote: async (cluster, [name]) => {
    await cluster.instance(name!).promote()
    return `${name} is the master`
  },
  kill: async (cluster, [name]) => {
    await cluster.instance(name!).kill()
    return `${name} is killed`
  },
  stop: async (cluster, [name]) => {
    await cluster.instance(name!).stop()
    return `${name} has ended`
  },
  restart: async (cluster, [name]) => {
    await cluster.instance(name!).restart()
    return `${name} is up`
  },
  freeze: (cluster, [name]) => {
    cluster.instance(name!).freeze()
    return `${name} is frozen`
  },
  thaw: (cluster, [name]) => {
    cluster.instance(name!).thaw()
    return `${name} goes on`
  },
  add: async (cluster) => {
    const { name, instances } = await cluster.addReplicaset()
    return `Replicaset ${name} is up: ${instances.map((instance) => instance.name).join(', ')}`
  },
  weight: async (cluster, [name, weight]) => {
    await cluster.setWeight(replicasetId(cluster, name!), Number(weight))
    return `Replicaset ${name} has the weight ${Number(weight)}`
  },
  drain: async (cluster, [name]) => {
    await cluster.setWeight(replicasetId(cluster, name!), 0)
    return `Replicaset ${name} is being emptied`
  },
}

function obey(cluster: Cluster, { command, args }: ControlRequest): Promise<string> | string {
  const order = ORDERS[command]
  if (order === undefined) throw new UsageError(`'${command}' is no command of a running cluster`)
  return order(cluster, args)
}

/** By id or name. */
function replicasetId({ config }: Cluster, ref: string): string {
  return config.replicasets.find(({ id, name }) => id === ref || name === ref)?.id ?? ref
}
