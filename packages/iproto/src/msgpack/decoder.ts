import type { FieldFormat } from '../ext/tuple.js'
import type { DecodeOptions } from './decode-options.js'
import { readExactly, takeMetFormats } from './reader.js'

/**
 * Decodes exactly one value, strictly and in one pass (reader.ts).
 *
 * Why not msgpackr, the fast decoder of this ecosystem: alone it is not exact enough for this protocol (it replaces invalid UTF-8, turns
 * keys of maps into text, renames `__proto__`, gives types 0x72, 0x69, … meanings of its own, and its handlers of extensions belong to the
 * whole process), and the proof that a body holds none of that costs most of what is gained. Measured on Node.js 20 with msgpackr 2.1.4 and
 * its native helper = 1: a structural check followed by msgpackr reaches 0.60 on 100 rows of ten fields and 0.64 on 1000 rows of four; this
 * reader, exact by itself, 1.0 on both, 1.1 on one row, 1.4 on maps, 2.5 on long Cyrillic text, 0.9 on rows of nothing but floats. Without the
 * native helper, which is optional, it is twice as fast on rows with text. So there is one way through, the same on every machine, and no other
 * user of msgpackr in the process is touched. msgpackr is the yardstick of the tests and benchmarks.
 *
 * @param options.start - first byte of the value, default 0
 * @param options.end - byte behind its last one, default the end of `bytes`; nothing beyond has an influence
 * @throws MalformedFrameError when bytes are left over or missing, when one is no MessagePack, when values nest too deep (256 levels), or
 * when an integer is not what `options.integers` allows
 */
export function decodeValue(
  bytes: Buffer,
  options: DecodeOptions & { readonly start?: number; readonly end?: number } = {},
): unknown {
  return readExactly(bytes, options.start ?? 0, options.end ?? bytes.length, options)
}

/**
 * As `decodeValue`, with formats for the tuples (extension 7) in the value.
 * @param formats - by the id in a tuple's payload; called only when there is a tuple
 */
export function decodeWithFormats(
  bytes: Buffer,
  start: number,
  end: number,
  options: DecodeOptions,
  formats: () => ReadonlyMap<number, readonly FieldFormat[]>,
): unknown {
  const value = readExactly(bytes, start, end, options)
  const met = takeMetFormats()
  if (met !== undefined) {
    const known = formats()
    for (const [id, format] of met) format.push(...(known.get(id) ?? []))
  }
  return value
}
