/** What is measured, with whom, and which ratios are asked for. */

/** Who is measured. Each runs in a process of its own. */
export type SubjectName =
  | 'orbweaver'
  | 'orbweaver, own buffer'
  | 'orbweaver, no timeout'
  | 'orbweaver, a timeout each'
  | 'tarantool-driver'
  | 'raw socket'
  | 'msgpackr'
  | 'msgpack-lite'

/** One request, as every client can make it. */
export type WireOperation = 'select' | 'replace' | 'call' | 'rows100' | 'rows300'

export interface WireCase {
  readonly kind: 'wire'
  readonly id: string
  readonly operation: WireOperation
  readonly inFlight: number
  readonly subjects: readonly SubjectName[]
}

export interface CodecCase {
  readonly kind: 'codec'
  readonly id: string
  readonly direction: 'decode' | 'encode'
  /** `frames`: each value in a slice of a received chunk, as replies arrive; `one`: the same buffer again and again. */
  readonly bytesIn: 'one' | 'frames'
  readonly rows: number
  readonly fields: 4 | 10
  readonly subjects: readonly SubjectName[]
}

export type BenchCase = WireCase | CodecCase

/** `cpu`: CPU time per request. `rps`: requests per second. `speed`: the inverse of CPU time. */
export type Metric = 'cpu' | 'rps' | 'speed'

/** A ratio of the first subject to another one, and what it must be. `cpu` is to be low, `rps` and `speed` high. */
export interface Target {
  readonly metric: Metric
  readonly of: SubjectName
  /** undefined: the ratio is shown, nothing is asked of it. */
  readonly must?: number
  readonly aim?: number
}

const CLIENTS: readonly SubjectName[] = ['orbweaver', 'tarantool-driver', 'raw socket']
const DECODERS: readonly SubjectName[] = ['orbweaver', 'msgpackr', 'msgpack-lite']
const ENCODERS: readonly SubjectName[] = ['orbweaver', 'orbweaver, own buffer', 'msgpackr', 'msgpack-lite']

const wire = (operation: WireOperation, inFlight: number, subjects: readonly SubjectName[] = CLIENTS): WireCase => ({
  kind: 'wire',
  id: `${operation}@${inFlight}`,
  operation,
  inFlight,
  subjects,
})

const codec = (direction: 'decode' | 'encode', rows: number, fields: 4 | 10): CodecCase => ({
  kind: 'codec',
  id: `${direction}-${rows}x${fields}`,
  direction,
  bytesIn: 'one',
  rows,
  fields,
  subjects: direction === 'decode' ? DECODERS : ENCODERS,
})

export const CASES: readonly BenchCase[] = [
  ...(['select', 'replace', 'call'] as const).flatMap((operation) =>
    [1, 16, 256].map((depth) => wire(operation, depth)),
  ),
  wire('rows100', 1),
  wire('rows100', 16),
  wire('rows300', 64),
  {
    kind: 'wire',
    id: 'timeouts@10000',
    operation: 'select',
    inFlight: 10_000,
    subjects: ['orbweaver, a timeout each', 'orbweaver, no timeout'],
  },
  ...(['decode', 'encode'] as const).flatMap((direction) => [
    codec(direction, 1, 10),
    codec(direction, 100, 10),
    codec(direction, 1_000, 4),
  ]),
  { ...codec('decode', 1, 10), id: 'decode-frames', bytesIn: 'frames' },
]

/** The case in words. */
export function describeCase(benchCase: BenchCase): string {
  if (benchCase.kind === 'codec') {
    const { direction, bytesIn, rows, fields } = benchCase
    const where = bytesIn === 'frames' ? ', each in a frame of a received chunk' : ''
    return `${direction} ${rows === 1 ? 'a row' : `${rows} rows`} of ${fields} fields${where}`
  }
  const what = OPERATION_WORDS[benchCase.operation]
  const timeouts = benchCase.id.startsWith('timeouts') ? ', each with a timeout of its own or none' : ''
  return `${what}, ${benchCase.inFlight} in flight${timeouts}`
}

const OPERATION_WORDS: Readonly<Record<WireOperation, string>> = {
  select: 'select by primary key',
  replace: 'replace a row of 10 fields',
  call: 'call a Lua function of two arguments',
  rows100: 'select 100 rows',
  rows300: 'select 300 rows',
}

/** The ratios to show for a case. Numbers: what the project holds itself to. */
export function targetsOf(benchCase: BenchCase): readonly Target[] {
  return benchCase.kind === 'codec' ? codecTargets(benchCase) : (WIRE_TARGETS[benchCase.id] ?? OTHER_WIRE)
}

const OTHER_WIRE: readonly Target[] = [
  { metric: 'cpu', of: 'tarantool-driver' },
  { metric: 'rps', of: 'tarantool-driver' },
  { metric: 'cpu', of: 'raw socket' },
]
const TO_BE_LIGHT: readonly Target[] = [
  { metric: 'cpu', of: 'tarantool-driver', must: 0.3, aim: 0.18 },
  ...OTHER_WIRE.slice(1),
]
const LARGE_REPLIES: readonly Target[] = [
  { metric: 'cpu', of: 'tarantool-driver', must: 0.3, aim: 0.2 },
  ...OTHER_WIRE.slice(1),
]

const WIRE_TARGETS: Readonly<Record<string, readonly Target[]>> = {
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
  'timeouts@10000': [{ metric: 'cpu', of: 'orbweaver, no timeout', must: 1.05, aim: 1.01 }],
}

function codecTargets({ direction }: CodecCase): readonly Target[] {
  return direction === 'decode'
    ? [
        { metric: 'speed', of: 'msgpackr', must: 0.85, aim: 1 },
        { metric: 'speed', of: 'msgpack-lite' },
      ]
    : [
        { metric: 'speed', of: 'msgpackr', must: 1, aim: 1.3 },
        { metric: 'speed', of: 'msgpack-lite', must: 4, aim: 7 },
      ]
}
