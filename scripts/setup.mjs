// Runs before `npm start`, `npm test` and `npm run check`, also on a fresh clone: only built-in modules here.
// Checks the Node version and installs the dependencies when they are missing or differ from package-lock.json.
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const LOWEST_NODE = { major: 20, minor: 19 }
const root = new URL('../', import.meta.url)

const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
if (major < LOWEST_NODE.major || (major === LOWEST_NODE.major && minor < LOWEST_NODE.minor)) {
  const lowest = `${LOWEST_NODE.major}.${LOWEST_NODE.minor}`
  stop(`Orbweaver needs Node.js ${lowest} or newer, and this is ${process.versions.node}`)
}

const stale = whyStale()
if (stale !== undefined) {
  console.error(`Installing the dependencies (${stale}): this takes up to half a minute`)
  const started = performance.now()
  const { status, error } = runNpm(['ci', '--loglevel=error'])
  if (error) stop(`npm could not be started: ${error.message}`)
  if (status !== 0) stop('The dependencies could not be installed: see what npm says above')
  console.error(`Dependencies installed in ${((performance.now() - started) / 1000).toFixed(1)} s`)
}

/** Why node_modules does not fit the lock file, in words; undefined when it does. */
function whyStale() {
  const wanted = readPackages('package-lock.json')
  if (wanted === undefined) stop('package-lock.json is missing or unreadable: is this a whole clone?')
  const installed = readPackages('node_modules/.package-lock.json')
  if (installed === undefined) return 'none are installed yet'
  for (const [path, entry] of Object.entries(wanted)) {
    if (!path.includes('node_modules/')) continue
    const have = installed[path]
    if (have === undefined) {
      if (entry.optional === true || entry.devOptional === true) continue
      return `${path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length)} is missing`
    }
    if (have.version !== entry.version) return `${path} is ${have.version}, wanted ${entry.version}`
  }
  return undefined
}

/**
 * @param {string} file
 * @returns {Record<string, { version?: string, optional?: boolean, devOptional?: boolean }> | undefined}
 */
function readPackages(file) {
  try {
    return JSON.parse(readFileSync(new URL(file, root), 'utf8')).packages
  } catch (error) {
    if (error instanceof SyntaxError || (error instanceof Error && 'code' in error && error.code === 'ENOENT')) {
      return undefined
    }
    throw error
  }
}

/**
 * npm's own entry when npm started us (the same npm then), else the `npm` of the path.
 * @param {string[]} args
 */
function runNpm(args) {
  const npm = process.env['npm_execpath']
  const [command, ...before] = npm === undefined ? ['npm'] : [process.execPath, npm]
  // What npm prints goes to standard error: `npm start -- --json` keeps standard output for itself.
  return spawnSync(command, [...before, ...args], { cwd: fileURLToPath(root), stdio: ['ignore', 2, 2] })
}

/**
 * @param {string} sentence
 * @returns {never}
 */
function stop(sentence) {
  console.error(sentence)
  process.exit(2)
}
