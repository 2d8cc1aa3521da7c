/* Maps as they come out of Lua. The same table may arrive with text keys only (a plain object), with position and name
 * keys side by side (a Map: what a tuple's `tomap` gives), or, when it is empty, as an empty array. */

/** A map of either form; arrays, values of extension types and scalars are none. */
export function isRecord(value: unknown): value is ReadonlyMap<unknown, unknown> | Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null) return false
  if (value instanceof Map) return true
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === null || prototype === Object.prototype
}

/** A field by its text key; undefined when absent or when the value is no map. */
export function fieldOf(value: unknown, key: string): unknown {
  if (!isRecord(value)) return undefined
  if (value instanceof Map) return value.get(key)
  return Object.hasOwn(value, key) ? (value as Readonly<Record<string, unknown>>)[key] : undefined
}

export function entriesOf(
  value: ReadonlyMap<unknown, unknown> | Readonly<Record<string, unknown>>,
): Iterable<[unknown, unknown]> {
  return value instanceof Map ? value : Object.entries(value)
}

/** The items of a list; nothing of what is no list. */
export function itemsOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}
