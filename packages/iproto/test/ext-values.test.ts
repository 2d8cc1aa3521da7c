import { readFileSync } from 'node:fs'
import { describe, expect, it, test } from 'vitest'
import {
  BoxError,
  Datetime,
  Decimal,
  decodeValue,
  encodeValue,
  Interval,
  type IntervalFields,
  InvalidArgumentError,
  Tuple,
  Uuid,
} from '../src/index.js'

const hex = (value: unknown): string => encodeValue(value).toString('hex')

describe('Uuid', () => {
  const text = 'f6423bdf-b49e-4913-b361-0740c9702e4b'

  it('is written as 16 bytes in the order of its text, and read back', () => {
    expect(hex(Uuid.from(text.toUpperCase()))).toBe('d802f6423bdfb49e4913b3610740c9702e4b')
    expect(String(decodeValue(encodeValue(Uuid.from(text))))).toBe(text)
    expect(JSON.stringify([Uuid.from(text)])).toBe(`["${text}"]`)
    expect(Uuid.fromBytes(Uuid.from(text).bytes).equals(Uuid.from(text))).toBe(true)
  })

  it('is random in all but its version', () => {
    const uuids = Array.from({ length: 100 }, () => Uuid.random().toString())
    expect(new Set(uuids).size).toBe(100)
    for (const uuid of uuids) expect(uuid).toMatch(/^[\da-f]{8}-[\da-f]{4}-4[\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12}$/)
  })

  it('orders as its text does', () => {
    const [a, b] = [
      Uuid.from('00000000-0000-0000-0000-00000000000a'),
      Uuid.from('00000000-0000-0000-0000-00000000000b'),
    ]
    expect([a.compare(b), b.compare(a), a.compare(a)]).toEqual([-1, 1, 0])
    expect([a.equals(b), a.equals(String(a))]).toEqual([false, false])
  })

  test.each(['', text.slice(1), `${text}0`, text.replaceAll('-', ''), text.replace('f', 'g')])('refuses %j', (bad) => {
    expect(() => Uuid.from(bad)).toThrow(InvalidArgumentError)
  })

  it('refuses other numbers of bytes', () => {
    expect(() => Uuid.fromBytes(new Uint8Array(15))).toThrow('A UUID has 16 bytes, not 15')
  })
})

