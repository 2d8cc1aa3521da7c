import { fileURLToPath } from 'node:url'
import { type BenchCase, CASES } from './cases.js'
import { currentLoad, describeMachine } from './machine.js'
import { helpText, parseOptions, UsageError } from './options.js'
import { choosePlacement } from './placement.js'
import { SERVER_FLAG, serveStorage } from './servers/storage-process.js'
import { formatRun, type RunReport } from './printing.js'
import { type CaseReport, reportCase } from './results.js'
import { runCase } from './run.js'
import { SUBJECT_FLAG } from './subject-handle.js'
import { serveSubject } from './subject-process.js'
import { FRONT_FLAG, missingHaproxy, serveFront } from './servers/front-process.js'
import { fillWide } from './servers/filling.js'
import { Clusters, missingVshard } from './servers/vshard-cluster.js'
import { findServer, type FoundServer, TarantoolServer } from './servers/tarantool-server.js'

async function bench(args: readonly string[]): Promise<void> {
  const options = parseOptions(args)
  if (options.help) {
    process.stdout.write(helpText(CASES.map(({ id, words }) => `${id.padEnd(28)} ${words}`)))
    return
  }
  const wanted = CASES.filter(({ id }) => options.cases.test(id))
  if (wanted.length === 0)
    throw new UsageError(`No case matches ${options.cases.source}; they are ${CASES.map(({ id }) => id).join(', ')}`)
  const placement = choosePlacement()
  const found = wanted.some(({ kind }) => kind !== 'codec') ? findServer() : undefined
  const noVshard = wanted.some(({ kind }) => kind === 'router') ? missingVshard() : undefined
  const possible = typeof found === 'string' ? withoutTarantool(wanted) : wanted
  const running = noVshard === undefined ? possible : possible.filter(({ kind }) => kind !== 'router')
  const cases = missingHaproxy() === undefined ? running : running.map(withoutHaproxy)
  const loadBefore = currentLoad()
  const isShared = cases.some(({ kind }) => SHARES_SERVER.has(kind))
  const server = isShared && typeof found === 'object' ? await sharedServer(found, placement.prefix) : undefined
  const clusters = new Clusters(placement)
  const reports: CaseReport[] = []
  try {
    for (const [index, benchCase] of cases.entries()) {
      process.stderr.write(`[${index + 1}/${cases.length}] ${benchCase.id}: ${benchCase.words}\n`)
      const { rounds, seconds, profile } = options
      const cluster = benchCase.kind === 'router' ? await clusters.withBuckets(benchCase.bucketCount) : undefined
      const stage = { port: server?.port ?? 0, cluster }
      const run = { rounds, seconds, profile, stage, placement, main: fileURLToPath(import.meta.url) }
      reports.push(reportCase(await runCase(benchCase, run)))
    }
  } finally {
    server?.stop()
    await clusters.close()
  }
  const report: RunReport = {
    machine: describeMachine(loadBefore, typeof found === 'object' ? found.version : undefined),
    placement: placement.words,
    rounds: options.rounds,
    seconds: options.seconds,
    cases: reports,
    skipped:
      typeof found === 'string'
        ? `whatever needs a Tarantool. ${found}`
        : noVshard === undefined
          ? undefined
          : `the cases of routers. ${noVshard}`,
  }
  process.stdout.write(options.json ? `${JSON.stringify(report)}\n` : formatRun(report))
}

/** Kinds of cases whose subjects are before or behind one Tarantool. */
const SHARES_SERVER: ReadonlySet<BenchCase['kind']> = new Set<BenchCase['kind']>(['wire', 'proxy'])

/** The server of all clients. */
async function sharedServer(found: FoundServer, prefix: readonly string[]): Promise<TarantoolServer> {
  const server = await TarantoolServer.start(found, { prefix })
  try {
    await fillWide(server.port)
    return server
  } catch (error) {
    server.stop()
    throw error
  }
}

function withoutHaproxy(benchCase: BenchCase): BenchCase {
  return { ...benchCase, subjects: benchCase.subjects.filter((name) => name !== 'HAProxy') }
}

/** What is left of the cases: servers of our own have no need of one. */
function withoutTarantool(cases: readonly BenchCase[]): readonly BenchCase[] {
  return cases.flatMap((benchCase) => {
    if (SHARES_SERVER.has(benchCase.kind) || benchCase.kind === 'router') return []
    return [{ ...benchCase, subjects: benchCase.subjects.filter((name) => !name.startsWith('Tarantool')) }]
  })
}

if (process.argv[2] === SUBJECT_FLAG) {
  serveSubject()
} else if (process.argv[2] === SERVER_FLAG) {
  await serveStorage()
} else if (process.argv[2] === FRONT_FLAG) {
  await serveFront()
} else {
  // Whoever interrupts it still gets everything cleaned up: that is done on `exit`.
  process.once('SIGINT', () => process.exit(130))
  process.once('SIGTERM', () => process.exit(143))
  try {
    await bench(process.argv.slice(2))
  } catch (error) {
    if (!(error instanceof UsageError)) throw error
    process.stderr.write(`${error.message}\n`)
    process.exitCode = 2
  }
}
