import { describe, expect, it, test } from 'vitest'
import {
  type BoxError,
  ByteString,
  decodeValue,
  Double,
  encodeValue,
  Extension,
  Float,
  MalformedFrameError,
  OrbweaverError,
  skipValue,
} from '../src/index.js'

const decode = (hex: string, options = {}): unknown => decodeValue(Buffer.from(hex, 'hex'), options)

describe('integers', () => {
  test.each([
    ['cf0134051b1d0ab654', 86_699_530_287_996_500n + 0n],
    ['cf0020000000000001', 9_007_199_254_740_993n],
    ['cf0020000000000000', 9_007_199_254_740_992n],
    ['d3ffdfffffffffffff', -9_007_199_254_740_993n],
    ['d3ffe0000000000000', -9_007_199_254_740_992n],
    ['cfffffffffffffffff', 18_446_744_073_709_551_615n],
    ['d38000000000000000', -9_223_372_036_854_775_808n],
  ])('%s is exact as a bigint', (hex, value) => {
    expect(typeof decode(hex)).toBe('bigint')
    if (hex !== 'cf0134051b1d0ab654') expect(decode(hex)).toBe(value)
    expect(decode(hex)).toBe(
      BigInt.asIntN(64, BigInt(`0x${hex.slice(2)}`)) < 0n && hex.startsWith('d3') ? value : BigInt(`0x${hex.slice(2)}`),
    )
  })

  it('gives back ids of other clients as they were written', () => {
    for (const id of [
      86_699_530_287_996_692n,
      18_446_464_814_936_021_036n,
      9_007_199_254_740_993n,
      -9_007_199_254_740_993n,
    ]) {
      expect(decodeValue(encodeValue({ rows: [[id]] }))).toEqual({ rows: [[id]] })
    }
  })

  test.each([
    '01',
    'cc01',
    'cd0001',
    'ce00000001',
    'cf0000000000000001',
    'd001',
    'd10001',
    'd200000001',
    'd30000000000000001',
  ])('%s is the number 1, whatever its width', (hex) => {
    expect(decode(hex)).toBe(1)
    expect(decode(`92${hex}${hex}`)).toEqual([1, 1])
    expect(decode(hex, { integers: 'bigint' })).toBe(1n)
    expect(decode(`91${hex}`, { integers: 'bigint' })).toEqual([1n])
    expect(decode(hex, { integers: 'number' })).toBe(1)
  })

  test.each(['ff', 'd0ff', 'd1ffff', 'd2ffffffff', 'd3ffffffffffffffff'])('%s is -1, whatever its width', (hex) => {
    expect(decode(hex)).toBe(-1)
    expect(decode(`81a161${hex}`)).toEqual({ a: -1 })
    expect(decode(hex, { integers: 'bigint' })).toBe(-1n)
  })

  it('reads the largest safe integers as numbers', () => {
    expect(decode('cf001fffffffffffff')).toBe(Number.MAX_SAFE_INTEGER)
    expect(decode('d3ffe0000000000001')).toBe(Number.MIN_SAFE_INTEGER)
  })

  it('refuses an unsafe one when only numbers are asked for, also inside a tuple extension', () => {
    for (const hex of [
      'cf0020000000000000',
      '92c0cfffffffffffffffff',
      '81a161d38000000000000000',
      'c70b070191cfffffffffffffffff',
    ]) {
      expect(() => decode(hex, { integers: 'number' })).toThrow(/is not a safe integer, and integers are to be numbers/)
    }
    expect(decode('cb43f0000000000000', { integers: 'number' })).toBe(2 ** 64)
  })

  it('leaves floats alone in every mode', () => {
    for (const integers of ['auto', 'bigint', 'number'] as const) {
      expect(decode('93cb4008000000000000ca3fc00000cb7ff8000000000000', { integers })).toEqual([3, 1.5, Number.NaN])
      expect(decode('cb8000000000000000', { integers })).toBe(-0)
    }
  })
})

