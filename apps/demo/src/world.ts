/* Everything the story needs, running: cluster, router, proxy, data. */
import { once } from 'node:events'
import { createServer } from 'node:net'
import { startCluster, tarantoolEngine } from '@orbweaver/cluster'
import type { Cluster, ClusterOptions } from '@orbweaver/cluster'
import { hash2Of } from '@orbweaver/iproto'
import { createProxy } from '@orbweaver/proxy'
import type { Proxy } from '@orbweaver/proxy'
import { createRouter } from '@orbweaver/router'
import type { Router } from '@orbweaver/router'
import type { DemoOptions } from './options.js'
import { UsageError } from './options.js'
import type { Place } from './places.js'
import { duration, grouped, now } from './printer.js'
import type { Printer } from './printer.js'

export interface World {
  readonly engine: DemoOptions['engine']
  readonly cluster: Cluster
  readonly router: Router
  readonly proxy: Proxy
  /** Where the proxy listens; it stands in front of the first replicaset. */
  readonly proxyAddress: { readonly host: string; readonly port: number }
  close(): Promise<void>
}

const HOST = '127.0.0.1'
const USER = 'demo'
const PASSWORD = 'demo'

/** @throws UsageError when a port is taken, or the engine is not here */
export async function startWorld(options: DemoOptions, printer: Printer, signal: AbortSignal): Promise<World> {
  const closers: (() => Promise<void>)[] = []
  const close = async (): Promise<void> => {
    for (const closer of closers.splice(0).toReversed()) await closer()
  }
  try {
    const engine = engineOptions(options.engine)
    await assertPortIsFree(options)
    printer.title(`Starting ${options.replicasets} replicasets of ${options.instances} instances`)
    const started = now()
    const cluster = await startCluster({
      replicasets: options.replicasets,
      instances: options.instances,
      bucketCount: options.bucketCount,
      user: USER,
      password: PASSWORD,
      host: HOST,
      ...engine,
      onProgress: (text) => printer.progress(text),
      onExit: ({ name }, how) => printer.say(`Instance ${name} has ended (${how}), and nobody here ended it`),
      signal,
      ...(options.port === undefined ? {} : { firstPort: options.port + 1 }),
    })
    closers.push(() => cluster.close())
    signal.throwIfAborted()
    printer.say(
      `${cluster.instances.length} processes are up, each replicaset has a master: ${duration(now() - started)}`,
    )

    const routing = now()
    const router = createRouter({ config: cluster.config })
    closers.push(() => router.close())
    await router.ready({ signal })
    printer.say(`The router knows where all ${grouped(options.bucketCount)} buckets are: ${duration(now() - routing)}`)

    const [first] = cluster.config.replicasets
    const proxy = createProxy({
      targets: Object.fromEntries(
        first!.instances.map((instance) => [instance.name ?? instance.id, { uri: instance.uri }]),
      ),
      rw: cluster.masterOf(first!.id).name,
      credentials: { mode: 'static', users: { [USER]: Buffer.from(hash2Of(PASSWORD)).toString('base64') } },
    })
    closers.push(() => proxy.close())
    const address = await proxy.listen({ host: HOST, port: options.port ?? 0 })
    if (!('port' in address)) throw new TypeError('The proxy listens on no port')
    return { engine: options.engine, cluster, router, proxy, proxyAddress: { host: HOST, port: address.port }, close }
  } catch (error) {
    await close()
    throw portProblem(error) ?? error
  }
}

/** @throws UsageError that says what to do when there is no such engine here */
function engineOptions(engine: DemoOptions['engine']): ClusterOptions {
  // Only Tarantool 3 and embedded storages know instances by names.
  if (engine === 'embedded') return { identification: 'name', setUp: new URL('./set-up.js', import.meta.url).href }
  const driver = tarantoolEngine()
  const missing = driver.missing()
  if (missing !== undefined) throw new UsageError(`--engine tarantool: ${missing}`)
  return { engine: driver, lua: new URL('../src/set-up.lua', import.meta.url).href }
}

/** The proxy's port comes first and is taken last: a busy one is told before anything is started. */
async function assertPortIsFree({ port, replicasets, instances }: DemoOptions): Promise<void> {
  if (port === undefined) return
  const last = port + replicasets * instances
  if (last > LAST_PORT)
    throw new UsageError(`--port is ${port}, and the last instance would need port ${last}: choose a lower one`)
  const server = createServer()
  server.listen(port, HOST)
  await once(server, 'listening')
  server.close()
  await once(server, 'close')
}

const LAST_PORT = 65_535

function portProblem(error: unknown): UsageError | undefined {
  const { code, message } = error as { code?: string; message: string }
  if (code !== 'EADDRINUSE') return undefined
  const port = /:(\d+)\b/.exec(message)?.[1]
  return new UsageError(`Port ${port ?? ''} is in use: choose another one with --port, or none to take free ones`, {
    cause: error,
  })
}

/** Buckets written at the same time. */
const PARALLEL = 64

/** Creates the spaces everywhere and writes every place into its bucket. */
export async function loadData(
  { router, engine }: World,
  places: readonly Place[],
  printer: Printer,
  signal: AbortSignal,
): Promise<void> {
  printer.title(`Sharding ${grouped(places.length)} places`)
  const started = now()
  await router.mapCallrw('demo.create_spaces', [], { signal })
  const byBucket = new Map<number, unknown[]>()
  for (const { id, name, country, population, longitude, latitude } of places) {
    const bucketId = router.bucketId(id)
    const list = byBucket.get(bucketId)
    const tuple = [id, bucketId, name, country, population, longitude, latitude]
    if (list === undefined) byBucket.set(bucketId, [tuple])
    else list.push(tuple)
  }
  const buckets = byBucket.entries()
  let written = 0
  const work = async (): Promise<void> => {
    for (const [bucketId, list] of buckets) {
      signal.throwIfAborted()
      await router.callrw(bucketId, 'place.put', [list], { timeout: 60_000 })
      written += list.length
      printer.progress(`${grouped(written)} of ${grouped(places.length)} places are written`)
    }
  }
  await Promise.all(Array.from({ length: PARALLEL }, work))
  const ms = now() - started
  printer.say(
    `Each place went to the bucket its id hashes to${engine === 'embedded' ? ', and each write to a majority of its replicaset' : ''}: ${duration(ms)}, ${grouped(Math.round((written / ms) * 1_000))} places a second`,
  )
}
