import { describe, expect, it, test } from 'vitest'
import { judge, judgeState } from '../src/replication/arrival.js'
import type { Standing, Verdict } from '../src/replication/arrival.js'
import { History } from '../src/replication/history.js'
import { accepts, counts, follow, INITIAL_ROLE, lead, promise, promisesNeeded } from '../src/replication/role.js'
import type { RoleState } from '../src/replication/role.js'
import type { Epoch, Promotion, RowTransaction } from '../src/replication/transaction.js'

const SELF = 1
const OLD_MASTER = 2
const CANDIDATE = 3

function followed(term: number, leader: number): RoleState {
  return follow(INITIAL_ROLE, { term, leader })
}

describe('an instance that promised a term', () => {
  const promised = promise(followed(2, OLD_MASTER), 3, CANDIDATE)!

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
  const candidate = promise(followed(2, OLD_MASTER), 3, SELF)!

  it('collects rows of the present term from everybody until it is the master, and from nobody behind that', () => {
    expect(accepts(candidate, 2, OLD_MASTER, SELF)).toBe(true)
    const master = lead(candidate, { term: 3, leader: SELF })
    expect(master.isWritable).toBe(true)
    expect(accepts(master, 2, OLD_MASTER, SELF)).toBe(false)
  })

  it('is not the master by a promotion of its own that others tell it, nor by one it has promised away', () => {
    expect(follow(candidate, { term: 3, leader: SELF }).isWritable).toBe(false)
    expect(lead(promise(candidate, 4, CANDIDATE)!, { term: 3, leader: SELF }).isWritable).toBe(false)
  })

  it('takes nothing of a term that was over before', () => {
    expect(accepts(candidate, 1, OLD_MASTER, SELF)).toBe(false)
  })
})

describe('an acknowledgement', () => {
  const master = lead(INITIAL_ROLE, { term: 5, leader: SELF })
  const since = 20

  test.each([
    ['of the promotion', master, 20, 5, true],
    ['of what was written behind it', master, 25, 5, true],
    ['of what was written before it', master, 19, 5, false],
    ['of somebody who has not heard of the term', master, 25, 4, false],
    ['of somebody who promised a later one', master, 25, 6, false],
    ['to a master that promised a later term itself', promise(master, 6, CANDIDATE)!, 25, 5, false],
    ['to one that is a candidate for a later term', promise(master, 6, SELF)!, 25, 5, false],
    ['of that later term, before it is promoted', promise(master, 6, SELF)!, 25, 6, false],
  ])('%s: counts or does not', (_, role, lsn, term, isCounted) => {
    expect(counts(role, since, { lsn, term })).toBe(isCounted)
  })
})

test.each([
  [3, 1, 1],
  [2, 2, 2],
  [3, 2, 2],
  [3, 3, 2],
  [5, 2, 4],
  [5, 3, 3],
  [5, 5, 3],
])('%i instances with a quorum of %i: %i must promise', (instances, quorum, needed) => {
  expect(promisesNeeded(instances, quorum)).toBe(needed)
})

// ---- what arrives ---------------------------------------------------------------------------------------------------

/** Instance 1, behind rows 1 to 10 of instance 2, the master of term 2, whose promotion was row 1. */
function standing(change: Partial<Standing> = {}, promised?: [term: number, candidate: number]): Standing {
  const history = new History()
  history.add(promotion(2, OLD_MASTER, 1, {}))
  const role = followed(2, OLD_MASTER)
  return {
    self: SELF,
    role: promised === undefined ? role : promise(role, ...promised)!,
    history,
    vclock: new Map([[OLD_MASTER, 10]]),
    diverged: undefined,
    ...change,
  }
}

function promotion(term: number, leader: number, lsn: number, vclock: Record<number, number>): Promotion {
  return { term, leader, lsn, vclock: new Map(Object.entries(vclock).map(([origin, at]) => [Number(origin), at])) }
}

function rows(origin: number, lsn: number, count = 1): RowTransaction {
  const row = { kind: 'delete', spaceId: 512, key: Buffer.from('9101', 'hex') } as const
  return { origin, lsn, timestamp: 0, rows: Array.from({ length: count }, () => row), promotion: undefined }
}

function promoted(...parts: Parameters<typeof promotion>): RowTransaction {
  const made = promotion(...parts)
  return { origin: made.leader, lsn: made.lsn, timestamp: 0, rows: [], promotion: made }
}