describe('byte strings', () => {
  test.each([
    ['ff fe', 'a2fffe'],
    ['a lone continuation byte', 'a180'],
    ['an overlong form', 'a2c080'],
    ['an overlong form of three bytes', 'a3e08080'],
    ['an encoded surrogate', 'a3eda080'],
    ['a code point beyond U+10FFFF', 'a4f4908080'],
    ['a lead byte beyond those', 'a4f8808080'],
    ['a cut sequence of two', 'a1d0'],
    ['a cut sequence of three', 'a2e282'],
    ['a cut sequence of four', 'a3f09f98'],
    ['a bad byte behind 60 good ones', `d93d${'78'.repeat(60)}ff`],
    ['a bad byte behind 200 good ones', `d9c9${'78'.repeat(200)}ff`],
    ['a bad byte behind 200 Cyrillic ones', `da0191${'d0bf'.repeat(200)}ff`],
    ['a bad byte behind 70000 good ones', `db00011171${'78'.repeat(70_000)}ff`],
    ['a bad byte behind 70000 Cyrillic ones', `db000222e1${'d0bf'.repeat(70_000)}ff`],
    ['a replacement character and a bad byte', `d944${'efbfbd'.repeat(1)}${'78'.repeat(64)}ff`],
  ])('%s is kept as bytes and goes back unchanged', (_, hex) => {
    const value = decode(hex)
    expect(value).toBeInstanceOf(ByteString)
    expect(encodeValue(value).toString('hex')).toBe(hex)
  })

  test.each([
    '',
    'a',
    'naïve',
    'Привет',
    '語',
    '😀',
    '\u0000',
    '\ufeff',
    '\ufffd',
    '\uffff',
    '\ud7ff\ue000',
    '\u{10000}\u{10ffff}',
  ])('%j is a string, alone, repeated and among others', (text) => {
    for (const times of [1, 3, 20, 100, 1000, 30_000]) {
      const value = text.repeat(times)
      expect(decodeValue(encodeValue(value))).toBe(value)
      expect(decodeValue(encodeValue([value, 'x', value]))).toEqual([value, 'x', value])
      expect(decodeValue(encodeValue({ [value]: value }))).toEqual({ [value]: value })
    }
  })

  it('keeps a byte-order mark, which the text decoder of the platform drops', () => {
    for (const times of [0, 5, 62, 63, 64, 100, 5000]) {
      const value = `\ufeff${'x'.repeat(times)}`
      expect(decodeValue(encodeValue(value))).toBe(value)
    }
  })

  it('gives bytes for every string when asked, but text for keys', () => {
    const value = decode('82a161a162a163a2fffe', { strings: 'bytes' })
    expect(value).toEqual({ a: new ByteString(Buffer.from('b')), c: new ByteString(Buffer.from([0xff, 0xfe])) })
    expect(encodeValue(value).toString('hex')).toBe('82a161a162a163a2fffe')
  })

  it('keeps binary values binary, as bytes of their own', () => {
    const source = Buffer.from('92c402fffec40101', 'hex')
    const [first, second] = decodeValue(source) as Buffer[]
    expect(first).toEqual(Buffer.from([0xff, 0xfe]))
    source.fill(0)
    expect(first).toEqual(Buffer.from([0xff, 0xfe]))
    expect(second).toEqual(Buffer.from([1]))
  })
})

