import type { CallMode } from '@orbweaver/replicaset'

/** vshard's way to say how `call` is done. Default: a write. */
export type CallKind =
  | 'read'
  | 'write'
  | { readonly mode?: 'read' | 'write'; readonly preferReplica?: boolean; readonly balance?: boolean }

/** The mode of a call in vshard's words. */
export function modeOf(kind: CallKind): CallMode | undefined {
  const { mode = 'write', preferReplica = false, balance = false } = typeof kind === 'string' ? { mode: kind } : kind
  if (mode === 'write') return 'rw'
  if (mode !== 'read') return undefined
  if (preferReplica) return balance ? 'bre' : 're'
  return balance ? 'bro' : 'ro'
}
