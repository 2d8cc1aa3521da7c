import { describe, expect, it } from 'vitest'
import { cutRanges } from '../src/cut-ranges.js'
import { seeded } from './rig.js'

describe('cutRanges', () => {
  it.each([
    [[[0, 3]], 'defghij'],
    [[[7, 3]], 'abcdefg'],
    [[[2, 4]], 'abghij'],
    [
      [
        [4, 2],
        [0, 2],
      ],
      'cdghij',
    ],
    [[[0, 10]], ''],
    [
      [
        [0, 5],
        [5, 5],
      ],
      '',
    ],
  ] as const)('%j leaves %s', (ranges, left) => {
    const chunks = [Buffer.from('abc'), Buffer.from('defg'), Buffer.from('hij')]
    expect(
      Buffer.concat(
        cutRanges(
          chunks,
          ranges.map(([offset, bytes]) => ({ offset, bytes })),
        ),
      ).toString(),
    ).toBe(left)
  })

  it('equals cutting one whole buffer, for random chunks and ranges', () => {
    const random = seeded(3)
    for (let round = 0; round < 500; round += 1) {
      const whole = Buffer.from(Array.from({ length: 100 }, (_, i) => i))
      const chunks: Buffer[] = []
      for (let at = 0; at < 100;) {
        const size = 1 + Math.floor(random() * 30)
        chunks.push(whole.subarray(at, at + size))
        at += size
      }
      const gone = new Set<number>()
      const ranges: { offset: number; bytes: number }[] = []
      for (let at = Math.floor(random() * 20); at < 100;) {
        const bytes = Math.min(1 + Math.floor(random() * 10), 100 - at)
        ranges.unshift({ offset: at, bytes })
        for (let i = 0; i < bytes; i += 1) gone.add(at + i)
        at += bytes + Math.floor(random() * 30)
      }
      expect([...Buffer.concat(cutRanges(chunks, ranges))]).toEqual([...whole].filter((byte) => !gone.has(byte)))
    }
  })
})
