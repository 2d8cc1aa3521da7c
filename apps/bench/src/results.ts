/** From rounds to figures and ratios. Pure. */
import type { BenchCase } from './cases.js'
import { LOW_METRICS, type Metric, type SubjectName, type Target } from './cases/bench-case.js'
import type { Round } from './round.js'
import { pairedRatio, summarise, type Summary } from './statistics.js'

/** The rounds of one subject in one case, in the order in which they were run. */
export interface SubjectRounds {
  readonly subject: SubjectName
  readonly rounds: readonly Round[]
  /** Why it was given up. */
  readonly failure: string | undefined
}

export interface CaseRounds {
  readonly benchCase: BenchCase
  readonly subjects: readonly SubjectRounds[]
}

/** Figures of one subject. Rounds that lost requests are counted and otherwise left out. */
export interface Figures {
  readonly subject: SubjectName
  readonly rounds: number
  readonly incompleteRounds: number
  readonly lostRequests: number
  readonly cpuUs: Summary | undefined
  readonly perSecond: Summary | undefined
  readonly p50Us: number | undefined
  readonly p99Us: number | undefined
  readonly failure: string | undefined
}

export type Verdict = 'aim reached' | 'must reached' | 'missed' | 'incomplete'

export interface Ratio {
  readonly caseId: string
  /** What is compared, in words: `CPU of tarantool-driver's`. */
  readonly words: string
  readonly value: Summary | undefined
  /** `at most 0.30`; empty: nothing is asked. */
  readonly must: string
  readonly aim: string
  readonly verdict: Verdict | undefined
}

export interface CaseReport {
  readonly id: string
  readonly words: string
  readonly figures: readonly Figures[]
  readonly ratios: readonly Ratio[]
}

export function reportCase({ benchCase, subjects }: CaseRounds): CaseReport {
  const [first] = subjects
  const ratios =
    first === undefined
      ? []
      : benchCase.targets.flatMap((target) => {
          if (target.of === undefined) return [judged(benchCase, target, ownFigure(first, target.metric))]
          const other = subjects.find(({ subject }) => subject === target.of)
          return other === undefined ? [] : [judged(benchCase, target, ratioOf(first, other, target.metric))]
        })
  if (first !== undefined && benchCase.kind !== 'codec') ratios.push(lossOf(benchCase, first))
  return { id: benchCase.id, words: benchCase.words, figures: subjects.map(figuresOf), ratios }
}

export function figuresOf({ subject, rounds, failure }: SubjectRounds): Figures {
  const complete = rounds.filter(isComplete)
  const summary = (of: (round: Round) => number): Summary | undefined =>
    complete.length === 0 ? undefined : summarise(complete.map(of))
  const timed = (of: (round: Round) => number | undefined): number | undefined => {
    const values = complete.flatMap((round) => of(round) ?? [])
    return values.length === 0 ? undefined : summarise(values).median
  }
  return {
    subject,
    rounds: rounds.length,
    incompleteRounds: rounds.length - complete.length,
    lostRequests: rounds.reduce((sum, { lost }) => sum + lost, 0),
    cpuUs: summary(cpuPerRequest),
    perSecond: summary(requestsPerSecond),
    p50Us: timed(({ p50Us }) => p50Us),
    p99Us: timed(({ p99Us }) => p99Us),
    failure,
  }
}

function ratioOf(ours: SubjectRounds, theirs: SubjectRounds, metric: Metric): Summary | undefined {
  const [over, under] = metric === 'speed' ? [theirs, ours] : [ours, theirs]
  return pairedRatio(figurePerRound(over, metric), figurePerRound(under, metric))
}

function ownFigure(subject: SubjectRounds, metric: Metric): Summary | undefined {
  const figures = figurePerRound(subject, metric).filter((figure) => figure !== undefined)
  return figures.length === 0 ? undefined : summarise(figures)
}

function judged(benchCase: BenchCase, { metric, of, must, aim }: Target, value: Summary | undefined): Ratio {
  const bound = LOW_METRICS.has(metric) ? 'at most' : 'at least'
  const digits = of === undefined ? 0 : 2
  return {
    caseId: benchCase.id,
    words: of === undefined ? METRIC_WORDS[metric] : `${METRIC_WORDS[metric]} of ${of}`,
    value,
    must: must === undefined ? '' : `${bound} ${must.toFixed(digits)}`,
    aim: aim === undefined ? '' : `${bound} ${aim.toFixed(digits)}`,
    verdict: must === undefined ? undefined : verdictOf(value, metric, must, aim),
  }
}

/** That nothing of ours got lost is asked of every case. */
function lossOf(benchCase: BenchCase, ours: SubjectRounds): Ratio {
  const lost = ours.rounds.reduce((sum, round) => sum + round.lost, 0)
  return {
    caseId: benchCase.id,
    words: 'requests without an answer',
    value: { median: lost, min: lost, max: lost },
    must: '0',
    aim: '0',
    verdict: lost === 0 && ours.failure === undefined ? 'aim reached' : 'missed',
  }
}

/** @param must - @param aim - bounds: upper ones for metrics that are to be low, lower ones for the others */
export function verdictOf(value: Summary | undefined, metric: Metric, must: number, aim: number | undefined): Verdict {
  if (value === undefined) return 'incomplete'
  const reaches = (bound: number): boolean => (LOW_METRICS.has(metric) ? value.median <= bound : value.median >= bound)
  if (aim !== undefined && reaches(aim)) return 'aim reached'
  return reaches(must) ? 'must reached' : 'missed'
}

function figurePerRound({ rounds }: SubjectRounds, metric: Metric): (number | undefined)[] {
  const figure = FIGURES[metric]
  return rounds.map((round) => (isComplete(round) ? figure(round) : undefined))
}

function isComplete({ lost, requests }: Round): boolean {
  return lost === 0 && requests > 0
}

function cpuPerRequest({ cpuUs, requests }: Round): number {
  return cpuUs / requests
}

function requestsPerSecond({ requests, elapsedMs }: Round): number {
  return (requests / elapsedMs) * 1_000
}

const FIGURES: Readonly<Record<Metric, (round: Round) => number | undefined>> = {
  cpu: cpuPerRequest,
  speed: cpuPerRequest,
  rps: requestsPerSecond,
  p50: ({ p50Us }) => (p50Us === undefined ? undefined : p50Us / 1_000),
  memory: ({ residentBytes }) => (residentBytes === undefined ? undefined : residentBytes / 1e6),
  pause: ({ longestPauseMs }) => longestPauseMs,
}

const METRIC_WORDS: Readonly<Record<Metric, string>> = {
  cpu: 'CPU',
  rps: 'requests per second',
  speed: 'speed',
  p50: 'p50 in ms',
  memory: 'resident MB',
  pause: 'longest pause in ms',
}
