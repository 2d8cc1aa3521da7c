import { FrameHeader, FrameReader } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { LaneWriter } from '../src/lane-writer.js'

function framesOf(chunks: readonly Uint8Array[]): { header: FrameHeader; body: Buffer }[] {
  const reader = new FrameReader({ maxFrameBytes: 1 << 26 })
  for (const chunk of chunks) reader.push(Buffer.from(chunk))
  const frames = []
  for (let frame = reader.next(); frame !== undefined; frame = reader.next()) {
    const header = new FrameHeader()
    header.read(frame)
    frames.push({ header, body: frame.subarray(header.bodyStart, header.bodyEnd) })
  }
  return frames
}

describe('LaneWriter', () => {
  it.each([
    [0, 0, 0, 0, 0],
    [1, 7, 9, 0, 0],
    [127, 0xffff_ffff, 0xffff_ffff, 1, 0],
    [10, 3, 4, 0, 80],
    [10, 3, 4, 0xffff_fffe, 2 ** 40 + 5],
  ])(
    'writes type %i, generation %i, slot %i, stream %i and schema version %i',
    (type, generation, slot, stream, schema) => {
      const writer = new LaneWriter()
      const body = Buffer.from('810801', 'hex')
      const bytes = writer.append(type, generation, slot, stream, schema, body)
      expect(writer.pendingBytes).toBe(bytes)
      const [frame] = framesOf(writer.take())
      expect(frame!.header).toMatchObject({
        type,
        syncHigh: generation,
        syncLow: slot,
        streamId: stream,
        schemaVersion: schema === 0 ? undefined : schema,
      })
      expect(frame!.body).toEqual(body)
    },
  )

  it('joins small requests into one chunk and passes large bodies on uncopied', () => {
    const writer = new LaneWriter()
    for (let i = 0; i < 100; i++) writer.append(1, 0, i, 0, 0, Buffer.alloc(40, i))
    expect(writer.take()).toHaveLength(1)
    const large = Buffer.alloc(100_000, 7)
    writer.append(1, 0, 1, 0, 0, Buffer.alloc(10))
    writer.append(1, 0, 2, 0, 0, large)
    writer.append(1, 0, 3, 0, 0, Buffer.alloc(10))
    const chunks = writer.take()
    expect(chunks).toHaveLength(3)
    expect(chunks[1]).toBe(large)
  })

  it('writes the same frames however they fall into its blocks, and never over chunks it gave away', () => {
    const writer = new LaneWriter()
    const kept: Uint8Array[] = []
    const bodies = Array.from({ length: 5_000 }, (_, i) => Buffer.alloc((i * 37) % 4_200, i))
    for (const [i, body] of bodies.entries()) {
      writer.append(1, i, i, 0, 0, body)
      if (i % 13 === 0) kept.push(...writer.take())
    }
    kept.push(...writer.take())
    const frames = framesOf(kept)
    expect(frames.map(({ header }) => header.syncLow)).toEqual(bodies.map((_, i) => i))
    expect(frames.every(({ body }, i) => body.equals(bodies[i]!))).toBe(true)
    expect(writer.take()).toEqual([])
  })
})
