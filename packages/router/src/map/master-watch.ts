import type { ReplicasetHandle } from '@orbweaver/replicaset'
import type { Topology } from '../topology.js'

/**
 * Wakes those that wait for a change of any replicaset. One listener per replicaset, however many wait: taking one's own off again
 * would cost as much as there are others.
 */
export class MasterWatch {
  readonly #topology: Topology
  readonly #watched = new WeakSet<ReplicasetHandle>()
  readonly #wakers = new Set<() => void>()

  constructor(topology: Topology) {
    this.#topology = topology
  }

  /** @param wake - called at each change of a master and at each end of a replicaset, until it is deleted */
  add(wake: () => void): void {
    for (const { replicaset } of this.#topology.sets) {
      if (this.#watched.has(replicaset)) continue
      this.#watched.add(replicaset)
      replicaset.on('master', this.#changed).on('close', this.#changed)
    }
    this.#wakers.add(wake)
  }

  delete(wake: () => void): void {
    this.#wakers.delete(wake)
  }

  readonly #changed = (): void => {
    for (const wake of [...this.#wakers]) wake()
  }
}
