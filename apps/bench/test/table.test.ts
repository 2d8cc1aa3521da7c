import { describe, expect, test } from 'vitest'
import { formatTable, shortNumber } from '../src/table.js'

describe('formatTable', () => {
  test('aligns cells under titles, numbers to the right, and is Markdown', () => {
    const columns = [{ title: 'who' }, { title: 'n', align: 'right' }] as const
    expect(
      formatTable(columns, [
        ['raw socket', '0.12'],
        ['a', '16.4'],
      ]),
    ).toBe(
      ['| who        |    n |', '| ---------- | ---: |', '| raw socket | 0.12 |', '| a          | 16.4 |'].join('\n'),
    )
  })

  test('has a head when there are no rows', () => {
    expect(formatTable([{ title: 'case' }], [])).toBe('| case |\n| ---- |')
  })

  test('refuses a row with another number of cells', () => {
    expect(() => formatTable([{ title: 'case' }], [['a', 'b']])).toThrow('A row has 2 cells for 1 columns')
  })
})

describe('shortNumber', () => {
  test.each([
    [0, '0.00'],
    [0.163, '0.16'],
    [9.994, '9.99'],
    [9.996, '10.0'],
    [16.34, '16.3'],
    [99.96, '100'],
    [1634, '1634'],
    [9_994, '9994'],
    [9_996, '10.0k'],
    [163_400, '163k'],
    [999_600, '1.00M'],
    [1_634_000, '1.63M'],
  ])('of %d is %s', (value, text) => {
    expect(shortNumber(value)).toBe(text)
  })
})
