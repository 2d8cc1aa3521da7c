// Builds what the cluster tests start as workers and child processes. Runs once before them, and again before each
// repetition in watch mode.
import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const done = Symbol.for('orbweaver.test-setup')

/** @param {import('vitest/node').TestProject} project */
export default function setup(project) {
  if (Reflect.get(globalThis, done) === true) return
  Reflect.set(globalThis, done, true)
  build()
  project.onTestsRerun(build)
}

/** ORBWEAVER_TEST_BUILD="packages/connection apps/demo" builds only those (and what they need). */
function build() {
  const chosen = process.env['ORBWEAVER_TEST_BUILD']?.split(' ').filter(Boolean)
  const projects = chosen ?? [...foldersOf('packages'), ...foldersOf('apps'), 'examples']
  const tsc = fileURLToPath(new URL('../node_modules/typescript/bin/tsc', import.meta.url))
  const { status } = spawnSync(process.execPath, [tsc, '-b', ...projects], { cwd: root, stdio: 'inherit' })
  if (status === 0) return
  Reflect.set(globalThis, Symbol.for('orbweaver.build-failed'), true) // counted as a failure in the closing line
  throw new Error('The build before the tests failed (see above)')
}

/** @param {string} parent */
function foldersOf(parent) {
  return readdirSync(new URL(`../${parent}`, import.meta.url))
    .map((name) => `${parent}/${name}`)
    .filter((folder) => existsSync(new URL(`../${folder}/tsconfig.json`, import.meta.url)))
}
