/*
 * What the proxy tells whoever listens, through `node:diagnostics_channel`. No object is made for a channel without
 * subscribers; nothing is printed, and no body, proof or hash ever appears.
 */
import { channel, type Channel, tracingChannel, type TracingChannel } from 'node:diagnostics_channel'
import type { LogRecord } from '@orbweaver/connection'
import type { FailoverStep } from './failover.js'

/** Names of the channels this package publishes to. */
export const CHANNELS = {
  /** Tracing channel: each request of a client that is sent to a target, with a `RequestTrace`. */
  request: 'orbweaver:proxy:request',
  /** Plain channel: each step of a change of the master, with a `FailoverMessage`. */
  failover: 'orbweaver:proxy:failover',
  /** Plain channel, shared by all packages: a `LogRecord`. */
  log: 'orbweaver:log',
} as const

/** What subscribers of `orbweaver:proxy:request` get; one object per request, from its sending to its end. */
export interface RequestTrace {
  readonly client: number
  readonly user: string
  readonly target: string
  /** Request type on the wire, see `RequestType`. */
  readonly type: number
  readonly streamId: number | bigint
  /** At the end: the code of the error that was answered, 0 for a success. */
  code?: number
  /** At the end: whether the target has not answered, so that nobody knows whether it was carried out. */
  isLost?: boolean
}

/** One step of a change of the master. */
export interface FailoverMessage {
  readonly step: FailoverStep
  readonly from: string | undefined
  readonly to: string
  readonly epoch: number
}

const requests: TracingChannel<unknown, RequestTrace> = tracingChannel(CHANNELS.request)
const failovers: Channel = channel(CHANNELS.failover)
const logs: Channel = channel(CHANNELS.log)

/** Whether anybody hears the start or the end of a request. */
export function isRequestTraced(): boolean {
  return requests.hasSubscribers
}

/** Tells that a request is sent. */
export function traceRequest(trace: RequestTrace): RequestTrace {
  requests.start.publish(trace)
  requests.end.publish(trace)
  return trace
}

/** Tells its end, before its answer leaves. */
export function traceAnswer(trace: RequestTrace, code: number, isLost: boolean): void {
  trace.code = code
  trace.isLost = isLost
  if (isLost) requests.error.publish(trace)
  requests.asyncStart.publish(trace)
  requests.asyncEnd.publish(trace)
}

export function publishFailover(message: FailoverMessage): void {
  if (failovers.hasSubscribers) failovers.publish(message)
  publishLog('info', 'failover', { ...message })
}

export function publishLog(level: LogRecord['level'], event: string, details: Readonly<Record<string, unknown>>): void {
  if (!logs.hasSubscribers) return
  const record: LogRecord = { ...details, level, package: 'proxy', event }
  logs.publish(record)
}