describe('maps', () => {
  test.each([
    ['{1: a}', '8101a161', [[1, 'a']]],
    [
      "{1: a, '1': b}",
      '8201a161a131a162',
      [
        [1, 'a'],
        ['1', 'b'],
      ],
    ],
    ['{true: 1}', '81c301', [[true, 1]]],
    ['{1.5: 2}', '81cb3ff800000000000002', [[1.5, 2]]],
    ['{nil: 1}', '81c001', [[null, 1]]],
    ['{[1]: 2}', '81910102', [[[1], 2]]],
    ['the largest unsigned key', '81cfffffffffffffffff01', [[18_446_744_073_709_551_615n, 1]]],
    [
      'a text key first and a number behind',
      '82a1780101a161',
      [
        ['x', 1],
        [1, 'a'],
      ],
    ],
    [
      'keys that an object would reorder',
      '83a162a161a131a162c0a163',
      [
        ['b', 'a'],
        ['1', 'b'],
        [null, 'c'],
      ],
    ],
  ])('%s keeps its keys and goes back byte for byte', (_, hex, entries) => {
    const value = decode(hex)
    expect(value).toBeInstanceOf(Map)
    expect([...(value as Map<unknown, unknown>)]).toEqual(entries)
    expect(encodeValue(value).toString('hex')).toBe(hex)
  })

  it('keeps a whole float apart from the integer of the same value', () => {
    const hex = '8301a161cb3ff0000000000000a162ca40000000a163'
    const value = decode(hex) as Map<unknown, unknown>
    expect([...value.keys()]).toEqual([1, new Double(1), new Float(2)])
    expect(encodeValue(value).toString('hex')).toBe(hex)
  })

  it('has plain data under `__proto__` and other names that mean something to objects', () => {
    const names = ['__proto__', 'constructor', 'toString', 'hasOwnProperty', '__defineGetter__']
    const source = new Map(names.map((name, i) => [name, { polluted: i }]))
    const value = decodeValue(encodeValue(source)) as Record<string, unknown>
    expect(Object.keys(value)).toEqual(names)
    for (const [i, name] of names.entries())
      expect(Object.getOwnPropertyDescriptor(value, name)!.value).toEqual({ polluted: i })
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype)
    expect(({} as { polluted?: number }).polluted).toBeUndefined()
    expect(encodeValue(value)).toEqual(encodeValue(source))
  })

  it('lets the last of duplicate keys win, in an object and in a Map', () => {
    expect(decode('82a16b01a16b02')).toEqual({ k: 2 })
    expect(decode('8201010102')).toEqual(new Map([[1, 2]]))
    expect(decode('83a16b01a16b0205a0')).toEqual(
      new Map<unknown, unknown>([
        ['k', 2],
        [5, ''],
      ]),
    )
  })

  it('is always a Map when asked', () => {
    expect(decode('81a161 81a162 01'.replaceAll(' ', ''), { maps: 'map' })).toEqual(
      new Map([['a', new Map([['b', 1]])]]),
    )
    expect(decode('80', { maps: 'map' })).toEqual(new Map())
    expect(decode('80')).toEqual({})
  })

  it('reads maps of every width, and mixed maps inside mixed maps in time', () => {
    expect(decode('de0001a16101')).toEqual({ a: 1 })
    expect(decode('df00000001a16101')).toEqual({ a: 1 })
    // Each level has its odd key last, behind the nested map.
    let hex = '01'
    for (let i = 0; i < 200; i++) hex = `82a161${hex}0102`
    let value = decode(hex)
    let levels = 0
    for (; value instanceof Map; levels++) value = value.get('a') as unknown
    expect([levels, value]).toEqual([200, 1])
  })

  it('reads a composite key once, however deep such keys nest', () => {
    expect(decode('8192c0c080')).toEqual(new Map([[[null, null], {}]]))
    expect(decode('8181c08080')).toEqual(new Map([[new Map([[null, {}]]), {}]]))
    // Reading each key twice would take 2^200 steps.
    let hex = '01'
    for (let i = 0; i < 200; i++) hex = `81${hex}c0`
    let value = decode(hex)
    let levels = 0
    for (; value instanceof Map; levels++) [value] = value.keys()
    expect([levels, value]).toEqual([200, 1])
    expect(skipValue(Buffer.from(hex, 'hex'), 0, hex.length / 2)).toBe(hex.length / 2)
  })

  it('costs no more than its bytes when maps turn out to be mixed at every depth', () => {
    // A long value at the bottom of 200 maps, each with its odd key behind it: re-walking it at each level would take 200 times as long.
    const leaf = encodeValue(Array.from({ length: 100_000 }, () => 1))
    const opening = Buffer.from('82a131'.repeat(200), 'hex')
    let value = decodeValue(Buffer.concat([opening, leaf, Buffer.from('0102'.repeat(200), 'hex')]))
    let levels = 0
    for (; value instanceof Map; levels++) {
      expect([...value.keys()]).toEqual(['1', 1])
      value = value.get('1') as unknown
    }
    expect(levels).toBe(200)
    expect((value as unknown[]).length).toBe(100_000)
  })

  it('keeps the order of the wire when the odd key comes late', () => {
    const keys = ['b', '2', '__proto__', '1', 'a', '2', '10', '']
    const wire = Buffer.concat([
      Buffer.of(0x80 | (keys.length + 1)),
      ...keys.map((key, i) => Buffer.concat([encodeValue(key), Buffer.of(i)])),
      Buffer.from('c309', 'hex'),
    ])
    expect([...(decodeValue(wire) as Map<unknown, unknown>)]).toEqual([
      ['b', 0],
      ['2', 5],
      ['__proto__', 2],
      ['1', 3],
      ['a', 4],
      ['10', 6],
      ['', 7],
      [true, 9],
    ])
  })

  it('keeps keys that are not UTF-8 as bytes', () => {
    const hex = '82a16101a2fffe02'
    const value = decode(hex)
    expect(value).toEqual(
      new Map<unknown, unknown>([
        ['a', 1],
        [new ByteString(Buffer.from([0xff, 0xfe])), 2],
      ]),
    )
    expect(encodeValue(value).toString('hex')).toBe(hex)
  })
})

