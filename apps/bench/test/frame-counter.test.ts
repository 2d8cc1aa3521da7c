import { expect, test } from 'vitest'
import { FrameCounter } from '../src/subjects/frame-counter.js'

function frame(bodyBytes: number): Buffer {
  const bytes = Buffer.alloc(5 + bodyBytes, 0xce)
  bytes.writeUInt32BE(bodyBytes, 1)
  return bytes
}

test.each([1_000, 1, 2, 3, 7, 301])('FrameCounter counts the same frames in chunks of %d bytes', (size) => {
  const stream = Buffer.concat([frame(1), frame(0), frame(300), frame(7)])
  const counter = new FrameCounter()
  let frames = 0
  for (let at = 0; at < stream.length; at += size) frames += counter.count(stream.subarray(at, at + size))
  expect(frames).toBe(4)
})

test('FrameCounter counts a frame when its last byte is there, not before', () => {
  const counter = new FrameCounter()
  const bytes = frame(10)
  expect(counter.count(bytes.subarray(0, 14))).toBe(0)
  expect(counter.count(bytes.subarray(14))).toBe(1)
})

test('FrameCounter refuses a stream that is no frames', () => {
  expect(() => new FrameCounter().count(Buffer.from('HTTP/1.1 400 Bad Request'))).toThrow('A frame begins with 0x48')
})
