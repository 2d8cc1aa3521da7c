import { BoxError, type BoxErrorEntry, MAX_ERROR_ENTRIES } from '../errors.js'
import type { BodyWriter } from '../msgpack/body-writer.js'
import { ByteString } from '../msgpack/wrappers.js'

/* Extension 3, and the value of body key 0x52. Source: Tarantool 2.4.1+, src/box/mp_error.cc
 *   map {0: [entry, …]}, newest first; entry is a map
 *     0 type str, 1 file str, 2 line uint, 3 message str, 4 errno uint, 5 code uint, 6 fields map of str to any (absent when empty)
 *   The server's decoder insists on str and uint: a number in a signed form makes it refuse the whole request. */

/** Writes `{0: [entries]}` in the server's own order of keys. @param writeField - writes one field value, by the field's name */
export function writeErrorStack(
  out: BodyWriter,
  entries: readonly BoxErrorEntry[],
  writeField: (value: unknown, name: string) => void,
): void {
  out.mapHeader(1)
  out.uint(STACK)
  out.arrayHeader(entries.length)
  for (const entry of entries) {
    out.mapHeader(entry.fields.size === 0 ? 6 : 7)
    out.uint(TYPE)
    out.text(entry.type)
    out.uint(LINE)
    out.uint(entry.line)
    out.uint(FILE)
    out.text(entry.file)
    out.uint(MESSAGE)
    out.text(entry.message)
    out.uint(ERRNO)
    out.uint(entry.errno)
    out.uint(CODE)
    out.uint(entry.code)
    if (entry.fields.size === 0) continue
    out.uint(FIELDS)
    out.mapHeader(entry.fields.size)
    for (const [name, value] of entry.fields) {
      out.text(name)
      writeField(value ?? null, name)
    }
  }
}

/**
 * The entries of a decoded error map (every map in it a Map, by the reader's way with integer keys).
 * Of a stack of more than 256 entries the newest are kept.
 * @returns undefined when it is none; single values of a wrong type are replaced by empty ones, since an error that is reported
 * imprecisely is better than one that is lost
 */
export function readErrorStack(value: unknown): BoxErrorEntry[] | undefined {
  const stack = value instanceof Map ? (value.get(STACK) as unknown) : undefined
  if (!Array.isArray(stack) || stack.length === 0) return undefined
  return stack.slice(0, MAX_ERROR_ENTRIES).map((item: unknown) => {
    const entry: ReadonlyMap<unknown, unknown> = item instanceof Map ? item : new Map()
    return {
      type: textOf(entry.get(TYPE)),
      file: textOf(entry.get(FILE)),
      line: uint32Of(entry.get(LINE)),
      message: textOf(entry.get(MESSAGE)),
      errno: uint32Of(entry.get(ERRNO)),
      code: uint32Of(entry.get(CODE)),
      fields: fieldsOf(entry.get(FIELDS)),
    }
  })
}

/**
 * An error that came as a value: the call that brought it has run.
 * @returns undefined when it is not exactly an error map, so that the caller can keep its bytes
 */
export function errorValue(value: unknown): BoxError | undefined {
  const entries = readErrorStack(value)
  if (entries === undefined) return undefined
  const items = (value as ReadonlyMap<unknown, readonly unknown[]>).get(STACK)!
  return items.length === entries.length && items.every(isExactEntry)
    ? new BoxError(entries, { executed: 'yes' })
    : undefined
}

const STACK = 0
const TYPE = 0
const FILE = 1
const LINE = 2
const MESSAGE = 3
const ERRNO = 4
const CODE = 5
const FIELDS = 6

function isExactEntry(item: unknown): boolean {
  if (!(item instanceof Map)) return false
  return (
    [TYPE, FILE, MESSAGE].every((key) => typeof item.get(key) === 'string') &&
    [LINE, ERRNO, CODE].every((key) => item.has(key) && uint32Of(item.get(key)) === item.get(key))
  )
}

function textOf(value: unknown): string {
  if (value instanceof ByteString) return value.toString()
  return typeof value === 'string' ? value : ''
}

function uint32Of(value: unknown): number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 0xffffffff ? value : 0
}

function fieldsOf(value: unknown): ReadonlyMap<string, unknown> {
  if (value instanceof Map) return new Map([...value].map(([name, field]) => [String(name), field as unknown]))
  return new Map(typeof value === 'object' && value !== null ? Object.entries(value) : [])
}
