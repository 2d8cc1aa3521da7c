/* A configuration file of the command, as data: checked by a schema, then turned into options. */
import { parseListenAddress } from '@orbweaver/connection'
import { ConfigError, type ConfigProblem, isOrbweaverError } from '@orbweaver/iproto'
import { z } from 'zod'
import { DEFAULT_LIMITS } from './limits.js'
import type { ProxyOptions } from './options.js'

const duration = z.number().positive()
const address = z.union([
  z.string(),
  z.strictObject({ host: z.string(), port: z.number().int().min(0).max(65_535) }),
  z.strictObject({ path: z.string() }),
])
const verify = z.enum(['always', 'ttl', 'never']).optional()

const schema = z.strictObject({
  listen: z.array(address).min(1),
  targets: z.record(z.string(), z.strictObject({ uri: z.string(), weight: z.number().positive().optional() })),
  rw: z.string().optional(),
  ro: z.array(z.string()).optional(),
  credentials: z
    .discriminatedUnion('mode', [
      z.strictObject({ mode: z.literal('static'), users: z.record(z.string(), z.string()), verify }),
      z.strictObject({
        mode: z.literal('query'),
        user: z.string(),
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
    })
    .optional(),
  split: z
    .strictObject({
      enabled: z.boolean().optional(),
      readFunctions: z.array(z.string()).optional(),
      masterSpaces: z.array(z.union([z.string(), z.number()])).optional(),
      sql: z.boolean().optional(),
      readAfterWriteMs: z.number().nonnegative().optional(),
    })
    .optional(),
  failover: z
    .strictObject({
      prepareTimeoutMs: duration.optional(),
      drainTimeoutMs: duration.optional(),
      handoverTimeoutMs: duration.optional(),
      failoverTimeoutMs: duration.optional(),
    })
    .optional(),
  limits: z
    .strictObject(Object.fromEntries(Object.keys(DEFAULT_LIMITS).map((name) => [name, z.number().optional()])))
    .optional(),
  version: z.string().optional(),
  uuid: z.string().optional(),
  forwardUnknown: z.boolean().optional(),
})

/**
 * Options of a proxy from the text of a configuration file in JSON.
 * @throws ConfigError with all problems, each with its path
 */
export function readConfig(text: string): ProxyOptions {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw new ConfigError([{ path: '', message: `is not JSON: ${(error as Error).message}` }], { subject: 'proxy' })
  }
  const result = schema.safeParse(value)
  if (!result.success) {
    const problems = result.error.issues.map(({ path, message }) => ({ path: pathOf(path), message }))
    throw new ConfigError(problems, { subject: 'proxy' })
  }
  const problems: ConfigProblem[] = []
  const listen = result.data.listen.flatMap((entry, i) => {
    if (typeof entry !== 'string') return [entry]
    try {
      return [parseListenAddress(entry)]
    } catch (error) {
      if (!isOrbweaverError(error)) throw error
      problems.push({ path: `listen[${i}]`, message: error.message })
      return []
    }
  })
  if (problems.length > 0) throw new ConfigError(problems, { subject: 'proxy' })
  return withoutUndefined({ ...result.data, listen }) as ProxyOptions
}

/** `targets.a.uri`, `listen[0]`. */
function pathOf(path: readonly PropertyKey[]): string {
  return path.reduce<string>((text, part) => {
    if (typeof part === 'number') return `${text}[${part}]`
    return text === '' ? String(part) : `${text}.${String(part)}`
  }, '')
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
