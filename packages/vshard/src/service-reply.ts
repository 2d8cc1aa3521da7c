/* What a storage answers: a list of the values a Lua function returned. `[value, …]` is success, `[nil, error]` a refusal,
 * `[]` and `[nil]` are "nothing". Source: vshard 0.1.42, captured replies of Tarantool 2.6.0 and 3.2.1. */
import { type BoxError, MalformedFrameError } from '@orbweaver/iproto'
import { asStorageError, asVshardError, type VshardError } from './errors.js'

/** A call of a registered function: pass both to `callRequest` of `@orbweaver/iproto`. */
export interface ServiceCall {
  readonly name: string
  readonly args: readonly unknown[]
}

/**
 * The answer to a service call. `executed` of the error is `no` for a vshard error (those refuse before anything
 * happens) and `yes` for others.
 */
export type ServiceReply<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly error: VshardError | BoxError }

/**
 * Reads a reply by its convention.
 * @param parse - the value, or undefined when it is not of the expected shape
 * @throws MalformedFrameError when it is not (`executed` is `yes`: the function did answer)
 */
export function readServiceReply<T>(
  name: string,
  values: readonly unknown[],
  parse: (first: unknown) => T | undefined,
): ServiceReply<T> {
  if (isNothing(values[0]) && !isNothing(values[1])) return { ok: false, error: errorIn(values[1]) }
  const value = parse(values[0])
  if (value === undefined) throw unexpectedReply(name, values)
  return { ok: true, value }
}

/** The error of `[nil, error]`. */
export function errorIn(value: unknown): VshardError | BoxError {
  return asVshardError(value, { executed: 'no' }) ?? asStorageError(value, { executed: 'yes' })
}

export function isNothing(value: unknown): value is null | undefined {
  return value === null || value === undefined
}

export function unexpectedReply(name: string, values: readonly unknown[]): MalformedFrameError {
  const kinds = values.map((value) => (Array.isArray(value) ? 'list' : value === null ? 'nil' : typeof value))
  return new MalformedFrameError(`${name} answered [${kinds.join(', ')}], which is not the form of its replies`, {
    executed: 'yes',
  })
}

/**
 * Milliseconds as the seconds vshard takes. Infinity becomes 500 years of 365 days, vshard's own infinity, because the
 * arithmetic of its deadlines needs a finite number.
 */
export function toSeconds(ms: number): number {
  return ms === Infinity ? VSHARD_INFINITY_SECONDS : ms / 1000
}

const VSHARD_INFINITY_SECONDS = 500 * 365 * 86_400
