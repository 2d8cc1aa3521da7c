import { InvalidArgumentError } from '@orbweaver/iproto'
import { INDEXABLE, isFieldType } from './field-type.js'
import type { FieldType } from './field-type.js'
import type { FieldDefinition, IndexDefinition, SpaceDefinition } from './index-definition.js'

/** A field of a space as its author writes it. */
export interface FieldOptions {
  readonly name: string
  /** Default `any`. */
  readonly type?: FieldType
  /** Default false. */
  readonly isNullable?: boolean
}

/** An index as its author writes it: parts are names of fields of the format. */
export interface IndexOptions {
  readonly name: string
  /** Default `tree`. */
  readonly type?: 'tree' | 'hash'
  /** Default true. The first index is the primary key and always unique. */
  readonly isUnique?: boolean
  readonly parts: readonly string[]
}

export interface SpaceOptions {
  readonly format: readonly FieldOptions[]
  /** Default: one index named `primary` over the first field. */
  readonly indexes?: readonly IndexOptions[]
  /** Contents stay on this instance. Default false. */
  readonly isLocal?: boolean
  /** Return quietly when a space of this name exists. Default false. */
  readonly ifNotExists?: boolean
}

/** The definitions that `_space` and `_index` will hold. @throws InvalidArgumentError naming the field or index at fault */
export function buildSpace(
  id: number,
  name: string,
  options: SpaceOptions,
): { definition: SpaceDefinition; indexes: IndexDefinition[] } {
  const format: FieldDefinition[] = options.format.map(({ name: field, type = 'any', isNullable = false }) => {
    if (!isFieldType(type))
      throw new InvalidArgumentError(`Field '${field}' of space '${name}' has the unknown type '${String(type)}'`)
    return { name: field, type, isNullable }
  })
  if (format.length === 0)
    throw new InvalidArgumentError(`Space '${name}' has no fields: its format needs at least one`)
  const given = options.indexes ?? [{ name: 'primary', parts: [format[0]!.name] }]
  const indexes = given.map((index, position): IndexDefinition => {
    if (position === 0 && index.isUnique === false)
      throw new InvalidArgumentError(`Index '${index.name}' of space '${name}' is the primary key and must be unique`)
    return {
      id: position,
      name: index.name,
      type: index.type ?? 'tree',
      isUnique: index.isUnique ?? true,
      parts: index.parts.map((part) => {
        const field = format.findIndex((candidate) => candidate.name === part)
        const found = format[field]
        if (found === undefined)
          throw new InvalidArgumentError(
            `Index '${index.name}' of space '${name}' names the field '${part}', which its format does not have`,
          )
        if (!INDEXABLE.has(found.type))
          throw new InvalidArgumentError(
            `Index '${index.name}' of space '${name}' cannot be built over field '${part}' of type '${found.type}'`,
          )
        return { field, type: found.type, isNullable: found.isNullable }
      }),
    }
  })
  return { definition: { id, name, fieldCount: 0, format, isLocal: options.isLocal ?? false }, indexes }
}
