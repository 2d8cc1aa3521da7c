import {
  BoxError,
  ByteString,
  Datetime,
  Decimal,
  Double,
  Extension,
  Float,
  Interval,
  Tuple,
  Uuid,
} from '../src/index.js'

/**
 * An independent model of MessagePack as this protocol uses it: nodes say what is on the wire, form included. Slow and plain on purpose;
 * nothing of it is shared with the code it checks.
 */
export type Node =
  | { readonly kind: 'nil' }
  | { readonly kind: 'bool'; readonly value: boolean }
  /** `width` 0 is the shortest form; otherwise the bytes of the form, where the value fits. */
  | { readonly kind: 'int'; readonly value: bigint; readonly width: 0 | 1 | 2 | 4 | 8 }
  | { readonly kind: 'float'; readonly value: number; readonly width: 4 | 8 }
  | { readonly kind: 'str'; readonly bytes: Uint8Array }
  | { readonly kind: 'bin'; readonly bytes: Uint8Array }
  | { readonly kind: 'array'; readonly items: readonly Node[] }
  | { readonly kind: 'map'; readonly entries: readonly (readonly [Node, Node])[] }
  | { readonly kind: 'ext'; readonly type: number; readonly payload: Uint8Array }

/** The bytes of a node. @param isWide - sizes in their widest form instead of their shortest */
export function bytesOf(node: Node, isWide = false): number[] {
  switch (node.kind) {
    case 'nil':
      return [0xc0]
    case 'bool':
      return [node.value ? 0xc3 : 0xc2]
    case 'int':
      return integerBytes(node.value, node.width)
    case 'float':
      return floatBytes(node.value, node.width)
    case 'str':
      return [...sized(node.bytes.length, isWide, [0xa0, 32], [0xd9, 0xda, 0xdb]), ...node.bytes]
    case 'bin':
      return [...sized(node.bytes.length, isWide, undefined, [0xc4, 0xc5, 0xc6]), ...node.bytes]
    case 'array':
      return [
        ...sized(node.items.length, isWide, [0x90, 16], [undefined, 0xdc, 0xdd]),
        ...node.items.flatMap((item) => bytesOf(item, isWide)),
      ]
    case 'map':
      return [
        ...sized(node.entries.length, isWide, [0x80, 16], [undefined, 0xde, 0xdf]),
        ...node.entries.flatMap(([key, value]) => [...bytesOf(key, isWide), ...bytesOf(value, isWide)]),
      ]
    case 'ext': {
      const fixed = [1, 2, 4, 8, 16].indexOf(node.payload.length)
      const header =
        fixed >= 0 && !isWide ? [0xd4 + fixed] : sized(node.payload.length, isWide, undefined, [0xc7, 0xc8, 0xc9])
      return [...header, node.type & 0xff, ...node.payload]
    }
  }
}

/** What a node is in JavaScript by the default options. */
export function valueOfNode(node: Node): unknown {
  switch (node.kind) {
    case 'nil':
      return null
    case 'bool':
      return node.value
    case 'int':
      return node.value <= 9_007_199_254_740_991n && node.value >= -9_007_199_254_740_991n
        ? Number(node.value)
        : node.value
    case 'float':
      return node.width === 4 ? Math.fround(node.value) : node.value
    case 'str':
      return textOf(node.bytes)
    case 'bin':
      return Buffer.from(node.bytes)
    case 'array':
      return node.items.map(valueOfNode)
    case 'map': {
      const entries = node.entries.map(([key, value]) => [keyOf(key), valueOfNode(value)] as const)
      if (entries.some(([key]) => typeof key !== 'string')) return new Map(entries)
      const record: Record<string, unknown> = {}
      for (const [key, value] of entries) {
        Object.defineProperty(record, key as string, { value, writable: true, enumerable: true, configurable: true })
      }
      return record
    }
    case 'ext':
      return new Extension(node.type, Buffer.from(node.payload))
  }
}

