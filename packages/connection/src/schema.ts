/**
 * Names to ids, for servers that do not resolve names themselves (before 3.0). A table is a snapshot that is replaced as
 * a whole; the rules here say when it may be believed: it must be no older than the newest schema version any answer has
 * shown, or come from a refresh that began after the request that asks. Nothing here sends anything.
 */
import { NoSuchIndexError, NoSuchSpaceError } from './errors.js'

export interface IndexDefinition {
  readonly id: number
  readonly name: string
  /** `tree`, `hash`, `rtree`, `bitset`; lower case. */
  readonly type: string
  readonly isUnique: boolean
  /** 0-based numbers of the fields of its key; undefined when one of them is inside a field (a JSON path). */
  readonly keyFields: readonly number[] | undefined
}

export interface SpaceDefinition {
  readonly id: number
  readonly name: string
  readonly indexes: ReadonlyMap<string, IndexDefinition>
  readonly indexesById: ReadonlyMap<number, IndexDefinition>
}

/** The schema at one version, as far as the user may see it. */
export class SchemaTable {
  readonly version: number
  readonly #byName = new Map<string, SpaceDefinition>()
  readonly #byId = new Map<number, SpaceDefinition>()

  /**
   * @param version - of the older of the two answers, if the schema changed between them
   * @param spaceRows - rows of `_vspace`: `[id, owner, name, …]`
   * @param indexRows - rows of `_vindex`: `[space id, id, name, type, options, parts, …]`
   */
  constructor(version: number, spaceRows: readonly unknown[], indexRows: readonly unknown[]) {
    this.version = version
    const indexesOf = new Map<number, IndexDefinition[]>()
    for (const row of indexRows) {
      if (!Array.isArray(row) || typeof row[0] !== 'number') continue
      const index = readIndex(row)
      if (index === undefined) continue
      const siblings = indexesOf.get(row[0])
      if (siblings === undefined) indexesOf.set(row[0], [index])
      else siblings.push(index)
    }
    for (const row of spaceRows) {
      // Columns this program has never heard of stay behind those it reads.
      if (!Array.isArray(row) || typeof row[0] !== 'number' || typeof row[2] !== 'string') continue
      const indexes = indexesOf.get(row[0]) ?? []
      const space: SpaceDefinition = {
        id: row[0],
        name: row[2],
        indexes: new Map(indexes.map((index) => [index.name, index])),
        indexesById: new Map(indexes.map((index) => [index.id, index])),
      }
      this.#byName.set(space.name, space)
      this.#byId.set(space.id, space)
    }
  }

  space(ref: number | string): SpaceDefinition | undefined {
    return typeof ref === 'number' ? this.#byId.get(ref) : this.#byName.get(ref)
  }
}

/** A name in ids, and the version at which that was true. */
export interface ResolvedTarget {
  readonly spaceId: number
  readonly indexId: number
  readonly version: number
}

export class Schema {
  /** The newest version any answer of this connection has shown; 0: none yet. */
  newestVersion = 0
  /** Refreshes begun so far. */
  begun = 0
  #table: SchemaTable | undefined
  /** Which refresh brought the table. */
  #tableFrom = 0

  get table(): SchemaTable | undefined {
    return this.#table
  }

  /** Whether a newer schema than the table's is known to exist. */
  get isStale(): boolean {
    return this.#table === undefined || this.#table.version < this.newestVersion
  }

  /** Every answer carries the version of its moment. */
  observe(version: number): void {
    if (version > this.newestVersion) this.newestVersion = version
  }

  /** A new connection, maybe to another process: what was known is void, also when version numbers happen to match. */
  forget(): void {
    this.#table = undefined
    this.newestVersion = 0
  }

  begin(): number {
    this.begun += 1
    return this.begun
  }

  loaded(table: SchemaTable, refresh: number): void {
    this.#table = table
    this.#tableFrom = refresh
    this.observe(table.version)
  }

  /**
   * @param seen - `begun` at the time the request came
   * @returns undefined: a refresh must come first
   * @throws NoSuchSpaceError, NoSuchIndexError when a schema fresh enough does not have the name
   */
  resolve(space: number | string, index: number | string, seen: number): ResolvedTarget | undefined {
    const table = this.trusted(seen)
    if (table === undefined) return undefined
    const isFinal = this.#tableFrom > seen
    const definition = table.space(space)
    if (definition === undefined) {
      if (typeof space === 'number' && typeof index === 'number') {
        return { spaceId: space, indexId: index, version: table.version }
      }
      if (!isFinal) return undefined
      throw new NoSuchSpaceError(String(space))
    }
    const indexId = typeof index === 'number' ? index : definition.indexes.get(index)?.id
    if (indexId === undefined) {
      if (!isFinal) return undefined
      throw new NoSuchIndexError(definition.name, String(index))
    }
    return { spaceId: definition.id, indexId, version: table.version }
  }

  /** The table, if a request that came at `seen` may believe it. */
  trusted(seen: number): SchemaTable | undefined {
    const table = this.#table
    if (table === undefined) return undefined
    return table.version >= this.newestVersion || this.#tableFrom > seen ? table : undefined
  }
}

function readIndex(row: readonly unknown[]): IndexDefinition | undefined {
  const [, id, name, type, options, parts] = row
  if (typeof id !== 'number' || typeof name !== 'string') return undefined
  return {
    id,
    name,
    type: typeof type === 'string' ? type.toLowerCase() : 'tree',
    isUnique: id === 0 || propertyOf(options, 'unique') !== false,
    keyFields: readKeyFields(parts),
  }
}

/** Parts are `[field, type]` pairs in old rows and `{field, type, path, …}` maps in others. */
function readKeyFields(parts: unknown): readonly number[] | undefined {
  if (!Array.isArray(parts)) return undefined
  const fields: number[] = []
  for (const part of parts as unknown[]) {
    const field: unknown = Array.isArray(part) ? part[0] : propertyOf(part, 'field')
    const path = Array.isArray(part) ? undefined : propertyOf(part, 'path')
    if (typeof field !== 'number' || (path !== undefined && path !== null)) return undefined
    fields.push(field)
  }
  return fields
}

function propertyOf(value: unknown, name: string): unknown {
  if (value instanceof Map) return value.get(name)
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[name] : undefined
}
