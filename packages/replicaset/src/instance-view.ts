/**
 * What is believed of one instance, and the table that says how each piece of news changes it. Pure: news in, the next
 * view and a wish to look closer out.
 *
 * The order of words matters more than their content. On one connection events are ordered with answers, between two
 * connections nothing is. So a refusal of a write starts a *fence*: a question asked behind it. Until its answer is in,
 * claims of being writable may be older than the refusal and are ignored; "read-only" counts at once.
 */

/** A row of the transition table's heading, as `info()` shows it. */
export type InstanceState = 'DOWN' | 'CONNECTING' | 'LEGACY' | 'MUTE' | 'RO' | 'RW' | 'RW_PENDING'

/** Belief about one configured instance; kept as long as it is configured, replaced as a whole. */
export interface InstanceView {
  readonly state: 'down' | 'connecting' | 'up'
  /** Number of the connection, +1 on every successful connect. */
  readonly generation: number
  /** Whether the server has watchers; learnt anew on each connect. */
  readonly watch: 'unknown' | 'yes' | 'no'
  /** A usable value was received at least once since it was configured. */
  readonly heard: boolean
  /** Of this generation; undefined: not known. */
  readonly ro: boolean | undefined
  /** Of this generation. */
  readonly term: number | undefined
  /** Writable by `box.status`, its `box.election` still outstanding. */
  readonly claimTermPending: boolean
  /** Does not serve anything yet, writable or not. */
  readonly loading: boolean
  /** Announced its shutdown in this generation. */
  readonly stopping: boolean
  /** Does not answer pings. */
  readonly silent: boolean
  /** It refused a write and no younger word has come. */
  readonly refused: boolean
  /** Number of the outstanding look that claims have to wait for. */
  readonly fence: number | undefined
  /** Polls with a smaller number were sent before the last refusal: their "writable" is old. */
  readonly pollFloor: number
  /** Set aside until then: it claims and refuses. -Infinity: not. */
  readonly liesUntilMs: number
  /** When its refusals began (not each refused request), of the last 10 s. */
  readonly refusals: readonly number[]
  /** A claim with an old term that nobody disputed, accepted after the grace. */
  readonly staleAccepted: boolean
  /** Polls in a row that told nothing. */
  readonly pollFailures: number
  /** Why its role is not known. */
  readonly unknownReason: string | undefined
  /** Since when its state is what it is. */
  readonly sinceMs: number
  /** What a dialect's election key says of the configured master: false vetoes a claim, true takes writes although read-only. */
  readonly configuredMaster: boolean | undefined
  /** It is not who the configuration says; in words. */
  readonly misidentified: string | undefined
  /** When refusals by user code last made it worth a look. */
  readonly codeLookMs: number
}

/** News about one instance. */
export type InstanceNews =
  | { readonly type: 'connecting' }
  | { readonly type: 'connected'; readonly generation: number; readonly hasWatchers: boolean }
  | { readonly type: 'connectFailed'; readonly reason: string }
  | { readonly type: 'disconnected'; readonly reason: string }
  /** A value that says nothing: nil, `{}`, an unexpected shape. */
  | { readonly type: 'badEvent' }
  | { readonly type: 'status'; readonly isRo: boolean; readonly isLoading: boolean }
  | { readonly type: 'election'; readonly isRo: boolean; readonly term: number }
  | { readonly type: 'configuredMaster'; readonly is: boolean | undefined }
  /** `look` is the number the poll was sent with. */
  | { readonly type: 'poll'; readonly look: number; readonly isRo: boolean; readonly term: number | undefined }
  | { readonly type: 'pollFailed'; readonly look: number; readonly reason: string }
  /** `isRo` undefined: the status was unusable. */
  | {
      readonly type: 'fence'
      readonly look: number
      readonly isRo: boolean | undefined
      readonly isLoading: boolean
      readonly term: number | undefined
    }
  | { readonly type: 'shutdown' }
  | { readonly type: 'pingOverdue' }
  | { readonly type: 'answered' }
  /** A plain statement was answered "read-only"; it had no effect. Of the current epoch. */
  | { readonly type: 'statementRefused' }
  /** The dialect's word that this is not the master; user code did not run. Of the current epoch. */
  | { readonly type: 'notMaster' }
  /** Loading or not configured: a refusal that is about the instance. */
  | { readonly type: 'notReady'; readonly reason: string }
  /** User code raised "read-only": its own word, or that of a server it called. */
  | { readonly type: 'codeRefused' }
  /** 50 ms passed without the election value that belongs to a status. */
  | { readonly type: 'pendingOverdue' }
  /** The last look was not answered in time and its question still matters. */
  | { readonly type: 'lookOverdue' }
  /** An operator's word that this instance has just been promoted. */
  | { readonly type: 'announced' }
  | { readonly type: 'identified'; readonly problem: string | undefined }
  | { readonly type: 'staleAccepted' }