function keyOf(key: Node): unknown {
  if (key.kind !== 'float') return valueOfNode(key)
  const value = valueOfNode(key) as number
  if (!Number.isInteger(value)) return value
  return key.width === 4 ? new Float(value) : new Double(value)
}

const STRICT = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

function textOf(bytes: Uint8Array): string | ByteString {
  try {
    return STRICT.decode(bytes)
  } catch {
    return new ByteString(Buffer.from(bytes))
  }
}

/** The node a JavaScript value is to be written as: the encoder's contract, written down a second time. */
export function nodeOf(value: unknown): Node {
  if (value === null || value === undefined) return { kind: 'nil' }
  if (typeof value === 'boolean') return { kind: 'bool', value }
  if (typeof value === 'bigint') return { kind: 'int', value, width: 0 }
  if (typeof value === 'number') {
    return Number.isInteger(value)
      ? { kind: 'int', value: BigInt(value), width: 0 }
      : { kind: 'float', value, width: 8 }
  }
  if (typeof value === 'string') return { kind: 'str', bytes: new TextEncoder().encode(value) }
  if (value instanceof Uint8Array) return { kind: 'bin', bytes: value }
  if (Array.isArray(value)) return { kind: 'array', items: value.map(nodeOf) }
  if (value instanceof Double) return { kind: 'float', value: value.value, width: 8 }
  if (value instanceof Float) return { kind: 'float', value: value.value, width: 4 }
  if (value instanceof ByteString) return { kind: 'str', bytes: value.bytes }
  if (value instanceof Extension) return { kind: 'ext', type: value.type, payload: value.bytes }
  const entries: [unknown, unknown][] =
    value instanceof Map ? [...(value as Map<unknown, unknown>)] : Object.entries(value)
  const present = entries.filter(([, item]) => item !== undefined)
  return { kind: 'map', entries: present.map(([key, item]) => [nodeOf(key), nodeOf(item)]) }
}

/** Whether a decoded value is one of the classes of known extensions. */
export function isKnownExtension(value: unknown): boolean {
  return [Decimal, Uuid, Datetime, Interval, BoxError, Tuple].some((known) => value instanceof known)
}

function integerBytes(value: bigint, width: 0 | 1 | 2 | 4 | 8): number[] {
  if (width === 0 && value >= -32n && value <= 127n) return [Number(value & 0xffn)]
  const unsigned = value >= 0n
  for (const [bytes, first] of unsigned ? UNSIGNED : SIGNED) {
    const bits = BigInt(bytes * 8)
    const fits = unsigned ? value < 1n << bits : value >= -(1n << (bits - 1n))
    if (fits && bytes >= width) return [first, ...bigEndian(value, bytes)]
  }
  throw new RangeError(`${value} does not fit 64 bits`)
}

const UNSIGNED = [
  [1, 0xcc],
  [2, 0xcd],
  [4, 0xce],
  [8, 0xcf],
] as const
const SIGNED = [
  [1, 0xd0],
  [2, 0xd1],
  [4, 0xd2],
  [8, 0xd3],
] as const

function bigEndian(value: bigint, bytes: number): number[] {
  return Array.from({ length: bytes }, (_, i) => Number((value >> BigInt((bytes - 1 - i) * 8)) & 0xffn))
}

function floatBytes(value: number, width: 4 | 8): number[] {
  const view = new DataView(new ArrayBuffer(width))
  if (width === 4) view.setFloat32(0, value)
  else view.setFloat64(0, value)
  return [width === 4 ? 0xca : 0xcb, ...new Uint8Array(view.buffer)]
}

function sized(
  size: number,
  isWide: boolean,
  fixed: readonly [first: number, limit: number] | undefined,
  [one, two, four]: readonly [number | undefined, number, number],
): number[] {
  if (isWide) return [four, ...bigEndian(BigInt(size), 4)]
  if (fixed !== undefined && size < fixed[1]) return [fixed[0] | size]
  if (one !== undefined && size < 256) return [one, size]
  return size < 65_536 ? [two, ...bigEndian(BigInt(size), 2)] : [four, ...bigEndian(BigInt(size), 4)]
}
