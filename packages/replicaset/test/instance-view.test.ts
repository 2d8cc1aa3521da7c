import { describe, expect, it } from 'vitest'
import {
  applyNews,
  type InstanceNews,
  type InstanceState,
  type InstanceView,
  newView,
  stateOf,
} from '../src/instance-view.js'

const NOW = 100_000
const LOOK = 50

const connectedView = (hasWatchers: boolean): InstanceView =>
  applyNews(newView(0), { type: 'connected', generation: 3, hasWatchers }, { nowMs: 0, nextLook: 1 }).view

/** One view per column of the table. */
const COLUMNS: Readonly<Record<InstanceState, InstanceView>> = {
  DOWN: { ...newView(0), state: 'down' },
  CONNECTING: newView(0),
  LEGACY: connectedView(false),
  MUTE: connectedView(true),
  RO: { ...connectedView(true), ro: true, heard: true, term: 4 },
  RW: { ...connectedView(true), ro: false, heard: true, term: 4 },
  RW_PENDING: { ...connectedView(true), ro: false, claimTermPending: true, heard: true, term: 4 },
}

/** What became of a view, in the words of the table: its state, what was set (+) and cleared (-), and the wish to look. */
function described(before: InstanceView, news: InstanceNews): string {
  const { view, look } = applyNews(before, news, { nowMs: NOW, nextLook: LOOK })
  if (view === before && look === undefined) return '-'
  const words: string[] = [stateOf(view)]
  if (view.term !== before.term) words.push(`term ${String(view.term)}`)
  for (const flag of ['stopping', 'silent', 'refused'] as const)
    if (view[flag] !== before[flag]) words.push(`${view[flag] ? '+' : '-'}${flag}`)
  if (view.fence !== before.fence) words.push(view.fence === undefined ? 'fence passed' : 'fence')
  if (look !== undefined && view.fence === before.fence) words.push('look')
  return words.join(', ')
}

const ORDER: readonly InstanceState[] = ['DOWN', 'CONNECTING', 'LEGACY', 'MUTE', 'RO', 'RW', 'RW_PENDING']
const fill = (cell: string): readonly string[] => Array.from({ length: 5 }, () => cell)

/** Cells in the order of the columns. */
// prettier-ignore
const TABLE: readonly (readonly [string, InstanceNews, readonly string[]])[] = [
  ['connected, watchers available', { type: 'connected', generation: 4, hasWatchers: true }, ['MUTE', 'MUTE', 'MUTE', 'MUTE', 'MUTE, term undefined', 'MUTE, term undefined', 'MUTE, term undefined']],
  ['connected, no watchers', { type: 'connected', generation: 4, hasWatchers: false }, ['LEGACY', 'LEGACY', 'LEGACY', 'LEGACY', 'LEGACY, term undefined', 'LEGACY, term undefined', 'LEGACY, term undefined']],
  ['connect failed', { type: 'connectFailed', reason: 'refused' }, ['DOWN', 'DOWN', '-', '-', '-', '-', '-']],
  ['dialling again', { type: 'connecting' }, ['CONNECTING', '-', '-', '-', '-', '-', '-']],
  ['value nil, {}, wrong shape', { type: 'badEvent' }, ['-', '-', '-', 'MUTE', '-', '-', '-']],
  ['status read-only', { type: 'status', isRo: true, isLoading: false }, ['-', '-', '-', 'RO', 'RO', 'RO', 'RO']],
  ['status writable', { type: 'status', isRo: false, isLoading: false }, ['-', '-', '-', 'RW_PENDING', 'RW_PENDING', '-', 'RW_PENDING']],
  ['election read-only', { type: 'election', isRo: true, term: 5 }, ['-', '-', '-', 'RO, term 5', 'RO, term 5', 'RO, term 5', 'RO, term 5']],
  ['election writable', { type: 'election', isRo: false, term: 5 }, ['-', '-', '-', 'RW, term 5', 'RW, term 5', 'RW, term 5', 'RW, term 5']],
  ['pending for 50 ms', { type: 'pendingOverdue' }, ['-', '-', '-', '-', '-', '-', 'RW_PENDING, fence']],
  ['poll: read-only', { type: 'poll', look: 9, isRo: true, term: undefined }, ['-', '-', 'RO', 'RO', 'RO', 'RO', 'RO']],
  ['poll: writable', { type: 'poll', look: 9, isRo: false, term: undefined }, ['-', '-', 'RW', 'RW', 'RW', 'RW', 'RW']],
  ['poll that told nothing', { type: 'pollFailed', look: 9, reason: '42' }, ['-', '-', 'LEGACY', 'MUTE', '-', '-', '-']],
  ['box.shutdown', { type: 'shutdown' }, ['-', '-', '-', ...['MUTE', 'RO', 'RW', 'RW_PENDING'].map((state) => `${state}, +stopping`)]],
  ['ping overdue', { type: 'pingOverdue' }, ['-', '-', ...['LEGACY', 'MUTE', 'RO', 'RW', 'RW_PENDING'].map((state) => `${state}, +silent`)]],
  ['any answer', { type: 'answered' }, ['-', '-', ...fill('-')]],
  ['statement refused', { type: 'statementRefused' }, ['-', '-', 'RO, +refused, fence', ...['MUTE', 'RO', 'RW', 'RW_PENDING'].map((state) => `${state}, +refused, fence`)]],
  ['the dialect says: not master', { type: 'notMaster' }, ['-', '-', ...['LEGACY', 'MUTE', 'RO', 'RW', 'RW_PENDING'].map((state) => `${state}, +refused, fence`)]],
  ['loading or not configured', { type: 'notReady', reason: '116' }, ['-', '-', ...['LEGACY', 'MUTE', 'RO', 'RW', 'RW_PENDING'].map((state) => `${state}, +refused, fence`)]],
  ['user code refused', { type: 'codeRefused' }, ['-', '-', 'LEGACY, fence', 'MUTE, fence', '-', 'RW, fence', 'RW_PENDING, fence']],
  ['answer of a fence: writable', { type: 'fence', look: 9, isRo: false, isLoading: false, term: 5 }, ['-', '-', ...fill('RW, term 5')]],
  ['answer of a fence: read-only', { type: 'fence', look: 9, isRo: true, isLoading: false, term: 5 }, ['-', '-', ...fill('RO, term 5')]],
  ['answer of a fence: nothing usable', { type: 'fence', look: 9, isRo: undefined, isLoading: false, term: undefined }, ['-', '-', 'LEGACY', ...Array.from({ length: 4 }, () => 'MUTE')]],
  ['an operator announces it', { type: 'announced' }, ['-', '-', ...Array.from({ length: 5 }, () => 'RW, look')]],
  ['disconnected', { type: 'disconnected', reason: 'reset' }, ['-', 'DOWN', 'DOWN', 'DOWN', ...Array.from({ length: 3 }, () => 'DOWN, term undefined')]],
]