/** A wish of the rules: ask the instance who it is, now. */
export type LookReason = 'refused' | 'not master' | 'code' | 'pending' | 'repeat' | 'announced' | 'not ready'

export interface ViewChange {
  readonly view: InstanceView
  /** The caller sends a look and numbers it with the `look` it gave to `applyNews`. */
  readonly look: LookReason | undefined
  /** It was caught claiming and refusing once too often. */
  readonly isLiar?: boolean
}

export interface NewsContext {
  readonly nowMs: number
  /** The number a look gets if the rules ask for one; larger than all before. */
  readonly nextLook: number
}

/** @returns the state as the tables of the documentation name it */
export function stateOf(view: InstanceView): InstanceState {
  if (view.state === 'down') return 'DOWN'
  if (view.state === 'connecting') return 'CONNECTING'
  if (view.ro === true) return 'RO'
  if (view.ro === false) return view.claimTermPending ? 'RW_PENDING' : 'RW'
  return view.watch === 'no' && view.pollFailures < MUTE_AFTER_FAILURES ? 'LEGACY' : 'MUTE'
}

/** An instance nothing was heard of yet. */
export function newView(nowMs: number): InstanceView {
  return {
    state: 'connecting',
    generation: 0,
    watch: 'unknown',
    heard: false,
    ...FORGOTTEN,
    pollFloor: 0,
    liesUntilMs: Number.NEGATIVE_INFINITY,
    refusals: [],
    unknownReason: 'not connected yet',
    sinceMs: nowMs,
    misidentified: undefined,
    codeLookMs: Number.NEGATIVE_INFINITY,
  }
}

/** The table: what the news does to the view. */
export function applyNews(view: InstanceView, news: InstanceNews, context: NewsContext): ViewChange {
  const state = stateOf(view)
  const rule = RULES[news.type][COLUMNS[state]] as Rule<InstanceNews>
  const change = rule(view, news, context)
  if (change.view === view || stateOf(change.view) === state) return change
  return { ...change, view: { ...change.view, sinceMs: context.nowMs } }
}

/** What is of one generation only. */
const FORGOTTEN = {
  ro: undefined,
  term: undefined,
  claimTermPending: false,
  loading: false,
  stopping: false,
  silent: false,
  refused: false,
  fence: undefined,
  staleAccepted: false,
  pollFailures: 0,
  configuredMaster: undefined,
} as const

type Rule<N extends InstanceNews> = (view: InstanceView, news: N, context: NewsContext) => ViewChange
type NewsOf<T extends InstanceNews['type']> = Extract<InstanceNews, { type: T }>
type Row<T extends InstanceNews['type']> = readonly Rule<NewsOf<T>>[]

const COLUMNS: Readonly<Record<InstanceState, number>> = {
  DOWN: 0,
  CONNECTING: 1,
  LEGACY: 2,
  MUTE: 3,
  RO: 4,
  RW: 5,
  RW_PENDING: 6,
}

