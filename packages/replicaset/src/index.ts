// For users: all instances of one replicaset.
export { createReplicaset, type Replicaset, type ReplicasetHandle } from './replicaset.js'
export type { BufferOptions, ReplicasetOptions, ZoneWeights } from './options.js'
export type { InstanceDefinition, ReplicasetDefinition } from './definition.js'
export { type DetailedResult, instanceOf, type ReplicasetCallOptions } from './user-call.js'
export type { MasterChange, ReplicasetEvents, WindowEvent } from './events.js'
export type { HoldStats, InstanceInfo, ReplicasetInfo, ReplicasetStats } from './stats.js'
export type { Alert } from './alerts.js'
export type { MasterState } from './discovery.js'
export type { InstanceState } from './instance-view.js'
export type { WindowEnd, WindowReason } from './failover-buffer.js'
export type { SkipReason } from './hold-queue.js'
export type { OnConflict } from './master-rules.js'

// What can go wrong, beside the errors of @orbweaver/iproto and @orbweaver/connection.
export {
  BufferEvictedError,
  BufferFullError,
  BufferWindowError,
  type InstanceReason,
  MasterConflictError,
  NoInstanceError,
  NoMasterError,
  ReplicasetError,
  type ReplicasetErrorDetails,
} from './errors.js'

// What is published for observers.
export { type CallTrace, CHANNELS } from './diagnostics.js'

// For authors of layers above: requests without promises, and the words of what runs on the instances.
export type { Attempt, CallMode, Dialect, InstanceHandle, PinnedSession, Verdict } from './attempt.js'
export { createHoldBudget, type HoldBudget, type HoldBudgetOptions } from './hold-budget.js'
