import { runInNewContext } from 'node:vm'
import { describe, expect, it, test } from 'vitest'
import {
  BoxError,
  ByteString,
  callRequest,
  decodeValue,
  Double,
  encodeValue,
  executeRequest,
  Extension,
  Float,
  FrameTooLargeError,
  FrameWriter,
  insertRequest,
  Interval,
  InvalidArgumentError,
  OrbweaverError,
  RawValue,
  selectRequest,
  Tuple,
  updateRequest,
} from '../src/index.js'

const hex = (value: unknown): string => encodeValue(value).toString('hex')

/** Bodies of requests that carry a value in every place where a value can be. */
function everywhere(value: unknown): { place: string; body: string }[] {
  const places = {
    tuple: insertRequest(512, [value]),
    key: selectRequest({ space: 512, key: [value] }),
    argument: callRequest('f', [value]),
    operation: updateRequest({ space: 512, key: [1], operations: [['=', 1, value]] }),
    bind: executeRequest('SELECT ?', [value]),
    'nested array': callRequest('f', [[[value]]]),
    'nested object': callRequest('f', [{ a: { b: value } }]),
    'map key': callRequest('f', [new Map([[value, true]])]),
    'map value': callRequest('f', [new Map([[true, value]])]),
  }
  return Object.entries(places).map(([place, request]) => {
    const out = new FrameWriter()
    out.request(request, 1)
    return { place, body: Buffer.concat(out.take()).toString('hex') }
  })
}

describe('whole numbers travel as integers', () => {
  test.each([
    [0, '00'],
    [1, '01'],
    [127, '7f'],
    [128, 'cc80'],
    [255, 'ccff'],
    [256, 'cd0100'],
    [65_535, 'cdffff'],
    [65_536, 'ce00010000'],
    [2_147_483_647, 'ce7fffffff'],
    [2_147_483_648, 'ce80000000'],
    [4_294_967_295, 'ceffffffff'],
    [4_294_967_296, 'cf0000000100000000'],
    [1_503_000_000_000, 'cf0000015df1c7f600'],
    [Number.MAX_SAFE_INTEGER, 'cf001fffffffffffff'],
    [-1, 'ff'],
    [-32, 'e0'],
    [-33, 'd0df'],
    [-128, 'd080'],
    [-129, 'd1ff7f'],
    [-32_768, 'd18000'],
    [-32_769, 'd2ffff7fff'],
    [-2_147_483_648, 'd280000000'],
    [-2_147_483_649, 'd3ffffffff7fffffff'],
    [Number.MIN_SAFE_INTEGER, 'd3ffe0000000000001'],
  ])('%d is written as %s, wherever it stands', (value, bytes) => {
    expect(hex(value)).toBe(bytes)
    expect(decodeValue(encodeValue(value))).toBe(value)
    expect(everywhere(value).filter(({ body }) => !body.includes(bytes))).toEqual([])
  })

  it('refuses a whole number that is not safe instead of making it a float', () => {
    for (const value of [2 ** 53, -(2 ** 53), 1e300, -1e21]) {
      expect(() => encodeValue([value])).toThrow(/^value\[0\] is \S+, a whole number beyond 2\^53 - 1: pass a bigint/)
    }
  })

  it('writes the integer 0 for -0 and a float64 only when told to', () => {
    expect(hex(-0)).toBe('00')
    expect(hex(new Double(-0))).toBe('cb8000000000000000')
    expect(hex(new Double(3))).toBe('cb4008000000000000')
    expect(hex(new Float(1.5))).toBe('ca3fc00000')
  })

  test.each([
    [1.5, 'cb3ff8000000000000'],
    [-0.1, 'cbbfb999999999999a'],
    [5e-324, 'cb0000000000000001'],
    [Number.NaN, 'cb7ff8000000000000'],
    [Number.POSITIVE_INFINITY, 'cb7ff0000000000000'],
    [Number.NEGATIVE_INFINITY, 'cbfff0000000000000'],
  ])('%d is written as the float64 %s', (value, bytes) => {
    expect(hex(value)).toBe(bytes)
  })
})

