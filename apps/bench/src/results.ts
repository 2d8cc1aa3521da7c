/** From rounds to figures and ratios. Pure. */
import { type BenchCase, describeCase, type Metric, type SubjectName, type Target, targetsOf } from './cases.js'
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
      : targetsOf(benchCase).flatMap((target) => {
          const other = subjects.find(({ subject }) => subject === target.of)
          return other === undefined ? [] : [ratioOf(benchCase, first, other, target)]
        })
  if (first !== undefined && benchCase.kind === 'wire') ratios.push(lossOf(benchCase, first))
  return { id: benchCase.id, words: describeCase(benchCase), figures: subjects.map(figuresOf), ratios }
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

function ratioOf(benchCase: BenchCase, ours: SubjectRounds, theirs: SubjectRounds, target: Target): Ratio {
  const { metric, must, aim } = target
  const [over, under] = metric === 'speed' ? [theirs, ours] : [ours, theirs]
  const value = pairedRatio(figurePerRound(over, metric), figurePerRound(under, metric))
  const bound = metric === 'cpu' ? 'at most' : 'at least'
  return {
    caseId: benchCase.id,
    words: `${METRIC_WORDS[metric]} of ${target.of}`,
    value,
    must: must === undefined ? '' : `${bound} ${must.toFixed(2)}`,
    aim: aim === undefined ? '' : `${bound} ${aim.toFixed(2)}`,
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

/** @param must - @param aim - bounds: upper ones for `cpu`, lower ones for the others */
export function verdictOf(value: Summary | undefined, metric: Metric, must: number, aim: number | undefined): Verdict {
  if (value === undefined) return 'incomplete'
  const reaches = (bound: number): boolean => (metric === 'cpu' ? value.median <= bound : value.median >= bound)
  if (aim !== undefined && reaches(aim)) return 'aim reached'
  return reaches(must) ? 'must reached' : 'missed'
}

function figurePerRound({ rounds }: SubjectRounds, metric: Metric): (number | undefined)[] {
  const figure = metric === 'rps' ? requestsPerSecond : cpuPerRequest
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

const METRIC_WORDS: Readonly<Record<Metric, string>> = { cpu: 'CPU', rps: 'requests per second', speed: 'speed' }
