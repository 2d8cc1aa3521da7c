/*
 * Spaces by id and name. As in Tarantool, the definitions are themselves tuples, in `_space` and `_index`: so a definition is
 * journaled, replicated and read by clients like any other data, and applying one of those tuples is what creates a space.
 */
import { decodeValue, encodeValue, IteratorType } from '@orbweaver/iproto'
import { boxErrors } from '../errors.js'
import { INDEXABLE, isFieldType } from './field-type.js'
import type { FieldType } from './field-type.js'
import type { FieldDefinition, IndexDefinition, IndexPart, SpaceDefinition } from './index-definition.js'
import { Space } from './space.js'
import type { StoredTuple } from './tuple.js'

/** Ids of the system spaces, as in Tarantool. */
export const SYSTEM_SPACE = {
  vcollation: 277,
  schema: 272,
  space: 280,
  vspace: 281,
  index: 288,
  vindex: 289,
  user: 304,
  vuser: 305,
  vspaceSequence: 341,
} as const

/** A view reads another space's tuples; the client's rights decide what it sees. */
const VIEW_OF: Readonly<Record<number, number>> = {
  [SYSTEM_SPACE.vspace]: SYSTEM_SPACE.space,
  [SYSTEM_SPACE.vindex]: SYSTEM_SPACE.index,
  [SYSTEM_SPACE.vuser]: SYSTEM_SPACE.user,
}

/** The first id of a user's space. */
export const FIRST_USER_SPACE = 512
/** Spaces above this id that are not the user's own (as in Tarantool, ids up to 511 belong to the system). */
export const LAST_SYSTEM_SPACE: number = FIRST_USER_SPACE - 1
const ADMIN = 1

interface SystemDefinition {
  readonly name: string
  readonly fields: readonly [name: string, type: FieldType][]
  readonly indexes: readonly {
    readonly name: string
    readonly fields: readonly number[]
    readonly isUnique?: boolean
  }[]
}

const SYSTEM: Readonly<Record<number, SystemDefinition>> = {
  [SYSTEM_SPACE.schema]: {
    name: '_schema',
    fields: [
      ['key', 'string'],
      ['value', 'any'],
    ],
    indexes: [{ name: 'primary', fields: [0] }],
  },
  [SYSTEM_SPACE.vcollation]: {
    name: '_vcollation',
    fields: [
      ['id', 'unsigned'],
      ['name', 'string'],
    ],
    indexes: [{ name: 'primary', fields: [0] }],
  },
  [SYSTEM_SPACE.space]: {
    name: '_space',
    fields: [
      ['id', 'unsigned'],
      ['owner', 'unsigned'],
      ['name', 'string'],
      ['engine', 'string'],
      ['field_count', 'unsigned'],
      ['flags', 'map'],
      ['format', 'array'],
    ],
    indexes: [
      { name: 'primary', fields: [0] },
      { name: 'owner', fields: [1], isUnique: false },
      { name: 'name', fields: [2] },
    ],
  },
  [SYSTEM_SPACE.index]: {
    name: '_index',
    fields: [
      ['id', 'unsigned'],
      ['iid', 'unsigned'],
      ['name', 'string'],
      ['type', 'string'],
      ['opts', 'map'],
      ['parts', 'array'],
    ],
    indexes: [
      { name: 'primary', fields: [0, 1] },
      { name: 'name', fields: [0, 2] },
    ],
  },
  [SYSTEM_SPACE.user]: {
    name: '_user',
    fields: [
      ['id', 'unsigned'],
      ['owner', 'unsigned'],
      ['name', 'string'],
      ['type', 'string'],
      ['auth', 'map'],
    ],
    indexes: [
      { name: 'primary', fields: [0] },
      { name: 'name', fields: [2] },
    ],
  },
  [SYSTEM_SPACE.vspaceSequence]: {
    name: '_vspace_sequence',
    fields: [
      ['id', 'unsigned'],
      ['sequence_id', 'unsigned'],
      ['is_generated', 'boolean'],
      ['field', 'unsigned'],
      ['path', 'string'],
    ],
    indexes: [{ name: 'primary', fields: [0] }],
  },
}