describe('one value has one spelling', () => {
  test.each([
    [5n, '05'],
    [0n, '00'],
    [200n, 'ccc8'],
    [9_007_199_254_740_991n, 'cf001fffffffffffff'],
    [9_007_199_254_740_992n, 'cf0020000000000000'],
    [9_223_372_036_854_775_807n, 'cf7fffffffffffffff'],
    [9_223_372_036_854_775_808n, 'cf8000000000000000'],
    [18_446_744_073_709_551_615n, 'cfffffffffffffffff'],
    [-1n, 'ff'],
    [-33n, 'd0df'],
    [-9_007_199_254_740_992n, 'd3ffe0000000000000'],
    [-9_223_372_036_854_775_808n, 'd38000000000000000'],
  ])('%d is written as %s, wherever it stands', (value, bytes) => {
    expect(hex(value)).toBe(bytes)
    expect(everywhere(value).filter(({ body }) => !body.includes(bytes))).toEqual([])
  })

  it('writes a bigint as the number of the same value', () => {
    for (const value of [
      0,
      127,
      128,
      65_536,
      4_294_967_296,
      Number.MAX_SAFE_INTEGER,
      -1,
      -129,
      Number.MIN_SAFE_INTEGER,
    ]) {
      expect(hex(BigInt(value))).toBe(hex(value))
    }
  })

  it('refuses a bigint beyond 64 bits by name', () => {
    expect(() => encodeValue({ id: 2n ** 64n })).toThrow(
      'value.id is 18446744073709551616n, beyond the 64 bits of MessagePack',
    )
    expect(() => encodeValue(-(2n ** 63n) - 1n)).toThrow(InvalidArgumentError)
  })
})

describe('values that only JavaScript has', () => {
  it('writes nil for undefined elements and holes, and leaves undefined properties out', () => {
    expect(hex([1, undefined, 3])).toBe('9301c003')
    // oxlint-disable-next-line no-sparse-arrays -- holes are the case
    expect(hex([1, , 3])).toBe('9301c003')
    expect(hex(undefined)).toBe('c0')
    expect(hex({ a: 1, b: undefined, c: 3 })).toBe('82a16101a16303')
    expect(
      hex(
        new Map([
          ['a', undefined],
          ['b', 1],
        ]),
      ),
    ).toBe('81a16201')
  })

  test.each([16, 17, 65_536])('leaves undefined properties out of an object of %d', (size) => {
    const entries = Array.from({ length: size }, (_, i) => [`k${i}`, i % 2 === 0 ? i : undefined] as const)
    const kept = entries.filter(([, value]) => value !== undefined)
    expect(hex(Object.fromEntries(entries))).toBe(hex(Object.fromEntries(kept)))
    expect(hex(new Map(entries))).toBe(hex(new Map(kept)))
  })

  it('writes a valid Date as a datetime, also before 1970', () => {
    expect(hex(new Date(0))).toBe('d7040000000000000000')
    expect(hex(new Date(-500))).toBe('d804ffffffffffffffff0065cd1d00000000')
  })

  it('writes the bytes of anything that has bytes as bin', () => {
    const bytes = Uint8Array.of(1, 2, 3, 4)
    for (const value of [
      Buffer.from(bytes),
      bytes,
      bytes.buffer,
      new DataView(bytes.buffer),
      new Int8Array(bytes.buffer),
    ]) {
      expect(hex(value)).toBe('c40401020304')
    }
    expect(hex(new Uint16Array([0x0201]))).toBe(hex(new Uint8Array(new Uint16Array([0x0201]).buffer)))
    expect(hex(bytes.subarray(1, 3))).toBe('c4020203')
  })

  it('writes a Map with any keys, and plain objects of any realm', () => {
    const map = new Map<unknown, unknown>([
      [1, 'a'],
      ['1', 'b'],
      [true, 1],
      [null, 2],
      [[1], 3],
    ])
    expect(hex(map)).toBe('8501a161a131a162c301c002910103')
    expect(hex(Object.assign(Object.create(null), { a: 1 }))).toBe('81a16101')
    expect(hex(runInNewContext('({ a: [1], b: { c: null } })'))).toBe('82a1619101a16281a163c0')
  })

  it('writes own enumerable properties only, `__proto__` and names of methods among them', () => {
    const record = Object.defineProperty({ toString: 1, constructor: 2 }, '__proto__', { value: 3, enumerable: true })
    Object.defineProperty(record, 'hidden', { value: 4, enumerable: false })
    expect([...(decodeValue(encodeValue(record), { maps: 'map' }) as Map<string, number>)]).toEqual([
      ['toString', 1],
      ['constructor', 2],
      ['__proto__', 3],
    ])
  })

  class Account {
    id = 1
    toJSON(): unknown {
      return { id: this.id }
    }
  }

  test.each<[string, unknown, string]>([
    ['a function', () => 1, 'is a function, which has no MessagePack form'],
    ['a class', Account, 'is a function, which has no MessagePack form'],
    ['a symbol', Symbol('s'), 'is a symbol, which has no MessagePack form'],
    ['an invalid Date', new Date(Number.NaN), 'is an invalid Date'],
    ['a boxed number', Object(5), 'is an instance of Number, which has no MessagePack form: pass a plain object'],
    ['a boxed string', Object('hi'), 'is an instance of String, which has no MessagePack form: pass a plain object'],
    ['a boxed bigint', Object(5n), 'is an instance of BigInt, which has no MessagePack form: pass a plain object'],
    ['a Set', new Set([1]), 'is a Set, which has no MessagePack form: pass an array'],
    [
      'a class instance with toJSON',
      new Account(),
      'is an instance of Account, which has no MessagePack form: pass a plain object',
    ],
    ['a RegExp', /x/, 'is an instance of RegExp, which has no MessagePack form: pass a plain object'],
    ['an Error', new TypeError('x'), 'is an instance of TypeError, which has no MessagePack form: pass a plain object'],
    ['a Promise', Promise.resolve(1), 'is a Promise: await it first'],
    ['a WeakMap', new WeakMap(), 'is an instance of WeakMap, which has no MessagePack form: pass a plain object'],
    ['a lone surrogate', 'a\ud800b', 'holds a lone surrogate, which has no UTF-8 form'],
    [
      'a lone surrogate in a long string',
      `${'я'.repeat(100)}\udc00`,
      'holds a lone surrogate, which has no UTF-8 form',
    ],
    [
      'a lone surrogate in a very long string',
      `${'x'.repeat(10_000)}\udc00`,
      'holds a lone surrogate, which has no UTF-8 form',
    ],
  ])('refuses %s and says where it is', (_, value, reason) => {
    const writer = new FrameWriter()
    expect(() => writer.request(callRequest('f', [0, { items: [1, 2, 3, value] }]), 1)).toThrow(
      new InvalidArgumentError(`args[1].items[3] ${reason}`),
    )
    expect(() => encodeValue(new Map([['x y', { 'not an identifier': value }]]))).toThrow(
      `value.get("x y")["not an identifier"] ${reason}`,
    )
    expect(() => writer.request(insertRequest(1, [value]), 1)).toThrow(`tuple[0] ${reason}`)
    expect(() => writer.request(selectRequest({ space: 1, key: [value] }), 1)).toThrow(`key[0] ${reason}`)
    expect(() => writer.request(updateRequest({ space: 1, key: [1], operations: [['=', 1, value]] }), 1)).toThrow(
      `operations[0][2] ${reason}`,
    )
    expect(() => writer.request(executeRequest('', [{ ':a': value }]), 1)).toThrow(`binds[0][":a"] ${reason}`)
    expect(() => encodeValue(new Map([[value, 1]]))).toThrow(InvalidArgumentError)
    expect(writer.pendingBytes).toBe(0)
  })

  it('names the field of an error object that cannot be written', () => {
    const error = BoxError.of(1, 'x', { fields: new Map<string, unknown>([['list', [1, () => 1]]]) })
    expect(() => encodeValue([error])).toThrow('value[0].fields.get("list")[1] is a function')
  })

  it('reports what a getter throws as the cause', () => {
    const cause = new RangeError('no')
    const record = {
      get a(): number {
        throw cause
      },
    }
    expect(() => encodeValue(record)).toThrow(
      expect.objectContaining({ code: 'ORB_INVALID_ARGUMENT', executed: 'no', cause }),
    )
  })
})

