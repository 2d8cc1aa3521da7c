import { describe, expect, it, test } from 'vitest'
import {
  encodeValue,
  FrameHeader,
  FrameWriter,
  MalformedFrameError,
  patchReplySync,
  RequestType,
} from '../src/index.js'

/** A frame around these bytes of header and body. */
function frameOf(hex: string): Buffer {
  const bytes = Buffer.from(hex.replaceAll(' ', ''), 'hex')
  const prefix = Buffer.from([0xce, 0, 0, 0, 0])
  prefix.writeUInt32BE(bytes.length, 1)
  return Buffer.concat([prefix, bytes])
}

function headerOf(frame: Buffer): FrameHeader {
  const header = new FrameHeader()
  header.read(frame)
  return header
}

function facts({ type, sync, streamId, schemaVersion, bodyStart, bodyEnd }: FrameHeader): unknown[] {
  return [type, sync, streamId, schemaVersion, bodyEnd - bodyStart]
}

describe('FrameHeader', () => {
  test.each([
    ['the layout of 2.x', '83 00 ce00008007 01 cf0000000000000009 05 ce00000050 80', [0x8007, 9, 0, 80, 1]],
    [
      'the layout of 3.x',
      '83 00 ce00000000 01 cf001fffffffffffff 05 cf0000000000000051 8130dd00000000',
      [0, Number.MAX_SAFE_INTEGER, 0, 81, 7],
    ],
    [
      'the layout of 3.x without a body',
      '83 00 ce00000000 01 cf0000000000000001 05 cf0000000000000051',
      [0, 1, 0, 81, 0],
    ],
    ['a short request with a sync of one byte', '82 00 01 01 07 80', [1, 7, 0, undefined, 1]],
    ['a short request with a sync of 8 bits', '82 00 01 01 ccff 80', [1, 255, 0, undefined, 1]],
    ['a short request with a sync of 16 bits', '82 00 01 01 cdfffe 80', [1, 0xfffe, 0, undefined, 1]],
    ['a short request with a sync of 32 bits', '82 00 01 01 cefffffffe', [1, 0xfffffffe, 0, undefined, 0]],
    ['an event', '82 00 4c 01 07 8157a16b', [76, 7, 0, undefined, 4]],
    ['any order of keys and any width', '84 0a cd0101 05 cc07 01 ce00000002 00 cf0000000000000001', [1, 2, 257, 7, 0]],
    ['a map16 as header', 'de0002 00 40 01 03', [64, 3, 0, undefined, 0]],
    ['a map32 as header', 'df00000002 00 40 01 03', [64, 3, 0, undefined, 0]],
    ['an empty header', '80', [0, 0, 0, undefined, 0]],
    ['a sync of 2^53', '82 00 40 01 cf0020000000000000', [64, 2n ** 53n, 0, undefined, 0]],
    ['a sync of 2^64 - 1', '82 00 40 01 cfffffffffffffffff', [64, 2n ** 64n - 1n, 0, undefined, 0]],
    ['a stream of 2^64 - 1', '83 00 40 01 01 0a cfffffffffffffffff', [64, 1, 2n ** 64n - 1n, undefined, 0]],
    ['the last of duplicate keys', '83 00 40 01 05 01 06', [64, 6, 0, undefined, 0]],
    ['unknown keys of any value', '85 00 40 7f 9301a161c0 cd0100 c0 0e 81a16101 01 09 80', [64, 9, 0, undefined, 1]],
    ['headers of rows', '84 00 02 02 01 03 05 04 cb41d9000000000000 80', [2, 0, 0, undefined, 1]],
  ])('reads %s', (_, hex, expected) => {
    expect(facts(headerOf(frameOf(hex)))).toEqual(expected)
    // The same between neighbours.
    const frame = frameOf(hex)
    const header = new FrameHeader()
    header.read(Buffer.concat([frame, frame, frame]), frame.length, 2 * frame.length)
    expect(facts(header)).toEqual(expected)
    expect(header.bodyEnd).toBe(2 * frame.length)
  })

  test.each([
    ['no map', '92 00 40'],
    ['a short request whose sync is cut', '82 00 01 01 ce0000'],
    ['a short request without a sync', '82 00 01 01'],
    ['a short request whose sync is a text', '82 00 01 01 a131'],
    ['a type that is text', '82 00 a140 01 07'],
    ['a sync in a signed form', '82 00 40 01 d300000000000000ff'],
    ['a small sync in a signed form', '82 00 40 01 d007'],
    ['a float as sync', '82 00 40 01 cb4008000000000000'],
    ['a negative type', '82 00 ff 01 07'],
    ['a nil schema version', '83 00 40 01 07 05 c0'],
    ['a text key', '82 a100 40 01 07'],
    ['a cut map', '83 00 40 01 07'],
    ['a cut number', '82 00 40 01 cf00000000'],
    ['a cut map header', 'de00'],
    ['a value that is no MessagePack', '82 7f c1 01 07'],
    ['a cut value', '82 00 40 7f a561'],
  ])('refuses %s and keeps nothing of it', (_, hex) => {
    const header = headerOf(frameOf('83 00 40 01 07 0a 08'))
    expect(() => header.read(frameOf(hex))).toThrow(MalformedFrameError)
    expect(facts(header)).toEqual([0, 0, 0, undefined, 0])
  })

  it('refuses an empty frame, and one whose prefix says another size', () => {
    for (const hex of [
      '',
      '00',
      'ce00000000',
      'ce00000006 82004001 07',
      'ce00000004 8200400107',
      '05 82004001',
      'd005 8200400107',
      '81 00 40',
    ]) {
      expect(() => headerOf(Buffer.from(hex.replaceAll(' ', ''), 'hex'))).toThrow(MalformedFrameError)
    }
  })

  test.each([
    '05 8200400107',
    'cc05 8200400107',
    'cd0005 8200400107',
    'ce00000005 8200400107',
    'cf0000000000000005 8200400107',
  ])('reads behind every form of the prefix: %s', (hex) => {
    expect(facts(headerOf(Buffer.from(hex.replaceAll(' ', ''), 'hex')))).toEqual([64, 7, 0, undefined, 0])
  })

  it('reads replies cut at any byte without believing what is behind', () => {
    const whole = frameOf('83 00 ce00000000 01 cf0000000000000009 05 cf0000000000000051')
    for (let size = 0; size < whole.length; size++)
      expect(() => headerOf(whole.subarray(0, size))).toThrow(MalformedFrameError)
  })

  it('is the same by the fast way and by the general one', () => {
    for (const [fast, general] of [
      ['83 00 ce00000080 01 cf0000000100000002 05 ce00000003 80', '83 05 03 01 cf0000000100000002 00 cc80 80'],
      ['83 00 ce00008007 01 cfffffffffffffffff 05 cf0000000000000003', '83 05 03 01 cfffffffffffffffff 00 cd8007'],
    ] as const) {
      expect(facts(headerOf(frameOf(fast)))).toEqual(facts(headerOf(frameOf(general))))
    }
  })
})