// ---- the cells

const same = (view: InstanceView): ViewChange => ({ view, look: undefined })
const to = (view: InstanceView, change: Partial<InstanceView>, look?: LookReason): ViewChange => ({
  view: { ...view, ...change },
  look,
})

const ____ = same

const connecting: Rule<NewsOf<'connecting'>> = (view) => to(view, { state: 'connecting' })

const connected: Rule<NewsOf<'connected'>> = (view, { generation, hasWatchers }) =>
  to(view, {
    ...FORGOTTEN,
    state: 'up',
    generation,
    watch: hasWatchers ? 'yes' : 'no',
    unknownReason: hasWatchers ? 'has not said whether it is writable' : 'has not been asked yet',
  })

const down: Rule<NewsOf<'connectFailed' | 'disconnected'>> = (view, { reason }) =>
  to(view, { ...FORGOTTEN, state: 'down', unknownReason: reason })

const noted: Rule<NewsOf<'badEvent'>> = (view) => to(view, { unknownReason: 'says nothing usable about itself' })

/** A claim may be older than the refusal whose fence is out. */
const mayClaim = (view: InstanceView, look?: number): boolean =>
  view.fence === undefined || (look !== undefined && look >= view.fence)

const statusRo: Rule<NewsOf<'status'>> = (view, { isLoading }) =>
  to(view, { ro: true, loading: isLoading, claimTermPending: false, heard: true, unknownReason: undefined })

const status: Rule<NewsOf<'status'>> = (view, news, context) => {
  if (news.isRo) return statusRo(view, news, context)
  if (!mayClaim(view)) return to(view, { heard: true })
  return to(view, {
    ro: false,
    loading: false,
    claimTermPending: true,
    heard: true,
    unknownReason: undefined,
    refused: false,
  })
}

/** The same claim delivered again: nothing new, and no election value will follow it. */
const statusAgain: Rule<NewsOf<'status'>> = (view, news, context) =>
  news.isRo ? statusRo(view, news, context) : same(view)

const election: Rule<NewsOf<'election'>> = (view, { isRo, term }) => {
  if (!isRo && !mayClaim(view)) return to(view, { term, heard: true })
  const staleAccepted = view.staleAccepted && view.term === term
  return to(view, {
    ro: isRo,
    term,
    claimTermPending: false,
    heard: true,
    unknownReason: undefined,
    staleAccepted,
    ...(isRo ? {} : { refused: false }),
  })
}

const poll: Rule<NewsOf<'poll'>> = (view, { look, isRo, term }) => {
  const known = {
    pollFailures: 0,
    heard: true,
    unknownReason: undefined,
    claimTermPending: false,
    ...(term === undefined ? {} : { term }),
  }
  const isFenceAnswer = view.fence !== undefined && look >= view.fence
  const fence = isFenceAnswer ? { fence: undefined } : {}
  if (isRo) return to(view, { ...known, ...fence, ro: true, ...(isFenceAnswer ? { refused: false } : {}) })
  if (look < view.pollFloor || !mayClaim(view, look)) return to(view, { pollFailures: 0 })
  return to(view, { ...known, ...fence, ro: false, refused: false })
}

const unknown: Rule<NewsOf<'pollFailed'>> = (view, { reason }) =>
  to(view, { ro: undefined, claimTermPending: false, pollFailures: view.pollFailures + 1, unknownReason: reason })

/** One missed poll does not depose a master; two in a row do. A live event value is worth more than a failed poll. */
const maybeUnknown: Rule<NewsOf<'pollFailed'>> = (view, news, context) => {
  if (view.watch === 'yes') return same(view)
  if (view.pollFailures + 1 >= MUTE_AFTER_FAILURES) return unknown(view, news, context)
  return to(view, { pollFailures: view.pollFailures + 1 })
}

