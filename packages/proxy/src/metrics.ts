/*
 * Metrics for Prometheus. Everything is read when it is asked for: from what the proxy counts anyway, and from the meters of its
 * targets, which are kept only when metrics may be asked for.
 */
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client'
import type { Counters } from './counters.js'
import { BOUNDS_MS, CLASSES, type Durations, type Meter, RESULTS, TYPES } from './meter.js'
import type { ProxyStats } from './stats.js'
import type { ClientStatus, LaneStatus } from './status.js'

/** What metrics are read from. */
export interface MetricsSource {
  readonly counters: Counters
  stats(): ProxyStats
  clients(): readonly ClientStatus[]
  lanes(): readonly LaneStatus[]
  meters(): Iterable<{ readonly target: string; readonly meter: Meter }>
}

/** What one scrape is answered with. */
export interface MetricsPage {
  readonly contentType: string
  readonly text: string
}

type Labels = Readonly<Record<string, string>>
type Sample = readonly [labels: Labels, value: number]

/** @returns gives a page with what is true at the moment it is called */
export function proxyMetrics(source: MetricsSource): () => Promise<MetricsPage> {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry })
  const gauge = (name: string, help: string, labelNames: string[], read: () => Iterable<Sample>): void => {
    const metric: Gauge = new Gauge({
      name: PREFIX + name,
      help,
      labelNames,
      registers: [registry],
      collect: () => {
        metric.reset()
        for (const [labels, value] of read()) metric.set(labels, value)
      },
    })
  }
  const counter = (name: string, help: string, labelNames: string[], read: () => Iterable<Sample>): void => {
    const metric: Counter = new Counter({
      name: PREFIX + name,
      help,
      labelNames,
      registers: [registry],
      collect: () => {
        metric.reset()
        for (const [labels, value] of read()) metric.inc(labels, value)
      },
    })
  }
  const tallied = (name: string, help: string, labelNames: string[]): void =>
    counter(name, help, labelNames, () =>
      source.counters.tally.of(name).map(({ labels, count }): Sample => [labels, count]),
    )
  describeGauges(source, gauge)
  describeCounters(source, counter, tallied)
  registry.registerMetric(
    new ReadHistogram('request_duration_seconds', 'From the lane to the reply', ['target', 'class'], () =>
      [...source.meters()].flatMap(({ target, meter }) =>
        CLASSES.map((name, i) => ({ labels: { target, class: name }, durations: meter.durations[i]! })),
      ),
    ),
  )
  registry.registerMetric(
    new ReadHistogram('queue_duration_seconds', 'From the arrival to the lane', ['target'], () =>
      [...source.meters()].map(({ target, meter }) => ({ labels: { target }, durations: meter.queued })),
    ),
  )
  return async () => ({ contentType: registry.contentType, text: await registry.metrics() })
}

type Describe = (name: string, help: string, labelNames: string[], read: () => Iterable<Sample>) => void

function describeGauges(source: MetricsSource, gauge: Describe): void {
  gauge('clients', 'Connected clients', ['state', 'user'], () =>
    grouped(source.clients(), ({ activity, user }) => ({ state: activity, user })),
  )
  gauge('pinned_clients', 'Clients with a connection of their own', ['reason'], () =>
    grouped(
      source.clients().filter(({ pin }) => pin !== undefined),
      ({ pin }) => ({ reason: pin ?? '' }),
    ),
  )
  gauge('lanes', 'Connections to targets', ['target', 'user', 'state'], () =>
    grouped(source.lanes(), ({ target, user, state }) => ({ target, user, state })),
  )
  gauge('streams_open', 'Streams that may hold a transaction', [], () => [
    [NONE, source.lanes().reduce((sum, { transactions }) => sum + transactions, 0)],
  ])
  gauge('inflight', 'Requests in flight', ['target'], () =>
    source.stats().targets.map(({ name, inFlight }): Sample => [{ target: name }, inFlight]),
  )
  gauge('inflight_bytes', 'Bytes of requests in flight', ['target'], () =>
    grouped(
      source.lanes(),
      ({ target }) => ({ target }),
      ({ inFlightBytes }) => inFlightBytes,
    ),
  )
  gauge('target_up', 'Whether the target is reached', ['target'], () =>
    source.stats().targets.map(({ name, state }): Sample => [{ target: name }, state === 'up' ? 1 : 0]),
  )
  gauge('target_is_ro', 'Whether the target says that it is read-only', ['target'], () =>
    source
      .stats()
      .targets.flatMap(({ name, isReadonly }): Sample[] =>
        isReadonly === undefined ? [] : [[{ target: name }, isReadonly ? 1 : 0]],
      ),
  )
  gauge('target_term', 'Term of the election as the target says', ['target'], () =>
    source
      .stats()
      .targets.flatMap(({ name, term }): Sample[] => (term === undefined ? [] : [[{ target: name }, term]])),
  )
  gauge('rw_target_info', 'The master', ['target'], () => {
    const { rw } = source.stats()
    return rw === undefined ? [] : [[{ target: rw }, 1]]
  })
  for (const [name, help, field] of NUMBERS) gauge(name, help, [], () => [[NONE, source.stats()[field]]])
}

