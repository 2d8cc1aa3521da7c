/*
 * Update operations on a stored tuple. Fields that are not named keep their bytes; a result keeps the kind of number it had
 * (a double stays a double), which a decode and encode of the whole tuple would lose.
 * Operations: iproto.md 15.3. Paths into fields (`val.a.b[2]`) decode and encode that one field.
 */
import { Decimal, decodeValue, Double, encodeValue } from '@orbweaver/iproto'
import { boxErrors } from '../errors.js'
import { kindAt } from './field-type.js'
import type { Space } from './space.js'
import { fieldOffsets, tupleOf } from './tuple.js'
import type { StoredTuple } from './tuple.js'

type Operation = readonly unknown[]

/** Tarantool's limit of operations in one request. */
const MAX_OPERATIONS = 4_000

/**
 * The tuple after all operations, in order.
 * @param indexBase - what a field number 0 or 1 means: 0 on the wire by default
 * @param isUpsert - operations on absent fields are skipped, as UPSERT does, instead of refused
 * @throws BoxError 28, 26, 29, 37, 95, 25 for operations that do not fit the tuple
 */
export function applyOperations(
  space: Space,
  tuple: StoredTuple,
  operations: readonly unknown[],
  indexBase: number,
  isUpsert: boolean,
): StoredTuple {
  if (operations.length > MAX_OPERATIONS)
    throw boxErrors.illegalParams(`too many operations for update: ${operations.length}, at most ${MAX_OPERATIONS}`)
  const offsets = fieldOffsets(tuple)
  const fields: Buffer[] = []
  for (let i = 0; i + 1 < offsets.length; i++) fields.push(tuple.subarray(offsets[i], offsets[i + 1]))
  for (const operation of operations) {
    if (!Array.isArray(operation) || typeof operation[0] !== 'string')
      throw boxErrors.unknownUpdateOp('(an operation is an array that begins with its name)')
    try {
      applyOne(space, fields, operation as Operation, indexBase)
    } catch (error) {
      if (!isUpsert || !isFieldAbsent(error)) throw error
    }
  }
  return tupleOf(fields)
}

function isFieldAbsent(error: unknown): boolean {
  return error instanceof Error && 'boxCode' in error && error.boxCode === 37
}

function applyOne(space: Space, fields: Buffer[], operation: Operation, indexBase: number): void {
  const [op, target] = operation as readonly [string, unknown]
  const { field, path, label } = locate(space, fields, target, indexBase)
  if (path.length > 0) {
    const current = fields[field]
    if (current === undefined) throw boxErrors.noSuchField(label)
    fields[field] = encodeValue(applyInside(decodeValue(current), path, op, operation, label))
    return
  }
  switch (op) {
    case '=':
      if (field > fields.length) throw boxErrors.noSuchField(label)
      fields[field] = encodeValue(operation[2])
      return
    case '!':
      if (field > fields.length) throw boxErrors.noSuchField(label)
      fields.splice(field, 0, encodeValue(operation[2]))
      return
    case '#': {
      const count = operation[2]
      if (typeof count !== 'number' || count < 1) throw boxErrors.updateField(label, 'cannot delete 0 fields')
      if (field >= fields.length) throw boxErrors.noSuchField(label)
      fields.splice(field, count)
      return
    }
    default: {
      const current = fields[field]
      if (current === undefined) throw boxErrors.noSuchField(label)
      const isDouble = ['double', 'float'].includes(kindAt(current, 0))
      fields[field] = encodeValue(compute(op, decodeValue(current), isDouble, operation, label))
    }
  }
}

/** + - & | ^ : on a value. */
function compute(op: string, current: unknown, isDouble: boolean, operation: Operation, label: string): unknown {
  switch (op) {
    case '+':
    case '-':
      return add(op, current, isDouble, operation[2], label)
    case '&':
    case '|':
    case '^':
      return combineBits(op, current, operation[2], label)
    case ':':
      return splice(current, operation, label)
    default:
      throw boxErrors.unknownUpdateOp(`'${op.slice(0, 16)}'`)
  }
}

function add(op: '+' | '-', current: unknown, isDouble: boolean, argument: unknown, label: string): unknown {
  if (current instanceof Decimal || argument instanceof Decimal)
    throw boxErrors.unsupported('Embedded storage', `arithmetic on decimals (field ${label})`)
  if (!isNumber(current) || !isNumber(argument)) throw boxErrors.updateArgument(op, label, 'a number')
  if (isDouble || argument instanceof Double || (typeof argument === 'number' && !Number.isInteger(argument))) {
    const left = Number(current)
    const right = Number(argument instanceof Double ? argument.value : argument)
    return new Double(op === '+' ? left + right : left - right)
  }
  const left = BigInt(current as number | bigint)
  const right = BigInt(argument)
  const sum = op === '+' ? left + right : left - right
  if (sum > 0xffff_ffff_ffff_ffffn || sum < -0x8000_0000_0000_0000n) throw boxErrors.integerOverflow(op, label)
  return sum
}

function isNumber(value: unknown): value is number | bigint | Double {
  return typeof value === 'number' || typeof value === 'bigint' || value instanceof Double
}

