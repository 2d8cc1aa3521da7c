import { expect, it } from 'vitest'
import { RefIds } from '../src/ref-ids.js'

it('RefIds begins at random, counts up, and stays where Lua can find an id again', () => {
  expect(new RefIds(() => 0).next()).toBe(1)
  const high = new RefIds(() => 1 - Number.EPSILON)
  const ids = Array.from({ length: 5 }, () => high.next())
  expect(new Set(ids).size).toBe(5)
  for (const id of ids) {
    expect(id).toBeGreaterThanOrEqual(1)
    expect(id).toBeLessThan(1e14)
  }
  expect(new RefIds(() => 0.25).next()).not.toBe(new RefIds(() => 0.75).next())
})
