import { describe, expect, it } from 'vitest'
import { NoSuchIndexError, NoSuchSpaceError } from '../src/errors.js'
import { Schema, SchemaTable } from '../src/schema.js'

const SPACES = [
  [512, 1, 'users', 'memtx', 0, {}, [], 'a column of the future'],
  [513, 1, 'orders', 'vinyl', 0, {}, []],
  ['no id', 1, 'broken'],
  'no row',
]
const INDEXES = [
  [512, 0, 'pk', 'TREE', { unique: true }, [[0, 'unsigned']]],
  [512, 1, 'by_name', 'tree', new Map([['unique', false]]), [{ field: 1, type: 'string' }]],
  [512, 2, 'by_path', 'tree', { unique: true }, [{ field: 2, type: 'string', path: 'a.b' }]],
  [
    513,
    0,
    'pk',
    'hash',
    { unique: true },
    [
      [0, 'unsigned'],
      [1, 'string'],
    ],
  ],
]

function table(version: number): SchemaTable {
  return new SchemaTable(version, SPACES, INDEXES)
}

describe('SchemaTable', () => {
  it('finds spaces by name and id, passing over what it cannot read', () => {
    expect(table(1).space('users')?.id).toBe(512)
    expect(table(1).space(513)?.name).toBe('orders')
    expect(table(1).space('broken')).toBeUndefined()
  })

  it('reads indexes in the spellings of old and new servers', () => {
    const indexes = table(1).space('users')?.indexes
    expect(indexes?.get('pk')).toEqual({ id: 0, name: 'pk', type: 'tree', isUnique: true, keyFields: [0] })
    expect(indexes?.get('by_name')).toEqual({ id: 1, name: 'by_name', type: 'tree', isUnique: false, keyFields: [1] })
    expect(indexes?.get('by_path')?.keyFields).toBeUndefined()
    expect(table(1).space('orders')?.indexesById.get(0)?.keyFields).toEqual([0, 1])
  })
})

describe('Schema', () => {
  it('asks for a refresh when it knows nothing', () => {
    expect(new Schema().resolve('users', 0, 0)).toBeUndefined()
  })

  it('resolves from a table that is as new as anything seen', () => {
    const schema = new Schema()
    schema.loaded(table(5), schema.begin())
    expect(schema.resolve('users', 'by_name', 1)).toEqual({ spaceId: 512, indexId: 1, version: 5 })
    expect(schema.resolve(512, 'by_name', 1)).toEqual({ spaceId: 512, indexId: 1, version: 5 })
    expect(schema.resolve('users', 7, 1)).toEqual({ spaceId: 512, indexId: 7, version: 5 })
  })

  it('does not believe a table older than a version it has seen, unless it was fetched after the request came', () => {
    const schema = new Schema()
    const seen = schema.begun
    schema.loaded(table(5), schema.begin())
    schema.observe(6)
    expect(schema.isStale).toBe(true)
    expect(schema.resolve('users', 0, schema.begun)).toBeUndefined()
    expect(schema.resolve('users', 0, seen)).toEqual({ spaceId: 512, indexId: 0, version: 5 })
  })

  it('says that a name is missing only after a refresh that began later', () => {
    const schema = new Schema()
    const before = schema.begun
    schema.loaded(table(5), schema.begin())
    expect(schema.resolve('ghost', 0, schema.begun)).toBeUndefined()
    expect(() => schema.resolve('ghost', 0, before)).toThrow(NoSuchSpaceError)
    expect(schema.resolve('users', 'ghost', schema.begun)).toBeUndefined()
    expect(() => schema.resolve('users', 'ghost', before)).toThrow(NoSuchIndexError)
  })

  it('forgets everything with the connection, also when version numbers match', () => {
    const schema = new Schema()
    schema.loaded(table(5), schema.begin())
    schema.forget()
    schema.observe(5)
    expect(schema.resolve('users', 0, 0)).toBeUndefined()
  })

  it('leaves ids that are not in the schema to the server', () => {
    const schema = new Schema()
    schema.loaded(table(5), schema.begin())
    expect(schema.resolve(999, 3, 1)).toEqual({ spaceId: 999, indexId: 3, version: 5 })
  })
})
