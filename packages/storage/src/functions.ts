/*
 * What clients may CALL, by name. A function of TypeScript takes the place of a Lua function: its returned value is the first
 * element of the reply, `values(…)` returns several, as Lua's multiple results.
 */
import type { FunctionContext } from './function-context.js'

/** Several results of one function, as `return a, b` in Lua. */
export class Values {
  readonly list: readonly unknown[]

  constructor(list: readonly unknown[]) {
    this.list = list
  }
}

/** `return values(null, error)` is what `return nil, error` is in Lua. */
export function values(...list: unknown[]): Values {
  return new Values(list)
}

/**
 * A callable function. It may return a value, a promise, or `values(…)`; returning undefined is returning nothing. What it throws
 * reaches the client: a BoxError as itself, anything else as error 32 with its message.
 */
export type StoredFunction = (context: FunctionContext, ...args: unknown[]) => unknown

/** Results as CALL's DATA. */
export function resultList(result: unknown): readonly unknown[] {
  if (result === undefined) return []
  return result instanceof Values ? result.list : [result]
}
