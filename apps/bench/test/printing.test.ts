import { expect, test } from 'vitest'
import { formatRun, type RunReport } from '../src/printing.js'
import type { Figures } from '../src/results.js'

const machine = {
  cpu: 'Some CPU, 2.3 GHz',
  cores: 2,
  system: 'linux 6.1 x64',
  node: 'v20.19.0',
  load: [0.1, 0.2],
  versions: { 'tarantool-driver': '3.1.0' },
  server: 'Tarantool 2.6.0',
} as const

const figures: Figures = {
  subject: 'orbweaver',
  rounds: 5,
  incompleteRounds: 0,
  lostRequests: 0,
  cpuUs: { median: 1.5, min: 1.25, max: 2 },
  perSecond: { median: 310_000, min: 300_000, max: 320_000 },
  p50Us: 764,
  p99Us: 1_922,
  failure: undefined,
}

function report(parts: Partial<RunReport>): RunReport {
  return { machine, placement: 'all on core 1', rounds: 5, seconds: 0.8, cases: [], skipped: undefined, ...parts }
}

test('a run is printed with what its figures depend on', () => {
  const text = formatRun(report({}))
  for (const part of [
    'Some CPU',
    'v20.19.0',
    'tarantool-driver 3.1.0',
    'Tarantool 2.6.0',
    'all on core 1',
    '5 rounds of 0.8 s',
  ])
    expect(text).toContain(part)
})

test('figures and ratios are tables, with what is asked beside what was reached', () => {
  const ratio = {
    caseId: 'select@256',
    words: 'CPU of tarantool-driver',
    value: { median: 0.25, min: 0.2, max: 0.3 },
    must: 'at most 0.30',
    aim: 'at most 0.20',
    verdict: 'must reached',
  } as const
  const text = formatRun(
    report({ cases: [{ id: 'select@256', words: 'select', figures: [figures], ratios: [ratio] }] }),
  )
  expect(text).toMatch(/\| select@256 \| orbweaver \| +1\.50 \| 1\.25-2\.00 \| +310k \| +764 \| +1922 \| 5 +\|/)
  expect(text).toMatch(
    /\| select@256 \| CPU of tarantool-driver +\| +0\.25 \| 0\.20-0\.30 \| at most 0\.30 \| at most 0\.20 \| must reached \|/,
  )
})

test('whoever lost requests or failed is named, with no figure made up for it', () => {
  const lost: Figures = {
    ...figures,
    subject: 'tarantool-driver',
    incompleteRounds: 2,
    lostRequests: 62,
    cpuUs: undefined,
    perSecond: undefined,
    p50Us: undefined,
    p99Us: undefined,
  }
  const failed: Figures = { ...lost, subject: 'raw socket', failure: 'connection refused' }
  const text = formatRun(report({ cases: [{ id: 'rows300@64', words: '', figures: [lost, failed], ratios: [] }] }))
  expect(text).toMatch(/\| rows300@64 \| tarantool-driver \| +- \| +\| +- \| +- \| +- \| incomplete: 2 of 5 \|/)
  expect(text).toContain('rows300@64: tarantool-driver is incomplete: 62 requests had no answer')
  expect(text).toContain('rows300@64: raw socket was given up: connection refused')
})

test('a run without a server says why cases are missing', () => {
  expect(formatRun(report({ skipped: 'the cases over the wire. There is no Tarantool here' }))).toContain(
    'Skipped: the cases over the wire. There is no Tarantool here',
  )
})