describe('FrameWriter', () => {
  it.each([
    [0, 0, 0],
    [0, 127, 0],
    [0, 0xffffffff, 5],
    [1, 0, 70_000],
    [0x1fffff, 0xffffffff, 0xffffffff],
    [0x200000, 0, 1],
    [0xffffffff, 0xffffffff, 2],
  ])(
    'writes the sync %d * 2^32 + %d in requests, replies and events so that it is read back',
    (high, low, schemaVersion) => {
      const writer = new FrameWriter()
      writer.beginRequest(RequestType.ping, high, low, 2n ** 64n - 1n, schemaVersion)
      writer.end()
      writer.beginReply(0x8000 | 7, high, low, schemaVersion)
      writer.mapHeader(0)
      writer.end()
      writer.beginEvent(high, low)
      writer.end()
      const bytes = Buffer.concat(writer.take())
      const frames: Buffer[] = []
      for (let at = 0; at < bytes.length; at += frames.at(-1)!.length)
        frames.push(bytes.subarray(at, at + 5 + bytes.readUInt32BE(at + 1)))
      const headers = frames.map(headerOf)
      expect(headers.map(({ syncHigh, syncLow }) => [syncHigh, syncLow])).toEqual([
        [high, low],
        [high, low],
        [high, low],
      ])
      expect(headers.map(({ type }) => type)).toEqual([RequestType.ping, 0x8007, RequestType.event])
      expect(headers[0]!.streamId).toBe(2n ** 64n - 1n)
      expect(headers[1]!.schemaVersion).toBe(schemaVersion)
      expect(frames[1]!.length).toBe(29)
    },
  )

  it('hands out bytes that do not change any more', () => {
    const writer = new FrameWriter({ slabBytes: 256 })
    const taken: { chunk: Buffer; copy: Buffer }[] = []
    for (let i = 0; i < 200; i++) {
      writer.beginReply(0, 0, i, 1)
      writer.value({ i, text: 'x'.repeat(i * 3) })
      writer.end()
      if (i % 7 === 0) taken.push(...writer.take().map((chunk) => ({ chunk, copy: Buffer.from(chunk) })))
    }
    for (const { chunk, copy } of taken) expect(chunk).toEqual(copy)
  })

  it('keeps an open frame apart from what is taken, and forgets it when told to', () => {
    const writer = new FrameWriter()
    writer.beginReply(0, 0, 1, 1)
    const size = writer.end()
    writer.beginReply(0, 0, 2, 1)
    writer.value([1, 2, 3])
    expect(writer.pendingBytes).toBe(size)
    const [first] = writer.take()
    expect(first!.length).toBe(size)
    expect(() => writer.beginEvent(0, 1)).toThrow('A frame is open already')
    writer.value('more')
    expect(writer.end()).toBeGreaterThan(size)
    writer.beginEvent(0, 3)
    writer.abort()
    expect(headerOf(Buffer.concat(writer.take())).sync).toBe(2)
    expect([writer.pendingBytes, writer.take()]).toEqual([0, []])
  })

  it('writes by hand what encodeValue writes by itself', () => {
    const writer = new FrameWriter()
    writer.beginFrame()
    writer.mapHeader(0)
    writer.arrayHeader(9)
    writer.uint(4_294_967_296)
    writer.text('текст')
    writer.bytes(Uint8Array.of(1))
    writer.rawText(Uint8Array.of(0xff))
    writer.double(1)
    writer.nil()
    writer.bool(true)
    writer.raw(encodeValue([1]))
    writer.extension(-1, Uint8Array.of(1, 2, 3))
    writer.reserve(2).set([0x92, 1])
    writer.end()
    expect(Buffer.concat(writer.take()).subarray(6).toString('hex')).toBe(
      '99cf0000000100000000aad182d0b5d0bad181d182c40101a1ffcb3ff0000000000000c0c39101c703ff0102039201',
    )
    for (const value of [-1, 1.5, 2 ** 53, Number.NaN]) {
      writer.beginFrame()
      expect(() => writer.uint(value)).toThrow(`${value} is not an unsigned safe integer`)
      writer.abort()
    }
  })
})

