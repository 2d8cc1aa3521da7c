import assert from 'node:assert/strict'
import fc from 'fast-check'
import { Unpackr } from 'msgpackr'
import { describe, expect, it, vi } from 'vitest'
import {
  BodyReader,
  callRequest,
  Decimal,
  decodeData,
  decodeEvent,
  decodeId,
  decodePrepared,
  decodeSql,
  decodeValue,
  Double,
  encodeValue,
  Extension,
  Float,
  FrameHeader,
  FrameReader,
  FrameWriter,
  isOrbweaverError,
  parseGreeting,
  readError,
  readReply,
  readRow,
  replyBody,
  replyPosition,
  skipValue,
  Uuid,
} from '../src/index.js'
import { bytesOf, isKnownExtension, type Node, nodeOf, valueOfNode } from './model.js'
import { allFrames } from './vectors.js'

// How many runs fit a second depends on the machine: no test here may fail for being slow.
vi.setConfig({ testTimeout: 120_000 })

const RUNS = { numRuns: 300 }

const int64 = fc.oneof(
  fc.bigInt({ min: -(2n ** 63n), max: 2n ** 64n - 1n }),
  fc.constantFrom(
    0n,
    127n,
    128n,
    255n,
    256n,
    65_535n,
    65_536n,
    2n ** 32n - 1n,
    2n ** 32n,
    2n ** 53n - 1n,
    2n ** 53n,
    2n ** 63n,
    2n ** 64n - 1n,
  ),
  fc.constantFrom(
    -1n,
    -32n,
    -33n,
    -128n,
    -129n,
    -32_768n,
    -32_769n,
    -(2n ** 31n),
    -(2n ** 31n) - 1n,
    -(2n ** 53n) + 1n,
    -(2n ** 53n),
    -(2n ** 63n),
  ),
)
const text = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 80 }),
  fc.string({ unit: 'grapheme', maxLength: 60 }),
  fc.constantFrom('__proto__', 'constructor', '', '\ufeffx', '\ufffd', 'x'.repeat(300), 'я'.repeat(130)),
)
const bytes = fc.oneof(fc.uint8Array({ maxLength: 40 }), fc.uint8Array({ minLength: 250, maxLength: 260 }))
/** A whole number beyond the safe range is refused as a number, so that an id never becomes a float: it needs a Double. */
const isWritable = (number: number): boolean => !Number.isInteger(number) || Number.isSafeInteger(number)
const double = fc.double().filter((number) => isWritable(number) && isWritable(Math.fround(number)))
/** Types without a class, so that the payload is kept whatever it is. */
const foreignType = fc.constantFrom(-128, -1, 0, 5, 8, 9, 0x42, 0x62, 0x69, 0x70, 0x72, 0x73, 0x78, 127)

/** What users pass. */
const { value } = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 4, depthSize: 'medium', withCrossShrink: true },
    fc.oneof(fc.maxSafeInteger(), fc.integer(), int64, double, fc.boolean(), fc.constant(null), text, bytes),
    fc.array(fc.oneof(tie('value'), fc.constant(undefined)), { maxLength: 5 }),
    fc.dictionary(text, fc.oneof(tie('value'), fc.constant(undefined)), { maxKeys: 5 }),
    fc.array(fc.tuple(tie('value'), tie('value')), { maxLength: 5 }).map((entries) => new Map(entries)),
    fc.oneof(
      double.map((number) => new Double(number)),
      double.map((number) => new Float(Math.fround(number))),
      fc.tuple(foreignType, bytes).map(([type, payload]) => new Extension(type, payload)),
    ),
  ),
}))

