/* `npm start`: the story on a real cluster, every answer checked. Exit codes: 0 right, 1 an answer was wrong or a step failed, 2 wrong use. */
import { rm } from 'node:fs/promises'
import { HELP, readOptions, UsageError } from './options.js'
import type { DemoOptions } from './options.js'
import { computeTotals, loadPlaces } from './places.js'
import type { Place } from './places.js'
import { createPrinter, duration, now } from './printer.js'
import type { Printer } from './printer.js'
import { failOver } from './steps/failover.js'
import type { FailoverResult } from './steps/failover.js'
import { countPeople } from './steps/map-reduce.js'
import type { MapReduceResult } from './steps/map-reduce.js'
import { largestCities } from './steps/merge.js'
import { pointReads } from './steps/point-reads.js'
import { proxyClients } from './steps/proxy-clients.js'
import type { ProxyResult } from './steps/proxy-clients.js'
import { assertWritable, writeTopology } from './topology-file.js'
import { loadData, startWorld } from './world.js'
import type { World } from './world.js'

interface Outcome {
  readonly ok: boolean
  readonly rows: number
  readonly mapReduce: MapReduceResult
  readonly merge: { readonly top: readonly { id: number; name: string; population: number }[] }
  readonly failover: FailoverResult
  readonly proxy: ProxyResult
}

/** Aborted by Ctrl-C or a request to end. */
const stop = new AbortController()

async function main(): Promise<number> {
  const options = readOptions(process.argv.slice(2))
  if (options === 'help') {
    process.stdout.write(`${HELP}\n`)
    return 0
  }
  if (options.topologyFile !== undefined) await assertWritable(options.topologyFile)
  const printer = createPrinter(options.isJson ? process.stderr : process.stdout)
  const stopped = new Promise<void>((resolve) => stop.signal.addEventListener('abort', () => resolve(), { once: true }))
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.on(name, () => stop.abort(new Error('Interrupted')))

  const places = await loadPlaces()
  const world = await startWorld(options, printer, stop.signal)
  try {
    return await show(world, places, options, printer, stop.signal, stopped)
  } finally {
    printer.say('Stopping')
    await world.close()
  }
}

async function show(
  world: World,
  places: readonly Place[],
  options: DemoOptions,
  printer: Printer,
  signal: AbortSignal,
  stopped: Promise<void>,
): Promise<number> {
  await loadData(world, places, printer, signal)
  const outcome = options.mode === 'idle' ? undefined : await tell(world, places, printer, signal)
  if (outcome !== undefined) {
    printer.title(outcome.ok ? 'Every answer was checked and right' : 'Something was NOT right: see above')
    if (options.isJson) process.stdout.write(`${JSON.stringify(outcome)}\n`)
  }
  if (options.topologyFile !== undefined) await writeTopology(options.topologyFile, world)
  if (options.mode !== 'once') {
    printAddresses(world, options, printer)
    await stopped
    // Who looks for the cluster later must not find where it was.
    if (options.topologyFile !== undefined) await rm(options.topologyFile, { force: true })
  }
  return outcome === undefined || outcome.ok ? 0 : 1
}

/** The story, step by step. */
async function tell(world: World, places: readonly Place[], printer: Printer, signal: AbortSignal): Promise<Outcome> {
  const started = now()
  const totals = computeTotals(places)
  const readsAreRight = await pointReads(world, totals, printer)
  signal.throwIfAborted()
  const people = await countPeople(world, totals, printer)
  signal.throwIfAborted()
  const cities = await largestCities(world, totals, printer)
  signal.throwIfAborted()
  const proxy = await proxyClients(world, printer)
  signal.throwIfAborted()
  const failover = await failOver(world, printer, signal)
  printer.say(`The whole story took ${duration(now() - started)}`)
  return {
    ok: readsAreRight && people.ok && cities.ok && proxy.ok && failover.ok,
    rows: people.rows,
    mapReduce: people.result,
    merge: { top: cities.top },
    failover: failover.result,
    proxy: proxy.result,
  }
}

function printAddresses({ cluster, proxyAddress }: World, options: DemoOptions, printer: Printer): void {
  const { user, password } = cluster.config
  printer.title('The cluster stays up until Ctrl-C; any Tarantool client can connect')
  for (const replicaset of cluster.config.replicasets) {
    const list = replicaset.instances.map(
      (instance) =>
        `${instance.name} ${instance.uri}${cluster.masterOf(replicaset.id).id === instance.id ? ' (master)' : ''}`,
    )
    printer.say(`replicaset ${replicaset.name}: ${list.join(', ')}`)
  }
  printer.say(
    `proxy, in front of replicaset ${cluster.config.replicasets[0]!.name}: ${proxyAddress.host}:${proxyAddress.port}`,
  )
  printer.say(`login: user ${user}, password ${password}`)
  if (options.topologyFile !== undefined) printer.say(`topology: ${options.topologyFile}`)
}

try {
  process.exitCode = await main()
} catch (error) {
  // Whatever failed because of an interrupt says nothing more than the interrupt.
  if (stop.signal.aborted) {
    process.exitCode = 130
  } else {
    const isUsage = error instanceof UsageError
    process.stderr.write(`${isUsage ? '' : 'The demo failed: '}${(error as Error).message}\n`)
    process.exitCode = isUsage ? 2 : 1
  }
}
