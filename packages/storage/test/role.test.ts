import { describe, expect, it } from 'vitest'
import { accepts, follow, INITIAL_ROLE, promise } from '../src/replication/role.js'

const SELF = 1
const OLD_MASTER = 2
const CANDIDATE = 3

describe('an instance that promised a term', () => {
  const promised = promise(follow(INITIAL_ROLE, 2, OLD_MASTER, SELF), 3, CANDIDATE)!

  it('takes older rows from the candidate only, and rows of the new term from anybody', () => {
    expect(accepts(promised, 2, OLD_MASTER, SELF)).toBe(false)
    expect(accepts(promised, 2, CANDIDATE, SELF)).toBe(true)
    expect(accepts(promised, 3, OLD_MASTER, SELF)).toBe(true)
  })

  it('promises no other candidate the same term, nor anybody an older one', () => {
    expect(promise(promised, 3, OLD_MASTER)).toBeUndefined()
    expect(promise(promised, 2, CANDIDATE)).toBeUndefined()
    expect(promise(promised, 3, CANDIDATE)).toEqual(promised)
    expect(promise(promised, 4, OLD_MASTER)?.promisedTo).toBe(OLD_MASTER)
  })
})

describe('a candidate', () => {
  const candidate = promise(follow(INITIAL_ROLE, 2, OLD_MASTER, SELF), 3, SELF)!

  it('collects older rows from everybody until it is the master, and from nobody behind that', () => {
    expect(accepts(candidate, 2, OLD_MASTER, SELF)).toBe(true)
    const master = follow(candidate, 3, SELF, SELF)
    expect(master.isWritable).toBe(true)
    expect(accepts(master, 2, OLD_MASTER, SELF)).toBe(false)
  })
})
