import { describe, expect, it } from 'vitest'
import { checkOptions, ConfigError, optionProblems, optionRule, type OptionRules } from '../src/index.js'

const RULES: OptionRules = {
  name: optionRule.required(optionRule.text),
  mode: optionRule.oneOf('on', 'off', 'auto'),
  count: optionRule.integer(1, 15),
  timeoutMs: optionRule.fromZero,
  password: { ...optionRule.text, isSecret: true },
}

describe('options checked by a table', () => {
  it('are let pass when all fits, what is undefined as if it were left out', () => {
    expect(
      optionProblems('', { name: 'a', mode: 'auto', count: 15, timeoutMs: Infinity, password: undefined }, RULES),
    ).toEqual([])
  })

  it.each([
    [undefined, '', 'is missing, expected an object with name, mode, count, timeoutMs, password'],
    [[], '', 'is a list, expected an object with name, mode, count, timeoutMs, password'],
    [{}, 'name', 'is missing, expected a non-empty string'],
    [{ name: '' }, 'name', "is '', expected a non-empty string"],
    [{ name: 'a', nmae: 'b' }, 'nmae', 'is not known; known are name, mode, count, timeoutMs, password'],
    [{ name: 'a', mode: 'On' }, 'mode', "is 'On', expected 'on', 'off' or 'auto'"],
    [{ name: 'a', count: 16 }, 'count', 'is 16, expected an integer from 1 to 15'],
    [{ name: 'a', count: 1.5 }, 'count', 'is 1.5, expected an integer from 1 to 15'],
    [{ name: 'a', timeoutMs: Number.NaN }, 'timeoutMs', 'is NaN, expected a number from 0'],
    [{ name: 'a', timeoutMs: null }, 'timeoutMs', 'is null, expected a number from 0'],
    [{ name: 'a', password: 5 }, 'password', 'is a number that does not fit, expected a non-empty string'],
    [{ name: { secret: 1 } }, 'name', 'is an object, expected a non-empty string'],
    [{ name: () => 1 }, 'name', 'is a function, expected a non-empty string'],
  ])('name what is wrong with %j', (value, path, message) => {
    expect(optionProblems('', value, RULES)).toEqual([{ path, message }])
  })

  it('never show a secret, nor more than the beginning of a long text', () => {
    const problems = optionProblems('', { name: 'a', password: '', mode: 'x'.repeat(1_000) }, RULES)
    expect(problems.map(({ message }) => message.length).every((length) => length < 120)).toBe(true)
  })

  it('are told all at once, with their paths', () => {
    const check = (): void => checkOptions('thing', { nmae: 'a', count: 0 }, RULES)
    expect(check).toThrow(ConfigError)
    expect(check).toThrow(/thing: nmae: .*; name: is missing.*; count: is 0/)
    expect(optionProblems('inner', { name: 1 }, RULES)[0]!.path).toBe('inner.name')
  })
})
