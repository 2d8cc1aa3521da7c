import { createRequire } from 'node:module'
import { decodeValue, encodeValue } from '@orbweaver/iproto'
import { Packr, Unpackr } from 'msgpackr'
import type { CodecCase } from '../cases.js'
import { narrowRow, wideRow } from '../fixture.js'
import { busyRound } from '../round.js'
import type { Subject } from './subject.js'

/** Both directions of a codec. */
interface Codec {
  encode(value: unknown): Uint8Array
  decode(bytes: Buffer): unknown
}

/** The codec of this project: exact integers, checks of what it reads and writes. */
export function orbweaverCodec(benchCase: CodecCase): Promise<Subject> {
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

function codecSubject({ direction, rows, fields }: CodecCase, codec: Codec): Promise<Subject> {
  const value =
    rows === 1
      ? wideRow(1)
      : Array.from({ length: rows }, (_, i) => (fields === 10 ? wideRow(i + 1) : narrowRow(i + 1)))
  // All decode the same bytes, in a buffer of their own as a received chunk is.
  const bytes = Buffer.from(encodeValue(value))
  // What is left here keeps the result alive, so that no compiler finds the work useless.
  const last: { result: unknown } = { result: undefined }
  const work =
    direction === 'encode'
      ? (): void => {
          last.result = codec.encode(value)
        }
      : (): void => {
          last.result = codec.decode(bytes)
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