describe('what news does to the view of an instance', () => {
  for (const [name, news, cells] of TABLE) {
    it(name, () => {
      expect(Object.fromEntries(ORDER.map((state) => [state, described(COLUMNS[state], news)]))).toEqual(
        Object.fromEntries(ORDER.map((state, at) => [state, cells[at]])),
      )
    })
  }
})

describe('polled instances', () => {
  const legacy = (ro: boolean): InstanceView => ({ ...COLUMNS.LEGACY, ro, heard: true })

  it.each([
    ['a read-only one whose poll fails is unknown', true, 1, 'MUTE'],
    ['a writable one is left alone by one failed poll', false, 1, 'RW'],
    ['a writable one is unknown after two', false, 2, 'MUTE'],
  ])('%s', (_name, ro, failures, state) => {
    let view = legacy(ro)
    for (let count = 0; count < failures; count += 1)
      view = applyNews(view, { type: 'pollFailed', look: 1, reason: 'timeout' }, { nowMs: NOW, nextLook: LOOK }).view
    // A legacy instance of which nothing is known yet is LEGACY before it is MUTE.
    expect(stateOf(view) === 'LEGACY' ? 'MUTE' : stateOf(view)).toBe(state)
  })

  it('an answer resets the count of failures', () => {
    let view = legacy(false)
    view = applyNews(view, { type: 'pollFailed', look: 1, reason: 'timeout' }, { nowMs: NOW, nextLook: LOOK }).view
    view = applyNews(view, { type: 'poll', look: 2, isRo: false, term: undefined }, { nowMs: NOW, nextLook: LOOK }).view
    view = applyNews(view, { type: 'pollFailed', look: 3, reason: 'timeout' }, { nowMs: NOW, nextLook: LOOK }).view
    expect(stateOf(view)).toBe('RW')
  })

  it('"writable" of a poll sent before the refusal is old, "read-only" counts', () => {
    const refused = applyNews(legacy(false), { type: 'statementRefused' }, { nowMs: NOW, nextLook: 20 }).view
    const old = applyNews(
      refused,
      { type: 'poll', look: 19, isRo: false, term: undefined },
      { nowMs: NOW, nextLook: 21 },
    ).view
    expect([old.refused, old.fence]).toEqual([true, 20])
    const readOnly = applyNews(
      refused,
      { type: 'poll', look: 19, isRo: true, term: undefined },
      { nowMs: NOW, nextLook: 21 },
    ).view
    expect(stateOf(readOnly)).toBe('RO')
    const fresh = applyNews(
      refused,
      { type: 'poll', look: 20, isRo: false, term: undefined },
      { nowMs: NOW, nextLook: 21 },
    ).view
    expect([stateOf(fresh), fresh.refused, fresh.fence]).toEqual(['RW', false, undefined])
    // The old poll may be answered even after the fence.
    const late = applyNews(
      { ...fresh, ro: true },
      { type: 'poll', look: 19, isRo: false, term: undefined },
      { nowMs: NOW, nextLook: 22 },
    ).view
    expect(stateOf(late)).toBe('RO')
  })
})

