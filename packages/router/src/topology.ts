/*
 * The replicasets of a router by their ids and by the small numbers the route table holds. A set is recognised by its uuid where one
 * is given, else by its id, so that routes follow the replicaset and not its name; its connections survive whatever stays the same.
 */
import type { Environment } from '@orbweaver/connection'
import { createHoldBudget, createReplicaset } from '@orbweaver/replicaset'
import type { HoldBudget, ReplicasetHandle, ReplicasetOptions } from '@orbweaver/replicaset'
import { zoneDistance } from '@orbweaver/vshard'
import type { CheckedClusterConfig, ReplicasetConfig } from '@orbweaver/vshard'
import { vshardDialect } from './dialect.js'

/** One replicaset as it is configured now. Another definition is another object with the same index. */
export interface RoutedSet {
  /** Its number in the route table, from 1; not used again for another set. */
  readonly index: number
  readonly id: string
  readonly definition: ReplicasetConfig
  readonly replicaset: ReplicasetHandle
}

/** What a router hands on to its replicasets. */
export type ReplicasetTuning = Omit<
  ReplicasetOptions,
  'definition' | 'user' | 'password' | 'dialect' | 'holdBudget' | 'zone' | 'zoneWeights' | 'environment'
>

/** What another configuration changed. */
export interface TopologyChange {
  readonly added: readonly RoutedSet[]
  readonly removed: readonly RoutedSet[]
  /** Sets that go on with another definition. */
  readonly changed: readonly RoutedSet[]
}

export class Topology {
  /** +1 with every change. */
  version = 0
  readonly #environment: Environment
  readonly #tuning: ReplicasetTuning
  readonly #holdBudget: HoldBudget
  readonly #byIndex: (RoutedSet | undefined)[] = [undefined]
  #byRef = new Map<string, RoutedSet>()
  #sets: readonly RoutedSet[] = []
  #config: CheckedClusterConfig
  #lastIndex = 0

  constructor(config: CheckedClusterConfig, environment: Environment, tuning: ReplicasetTuning = {}) {
    this.#config = config
    this.#environment = environment
    this.#tuning = tuning
    this.#holdBudget = createHoldBudget(tuning.buffer ?? {})
    this.#sets = config.replicasets.map((definition) =>
      this.#place(this.#nextIndex(), definition, this.#create(definition)),
    )
    this.#refer()
  }

  at(index: number): RoutedSet | undefined {
    return this.#byIndex[index]
  }

  /** By id, or by the uuid or name the configuration gives: storages may use either. */
  find(ref: string | undefined): RoutedSet | undefined {
    return ref === undefined ? undefined : this.#byRef.get(ref)
  }

  get sets(): readonly RoutedSet[] {
    return this.#sets
  }

  /**
   * Takes another configuration. What was removed is not closed here.
   * @throws ConfigError for a definition no replicaset can be made of; then nothing has changed
   */
  apply(config: CheckedClusterConfig): TopologyChange {
    const before = this.#config
    // A new login, or another place to stand, needs other connections.
    const isAnew = before.user !== config.user || before.password !== config.password || before.zone !== config.zone
    const isNearerElsewhere = !isSame(before.weights, config.weights)
    this.#config = config
    const olds = new Set(this.#sets)
    const made: ReplicasetHandle[] = []
    const plans: { old: RoutedSet | undefined; definition: ReplicasetConfig; replicaset: ReplicasetHandle }[] = []
    try {
      for (const definition of config.replicasets) {
        const old = [...olds].find((set) => isSameSet(set.definition, definition))
        if (old !== undefined) olds.delete(old)
        const keeps = old !== undefined && !isAnew
        const replicaset = keeps ? old.replicaset : this.#create(definition)
        if (!keeps) made.push(replicaset)
        plans.push({ old, definition, replicaset })
      }
    } catch (error) {
      this.#config = before
      for (const replicaset of made) replicaset.destroy()
      throw error
    }
    const added: RoutedSet[] = []
    const changed: RoutedSet[] = []
    const removed = [...olds]
    this.#sets = plans.map(({ old, definition, replicaset }) => {
      const keeps = old?.replicaset === replicaset
      if (keeps && isSame(old.definition, definition) && !isNearerElsewhere) return old
      if (keeps) replicaset.reconfigure(definition)
      const set = this.#place(old?.index ?? this.#nextIndex(), definition, replicaset)
      if (old !== undefined && !keeps) removed.push(old)
      if (old === undefined) added.push(set)
      else changed.push(set)
      return set
    })
    for (const { index } of olds) this.#byIndex[index] = undefined
    this.#refer()
    if (added.length + changed.length + removed.length > 0) this.version++
    return { added, removed, changed }
  }

  #create(definition: ReplicasetConfig): ReplicasetHandle {
    const { user, password, zone } = this.#config
    return createReplicaset({
      ...this.#tuning,
      definition,
      user,
      password,
      dialect: vshardDialect,
      holdBudget: this.#holdBudget,
      environment: this.#environment,
      ...(zone === undefined ? {} : { zone }),
      zoneWeights: (from, to) => zoneDistance(this.#config.weights ?? [], from, to),
    })
  }

  #place(index: number, definition: ReplicasetConfig, replicaset: ReplicasetHandle): RoutedSet {
    const set: RoutedSet = { index, id: definition.id, definition, replicaset }
    this.#byIndex[index] = set
    return set
  }

  /** The next one nobody has; those of removed sets come again only after all others were used. */
  #nextIndex(): number {
    do {
      this.#lastIndex = this.#lastIndex === LAST_INDEX ? 1 : this.#lastIndex + 1
    } while (this.#byIndex[this.#lastIndex] !== undefined)
    return this.#lastIndex
  }

  #refer(): void {
    const named = this.#sets.flatMap((set) =>
      [set.definition.name, set.definition.uuid].flatMap((ref): [string, RoutedSet][] =>
        ref === undefined ? [] : [[ref, set]],
      ),
    )
    this.#byRef = new Map([...named, ...this.#sets.map((set): [string, RoutedSet] => [set.id, set])])
  }
}

/** What a 16-bit number of the route table can hold. */
const LAST_INDEX = 65_535

/** Whether two definitions are of the same replicaset: names may change, uuids do not. */
function isSameSet(a: ReplicasetConfig, b: ReplicasetConfig): boolean {
  if (a.uuid !== undefined && b.uuid !== undefined) return a.uuid === b.uuid
  return a.id === b.id
}

/** Deep equality of configuration values; keys that are absent and undefined are alike. */
function isSame(a: unknown, b: unknown): boolean {
  if (Object.is(a, b)) return true
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return false
  if (Array.isArray(a) !== Array.isArray(b)) return false
  const [left, right] = [a as Record<string, unknown>, b as Record<string, unknown>]
  return [...new Set([...Object.keys(left), ...Object.keys(right)])].every((key) => isSame(left[key], right[key]))
}
