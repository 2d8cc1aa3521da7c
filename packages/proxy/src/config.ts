/*
 * A configuration file of the command, YAML or JSON (which is YAML as well): read with the places of everything in it, checked by
 * a schema, then turned into options. Every problem has its path, its line and what to write there.
 */
import { parseListenAddress } from '@orbweaver/connection'
import { ConfigError, type ConfigProblem, isOrbweaverError } from '@orbweaver/iproto'
import { type Document, LineCounter, parseDocument } from 'yaml'
import { z } from 'zod'
import { DEFAULT_LIMITS } from './limits.js'
import type { ProxyOptions } from './options.js'

const duration = z.number().positive()
const fromZero = z.number().nonnegative()
const text = z.string().min(1)
const listenTls = z.strictObject({ certFile: text, keyFile: text, caFile: text.optional() }).optional()
const isDirect = z.boolean().optional()
const proxyProtocol = z.strictObject({ trusted: z.array(text) }).optional()
const address = z.union([
  text,
  z.strictObject({ host: text, port: z.number().int().min(0).max(65_535), tls: listenTls, proxyProtocol, isDirect }),
  z.strictObject({ path: text, tls: listenTls, isDirect }),
  z.strictObject({ at: text, tls: listenTls, proxyProtocol, isDirect }),
])
const verify = z.enum(['always', 'ttl', 'never']).optional()

const schema = z.strictObject({
  listen: z.array(address).min(1),
  targets: z.record(
    z.string(),
    z.strictObject({
      uri: text,
      weight: z.number().positive().optional(),
      zone: text.optional(),
      tls: z
        .strictObject({
          caFile: text.optional(),
          certFile: text.optional(),
          keyFile: text.optional(),
          serverName: text.optional(),
        })
        .optional(),
    }),
  ),
  rw: text.optional(),
  ro: z.array(text).optional(),
  credentials: z
    .discriminatedUnion('mode', [
      z.strictObject({
        mode: z.literal('static'),
        users: z.record(z.string(), z.string()),
        verify,
        evictChangedUsers: z.boolean().optional(),
      }),
      z.strictObject({
        mode: z.literal('query'),
        user: text,
        password: z.string(),
        credentialTtlMs: duration.optional(),
        verify,
      }),
      z.strictObject({ mode: z.literal('learn') }),
    ])
    .optional(),
  pool: z
    .strictObject({
      mode: z.record(z.string(), z.enum(['multiplex', 'session'])).optional(),
      weights: z.record(z.string(), z.number().positive()).optional(),
      onFailover: z.record(z.string(), z.enum(['close', 'rebind'])).optional(),
    })
    .optional(),
  split: z
    .strictObject({
      enabled: z.boolean().optional(),
      readFunctions: z.array(text).optional(),
      masterSpaces: z.array(z.union([text, z.number()])).optional(),
      sql: z.boolean().optional(),
      readAfterWriteMs: fromZero.optional(),
    })
    .optional(),
  balance: z
    .strictObject({
      policy: z.enum(['least-inflight', 'round-robin', 'random-2', 'zone-first']).optional(),
      zone: text.optional(),
      slowStartMs: fromZero.optional(),
    })
    .optional(),
  pin: z.strictObject({ functions: z.array(text).optional() }).optional(),
  retry: z.strictObject({ reads: z.boolean().optional() }).optional(),
  rejectWhenReadOnly: z.boolean().optional(),
  failover: z
    .strictObject({
      prepareTimeoutMs: duration.optional(),
      drainTimeoutMs: duration.optional(),
      handoverTimeoutMs: duration.optional(),
      failoverTimeoutMs: duration.optional(),
    })
    .optional(),
  admin: z
    .strictObject({
      host: text.optional(),
      port: z.number().int().min(0).max(65_535),
      token: text.optional(),
      readToken: text.optional(),
    })
    .optional(),
  limits: z
    .strictObject(Object.fromEntries(Object.keys(DEFAULT_LIMITS).map((name) => [name, z.number().optional()])))
    .optional(),
  log: z.strictObject({ level: z.enum(['debug', 'info', 'warn', 'error']).optional() }).optional(),
  version: text.optional(),
  uuid: text.optional(),
  forwardUnknown: z.boolean().optional(),
})

type LogLevel = 'debug' | 'info' | 'warn' | 'error'

/** What a file says. */
export interface FileConfig {
  readonly options: ProxyOptions
  /** Least level of what the command writes about itself. */
  readonly logLevel: LogLevel
}

/** Gives the contents of a file that the configuration names. @throws Error when it cannot be read */
type ReadFile = (path: string) => string