/** Names and definitions of the views, which hold nothing of their own. */
const VIEW_NAME: Readonly<Record<number, string>> = {
  [SYSTEM_SPACE.vspace]: '_vspace',
  [SYSTEM_SPACE.vindex]: '_vindex',
  [SYSTEM_SPACE.vuser]: '_vuser',
}

export class Schema {
  readonly #byId = new Map<number, Space>()
  readonly #byName = new Map<string, Space>()
  /** Grows with every definition; replies carry it so that clients reload their names. */
  version = 1

  constructor() {
    this.#bootstrap()
  }

  #bootstrap(): void {
    for (const [id, system] of Object.entries(SYSTEM)) this.#add(systemSpace(Number(id), system))
    const spaces = this.get(SYSTEM_SPACE.space)
    const indexes = this.get(SYSTEM_SPACE.index)
    for (const [id, system] of Object.entries(SYSTEM)) {
      this.#describe(spaces, indexes, Number(id), system)
      for (const [view, source] of Object.entries(VIEW_OF)) {
        if (source === Number(id))
          this.#describe(spaces, indexes, Number(view), { ...system, name: VIEW_NAME[Number(view)]! })
      }
    }
  }

  /** A space or, for a view, the space behind it. @throws BoxError 36 */
  get(ref: number | string): Space {
    const space = this.find(ref)
    if (space === undefined) throw boxErrors.noSuchSpace(ref)
    return space
  }

  find(ref: number | string): Space | undefined {
    if (typeof ref === 'number') return this.#byId.get(VIEW_OF[ref] ?? ref)
    const view = Object.entries(VIEW_NAME).find(([, name]) => name === ref)
    return view === undefined ? this.#byName.get(ref) : this.#byId.get(VIEW_OF[Number(view[0])]!)
  }

  *spaces(): IterableIterator<Space> {
    yield* this.#byId.values()
  }

  /** An id nobody has. */
  nextSpaceId(): number {
    return Math.max(LAST_SYSTEM_SPACE, ...this.#byId.keys()) + 1
  }

  /**
   * Makes the space with this id what the tuples of `_space` and `_index` say: created, rebuilt with its contents, or dropped.
   * @param former - the space that had this id, when a drop is taken back: it comes back with its contents
   * @throws BoxError when its contents do not fit the new definition; the old one stays
   */
  refresh(id: number, former?: Space): void {
    if (id <= LAST_SYSTEM_SPACE) return // the system's own definitions are fixed
    const row = this.get(SYSTEM_SPACE.space).primary.find(encodeValue([id]))
    const old = this.#byId.get(id)
    if (row === undefined) {
      if (old !== undefined) {
        old.isDropped = true
        this.#byId.delete(id)
        this.#byName.delete(old.name)
      }
      this.version++
      return
    }
    const rows = this.get(SYSTEM_SPACE.index).primary.withKey(IteratorType.eq, encodeValue([id]))
    const definition = readSpaceTuple(row)
    const indexes = rows.map((index) => readIndexTuple(index, definition))
    const other = this.#byName.get(definition.name)
    if (other !== undefined && other.id !== id) throw boxErrors.tupleFound('name', '_space')
    if (old === undefined) {
      former?.redefine(definition, indexes)
      this.#add(former ?? new Space(definition, indexes))
    } else {
      const formerName = old.name
      old.redefine(definition, indexes)
      this.#byName.delete(formerName)
      this.#byName.set(old.name, old)
    }
    this.version++
  }

  /** Takes the place of another schema: its spaces are void, and versions go on rising. */
  succeed(before: Schema): void {
    for (const space of before.spaces()) space.isDropped = true
    this.version = Math.max(this.version, before.version) + 1
  }

  #add(space: Space): void {
    space.isDropped = false
    this.#byId.set(space.id, space)
    this.#byName.set(space.name, space)
  }

  #describe(spaces: Space, indexes: Space, id: number, system: SystemDefinition): void {
    const definition = systemDefinition(id, system)
    spaces.put(spaceTuple(definition), 'replace')
    for (const index of systemIndexes(system)) indexes.put(indexTuple(id, index), 'replace')
  }
}

function systemSpace(id: number, system: SystemDefinition): Space {
  return new Space(systemDefinition(id, system), systemIndexes(system))
}

