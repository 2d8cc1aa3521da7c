import { describe, expect, it } from 'vitest'
import { applyNews, type InstanceView, newView } from '../src/instance-view.js'
import { type Selection, selectMaster, type SelectionContext, whyNotMaster } from '../src/master-rules.js'

const up = (change: Partial<InstanceView>): InstanceView => ({
  ...applyNews(newView(0), { type: 'connected', generation: 1, hasWatchers: true }, { nowMs: 0, nextLook: 1 }).view,
  heard: true,
  ...change,
})
const rw = (term?: number, change: Partial<InstanceView> = {}): InstanceView => up({ ro: false, term, ...change })
const ro = (term?: number): InstanceView => up({ ro: true, term })

const CONTEXT: SelectionContext = {
  current: undefined,
  maxTerm: 0,
  nowMs: 1_000,
  onConflict: 'keep',
  announced: undefined,
  preferred: undefined,
  configured: undefined,
}

function select(views: Readonly<Record<string, InstanceView>>, context: Partial<SelectionContext> = {}): Selection {
  const maxTerm = Math.max(0, ...Object.values(views).map(({ term }) => term ?? 0))
  return selectMaster(
    Object.entries(views).map(([id, view]) => ({ id, view })),
    { ...CONTEXT, maxTerm, ...context },
  )
}

const master = (id: string, ...conflict: string[]): Selection => ({ kind: 'master', id, conflict })
const none = (stale?: string): Selection => ({ kind: 'none', stale })
const conflict = (...ids: string[]): Selection => ({ kind: 'conflict', ids })
const a = { id: 'a', generation: 1 }

describe('who is the master', () => {
  it.each<[string, Readonly<Record<string, InstanceView>>, Partial<SelectionContext>, Selection]>([
    ['the only writable one', { a: rw(3), b: ro(3) }, {}, master('a')],
    ['nobody is writable', { a: ro(3), b: ro(3) }, {}, none()],
    ['nobody is known', { a: up({}), b: newView(0) }, {}, none()],
    ['the newest term wins', { a: rw(3), b: rw(4) }, { current: a }, master('b')],
    ['a term wins over none', { a: rw(), b: rw(1) }, { current: a }, master('b')],
    ['without terms at all, the only one', { a: rw(), b: ro() }, {}, master('a')],
    ['equal claims: the current one stays', { a: rw(1), b: rw(1) }, { current: a }, master('a', 'a', 'b')],
    [
      'equal claims: the current one of an earlier generation is not the current one',
      { a: rw(1, { generation: 2 }), b: rw(1) },
      { current: a },
      conflict('a', 'b'),
    ],
    ['equal claims, nobody current', { a: rw(1), b: rw(1) }, {}, conflict('a', 'b')],
    ['equal claims: the preferred one', { a: rw(1), b: rw(1) }, { preferred: 'b' }, master('b', 'a', 'b')],
    [
      'equal claims: the current one before the preferred one',
      { a: rw(1), b: rw(1) },
      { current: a, preferred: 'b' },
      master('a', 'a', 'b'),
    ],
    [
      'equal claims: the announced one before the current one',
      { a: rw(1), b: rw(1) },
      { current: a, announced: 'b' },
      master('b', 'a', 'b'),
    ],
    [
      'equal claims are an error where they are not kept',
      { a: rw(1), b: rw(1) },
      { current: a, onConflict: 'error' },
      conflict('a', 'b'),
    ],
    ['the announced one does not win over a newer term', { a: rw(4), b: rw(3) }, { announced: 'b' }, master('a')],
    ['pending is no claim yet', { a: rw(3, { claimTermPending: true }) }, {}, none()],
    ['stopping is not eligible', { a: rw(3, { stopping: true }) }, {}, none()],
    ['refused is not eligible', { a: rw(3, { refused: true }) }, {}, none()],
    ['set aside is not eligible', { a: rw(3, { liesUntilMs: 1_001 }) }, {}, none()],
    ['set aside until now is eligible', { a: rw(3, { liesUntilMs: 1_000 }) }, {}, master('a')],
    ['silent is not a candidate, nor stale', { a: rw(3, { silent: true }) }, {}, none()],
    [
      'silent and another claims with the same term',
      { a: rw(3, { silent: true }), b: rw(3) },
      { current: a },
      master('b'),
    ],
    ['somebody else is not who it should be', { a: rw(3, { misidentified: 'is another' }) }, {}, none()],
    ['somebody has seen a newer term: the claim is stale', { a: rw(3), b: ro(4) }, {}, none('a')],
    ['a stale claim that was accepted', { a: rw(3, { staleAccepted: true }), b: ro(4) }, {}, master('a')],
    ['of two stale claims the newer is looked at', { a: rw(2), b: rw(3), c: ro(4) }, {}, none('b')],
    ['the configuration vetoes a claim', { a: rw(3, { configuredMaster: false }) }, {}, none()],
    ['the configuration takes a read-only one', { a: up({ ro: true, configuredMaster: true }) }, {}, master('a')],
    ['named by the configuration: although read-only', { a: ro(), b: rw(9) }, { configured: 'a' }, master('a')],
    ['named by the configuration: although nothing is known of it', { a: up({}) }, { configured: 'a' }, master('a')],
    ['named by the configuration: not while it is away', { a: newView(0), b: rw(9) }, { configured: 'a' }, none()],
    [
      'named by the configuration: not while it is loading',
      { a: up({ ro: true, loading: true }) },
      { configured: 'a' },
      none(),
    ],
    [
      'named by the configuration: not while it stops',
      { a: up({ ro: false, stopping: true }) },
      { configured: 'a' },
      none(),
    ],
    [
      'named by the configuration: not while it is silent',
      { a: up({ ro: false, silent: true }) },
      { configured: 'a' },
      none(),
    ],
  ])('%s', (_name, views, context, want) => {
    expect(select(views, context)).toEqual(want)
  })
})

it.each<[string, InstanceView, number, string | undefined]>([
  ['it is the one', rw(3), 3, undefined],
  ['read-only', ro(3), 3, 'read-only'],
  ['away', newView(0), 3, 'not connected yet'],
  ['stopping', rw(3, { stopping: true }), 3, 'shutting down'],
  ['silent', rw(3, { silent: true }), 3, 'does not answer'],
  ['refused', rw(3, { refused: true }), 3, 'refused a write and has not confirmed its role since'],
  ['pending', rw(3, { claimTermPending: true }), 3, 'writable, its term is not known yet'],
  ['mute', up({}), 3, 'has not said whether it is writable'],
  ['stale', rw(3), 4, 'writable with the old term 3, the newest is 4'],
  ['set aside', rw(3, { liesUntilMs: 2_000 }), 3, 'set aside: it claims to be writable and refuses writes'],
  ['vetoed', rw(3, { configuredMaster: false }), 3, 'writable, but not the configured master'],
  [
    'somebody else',
    rw(3, { misidentified: 'is the instance x, configured is y' }),
    3,
    'is the instance x, configured is y',
  ],
])('says why an instance takes no writes: %s', (_name, view, maxTerm, want) => {
  expect(whyNotMaster(view, maxTerm, 1_000)).toBe(want)
})
