/* The other replicasets of the cluster, by id; kept as they are where a new configuration does not change their addresses. */
import type { Environment } from '@orbweaver/connection'
import { VshardError } from '@orbweaver/vshard'
import { ReplicasetLink } from './replicaset-link.js'
import type { VshardSettings } from './settings.js'

export class ClusterLinks {
  readonly #environment: Environment
  readonly #self: () => string
  #links = new Map<string, ReplicasetLink>()

  /** @param self - id of this replicaset, to which there is no link */
  constructor(environment: Environment, self: () => string) {
    this.#environment = environment
    this.#self = self
  }

  get ids(): readonly string[] {
    return [...this.#links.keys()]
  }

  find(id: string): ReplicasetLink | undefined {
    return this.#links.get(id)
  }

  /** @throws VshardError NO_SUCH_REPLICASET */
  get(id: string): ReplicasetLink {
    const link = this.#links.get(id)
    if (link === undefined) throw VshardError.of('NO_SUCH_REPLICASET', { replicaset: id })
    return link
  }

  configure({ replicasets, credential }: VshardSettings): void {
    const next = new Map<string, ReplicasetLink>()
    for (const [id, config] of replicasets) {
      if (id === this.#self()) continue
      const present = this.#links.get(id)
      const isSame =
        present !== undefined &&
        present.config.master === config.master &&
        JSON.stringify(present.config.instances) === JSON.stringify(config.instances)
      next.set(id, isSame ? present : new ReplicasetLink(config, credential, this.#environment))
    }
    for (const [id, link] of this.#links) if (next.get(id) !== link) link.close()
    this.#links = next
  }

  close(): void {
    for (const link of this.#links.values()) link.close()
  }
}
