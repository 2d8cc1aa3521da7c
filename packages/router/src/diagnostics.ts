/**
 * What a router tells the outside through `node:diagnostics_channel`. No object is made for a channel without subscribers;
 * arguments and answers never appear, since they may hold user data.
 */
import { channel, type Channel, tracingChannel, type TracingChannel } from 'node:diagnostics_channel'
import type { LogRecord } from '@orbweaver/connection'
import type { OrbweaverError } from '@orbweaver/iproto'
import type { CallMode } from '@orbweaver/replicaset'
import type { RoutesChange } from './events.js'

/** Names of the channels this package publishes to. */
export const CHANNELS = {
  /** Tracing channel: each call of a function on a bucket, with a `CallTrace`. */
  call: 'orbweaver:router:call',
  /** Tracing channel: each map-reduce, with a `MapTrace`. */
  map: 'orbweaver:router:map',
  /** Plain channel: each new table of routes, with a `RoutesChange`. */
  routes: 'orbweaver:router:routes',
  /** Plain channel, shared by all packages: a `LogRecord`. */
  log: 'orbweaver:log',
} as const

/** What subscribers of `orbweaver:router:call` get; one object per call, from its start to its end. */
export interface CallTrace {
  /** Name of the router. */
  readonly router: string
  readonly mode: CallMode
  readonly bucketId: number
  readonly function: string
  /** At the end: whom it asked last, if anybody. */
  replicaset?: string | undefined
  instance?: string | undefined
  /** At the end: times it was sent. */
  tries?: number
  /** At the end, after a failure. */
  error?: OrbweaverError
}

/** What subscribers of `orbweaver:router:map` get; one object per map, from its start to its end. */
export interface MapTrace {
  readonly router: string
  readonly kind: 'mapCallrw' | 'mapCallro'
  readonly function: string
  /** At the end, after a success: how many replicasets answered. */
  replicasets?: number
  /** At the end, after a failure. */
  error?: unknown
}

const callChannel: TracingChannel<unknown, CallTrace> = tracingChannel(CHANNELS.call)
const mapChannel: TracingChannel<unknown, MapTrace> = tracingChannel(CHANNELS.map)
const routesChannel: Channel = channel(CHANNELS.routes)
const logChannel: Channel = channel(CHANNELS.log)

/** Tells the start of a call; undefined when nobody listens. */
export function traceCall(router: string, mode: CallMode, bucketId: number, name: string): CallTrace | undefined {
  if (!callChannel.hasSubscribers) return undefined
  const trace: CallTrace = { router, mode, bucketId, function: name }
  callChannel.start.publish(trace)
  callChannel.end.publish(trace)
  return trace
}

/** Tells the end of a call. */
export function traceCallEnd(trace: CallTrace, error: OrbweaverError | undefined): void {
  if (error !== undefined) {
    trace.error = error
    callChannel.error.publish(trace)
  }
  callChannel.asyncStart.publish(trace)
  callChannel.asyncEnd.publish(trace)
}

/** Tells the start of a map, and its end when it is there. */
export function traceMap<T extends ReadonlyMap<string, unknown>>(
  router: string,
  kind: MapTrace['kind'],
  name: string,
  work: () => Promise<T>,
): Promise<T> {
  if (!mapChannel.hasSubscribers) return work()
  const trace: MapTrace = { router, kind, function: name }
  mapChannel.start.publish(trace)
  const whole = work()
  mapChannel.end.publish(trace)
  const ended = (): void => {
    mapChannel.asyncStart.publish(trace)
    mapChannel.asyncEnd.publish(trace)
  }
  return whole.then(
    (results) => {
      trace.replicasets = results.size
      ended()
      return results
    },
    (error: unknown) => {
      trace.error = error
      mapChannel.error.publish(trace)
      ended()
      throw error
    },
  )
}

export function publishRoutes(change: RoutesChange): void {
  if (routesChannel.hasSubscribers) routesChannel.publish(change)
}

/**
 * Publishes a log record, made only when somebody listens.
 * @param router - name of the router it is about
 */
export function log(
  level: LogRecord['level'],
  router: string,
  event: string,
  fields: () => Readonly<Record<string, unknown>>,
): void {
  if (!logChannel.hasSubscribers) return
  const record: LogRecord = { ...fields(), level, package: 'router', event, router }
  logChannel.publish(record)
}
