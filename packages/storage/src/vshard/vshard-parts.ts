import type { Clock } from '@orbweaver/connection'
import type { Engine } from '../engine/engine.js'
import type { FunctionContext } from '../function-context.js'
import type { BucketEvents } from './bucket-events.js'
import type { BucketRefs, VshardIdentity } from './bucket-refs.js'
import type { Buckets } from './buckets.js'
import type { ClusterLinks } from './cluster-links.js'
import type { OwnReplicaset } from './own-replicaset.js'
import type { Scheduler } from './scheduler.js'
import type { VshardSettings } from './settings.js'
import type { StorageRefs } from './storage-refs.js'
import type { Transfers } from './transfers.js'
import type { TurnReservations } from './turn-reservations.js'

/** What the jobs and services of vshard's storage side work on. */
export interface VshardParts {
  readonly clock: Clock
  /** As logs call this instance. */
  readonly storageName: string
  readonly random: () => number
  readonly engine: Engine
  readonly buckets: Buckets
  readonly bucketRefs: BucketRefs
  readonly bucketEvents: BucketEvents
  readonly storageRefs: StorageRefs
  readonly scheduler: Scheduler
  readonly transfers: Transfers
  readonly reservations: TurnReservations
  readonly own: OwnReplicaset
  readonly cluster: ClusterLinks
  readonly identity: VshardIdentity
  readonly settings: VshardSettings
  /** Neither gives nor takes buckets. */
  readonly isLocked: boolean
  /** Name of this instance where instances are identified by name. */
  readonly name: string | undefined
  /** Resolves when everything written here is where it has to be. @throws BoxError 216 */
  committed(): Promise<void>
  /** @throws VshardError NON_MASTER */
  assertMaster(): void
  /** A master that has everything its predecessor did to buckets. @throws VshardError NON_MASTER, MASTER_NOT_SYNCED */
  assertSynced(): void
  /** Lets the application do what goes before a move. @throws MoveRefusedError when it says no */
  beforeMove(bucketId: number, destination: string, boundMs: number): Promise<void>
  invoke(
    context: FunctionContext,
    name: string,
    args: readonly unknown[],
  ): readonly unknown[] | Promise<readonly unknown[]>
}