/**
 * Options of a proxy from the text of a configuration file.
 * @throws ConfigError with all problems, each with its path and, where there is one, its line
 */
export function readConfig(source: string, readFile: ReadFile): FileConfig {
  const lines = new LineCounter()
  const document = parseDocument(source, { lineCounter: lines, prettyErrors: false })
  const [syntax] = document.errors
  if (syntax !== undefined) {
    const line = lines.linePos(syntax.pos[0]).line
    throw refused([{ path: '', message: `is neither YAML nor JSON: ${syntax.message} (line ${line})` }])
  }
  const value: unknown = document.toJS()
  const result = schema.safeParse(value)
  if (!result.success) {
    throw refused(
      result.error.issues.flatMap((issue) => problemsOf(issue, value)).map((found) => placed(found, document, lines)),
    )
  }
  const problems: ConfigProblem[] = []
  const { log, listen, targets, ...rest } = result.data
  const files = new Files(readFile, problems)
  const options = withoutUndefined({
    ...rest,
    listen: listen.map((entry, i) => listenerOf(entry, `listen[${i}]`, files, problems)),
    targets: Object.fromEntries(
      Object.entries(targets).map(([name, { tls, ...target }]) => [
        name,
        { ...target, tls: files.contents(tls, `targets.${name}.tls`) },
      ]),
    ),
  })
  if (problems.length > 0) throw refused(problems)
  return { options: options as ProxyOptions, logLevel: log?.level ?? 'info' }
}

function listenerOf(
  entry: z.infer<typeof address>,
  path: string,
  files: Files,
  problems: ConfigProblem[],
): Record<string, unknown> {
  if (typeof entry === 'string') return addressAt(entry, path, problems)
  const { tls, ...rest } = entry
  const contents = files.contents(tls, `${path}.tls`)
  if (!('at' in rest)) return { ...rest, tls: contents }
  const { at, ...door } = rest
  return { ...addressAt(at, `${path}.at`, problems), ...door, tls: contents }
}

function addressAt(at: string, path: string, problems: ConfigProblem[]): Record<string, unknown> {
  try {
    return { ...parseListenAddress(at) }
  } catch (error) {
    if (!isOrbweaverError(error)) throw error
    problems.push({ path, message: error.message })
    return {}
  }
}

/** Names of files become what is in them: `certFile` is `cert` then. */
class Files {
  readonly #readFile: ReadFile
  readonly #problems: ConfigProblem[]

  constructor(readFile: ReadFile, problems: ConfigProblem[]) {
    this.#readFile = readFile
    this.#problems = problems
  }

  contents(
    names: Readonly<Record<string, string | undefined>> | undefined,
    path: string,
  ): Record<string, string> | undefined {
    if (names === undefined) return undefined
    const contents: Record<string, string> = {}
    for (const [name, value] of Object.entries(names)) {
      if (value === undefined) continue
      if (name.endsWith('File')) contents[name.slice(0, -'File'.length)] = this.#read(value, `${path}.${name}`)
      else contents[name] = value
    }
    return contents
  }

  #read(file: string, path: string): string {
    try {
      return this.#readFile(file)
    } catch (error) {
      this.#problems.push({ path, message: `cannot be read: ${(error as Error).message}` })
      return ''
    }
  }
}

// ---- problems in words ----------------------------------------------------------------------------------------------

interface Found {
  readonly path: readonly PropertyKey[]
  readonly message: string
}

function problemsOf(issue: z.core.$ZodIssue, root: unknown): Found[] {
  const { path } = issue
  switch (issue.code) {
    case 'unrecognized_keys':
      return issue.keys.map((key) => ({ path: [...path, key], message: `is not known here${suggestion(key, path)}` }))
    case 'invalid_union': {
      const closest = issue.errors
        .filter((issues) => issues.every(({ path: inner }) => inner.length > 0))
        .toSorted((a, b) => a.length - b.length)[0]
      if (closest !== undefined)
        return closest.flatMap((inner) => problemsOf({ ...inner, path: [...path, ...inner.path] }, root))
      return [
        { path, message: `is ${described(root, path)}, expected ${EXPECTED_OF[String(path[0])] ?? 'another value'}` },
      ]
    }
    case 'invalid_value':
      return [{ path, message: `is ${described(root, path)}, expected ${issue.values.map(String).join(', ')}` }]
    case 'invalid_type':
      return [{ path, message: wrongType(issue.expected, path, root) }]
    case 'too_small':
      return [{ path, message: `is ${described(root, path)}, expected ${leastOf(issue)}` }]
    case 'too_big':
      return [{ path, message: `is ${described(root, path)}, expected at most ${String(issue.maximum)}` }]
    default:
      return [{ path, message: `is ${described(root, path)}: ${issue.message}` }]
  }
}

