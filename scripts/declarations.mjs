// Reads the .d.ts files that tsc emits: enough of their grammar to name each top-level declaration and to follow
// imports and re-exports. TypeScript 7 has no JavaScript API, and emitted declarations are regular: one statement
// after another, no expressions, comments only in front of things.
import { existsSync, readFileSync } from 'node:fs'
import { dirname, resolve } from 'node:path'

/**
 * @typedef {{ file: string, name: string, text: string }} Declaration
 * @typedef {{ from: string, name: string }} Elsewhere name '*' is the whole module
 * @typedef {{
 *   declared: Map<string, Declaration[]>,
 *   exported: Map<string, string>,
 *   imported: Map<string, Elsewhere>,
 *   reExported: Map<string, Elsewhere>,
 *   stars: string[],
 * }} Module `exported` maps the outer name to the local one
 */

const DECLARATION =
  /^(export )?(?:default )?(?:declare )?(?:abstract )?(?:const |let |var |function |class |interface |type |enum |namespace )([\p{ID_Start}$_][\p{ID_Continue}$]*)/u
const IMPORT = /^import (?:type )?(?:([\w$]+)(?:, )?)?(?:\* as ([\w$]+))?(?:\{([^}]*)\})? from (["'])(.+)\4;$/s
const EXPORT_LIST = /^export (?:type )?\{([^}]*)\}(?: from (["'])(.+)\2)?;$/s
const EXPORT_STAR = /^export \* from (["'])(.+)\1;$/
const EXPORT_STAR_AS = /^export \* as ([\w$]+) from (["'])(.+)\2;$/

export class Declarations {
  /** @type {Map<string, Module>} */
  #modules = new Map()

  /**
   * What a module exports, re-exports resolved to where they are declared. Names from other packages are left out:
   * their text here is the statement that re-exports them.
   * @param {string} file
   * @returns {Map<string, Declaration[]>}
   */
  exportsOf(file) {
    const module = this.#module(file)
    /** @type {Map<string, Declaration[]>} */
    const found = new Map()
    for (const star of module.stars) {
      const target = targetOf(file, star)
      if (target === undefined) found.set(`* from ${star}`, [foreign(file, '*', star)])
      else for (const [name, text] of this.exportsOf(target)) found.set(name, text)
    }
    for (const [name, elsewhere] of module.reExported) found.set(name, this.#follow(file, name, elsewhere))
    for (const [name, local] of module.exported) found.set(name, this.lookUp(file, local) ?? [])
    return found
  }

  /**
   * What a name used inside a file means: declared there, or imported from a sibling. Undefined for globals, type
   * parameters and names from other packages.
   * @param {string} file
   * @param {string} name
   * @returns {Declaration[] | undefined}
   */
  lookUp(file, name) {
    const module = this.#module(file)
    const declared = module.declared.get(name)
    if (declared) return declared
    const elsewhere = module.imported.get(name)
    if (elsewhere === undefined || elsewhere.name === '*') return undefined
    const target = targetOf(file, elsewhere.from)
    return target === undefined ? undefined : this.exportsOf(target).get(elsewhere.name)
  }

  /**
   * @param {string} file
   * @param {string} name
   * @param {Elsewhere} elsewhere
   */
  #follow(file, name, elsewhere) {
    const target = targetOf(file, elsewhere.from)
    if (target === undefined || elsewhere.name === '*') return [foreign(file, name, elsewhere.from)]
    const found = this.exportsOf(target).get(elsewhere.name)
    if (found === undefined) throw new Error(`${file} re-exports ${elsewhere.name}, which ${target} does not export`)
    return found
  }

  /** @param {string} file */
  #module(file) {
    let module = this.#modules.get(file)
    if (module === undefined) this.#modules.set(file, (module = readModule(file)))
    return module
  }
}

/**
 * @param {string} file
 * @param {string} name
 * @param {string} from
 * @returns {Declaration}
 */
function foreign(file, name, from) {
  return { file, name, text: `export { ${name} } from '${from}'` }
}

/**
 * The file behind a relative specifier; undefined for another package.
 * @param {string} file
 * @param {string} specifier
 */
function targetOf(file, specifier) {
  if (!specifier.startsWith('.')) return undefined
  const target = resolve(dirname(file), specifier.replace(/\.js$/, '.d.ts'))
  if (!existsSync(target)) throw new Error(`${file} imports ${specifier}, but there is no ${target}`)
  return target
}

/**
 * @param {string} file
 * @returns {Module}
 */
function readModule(file) {
  /** @type {Module} */
  const module = { declared: new Map(), exported: new Map(), imported: new Map(), reExported: new Map(), stars: [] }
  for (const text of statementsOf(withoutComments(readFileSync(file, 'utf8')))) addStatement(module, file, text)
  return module
}

/**
 * @param {Module} module
 * @param {string} file
 * @param {string} text
 */
function addStatement(module, file, text) {
  let match
  if ((match = IMPORT.exec(text))) {
    const [, byDefault, namespace, list, , from = ''] = match
    if (byDefault) module.imported.set(byDefault, { from, name: 'default' })
    if (namespace) module.imported.set(namespace, { from, name: '*' })
    for (const [outer, inner] of namesOf(list)) module.imported.set(inner, { from, name: outer })
  } else if ((match = EXPORT_LIST.exec(text))) {
    const [, list, , from] = match
    for (const [inner, outer] of namesOf(list)) {
      if (from === undefined) module.exported.set(outer, inner)
      else module.reExported.set(outer, { from, name: inner })
    }
  } else if ((match = EXPORT_STAR.exec(text))) {
    module.stars.push(match[2] ?? '')
  } else if ((match = EXPORT_STAR_AS.exec(text))) {
    module.reExported.set(match[1] ?? '', { from: match[3] ?? '', name: '*' })
  } else if ((match = DECLARATION.exec(text))) {
    const [, isExported, name = ''] = match
    const declaration = { file, name, text: text.replace(/^export /, '').replace(/^declare /, '') }
    module.declared.set(name, [...(module.declared.get(name) ?? []), declaration])
    if (isExported) module.exported.set(name, name)
  } else if (!/^import (["']).+\1;$/.test(text)) {
    throw new Error(`${file}: cannot read the declaration\n${text}`)
  }
}

/**
 * Pairs of (name there, name here) of an import or export list.
 * @param {string | undefined} list
 * @returns {[string, string][]}
 */
function namesOf(list) {
  return (list ?? '')
    .split(',')
    .map((part) => part.trim().replace(/^type /, ''))
    .filter((part) => part !== '')
    .map((part) => {
      const [there = '', here = there] = part.split(' as ')
      return [there, here]
    })
}

/**
 * Top-level statements, each ending with `;` or with the `}` of a block.
 * @param {string} source
 * @returns {string[]}
 */
function statementsOf(source) {
  const statements = []
  let depth = 0
  let start = 0
  for (let i = 0; i < source.length; i++) {
    const c = source[i]
    if (c === '"' || c === "'" || c === '`') i = endOfString(source, i)
    else if (c === '{' || c === '(' || c === '[') depth++
    else if (c === '}' || c === ')' || c === ']') depth--
    const closed = depth === 0 && (c === ';' || (c === '}' && endsWithBlock(source.slice(start, i).trimStart())))
    if (!closed) continue
    const text = source.slice(start, i + 1).trim()
    if (text !== ';' && text !== 'export {};') statements.push(text)
    start = i + 1
  }
  return statements
}

/** @param {string} text */
function endsWithBlock(text) {
  return /^(export )?(default )?(declare )?(abstract )?(class|interface|enum|namespace) /.test(text)
}

/** @param {string} source */
function withoutComments(source) {
  let kept = ''
  let from = 0
  for (let i = 0; i < source.length; i++) {
    const c = source[i]
    if (c === '"' || c === "'" || c === '`') {
      i = endOfString(source, i)
      continue
    }
    const opening = c === '/' ? source[i + 1] : undefined
    if (opening !== '/' && opening !== '*') continue
    kept += source.slice(from, i)
    const closing = opening === '/' ? '\n' : '*/'
    const close = source.indexOf(closing, i + 2)
    // The last line, which names the source map, has no end.
    from = close < 0 ? source.length : close + (opening === '/' ? 0 : 2)
    i = from - 1
  }
  return (kept + source.slice(from)).replace(/^[ \t]*\n/gm, '')
}

/**
 * The index of the closing quote.
 * @param {string} source
 * @param {number} start
 */
function endOfString(source, start) {
  let i = start + 1
  while (i < source.length && source[i] !== source[start]) i += source[i] === '\\' ? 2 : 1
  return i
}
