/* Arguments of vshard's functions, checked as Lua's assertions do. Each throws BoxError 32. */
import { boxErrors } from '../errors.js'

/** vshard's default call timeout, where a router sends none. */
const DEFAULT_TIMEOUT_S = 0.5

export function functionName(value: unknown): string {
  if (typeof value === 'string') return value
  throw boxErrors.procLua(`a function name must be a string, got ${typeof value}`)
}

export function argumentList(value: unknown): readonly unknown[] {
  if (value === undefined || value === null) return []
  if (Array.isArray(value)) return value
  throw boxErrors.procLua('arguments must be a list')
}

export function idList(value: unknown): readonly number[] {
  if (Array.isArray(value) && value.every((id) => typeof id === 'number')) return value
  throw boxErrors.procLua('bucket ids must be a list of numbers')
}

export function bucketIdOf(value: unknown, usage: string): number {
  if (typeof value === 'number') return value
  throw boxErrors.procLua(`Usage: ${usage}`)
}

export function refId(value: unknown): number | bigint {
  if (typeof value === 'number' || typeof value === 'bigint') return value
  throw boxErrors.procLua('a ref id must be a number')
}

/** Lua's seconds, as whole or broken numbers. */
export function milliseconds(seconds: unknown, defaultSeconds: number = DEFAULT_TIMEOUT_S): number {
  const value = seconds ?? defaultSeconds
  if (typeof value !== 'number' || Number.isNaN(value) || value < 0) {
    throw boxErrors.procLua(
      `A timeout is a number of seconds from 0, got ${typeof value === 'number' ? value : typeof value}`,
    )
  }
  return value * 1000
}

/** A field of a map of options; undefined when there is none. */
export function fieldOf(value: unknown, name: string): unknown {
  if (value instanceof Map) return value.get(name)
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name)
    ? (value as Record<string, unknown>)[name]
    : undefined
}

/** A map of counts by name, as routes come. */
export function countsOf(value: unknown): ReadonlyMap<string, number> {
  const entries: [unknown, unknown][] =
    value instanceof Map ? [...value] : typeof value === 'object' && value !== null ? Object.entries(value) : []
  const counts = new Map<string, number>()
  for (const [id, count] of entries) {
    if (typeof id !== 'string' || typeof count !== 'number' || !Number.isInteger(count) || count < 0)
      throw boxErrors.procLua('routes are a map from replicasets to numbers of buckets')
    counts.set(id, count)
  }
  return counts
}