describe('Datetime', () => {
  test.each([
    ['1970-01-01T00:00:00Z', '1970-01-01T00:00:00Z', 0, 0, 0],
    ['2024-02-29', '2024-02-29T00:00:00Z', 1_709_164_800, 0, 0],
    ['2024-02-29T12:34:56Z', '2024-02-29T12:34:56Z', 1_709_210_096, 0, 0],
    ['2024-07-01T00:00:00+0300', '2024-07-01T00:00:00+0300', 1_719_781_200, 0, 180],
    ['2024-07-01 00:00+03:00', '2024-07-01T00:00:00+0300', 1_719_781_200, 0, 180],
    ['2024-07-01T00:00:00.5-03', '2024-07-01T00:00:00.500-0300', 1_719_802_800, 500_000_000, -180],
    ['1969-12-31T23:59:59.123456789', '1969-12-31T23:59:59.123456789Z', -1, 123_456_789, 0],
    ['1969-12-31T23:59:59,000001Z', '1969-12-31T23:59:59.000001Z', -1, 1000, 0],
    ['0001-01-01T00:00:00Z', '0001-01-01T00:00:00Z', -62_135_596_800, 0, 0],
    ['9999-12-31T23:59:59Z', '9999-12-31T23:59:59Z', 253_402_300_799, 0, 0],
    ['-0001-03-01', '-0001-03-01T00:00:00Z', -62_193_657_600, 0, 0],
  ])('%s is %s', (iso, text, seconds, nsec, tzoffset) => {
    const value = Datetime.from(iso)
    expect([value.seconds, value.nsec, value.tzoffset, value.tzindex]).toEqual([seconds, nsec, tzoffset, 0])
    expect(String(value)).toBe(text)
    expect(JSON.stringify({ value })).toBe(`{"value":"${text}"}`)
    expect(decodeValue(encodeValue(value))).toEqual(value)
    expect(Datetime.from(String(value))).toEqual(value)
  })

  it('agrees with Date over 400 years, two weeks and a bit at a time', () => {
    for (let ms = Date.UTC(1800, 0, 1); ms < Date.UTC(2200, 0, 1); ms += 1_234_567_891) {
      const date = new Date(ms)
      const value = Datetime.fromDate(date)
      expect(value.toString()).toBe(date.toISOString().replace('.000Z', 'Z'))
      expect(value.toDate()).toEqual(date)
    }
  })

  test.each([
    '',
    '2024',
    '2024-13-01',
    '2023-02-29',
    '2024-01-01T24:00:00',
    '2024-01-01T00:60:00',
    '2024-01-01T00:00:60',
    '2024-01-01T00:00:00.1234567890',
    'yesterday',
    '2024-01-01T00:00:00+15:00',
  ])('refuses %j', (iso) => {
    expect(() => Datetime.from(iso)).toThrow(InvalidArgumentError)
  })

  test.each([
    [{ seconds: 1.5 }, 'seconds'],
    [{ seconds: 2n ** 63n }, 'seconds'],
    [{ seconds: 0, nsec: 1_000_000_000 }, 'nsec'],
    [{ seconds: 0, nsec: -1 }, 'nsec'],
    [{ seconds: 0, tzoffset: 841 }, 'tzoffset'],
    [{ seconds: 0, tzindex: -1 }, 'tzindex'],
  ])('refuses %o and names the field', (fields, name) => {
    expect(() => new Datetime(fields)).toThrow(new RegExp(`^${name} is `))
  })

  it('reaches past Date, which it then refuses to become', () => {
    const far = new Datetime({ seconds: 185_480_451_590_399n })
    expect(String(far)).toBe('5879611-07-12T23:59:59Z')
    expect(String(new Datetime({ seconds: -185_604_722_870_400n }))).toBe('-5879610-06-22T00:00:00Z')
    expect(() => far.toDate()).toThrow('185480451590399 s are beyond the range of Date')
    expect(decodeValue(encodeValue(far))).toEqual(far)
    const huge = new Datetime({ seconds: 2n ** 62n })
    expect(huge.seconds).toBe(2n ** 62n)
    expect(decodeValue(encodeValue(huge))).toEqual(huge)
    expect(String(huge)).toMatch(/^\d+-\d\d-\d\dT\d\d:\d\d:\d\dZ$/)
  })

  it('has the zone numbers of Tarantool, written beside the offset', () => {
    const { zones } = JSON.parse(readFileSync(new URL('./vectors/timezones.json', import.meta.url), 'utf8')) as {
      zones: Record<string, number>
    }
    const moscow = new Datetime({ seconds: 1_719_781_200, tzoffset: 180, tzindex: zones['Europe/Moscow']! })
    expect(hex(moscow)).toBe('d80450c781660000000000000000b400b303')
    expect(decodeValue(encodeValue(moscow))).toEqual(moscow)
  })

  it('compares by moment', () => {
    const sorted = [
      new Datetime({ seconds: -1, nsec: 999_999_999 }),
      new Datetime({ seconds: 0 }),
      new Datetime({ seconds: 0, nsec: 1 }),
      new Datetime({ seconds: 2n ** 60n }),
    ]
    for (const [i, a] of sorted.entries())
      for (const [k, b] of sorted.entries()) expect(a.compare(b)).toBe(Math.sign(i - k))
    expect(Datetime.from('2024-07-01T00:00:00+03:00').equals(Datetime.from('2024-06-30T21:00:00Z'))).toBe(true)
    expect(sorted[0]!.equals(0)).toBe(false)
  })

  it('refuses an invalid Date', () => {
    expect(() => Datetime.fromDate(new Date(Number.NaN))).toThrow(InvalidArgumentError)
  })
})

