/*
 * Names, uuids and ports of a local cluster. Names are short and tell where an instance belongs (`b2` is the second instance of
 * replicaset `b`); uuids follow from the names, so that the same cluster has the same uuids every time.
 */
import { createHash, randomInt } from 'node:crypto'
import { createServer } from 'node:net'
import type { Server } from 'node:net'
import type { ClusterConfig, ReplicasetConfig } from '@orbweaver/vshard'

export interface LayoutOptions {
  readonly replicasets: number
  /** Instances of each replicaset. */
  readonly instances: number
  readonly bucketCount: number
  readonly identification: 'uuid' | 'name'
  readonly user: string
  readonly password: string
  readonly host: string
  /** The first of a row of ports; undefined: whichever are free. */
  readonly firstPort: number | undefined
  /** What distinguishes the uuids of this cluster from another one's on the same machine. */
  readonly name: string
}

/** A configuration with an address for every instance. */
export async function layOut(options: LayoutOptions): Promise<ClusterConfig> {
  const count = options.replicasets * options.instances
  const ports =
    options.firstPort === undefined
      ? await freePorts(options.host, count)
      : Array.from({ length: count }, (_, i) => options.firstPort! + i)
  const replicasets = Array.from({ length: options.replicasets }, (_, i) =>
    replicasetAt(options, i, ports.slice(i * options.instances, (i + 1) * options.instances)),
  )
  const { bucketCount, identification, user, password } = options
  return { bucketCount, identification, user, password, replicasets }
}

/** One more replicaset of such a cluster, on free ports. @param index - its place among the others, from 0 */
export async function layOutReplicaset(options: LayoutOptions, index: number): Promise<ReplicasetConfig> {
  return replicasetAt(options, index, await freePorts(options.host, options.instances))
}

function replicasetAt(options: LayoutOptions, index: number, ports: readonly number[]): ReplicasetConfig {
  const name = replicasetName(index)
  const uuid = uuidOf(`${options.name}/${name}`)
  const host = options.host.includes(':') ? `[${options.host}]` : options.host
  return {
    id: options.identification === 'uuid' ? uuid : name,
    uuid,
    name,
    master: 'auto',
    weight: 1,
    instances: ports.map((port, i) => {
      const instance = `${name}${i + 1}`
      const instanceUuid = uuidOf(`${options.name}/${instance}`)
      const id = options.identification === 'uuid' ? instanceUuid : instance
      return { id, uuid: instanceUuid, name: instance, uri: `${host}:${port}` }
    }),
  }
}

/** a, b, … z, aa, ab, … */
export function replicasetName(index: number): string {
  const letter = String.fromCharCode(97 + (index % 26))
  return index < 26 ? letter : replicasetName(Math.floor(index / 26) - 1) + letter
}

/** A uuid that follows from a text (version 5 in form). */
export function uuidOf(text: string): string {
  const bytes = createHash('sha1').update(`orbweaver/${text}`).digest().subarray(0, 16)
  bytes[6] = (bytes[6]! & 0x0f) | 0x50
  bytes[8] = (bytes[8]! & 0x3f) | 0x80
  const hex = bytes.toString('hex')
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`
}

/**
 * Ports nobody listens on now, below those the system gives to outgoing connections: between this look and the instance's own
 * `listen`, a dialling neighbour could be given one of those.
 */
export async function freePorts(host: string, count: number): Promise<number[]> {
  const held: Server[] = []
  try {
    const ports: number[] = []
    let candidate = randomInt(LOWEST_PORT, HIGHEST_PORT)
    for (let tried = 0; ports.length < count; tried++) {
      if (tried > HIGHEST_PORT - LOWEST_PORT) throw new Error(`${count} free ports could not be found on ${host}`)
      candidate = candidate >= HIGHEST_PORT ? LOWEST_PORT : candidate + 1
      const server = await holdPort(host, candidate)
      if (server === undefined) continue
      held.push(server)
      ports.push(candidate)
    }
    return ports
  } finally {
    await Promise.all(held.map((server) => new Promise((resolve) => server.close(resolve))))
  }
}

/** undefined when somebody has it. */
function holdPort(host: string, port: number): Promise<Server | undefined> {
  return new Promise((resolve, reject) => {
    const server = createServer()
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE' || error.code === 'EACCES') resolve(undefined)
      else reject(error)
    })
    server.listen(port, host, () => resolve(server))
  })
}

const LOWEST_PORT = 10_000
const HIGHEST_PORT = 32_000
