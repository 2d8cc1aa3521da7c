/*
 * The configuration of a router and its changes: by hand, by a source that is read again, or because a storage names an owner that
 * nobody has configured. Whatever happens, the last good one stays.
 */
import { ConfigError, shownValue } from '@orbweaver/iproto'
import type { ReplicasetHandle } from '@orbweaver/replicaset'
import { validateClusterConfig } from '@orbweaver/vshard'
import type { CheckedClusterConfig, ClusterConfig } from '@orbweaver/vshard'
import type { Discovery } from './discovery.js'
import type { BucketLookup } from './lookup.js'
import type { RouteWorker } from './route-worker.js'
import type { RouterVoice } from './router-voice.js'
import type { RoutedSet, Topology, TopologyChange } from './topology.js'
import { TopologyReader } from './topology-source.js'
import type { TopologyReaderParts, TopologySource } from './topology-source.js'

export interface TopologyKeeperParts {
  readonly topology: Topology
  readonly routes: RouteWorker
  readonly lookup: BucketLookup
  readonly discovery: Discovery
  readonly voice: RouterVoice
  /** Whether the mode of discovery is that of the configuration. */
  readonly followsDiscoveryMode: boolean
}

/** Calls in flight to a replicaset that was removed may take so long. */
const DRAIN_TIMEOUT_MS = 10_000

export class TopologyKeeper {
  readonly #parts: TopologyKeeperParts
  #config: CheckedClusterConfig
  #reader: TopologyReader | undefined
  /** Replicasets that were removed and still answer calls. */
  readonly #draining = new Map<ReplicasetHandle, Promise<void>>()

  constructor(config: CheckedClusterConfig, parts: TopologyKeeperParts) {
    this.#config = config
    this.#parts = parts
  }

  get config(): CheckedClusterConfig {
    return this.#config
  }

  follow(source: TopologySource, times: Pick<TopologyReaderParts, 'clock' | 'random' | 'intervalMs'>): void {
    this.#reader = new TopologyReader(source, {
      ...times,
      apply: (config) => this.apply(config),
      outcome: (error) => this.#read(error),
    })
    this.#reader.start()
  }

  /** @throws ConfigError; then nothing has changed */
  apply(config: ClusterConfig): void {
    const checked = validateClusterConfig(config)
    const before = this.#config
    refuseOther(checked, before)
    const { discovery, followsDiscoveryMode, topology } = this.#parts
    const change = topology.apply(checked)
    this.#config = checked
    this.#retarget(change)
    if (followsDiscoveryMode && checked.discoveryMode !== before.discoveryMode) discovery.setMode(checked.discoveryMode)
  }

  /** A storage names an owner that is not configured. */
  unknownOwner(destination: string): void {
    if (this.#reader === undefined) this.#raiseUnknownOwner(destination, 'the router has no source to ask')
    else this.#reader.want()
  }

  stop(): void {
    this.#reader?.stop()
    for (const replicaset of this.#draining.keys()) replicaset.destroy()
  }

  /** Resolves when what was removed is closed. */
  async drained(): Promise<void> {
    await Promise.all(this.#draining.values())
  }

  /** In this order: no route leads to what is gone, then it may end; whoever waits looks again. */
  #retarget(change: TopologyChange): void {
    const { discovery, lookup, routes, topology, voice } = this.#parts
    const { generation } = routes.table
    const gone = change.removed.filter(({ index }) => topology.at(index) === undefined)
    const indexOf = (id: string): number | undefined => topology.find(id)?.index
    const unresolved = routes.retarget(new Set(gone.map(({ index }) => index)), indexOf)
    for (const [destination, buckets] of unresolved)
      this.#raiseUnknownOwner(destination, `${buckets} of its buckets are wanted`)
    for (const { definition, id } of change.added)
      for (const ref of [id, definition.uuid, definition.name]) voice.alerts.clear(`owner ${ref}`)
    const isOther = change.added.length + change.changed.length + change.removed.length > 0
    if (isOther || routes.table.generation !== generation) lookup.topologyChanged()
    if (!isOther) return
    for (const { replicaset } of change.removed) this.#drain(replicaset)
    discovery.topologyChanged()
    const idsOf = (sets: readonly RoutedSet[]): string[] => sets.map(({ id }) => id)
    voice.topology({
      version: topology.version,
      added: idsOf(change.added),
      removed: idsOf(change.removed),
      changed: idsOf(change.changed),
    })
  }

  #drain(replicaset: ReplicasetHandle): void {
    const closing = replicaset.close({ timeout: DRAIN_TIMEOUT_MS }).finally(() => this.#draining.delete(replicaset))
    this.#draining.set(replicaset, closing)
  }

  #read(error: unknown): void {
    const { alerts } = this.#parts.voice
    if (error === undefined) {
      alerts.clear('topology')
      return
    }
    const reason = error instanceof Error ? error.message : 'it was refused without an error'
    alerts.raise('topology', {
      name: 'INVALID_CFG',
      message: `The topology cannot be read, the last one stays: ${reason}`,
    })
  }

  #raiseUnknownOwner(destination: string, what: string): void {
    this.#parts.voice.alerts.raise(`owner ${destination}`, {
      name: 'NO_SUCH_REPLICASET',
      message: `Storages name replicaset ${destination}, which is not configured: ${what}`,
      replicaset: destination,
    })
  }
}

/** @throws ConfigError for what cannot change while the router runs */
function refuseOther(config: CheckedClusterConfig, before: CheckedClusterConfig): void {
  const fixed = (['bucketCount', 'shardIndex'] as const).filter((name) => config[name] !== before[name])
  if (fixed.length === 0) return
  const problems = fixed.map((path) => ({
    path,
    message: `is ${shownValue(config[path])} and was ${shownValue(before[path])}; it cannot change while the router runs`,
  }))
  throw new ConfigError(problems, { subject: 'cluster configuration' })
}
