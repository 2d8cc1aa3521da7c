// What a user would get from the registry: every published package is looked at by publint (strict) and by
// "are the types wrong" (for ES modules only), packed as npm would pack it.
import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { publint } from 'publint'
import { formatMessage } from 'publint/utils'
import { publishedPackages } from './published-packages.mjs'

const AT_A_TIME = 2
const attw = fileURLToPath(new URL('../node_modules/.bin/attw', import.meta.url))

const waiting = publishedPackages()
let failed = 0
await Promise.all(Array.from({ length: AT_A_TIME }, worker))
process.exitCode = failed === 0 ? 0 : 1

async function worker() {
  for (let next = waiting.shift(); next; next = waiting.shift()) {
    const complaints = [...(await lint(next.dir, next.manifest)), ...(await types(next.dir))]
    console.log(`${complaints.length === 0 ? 'ok    ' : 'failed'} ${next.manifest.name}`)
    for (const complaint of complaints) console.log(complaint.replace(/^/gm, '       '))
    if (complaints.length > 0) failed++
  }
}

/**
 * @param {string} pkgDir
 * @param {import('./published-packages.mjs').Manifest} manifest
 */
async function lint(pkgDir, manifest) {
  const { messages } = await publint({ pkgDir, strict: true, pack: 'npm' })
  return messages.map((message) => `publint: ${formatMessage(message, manifest, { color: false }) ?? message.code}`)
}

/** @param {string} dir */
async function types(dir) {
  const child = spawn(attw, ['--pack', dir, '--profile', 'esm-only', '--quiet', '--no-color'], {
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  child.stdout.on('data', (chunk) => (output += String(chunk)))
  child.stderr.on('data', (chunk) => (output += String(chunk)))
  const code = await new Promise((resolve, reject) => child.once('close', resolve).once('error', reject))
  return code === 0 ? [] : [`attw: ${output.trim()}`]
}
