/** A million rows: what they take, and for how long nobody is answered while they are written. */
import type { CaseBase } from './bench-case.js'

export interface MemoryCase extends CaseBase {
  readonly kind: 'memory'
  readonly rows: number
}

export const MEMORY_CASES: readonly MemoryCase[] = [
  {
    kind: 'memory',
    id: 'storage-memory',
    words: '1,000,000 rows of 127 bytes with a secondary index, replaced by 64 writers while somebody pings',
    rows: 1_000_000,
    subjects: ['embedded storage', 'Tarantool'],
    targets: [
      { metric: 'memory', must: 300, aim: 220 },
      { metric: 'memory', of: 'Tarantool' },
      { metric: 'pause', must: 80, aim: 40 },
      { metric: 'rps', of: 'Tarantool' },
    ],
    setUpSeconds: 180,
  },
]