describe('extensions', () => {
  test.each([
    'd5630011',
    'd6ff00000000',
    'c70c ff 000000000000000000000000'.replaceAll(' ', ''),
    'd40000',
    'd4720a',
    'd57240a1',
    'd469a1',
    'd4730a',
    'd47405',
    'd6050a0b0c0d',
  ])('%s, which is none of ours, is kept and goes back byte for byte', (hex) => {
    const value = decode(`92${hex}40`) as unknown[]
    expect(value[0]).toBeInstanceOf(Extension)
    expect(value[1]).toBe(0x40)
    expect(encodeValue(value).toString('hex')).toBe(`92${hex}40`)
  })

  test.each([
    ['a decimal without digits', 'd40100'],
    ['a decimal without a sign', 'd501 0010'],
    ['a decimal with a letter among its digits', 'd6010001ab1c'],
    ['a decimal of 39 digits', `c71501 00 ${'1'.repeat(39)}c`],
    ['a decimal of scale 39', 'd501 271c'],
    ['a uuid of 15 bytes', `c70f02${'00'.repeat(15)}`],
    ['an error that is no map', 'd40301'],
    ['an error with an empty stack', 'c703 03 810090'],
    ['an error whose code is signed', 'd803 81009186 00a0 01a0 0200 03a0 0400 05ff'],
    ['a datetime of 4 bytes', 'd60400000000'],
    ['a datetime with 10^9 ns', 'd804 0000000000000000 00ca9a3b 0000 0000'],
    ['a datetime with the zone +15:00', 'd804 0000000000000000 00000000 8403 0000'],
    ['the long form of what fits the short one', `d804${'00'.repeat(16)}`],
    ['an interval cut short', 'd50601 00'],
    ['an interval with an unknown field', 'c70306 010901'],
    ['an interval with bytes behind', 'd606 01000100'],
    ['a tuple without fields', 'd40701'],
    ['a tuple whose fields are a map', 'd5070180'],
    ['a tuple with bytes behind', 'c7030701 90c0'],
    ['a tuple cut short', 'c7030701 9201'],
  ])('%s keeps its bytes', (_, spaced) => {
    const hex = spaced.replaceAll(' ', '')
    const value = decode(hex)
    expect(value).toBeInstanceOf(Extension)
    expect(encodeValue(value).toString('hex')).toBe(hex)
  })
})

describe('the bounds of a frame', () => {
  const values = [
    'x'.repeat(32),
    'y'.repeat(64),
    ['z'.repeat(40), 1.5, 2 ** 40, 70_000],
    { key: 'v'.repeat(100), список: 'я'.repeat(40) },
    Buffer.alloc(40),
    -5,
    4_000_000_000,
    [1, [2, [3]]],
  ]
  const behind = ['', 'a9', 'bf', 'd9ff', 'c1', 'dd7fffffff', 'ce000000058200400107', 'ff'.repeat(300)]

  test.each(behind)('are all that counts when %j follows', (hex) => {
    for (const value of values) {
      const encoded = encodeValue(value)
      for (const before of [0, 1, 7]) {
        const around = Buffer.concat([Buffer.alloc(before, 0x81), encoded, Buffer.from(hex, 'hex')])
        const range = { start: before, end: before + encoded.length }
        expect(decodeValue(around, range)).toEqual(value)
        // One byte short is an error, whatever could be read behind.
        expect(() => decodeValue(around, { start: before, end: range.end - 1 })).toThrow(MalformedFrameError)
      }
    }
  })

  it('make every cut of a value an error that leaves no state behind', () => {
    const whole = encodeValue([values, new Map([[1, values]])])
    for (let end = 0; end < whole.length; end++) {
      expect(() => decodeValue(whole, { end }), `cut at ${end}`).toThrow(MalformedFrameError)
      expect(() => skipValue(whole, 0, end), `cut at ${end}`).toThrow(MalformedFrameError)
    }
    expect(decodeValue(whole)).toEqual([values, new Map([[1, values]])])
    expect(skipValue(whole, 0, whole.length)).toBe(whole.length)
  })

  it('make bytes left behind a value an error', () => {
    expect(() => decode('0100')).toThrow('1 bytes are left behind a value')
    expect(() => decode('9001c1')).toThrow(MalformedFrameError)
  })

  it('are not crossed by one byte that is no MessagePack', () => {
    for (const hex of ['c1', '91c1', '81c101', '81a161c1', 'dd00000001c1']) {
      expect(() => decode(hex)).toThrow('Byte 0xc1 is not MessagePack')
      expect(() => skipValue(Buffer.from(hex, 'hex'), 0, hex.length / 2)).toThrow('Byte 0xc1 is not MessagePack')
    }
  })
})

