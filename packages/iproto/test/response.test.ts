import { describe, expect, it, test } from 'vitest'
import {
  BodyReader,
  BoxError,
  type BodyWriter,
  dataSlice,
  decodeData,
  decodeEvent,
  decodeId,
  decodePrepared,
  decodeSql,
  encodeValue,
  FrameHeader,
  FrameWriter,
  Key,
  MalformedFrameError,
  readError,
  readReply,
  type Reply,
  replyBody,
  replyPosition,
  RequestType,
  type Tuple,
  writeErrorBody,
} from '../src/index.js'

/** A reply frame with this body. */
function frameOf(type: number, writeBody: (out: BodyWriter) => void): { frame: Buffer; header: FrameHeader } {
  const writer = new FrameWriter()
  writer.beginReply(type, 0, 7, 42)
  writeBody(writer)
  writer.end()
  const frame = Buffer.concat(writer.take())
  const header = new FrameHeader()
  header.read(frame)
  return { frame, header }
}

function replyOf(entries: readonly (readonly [number, unknown])[]): Reply {
  const { frame, header } = frameOf(0, (out) => out.value(new Map(entries)))
  return readReply(frame, header)
}

describe('replies', () => {
  it('keep their data as bytes until asked', () => {
    const reply = replyOf([
      [
        Key.data,
        [
          [1, 'a'],
          [2n ** 63n, null],
        ],
      ],
    ])
    expect(reply.schemaVersion).toBe(42)
    expect(dataSlice(reply)).toEqual(
      encodeValue([
        [1, 'a'],
        [2n ** 63n, null],
      ]),
    )
    expect(decodeData(reply)).toEqual([
      [1, 'a'],
      [2n ** 63n, null],
    ])
    expect(decodeData<bigint[][]>(reply, { integers: 'bigint' })[0]![0]).toBe(1n)
  })

  it('find it among other keys, in any order, the last of duplicates', () => {
    const reply = replyOf([
      [Key.position, 'kQM'],
      [Key.data, [1]],
      [Key.sqlInfo, {}],
    ])
    expect(decodeData(reply)).toEqual([1])
    expect(replyPosition(reply)).toBe('kQM')
    const { frame, header } = frameOf(0, (out) => out.raw(Buffer.from('82309101309102', 'hex')))
    expect(decodeData(readReply(frame, header))).toEqual([2])
  })

  it('without data are empty, whatever their body', () => {
    for (const hex of ['', '80']) {
      const { frame, header } = frameOf(0, (out) => out.raw(Buffer.from(hex, 'hex')))
      const reply = readReply(frame, header)
      expect(decodeData(reply)).toEqual([])
      expect(dataSlice(reply).length).toBe(0)
      expect(replyPosition(reply)).toBeUndefined()
    }
    expect(decodeData(replyOf([[Key.position, 'x']]))).toEqual([])
  })

  test.each(['90', '01', 'c0', '82309101', 'de', 'df0000', '813091018080', '8230910135a178c0', 'deffff3001'])(
    'with the body %s are refused',
    (hex) => {
      const { frame, header } = frameOf(0, (out) => out.raw(Buffer.from(hex, 'hex')))
      expect(() => decodeData(readReply(frame, header))).toThrow(MalformedFrameError)
    },
  )

  test.each(['8130c0', '813001', '81308101c0', '8130a161', '8130d40701'])(
    'with the data of %s, which is no array, are refused',
    (hex) => {
      const { frame, header } = frameOf(0, (out) => out.raw(Buffer.from(hex, 'hex')))
      expect(() => decodeData(readReply(frame, header))).toThrow('DATA of a reply is not an array')
    },
  )

  it('give tuples their formats by id, and an empty format to an id without one', () => {
    const data = Buffer.from('dd00000003c70507059201a178c70307069102c70307059103', 'hex')
    const { frame, header } = frameOf(0, (out) => {
      out.mapHeader(2)
      out.uint(Key.data)
      out.raw(data)
      out.uint(Key.tupleFormats)
      out.value(new Map([[5, [{ name: 'id', type: 'unsigned', is_nullable: false }, { name: 'v' }]]]))
    })
    for (const options of [{}, { integers: 'bigint' }, { strings: 'bytes' }, { maps: 'map' }] as const) {
      const [first, second, third] = decodeData<Tuple[]>(readReply(frame, header), options)
      expect(first!.format).toEqual([
        { name: 'id', type: 'unsigned', isNullable: false },
        { name: 'v', type: 'any', isNullable: false },
      ])
      expect(Object.keys(first!.toObject())).toEqual(['id', 'v'])
      expect(second!.format).toEqual([])
      expect(third!.format).toEqual(first!.format)
    }
    expect(decodeData<Tuple[]>(readReply(frame, header)).map(({ values }) => values)).toEqual([[1, 'x'], [2], [3]])
  })

  it('survive formats that are nonsense', () => {
    for (const formats of [1, [], { a: 1 }, new Map([[5, 7]]), new Map([[5, [1, { name: 2 }]]])]) {
      const { frame, header } = frameOf(0, (out) => {
        out.mapHeader(2)
        out.uint(Key.data)
        out.raw(Buffer.from('91c703070591c3', 'hex'))
        out.uint(Key.tupleFormats)
        out.value(formats)
      })
      const [tuple] = decodeData<Tuple[]>(readReply(frame, header))
      expect(tuple!.values).toEqual([true])
    }
  })

  it('of ID say version, features and method', () => {
    expect(
      decodeId(
        replyOf([
          [Key.version, 4],
          [Key.features, [0, 1, 2]],
        ]),
      ),
    ).toEqual({ version: 4, features: [0, 1, 2], authType: undefined })
    expect(
      decodeId(
        replyOf([
          [Key.version, 9],
          [Key.features, []],
          [Key.authType, 'chap-sha1'],
        ]),
      ).authType,
    ).toBe('chap-sha1')
    for (const entries of [
      [],
      [[Key.version, 4]],
      [
        [Key.version, 'x'],
        [Key.features, []],
      ],
      [
        [Key.version, 1],
        [Key.features, ['a']],
      ],
    ] as [number, unknown][][]) {
      expect(() => decodeId(replyOf(entries))).toThrow(MalformedFrameError)
    }
  })

  it('of SQL have columns and rows, or counts', () => {
    const columns = [
      new Map<number, unknown>([
        [0, 'ID'],
        [1, 'integer'],
      ]),
    ]
    expect(
      decodeSql(
        replyOf([
          [Key.metadata, columns],
          [Key.data, [[1], [2]]],
        ]),
      ),
    ).toEqual({ columns: [{ name: 'ID', type: 'integer' }], rows: [[1], [2]], rowCount: 2, autoincrementIds: [] })
    expect(
      decodeSql(
        replyOf([
          [
            Key.sqlInfo,
            new Map<number, unknown>([
              [0, 3],
              [1, [-1, 2n ** 60n]],
            ]),
          ],
        ]),
      ),
    ).toEqual({ columns: [], rows: [], rowCount: 3, autoincrementIds: [-1, 2n ** 60n] })
    expect(decodeSql(replyOf([[Key.data, [[1]]]]), { integers: 'bigint' }).rows).toEqual([[1n]])
    expect(decodeSql(replyOf([]))).toEqual({ columns: [], rows: [], rowCount: 0, autoincrementIds: [] })
    expect(() => decodeSql(replyOf([[Key.data, [[1], 2]]]))).toThrow('A row of a result is not an array')
    expect(() => decodePrepared(replyOf([[Key.bindCount, 1]]))).toThrow('no statement id')
  })
})

