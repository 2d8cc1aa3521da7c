import type { BodyReader } from '../body-reader.js'
import { Key, RequestType } from '../constants.js'
import type { BodyWriter } from '../msgpack/body-writer.js'
import { type Vclock, vclockOf, writeVclock } from '../replication/vclock.js'
import { bareRequest, type Request } from './request.js'

/* Replication: requests that turn a connection into a stream of rows (row.ts). Source: Tarantool src/box/xrow.c
 *   JOIN (65)            0x24 INSTANCE_UUID str, 0x5d INSTANCE_NAME str, 0x06 SERVER_VERSION uint
 *   SUBSCRIBE (66)       0x25 REPLICASET_UUID str, 0x5c REPLICASET_NAME str, 0x24 INSTANCE_UUID str, 0x5d INSTANCE_NAME str,
 *                        0x26 VCLOCK map, 0x06 SERVER_VERSION uint, 0x50 REPLICA_ANON bool, 0x51 ID_FILTER array of uint;
 *                        0x53 TERM uint between embedded storages (servers skip what they do not know)
 *   REGISTER (70)        0x24 INSTANCE_UUID str, 0x5d INSTANCE_NAME str, 0x26 VCLOCK map
 *   FETCH_SNAPSHOT (69)  0x06 SERVER_VERSION uint
 *   VOTE (68)            nothing; the answer is a ballot
 * Answer to SUBSCRIBE: 0x25 REPLICASET_UUID str, 0x5c REPLICASET_NAME str, 0x26 VCLOCK map; then rows. Between them the relay sends
 * heartbeats {0x5a VCLOCK_SYNC uint}, and the applier acknowledges with {0x26 VCLOCK map, 0x53 TERM uint, 0x5a VCLOCK_SYNC uint}; both are
 * rows of type OK. */

/** JOIN: a new instance asks for everything. */
export interface JoinOptions {
  readonly instanceUuid: string
  readonly instanceName?: string
  /** See {@link packVersion}. */
  readonly version?: number
}

export function joinRequest(options: JoinOptions): Request {
  return replicationRequest(RequestType.join, options)
}

/** @throws BoxError 20 or 69 when a field is of another kind or missing */
export function readJoin(body: BodyReader): JoinOptions {
  return {
    instanceUuid: body.requireText(Key.instanceUuid),
    ...optional('instanceName', body.text(Key.instanceName)),
    ...optional('version', body.uint(Key.serverVersion)),
  }
}

/** SUBSCRIBE: an instance asks for all rows behind its vclock. */
export interface SubscribeOptions {
  readonly replicasetUuid: string
  readonly replicasetName?: string
  readonly instanceUuid: string
  readonly instanceName?: string
  readonly vclock: Vclock
  /** See {@link packVersion}. */
  readonly version?: number
  readonly isAnonymous?: boolean
  /** Replica ids whose rows are not wanted. */
  readonly idFilter?: readonly number[]
  /** The term the subscriber is in; servers tell that in a row of its own and skip it here. */
  readonly term?: number
}

export function subscribeRequest(options: SubscribeOptions): Request {
  return replicationRequest(RequestType.subscribe, options)
}

/** @throws BoxError 20 or 69 when a field is of another kind or missing, MalformedFrameError when the vclock is none */
export function readSubscribe(body: BodyReader): SubscribeOptions {
  const filter = body.array(Key.idFilter)
  return {
    replicasetUuid: body.requireText(Key.replicasetUuid),
    ...optional('replicasetName', body.text(Key.replicasetName)),
    instanceUuid: body.requireText(Key.instanceUuid),
    ...optional('instanceName', body.text(Key.instanceName)),
    vclock: vclockOf(body.value(Key.vclock)),
    ...optional('version', body.uint(Key.serverVersion)),
    ...optional('isAnonymous', body.bool(Key.replicaAnon)),
    ...optional('idFilter', filter?.map(Number)),
    ...optional('term', body.uint(Key.term)),
  }
}

/** REGISTER: an anonymous instance asks for an id. */
export interface RegisterOptions {
  readonly instanceUuid: string
  readonly instanceName?: string
  readonly vclock: Vclock
}

export function registerRequest(options: RegisterOptions): Request {
  return replicationRequest(RequestType.register, options)
}

/** FETCH_SNAPSHOT: everything, without joining. */
export function fetchSnapshotRequest(options: { readonly version?: number } = {}): Request {
  return replicationRequest(RequestType.fetchSnapshot, options)
}