describe('hostile input', () => {
  it('may nest 256 deep, and no deeper', () => {
    expect(() => decode(`${'91'.repeat(256)}c0`)).not.toThrow()
    for (const opening of ['91', '81a161', '8101', 'dc0001', 'de0001c0']) {
      expect(() => decode(`${opening.repeat(257)}c0`)).toThrow('Values nest deeper than 256 levels')
      expect(() => decode(`${opening.repeat(100_000)}c0`)).toThrow(OrbweaverError)
    }
  })

  it('cannot hide depth in extensions', () => {
    let payload: Buffer = Buffer.from('c0', 'hex')
    for (let i = 0; i < 400; i++)
      payload = encodeValue(new Extension(7, Buffer.concat([Buffer.from('0191', 'hex'), payload])))
    let value = decodeValue(payload)
    let levels = 0
    for (; !(value instanceof Extension); levels++) value = (value as { values: unknown[] }).values[0]
    expect(levels).toBeLessThan(256)
    expect(encodeValue(value).length).toBeGreaterThan(100)
  })

  it('cannot make work multiply by nesting broken extensions', () => {
    // Each tuple has a byte too much, so each level is kept as bytes after what is inside it was read.
    let payload: Buffer = Buffer.concat([Buffer.from('c6000f4240', 'hex'), Buffer.alloc(1_000_000)])
    for (let i = 0; i < 200; i++) {
      payload = encodeValue(new Extension(7, Buffer.concat([Buffer.from('0191', 'hex'), payload, Buffer.of(0)])))
    }
    const before = process.memoryUsage().arrayBuffers
    expect(encodeValue(decodeValue(payload)).equals(payload)).toBe(true)
    // Without a bound 200 copies of 1 MB are made.
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(60_000_000)
  })

  it('may hold an error of 256 entries, and keeps a longer one as bytes', () => {
    const errorOf = (entries: number): Buffer => {
      const stack = `dc${entries.toString(16).padStart(4, '0')}${'8600a001a0020003a004000501'.repeat(entries)}`
      return encodeValue(new Extension(3, Buffer.from(`8100${stack}`, 'hex')))
    }
    expect((decodeValue(errorOf(256)) as BoxError).entries.length).toBe(256)
    expect(decodeValue(errorOf(257))).toBeInstanceOf(Extension)
    expect(encodeValue(decodeValue(errorOf(60_000))).equals(errorOf(60_000))).toBe(true)
  })

  test.each(['ddffffffff', 'dfffffffff', 'dbffffffff', 'c6ffffffff', 'c9ffffffff01', 'dcffff', 'deffff', 'daffff'])(
    '%s announces more than there is and costs nothing',
    (hex) => {
      expect(() => decode(hex)).toThrow(MalformedFrameError)
      expect(() => decode(`91${hex}${'00'.repeat(1000)}`)).toThrow(MalformedFrameError)
    },
  )

  it('gets memory for the elements that fit its bytes, not for what nested headers add up to', () => {
    // 250 arrays, each announcing as many elements as there are bytes behind: together 2 GB of slots.
    const body = Buffer.alloc(1_000_000)
    for (let i = 0; i < 250; i++) {
      body[i * 5] = 0xdd
      body.writeUInt32BE(body.length - (i + 1) * 5, i * 5 + 1)
    }
    const before = process.memoryUsage().heapUsed
    expect(() => decodeValue(body)).toThrow(MalformedFrameError)
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(64_000_000)
  })

  it('reads long arrays in which nothing is announced in vain', () => {
    const long = Array.from({ length: 100_000 }, (_, i) => i % 100)
    expect(decodeValue(encodeValue(long))).toEqual(long)
  })
})
