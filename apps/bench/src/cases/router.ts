/** Routers in front of two replicasets of real storages, and how long a router needs to know where every bucket is. */
import type { CaseBase, Target } from './bench-case.js'

export interface RouterCase extends CaseBase {
  readonly kind: 'router'
  readonly operation: 'callrw' | 'map' | 'discovery'
  readonly inFlight: number
  readonly bucketCount: number
}

const WORDS: Readonly<Record<'callrw' | 'map', string>> = {
  callrw: 'callrw of a small function on two replicasets',
  map: 'map-reduce of a small function over two replicasets',
}

function calls(operation: 'callrw' | 'map', inFlight: number, targets: readonly Omit<Target, 'of'>[]): RouterCase {
  return {
    kind: 'router',
    id: `router-${operation}@${inFlight}`,
    words: `${WORDS[operation]}, ${inFlight} in flight`,
    operation,
    inFlight,
    bucketCount: 3_000,
    subjects: operation === 'callrw' ? ['router', 'Lua router', 'connection'] : ['router', 'Lua router'],
    targets: [
      ...targets.map((target): Target => ({ ...target, of: 'Lua router' })),
      ...(operation === 'callrw' ? [{ metric: 'rps' as const, of: 'connection' as const }] : []),
    ],
  }
}

function discovery(bucketCount: number, must?: number): RouterCase {
  const words = `${bucketCount.toLocaleString('en')} buckets on two replicasets become known to a new router`
  return {
    kind: 'router',
    id: `discovery-${bucketCount}`,
    words,
    operation: 'discovery',
    inFlight: 1,
    bucketCount,
    subjects: ['router'],
    targets: [{ metric: 'p50', ...(must === undefined ? {} : { must, aim: 200 }) }],
    setUpSeconds: 60,
  }
}

const ONE: readonly Omit<Target, 'of'>[] = [{ metric: 'p50', must: 1.1, aim: 0.95 }, { metric: 'cpu' }]

export const ROUTER_CASES: readonly RouterCase[] = [
  calls('callrw', 1, ONE),
  calls('callrw', 16, [{ metric: 'rps' }, { metric: 'cpu' }]),
  calls('callrw', 256, [
    { metric: 'rps', must: 1.2, aim: 1.4 },
    { metric: 'cpu', must: 0.75, aim: 0.55 },
  ]),
  calls('map', 1, ONE),
  calls('map', 64, [
    { metric: 'rps', must: 1.6, aim: 2 },
    { metric: 'cpu', must: 0.5, aim: 0.3 },
  ]),
  discovery(30_000, 1_000),
  discovery(1_000_000),
]
