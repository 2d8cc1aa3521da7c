import { describe, expect, it } from 'vitest'
import { ByteString, compareValues, Datetime, Decimal, Double, Uuid } from '../src/index.js'

const A = Uuid.from('11111111-1111-4111-8111-111111111111')
const B = Uuid.from('11111111-1111-4111-8111-111111111112')

/** In Tarantool's order: every value stands before all that follow it. */
const ASCENDING: readonly unknown[] = [
  null,
  false,
  true,
  -Infinity,
  -9_223_372_036_854_775_808n,
  -1.5,
  -1,
  0,
  Decimal.from('0.1'),
  0.1000000001,
  1,
  Decimal.from('1.00000000000000000001'),
  new Double(2),
  9_007_199_254_740_991,
  9_007_199_254_740_993n,
  18_446_744_073_709_551_615n,
  Decimal.from('1e30'),
  1e300,
  Infinity,
  '',
  'Z',
  'a',
  'aa',
  'é',
  '\u{ffff}',
  '\u{1f600}',
  new ByteString(Buffer.from('ff', 'hex')),
  Buffer.from('00', 'hex'),
  Buffer.from('0001', 'hex'),
  A,
  B,
  Datetime.from('1969-12-31T23:59:59Z'),
  Datetime.from('2024-07-01T00:00:00Z'),
]

describe('compareValues', () => {
  it('orders every pair of values as Tarantool does', () => {
    for (let i = 0; i < ASCENDING.length; i++) {
      for (let j = 0; j < ASCENDING.length; j++) {
        expect(
          Math.sign(compareValues(ASCENDING[i], ASCENDING[j])),
          `${String(ASCENDING[i])} against ${String(ASCENDING[j])}`,
        ).toBe(Math.sign(i - j))
      }
    }
  })

  it('takes equal numbers of different kinds for equal', () => {
    for (const [a, b] of [
      [1, 1n],
      [Decimal.from('1.50'), 1.5],
      [new Double(3), 3],
      [Decimal.from('100'), Decimal.from('1e2')],
    ] as const) {
      expect(compareValues(a, b)).toBe(0)
      expect(compareValues(b, a)).toBe(0)
    }
  })
})