const fence: Rule<NewsOf<'fence'>> = (view, { look, isRo, isLoading, term }) => {
  if (view.fence !== undefined && look < view.fence) return same(view)
  const answered = { fence: undefined, loading: isLoading, ...(term === undefined ? {} : { term }) }
  if (isRo === undefined)
    return to(view, {
      ...answered,
      ro: undefined,
      claimTermPending: false,
      refused: false,
      unknownReason: 'says nothing usable about itself',
    })
  return to(view, {
    ...answered,
    ro: isRo,
    claimTermPending: false,
    refused: false,
    heard: true,
    unknownReason: undefined,
  })
}

const stopping: Rule<NewsOf<'shutdown'>> = (view) => to(view, { stopping: true })
const silent: Rule<NewsOf<'pingOverdue'>> = (view) => to(view, { silent: true })
const alive: Rule<NewsOf<'answered'>> = (view) => (view.silent ? to(view, { silent: false }) : same(view))

/** Refused: every claim from now on must be younger than this moment. */
const fenced = (
  view: InstanceView,
  context: NewsContext,
  look: LookReason,
  change: Partial<InstanceView> = {},
): ViewChange => to(view, { refused: true, fence: context.nextLook, pollFloor: context.nextLook, ...change }, look)

const refused =
  (look: LookReason): Rule<NewsOf<'statementRefused' | 'notMaster'>> =>
  (view, _news, context) =>
    fenced(view, context, look)

const roUntilPolled: Rule<NewsOf<'statementRefused'>> = (view, _news, context) =>
  fenced(view, context, 'refused', { ro: true, unknownReason: undefined })

/** A claimant that refuses: once is a switch, three times in 10 s is a lie. One burst of refusals counts once. */
const refusedClaim =
  (look: LookReason): Rule<NewsOf<'statementRefused' | 'notMaster'>> =>
  (view, _news, context) =>
    refusedClaimWith(view, context, look)

function refusedClaimWith(view: InstanceView, context: NewsContext, look: LookReason): ViewChange {
  const { nowMs } = context
  if (view.refused) return fenced(view, context, look)
  const refusals = [...view.refusals.filter((atMs) => nowMs - atMs < LIAR_SPAN_MS), nowMs]
  const isLiar = refusals.length >= LIAR_REFUSALS
  const change = fenced(
    view,
    context,
    look,
    isLiar ? { refusals: [], liesUntilMs: nowMs + LIAR_PAUSE_MS } : { refusals },
  )
  return isLiar ? { ...change, isLiar } : change
}

const notReady: Rule<NewsOf<'notReady'>> = (view, { reason }, context) =>
  fenced(view, context, 'not ready', view.ro === undefined ? { unknownReason: reason } : {})

const claimNotReady: Rule<NewsOf<'notReady'>> = (view, _news, context) => refusedClaimWith(view, context, 'not ready')

/** At most one look per second: a procedure may raise this all day. */
const lookAtCode: Rule<NewsOf<'codeRefused'>> = (view, _news, { nowMs, nextLook }) =>
  nowMs - view.codeLookMs < CODE_LOOK_INTERVAL_MS
    ? same(view)
    : to(view, { codeLookMs: nowMs, fence: nextLook }, 'code')

const lookAtPending: Rule<NewsOf<'pendingOverdue'>> = (view, _news, { nextLook }) =>
  view.fence === undefined ? to(view, { fence: nextLook }, 'pending') : same(view)

const lookAgain: Rule<NewsOf<'lookOverdue'>> = (view, _news, { nextLook }) =>
  view.fence === undefined
    ? same(view)
    : to(view, { fence: nextLook, pollFloor: view.refused ? nextLook : view.pollFloor }, 'repeat')

