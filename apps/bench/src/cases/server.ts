/** Servers, driven by raw sockets that cost as little as they can: what is counted is the server's. */
import type { CaseBase, Target } from './bench-case.js'

type ServerOperation = 'select' | 'replace' | 'rows100'

export interface ServerCase extends CaseBase {
  readonly kind: 'server'
  readonly operation: ServerOperation
  readonly sockets: number
  /** In flight on each socket. */
  readonly depth: number
  /** An answered write is on disk. */
  readonly isDurable: boolean
}

const WORDS: Readonly<Record<ServerOperation, string>> = {
  select: 'a server answers selects by primary key',
  replace: 'a server answers replaces of a row of 10 fields',
  rows100: 'a server answers selects of 100 rows',
}

function server(
  operation: ServerOperation,
  [sockets, depth]: readonly [number, number],
  target: Omit<Target, 'of'>,
  isDurable = false,
): ServerCase {
  const other = isDurable ? 'Tarantool, wal_mode fsync' : 'Tarantool'
  return {
    kind: 'server',
    id: `storage-${isDurable ? 'durable-' : ''}${operation}-${sockets}x${depth}`,
    words: `${WORDS[operation]}${isDurable ? ', each on disk' : ''}, ${sockets} clients with ${depth} in flight`,
    operation,
    sockets,
    depth,
    isDurable,
    subjects: ['embedded storage', other],
    targets: [
      { ...target, of: other },
      { metric: 'cpu', of: other },
    ],
  }
}

const SHAPES = [
  [1, 1],
  [64, 1],
  [1, 256],
  [16, 64],
] as const

/** What selects must reach; with one client and one request nothing is asked. */
const SELECT_TARGETS: readonly Omit<Target, 'of'>[] = [
  { metric: 'rps' },
  { metric: 'rps', must: 0.6, aim: 0.75 },
  { metric: 'rps', must: 0.85, aim: 1 },
  { metric: 'rps', must: 0.85, aim: 1 },
]

export const SERVER_CASES: readonly ServerCase[] = [
  ...SHAPES.map((shape, i) => server('select', shape, SELECT_TARGETS[i]!)),
  ...SHAPES.map((shape) => server('replace', shape, { metric: 'rps' })),
  ...SHAPES.map((shape) => server('replace', shape, { metric: 'rps', must: 1, aim: 1.5 }, true)),
  server('rows100', [16, 1], { metric: 'rps' }),
]