describe('structures without an end', () => {
  it('refuses a circle in an array, object, Map or error, naming the way round', () => {
    const array: unknown[] = []
    array.push([array])
    const record: Record<string, unknown> = {}
    record['self'] = record
    const map = new Map<string, unknown>()
    map.set('m', [map])
    const fields = new Map<string, unknown>()
    const error = BoxError.of(1, 'x', { fields })
    fields.set('again', error)
    for (const [value, way] of [
      [array, '[0]'],
      [record, '.self'],
      [map, '.get("m")'],
      [error, '.fields.get("again")'],
    ] as const) {
      expect(() => encodeValue({ a: [value] })).toThrow(
        /^value\.a\[0\].* refers back to what contains it: a circular structure/,
      )
      expect(() => encodeValue({ a: [value] })).toThrow(way)
    }
  })

  it('writes 128 nested containers and refuses more', () => {
    const nest = (levels: number, inner: unknown): unknown =>
      Array.from({ length: levels }).reduce((value) => [value], inner)
    expect(decodeValue(encodeValue(nest(128, 1)))).toEqual(nest(128, 1))
    expect(() => encodeValue(nest(129, 1))).toThrow(/^value(\[0\])+.*… nests deeper than 128 levels$/)
    expect(() => encodeValue(nest(100_000, 1))).toThrow(InvalidArgumentError)
  })

  it('writes one object met twice, which is no circle', () => {
    const shared = { a: 1 }
    expect(hex([shared, shared])).toBe('9281a1610181a16101')
  })
})