function systemDefinition(id: number, system: SystemDefinition): SpaceDefinition {
  const format = system.fields.map(([name, type]) => ({ name, type, isNullable: false }))
  return { id, name: system.name, fieldCount: 0, format, isLocal: false }
}

function systemIndexes(system: SystemDefinition): IndexDefinition[] {
  return system.indexes.map(({ name, fields, isUnique = true }, id) => ({
    id,
    name,
    type: 'tree',
    isUnique,
    parts: fields.map((field) => ({ field, type: system.fields[field]![1], isNullable: false })),
  }))
}

/* `_space`: [id, owner, name, engine, field_count, flags, format]; `_index`: [space id, index id, name, type, opts, parts]. */

export function spaceTuple(definition: SpaceDefinition): StoredTuple {
  const flags = definition.isLocal ? { group_id: 1 } : {}
  const format = definition.format.map(({ name, type, isNullable }) => ({
    name,
    type,
    ...(isNullable ? { is_nullable: true } : {}),
  }))
  return encodeValue([definition.id, ADMIN, definition.name, 'memtx', definition.fieldCount, flags, format])
}

export function indexTuple(spaceId: number, index: IndexDefinition): StoredTuple {
  const parts = index.parts.map(({ field, type, isNullable }) =>
    isNullable ? { field, type, is_nullable: true } : [field, type],
  )
  return encodeValue([spaceId, index.id, index.name, index.type, { unique: index.isUnique }, parts])
}

function readSpaceTuple(tuple: StoredTuple): SpaceDefinition {
  const [id, , name, , fieldCount, flags, format] = decodeValue(tuple) as [
    number,
    number,
    string,
    string,
    number,
    Record<string, unknown>,
    unknown[],
  ]
  return { id, name, fieldCount, format: format.map((field) => readField(field)), isLocal: flags['group_id'] === 1 }
}

function readField(value: unknown): FieldDefinition {
  const {
    name,
    type = 'any',
    is_nullable: isNullable = false,
  } = value as { name: string; type?: string; is_nullable?: boolean }
  return { name, type: fieldType(type), isNullable: isNullable || type === 'any' }
}

function fieldType(name: unknown): FieldType {
  const known = name === 'num' ? 'unsigned' : name === 'str' ? 'string' : name === '*' ? 'any' : name
  if (typeof known !== 'string' || !isFieldType(known))
    throw boxErrors.unsupported('Embedded storage', `field type '${String(name)}'`)
  return known
}

function readIndexTuple(tuple: StoredTuple, space: SpaceDefinition): IndexDefinition {
  const [, id, name, type, options, parts] = decodeValue(tuple) as [
    number,
    number,
    string,
    string,
    Record<string, unknown>,
    unknown[],
  ]
  const kind = type.toLowerCase()
  if (kind !== 'tree' && kind !== 'hash') throw boxErrors.unsupported('Embedded storage', `indexes of type '${type}'`)
  return {
    id,
    name,
    type: kind,
    isUnique: options['unique'] !== false,
    parts: parts.map((part) => readPart(part, space)),
  }
}

function readPart(value: unknown, space: SpaceDefinition): IndexPart {
  const [fieldRef, typeName, options] = Array.isArray(value)
    ? [value[0] as unknown, value[1] as unknown, (value[2] ?? {}) as Record<string, unknown>]
    : [
        (value as Record<string, unknown>)['field'],
        (value as Record<string, unknown>)['type'],
        value as Record<string, unknown>,
      ]
  const field = typeof fieldRef === 'string' ? space.format.findIndex(({ name }) => name === fieldRef) : fieldRef
  if (typeof field !== 'number' || field < 0)
    throw boxErrors.illegalParams(
      `index part names the field '${String(fieldRef)}', which space '${space.name}' does not have`,
    )
  const type = fieldType(typeName ?? space.format[field]?.type)
  if (!INDEXABLE.has(type)) throw boxErrors.unsupported('Embedded storage', `an index over a field of type '${type}'`)
  if (options['collation'] !== undefined && options['collation'] !== null)
    throw boxErrors.unsupported('Embedded storage', 'collations')
  return { field, type, isNullable: options['is_nullable'] === true }
}
