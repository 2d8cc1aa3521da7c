/** Figures and ratios as text. Pure. */
import type { Machine } from './machine.js'
import type { CaseReport, Figures, Ratio } from './results.js'
import type { Summary } from './statistics.js'
import { type Column, formatTable, shortNumber } from './table.js'

export interface RunReport {
  readonly machine: Machine
  readonly placement: string
  readonly rounds: number
  readonly seconds: number
  readonly cases: readonly CaseReport[]
  /** Why cases were left out, as a sentence. */
  readonly skipped: string | undefined
}

export function formatRun(report: RunReport): string {
  const { machine, cases } = report
  const parts = [
    [
      `CPU: ${machine.cpu}, ${machine.cores} cores, ${machine.system}; load before and after: ${machine.load.map((load) => load.toFixed(1)).join(', ')}`,
      `Node.js ${machine.node}, ${Object.entries(machine.versions)
        .map(([name, version]) => `${name} ${version}`)
        .join(', ')}`,
      `Server: ${machine.server ?? 'none'}`,
      `Processes: ${report.placement}. ${report.rounds} rounds of ${report.seconds} s each, in turns; medians, and as spread the least and the most of all rounds`,
    ].join('\n'),
    ...(cases.length === 0
      ? []
      : [
          formatTable(FIGURE_COLUMNS, cases.flatMap(figureRows)),
          formatTable(
            RATIO_COLUMNS,
            cases.flatMap(({ ratios }) => ratios.map(ratioRow)),
          ),
        ]),
    ...cases.flatMap(remarks),
    ...(report.skipped === undefined ? [] : [`Skipped: ${report.skipped}`]),
  ]
  return `${parts.join('\n\n')}\n`
}

const FIGURE_COLUMNS: readonly Column[] = [
  { title: 'case' },
  { title: 'who' },
  { title: 'CPU us each', align: 'right' },
  { title: 'spread' },
  { title: 'per second', align: 'right' },
  { title: 'p50 us', align: 'right' },
  { title: 'p99 us', align: 'right' },
  { title: 'rounds' },
]

const RATIO_COLUMNS: readonly Column[] = [
  { title: 'case' },
  { title: 'orbweaver against the other' },
  { title: 'ratio', align: 'right' },
  { title: 'spread' },
  { title: 'must' },
  { title: 'aim' },
  { title: 'result' },
]

function figureRows({ id, figures }: CaseReport): string[][] {
  return figures.map((figure) => [
    id,
    figure.subject,
    number(figure.cpuUs?.median),
    spread(figure.cpuUs),
    number(figure.perSecond?.median),
    number(figure.p50Us),
    number(figure.p99Us),
    roundsOf(figure),
  ])
}

function roundsOf({ rounds, incompleteRounds, failure }: Figures): string {
  if (failure !== undefined) return 'failed'
  return incompleteRounds === 0 ? String(rounds) : `incomplete: ${incompleteRounds} of ${rounds}`
}

function ratioRow({ caseId, words, value, must, aim, verdict }: Ratio): string[] {
  return [caseId, words, number(value?.median), spread(value), must, aim, verdict ?? '']
}

function remarks({ id, figures }: CaseReport): string[] {
  return figures.flatMap(({ subject, failure, incompleteRounds, lostRequests }) => {
    if (failure !== undefined) return [`${id}: ${subject} was given up: ${failure}`]
    if (incompleteRounds === 0) return []
    return [`${id}: ${subject} is incomplete: ${lostRequests} requests had no answer 2 s after the end of their round`]
  })
}

function number(value: number | undefined): string {
  return value === undefined ? '-' : shortNumber(value)
}

function spread(summary: Summary | undefined): string {
  return summary === undefined || summary.min === summary.max
    ? ''
    : `${shortNumber(summary.min)}-${shortNumber(summary.max)}`
}