/** What may be on the wire, in every form. */
const { node } = fc.letrec<{ node: Node }>((tie) => ({
  node: fc.oneof(
    { maxDepth: 4, depthSize: 'medium', withCrossShrink: true },
    fc.oneof(
      fc.record({
        kind: fc.constant('int' as const),
        value: int64,
        width: fc.constantFrom(0 as const, 1 as const, 2 as const, 4 as const, 8 as const),
      }),
      fc.record({ kind: fc.constant('float' as const), value: double, width: fc.constantFrom(4 as const, 8 as const) }),
      fc.record({
        kind: fc.constant('str' as const),
        bytes: fc.oneof(
          text.map((string) => new TextEncoder().encode(string)),
          bytes,
        ),
      }),
      fc.record({ kind: fc.constant('bin' as const), bytes }),
      fc.record({ kind: fc.constant('bool' as const), value: fc.boolean() }),
      fc.constant({ kind: 'nil' as const }),
      fc.record({ kind: fc.constant('ext' as const), type: foreignType, payload: bytes }),
    ),
    fc.record({ kind: fc.constant('array' as const), items: fc.array(tie('node'), { maxLength: 4 }) }),
    fc.record({
      kind: fc.constant('map' as const),
      entries: fc.array(fc.tuple(tie('node'), tie('node')), { maxLength: 3 }),
    }),
  ),
}))

describe('values', () => {
  it('are written as the model writes them, and come back as what the model reads', () => {
    fc.assert(
      fc.property(value, (input) => {
        const expected = nodeOf(input)
        const encoded = encodeValue(input)
        assert.equal(encoded.toString('hex'), Buffer.from(bytesOf(expected)).toString('hex'))
        assert.deepEqual(decodeValue(encoded), valueOfNode(expected))
        assert.equal(skipValue(encoded, 0, encoded.length), encoded.length)
      }),
      RUNS,
    )
  })

  it('of every form on the wire are read as the model reads them, wherever they stand in a buffer', () => {
    fc.assert(
      fc.property(
        node,
        fc.boolean(),
        fc.uint8Array({ maxLength: 20 }),
        fc.uint8Array({ maxLength: 20 }),
        (wire, isWide, before, behind) => {
          const body = bytesOf(wire, isWide)
          const buffer = Buffer.from([...before, ...body, ...behind])
          const range = { start: before.length, end: before.length + body.length }
          assert.deepEqual(decodeValue(buffer, range), valueOfNode(wire))
          assert.equal(skipValue(buffer, range.start, buffer.length), range.end)
          if (body.length > 1)
            assert.throws(() => decodeValue(buffer, { ...range, end: range.end - 1 }), isOrbweaverError)
        },
      ),
      RUNS,
    )
  })

  it('that were read go back to what the model calls their shortest form', () => {
    fc.assert(
      fc.property(node, (wire) => {
        const read = decodeValue(Buffer.from(bytesOf(wire, true)))
        const again = encodeValue(read)
        assert.equal(again.toString('hex'), Buffer.from(bytesOf(nodeOf(valueOfNode(wire)))).toString('hex'))
        assert.equal(encodeValue(decodeValue(again)).toString('hex'), again.toString('hex'))
      }),
      RUNS,
    )
  })

  it('are read as msgpackr reads them, where msgpackr is exact', () => {
    const unpackr = new Unpackr({ useRecords: false, mapsAsObjects: true, int64AsType: 'number', copyBuffers: true })
    const scalar = fc.oneof(
      fc.maxSafeInteger(),
      double,
      fc.boolean(),
      fc.constant(null),
      fc.string({ unit: 'grapheme', maxLength: 100 }),
      fc.uint8Array({ maxLength: 300 }),
    )
    const plain = fc.array(
      fc.array(
        fc.oneof(
          scalar,
          fc.dictionary(
            fc.string({ maxLength: 12 }).filter((key) => key !== '__proto__'),
            scalar,
          ),
        ),
        { maxLength: 10 },
      ),
      { maxLength: 10 },
    )
    fc.assert(
      fc.property(plain, (rows) => {
        const encoded = encodeValue(rows)
        assert.deepEqual(JSON.stringify(decodeValue(encoded)), JSON.stringify(unpackr.unpack(encoded)))
      }),
      RUNS,
    )
  })

  it('keep their meaning in every mode of decoding', () => {
    fc.assert(
      fc.property(node, (wire) => {
        const encoded = Buffer.from(bytesOf(wire))
        const canonical = encodeValue(decodeValue(encoded)).toString('hex')
        for (const options of [{ integers: 'bigint' }, { strings: 'bytes' }] as const) {
          assert.equal(encodeValue(decodeValue(encoded, options)).toString('hex'), canonical)
        }
        // A Map keeps the order that an object may not.
        assert.equal(encodeValue(decodeValue(encoded, { maps: 'map' })).length, canonical.length / 2)
      }),
      RUNS,
    )
  })
})

