import { createRequire } from 'node:module'
import { decodeValue, encodeValue, FrameWriter } from '@orbweaver/iproto'
import { Packr, Unpackr } from 'msgpackr'
import type { CodecCase } from '../cases/codec.js'
import { narrowRow, wideRow } from '../fixture.js'
import { busyRound } from '../round.js'
import type { Subject } from './subject.js'

/** Both directions of a codec. */
interface Codec {
  /** @returns anything that depends on all bytes having been written */
  encode(value: unknown): unknown
  decode(bytes: Buffer): unknown
}

/** The codec of this project as a connection uses it: values are written into the memory of the frames to be sent. */
export function orbweaverCodec(benchCase: CodecCase): Promise<Subject> {
  const writer = new FrameWriter()
  return codecSubject(benchCase, {
    encode: (value) => {
      writer.beginFrame()
      writer.value(value)
      const bytes = writer.end()
      if (writer.pendingBytes > TURN_BYTES) writer.take()
      return bytes
    },
    decode: (bytes) => decodeValue(bytes),
  })
}

/** The same, with a buffer of its own for each value. */
export function ownBufferCodec(benchCase: CodecCase): Promise<Subject> {
  return codecSubject(benchCase, { encode: encodeValue, decode: (bytes) => decodeValue(bytes) })
}

/** msgpackr alone, with the settings that give the same values for the same bytes. */
export function msgpackrCodec(benchCase: CodecCase): Promise<Subject> {
  const packr = new Packr({ useRecords: false })
  const unpackr = new Unpackr({ useRecords: false })
  return codecSubject(benchCase, {
    encode: (value) => packr.pack(value),
    decode: (bytes) => unpackr.unpack(bytes) as unknown,
  })
}

/** The codec that tarantool-driver uses: the copy that is installed for it. */
export function msgpackLiteCodec(benchCase: CodecCase): Promise<Subject> {
  const ownRequire = createRequire(import.meta.url)
  const codec = createRequire(ownRequire.resolve('tarantool-driver'))('msgpack-lite') as Codec
  return codecSubject(benchCase, codec)
}

function codecSubject({ direction, bytesIn, rows, fields }: CodecCase, codec: Codec): Promise<Subject> {
  const value =
    rows === 1
      ? wideRow(1)
      : Array.from({ length: rows }, (_, i) => (fields === 10 ? wideRow(i + 1) : narrowRow(i + 1)))
  // All decode the same bytes. A reply's slice is always a new object: nothing can be remembered with it.
  const bytes = Buffer.from(encodeValue(value))
  const frames = receivedFrames()
  const source = bytesIn === 'frames' ? (): Buffer => frames.next() : (): Buffer => bytes
  // What is left here keeps the result alive, so that no compiler finds the work useless.
  const last: { result: unknown } = { result: undefined }
  const work =
    direction === 'encode'
      ? (): void => {
          last.result = codec.encode(value)
        }
      : (): void => {
          last.result = codec.decode(source())
        }
  const batch = rows === 1 ? 256 : 4
  return Promise.resolve({
    round: (seconds) => {
      const round = busyRound(work, seconds, batch)
      if (last.result === undefined) throw new Error('The codec gave nothing')
      return Promise.resolve(round)
    },
  })
}

/** Rows as the values of replies that came in one read: slices of one chunk, with a header before each. */
function receivedFrames(): { next(): Buffer } {
  const header = Buffer.alloc(REPLY_HEADER_BYTES)
  const values = Array.from({ length: FRAMES }, (_, i) => encodeValue(wideRow(i + 1)))
  const chunk = Buffer.concat(values.flatMap((value) => [header, value]))
  let turn = 0
  let at = 0
  return {
    next: () => {
      if (turn === FRAMES) turn = at = 0
      const start = at + REPLY_HEADER_BYTES
      at = start + values[turn]!.length
      turn += 1
      return chunk.subarray(start, at)
    },
  }
}

const FRAMES = 512
const REPLY_HEADER_BYTES = 32
/** What a busy connection hands to its socket at once. */
const TURN_BYTES = 16_384
