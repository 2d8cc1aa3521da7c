import type { FieldType } from './field-type.js'

/** One part of an index key. */
export interface IndexPart {
  /** Zero-based position in the tuple. */
  readonly field: number
  readonly type: FieldType
  readonly isNullable: boolean
}

export interface IndexDefinition {
  readonly id: number
  readonly name: string
  /** `hash` keeps Tarantool's restrictions (no ranges) on the same ordered structure. */
  readonly type: 'tree' | 'hash'
  readonly isUnique: boolean
  readonly parts: readonly IndexPart[]
}

export interface FieldDefinition {
  readonly name: string
  readonly type: FieldType
  readonly isNullable: boolean
}

export interface SpaceDefinition {
  readonly id: number
  readonly name: string
  /** 0 = any number of fields. */
  readonly fieldCount: number
  readonly format: readonly FieldDefinition[]
  /** Contents stay on this instance and are not replicated. */
  readonly isLocal: boolean
}
