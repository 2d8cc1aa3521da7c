import { describe, expect, it, test } from 'vitest'
import { Decimal, decodeValue, encodeValue, InvalidArgumentError } from '../src/index.js'

describe('Decimal', () => {
  // All produced by Tarantool 3.2.1.
  test.each([
    ['c70301d0df1c', `1${'0'.repeat(33)}`],
    ['c70301d0df1d', `-1${'0'.repeat(33)}`],
    ['d6010312345d', '-12.345'],
    ['d501020c', '0.00'],
    ['d501261c', `0.${'0'.repeat(37)}1`],
    ['d501261d', `-0.${'0'.repeat(37)}1`],
    [`c7150100 0${'9'.repeat(38)}c`.replace(' ', ''), '9'.repeat(38)],
    ['d501000c', '0'],
    ['d501000d', '-0'],
    ['d501f61c', '10000000000'],
    ['d6010201234c', '12.34'],
    ['d501031c', '0.001'],
    ['c7030102110c', '1.10'],
  ])('reads %s as %s and writes the same bytes again', (hex, text) => {
    const value = decodeValue(Buffer.from(hex, 'hex')) as Decimal
    expect(value).toBeInstanceOf(Decimal)
    expect(value.toString()).toBe(text)
    expect(JSON.stringify({ value })).toBe(`{"value":"${text}"}`)
    expect(encodeValue(value).toString('hex')).toBe(hex)
  })

  test.each([
    ['1e33', 'c70301d0df1c'],
    ['-1E+33', 'c70301d0df1d'],
    ['-12.345', 'd6010312345d'],
    ['0.00', 'd501020c'],
    ['-0.00', 'd501020d'],
    ['1e-38', 'd501261c'],
    ['9'.repeat(38), `c7150100 0${'9'.repeat(38)}c`.replace(' ', '')],
    ['+1.10', 'c7030102110c'],
    ['.5', 'd501015c'],
    ['5.', 'd501005c'],
    ['0001', 'd501001c'],
    ['1.5e20', 'c70301ed015c'],
    ['100', 'c7030100100c'],
  ])('writes %s as %s', (text, hex) => {
    expect(encodeValue(Decimal.from(text)).toString('hex')).toBe(hex)
  })

  test.each([
    ['a', 'd501001a', '1'],
    ['e', 'd501001e', '1'],
    ['f', 'd501001f', '1'],
    ['b', 'd501001b', '-1'],
  ])('reads the sign nibble %s, which is not written', (_, hex, text) => {
    expect(String(decodeValue(Buffer.from(hex, 'hex')))).toBe(text)
  })

  test.each([
    'd501021c',
    'c70301cc021c',
    'c70401cd00021c',
    'c70601ce000000021c',
    'c70a01cf00000000000000021c',
    'c70301d0021c',
    'c70401d100021c',
    'c70a01d300000000000000021c',
  ])('reads a scale of any width: %s', (hex) => {
    expect(String(decodeValue(Buffer.from(hex, 'hex')))).toBe('0.01')
  })

  test.each([
    '',
    '-',
    '.',
    'e5',
    '1e',
    '0x1',
    '1,5',
    'NaN',
    'Infinity',
    ' 1',
    '1 ',
    '1.2.3',
    '1e9999',
    '1'.repeat(39),
    '1e39',
    '1e-39',
    `0.${'1'.repeat(39)}`,
  ])('refuses %j', (text) => {
    expect(() => Decimal.from(text)).toThrow(InvalidArgumentError)
  })

  it('compares by value, whatever the scale', () => {
    const sorted = ['-1e33', '-12.345', '-0.001', '0', '1e-38', '1.1', '1.2', '2', '1e10', '1e37']
    for (const [i, a] of sorted.entries()) {
      for (const [k, b] of sorted.entries()) expect(Decimal.from(a).compare(Decimal.from(b))).toBe(Math.sign(i - k))
    }
    expect(Decimal.from('1.10').equals(Decimal.from('1.1'))).toBe(true)
    expect(Decimal.from('-0').equals(Decimal.from('0.000'))).toBe(true)
    expect(Decimal.from('1').equals('1')).toBe(false)
  })

  it('says its parts, and takes them back', () => {
    const { digits, scale, isNegative } = Decimal.from('-01.10')
    expect({ digits, scale, isNegative }).toEqual({ digits: '110', scale: 2, isNegative: true })
    expect(String(new Decimal({ digits, scale, isNegative }))).toBe('-1.10')
    expect(String(new Decimal({ digits: '5' }))).toBe('5')
    expect(() => new Decimal({ digits: '1a' })).toThrow(InvalidArgumentError)
  })
})