function describeCounters(
  source: MetricsSource,
  counter: Describe,
  tallied: (name: string, help: string, labelNames: string[]) => void,
): void {
  for (const [name, help, labels] of TALLIED) tallied(name, help, [...labels])
  for (const [name, help, field] of TOTALS) counter(name, help, [], () => [[NONE, source.stats()[field]]])
  counter('requests_total', 'Requests sent to targets', ['type', 'target', 'class'], () =>
    byType(source, CLASSES, ({ requests }) => requests, 'class'),
  )
  counter('replies_total', 'Replies of targets', ['type', 'target', 'result'], () =>
    byType(source, RESULTS, ({ replies }) => replies, 'result'),
  )
}

function byType(
  source: MetricsSource,
  names: readonly string[],
  read: (meter: Meter) => Float64Array,
  label: string,
): Sample[] {
  const samples: Sample[] = []
  for (const { target, meter } of source.meters()) {
    const counts = read(meter)
    for (let type = 0; type < TYPES; type++) {
      for (const [i, name] of names.entries()) {
        const count = counts[type * names.length + i]!
        if (count > 0) samples.push([{ type: String(type), target, [label]: name }, count])
      }
    }
  }
  return samples
}

function grouped<T>(items: readonly T[], by: (item: T) => Labels, of: (item: T) => number = () => 1): Sample[] {
  const groups = new Map<string, { labels: Labels; sum: number }>()
  for (const item of items) {
    const labels = by(item)
    const key = JSON.stringify(labels)
    const group = groups.get(key)
    if (group === undefined) groups.set(key, { labels, sum: of(item) })
    else group.sum += of(item)
  }
  return [...groups.values()].map(({ labels, sum }): Sample => [labels, sum])
}

/** A histogram that is counted elsewhere. */
class ReadHistogram extends Histogram {
  readonly #name: string
  readonly #help: string
  readonly #read: () => readonly { readonly labels: Labels; readonly durations: Durations }[]

  constructor(
    name: string,
    help: string,
    labelNames: string[],
    read: () => readonly { readonly labels: Labels; readonly durations: Durations }[],
  ) {
    super({ name: PREFIX + name, help, labelNames, registers: [] })
    this.#name = PREFIX + name
    this.#help = help
    this.#read = read
  }

  /** What a registry asks for, and what the inherited `get` is made of. */
  getForPromString(): Promise<object> {
    const values = this.#read().flatMap(({ labels, durations }) => this.#values(labels, durations))
    return Promise.resolve({ name: this.#name, help: this.#help, type: 'histogram', aggregator: 'sum', values })
  }

  #values(labels: Labels, { counts, sumMs }: Durations): { metricName: string; labels: Labels; value: number }[] {
    let total = 0
    const buckets = [...counts].map((count, i) => {
      total += count
      const le = i < BOUNDS_MS.length ? String(BOUNDS_MS[i]! / 1_000) : '+Inf'
      return { metricName: `${this.#name}_bucket`, labels: { ...labels, le }, value: total }
    })
    return [
      ...buckets,
      { metricName: `${this.#name}_sum`, labels, value: sumMs / 1_000 },
      { metricName: `${this.#name}_count`, labels, value: total },
    ]
  }
}

const PREFIX = 'orbweaver_proxy_'
const NONE: Labels = {}
type NumberField = { [K in keyof ProxyStats]: ProxyStats[K] extends number ? K : never }[keyof ProxyStats]

const NUMBERS: readonly (readonly [name: string, help: string, field: NumberField])[] = [
  ['watch_keys', 'Keys that are watched', 'watchKeys'],
  ['watch_subscribers', 'Subscriptions of clients to keys', 'watchSubscriptions'],
  ['buffered_requests', 'Requests that wait for the master', 'buffered'],
  ['buffered_bytes', 'Bytes of such requests', 'bufferedBytes'],
  ['epoch', 'Changes of the master so far', 'epoch'],
]
const TOTALS: readonly (readonly [name: string, help: string, field: NumberField])[] = [
  ['synthesized_total', 'Requests answered with an error of the proxy itself', 'synthesized'],
  ['unknown_outcome_total', 'Of those, requests that may have been carried out', 'unknownOutcomes'],
  ['streams_broken_total', 'Streams that lost their transaction', 'streamsBroken'],
  ['statement_reprepares_total', 'Statements prepared again on another connection', 'statementReprepares'],
  ['slow_readers_closed_total', 'Clients closed because they did not read', 'slowReadersClosed'],
  ['events_total', 'Events delivered to clients', 'eventsDelivered'],
  ['unexpected_reply_total', 'Replies nobody had asked for', 'unexpectedReplies'],
  ['bounces_total', 'Calls sent again to another replicaset, or later', 'bounces'],
]
const TALLIED: readonly (readonly [name: string, help: string, labels: readonly string[]])[] = [
  ['client_connections_total', 'Accepted connections', ['result']],
  ['auth_total', 'Logins of clients', ['result', 'mode']],
  ['lane_opens_total', 'Connections opened to targets', ['target']],
  ['lane_closes_total', 'Connections to targets that have ended', ['target']],
  ['errors_total', 'Errors answered by the proxy itself', ['code', 'reason']],
  ['pins_total', 'Clients given a connection of their own', ['reason']],
  ['client_paused_total', 'Times a client was not read', ['reason']],
  ['failover_total', 'Changes of the master', ['outcome']],
]