describe('strings, binary and wrappers', () => {
  test.each([0, 1, 31, 32, 40, 41, 255, 256, 8192, 8193, 65_535, 65_536])(
    'writes and reads strings of %d characters',
    (length) => {
      for (const unit of ['x', 'я', '\u0800', '語', '😀', 'é']) {
        const text = unit.repeat(length)
        const bytes = encodeValue(text)
        const body = Buffer.from(text, 'utf8')
        expect(bytes.subarray(bytes.length - body.length).equals(body)).toBe(true)
        expect(bytes.length - body.length).toBe(
          body.length < 32 ? 1 : body.length < 256 ? 2 : body.length < 65_536 ? 3 : 5,
        )
        expect(decodeValue(bytes)).toBe(text)
      }
    },
  )

  test.each([
    [0, 'c400'],
    [255, 'c4ff'],
    [256, 'c50100'],
    [65_535, 'c5ffff'],
    [65_536, 'c600010000'],
  ])('writes %d bytes behind the header %s', (length, header) => {
    expect(encodeValue(Buffer.alloc(length)).toString('hex').startsWith(header)).toBe(true)
    const bytes = Buffer.alloc(length, 7)
    expect(bytes.equals(decodeValue(encodeValue(bytes)) as Buffer)).toBe(true)
  })

  test.each([
    [1, 'd463'],
    [2, 'd563'],
    [4, 'd663'],
    [8, 'd763'],
    [16, 'd863'],
    [0, 'c70063'],
    [3, 'c70363'],
    [255, 'c7ff63'],
    [256, 'c8010063'],
    [65_536, 'c90001000063'],
  ])('writes an extension of %d bytes behind the header %s', (length, header) => {
    const value = new Extension(99, Buffer.alloc(length, 1))
    expect(hex(value).startsWith(header)).toBe(true)
    expect(decodeValue(encodeValue(value))).toEqual(value)
  })

  test.each([
    [15, '9f'],
    [16, 'dc0010'],
    [65_535, 'dcffff'],
    [65_536, 'dd00010000'],
  ])('writes an array of %d behind the header %s', (length, header) => {
    expect(hex(Array.from({ length }, () => 0)).startsWith(header)).toBe(true)
  })

  it('writes bytes as str, raw values as they are, and a Tuple as an array', () => {
    expect(hex(new ByteString(Uint8Array.of(0xff, 0xfe)))).toBe('a2fffe')
    expect(hex(new RawValue(Uint8Array.of(0x92, 1, 2)))).toBe('920102')
    expect(hex(new Tuple([1, 'a'], []))).toBe('9201a161')
    expect(hex(new Extension(-1, Uint8Array.of(0, 0, 0, 0)))).toBe('d6ff00000000')
    expect(hex(new Interval({ day: 1 }))).toBe('c705060203010801')
  })
})

describe('wrappers', () => {
  it('show their value as JSON and text', () => {
    expect(JSON.stringify([new Double(3), new Float(1.5)])).toBe('[3,1.5]')
    expect(String(new ByteString(Buffer.from('текст').subarray(0, 5)))).toBe('те\ufffd')
  })
})

describe('a frame that fails', () => {
  it('leaves nothing behind and does not harm its neighbours', () => {
    const clean = new FrameWriter({ slabBytes: 64 })
    clean.request(callRequest('a', [1]), 1)
    clean.request(callRequest('c', ['z'.repeat(300)]), 3)
    const writer = new FrameWriter({ slabBytes: 64 })
    writer.request(callRequest('a', [1]), 1)
    for (const args of [[() => 1], ['y'.repeat(500), Symbol('late')], [{ deep: [[[new Set()]]] }]]) {
      expect(() => writer.request(callRequest('b', args), 2)).toThrow(InvalidArgumentError)
    }
    writer.request(callRequest('c', ['z'.repeat(300)]), 3)
    expect(writer.pendingBytes).toBe(clean.pendingBytes)
    expect(Buffer.concat(writer.take())).toEqual(Buffer.concat(clean.take()))
  })

  it('is refused when it grows over the limit, before the memory is spent', () => {
    const writer = new FrameWriter({ slabBytes: 64, maxFrameBytes: 1000 })
    expect(writer.request(callRequest('f', ['x'.repeat(900)]), 1)).toBeLessThan(1005)
    for (const size of [990, 1000, 5000, 100_000]) {
      const attempt = (): number => writer.request(callRequest('f', ['x'.repeat(size)]), 2)
      expect(attempt).toThrow(FrameTooLargeError)
      expect(attempt).toThrow(expect.objectContaining({ executed: 'no', maxFrameBytes: 1000 }))
    }
    // A sparse array announces far more than it holds.
    expect(() => writer.request(callRequest('f', [Array.from({ length: 2000 })]), 3)).toThrow(FrameTooLargeError)
    expect(writer.request(callRequest('f', [1]), 4)).toBe(17)
  })

  it('throws only errors of this package', () => {
    const hostile = new Proxy(
      {},
      {
        ownKeys() {
          throw new TypeError('no keys')
        },
      },
    )
    expect(() => encodeValue(hostile)).toThrow(OrbweaverError)
  })
})
