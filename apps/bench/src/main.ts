import { fileURLToPath } from 'node:url'
import { CASES, describeCase } from './cases.js'
import { currentLoad, describeMachine } from './machine.js'
import { helpText, parseOptions, UsageError } from './options.js'
import { choosePlacement } from './placement.js'
import { formatRun, type RunReport } from './printing.js'
import { type CaseReport, reportCase } from './results.js'
import { runCase } from './run.js'
import { SUBJECT_FLAG } from './subject-handle.js'
import { serveSubject } from './subject-process.js'
import { findServer, TarantoolServer } from './tarantool-server.js'

async function bench(args: readonly string[]): Promise<void> {
  const options = parseOptions(args)
  if (options.help) {
    process.stdout.write(helpText(CASES.map((benchCase) => `${benchCase.id.padEnd(16)} ${describeCase(benchCase)}`)))
    return
  }
  const wanted = CASES.filter(({ id }) => options.cases.test(id))
  if (wanted.length === 0)
    throw new UsageError(`No case matches ${options.cases.source}; they are ${CASES.map(({ id }) => id).join(', ')}`)
  const placement = choosePlacement()
  const found = wanted.some(({ kind }) => kind === 'wire') ? findServer() : undefined
  const cases = typeof found === 'string' ? wanted.filter(({ kind }) => kind === 'codec') : wanted
  const loadBefore = currentLoad()
  const server = typeof found === 'object' ? await TarantoolServer.start(found, placement) : undefined
  const reports: CaseReport[] = []
  try {
    for (const [index, benchCase] of cases.entries()) {
      process.stderr.write(`[${index + 1}/${cases.length}] ${benchCase.id}: ${describeCase(benchCase)}\n`)
      const { rounds, seconds, profile } = options
      const run = { rounds, seconds, profile, port: server?.port ?? 0, placement, main: fileURLToPath(import.meta.url) }
      reports.push(reportCase(await runCase(benchCase, run)))
    }
  } finally {
    server?.stop()
  }
  const report: RunReport = {
    machine: describeMachine(loadBefore, typeof found === 'object' ? found.version : undefined),
    placement: placement.words,
    rounds: options.rounds,
    seconds: options.seconds,
    cases: reports,
    skipped: typeof found === 'string' ? `the cases over the wire. ${found}` : undefined,
  }
  process.stdout.write(options.json ? `${JSON.stringify(report)}\n` : formatRun(report))
}

if (process.argv[2] === SUBJECT_FLAG) {
  serveSubject()
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
