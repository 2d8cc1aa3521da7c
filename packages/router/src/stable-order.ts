/*
 * Which instance serves a bucket's stable reads: the first by rendezvous hashing of the bucket and the instance (failover.md C7). It
 * depends on what is configured and not on its order, on who was seen first, or on who asks; an instance that goes away only moves
 * its own buckets.
 */
import type { ReplicasetConfig } from '@orbweaver/vshard'

/** The rank of each instance for a bucket: the lowest serves. */
export function stableRank(
  bucketId: number,
  definition: ReplicasetConfig,
): (instance: { readonly id: string }) => number {
  const { instances } = definition
  // Uuids say more than names, but all clients must hash the same: only where all of them are configured.
  const hasUuids = instances.every(({ uuid }) => uuid !== undefined)
  return ({ id }) => {
    const identity = hasUuids ? (instances.find((instance) => instance.id === id)?.uuid ?? id) : id
    return mix(hashOf(identity) ^ Math.imul(bucketId, 0x9e3779b1))
  }
}

/** FNV-1a over the UTF-16 units. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193)
  return mix(hash)
}

/** The finalizer of MurmurHash3: every bit of the input reaches every bit of the output. */
function mix(value: number): number {
  let hash = value
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35)
  return (hash ^ (hash >>> 16)) >>> 0
}