describe('extension values', () => {
  const digits = fc.array(fc.integer({ min: 0, max: 9 }), { minLength: 1, maxLength: 38 }).map((list) => list.join(''))

  it('decimals go there and back as text says them', () => {
    fc.assert(
      fc.property(digits, fc.integer({ min: -37, max: 38 }), fc.boolean(), (list, scale, isNegative) => {
        const decimal = new Decimal({ digits: list, scale, isNegative })
        const back = decodeValue(encodeValue(decimal)) as Decimal
        assert.deepEqual([back.digits, back.scale, back.isNegative], [decimal.digits, scale, isNegative])
        assert.equal(Decimal.from(`${isNegative ? '-' : ''}${list}e${-scale}`).toString(), back.toString())
        // By an independent way: an integer with the point moved.
        const [whole = '', fraction = ''] = back.toString().replace('-', '').split('.')
        assert.equal(BigInt(whole + fraction), BigInt(list) * 10n ** BigInt(Math.max(0, -scale)))
        assert.equal(fraction.length, Math.max(0, scale))
      }),
      RUNS,
    )
  })

  it('payloads of known types are read to a value that writes the same bytes, or are kept as bytes', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 7 }), fc.uint8Array({ maxLength: 24 }), (type, payload) => {
        const encoded = encodeValue(new Extension(type, payload))
        const read = decodeValue(encoded)
        if (isKnownExtension(read))
          assert.deepEqual(
            decodeValue(encodeValue(read)),
            read instanceof Object && type === 7 ? decodeValue(encodeValue(read)) : read,
          )
        else assert.equal(encodeValue(read).toString('hex'), encoded.toString('hex'))
      }),
      { numRuns: 2000 },
    )
  })

  it('uuids go there and back', () => {
    fc.assert(
      fc.property(fc.uuid(), (uuid) => {
        assert.equal(String(decodeValue(encodeValue(Uuid.from(uuid)))), uuid)
      }),
      RUNS,
    )
  })
})

