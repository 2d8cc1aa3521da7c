import { describe, expect, test } from 'vitest'
import { helpText, parseOptions, UsageError } from '../src/options.js'

describe('parseOptions', () => {
  test('without flags takes all cases and the defaults', () => {
    expect(parseOptions([])).toEqual({
      cases: /(?:)/,
      rounds: 5,
      seconds: 0.8,
      json: false,
      profile: undefined,
      help: false,
    })
  })

  test('takes every flag', () => {
    const args = ['--cases', '^select', '--rounds', '7', '--seconds=1.5', '--json', '--profile', 'out', '-h']
    expect(parseOptions(args)).toEqual({
      cases: /^select/,
      rounds: 7,
      seconds: 1.5,
      json: true,
      profile: 'out',
      help: true,
    })
  })

  test.each([
    [['--rounds', '0'], '--rounds is 0, expected a whole number from 1 on'],
    [['--rounds', '1.5'], '--rounds is 1.5, expected a whole number from 1 on'],
    [['--rounds', 'many'], '--rounds is "many", expected a number'],
    [['--rounds', ''], '--rounds is "", expected a number'],
    [['--seconds', '0'], '--seconds is 0, expected more than 0 and at most 600'],
    [['--seconds', '601'], '--seconds is 601, expected more than 0 and at most 600'],
    [['--cases', '('], '--cases is not a regular expression'],
    [['--round', '5'], '--round'],
    [['select'], 'select'],
  ])('refuses %j and says why', (args, message) => {
    expect(() => parseOptions(args)).toThrow(UsageError)
    expect(() => parseOptions(args)).toThrow(message)
  })
})

test('the help names every flag that is understood, and the cases', () => {
  const text = helpText(['select@1  select by primary key'])
  for (const flag of ['--cases', '--rounds', '--seconds', '--json', '--profile', '--help', 'TARANTOOL='])
    expect(text).toContain(flag)
  expect(text).toContain('  select@1  select by primary key\n')
})
