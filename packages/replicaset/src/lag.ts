import type { Instance } from './instance.js'

/**
 * How far an instance is behind the master, by its own account of its replication.
 * @returns milliseconds; Infinity: it does not follow the master; undefined: not known
 */
export function lagOf(instance: Instance, masterUuid: string | undefined): number | undefined {
  if (masterUuid === undefined || instance.lagReadMs === Number.NEGATIVE_INFINITY) return undefined
  const upstream = instance.upstreams.find(({ uuid }) => uuid === masterUuid)
  if (upstream === undefined) return undefined
  if (upstream.status !== 'follow' && upstream.status !== 'sync') return Number.POSITIVE_INFINITY
  return upstream.lagMs
}
