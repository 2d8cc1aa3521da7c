/** Clients of one Tarantool. */
import type { CaseBase, SubjectName, Target } from './bench-case.js'

/** One request, as every client can make it. */
export type WireOperation = 'select' | 'replace' | 'call' | 'rows100' | 'rows300'

export interface WireCase extends CaseBase {
  readonly kind: 'wire'
  readonly operation: WireOperation
  readonly inFlight: number
}

const CLIENTS: readonly SubjectName[] = ['orbweaver', 'tarantool-driver', 'raw socket']

const OPERATION_WORDS: Readonly<Record<WireOperation, string>> = {
  select: 'select by primary key',
  replace: 'replace a row of 10 fields',
  call: 'call a Lua function of two arguments',
  rows100: 'select 100 rows',
  rows300: 'select 300 rows',
}

const wire = (operation: WireOperation, inFlight: number): WireCase => {
  const id = `${operation}@${inFlight}`
  return {
    kind: 'wire',
    id,
    words: `${OPERATION_WORDS[operation]}, ${inFlight} in flight`,
    operation,
    inFlight,
    subjects: CLIENTS,
    targets: TARGETS[id] ?? SHOWN,
  }
}

const SHOWN: readonly Target[] = [
  { metric: 'cpu', of: 'tarantool-driver' },
  { metric: 'rps', of: 'tarantool-driver' },
  { metric: 'cpu', of: 'raw socket' },
]
const TO_BE_LIGHT: readonly Target[] = [
  { metric: 'cpu', of: 'tarantool-driver', must: 0.3, aim: 0.18 },
  ...SHOWN.slice(1),
]
const LARGE_REPLIES: readonly Target[] = [
  { metric: 'cpu', of: 'tarantool-driver', must: 0.3, aim: 0.2 },
  ...SHOWN.slice(1),
]

const TARGETS: Readonly<Record<string, readonly Target[]>> = {
  'select@16': TO_BE_LIGHT,
  'call@16': TO_BE_LIGHT,
  'select@256': [
    { metric: 'cpu', of: 'tarantool-driver', must: 0.3, aim: 0.2 },
    { metric: 'rps', of: 'tarantool-driver' },
    // The target names a C client that decodes nothing; the raw socket is within 5 % of one.
    { metric: 'rps', of: 'raw socket', must: 0.25, aim: 0.33 },
  ],
  'rows100@1': LARGE_REPLIES,
  'rows100@16': LARGE_REPLIES,
}

export const WIRE_CASES: readonly WireCase[] = [
  ...(['select', 'replace', 'call'] as const).flatMap((operation) =>
    [1, 16, 256].map((depth) => wire(operation, depth)),
  ),
  wire('rows100', 1),
  wire('rows100', 16),
  wire('rows300', 64),
  {
    ...wire('select', 10_000),
    id: 'timeouts@10000',
    words: 'select by primary key, 10,000 in flight, each with a timeout of its own or none',
    subjects: ['orbweaver, a timeout each', 'orbweaver, no timeout'],
    targets: [{ metric: 'cpu', of: 'orbweaver, no timeout', must: 1.05, aim: 1.01 }],
  },
  ...[16, 256].map((depth): WireCase => ({
    ...wire('call', depth),
    id: `replicaset@${depth}`,
    words: `callrw through a replicaset beside call of the bare connection, ${depth} in flight`,
    subjects: ['replicaset', 'connection'],
    targets: [
      { metric: 'cpu', of: 'connection', must: 1.1, aim: 1.05 },
      { metric: 'rps', of: 'connection' },
    ],
  })),
]
