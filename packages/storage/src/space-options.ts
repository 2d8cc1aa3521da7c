/* What `createSpace` is given, checked as a whole before anything is made of it. */
import { ConfigError, InvalidArgumentError, isObject, optionProblems, optionRule, shownValue } from '@orbweaver/iproto'
import type { ConfigProblem, OptionRule, OptionRules } from '@orbweaver/iproto'
import { INDEXABLE, isFieldType } from './engine/field-type.js'
import type { FieldOptions, IndexOptions, SpaceOptions } from './engine/index-builder.js'

/**
 * @throws InvalidArgumentError for a name that is none
 * @throws ConfigError with every problem of the format and the indexes
 */
export function validateSpaceOptions(name: string, options: SpaceOptions): void {
  if (!optionRule.text.fits(name))
    throw new InvalidArgumentError(`The name of a space is ${shownValue(name)}, expected ${optionRule.text.expected}`)
  const problems = optionProblems('', options, SPACE)
  if (problems.length === 0) problems.push(...formatProblems(options), ...indexProblems(options))
  if (problems.length > 0) throw new ConfigError(problems, { subject: `definition of space '${name}'` })
}

const FIELD_TYPE: OptionRule = {
  expected: 'a type of field (unsigned, string, …; the README lists them)',
  fits: (value) => typeof value === 'string' && isFieldType(value),
}

const SPACE: OptionRules = {
  format: optionRule.required({ ...optionRule.list, expected: 'a list of fields' }),
  indexes: { ...optionRule.list, expected: 'a list of indexes, the primary one first' },
  isLocal: optionRule.flag,
  ifNotExists: optionRule.flag,
}
const FIELD: OptionRules = { name: optionRule.required(optionRule.text), type: FIELD_TYPE, isNullable: optionRule.flag }
const INDEX: OptionRules = {
  name: optionRule.required(optionRule.text),
  type: optionRule.oneOf('tree', 'hash'),
  isUnique: optionRule.flag,
  parts: optionRule.required({
    expected: 'a list of names of fields, one at least',
    fits: (value) => Array.isArray(value) && value.length > 0 && value.every((part) => optionRule.text.fits(part)),
  }),
}

function formatProblems({ format }: SpaceOptions): ConfigProblem[] {
  if (format.length === 0) return [{ path: 'format', message: 'has no fields, expected one at least' }]
  const names = format.map((field) => (isObject(field) ? field['name'] : undefined))
  return format.flatMap((field, i) => [
    ...optionProblems(`format[${i}]`, field, FIELD),
    ...(names.indexOf(names[i]) < i && names[i] !== undefined
      ? [{ path: `format[${i}].name`, message: `is '${names[i]}', which another field has already` }]
      : []),
  ])
}

function indexProblems({ format, indexes }: SpaceOptions): ConfigProblem[] {
  if (indexes === undefined) return defaultIndexProblems(format[0])
  if (indexes.length === 0) return [{ path: 'indexes', message: 'is an empty list, expected a primary index at least' }]
  const names = indexes.map((index) => (isObject(index) ? index['name'] : undefined))
  return indexes.flatMap((index, i) => {
    const path = `indexes[${i}]`
    const problems = optionProblems(path, index, INDEX)
    if (names.indexOf(names[i]) < i && names[i] !== undefined)
      problems.push({ path: `${path}.name`, message: `is '${names[i]}', which another index has already` })
    if (problems.length > 0) return problems
    if (i === 0 && index.isUnique === false)
      problems.push({
        path: `${path}.isUnique`,
        message: 'is false, expected true: the first index is the primary key',
      })
    return [
      ...problems,
      ...index.parts.flatMap((part, j) => partProblems(format, index, i === 0, part, `${path}.parts[${j}]`)),
    ]
  })
}

function partProblems(
  format: readonly FieldOptions[],
  { name }: IndexOptions,
  isPrimary: boolean,
  part: string,
  path: string,
): ConfigProblem[] {
  const field = format.find((candidate) => isObject(candidate) && candidate.name === part)
  if (field === undefined) {
    const known = format.map((candidate) => (isObject(candidate) ? candidate['name'] : '')).join(', ')
    return [{ path, message: `is '${part}', which is no field of the format; it has ${known}` }]
  }
  const { type = 'any', isNullable = false } = field
  if (!INDEXABLE.has(type)) return [{ path, message: notIndexable(name, part, type) }]
  if (isPrimary && isNullable)
    return [{ path, message: `is '${part}', which may be nil: the primary key cannot hold it` }]
  return []
}

/** Without `indexes` the primary key is over the first field. */
function defaultIndexProblems(first: FieldOptions | undefined): ConfigProblem[] {
  if (!isObject(first)) return []
  const { name, type = 'any', isNullable = false } = first as FieldOptions
  const path = 'format[0]'
  if (!FIELD_TYPE.fits(type)) return []
  if (!INDEXABLE.has(type)) return [{ path: `${path}.type`, message: notIndexable('primary', name, type) }]
  if (isNullable)
    return [
      { path: `${path}.isNullable`, message: 'is true, but the primary key is over the first field without `indexes`' },
    ]
  return []
}

function notIndexable(index: string, field: string, type: string): string {
  const hint = type === 'any' ? ', which is the type of a field without one' : ''
  return `index '${index}' cannot be built over field '${field}' of type '${type}'${hint}; expected ${[...INDEXABLE].join(', ')}`
}