describe('patchReplySync', () => {
  it('overwrites eight bytes of a reply in place', () => {
    for (const hex of [
      '83 00 ce00008007 01 cf0000000000000009 05 ce00000050 80',
      '83 00 ce00000000 01 cf0000000000000009 05 cf0000000000000051',
    ]) {
      const frame = frameOf(hex)
      const before = facts(headerOf(frame))
      expect(patchReplySync(frame, 0xfffffffe, 0x80000001)).toBe(true)
      const header = headerOf(frame)
      expect([header.syncHigh, header.syncLow]).toEqual([0xfffffffe, 0x80000001])
      expect(patchReplySync(frame, 0, 9)).toBe(true)
      const among = Buffer.concat([frame, frame])
      expect(patchReplySync(among, 7, 8, frame.length, among.length)).toBe(true)
      expect(among.subarray(0, frame.length).equals(frame)).toBe(true)
      expect([headerOf(among.subarray(frame.length)).syncHigh, headerOf(among.subarray(frame.length)).syncLow]).toEqual(
        [7, 8],
      )
      expect(facts(headerOf(frame))).toEqual(before)
    }
  })

  it('leaves other layouts alone', () => {
    for (const hex of [
      '82 00 4c 01 07 8157a16b',
      '83 01 cf0000000000000009 00 ce00000000 05 ce00000050',
      '82 00 40 01 cf0000000000000001 80 80 80 80 80 80 80 80 80 80 80 80 80',
    ]) {
      const frame = frameOf(hex)
      const copy = Buffer.from(frame)
      expect(patchReplySync(frame, 1, 2)).toBe(false)
      expect(frame).toEqual(copy)
    }
  })
})