describe('error replies', () => {
  const error = BoxError.of(40_000, 'newest', {
    fields: new Map<string, unknown>([
      ['name', 'X'],
      ['list', [1, { a: 2n ** 63n }]],
      ['none', undefined],
    ]),
    cause: BoxError.of(3, 'older', { boxType: 'Strange', file: 'f', line: 4_294_967_295 }),
  })

  it('written by a server are read by a client with their whole stack', () => {
    const { frame, header } = frameOf(RequestType.errorFlag | (40_000 & 0x7fff), (out) => writeErrorBody(out, error))
    const read = readError(frame, header, 'dml')
    expect(read.boxCode).toBe(40_000)
    expect(read.fields.get('none')).toBe(null)
    expect(read.entries.map(({ code, message, type, file, line }) => [code, message, type, file, line])).toEqual([
      [40_000, 'newest', 'ClientError', '', 0],
      [3, 'older', 'Strange', 'f', 4_294_967_295],
    ])
    expect(read.fields.get('list')).toEqual([1, { a: 2n ** 63n }])
    expect(read.executed).toBe('yes')
    expect(new BodyReader(frame.subarray(header.bodyStart)).text(Key.error24)).toBe('newest')
  })

  it('say by class and code whether the request ran', () => {
    const { frame, header } = frameOf(RequestType.errorFlag | 7, (out) => writeErrorBody(out, BoxError.of(7, 'ro')))
    expect([readError(frame, header, 'dml').executed, readError(frame, header, 'code').executed]).toEqual([
      'no',
      'unknown',
    ])
  })

  it('of servers before 2.4.1 have a message and the code of the header', () => {
    const { frame, header } = frameOf(RequestType.errorFlag | 42, (out) =>
      out.value(new Map([[Key.error24, 'denied']])),
    )
    const { boxCode, boxName, message, entries } = readError(frame, header, 'read')
    expect([boxCode, boxName, message, entries.length]).toEqual([42, 'ACCESS_DENIED', 'denied', 1])
  })

  test.each([
    [
      'an empty stack',
      new Map<number, unknown>([
        [Key.error24, 'm'],
        [Key.error, new Map([[0, []]])],
      ]),
    ],
    [
      'a stack that is no array',
      new Map<number, unknown>([
        [Key.error24, 'm'],
        [Key.error, new Map([[0, 1]])],
      ]),
    ],
    [
      'no map',
      new Map<number, unknown>([
        [Key.error24, 'm'],
        [Key.error, 1],
      ]),
    ],
  ])('with %s fall back to the message', (_, body) => {
    const { frame, header } = frameOf(RequestType.errorFlag | 5, (out) => out.value(body))
    expect(readError(frame, header, 'read').message).toBe('m')
  })

  it('keep what can be read of an entry with wrong types', () => {
    const entry = new Map<number, unknown>([
      [0, 1],
      [2, -5],
      [3, 'm'],
      [5, 7],
      [6, new Map([[1, 'x']])],
    ])
    const { frame, header } = frameOf(RequestType.errorFlag | 7, (out) =>
      out.value(new Map([[Key.error, new Map([[0, [entry, null]]])]])),
    )
    const read = readError(frame, header, 'read')
    expect([read.boxCode, read.message, read.boxType, read.line, read.fields.get('1'), read.entries.length]).toEqual([
      7,
      'm',
      '',
      0,
      'x',
      2,
    ])
  })

  it('with a stack of a hostile length keep the newest entries', () => {
    const entry = new Map<number, unknown>([
      [3, 'm'],
      [5, 7],
    ])
    const stack = Array.from({ length: 50_000 }, () => entry)
    const { frame, header } = frameOf(RequestType.errorFlag | 7, (out) =>
      out.value(new Map([[Key.error, new Map([[0, stack]])]])),
    )
    expect(readError(frame, header, 'read').entries.length).toBe(256)
  })

  it('without any error in them are malformed', () => {
    const { frame, header } = frameOf(RequestType.errorFlag | 7, (out) => out.mapHeader(0))
    expect(() => readError(frame, header, 'read')).toThrow('neither an error nor a message')
  })
})

