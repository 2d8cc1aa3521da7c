/**
 * What a replicaset tells the outside through `node:diagnostics_channel`. No object is made for a channel without
 * subscribers; arguments and answers never appear, since they may hold user data.
 */
import { channel, type Channel, tracingChannel, type TracingChannel } from 'node:diagnostics_channel'
import type { LogRecord } from '@orbweaver/connection'
import type { OrbweaverError } from '@orbweaver/iproto'
import type { CallMode } from './attempt.js'

/** Names of the channels this package publishes to. */
export const CHANNELS = {
  /** Tracing channel: each call made with the methods of a replicaset, with a `CallTrace`. */
  call: 'orbweaver:replicaset:call',
  /** Plain channel: each change of the master, with a `MasterChange`. */
  master: 'orbweaver:replicaset:master',
  /** Plain channel: each window that ended, with a `WindowEvent`. */
  window: 'orbweaver:replicaset:window',
  /** Plain channel, shared by all packages: a `LogRecord`. */
  log: 'orbweaver:log',
} as const

/** What subscribers of `orbweaver:replicaset:call` get; one object per call, from its start to its end. */
export interface CallTrace {
  readonly replicaset: string
  readonly mode: CallMode
  /** Request type on the wire, see `RequestType`. */
  readonly type: number
  /** At the end: who answered last, if anybody was asked. */
  instance?: string | undefined
  /** At the end, after a failure. */
  error?: OrbweaverError
}

const callChannel: TracingChannel<unknown, CallTrace> = tracingChannel(CHANNELS.call)
const masterChannel: Channel = channel(CHANNELS.master)
const windowChannel: Channel = channel(CHANNELS.window)
const logChannel: Channel = channel(CHANNELS.log)

/** Tells the start of a call; undefined when nobody listens. */
export function traceCall(replicaset: string, mode: CallMode, type: number): CallTrace | undefined {
  if (!callChannel.hasSubscribers) return undefined
  const { start, end } = callChannel
  const trace: CallTrace = { replicaset, mode, type }
  start.publish(trace)
  end.publish(trace)
  return trace
}

/** Tells the end of a call. */
export function traceEnd(trace: CallTrace, instance: string | undefined, error: OrbweaverError | undefined): void {
  trace.instance = instance
  if (error !== undefined) {
    trace.error = error
    callChannel.error.publish(trace)
  }
  callChannel.asyncStart.publish(trace)
  callChannel.asyncEnd.publish(trace)
}

export function publishMaster(change: object): void {
  if (masterChannel.hasSubscribers) masterChannel.publish(change)
}

export function publishWindow(event: object): void {
  if (windowChannel.hasSubscribers) windowChannel.publish(event)
}

/** Publishes a log record, made only when somebody listens. */
export function log(level: LogRecord['level'], event: string, fields: () => Readonly<Record<string, unknown>>): void {
  if (!logChannel.hasSubscribers) return
  const record: LogRecord = { ...fields(), level, package: 'replicaset', event }
  logChannel.publish(record)
}
