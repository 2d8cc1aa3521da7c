/**
 * What a connection tells the outside through `node:diagnostics_channel`. No object is made for a channel without
 * subscribers; request arguments and answers never appear, since they may hold user data.
 */
import { channel, type Channel, tracingChannel, type TracingChannel } from 'node:diagnostics_channel'
import type { Executed, OrbweaverError, Reply } from '@orbweaver/iproto'
import type { ReplySink } from './pending.js'

/** Names of the channels this package publishes to. */
export const CHANNELS = {
  /** Tracing channel: each request, with a `RequestTrace`. */
  request: 'orbweaver:connection:request',
  /** Tracing channel: each attempt to connect, with a `ConnectTrace`. */
  connect: 'orbweaver:connection:connect',
  /** Plain channel, shared by all packages: a `LogRecord`. */
  log: 'orbweaver:log',
} as const

/** What subscribers of `orbweaver:connection:request` get; one object per request, from its start to its end. */
export interface RequestTrace {
  readonly peer: string
  /** Request type on the wire, see `RequestType`. */
  readonly type: number
  readonly streamId: number
  /** At the end, after a failure. */
  error?: OrbweaverError
  /** At the end. */
  executed?: Executed
}

/** What subscribers of `orbweaver:connection:connect` get; one object per attempt. */
export interface ConnectTrace {
  readonly peer: string
  /** 0 for the first attempt since the last stable connection. */
  readonly attempt: number
  error?: OrbweaverError
  /** At the end, after a success. */
  version?: string
}

/** What subscribers of `orbweaver:log` get. */
export interface LogRecord {
  readonly level: 'debug' | 'info' | 'warn' | 'error'
  readonly package: string
  readonly event: string
  readonly [field: string]: unknown
}

const requestChannel: TracingChannel<unknown, RequestTrace> = tracingChannel(CHANNELS.request)
const connectChannel: TracingChannel<unknown, ConnectTrace> = tracingChannel(CHANNELS.connect)
const logChannel: Channel = channel(CHANNELS.log)

export function isRequestTraced(): boolean {
  return requestChannel.hasSubscribers
}

/** Tells the start of a request; the returned sink passes its end on to the subscribers and to `sink`. */
export function traceRequest(trace: RequestTrace, sink: ReplySink): ReplySink {
  requestChannel.start.publish(trace)
  requestChannel.end.publish(trace)
  return new TracedSink(trace, sink)
}

class TracedSink implements ReplySink {
  readonly #trace: RequestTrace
  readonly #sink: ReplySink

  constructor(trace: RequestTrace, sink: ReplySink) {
    this.#trace = trace
    this.#sink = sink
  }

  done(reply: Reply): void {
    this.#trace.executed = 'yes'
    requestChannel.asyncStart.publish(this.#trace)
    this.#sink.done(reply)
    requestChannel.asyncEnd.publish(this.#trace)
  }

  failed(error: OrbweaverError): void {
    this.#trace.error = error
    this.#trace.executed = error.executed
    requestChannel.error.publish(this.#trace)
    requestChannel.asyncStart.publish(this.#trace)
    this.#sink.failed(error)
    requestChannel.asyncEnd.publish(this.#trace)
  }

  push(reply: Reply): void {
    this.#sink.push?.(reply)
  }
}

/** Tells the start of an attempt to connect; undefined when nobody listens. */
export function traceConnect(peer: string, attempt: number): ConnectTrace | undefined {
  if (!connectChannel.hasSubscribers) return undefined
  const trace: ConnectTrace = { peer, attempt }
  connectChannel.start.publish(trace)
  connectChannel.end.publish(trace)
  return trace
}

/** Tells the end of an attempt to connect. */
export function traceConnected(
  trace: ConnectTrace | undefined,
  outcome: { readonly version: string } | OrbweaverError,
): void {
  if (trace === undefined) return
  if (outcome instanceof Error) {
    trace.error = outcome
    connectChannel.error.publish(trace)
  } else {
    trace.version = outcome.version
  }
  connectChannel.asyncStart.publish(trace)
  connectChannel.asyncEnd.publish(trace)
}

/** Publishes a log record, made only when somebody listens. */
export function log(level: LogRecord['level'], event: string, fields: () => Readonly<Record<string, unknown>>): void {
  if (!logChannel.hasSubscribers) return
  const record: LogRecord = { ...fields(), level, package: 'connection', event }
  logChannel.publish(record)
}
