import { Key } from '../constants.js'
import { MalformedFrameError } from '../errors.js'
import type { BodyWriter } from '../msgpack/body-writer.js'
import { type Vclock, vclockOf, writeVclock } from './vclock.js'

/* BALLOT (0x29), answer to VOTE and value of the watched key `internal.ballot`. Source: Tarantool src/box/xrow.c, mp_encode_ballot
 *   1 is_ro_cfg bool, 2 vclock map, 3 gc_vclock map, 4 is_ro bool, 5 is_anon bool, 6 is_booted bool, 7 can_lead bool,
 *   8 bootstrap_leader_uuid str, 9 registered_replica_uuids array of str, 10 instance_name str
 * 2.6 sends 1 to 4 only, where 4 means "is loading" and 1 "is read-only". */

/** What an instance says of itself to those who look for a leader. */
export interface Ballot {
  readonly isReadOnlyConfigured: boolean
  readonly isReadOnly: boolean
  readonly isAnonymous: boolean
  readonly isBooted: boolean
  readonly vclock: Vclock
  /** Rows up to here may be gone from its journal. */
  readonly gcVclock: Vclock
  readonly canLead: boolean
  /** 36 characters, or undefined when it was not sent. */
  readonly bootstrapLeaderUuid: string | undefined
  readonly registeredReplicaUuids: readonly string[]
  readonly instanceName: string | undefined
}

/** Writes `{0x29: ballot}`: the body of the reply to VOTE, and the value of the watched key. */
export function writeBallot(out: BodyWriter, ballot: Ballot): void {
  out.mapHeader(1)
  out.uint(Key.ballot)
  out.mapHeader(ballot.instanceName === undefined ? 9 : 10)
  for (const [key, value] of [
    [IS_RO_CFG, ballot.isReadOnlyConfigured],
    [IS_RO, ballot.isReadOnly],
    [IS_ANON, ballot.isAnonymous],
    [IS_BOOTED, ballot.isBooted],
  ] as const) {
    out.uint(key)
    out.bool(value)
  }
  out.uint(VCLOCK)
  writeVclock(out, ballot.vclock)
  out.uint(GC_VCLOCK)
  writeVclock(out, ballot.gcVclock)
  out.uint(CAN_LEAD)
  out.bool(ballot.canLead)
  out.uint(BOOTSTRAP_LEADER_UUID)
  out.text(ballot.bootstrapLeaderUuid ?? NIL_UUID)
  if (ballot.instanceName !== undefined) {
    out.uint(INSTANCE_NAME)
    out.text(ballot.instanceName)
  }
  out.uint(REGISTERED_REPLICA_UUIDS)
  out.value(ballot.registeredReplicaUuids, 'registeredReplicaUuids')
}

/**
 * @param value - the decoded map `{0x29: ballot}`; missing fields get the defaults of a server that sends few
 * @throws MalformedFrameError when it is no ballot
 */
export function ballotOf(value: unknown): Ballot {
  const ballot = value instanceof Map ? (value.get(Key.ballot) as unknown) : undefined
  if (!(ballot instanceof Map)) throw new MalformedFrameError('A ballot is not a map')
  const fields = ballot as ReadonlyMap<unknown, unknown>
  const leader = fields.get(BOOTSTRAP_LEADER_UUID)
  const name = fields.get(INSTANCE_NAME)
  const registered = fields.get(REGISTERED_REPLICA_UUIDS)
  return {
    isReadOnlyConfigured: fields.get(IS_RO_CFG) === true,
    isReadOnly: fields.get(IS_RO) === true,
    isAnonymous: fields.get(IS_ANON) === true,
    isBooted: fields.get(IS_BOOTED) !== false,
    vclock: vclockOf(fields.get(VCLOCK) ?? {}),
    gcVclock: vclockOf(fields.get(GC_VCLOCK) ?? {}),
    canLead: fields.get(CAN_LEAD) === true,
    bootstrapLeaderUuid: typeof leader === 'string' && leader !== NIL_UUID ? leader : undefined,
    registeredReplicaUuids: Array.isArray(registered) ? registered.map(String) : [],
    instanceName: typeof name === 'string' ? name : undefined,
  }
}

const IS_RO_CFG = 1
const VCLOCK = 2
const GC_VCLOCK = 3
const IS_RO = 4
const IS_ANON = 5
const IS_BOOTED = 6
const CAN_LEAD = 7
const BOOTSTRAP_LEADER_UUID = 8
const REGISTERED_REPLICA_UUIDS = 9
const INSTANCE_NAME = 10
const NIL_UUID = '00000000-0000-0000-0000-000000000000'
