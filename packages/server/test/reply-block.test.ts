import { describe, expect, it } from 'vitest'
import { ReplyBlock } from '../src/reply-block.js'

/** Frames of these sizes in received chunks, as ranges. */
function framesOf(sizes: readonly number[]): { bytes: Buffer; start: number; end: number }[] {
  const bytes = Buffer.from(
    Array.from({ length: sizes.reduce((sum, size) => sum + size, 7) }, (_, i) => (i * 31) & 0xff),
  )
  let at = 7
  return sizes.map((size) => ({ bytes, start: at, end: (at += size) }))
}

function chunksOf(sizes: readonly number[]): Uint8Array[] {
  const block = new ReplyBlock()
  const outgoing: Uint8Array[] = []
  for (const { bytes, start, end } of framesOf(sizes)) block.append(bytes, start, end, outgoing)
  block.moveTo(outgoing)
  return outgoing
}

describe('ReplyBlock', () => {
  it.each([
    ['one frame', [40], 1],
    ['frames of all small sizes', Array.from({ length: 40 }, (_, i) => i + 1), 1],
    ['frames that outgrow the first memory', Array.from({ length: 60 }, () => 200), 1],
    ['more than the largest memory', Array.from({ length: 100 }, () => 333), 3],
    ['frames copied by the system', [600, 700, 4_096], 1],
    ['a large frame between small ones', [30, 31, 5_000, 32, 33], 3],
    ['large frames alone', [5_000, 6_000], 2],
  ] as const)('moves %s on unchanged and in order, in few chunks', (_what, sizes, chunks) => {
    const outgoing = chunksOf(sizes)
    const whole = Buffer.concat(framesOf(sizes).map(({ bytes, start, end }) => bytes.subarray(start, end)))
    expect(Buffer.concat(outgoing).equals(whole)).toBe(true)
    expect(outgoing).toHaveLength(chunks)
  })

  it('writes nothing over chunks it has given away', () => {
    const block = new ReplyBlock()
    const outgoing: Uint8Array[] = []
    const frames = framesOf([20, 20, 20, 20])
    const whole = Buffer.concat(frames.map(({ bytes, start, end }) => bytes.subarray(start, end)))
    for (const [i, { bytes, start, end }] of frames.entries()) {
      block.append(bytes, start, end, outgoing)
      if (i % 2 === 1) block.moveTo(outgoing)
    }
    expect(Buffer.concat(outgoing).equals(whole)).toBe(true)
    expect(outgoing).toHaveLength(2)
  })

  it('forgets what it held when the session has ended', () => {
    const block = new ReplyBlock()
    const outgoing: Uint8Array[] = []
    for (const { bytes, start, end } of framesOf([20, 20])) block.append(bytes, start, end, outgoing)
    block.drop()
    block.moveTo(outgoing)
    expect(outgoing).toEqual([])
  })
})
