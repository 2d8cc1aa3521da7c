import type { FieldFormat } from '../ext/tuple.js'
import type { DecodeOptions } from './decode-options.js'
import { readExactly, takeMetFormats } from './reader.js'

/**
 * Decodes exactly one value.
 * @param options.start - first byte of the value, default 0
 * @param options.end - byte behind its last one, default the end of `bytes`; nothing beyond is looked at
 * @throws MalformedFrameError when bytes are left over or missing, when one is no MessagePack, when values nest too deep
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
