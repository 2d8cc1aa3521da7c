import assert from 'node:assert/strict'
import { describe, expect, it, test } from 'vitest'
import {
  FrameReader,
  FrameTooLargeError,
  FrameWriter,
  MalformedFrameError,
  pingRequest,
  rawRequest,
} from '../src/index.js'

/** A frame of `bytes` bytes behind its prefix, which takes as many bytes as `form` says. */
function frame(bytes: number, form: 1 | 2 | 3 | 5 | 9 = 5): Buffer {
  const prefix = Buffer.alloc(form)
  if (form === 1) prefix[0] = bytes
  else {
    prefix[0] = { 2: 0xcc, 3: 0xcd, 5: 0xce, 9: 0xcf }[form]
    prefix.writeUIntBE(bytes, form === 9 ? 5 : 1, form === 9 ? 4 : form - 1)
  }
  return Buffer.concat([prefix, Buffer.from(Array.from({ length: bytes }, (_, i) => (i * 7) & 0xff))])
}

/** Compared as bytes: a general comparison walks every element. */
function sameBytes(actual: readonly Buffer[], expected: readonly Buffer[]): void {
  expect(actual.map(({ length }) => length)).toEqual(expected.map(({ length }) => length))
  expect(Buffer.concat(actual).equals(Buffer.concat(expected))).toBe(true)
}

function read(reader: FrameReader): Buffer[] {
  const frames: Buffer[] = []
  for (let next = reader.next(); next !== undefined; next = reader.next()) frames.push(next)
  return frames
}

describe('FrameReader', () => {
  it('says where frames are in memory that they share, and keeps none of it afterwards', () => {
    const both = [frame(5), frame(300, 3)]
    const reader = new FrameReader({ maxFrameBytes: 1_000 })
    const chunk = Buffer.concat([...both, frame(40).subarray(0, 20)])
    reader.push(chunk)
    const found: Buffer[] = []
    while (reader.advance()) {
      expect(reader.bytes).toBe(chunk)
      found.push(reader.bytes.subarray(reader.start, reader.end))
    }
    sameBytes(found, both)
    expect(reader.bytes).toHaveLength(0)
    reader.push(frame(40).subarray(20))
    expect(reader.advance()).toBe(true)
    sameBytes([reader.bytes.subarray(reader.start, reader.end)], [frame(40)])
    expect(reader.advance()).toBe(false)
    expect(reader.bytes).toHaveLength(0)
  })

  const frames = [
    frame(5),
    frame(0, 1),
    frame(100, 1),
    frame(127, 2),
    frame(200, 3),
    frame(3, 9),
    frame(70_000, 5),
    frame(1, 5),
    frame(0, 9),
  ]
  const stream = Buffer.concat(frames)

  test.each([stream.length, 1, 2, 3, 5, 7, 64, 1000, 4096, 65_536])(
    'cuts frames of every form out of chunks of %d bytes',
    (size) => {
      const reader = new FrameReader({ maxFrameBytes: 100_000 })
      const got: Buffer[] = []
      for (let at = 0; at < stream.length; at += size) {
        reader.push(stream.subarray(at, at + size))
        got.push(...read(reader))
      }
      sameBytes(got, frames)
      expect(reader.bufferedBytes).toBe(0)
    },
  )

  it('gives the same whether frames are taken at once or after many pushes', () => {
    const reader = new FrameReader({ maxFrameBytes: 100_000 })
    for (let at = 0; at < stream.length; at += 11) reader.push(stream.subarray(at, at + 11))
    reader.push(Buffer.alloc(0))
    expect(reader.bufferedBytes).toBe(stream.length)
    sameBytes(read(reader), frames)
    expect(reader.bufferedBytes).toBe(0)
  })

  it('cuts a stream of two frames at every offset', () => {
    const pair = Buffer.concat([frame(20, 3), frame(9, 9)])
    for (let cut = 0; cut <= pair.length; cut++) {
      const reader = new FrameReader({ maxFrameBytes: 100 })
      reader.push(pair.subarray(0, cut))
      const first = read(reader)
      expect(reader.bufferedBytes).toBe(cut - Buffer.concat(first).length)
      reader.push(pair.subarray(cut))
      expect(Buffer.concat([...first, ...read(reader)])).toEqual(pair)
    }
  })

  it('slices a frame that lies in one chunk, without a copy', () => {
    const chunk = Buffer.concat([frame(5), frame(6)])
    const reader = new FrameReader({ maxFrameBytes: 100 })
    reader.push(chunk)
    for (const got of read(reader)) expect(got.buffer).toBe(chunk.buffer)
  })

  it('copies each byte of a large frame a bounded number of times', () => {
    // 4 MiB in pieces of 1 KiB: re-joining at every push would move 8 GiB.
    const large = frame(4_194_304)
    const reader = new FrameReader({ maxFrameBytes: 20_000_000 })
    let got: Buffer | undefined
    for (let at = 0; at < large.length; at += 1024) {
      assert.equal(got, undefined)
      reader.push(large.subarray(at, at + 1024))
      got = reader.next()
    }
    expect(got!.equals(large)).toBe(true)
  })

  it('refuses an oversized frame as soon as it is announced, and spends nothing on it', () => {
    for (const prefix of ['ce04000001', 'cf0000000004000001', 'cfffffffffffffffff', 'ceffffffff']) {
      const reader = new FrameReader({ maxFrameBytes: 0x4000000 })
      const bytes = Buffer.from(prefix, 'hex')
      for (const byte of bytes.subarray(0, -1)) {
        reader.push(Buffer.of(byte))
        expect(reader.next()).toBeUndefined()
      }
      reader.push(bytes.subarray(-1))
      expect(() => reader.next()).toThrow(FrameTooLargeError)
      // A reader that failed has lost its place in the stream.
      reader.push(frame(1))
      expect(() => reader.next()).toThrow(FrameTooLargeError)
    }
  })

  it('holds memory for what has arrived, not for what was announced', () => {
    const before = process.memoryUsage().arrayBuffers
    const readers = Array.from({ length: 20 }, () => {
      const reader = new FrameReader({ maxFrameBytes: 0x10000000 })
      reader.push(Buffer.from('ce0fffffff', 'hex'))
      reader.push(Buffer.from('8200', 'hex'))
      expect(reader.next()).toBeUndefined()
      return reader
    })
    expect(readers.every((reader) => reader.bufferedBytes === 7)).toBe(true)
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(4_000_000)
  })

  it('takes more after its limit was raised', () => {
    const reader = new FrameReader({ maxFrameBytes: 10 })
    reader.maxFrameBytes = 1000
    reader.push(frame(500))
    expect(read(reader)).toEqual([frame(500)])
  })

  test.each(['80', '90', 'a0', 'c0', 'ca', 'd0', 'd2', 'ff', 'db'])('refuses a stream that starts with %s', (hex) => {
    const reader = new FrameReader({ maxFrameBytes: 100 })
    reader.push(Buffer.from(`${hex}0001`, 'hex'))
    expect(() => reader.next()).toThrow(MalformedFrameError)
    expect(() => reader.next()).toThrow(`A frame starts with byte 0x${hex}, which is no size`)
  })
})

