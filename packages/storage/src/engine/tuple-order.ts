/*
 * The order of tuples by some of their fields, read from the stored bytes: keys of an index are the tuples themselves, so nothing
 * is decoded or kept for them. Integers and text are compared as they are; whatever is rarer is decoded.
 */
import { compareValues } from '@orbweaver/iproto'
import type { Arena, TupleRef } from './arena.js'
import { fieldOffsets, skipField, uint32At, valueAt } from './tuple.js'
import type { FieldOffsets } from './tuple.js'

/** Stands for the key that is looked for, among the numbers of tuples. */
export const PROBE: TupleRef = -1

/** Where something lies among tuples that are equal in its parts: before them, one of them, behind them. */
export type Edge = -1 | 0 | 1

const NIL: Buffer = Buffer.from([0xc0])

export class TupleOrder {
  /** Fields by which tuples are ordered, the most significant first. */
  readonly #fields: readonly number[]
  readonly #arena: Arena
  /** What is looked for: where each of its parts begins in `#bytes`; NIL's place stands for a missing one. */
  #bytes: Buffer = NIL
  readonly #starts: number[] = []
  #count = 0
  #edge: Edge = 0
  /** A tuple that is about to be filed: its number means the probe too. */
  #standsFor: TupleRef = PROBE
  /** Beginnings of the fields of the tuple that is compared, as far as they were looked for. */
  readonly #offsets: number[] = []

  constructor(fields: readonly number[], arena: Arena) {
    this.#fields = fields
    this.#arena = arena
  }