describe('events', () => {
  function eventOf(entries: readonly (readonly [number, unknown])[]): { frame: Buffer; header: FrameHeader } {
    const writer = new FrameWriter()
    writer.beginEvent(0, 0)
    writer.value(new Map(entries))
    writer.end()
    const frame = Buffer.concat(writer.take())
    const header = new FrameHeader()
    header.read(frame)
    return { frame, header }
  }

  it('have a key, and a value unless none was set', () => {
    for (const [entries, expected] of [
      [[[Key.eventKey, 'k']], { key: 'k', value: undefined }],
      [
        [
          [Key.eventKey, 'k'],
          [Key.eventData, { a: 1 }],
        ],
        { key: 'k', value: { a: 1 } },
      ],
      [
        [
          [Key.eventKey, ''],
          [Key.eventData, null],
        ],
        { key: '', value: null },
      ],
    ] as const) {
      const { frame, header } = eventOf(entries)
      expect(decodeEvent(frame, header)).toEqual(expected)
    }
    const { frame, header } = eventOf([[Key.eventData, 1]])
    expect(() => decodeEvent(frame, header)).toThrow('no key')
  })

  it('are bodies like any other to replyBody', () => {
    const { frame } = eventOf([[Key.eventKey, 'k']])
    expect(replyBody({ frame, dataStart: 0, dataEnd: 0, schemaVersion: 0 }).text(Key.eventKey)).toBe('k')
  })
})