function combineBits(op: '&' | '|' | '^', current: unknown, argument: unknown, label: string): bigint {
  const [left, right] = [current, argument].map((value) => {
    const isUnsigned =
      (typeof value === 'number' && Number.isInteger(value) && value >= 0) || (typeof value === 'bigint' && value >= 0n)
    if (!isUnsigned) throw boxErrors.updateArgument(op, label, 'a positive integer')
    return BigInt(value)
  }) as [bigint, bigint]
  return op === '&' ? left & right : op === '|' ? left | right : left ^ right
}

/** `[':', field, position, length, text]`: positions are bytes; a negative one counts from the end. */
function splice(current: unknown, operation: Operation, label: string): string {
  const [, , position, length, text] = operation
  if (typeof current !== 'string' || typeof text !== 'string') throw boxErrors.updateArgument(':', label, 'a string')
  if (typeof position !== 'number' || typeof length !== 'number')
    throw boxErrors.splice(`${label}: offset and cut length must be integers`)
  const bytes = Buffer.from(current)
  const start = position < 0 ? bytes.length + position + 1 : position
  if (start < 0) throw boxErrors.splice(`${label}: offset is out of bound`)
  const from = Math.min(start, bytes.length)
  const to = length < 0 ? Math.max(from, bytes.length + length) : Math.min(from + length, bytes.length)
  return Buffer.concat([bytes.subarray(0, from), Buffer.from(text), bytes.subarray(to)]).toString()
}

type Step = string | number

interface Location {
  readonly field: number
  readonly path: readonly Step[]
  readonly label: string
}

function locate(space: Space, fields: readonly Buffer[], target: unknown, indexBase: number): Location {
  if (typeof target === 'number' && Number.isInteger(target)) {
    const field = target < 0 ? fields.length + target : target - indexBase
    if (field < 0) throw boxErrors.noSuchField(String(target))
    return { field, path: [], label: String(target) }
  }
  if (typeof target !== 'string') throw boxErrors.illegalParams('field id must be a number or a string')
  const byName = space.fieldNumber(target)
  if (byName !== undefined) return { field: byName, path: [], label: `'${target}'` }
  const [first, ...path] = parsePath(target)
  const field = typeof first === 'number' ? first - 1 : first === undefined ? undefined : space.fieldNumber(first)
  if (field === undefined || field < 0) throw boxErrors.noSuchField(`'${target}'`)
  return { field, path, label: `'${target}'` }
}

/** `val.a["b"][2]` → val, a, b, 2. Array positions inside a path are one-based always. */
function parsePath(text: string): Step[] {
  const steps: Step[] = []
  const pattern = /\.?([\p{L}_][\p{L}\p{N}_]*)|\[(\d+)\]|\[(?:"([^"]*)"|'([^']*)')\]/uy
  while (pattern.lastIndex < text.length) {
    const at = pattern.lastIndex
    const match = pattern.exec(text)
    if (match === null) throw boxErrors.illegalParams(`Invalid JSON path '${text}': error in position ${at + 1}`)
    const [, name, position, double, single] = match
    steps.push(position === undefined ? (name ?? double ?? single ?? '') : Number(position))
  }
  return steps
}

function applyInside(value: unknown, path: readonly Step[], op: string, operation: Operation, label: string): unknown {
  const [step, ...rest] = path
  const holder = containerOf(value, step!, label)
  if (rest.length > 0) {
    if (!holder.has()) throw boxErrors.noSuchField(label)
    holder.set(applyInside(holder.get(), rest, op, operation, label))
    return value
  }
  switch (op) {
    case '=':
      holder.set(operation[2])
      return value
    case '!':
      holder.insert(operation[2])
      return value
    case '#':
      if (!holder.has()) throw boxErrors.noSuchField(label)
      holder.delete(Number(operation[2]))
      return value
    default:
      if (!holder.has()) throw boxErrors.noSuchField(label)
      holder.set(
        compute(
          op,
          holder.get(),
          typeof holder.get() === 'number' && !Number.isInteger(holder.get()),
          operation,
          label,
        ),
      )
      return value
  }
}

interface Slot {
  has(): boolean
  get(): unknown
  set(value: unknown): void
  insert(value: unknown): void
  delete(count: number): void
}

function containerOf(value: unknown, step: Step, label: string): Slot {
  if (Array.isArray(value) && typeof step === 'number') {
    const at = step - 1
    if (at > value.length) throw boxErrors.noSuchField(label)
    return {
      has: () => at < value.length,
      get: () => value[at] as unknown,
      set: (next) => void (value[at] = next),
      insert: (next) => void value.splice(at, 0, next),
      delete: (count) => void value.splice(at, count),
    }
  }
  if (value instanceof Map) {
    return {
      has: () => value.has(step),
      get: () => value.get(step) as unknown,
      set: (next) => void value.set(step, next),
      insert: (next) => void value.set(step, next),
      delete: () => void value.delete(step),
    }
  }
  if (typeof value === 'object' && value !== null && typeof step === 'string') {
    const object = value as Record<string, unknown>
    return {
      has: () => Object.hasOwn(object, step),
      get: () => object[step],
      set: (next) => void (object[step] = next),
      insert: (next) => void (object[step] = next),
      delete: () => void delete object[step],
    }
  }
  throw boxErrors.noSuchField(label)
}
