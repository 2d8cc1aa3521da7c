import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import type { RunReport } from '../src/printing.js'

const main = fileURLToPath(new URL('../dist/main.js', import.meta.url))

function bench(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): { status: number | null; stdout: string; stderr: string } {
  const { status, stdout, stderr } = spawnSync(process.execPath, [main, ...args], {
    encoding: 'utf8',
    env: { ...process.env, ...env },
    timeout: 25_000,
    killSignal: 'SIGKILL',
  })
  return { status, stdout, stderr }
}

test('a codec case is measured without a server, and --json prints nothing but the report', () => {
  const { status, stdout } = bench(['--cases', 'decode-1x10', '--rounds', '1', '--seconds', '0.02', '--json'])
  expect(status).toBe(0)
  const report = JSON.parse(stdout) as RunReport
  expect(
    report.cases.map(({ id, figures }) => [id, figures.map(({ subject, failure }) => [subject, failure])]),
  ).toEqual([
    [
      'decode-1x10',
      [
        ['orbweaver', undefined],
        ['msgpackr', undefined],
        ['msgpack-lite', undefined],
      ],
    ],
  ])
  for (const { cpuUs } of report.cases[0]!.figures) expect(cpuUs?.median).toBeGreaterThan(0)
})

test('without a Tarantool the cases over the wire are skipped with a sentence', () => {
  const { status, stdout } = bench(['--cases', 'select@1$'], { TARANTOOL: '/nowhere/tarantool' })
  expect(status).toBe(0)
  expect(stdout).toContain(
    'Skipped: whatever needs a Tarantool. There is no Tarantool here (/nowhere/tarantool cannot be run)',
  )
})

test.each([
  [['--cases', 'nothing-like-this'], 'No case matches nothing-like-this'],
  [['--rounds', 'x'], '--rounds is "x", expected a number'],
])('%j ends with code 2 and one sentence', (args, sentence) => {
  const { status, stdout, stderr } = bench(args)
  expect({ status, stdout }).toEqual({ status: 2, stdout: '' })
  expect(stderr.trim().split('\n')).toHaveLength(1)
  expect(stderr).toContain(sentence)
})
