/*
 * Field types look at the MessagePack form, not only at the value: `unsigned` refuses the double 5.0 and also a positive
 * number in a signed form (Tarantool 2.6.0 and 3.2.1). So fields are judged by their first byte, before anything is decoded.
 */

/** What a value is on the wire, as far as field types care. */
export type ValueKind =
  | 'nil'
  | 'boolean'
  | 'unsigned'
  | 'integer'
  | 'float'
  | 'double'
  | 'string'
  | 'varbinary'
  | 'array'
  | 'map'
  | 'decimal'
  | 'uuid'
  | 'datetime'
  | 'interval'
  | 'extension'

export type FieldType =
  | 'any'
  | 'unsigned'
  | 'integer'
  | 'number'
  | 'double'
  | 'decimal'
  | 'string'
  | 'varbinary'
  | 'boolean'
  | 'scalar'
  | 'uuid'
  | 'datetime'
  | 'interval'
  | 'array'
  | 'map'

const NUMBERS: readonly ValueKind[] = ['unsigned', 'integer', 'float', 'double', 'decimal']
const SCALARS: readonly ValueKind[] = ['boolean', ...NUMBERS, 'string', 'varbinary', 'uuid', 'datetime']

/** Which kinds a field of each type holds; nil besides, where the field is nullable. */
const KINDS_OF_TYPE: Readonly<Record<FieldType, readonly ValueKind[]>> = {
  any: ['boolean', ...NUMBERS, 'string', 'varbinary', 'array', 'map', 'uuid', 'datetime', 'interval', 'extension'],
  unsigned: ['unsigned'],
  integer: ['unsigned', 'integer'],
  number: NUMBERS,
  double: ['double'],
  decimal: ['decimal'],
  string: ['string'],
  varbinary: ['varbinary'],
  boolean: ['boolean'],
  scalar: SCALARS,
  uuid: ['uuid'],
  datetime: ['datetime'],
  interval: ['interval'],
  array: ['array'],
  map: ['map'],
}

const ALLOWED: ReadonlyMap<string, ReadonlySet<ValueKind>> = new Map(
  Object.entries(KINDS_OF_TYPE).map(([type, kinds]) => [type, new Set(kinds)]),
)

/** Types an ordered index can be built on. */
export const INDEXABLE: ReadonlySet<FieldType> = new Set<FieldType>([
  'unsigned',
  'integer',
  'number',
  'double',
  'decimal',
  'string',
  'varbinary',
  'boolean',
  'scalar',
  'uuid',
  'datetime',
])

export function isFieldType(name: string): name is FieldType {
  return Object.hasOwn(KINDS_OF_TYPE, name)
}

/** Whether a value of this kind may stand in a field of this type. */
export function fits(type: FieldType, kind: ValueKind, isNullable: boolean): boolean {
  return kind === 'nil' ? isNullable : ALLOWED.get(type)!.has(kind)
}

/**
 * The same by the first byte of a value, once for a whole field: 1 where it fits for sure. Whatever is left (extensions,
 * whose type comes behind the first byte, and what does not fit) takes the way over its kind.
 */
export function fittingLeads(type: FieldType, isNullable: boolean): Uint8Array {
  return Uint8Array.from({ length: 256 }, (_, lead) => {
    const kind = kindAt([lead], 0)
    return kind !== 'extension' && fits(type, kind, isNullable) ? 1 : 0
  })
}

const EXTENSION_KINDS: Readonly<Record<number, ValueKind>> = { 1: 'decimal', 2: 'uuid', 4: 'datetime', 6: 'interval' }
/** Kinds of the first bytes 0xc0 to 0xdf; extensions are looked up by their type. */
const KIND_OF_LEAD: readonly ValueKind[] = [
  'nil',
  'extension',
  'boolean',
  'boolean',
  'varbinary',
  'varbinary',
  'varbinary',
  'extension',
  'extension',
  'extension',
  'float',
  'double',
  'unsigned',
  'unsigned',
  'unsigned',
  'unsigned',
  'integer',
  'integer',
  'integer',
  'integer',
  'extension',
  'extension',
  'extension',
  'extension',
  'extension',
  'string',
  'string',
  'string',
  'array',
  'array',
  'map',
  'map',
]
/** Bytes between the first one and the type of an extension: c7, c8, c9 carry a length before it. */
const EXTENSION_TYPE_OFFSET: Readonly<Record<number, number>> = {
  0xc7: 2,
  0xc8: 3,
  0xc9: 5,
  0xd4: 1,
  0xd5: 1,
  0xd6: 1,
  0xd7: 1,
  0xd8: 1,
}

/** The kind of the value that begins at `offset`. */
export function kindAt(bytes: ArrayLike<number>, offset: number): ValueKind {
  const lead = bytes[offset]!
  if (lead < 0x80) return 'unsigned'
  if (lead < 0x90) return 'map'
  if (lead < 0xa0) return 'array'
  if (lead < 0xc0) return 'string'
  if (lead >= 0xe0) return 'integer'
  const kind = KIND_OF_LEAD[lead - 0xc0]!
  if (kind !== 'extension') return kind
  const typeOffset = EXTENSION_TYPE_OFFSET[lead]
  return (typeOffset === undefined ? undefined : EXTENSION_KINDS[bytes[offset + typeOffset]!]) ?? 'extension'
}
