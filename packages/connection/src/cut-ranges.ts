/** A stretch of a stream of bytes. */
export interface ByteRange {
  readonly offset: number
  readonly bytes: number
}

/**
 * The chunks without some ranges of the stream they form: requests that ended before they were handed over are not sent.
 * @param ranges - disjoint, in any order
 */
export function cutRanges(chunks: readonly Uint8Array[], ranges: readonly ByteRange[]): Uint8Array[] {
  const cuts = [...ranges].sort((a, b) => a.offset - b.offset)
  const kept: Uint8Array[] = []
  let chunkStart = 0
  for (const chunk of chunks) {
    const chunkEnd = chunkStart + chunk.length
    let from = chunkStart
    for (const { offset, bytes } of cuts) {
      if (offset >= chunkEnd || offset + bytes <= from) continue
      if (offset > from) kept.push(chunk.subarray(from - chunkStart, offset - chunkStart))
      from = Math.min(offset + bytes, chunkEnd)
    }
    if (from < chunkEnd) kept.push(chunk.subarray(from - chunkStart))
    chunkStart = chunkEnd
  }
  return kept
}