/** VOTE: asks for the ballot. */
export function voteRequest(): Request {
  return bareRequest(RequestType.vote, 'session')
}

/** What answers SUBSCRIBE, before the rows. */
export interface SubscribeReply {
  readonly replicasetUuid: string
  readonly replicasetName?: string
  /** Of the instance that will send rows. */
  readonly vclock: Vclock
}

/** Writes the body of the answer to SUBSCRIBE; `{vclock}` alone starts the phases of JOIN. */
export function writeVclockReply(out: BodyWriter, reply: { readonly vclock: Vclock } | SubscribeReply): void {
  writeFields(out, reply)
}

/** @throws BoxError 20 or 69 when a field is of another kind or missing, MalformedFrameError when the vclock is none */
export function readSubscribeReply(body: BodyReader): SubscribeReply {
  return {
    replicasetUuid: body.requireText(Key.replicasetUuid),
    ...optional('replicasetName', body.text(Key.replicasetName)),
    vclock: vclockOf(body.value(Key.vclock)),
  }
}

/** What an applier acknowledges with. */
export interface ApplierHeartbeat {
  readonly vclock: Vclock
  readonly term: number
  /** The number from the relay's last heartbeat that this answers, 0 for none. */
  readonly vclockSync: number
}

/** Body of an acknowledgement, in a row of type OK. */
export function writeApplierHeartbeat(out: BodyWriter, heartbeat: ApplierHeartbeat): void {
  out.mapHeader(heartbeat.vclockSync === 0 ? 2 : 3)
  out.uint(Key.vclock)
  writeVclock(out, heartbeat.vclock)
  out.uint(Key.term)
  out.uint(heartbeat.term)
  if (heartbeat.vclockSync === 0) return
  out.uint(Key.vclockSync)
  out.uint(heartbeat.vclockSync)
}

/** @throws MalformedFrameError when the vclock is none */
export function readApplierHeartbeat(body: BodyReader): ApplierHeartbeat {
  return {
    vclock: vclockOf(body.value(Key.vclock)),
    term: body.uint(Key.term) ?? 0,
    vclockSync: body.uint(Key.vclockSync) ?? 0,
  }
}

/** Body of a relay's heartbeat, in a row of type OK: nothing when the number is 0. */
export function writeRelayHeartbeat(out: BodyWriter, vclockSync: number): void {
  if (vclockSync === 0) return
  out.mapHeader(1)
  out.uint(Key.vclockSync)
  out.uint(vclockSync)
}

/** `2.11.3` as servers put it into SERVER_VERSION: 65536 * major + 256 * minor + patch. */
export function packVersion(major: number, minor: number, patch: number): number {
  return (major << 16) | (minor << 8) | patch
}

type ReplicationFields = Partial<SubscribeOptions>

function replicationRequest(type: number, fields: ReplicationFields): Request {
  return { type, requestClass: 'session', writeBody: (out) => writeFields(out, fields) }
}

/** In the order in which servers write them. */
function writeFields(out: BodyWriter, fields: ReplicationFields): void {
  const { vclock, version, isAnonymous, idFilter, term } = fields
  const texts = [
    [Key.replicasetUuid, fields.replicasetUuid],
    [Key.replicasetName, fields.replicasetName],
    [Key.instanceUuid, fields.instanceUuid],
    [Key.instanceName, fields.instanceName],
  ] as const
  const present = [...texts.map(([, text]) => text), vclock, version, isAnonymous, idFilter, term]
  out.mapHeader(present.filter((field) => field !== undefined).length)
  for (const [key, text] of texts) {
    if (text === undefined) continue
    out.uint(key)
    out.text(text)
  }
  if (vclock !== undefined) {
    out.uint(Key.vclock)
    writeVclock(out, vclock)
  }
  if (version !== undefined) {
    out.uint(Key.serverVersion)
    out.uint(version)
  }
  if (isAnonymous !== undefined) {
    out.uint(Key.replicaAnon)
    out.bool(isAnonymous)
  }
  if (idFilter !== undefined) {
    out.uint(Key.idFilter)
    out.value(idFilter, 'idFilter')
  }
  if (term !== undefined) {
    out.uint(Key.term)
    out.uint(term)
  }
}

function optional<Name extends string, T>(name: Name, value: T | undefined): { [Key in Name]?: T } {
  return (value === undefined ? {} : { [name]: value }) as { [Key in Name]?: T }
}
