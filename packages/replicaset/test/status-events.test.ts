import { Uuid } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import {
  readBoxInfo,
  readConfiguredMaster,
  readElection,
  readIdentity,
  readShutdown,
  readStatus,
  readUpstreams,
} from '../src/status-events.js'

/** What servers say before they are configured, and what is no value of these keys at all. */
const NOTHINGS: readonly unknown[] = [
  undefined,
  null,
  {},
  [],
  new Map(),
  1,
  true,
  'running',
  { is_ro: 'false' },
  { is_ro: 0 },
  { is_ro: null },
]

describe('values that say nothing', () => {
  it.each(NOTHINGS.map((value) => [value]))('%j is neither status nor election nor poll', (value) => {
    expect(readStatus(value)).toBeUndefined()
    expect(readElection(value)).toBeUndefined()
    expect(readBoxInfo(value)).toBeUndefined()
    expect(readUpstreams(value)).toEqual([])
    expect(readConfiguredMaster(value)).toBeUndefined()
    expect(readIdentity(value)).toBeUndefined()
  })
})

it.each([
  [
    { is_ro: false, is_ro_cfg: false, status: 'running' },
    { isRo: false, status: 'running', isLoading: false },
  ],
  [
    { is_ro: true, is_ro_cfg: false, status: 'running' },
    { isRo: true, status: 'running', isLoading: false },
  ],
  [
    { is_ro: false, status: 'loading' },
    { isRo: true, status: 'loading', isLoading: true },
  ],
  [
    { is_ro: false, status: 'orphan' },
    { isRo: true, status: 'orphan', isLoading: false },
  ],
  [
    { is_ro: false, status: 'hot_standby' },
    { isRo: true, status: 'hot_standby', isLoading: false },
  ],
  [{ is_ro: false }, { isRo: false, status: undefined, isLoading: false }],
  [
    new Map<string, unknown>([
      ['is_ro', false],
      ['status', 'running'],
    ]),
    { isRo: false, status: 'running', isLoading: false },
  ],
])('reads the status %j', (value, want) => {
  expect(readStatus(value)).toEqual(want)
})

it.each([
  [
    { term: 3, is_ro: false, role: 'leader', leader: 2 },
    { term: 3, isRo: false, leader: 2 },
  ],
  [
    { term: 3, is_ro: true, role: 'leader', leader: 0 },
    { term: 3, isRo: true, leader: undefined },
  ],
  [
    { term: 1, is_ro: false },
    { term: 1, isRo: false, leader: undefined },
  ],
  [{ term: -1, is_ro: false }, undefined],
  [{ term: 1.5, is_ro: false }, undefined],
  [{ is_ro: false }, undefined],
])('reads the election %j', (value, want) => {
  expect(readElection(value)).toEqual(want)
})

it('a shutdown is the value true and nothing else', () => {
  expect([true, false, undefined, null, 1, {}].map(readShutdown)).toEqual([true, false, false, false, false, false])
})

it('reads who an instance is, uuids as text or as values', () => {
  const uuid = '11111111-2222-4333-8444-55555555aaaa'
  const want = { memberId: 2, instanceUuid: uuid, replicasetUuid: uuid, instanceName: 'a' }
  expect(
    readIdentity({
      id: 2,
      instance_uuid: Uuid.from(uuid),
      replicaset_uuid: uuid.toUpperCase(),
      instance_name: 'a',
      replicaset_name: null,
    }),
  ).toEqual(want)
})

it('reads box.info of 2.6 (no election) and of 3.2', () => {
  const uuid = '11111111-2222-4333-8444-55555555aaaa'
  expect(readBoxInfo({ ro: false, status: 'running', uuid, cluster: { uuid }, id: 1 })).toEqual({
    isRo: false,
    term: undefined,
    identity: { memberId: 1, instanceUuid: uuid, replicasetUuid: uuid, instanceName: undefined },
  })
  expect(
    readBoxInfo({ ro: true, status: 'running', uuid, replicaset: { uuid }, election: { term: 4 }, name: 'a' }),
  ).toMatchObject({ isRo: true, term: 4, identity: { replicasetUuid: uuid, instanceName: 'a' } })
  expect(readBoxInfo({ ro: false, status: 'orphan' })?.isRo).toBe(true)
})

it('reads how far an instance is behind, from a list or a map', () => {
  const uuid = '11111111-2222-4333-8444-55555555aaaa'
  const me = { id: 1, uuid: '21111111-2222-4333-8444-55555555aaaa' }
  const other = { id: 2, uuid, upstream: { status: 'follow', lag: 0.25, idle: 0.1 } }
  const want = [
    { uuid: me.uuid, status: undefined, lagMs: undefined },
    { uuid, status: 'follow', lagMs: 250 },
  ]
  expect(readUpstreams({ replication: [me, other] })).toEqual(want)
  expect(
    readUpstreams({
      replication: new Map<number, unknown>([
        [1, me],
        [2, other],
      ]),
    }),
  ).toEqual(want)
  expect(readUpstreams({ replication: { 1: { uuid: null }, 2: 'odd' } })).toEqual([])
})