test.each<[string, Standing, RowTransaction, number, Verdict]>([
  ['the next row of the master', standing(), rows(OLD_MASTER, 11), OLD_MASTER, 'apply'],
  ['the same from somebody else', standing(), rows(OLD_MASTER, 11), CANDIDATE, 'apply'],
  ['a transaction of several rows', standing(), rows(OLD_MASTER, 11, 5), OLD_MASTER, 'apply'],
  ['a row that is here', standing(), rows(OLD_MASTER, 10), CANDIDATE, 'known'],
  ['a row behind a gap', standing(), rows(OLD_MASTER, 12), OLD_MASTER, 'gap'],
  ['a row of somebody who was never promoted', standing(), rows(CANDIDATE, 1), CANDIDATE, 'late'],
  ['a row behind a promise', standing({}, [3, CANDIDATE]), rows(OLD_MASTER, 11), OLD_MASTER, 'late'],
  [
    'a row behind a promise, from its candidate',
    standing({}, [3, CANDIDATE]),
    rows(OLD_MASTER, 11),
    CANDIDATE,
    'apply',
  ],
  ['a row for the candidate itself', standing({}, [3, SELF]), rows(OLD_MASTER, 11), OLD_MASTER, 'apply'],
  [
    'a row while the state is to be replaced',
    standing({ diverged: { term: 3, leader: CANDIDATE } }),
    rows(OLD_MASTER, 11),
    OLD_MASTER,
    'diverged',
  ],
  ['a promotion', standing(), promoted(3, CANDIDATE, 1, { 2: 10 }), CANDIDATE, 'apply'],
  ['a promotion with more than is here', standing(), promoted(3, CANDIDATE, 1, { 2: 11 }), CANDIDATE, 'gap'],
  ['a promotion without some of it', standing(), promoted(3, CANDIDATE, 1, { 2: 9 }), CANDIDATE, 'diverged'],
  ['one whose number was another row’s', standing(), promoted(3, OLD_MASTER, 10, { 2: 9 }), OLD_MASTER, 'diverged'],
  ['the promotion that is followed', standing(), promoted(2, OLD_MASTER, 1, {}), CANDIDATE, 'known'],
  ['a promotion of a lost term', standing(), promoted(1, CANDIDATE, 1, {}), CANDIDATE, 'late'],
  [
    'a promotion below a promise',
    standing({}, [4, CANDIDATE]),
    promoted(3, OLD_MASTER, 11, { 2: 10 }),
    OLD_MASTER,
    'late',
  ],
  [
    'a second one in the same term, of a higher number',
    standing(),
    promoted(2, CANDIDATE, 1, {}),
    CANDIDATE,
    'diverged',
  ],
  ['a second one in the same term, of a lower number', standing(), promoted(2, SELF, 1, {}), CANDIDATE, 'late'],
])('%s', (_, here, transaction, peer, verdict) => {
  expect(judge(here, transaction, peer)).toBe(verdict)
})

test.each<[string, Standing, Epoch, Record<number, number>, number, Verdict]>([
  ['of the same term with more', standing(), { term: 2, leader: 2 }, { 2: 50 }, OLD_MASTER, 'apply'],
  ['of the same term with nothing new', standing(), { term: 2, leader: 2 }, { 2: 9 }, OLD_MASTER, 'known'],
  ['of an older term', standing(), { term: 1, leader: 0 }, { 2: 50 }, CANDIDATE, 'late'],
  ['of a newer term with less', standing(), { term: 3, leader: 3 }, { 2: 9, 3: 1 }, CANDIDATE, 'apply'],
  ['behind a promise', standing({}, [3, CANDIDATE]), { term: 2, leader: 2 }, { 2: 50 }, OLD_MASTER, 'late'],
  ['behind a promise, from its candidate', standing({}, [3, 3]), { term: 2, leader: 2 }, { 2: 50 }, CANDIDATE, 'apply'],
  [
    'older than what showed that the state is no part of history',
    standing({ diverged: { term: 4, leader: 3 } }),
    { term: 3, leader: 3 },
    { 2: 9, 3: 1 },
    CANDIDATE,
    'late',
  ],
  [
    'older than that, from the candidate of a later promise',
    standing({ diverged: { term: 3, leader: 3 } }, [9, 4]),
    { term: 2, leader: 2 },
    { 2: 50 },
    4,
    'late',
  ],
  [
    'as new as that',
    standing({ diverged: { term: 4, leader: 3 } }),
    { term: 4, leader: 3 },
    { 2: 9, 3: 1 },
    CANDIDATE,
    'apply',
  ],
])('a snapshot %s', (_, here, epoch, vclock, peer, verdict) => {
  const state = { epoch, vclock: promotion(1, 1, 1, vclock).vclock }
  expect(judgeState(here, state, peer)).toBe(verdict)
})

describe('a history', () => {
  it('knows in which term an instance’s rows are made', () => {
    const history = new History()
    expect(history.termOf(2)).toBe(1)
    history.add(promotion(2, 2, 1, {}))
    history.add(promotion(3, 3, 1, { 2: 5 }))
    expect([1, 2, 3].map((origin) => history.termOf(origin))).toEqual([1, 2, 3])
    expect(history.epoch).toMatchObject({ term: 3, leader: 3 })
  })

  it('knows what is part of it by the first promotion behind a term', () => {
    const history = new History()
    history.add(promotion(2, 2, 1, {}))
    history.add(promotion(3, 3, 1, { 2: 5 }))
    history.add(promotion(5, 2, 6, { 2: 5, 3: 9 }))
    expect(history.includes(new Map([[2, 5]]), 2)).toBe(true)
    expect(history.includes(new Map([[2, 6]]), 2)).toBe(false)
    expect(history.includes(new Map([[3, 9]]), 3)).toBe(true)
    expect(history.includes(new Map([[3, 10]]), 4)).toBe(false)
    expect(history.includes(new Map([[2, 99]]), 5)).toBe(true)
  })

  it('forgets the oldest promotions, but never the last one of an instance', () => {
    const history = new History()
    history.add(promotion(2, 9, 1, {}))
    for (let term = 3; term < 600; term++) history.add(promotion(term, 1 + (term % 2), term, {}))
    expect(history.promotions.length).toBeLessThan(260)
    expect(history.termOf(9)).toBe(2)
    expect(history.epoch.term).toBe(599)
  })
})
