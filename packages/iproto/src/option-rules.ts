/*
 * Options checked by tables: a rule for each name. Every problem names its path, what was found and what is expected, and all of
 * them are told at once. Shared by the packages of this family, so that a wrong option reads the same everywhere.
 */
import { ConfigError, type ConfigProblem } from './errors.js'

export interface OptionRule {
  /** Completes "…, expected". */
  readonly expected: string
  readonly fits: (value: unknown) => boolean
  readonly isRequired?: boolean
  /** Its value must not show in a message. */
  readonly isSecret?: boolean
}

export type OptionRules = Readonly<Record<string, OptionRule>>

/** @throws ConfigError with every problem of `value` as a set of options */
export function checkOptions(subject: string, value: unknown, rules: OptionRules): void {
  const problems = optionProblems('', value, rules)
  if (problems.length > 0) throw new ConfigError(problems, { subject })
}

/** What stands against `value` as a set of options: not an object, unknown names, values that do not fit, missing ones. */
export function optionProblems(path: string, value: unknown, rules: OptionRules): ConfigProblem[] {
  const known = Object.keys(rules).join(', ')
  if (!isObject(value)) return [{ path, message: `is ${shownValue(value)}, expected an object with ${known}` }]
  const at = (name: string): string => (path === '' ? name : `${path}.${name}`)
  const unknown = Object.keys(value)
    .filter((name) => !Object.hasOwn(rules, name))
    .map((name) => ({ path: at(name), message: `is not known; known are ${known}` }))
  const wrong = Object.entries(rules).flatMap(([name, rule]) => {
    const given = value[name]
    if (given === undefined && rule.isRequired !== true) return []
    if (rule.fits(given)) return []
    const found =
      rule.isSecret === true && given !== undefined ? `a ${typeof given} that does not fit` : shownValue(given)
    return [{ path: at(name), message: `is ${found}, expected ${rule.expected}` }]
  })
  return [...unknown, ...wrong]
}

/** A value in a message: short, and never the contents of an object. */
export function shownValue(value: unknown): string {
  if (value === undefined) return 'missing'
  if (typeof value === 'string') return `'${value.length > 60 ? `${value.slice(0, 57)}...` : value}'`
  if (typeof value === 'number' || typeof value === 'boolean' || typeof value === 'bigint' || value === null)
    return String(value)
  if (Array.isArray(value)) return 'a list'
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`
}

/** A value with named fields: no list, not null. */
export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

const fromZero: OptionRule = {
  expected: 'a number from 0',
  fits: (value) => typeof value === 'number' && value >= 0,
}

/** Rules that many options share, and how to make others. */
export const optionRule: {
  readonly anything: OptionRule
  readonly text: OptionRule
  readonly flag: OptionRule
  readonly list: OptionRule
  readonly object: OptionRule
  readonly function: OptionRule
  readonly uuid: OptionRule
  readonly positiveInteger: OptionRule
  /** Infinity too: a time without end. */
  readonly fromZero: OptionRule
  readonly finiteFromZero: OptionRule
  readonly required: (rule: OptionRule) => OptionRule
  readonly oneOf: (...choices: readonly string[]) => OptionRule
  readonly integer: (from: number, to?: number) => OptionRule
} = {
  anything: { expected: 'anything', fits: () => true },
  text: { expected: 'a non-empty string', fits: (value) => typeof value === 'string' && value !== '' },
  flag: { expected: 'true or false', fits: (value) => typeof value === 'boolean' },
  list: { expected: 'a list', fits: (value) => Array.isArray(value) },
  object: { expected: 'an object', fits: isObject },
  function: { expected: 'a function', fits: (value) => typeof value === 'function' },
  uuid: {
    expected: 'a uuid',
    fits: (value) =>
      typeof value === 'string' && /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i.test(value),
  },
  positiveInteger: {
    expected: 'a positive integer',
    fits: (value) => Number.isSafeInteger(value) && Number(value) >= 1,
  },
  fromZero,
  finiteFromZero: { expected: 'a finite number from 0', fits: (value) => fromZero.fits(value) && value !== Infinity },
  required: (rule) => ({ ...rule, isRequired: true }),
  oneOf: (...choices) => {
    const list = choices.map((choice) => `'${choice}'`)
    return {
      expected: list.length === 1 ? list[0]! : `${list.slice(0, -1).join(', ')} or ${list.at(-1)!}`,
      fits: (value) => choices.some((choice) => choice === value),
    }
  },
  integer: (from, to = Number.MAX_SAFE_INTEGER) => ({
    expected: to === Number.MAX_SAFE_INTEGER ? `an integer from ${from}` : `an integer from ${from} to ${to}`,
    fits: (value) => Number.isSafeInteger(value) && Number(value) >= from && Number(value) <= to,
  }),
}