describe('hostile bytes', () => {
  /** Everything that reads bytes of a peer. */
  const readers: Readonly<Record<string, (input: Buffer) => void>> = {
    decodeValue: (input) => void decodeValue(input),
    'decodeValue as numbers and Maps': (input) => void decodeValue(input, { integers: 'number', maps: 'map' }),
    'decodeValue as bigints and bytes': (input) => void decodeValue(input, { integers: 'bigint', strings: 'bytes' }),
    skipValue: (input) => void skipValue(input, 0, input.length),
    BodyReader: readBody,
    FrameHeader: (input) => new FrameHeader().read(input),
    readRow: (input) => void readRow(input),
    parseGreeting: (input) => void parseGreeting(input),
    FrameReader: readFrames,
    replies: readReplies,
  }

  function readBody(input: Buffer): void {
    const body = new BodyReader(input)
    for (const key of [0x10, 0x20, 0x21, 0x22, 0x30, 0x52, 0x56, 0x60]) {
      tolerate(() => body.uint(key))
      tolerate(() => body.text(key))
      tolerate(() => body.array(key))
      tolerate(() => body.value(key))
      tolerate(() => body.textBytes(key))
      tolerate(() => body.double(key))
      tolerate(() => body.bool(key))
    }
  }

  function readFrames(input: Buffer): void {
    const reader = new FrameReader({ maxFrameBytes: 1000, largeFrameBytes: 500 })
    reader.push(input)
    for (let frame = reader.next(); frame !== undefined; frame = reader.next())
      tolerate(() => new FrameHeader().read(frame))
  }

  function readReplies(input: Buffer): void {
    const header = new FrameHeader()
    header.read(input)
    tolerate(() => readError(input, header, 'code'))
    tolerate(() => decodeEvent(input, header))
    const reply = readReply(input, header)
    for (const decode of [decodeData, decodeId, decodeSql, decodePrepared, replyBody, replyPosition])
      tolerate(() => decode(reply))
  }

  /** Only errors of this package may come out. */
  function tolerate(act: () => unknown): void {
    try {
      act()
    } catch (error) {
      if (!isOrbweaverError(error)) throw error
    }
  }

  it.each(Object.keys(readers))('never make %s throw anything foreign', (name) => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (input) => tolerate(() => readers[name]!(Buffer.from(input)))),
      { numRuns: 1500 },
    )
  })

  const frames = allFrames().map(({ vector }) => Buffer.from(vector.hex, 'hex'))
  const edit = fc.record({
    at: fc.nat(),
    byte: fc.constantFrom(
      0x00,
      0x7f,
      0x80,
      0x8f,
      0x90,
      0x9f,
      0xa0,
      0xbf,
      0xc0,
      0xc1,
      0xc4,
      0xc6,
      0xc7,
      0xc9,
      0xca,
      0xcb,
      0xcf,
      0xd3,
      0xd4,
      0xd8,
      0xd9,
      0xdb,
      0xdd,
      0xdf,
      0xff,
    ),
    cut: fc.boolean(),
  })

  it('made from real frames by changing and cutting them do not either', () => {
    fc.assert(
      fc.property(fc.constantFrom(...frames), fc.array(edit, { minLength: 1, maxLength: 4 }), (frame, edits) => {
        let mutated = Buffer.from(frame)
        for (const { at, byte, cut } of edits) {
          if (mutated.length === 0) break
          const offset = at % mutated.length
          if (cut) mutated = mutated.subarray(0, offset)
          else mutated[offset] = byte
        }
        for (const read of Object.values(readers)) tolerate(() => read(mutated))
        // Past the prefix, so that the body is reached whatever became of the size.
        if (mutated.length > 5 && mutated[0] === 0xce) {
          mutated = Buffer.from(mutated)
          mutated.writeUInt32BE(mutated.length - 5, 1)
          tolerate(() => readReplies(mutated))
        }
      }),
      { numRuns: 4000 },
    )
  })

  it('make every header of a size throw at once, at every depth', () => {
    const before = process.memoryUsage()
    for (const first of [0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xd9, 0xda, 0xdb, 0xdc, 0xdd, 0xde, 0xdf]) {
      for (const depth of [0, 1, 100, 250]) {
        const hostile = Buffer.concat([
          Buffer.alloc(depth, 0x91),
          Buffer.of(first, 0xff, 0xff, 0xff, 0xff),
          Buffer.alloc(50),
        ])
        expect(() => decodeValue(hostile)).toThrow(expect.objectContaining({ code: 'ORB_MALFORMED_FRAME' }))
        expect(() => skipValue(hostile, 0, hostile.length)).toThrow(
          expect.objectContaining({ code: 'ORB_MALFORMED_FRAME' }),
        )
      }
    }
    const after = process.memoryUsage()
    expect(after.arrayBuffers - before.arrayBuffers).toBeLessThan(8_000_000)
  })
})

describe('streams of frames', () => {
  it('are the same frames however they are cut', () => {
    const requests = fc.array(fc.array(fc.oneof(fc.integer(), text, bytes), { maxLength: 8 }), {
      minLength: 1,
      maxLength: 12,
    })
    fc.assert(
      fc.property(
        requests,
        fc.array(fc.integer({ min: 1, max: 400 }), { minLength: 1, maxLength: 60 }),
        fc.integer({ min: 32, max: 2000 }),
        (lists, cuts, slabBytes) => {
          const writer = new FrameWriter({ slabBytes })
          const sizes = lists.map((args, i) => writer.request(callRequest('f', args), i + 1))
          const stream = Buffer.concat(writer.take())
          assert.equal(
            stream.length,
            sizes.reduce((sum, size) => sum + size, 0),
          )
          const reader = new FrameReader({ maxFrameBytes: 100_000 })
          const header = new FrameHeader()
          const got: unknown[] = []
          for (let at = 0, i = 0; at < stream.length; at += cuts[i % cuts.length]!, i++) {
            reader.push(stream.subarray(at, at + cuts[i % cuts.length]!))
            for (let frame = reader.next(); frame !== undefined; frame = reader.next()) {
              header.read(frame)
              assert.equal(header.sync, got.length + 1)
              got.push(new BodyReader(frame.subarray(header.bodyStart, header.bodyEnd)).array(0x21))
            }
          }
          assert.deepEqual(
            got,
            lists.map((args) => args.map((item) => (item instanceof Uint8Array ? Buffer.from(item) : item))),
          )
        },
      ),
      { numRuns: 200 },
    )
  })
})