/** The operator knows; the look behind it finds out if not. */
const announced: Rule<NewsOf<'announced'>> = (view) =>
  to(
    view,
    {
      ro: false,
      claimTermPending: false,
      refused: false,
      fence: undefined,
      unknownReason: undefined,
      liesUntilMs: Number.NEGATIVE_INFINITY,
    },
    'announced',
  )

const configured: Rule<NewsOf<'configuredMaster'>> = (view, { is }) => to(view, { configuredMaster: is })
const identified: Rule<NewsOf<'identified'>> = (view, { problem }) =>
  view.misidentified === problem ? same(view) : to(view, { misidentified: problem })
const staleAccepted: Rule<NewsOf<'staleAccepted'>> = (view) => to(view, { staleAccepted: true })

/** What user code or a dialect says of a legacy instance is a reason to poll it; of others, to send a fence. The shell knows which. */
// prettier-ignore
const RULES: { readonly [T in InstanceNews['type']]: Row<T> } = {
  //                 DOWN        CONNECTING  LEGACY         MUTE           RO                    RW                          RW_PENDING
  connecting:       [connecting, ____,       ____,          ____,          ____,                 ____,                       ____],
  connected:        [connected,  connected,  connected,     connected,     connected,            connected,                  connected],
  connectFailed:    [down,       down,       ____,          ____,          ____,                 ____,                       ____],
  disconnected:     [____,       down,       down,          down,          down,                 down,                       down],
  badEvent:         [____,       ____,       ____,          noted,         ____,                 ____,                       ____],
  status:           [____,       ____,       ____,          status,        status,               statusAgain,                status],
  election:         [____,       ____,       ____,          election,      election,             election,                   election],
  configuredMaster: [____,       ____,       ____,          configured,    configured,           configured,                 configured],
  poll:             [____,       ____,       poll,          poll,          poll,                 poll,                       poll],
  pollFailed:       [____,       ____,       unknown,       unknown,       maybeMute(unknown),   maybeUnknown,               maybeUnknown],
  fence:            [____,       ____,       fence,         fence,         fence,                fence,                      fence],
  shutdown:         [____,       ____,       ____,          stopping,      stopping,             stopping,                   stopping],
  pingOverdue:      [____,       ____,       silent,        silent,        silent,               silent,                     silent],
  answered:         [____,       ____,       alive,         alive,         alive,                alive,                      alive],
  statementRefused: [____,       ____,       roUntilPolled, refused('refused'),    refused('refused'),    refusedClaim('refused'),    refused('refused')],
  notMaster:        [____,       ____,       refused('not master'), refused('not master'), refused('not master'), refusedClaim('not master'), refused('not master')],
  notReady:         [____,       ____,       notReady,      notReady,      notReady,             claimNotReady,              notReady],
  codeRefused:      [____,       ____,       lookAtCode,    lookAtCode,    ____,                 lookAtCode,                 lookAtCode],
  pendingOverdue:   [____,       ____,       ____,          ____,          ____,                 ____,                       lookAtPending],
  lookOverdue:      [____,       ____,       lookAgain,     lookAgain,     lookAgain,            lookAgain,                  lookAgain],
  announced:        [____,       ____,       announced,     announced,     announced,            announced,                  announced],
  identified:       [identified, identified, identified,    identified,    identified,           identified,                 identified],
  staleAccepted:    [____,       ____,       ____,          ____,          ____,                 staleAccepted,              ____],
}

/** A live event value outlives a failed poll here too. */
function maybeMute(rule: Rule<NewsOf<'pollFailed'>>): Rule<NewsOf<'pollFailed'>> {
  return (view, news, context) => (view.watch === 'yes' ? same(view) : rule(view, news, context))
}

/** Polls that tell nothing, in a row, before a legacy instance's role counts as unknown. */
const MUTE_AFTER_FAILURES = 2
const LIAR_REFUSALS = 3
const LIAR_SPAN_MS = 10_000
const LIAR_PAUSE_MS = 5_000
const CODE_LOOK_INTERVAL_MS = 1_000