function wrongType(expected: string, path: readonly PropertyKey[], root: unknown): string {
  const word = WORD_OF_TYPE[expected] ?? expected
  return valueAt(root, path) === undefined
    ? `is missing, expected ${word}`
    : `is ${described(root, path)}, expected ${word}`
}

function leastOf(issue: z.core.$ZodIssueTooSmall): string {
  if (issue.origin === 'string') return 'some text'
  if (issue.origin === 'array') return `at least ${String(issue.minimum)} entry`
  return issue.inclusive === true ? `a number from ${String(issue.minimum)}` : `a number above ${String(issue.minimum)}`
}

/** What the writer may have meant: a name that differs in few letters; else all there are. */
function suggestion(key: string, path: readonly PropertyKey[]): string {
  const known = namesAt(path)
  const near = known.find((name) => distance(name.toLowerCase(), key.toLowerCase()) <= Math.max(1, key.length / 4))
  if (near !== undefined) return `; did you mean ${near}?`
  return known.length === 0 ? '' : `; there are ${known.join(', ')}`
}

/** Names that the schema has at a place; none where it has alternatives. */
function namesAt(path: readonly PropertyKey[]): string[] {
  let at: unknown = schema
  for (const part of path) {
    at = inside(at)
    if (at instanceof z.ZodObject) at = (at.shape as Record<string, unknown>)[String(part)]
    else if (at instanceof z.ZodRecord) at = at.valueType
    else if (at instanceof z.ZodArray) at = at.element
    else return []
  }
  at = inside(at)
  return at instanceof z.ZodObject ? Object.keys(at.shape) : []
}

function inside(type: unknown): unknown {
  return type instanceof z.ZodOptional ? type.unwrap() : type
}

/** Letters to change, add or leave out between two words. */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++) {
      const change = row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)
      next.push(Math.min(change, row[j]! + 1, next[j - 1]! + 1))
    }
    row = next
  }
  return row[b.length]!
}

function described(root: unknown, path: readonly PropertyKey[]): string {
  const value = valueAt(root, path)
  // Nothing that may be a secret goes into a message.
  if (typeof value === 'string') return path.some((part) => SECRETS.has(String(part))) ? 'a text' : `'${value}'`
  if (value === null || value === undefined) return 'empty'
  if (Array.isArray(value)) return value.length === 0 ? 'an empty list' : 'a list'
  return typeof value === 'number' || typeof value === 'boolean' ? String(value) : 'an object'
}

function valueAt(root: unknown, path: readonly PropertyKey[]): unknown {
  return path.reduce<unknown>(
    (value, part) =>
      typeof value === 'object' && value !== null ? (value as Record<PropertyKey, unknown>)[part] : undefined,
    root,
  )
}

/** With the line of the value, or of what should hold it. */
function placed({ path, message }: Found, document: Document, lines: LineCounter): ConfigProblem {
  for (let length = path.length; length > 0; length--) {
    const node = document.getIn(path.slice(0, length), true)
    const range = typeof node === 'object' && node !== null && 'range' in node ? node.range : undefined
    if (Array.isArray(range) && typeof range[0] === 'number')
      return { path: pathText(path), message: `${message} (line ${lines.linePos(range[0]).line})` }
  }
  return { path: pathText(path), message }
}

/** `targets.a.uri`, `listen[0]`. */
function pathText(path: readonly PropertyKey[]): string {
  return path.reduce<string>((whole, part) => {
    if (typeof part === 'number') return `${whole}[${part}]`
    return whole === '' ? String(part) : `${whole}.${String(part)}`
  }, '')
}

function refused(problems: readonly ConfigProblem[]): ConfigError {
  return new ConfigError(problems, { subject: 'proxy' })
}

/** Optional keys that are absent stay absent: options distinguish them from undefined. */
function withoutUndefined(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutUndefined)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, field]) => field !== undefined)
      .map(([name, field]) => [name, withoutUndefined(field)]),
  )
}

const SECRETS: ReadonlySet<string> = new Set(['password', 'token', 'readToken', 'users'])
const WORD_OF_TYPE: Readonly<Record<string, string>> = {
  string: 'a text',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  array: 'a list',
  object: 'an object',
  record: 'an object',
}
const EXPECTED_OF: Readonly<Record<string, string>> = {
  listen: "an address such as '127.0.0.1:3301', or { host, port }, { path } or { at }",
  credentials: 'a mode: static, query or learn',
  split: 'the name or the id of a space',
}
