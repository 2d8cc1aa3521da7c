/** What stands between clients and one Tarantool, beside nothing at all: requests per second through it. */
import type { CaseBase, SubjectName, Target } from './bench-case.js'

export interface ProxyCase extends CaseBase {
  readonly kind: 'proxy'
  readonly sockets: number
  /** In flight on each socket. */
  readonly depth: number
}

function proxy(sockets: number, depth: number, targets: readonly Target[]): ProxyCase {
  return {
    kind: 'proxy',
    id: `proxy-${sockets}x${depth}`,
    words: `selects by primary key through a proxy, ${sockets} clients with ${depth} in flight`,
    sockets,
    depth,
    subjects: SUBJECTS,
    targets,
  }
}

const SUBJECTS: readonly SubjectName[] = ['proxy', 'HAProxy', 'socket pipe', 'no proxy']

export const PROXY_CASES: readonly ProxyCase[] = [
  proxy(1, 1, [
    { metric: 'rps', of: 'HAProxy', must: 0.75, aim: 0.87 },
    { metric: 'rps', of: 'socket pipe' },
    { metric: 'rps', of: 'no proxy' },
  ]),
  proxy(64, 1, [
    { metric: 'rps', of: 'HAProxy', must: 1, aim: 1.3 },
    { metric: 'rps', of: 'socket pipe', must: 1.5, aim: 1.8 },
    { metric: 'rps', of: 'no proxy' },
  ]),
  proxy(16, 64, [
    { metric: 'rps', of: 'HAProxy', must: 0.7, aim: 0.9 },
    { metric: 'rps', of: 'socket pipe' },
    { metric: 'rps', of: 'no proxy', must: 0.55, aim: 0.72 },
  ]),
]
