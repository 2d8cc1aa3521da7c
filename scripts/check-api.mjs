// The public API of every package as a committed report, packages/*/api.md, made from the emitted declarations of its
// doors. Without arguments the reports are compared with what the build says, so that a change of API is a change of
// a file somebody reviews; `--write` (npm run api) writes them. Names of folders limit it to those packages.
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { basename, resolve } from 'node:path'
import { Declarations } from './declarations.mjs'
import { publishedPackages } from './published-packages.mjs'

const write = process.argv.includes('--write')
const chosen = process.argv.slice(2).filter((argument) => argument.startsWith('packages/'))
let changed = 0

for (const { dir, folder, manifest } of publishedPackages()) {
  if (chosen.length > 0 && !chosen.includes(folder)) continue
  const report = reportOf(dir, manifest)
  const file = `${dir}/api.md`
  const committed = existsSync(file) ? readFileSync(file, 'utf8') : ''
  if (committed === report) continue
  changed++
  if (write) {
    writeFileSync(file, report)
    console.log(`wrote ${folder}/api.md`)
  } else {
    console.error(`${folder}/api.md is not what the build exports:\n\n${differences(committed, report)}\n`)
  }
}
if (changed > 0 && !write) {
  console.error('If the change of the API is meant, run `npm run api` and commit the reports')
  process.exitCode = 1
}

/**
 * @param {string} dir
 * @param {import('./published-packages.mjs').Manifest} manifest
 */
function reportOf(dir, manifest) {
  const declarations = new Declarations()
  const parts = [
    `# Public API of ${manifest.name}`,
    'Made by `npm run api` from the emitted declarations; `npm run check` compares it. Not written by hand.',
  ]
  for (const [door, target] of Object.entries(manifest.exports)) {
    if (typeof target === 'string') continue
    const declared = resolve(dir, target.types)
    if (!existsSync(declared)) throw new Error(`${manifest.name} is not built (no ${target.types}): npm run build`)
    const exported = declarations.exportsOf(declared)
    parts.push(`## ${manifest.name}${door.slice(1)}`)
    for (const name of [...exported.keys()].toSorted()) parts.push(...section(name, exported.get(name) ?? []))
    const inside = reachedFrom(declarations, [...exported.values()].flat())
    if (inside.length === 0) continue
    parts.push(`## Inside ${manifest.name}${door.slice(1)}: not exported, but part of the shapes above`)
    for (const found of inside) parts.push(...section(`${found.name} (${basename(found.file)})`, [found]))
  }
  return `${parts.join('\n\n')}\n`
}

/**
 * @param {string} title
 * @param {import('./declarations.mjs').Declaration[]} found
 */
function section(title, found) {
  return [`### ${title}`, `\`\`\`ts\n${found.map(({ text }) => text).join('\n')}\n\`\`\``]
}

/**
 * Declarations of the same package that exported ones mention, and what those mention in turn.
 * @param {Declarations} declarations
 * @param {import('./declarations.mjs').Declaration[]} exported
 */
function reachedFrom(declarations, exported) {
  const seen = new Set(exported)
  for (const { file, text } of seen) {
    for (const name of new Set(text.match(/[\p{ID_Start}$_][\p{ID_Continue}$]*/gu))) {
      for (const found of declarations.lookUp(file, name) ?? []) seen.add(found)
    }
  }
  for (const known of exported) seen.delete(known)
  return [...seen].toSorted((a, b) => compare(a.name, b.name) || compare(a.file, b.file))
}

/**
 * @param {string} a
 * @param {string} b
 */
function compare(a, b) {
  if (a === b) return 0
  return a < b ? -1 : 1
}

/**
 * Per section: what is new, what is gone, and both texts of what changed.
 * @param {string} before
 * @param {string} after
 */
function differences(before, after) {
  const was = sectionsOf(before)
  const is = sectionsOf(after)
  const lines = []
  for (const title of new Set([...was.keys(), ...is.keys()])) {
    const old = was.get(title)
    const now = is.get(title)
    if (old === now) continue
    lines.push(`  ${title}`)
    if (old !== undefined) lines.push(old.replace(/^/gm, '  - '))
    if (now !== undefined) lines.push(now.replace(/^/gm, '  + '))
  }
  return lines.join('\n')
}

/**
 * @param {string} report
 * @returns {Map<string, string>}
 */
function sectionsOf(report) {
  const sections = new Map()
  let door = ''
  for (const part of report.split(/^(?=##)/m)) {
    const [heading = '', ...rest] = part.split('\n')
    if (heading.startsWith('## ')) door = heading.slice(3)
    const title = heading.startsWith('### ') ? `${heading.slice(4)}, in ${door}` : heading
    sections.set(title, rest.filter((line) => line !== '' && !line.startsWith('```')).join('\n'))
  }
  return sections
}
