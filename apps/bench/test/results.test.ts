import { describe, expect, test } from 'vitest'
import { CASES, type BenchCase } from '../src/cases.js'
import { LOW_METRICS } from '../src/cases/bench-case.js'
import { figuresOf, reportCase, type SubjectRounds, verdictOf } from '../src/results.js'
import type { Round } from '../src/round.js'

/** A second with so many requests at so many microseconds each. */
function second(requests: number, cpuUsEach: number, lost = 0): Round {
  return { requests, elapsedMs: 1_000, cpuUs: requests * cpuUsEach, p50Us: 10, p99Us: 20, lost }
}

function caseOf(id: string): BenchCase {
  const found = CASES.find((benchCase) => benchCase.id === id)
  if (found === undefined) throw new Error(`There is no case ${id}`)
  return found
}

function subject(name: SubjectRounds['subject'], ...rounds: Round[]): SubjectRounds {
  return { subject: name, rounds, failure: undefined }
}

const one = (value: number): { median: number; min: number; max: number } => ({ median: value, min: value, max: value })

test('every case has a name of its own', () => {
  expect(new Set(CASES.map(({ id }) => id)).size).toBe(CASES.length)
})

describe.each(CASES.map((benchCase) => [benchCase.id, benchCase] as const))('%s', (_id, benchCase) => {
  test('only compares with subjects it runs', () => {
    expect(benchCase.subjects).toEqual(expect.arrayContaining(benchCase.targets.flatMap(({ of }) => of ?? [])))
  })

  test('aims higher than it must', () => {
    const steps = benchCase.targets.flatMap(({ metric, must, aim }) => {
      if (must === undefined || aim === undefined) return []
      return [LOW_METRICS.has(metric) ? must - aim : aim - must]
    })
    expect(steps.filter((step) => step <= 0)).toEqual([])
  })
})

describe('figuresOf', () => {
  test('divides CPU and time by requests', () => {
    const figures = figuresOf(subject('orbweaver', second(100, 2), second(300, 4), second(200, 3)))
    expect(figures.cpuUs).toEqual({ median: 3, min: 2, max: 4 })
    expect(figures.perSecond).toEqual({ median: 200, min: 100, max: 300 })
    expect(figures.p50Us).toBe(10)
  })

  test('counts rounds that lost requests and takes no figure from them', () => {
    const figures = figuresOf(subject('tarantool-driver', second(100, 2), second(5, 900, 62)))
    expect(figures).toMatchObject({ rounds: 2, incompleteRounds: 1, lostRequests: 62, cpuUs: one(2) })
  })

  test('has no figures when every round lost requests', () => {
    const figures = figuresOf(subject('tarantool-driver', second(5, 900, 62)))
    expect(figures).toMatchObject({ incompleteRounds: 1, cpuUs: undefined, perSecond: undefined, p50Us: undefined })
  })
})

describe('reportCase', () => {
  test('compares with the other subjects round by round', () => {
    const { ratios } = reportCase({
      benchCase: caseOf('select@256'),
      subjects: [
        subject('orbweaver', second(400, 2), second(200, 4)),
        subject('tarantool-driver', second(100, 8), second(50, 20)),
        subject('raw socket', second(800, 0.1), second(800, 0.1)),
      ],
    })
    expect(ratios.map(({ words, value, verdict }) => [words, value?.median, verdict])).toEqual([
      ['CPU of tarantool-driver', 0.225, 'must reached'],
      ['requests per second of tarantool-driver', 4, undefined],
      ['requests per second of raw socket', 0.375, 'aim reached'],
      ['requests without an answer', 0, 'aim reached'],
    ])
  })

  test('says incomplete instead of a ratio to somebody who lost requests', () => {
    const { ratios } = reportCase({
      benchCase: caseOf('rows100@16'),
      subjects: [
        subject('orbweaver', second(100, 2)),
        subject('tarantool-driver', second(3, 900, 15)),
        subject('raw socket', second(100, 1)),
      ],
    })
    expect(ratios[0]).toMatchObject({ words: 'CPU of tarantool-driver', value: undefined, verdict: 'incomplete' })
  })

  test('a request of ours without an answer is a miss, whatever the speed', () => {
    const { ratios } = reportCase({
      benchCase: caseOf('rows300@64'),
      subjects: [subject('orbweaver', second(100, 2, 1))],
    })
    expect(ratios.at(-1)).toMatchObject({ words: 'requests without an answer', value: one(1), verdict: 'missed' })
  })

  test('speed of a codec is the inverse of its CPU time', () => {
    const { ratios } = reportCase({
      benchCase: caseOf('decode-1x10'),
      subjects: [
        subject('orbweaver', second(100, 2)),
        subject('msgpackr', second(100, 3)),
        subject('msgpack-lite', second(100, 9)),
      ],
    })
    expect(ratios.map(({ value }) => value?.median)).toEqual([1.5, 4.5])
  })
})

describe('verdictOf', () => {
  test.each([
    ['cpu', 0.2, 'aim reached'],
    ['cpu', 0.25, 'must reached'],
    ['cpu', 0.31, 'missed'],
    ['rps', 0.2, 'missed'],
    ['rps', 0.25, 'must reached'],
    ['speed', 0.31, 'aim reached'],
  ] as const)('of %s at %d is %s', (metric, value, verdict) => {
    const [must, aim] = metric === 'cpu' ? [0.3, 0.2] : [0.25, 0.3]
    expect(verdictOf(one(value), metric, must, aim)).toBe(verdict)
  })
})
