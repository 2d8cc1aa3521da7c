/**
 * What a storage tells the outside through `node:diagnostics_channel`. No object is made for a channel without subscribers;
 * arguments, tuples and answers never appear, since they may hold user data.
 */
import { channel, type Channel, tracingChannel, type TracingChannel } from 'node:diagnostics_channel'
import type { LogRecord } from '@orbweaver/connection'
import type { BoxError } from '@orbweaver/iproto'
import type { BucketStatus } from './vshard/bucket-record.js'

/** Names of the channels this package publishes to. */
export const CHANNELS = {
  /** Tracing channel: each request of a client that reads, writes or calls, with a `RequestTrace`. */
  request: 'orbweaver:storage:request',
  /** Plain channel: each change of a bucket's record, with a `BucketChange`. */
  bucket: 'orbweaver:storage:bucket',
  /** Plain channel: each change of the role of an instance, with a `RoleChange`. */
  role: 'orbweaver:storage:role',
  /** Plain channel, shared by all packages: a `LogRecord`. */
  log: 'orbweaver:log',
} as const

/** What subscribers of `orbweaver:storage:request` get; one object per request, from its start to its end. */
export interface RequestTrace {
  /** Name of the storage. */
  readonly storage: string
  readonly session: number
  readonly user: string
  /** Request type on the wire, see `RequestType`. */
  readonly type: number
  readonly streamId: number | bigint
  /** Name of the function of a CALL. */
  function?: string
  /** At the end, after a failure. */
  error?: BoxError
}

/** What subscribers of `orbweaver:storage:bucket` get. */
export interface BucketChange {
  readonly storage: string
  readonly bucketId: number
  /** Status before; undefined: it was not here. */
  readonly from: BucketStatus | undefined
  /** Status now; undefined: it is not here any more. */
  readonly to: BucketStatus | undefined
  /** The other replicaset of a move. */
  readonly destination: string | undefined
  /** Counts the sends of the bucket. */
  readonly generation: number
}

/** What subscribers of `orbweaver:storage:role` get. */
export interface RoleChange {
  readonly storage: string
  readonly status: 'running' | 'loading'
  readonly role: 'leader' | 'follower'
  readonly isReadonly: boolean
  readonly term: number
  /** Number of the instance that was promoted last, 0 when nobody was. */
  readonly leader: number
}

const requestChannel: TracingChannel<unknown, RequestTrace> = tracingChannel(CHANNELS.request)
const bucketChannel: Channel = channel(CHANNELS.bucket)
const roleChannel: Channel = channel(CHANNELS.role)
const logChannel: Channel = channel(CHANNELS.log)

/** Whether anybody hears the start or the end of a request. */
export function isRequestTraced(): boolean {
  return requestChannel.hasSubscribers
}

/** Tells the start of a request. */
export function traceRequest(trace: RequestTrace): RequestTrace {
  requestChannel.start.publish(trace)
  requestChannel.end.publish(trace)
  return trace
}

/** Tells the end of a request, before its answer leaves. */
export function traceAnswer(trace: RequestTrace, error: BoxError | undefined): void {
  if (error !== undefined) {
    trace.error = error
    requestChannel.error.publish(trace)
  }
  requestChannel.asyncStart.publish(trace)
  requestChannel.asyncEnd.publish(trace)
}

export function isBucketHeard(): boolean {
  return bucketChannel.hasSubscribers
}

export function publishBucket(change: BucketChange): void {
  bucketChannel.publish(change)
}

/** The storage holds the change anyway: it compares the next one with it. */
export function publishRole(change: RoleChange): void {
  if (roleChannel.hasSubscribers) roleChannel.publish(change)
}

/**
 * Publishes a log record, made only when somebody listens.
 * @param storage - name of the storage it is about
 */
export function log(
  level: LogRecord['level'],
  storage: string,
  event: string,
  fields: () => Readonly<Record<string, unknown>>,
): void {
  if (!logChannel.hasSubscribers) return
  const record: LogRecord = { ...fields(), level, package: 'storage', event, storage }
  logChannel.publish(record)
}
