// `npm run check`: everything a machine can say about the code, one check after another, stopping at the first failure.
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const bin = (/** @type {string} */ name) => `${root}node_modules/.bin/${name}`

/** @type {readonly { title: string, command: string, args: string[] }[]} */
const checks = [
  { title: 'format (oxfmt)', command: bin('oxfmt'), args: ['--check'] },
  { title: 'lint (oxlint)', command: bin('oxlint'), args: [] },
  { title: 'package boundaries (turbo)', command: bin('turbo'), args: ['boundaries'] },
  { title: 'types (tsc -b)', command: bin('tsc'), args: ['-b'] },
  { title: 'unused exports and dependencies (knip)', command: bin('knip'), args: [] },
  { title: 'build (turbo)', command: bin('turbo'), args: ['run', 'build', '--output-logs=errors-only'] },
  { title: 'packing (publint, attw)', command: process.execPath, args: ['scripts/check-pack.mjs'] },
  { title: 'public API (reports in packages/*/api.md)', command: process.execPath, args: ['scripts/check-api.mjs'] },
]

for (const [index, { title, command, args }] of checks.entries()) {
  console.log(`\n[${index + 1}/${checks.length}] ${title}`)
  const started = performance.now()
  const { status, error } = spawnSync(command, args, {
    cwd: root,
    stdio: ['ignore', 'inherit', 'inherit'],
    env: { ...process.env, TURBO_TELEMETRY_DISABLED: '1' },
  })
  const seconds = ((performance.now() - started) / 1000).toFixed(1)
  if (status !== 0) {
    console.error(`\nThe check "${title}" failed after ${seconds} s${error ? `: ${error.message}` : ''}`)
    process.exit(1)
  }
  console.log(`    ok, ${seconds} s`)
}
console.log('\nAll checks passed')
