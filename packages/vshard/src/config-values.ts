/* What single values of a configuration may be, as zod schemas whose messages say what is there and what belongs there.
 * zod stays inside: no public type mentions it. */
import type { ConfigProblem } from '@orbweaver/iproto'
import { z } from 'zod'
import { decodeUri } from './config-uri.js'

const isNumber = (value: unknown): value is number => typeof value === 'number' && !Number.isNaN(value)
const isText = (value: unknown): value is string => typeof value === 'string' && value !== ''
const isWhole = (value: unknown): value is number => Number.isSafeInteger(value)

/** A value with one rule; `expected` completes "must be …". */
function rule<T>(expected: string, check: (value: unknown) => boolean): z.ZodType<T> {
  return z.custom<T>(check, { error: (issue) => `${shown(issue.input)}, must be ${expected}` })
}

export const flag: z.ZodType<boolean> = rule('true or false', (value) => typeof value === 'boolean')
export const text: z.ZodType<string> = rule('a text', (value) => typeof value === 'string')
export const filledText: z.ZodType<string> = rule('a text that is not empty', isText)
export const port: z.ZodType<number> = rule(
  'a port number from 1 to 65535',
  (value) => isWhole(value) && value >= 1 && value <= 65_535,
)
export const nonNegative: z.ZodType<number> = rule('a number of at least 0', (value) => isNumber(value) && value >= 0)
export const positive: z.ZodType<number> = rule('a number above 0', (value) => isNumber(value) && value > 0)
export const weight: z.ZodType<number> = rule(
  'a finite number of at least 0',
  (value) => isNumber(value) && value >= 0 && value < Infinity,
)
export const count: z.ZodType<number> = rule('a whole number of at least 1', (value) => isWhole(value) && value >= 1)
export const zone: z.ZodType<string | number> = rule(
  'a text or a number',
  (value) => typeof value === 'string' || isNumber(value),
)
export const indexRef: z.ZodType<string | number> = rule(
  'the name of an index or its number (0 or more)',
  (value) => isText(value) || (isWhole(value) && value >= 0),
)
export const uri: z.ZodType = rule(
  'an address: host:port, user:password@host:port, a port or unix/:path',
  (value) => decodeUri(value) !== undefined,
)

export function countUpTo(max: number): z.ZodType<number> {
  return rule(`a whole number from 1 to ${max}`, (value) => isWhole(value) && value >= 1 && value <= max)
}

export function oneOf<T extends string>(...choices: readonly T[]): z.ZodType<T> {
  const list = choices.map((choice) => `"${choice}"`)
  const expected = list.length === 1 ? list[0]! : `${list.slice(0, -1).join(', ')} or ${list.at(-1)!}`
  return rule(expected, (value) => choices.some((choice) => choice === value))
}

/** A map with known keys; unknown ones are kept. A null value counts as absent, as nil does in Lua. */
export function options<S extends z.ZodRawShape>(what: string, shape: S): z.ZodObject<S, z.core.$loose> {
  return z.looseObject(shape, { error: (issue) => `${shown(issue.input)}, must be ${what}` })
}

export function listOf<T>(what: string, item: z.ZodType<T>): z.ZodType<T[]> {
  return z.array(item, { error: (issue) => `${shown(issue.input)}, must be ${what}` })
}

/** A map by id. The empty list counts as the empty map: that is how an empty Lua table travels. */
export function byId<T>(what: string, item: z.ZodType<T>): z.ZodType<Record<string, T>> {
  const asObject = (value: unknown): unknown => {
    if (value instanceof Map) return Object.fromEntries([...value].map(([key, entry]) => [String(key), entry]))
    return Array.isArray(value) && value.length === 0 ? {} : value
  }
  return z.preprocess(
    asObject,
    z.record(z.string(), item, { error: (issue) => `${shown(issue.input)}, must be ${what}` }),
  )
}

/** One of two schemas, chosen by looking at the value, so that problems keep their paths. */
export function either(choose: (value: unknown) => z.ZodType): z.ZodType {
  return z.unknown().superRefine((value, context) => {
    const result = choose(value).safeParse(value)
    for (const { path, message } of result.error?.issues ?? []) {
      context.addIssue({ code: 'custom', path: [...path], message })
    }
  })
}

/** A list of exactly three values. */
export function triple(what: string, a: z.ZodType, b: z.ZodType, c: z.ZodType): z.ZodType {
  return z.tuple([a, b, c], { error: (issue) => `${shown(issue.input)}, must be ${what}` })
}

/** `{ [key]: value }`, or nothing for a value that is absent. */
export function present<K extends string, V>(key: K, value: V | null | undefined): { readonly [key in K]?: V } {
  return value === undefined || value === null ? {} : ({ [key]: value } as { readonly [key in K]?: V })
}

/** What stands against a value, each with its path; nothing when it fits. */
export function problemsWith(schema: z.ZodType, value: unknown): ConfigProblem[] {
  const result = schema.safeParse(value)
  if (result.success) return []
  return result.error.issues.map(({ path, message }) => ({ path: pathText(path), message }))
}

/** `sharding["a-b"].replicas.x[0]` */
export function pathText(path: readonly PropertyKey[]): string {
  let written = ''
  for (const part of path) {
    if (typeof part === 'number') written += `[${part}]`
    else if (/^[A-Za-z_]\w*$/.test(String(part))) written += written === '' ? String(part) : `.${String(part)}`
    else written += `[${JSON.stringify(String(part))}]`
  }
  return written
}

function inspected(value: unknown): string {
  return typeof value === 'bigint' || typeof value === 'number' || typeof value === 'boolean'
    ? String(value)
    : `a ${typeof value}`
}

/** The value as the start of a message: `is 5`, `is missing`. */
function shown(value: unknown): string {
  if (value === undefined || value === null) return 'is missing'
  if (typeof value === 'string') return `is ${JSON.stringify(value.length > 60 ? `${value.slice(0, 57)}...` : value)}`
  if (Array.isArray(value)) return 'is a list'
  if (typeof value === 'object') return 'is a map'
  return `is ${inspected(value)}`
}