describe('FrameReader with large frames', () => {
  const large = frame(300_000)
  const stream = Buffer.concat([frame(10), large, frame(20), frame(5000), frame(2000), frame(1)])

  /** What a consumer sees: whole frames, and large ones put together from head and pieces. */
  function drain(
    reader: FrameReader,
    seen: { frames: Buffer[]; pieces: number; openBytes: number },
    open: Buffer[],
  ): void {
    for (;;) {
      const progress = reader.large
      if (progress === undefined) {
        const next = reader.next()
        if (next !== undefined) seen.frames.push(next)
        else if (reader.large === undefined) return
        else {
          open.push(reader.large.head)
          seen.openBytes = reader.large.head.length
        }
      } else {
        const piece = reader.nextLarge()
        if (piece === undefined) return
        seen.pieces++
        open.push(piece)
        seen.openBytes += piece.length
        assert.equal(progress.frameBytes - progress.remainingBytes, seen.openBytes)
        if (reader.large === undefined) seen.frames.push(Buffer.concat(open.splice(0)))
      }
    }
  }

  test.each([stream.length, 7, 1000, 65_536])(
    'delivers them in pieces between whole ones, from chunks of %d bytes',
    (size) => {
      const reader = new FrameReader({ maxFrameBytes: 1_000_000, largeFrameBytes: 2000 })
      const seen = { frames: [] as Buffer[], pieces: 0, openBytes: 0 }
      const open: Buffer[] = []
      for (let at = 0; at < stream.length; at += size) {
        reader.push(stream.subarray(at, at + size))
        drain(reader, seen, open)
        assert.ok(reader.bufferedBytes < size + 2100)
      }
      sameBytes(seen.frames, [frame(10), large, frame(20), frame(5000), frame(2000), frame(1)])
      expect(seen.pieces).toBeGreaterThanOrEqual(3)
      expect(reader.bufferedBytes).toBe(0)
      expect(reader.large).toBeUndefined()
      expect(reader.nextLarge()).toBeUndefined()
    },
  )

  it('gives at least the header in the head, and waits for it', () => {
    const reader = new FrameReader({ maxFrameBytes: 1_000_000, largeFrameBytes: 2000 })
    reader.push(large.subarray(0, 1000))
    expect([reader.next(), reader.large]).toEqual([undefined, undefined])
    reader.push(large.subarray(1000, 2000))
    expect(reader.next()).toBeUndefined()
    expect(reader.large).toEqual({
      head: large.subarray(0, 1024),
      frameBytes: large.length,
      remainingBytes: large.length - 1024,
    })
    expect(reader.next()).toBeUndefined()
  })

  it('still refuses what is over the limit', () => {
    const reader = new FrameReader({ maxFrameBytes: 5000, largeFrameBytes: 2000 })
    reader.push(frame(5001))
    expect(() => reader.next()).toThrow(FrameTooLargeError)
  })
})

it('reads what FrameWriter wrote', () => {
  const writer = new FrameWriter({ slabBytes: 100 })
  for (let sync = 1; sync <= 50; sync++) {
    writer.request(sync % 2 === 0 ? pingRequest() : rawRequest(10, 'code', Buffer.alloc(sync * 3, 0x80)), sync)
  }
  const chunks = writer.take()
  const reader = new FrameReader({ maxFrameBytes: 1000 })
  for (const chunk of chunks) reader.push(chunk)
  const got = read(reader)
  expect(got).toHaveLength(50)
  expect(Buffer.concat(got)).toEqual(Buffer.concat(chunks))
})