describe('Interval', () => {
  test.each<[IntervalFields, string, string]>([
    [{ adjust: 'excess' }, 'd40600', '0 seconds'],
    [{}, 'c70306010801', '0 seconds'],
    [{ day: 1 }, 'c705060203010801', '+1 days'],
    [{ year: -1, adjust: 'none' }, 'c705060200ff0801', '-1 years'],
    [{ second: 5_000_000_000, adjust: 'last' }, 'c70d060206cf000000012a05f2000802', '+5000000000 seconds'],
    [
      { year: 1, month: 2, week: 3, day: 4, hour: 5, minute: 6, second: 7, nsec: 8 },
      'c7130609000101020203030404050506060707080801',
      '+1 years, +2 months, +3 weeks, +4 days, +5 hours, +6 minutes, +7 seconds, +8 nanoseconds',
    ],
    [{ nsec: -(2n ** 63n), adjust: 'excess' }, 'c70b060107d38000000000000000', '-9223372036854775808 nanoseconds'],
    [
      { month: 200, week: -200, hour: -40_000, minute: 70_000, adjust: 'excess' },
      'c714060401ccc802d1ff3804d2ffff63c005ce00011170',
      '+200 months, -200 weeks, -40000 hours, +70000 minutes',
    ],
  ])('%o is written as %s', (fields, bytes, text) => {
    const value = new Interval(fields)
    expect(hex(value)).toBe(bytes)
    expect(decodeValue(encodeValue(value))).toEqual(value)
    expect(String(value)).toBe(text)
  })

  it('compares by its fields and shows them as JSON', () => {
    const value = new Interval({ day: 1, nsec: 2n ** 60n })
    expect(JSON.parse(JSON.stringify(value))).toEqual({ day: 1, nsec: '1152921504606846976', adjust: 'none' })
    expect(value.equals(new Interval({ day: 1n, nsec: 2n ** 60n }))).toBe(true)
    expect(value.equals(new Interval({ day: 1 }))).toBe(false)
    expect(value.equals({ day: 1 })).toBe(false)
  })

  test.each([{ day: 1.5 }, { second: 2n ** 64n }, { adjust: 'some' as 'last' }])('refuses %o', (fields) => {
    expect(() => new Interval(fields as IntervalFields)).toThrow(InvalidArgumentError)
  })
})

describe('Tuple', () => {
  const format = [
    { name: 'id', type: 'unsigned', isNullable: false },
    { name: '__proto__', type: 'any', isNullable: true },
    { name: 'late', type: 'any', isNullable: true },
  ]

  it('is its values, with names beside them', () => {
    const tuple = new Tuple([7, { a: 1 }], format)
    expect([...tuple]).toEqual([7, { a: 1 }])
    expect(tuple.length).toBe(2)
    expect(JSON.stringify(tuple)).toBe('[7,{"a":1}]')
    expect(Object.entries(tuple.toObject())).toEqual([
      ['id', 7],
      ['__proto__', { a: 1 }],
    ])
    expect(new Tuple([1, 2, 3, 4], format.slice(0, 1)).toObject()).toEqual({ id: 1 })
  })

  it('goes back as a plain array, since the server would store the extension as it is', () => {
    expect(encodeValue(new Tuple([7, 'x'], format))).toEqual(encodeValue([7, 'x']))
  })
})

describe('BoxError as a value', () => {
  const error = BoxError.of(201, 'outer', {
    line: 1,
    file: 'a.lua',
    fields: new Map<string, unknown>([
      ['price', Decimal.from('1.10')],
      ['nested', { a: { b: [1, 2] } }],
    ]),
    cause: BoxError.of(4_294_967_295, 'middle', {
      boxType: 'CustomError',
      cause: BoxError.of(42, 'inner', { errno: 2 }),
    }),
  })

  it('goes there and back with its whole chain and all fields', () => {
    const back = decodeValue(encodeValue([error])) as BoxError[]
    expect(back[0]).toBeInstanceOf(BoxError)
    expect(back[0]!.entries).toEqual(error.entries)
    expect(encodeValue(back)).toEqual(encodeValue([error]))
    const inner = (back[0]!.cause as BoxError).cause as BoxError
    expect([inner.boxCode, inner.boxType, inner.boxName, inner.cause]).toEqual([
      42,
      'AccessDeniedError',
      'ACCESS_DENIED',
      undefined,
    ])
  })

  it('uses only the unsigned forms and the keys that the server insists on', () => {
    expect(hex(BoxError.of(201, 'm', { line: 1 }))).toBe(
      'c71d038100918600ab436c69656e744572726f72020101a003a16d040005ccc9',
    )
  })

  it('reads what the modes of decoding do not concern', () => {
    for (const options of [{ integers: 'bigint' }, { maps: 'map' }, { strings: 'bytes' }] as const) {
      const back = decodeValue(encodeValue([1, error, 'a']), options) as unknown[]
      expect((back[1] as BoxError).entries).toEqual(error.entries)
    }
  })
})