  /** Looks for an encoded array of the first parts. */
  probeKey(encoded: Buffer, starts: readonly number[], edge: Edge = 0): void {
    this.#bytes = encoded
    this.#count = starts.length - 1
    for (let i = 0; i < this.#count; i++) this.#starts[i] = starts[i]!
    this.#edge = edge
    this.#standsFor = PROBE
  }

  /** Looks for the place of a tuple, by its first `count` parts; `ref` is its number when it is about to be filed. */
  probeTuple(tuple: Buffer, offsets: readonly number[], count: number, ref: TupleRef = PROBE): void {
    this.#bytes = tuple
    this.#count = count
    for (let i = 0; i < count; i++) {
      const field = this.#fields[i]!
      this.#starts[i] = field + 1 < offsets.length ? offsets[field]! : -1
    }
    this.#edge = 0
    this.#standsFor = ref
  }

  /** For the tree: numbers of tuples, one of which may be the probe. */
  readonly compare = (a: TupleRef, b: TupleRef): number => {
    if (a === b) return 0
    if (b === PROBE || b === this.#standsFor) return this.compareToProbe(a)
    if (a === PROBE || a === this.#standsFor) return 0 - this.compareToProbe(b)
    return this.#compareRefs(a, b)
  }

  /** Negative, zero or positive, as the tuple lies before, at or behind what is looked for. */
  compareToProbe(ref: TupleRef): number {
    const arena = this.#arena
    arena.locate(ref)
    const { bytes, end } = arena
    const lead = bytes[arena.start]!
    const size =
      lead < 0xa0
        ? lead - 0x90
        : lead === 0xdc
          ? bytes.readUInt16BE(arena.start + 1)
          : bytes.readUInt32BE(arena.start + 1)
    const offsets = this.#offsets
    offsets[0] = arena.start + (lead < 0xa0 ? 1 : lead === 0xdc ? 3 : 5)
    let known = 0
    for (let i = 0; i < this.#count; i++) {
      const field = this.#fields[i]!
      const probeAt = this.#starts[i]!
      let order: number
      if (field >= size) {
        order = probeAt < 0 ? 0 : compareEncoded(NIL, 0, this.#bytes, probeAt)
      } else {
        while (known < field) {
          offsets[known + 1] = skipField(bytes, offsets[known]!, end)
          known++
        }
        order =
          probeAt < 0
            ? compareEncoded(bytes, offsets[field]!, NIL, 0)
            : compareEncoded(bytes, offsets[field]!, this.#bytes, probeAt)
      }
      if (order !== 0) return order
    }
    return 0 - this.#edge
  }

  /** Two tuples by all fields. */
  compareTuples(a: Buffer, offsetsA: FieldOffsets, b: Buffer, offsetsB: FieldOffsets): number {
    for (const field of this.#fields) {
      const isMissingA = field + 1 >= offsetsA.length
      const isMissingB = field + 1 >= offsetsB.length
      const order = compareEncoded(
        isMissingA ? NIL : a,
        isMissingA ? 0 : offsetsA[field]!,
        isMissingB ? NIL : b,
        isMissingB ? 0 : offsetsB[field]!,
      )
      if (order !== 0) return order
    }
    return 0
  }

  /** Both are in the tree: as it asks when it splits. */
  #compareRefs(a: TupleRef, b: TupleRef): number {
    const left = this.#arena.get(a)
    const right = this.#arena.get(b)
    return this.compareTuples(left, fieldOffsets(left), right, fieldOffsets(right))
  }
}

/**
 * Keys part by part, each an encoded array. Where one of them has no more parts its edge decides; two that are equal in all are
 * ordered by their edges.
 */
export function compareParts(
  a: Buffer,
  offsetsA: FieldOffsets,
  b: Buffer,
  offsetsB: FieldOffsets,
  edgeA: Edge = 0,
  edgeB: Edge = 0,
): number {
  const countA = offsetsA.length - 1
  const countB = offsetsB.length - 1
  for (let i = 0; i < countA && i < countB; i++) {
    const order = compareEncoded(a, offsetsA[i]!, b, offsetsB[i]!)
    if (order !== 0) return order
  }
  if (countA === countB) return edgeA - edgeB
  return countA < countB ? (edgeA === 0 ? -1 : edgeA) : edgeB === 0 ? 1 : 0 - edgeB
}

/** The order of two encoded values. */
export function compareEncoded(a: Buffer, atA: number, b: Buffer, atB: number): number {
  const leadA = a[atA]!
  const leadB = b[atB]!
  if (leadA < 0x80 && leadB < 0x80) return leadA - leadB
  if (isUint(leadA) && isUint(leadB)) return compareUints(a, atA, b, atB)
  if (isText(leadA) && isText(leadB)) return compareTexts(a, atA, b, atB)
  if (leadA === 0xc0 && leadB === 0xc0) return 0
  return compareValues(decodeAt(a, atA), decodeAt(b, atB))
}

function decodeAt(bytes: Buffer, at: number): unknown {
  return valueAt(bytes, at, skipField(bytes, at, bytes.length))
}

function isUint(lead: number): boolean {
  return lead < 0x80 || (lead >= 0xcc && lead <= 0xcf)
}

function isText(lead: number): boolean {
  return (lead >= 0xa0 && lead < 0xc0) || (lead >= 0xd9 && lead <= 0xdb)
}

function compareUints(a: Buffer, atA: number, b: Buffer, atB: number): number {
  const high = highOf(a, atA) - highOf(b, atB)
  return high === 0 ? lowOf(a, atA) - lowOf(b, atB) : high
}

function highOf(bytes: Buffer, at: number): number {
  return bytes[at] === 0xcf ? uint32At(bytes, at + 1) : 0
}

function lowOf(bytes: Buffer, at: number): number {
  const lead = bytes[at]!
  if (lead < 0x80) return lead
  if (lead === 0xcc) return bytes[at + 1]!
  if (lead === 0xcd) return (bytes[at + 1]! << 8) | bytes[at + 2]!
  return uint32At(bytes, lead === 0xce ? at + 1 : at + 5)
}

/** Text is ordered by its bytes, as in Tarantool. */
function compareTexts(a: Buffer, atA: number, b: Buffer, atB: number): number {
  const headA = textHead(a[atA]!)
  const headB = textHead(b[atB]!)
  const lengthA = textLength(a, atA)
  const lengthB = textLength(b, atB)
  const common = lengthA < lengthB ? lengthA : lengthB
  const startA = atA + headA
  const startB = atB + headB
  if (common > LONG_TEXT) {
    const order = a.compare(b, startB, startB + lengthB, startA, startA + lengthA)
    return order
  }
  for (let i = 0; i < common; i++) {
    const order = a[startA + i]! - b[startB + i]!
    if (order !== 0) return order
  }
  return lengthA - lengthB
}

/** Beyond this many bytes the call of a native comparison pays. */
const LONG_TEXT = 48

function textHead(lead: number): number {
  return lead < 0xc0 ? 1 : lead === 0xd9 ? 2 : lead === 0xda ? 3 : 5
}

function textLength(bytes: Buffer, at: number): number {
  const lead = bytes[at]!
  if (lead < 0xc0) return lead & 0x1f
  if (lead === 0xd9) return bytes[at + 1]!
  return lead === 0xda ? bytes.readUInt16BE(at + 1) : bytes.readUInt32BE(at + 1)
}