describe('fences', () => {
  const fenced = applyNews(COLUMNS.RW, { type: 'statementRefused' }, { nowMs: NOW, nextLook: 20 }).view

  it.each<[string, InstanceNews]>([
    ['a status', { type: 'status', isRo: false, isLoading: false }],
    ['an election', { type: 'election', isRo: false, term: 4 }],
  ])('%s that says writable is ignored while one is out', (_name, news) => {
    const { view } = applyNews({ ...fenced, ro: true }, news, { nowMs: NOW, nextLook: 21 })
    expect([stateOf(view), view.refused, view.fence]).toEqual(['RO', true, 20])
  })

  it.each<[string, InstanceNews]>([
    ['a status', { type: 'status', isRo: true, isLoading: false }],
    ['an election', { type: 'election', isRo: true, term: 4 }],
  ])('%s that says read-only counts at once', (_name, news) => {
    expect(stateOf(applyNews(fenced, news, { nowMs: NOW, nextLook: 21 }).view)).toBe('RO')
  })

  it('a refusal while one is out starts another, and the older answer is ignored', () => {
    const again = applyNews(fenced, { type: 'statementRefused' }, { nowMs: NOW, nextLook: 21 }).view
    expect(again.fence).toBe(21)
    const older = applyNews(
      again,
      { type: 'fence', look: 20, isRo: false, isLoading: false, term: 4 },
      { nowMs: NOW, nextLook: 22 },
    ).view
    expect(older).toBe(again)
    const younger = applyNews(
      again,
      { type: 'fence', look: 21, isRo: false, isLoading: false, term: 4 },
      { nowMs: NOW, nextLook: 22 },
    ).view
    expect([stateOf(younger), younger.refused, younger.fence]).toEqual(['RW', false, undefined])
  })

  it('one that is not answered is asked again', () => {
    expect(applyNews(fenced, { type: 'lookOverdue' }, { nowMs: NOW, nextLook: 30 })).toMatchObject({
      look: 'repeat',
      view: { fence: 30, pollFloor: 30 },
    })
    expect(applyNews(COLUMNS.RW, { type: 'lookOverdue' }, { nowMs: NOW, nextLook: 30 }).look).toBeUndefined()
  })

  it('user code is worth one look a second', () => {
    const looked = applyNews(COLUMNS.RW, { type: 'codeRefused' }, { nowMs: NOW, nextLook: 20 }).view
    expect(applyNews(looked, { type: 'codeRefused' }, { nowMs: NOW + 999, nextLook: 21 }).look).toBeUndefined()
    expect(applyNews(looked, { type: 'codeRefused' }, { nowMs: NOW + 1_000, nextLook: 21 }).look).toBe('code')
    expect(looked.refused).toBe(false)
  })

  it('a third refusal of a claimant within 10 s sets it aside for 5 s; a burst counts once', () => {
    let view: InstanceView = COLUMNS.RW
    const refuse = (atMs: number): boolean => {
      const change = applyNews(view, { type: 'notMaster' }, { nowMs: atMs, nextLook: LOOK })
      view = change.view
      return change.isLiar === true
    }
    const claim = (): void => {
      view = applyNews(
        view,
        { type: 'fence', look: LOOK, isRo: false, isLoading: false, term: 4 },
        { nowMs: NOW, nextLook: LOOK },
      ).view
    }
    expect([refuse(1_000), refuse(1_001), refuse(1_002)]).toEqual([false, false, false])
    claim()
    expect(refuse(5_000)).toBe(false)
    claim()
    expect(refuse(10_999)).toBe(true)
    expect(view.liesUntilMs).toBe(15_999)
    claim()
    expect(refuse(30_000)).toBe(false)
  })
})

it('a reconnect forgets what was of the generation and keeps what is of the instance', () => {
  const before: InstanceView = {
    ...COLUMNS.RW,
    stopping: true,
    silent: true,
    refused: true,
    fence: 5,
    staleAccepted: true,
    liesUntilMs: NOW,
  }
  const { view } = applyNews(
    before,
    { type: 'connected', generation: 9, hasWatchers: true },
    { nowMs: NOW, nextLook: LOOK },
  )
  expect(view).toMatchObject({
    generation: 9,
    ro: undefined,
    term: undefined,
    stopping: false,
    silent: false,
    refused: false,
    fence: undefined,
    staleAccepted: false,
    heard: true,
    liesUntilMs: NOW,
  })
})
