/* The replicasets of a router by their ids and by the small numbers the route table holds. */
import type { Credential, Environment } from '@orbweaver/connection'
import { createHoldBudget, createReplicaset } from '@orbweaver/replicaset'
import type { ReplicasetHandle } from '@orbweaver/replicaset'
import { zoneDistance } from '@orbweaver/vshard'
import type { CheckedClusterConfig } from '@orbweaver/vshard'
import { vshardDialect } from './dialect.js'

export interface RoutedSet {
  /** Its number in the route table, from 1; never reused for another set. */
  readonly index: number
  readonly id: string
  readonly replicaset: ReplicasetHandle
}

export class Topology {
  readonly #byIndex: (RoutedSet | undefined)[] = [undefined]
  readonly #byId = new Map<string, RoutedSet>()

  constructor(config: CheckedClusterConfig, environment: Environment) {
    const holdBudget = createHoldBudget()
    const login: Credential = { user: config.user, password: config.password }
    for (const definition of config.replicasets) {
      const replicaset = createReplicaset({
        definition,
        ...login,
        dialect: vshardDialect,
        holdBudget,
        environment,
        ...(config.zone === undefined ? {} : { zone: config.zone }),
        zoneWeights: (from, to) => zoneDistance(config.weights ?? [], from, to),
      })
      const set: RoutedSet = { index: this.#byIndex.length, id: definition.id, replicaset }
      this.#byIndex.push(set)
      this.#byId.set(definition.id, set)
    }
  }

  at(index: number): RoutedSet | undefined {
    return this.#byIndex[index]
  }

  find(id: string | undefined): RoutedSet | undefined {
    return id === undefined ? undefined : this.#byId.get(id)
  }

  get sets(): readonly RoutedSet[] {
    return [...this.#byId.values()]
  }
}
