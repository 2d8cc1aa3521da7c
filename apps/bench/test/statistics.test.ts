import { describe, expect, test } from 'vitest'
import { pairedRatio, quantile, summarise } from '../src/statistics.js'

describe('summarise', () => {
  test.each([
    [[3], { median: 3, min: 3, max: 3 }],
    [[3, 1, 2], { median: 2, min: 1, max: 3 }],
    [[10, 1, 2, 3], { median: 2.5, min: 1, max: 10 }],
  ])('of %j is %j', (samples, summary) => {
    expect(summarise(samples)).toEqual(summary)
  })

  test('leaves the samples in their order', () => {
    const samples = [3, 1, 2]
    summarise(samples)
    expect(samples).toEqual([3, 1, 2])
  })

  test('refuses to make a figure out of nothing', () => {
    expect(() => summarise([])).toThrow(RangeError)
  })
})

describe('quantile', () => {
  test.each([
    [0, 10],
    [0.25, 12.5],
    [0.5, 15],
    [1, 20],
  ])('%d of 10 and 20 is %d', (share, value) => {
    expect(quantile([20, 10], share)).toBe(value)
  })
})

describe('pairedRatio', () => {
  test('compares what was measured in the same round', () => {
    // The machine was three times slower in the second round, for both.
    expect(pairedRatio([1, 3, 1], [2, 6, 4])).toEqual({ median: 0.5, min: 0.25, max: 0.5 })
  })

  test('leaves out rounds that one of the two did not finish', () => {
    expect(pairedRatio([1, undefined, 1, 1], [2, 2, undefined, 4])).toEqual({ median: 0.375, min: 0.25, max: 0.5 })
  })

  test.each([
    ['there are no rounds', [], []],
    ['no round was finished by both', [1, undefined], [undefined, 1]],
    ['the other side is 0', [1], [0]],
  ])('has no value when %s', (_why, ours, theirs) => {
    expect(pairedRatio(ours, theirs)).toBeUndefined()
  })
})
