/* vshard's errors. Source: `error.lua` of vshard 0.1.42; the texts travel, so they are as there. 31 is free (it was
 * MULTIPLE_MASTERS_FOUND in old versions). */

/** What one kind of vshard error consists of. */
export interface VshardErrorKind {
  /** The number that travels; stable between versions of vshard. */
  readonly code: number
  /** Names of the fields that travel beside code, name and message; a field may be absent. */
  readonly fields: readonly string[]
  /** The message, with `{field}` where a field's value goes. */
  readonly text: string
}

/** Every kind of error by its name. */
export const VSHARD_ERRORS: {
  readonly [name in VshardErrorName]: VshardErrorKind
} = {
  WRONG_BUCKET: {
    code: 1,
    fields: ['bucket_id', 'reason', 'destination'],
    text: 'Cannot perform action with bucket {bucket_id}, reason: {reason}',
  },
  NON_MASTER: {
    code: 2,
    fields: ['replica', 'replicaset', 'master'],
    text: 'Replica {replica} is not a master for replicaset {replicaset} anymore',
  },
  BUCKET_ALREADY_EXISTS: { code: 3, fields: ['bucket_id'], text: 'Bucket {bucket_id} already exists' },
  NO_SUCH_REPLICASET: { code: 4, fields: ['replicaset'], text: 'Replicaset {replicaset} not found' },
  MOVE_TO_SELF: {
    code: 5,
    fields: ['bucket_id', 'replicaset'],
    text: 'Cannot move: bucket {bucket_id} is already on replicaset {replicaset}',
  },
  MISSING_MASTER: { code: 6, fields: ['replicaset'], text: 'Master is not configured for replicaset {replicaset}' },
  TRANSFER_IS_IN_PROGRESS: {
    code: 7,
    fields: ['bucket_id', 'destination'],
    text: 'Bucket {bucket_id} is transferring to replicaset {destination}',
  },
  UNREACHABLE_REPLICASET: {
    code: 8,
    fields: ['replicaset', 'bucket_id'],
    text: 'There is no active replicas in replicaset {replicaset}',
  },
  NO_ROUTE_TO_BUCKET: {
    code: 9,
    fields: ['bucket_id'],
    text: 'Bucket {bucket_id} cannot be found. Is rebalancing in progress?',
  },
  NON_EMPTY: { code: 10, fields: [], text: 'Cluster is already bootstrapped' },
  UNREACHABLE_MASTER: {
    code: 11,
    fields: ['replicaset', 'reason'],
    text: 'Master of replicaset {replicaset} is unreachable: {reason}',
  },
  OUT_OF_SYNC: { code: 12, fields: [], text: 'Replica is out of sync' },
  HIGH_REPLICATION_LAG: { code: 13, fields: ['lag'], text: 'High replication lag: {lag}' },
  UNREACHABLE_REPLICA: { code: 14, fields: ['replica'], text: "Replica {replica} isn't active" },
  LOW_REDUNDANCY: { code: 15, fields: [], text: 'Only one replica is active' },
  INVALID_REBALANCING: {
    code: 16,
    fields: [],
    text: 'Sending and receiving buckets at same time is not allowed',
  },
  SUBOPTIMAL_REPLICA: {
    code: 17,
    fields: [],
    text: 'A current read replica in replicaset {replicaset} is not optimal',
  },
  UNKNOWN_BUCKETS: {
    code: 18,
    fields: ['not_discovered_cnt'],
    text: '{not_discovered_cnt} buckets are not discovered',
  },
  REPLICASET_IS_LOCKED: { code: 19, fields: [], text: 'Replicaset is locked' },
  OBJECT_IS_OUTDATED: {
    code: 20,
    fields: [],
    text: 'Object is outdated after module reload/reconfigure. Use new instance.',
  },
  ROUTER_ALREADY_EXISTS: {
    code: 21,
    fields: ['router_name'],
    text: 'Router with name {router_name} already exists',
  },
  // Ours adds `destination` when it is known (Lua routers ignore fields they do not know).
  BUCKET_IS_LOCKED: { code: 22, fields: ['bucket_id', 'destination'], text: 'Bucket {bucket_id} is locked' },
  INVALID_CFG: { code: 23, fields: ['reason'], text: 'Invalid configuration: {reason}' },
  BUCKET_IS_PINNED: { code: 24, fields: ['bucket_id'], text: 'Bucket {bucket_id} is pinned' },
  TOO_MANY_RECEIVING: { code: 25, fields: [], text: 'Too many receiving buckets at once, please, throttle' },
  STORAGE_IS_REFERENCED: { code: 26, fields: [], text: 'Storage is referenced' },
  STORAGE_REF_ADD: { code: 27, fields: ['reason'], text: 'Can not add a storage ref: {reason}' },
  STORAGE_REF_USE: { code: 28, fields: ['reason'], text: 'Can not use a storage ref: {reason}' },
  STORAGE_REF_DEL: { code: 29, fields: ['reason'], text: 'Can not delete a storage ref: {reason}' },
  BUCKET_RECV_DATA_ERROR: {
    code: 30,
    fields: ['bucket_id', 'space', 'tuple', 'reason'],
    text: 'Can not receive the bucket {bucket_id} data in space "{space}" at tuple {tuple}: {reason}',
  },
  REPLICASET_IN_BACKOFF: {
    code: 32,
    fields: ['replicaset', 'error'],
    text: "Replicaset {replicaset} is in backoff, can't take requests right now. Last error was {error}",
  },
  STORAGE_IS_DISABLED: { code: 33, fields: ['reason'], text: 'Storage is disabled: {reason}' },
  BUCKET_IS_CORRUPTED: {
    code: 34,
    fields: ['bucket_id', 'reason'],
    text: 'Bucket {bucket_id} is corrupted: {reason}',
  },
  ROUTER_IS_DISABLED: { code: 35, fields: ['reason'], text: 'Router is disabled: {reason}' },
  BUCKET_GC_ERROR: { code: 36, fields: ['reason'], text: 'Error during bucket GC: {reason}' },
  STORAGE_CFG_IS_IN_PROGRESS: { code: 37, fields: [], text: 'Configuration of the storage is in progress' },
  ROUTER_CFG_IS_IN_PROGRESS: {
    code: 38,
    fields: ['router_name'],
    text: 'Configuration of the router with name {router_name} is in progress',
  },
  BUCKET_INVALID_UPDATE: {
    code: 39,
    fields: ['bucket_id', 'reason'],
    text: 'Bucket {bucket_id} update is invalid: {reason}',
  },
  VHANDSHAKE_NOT_COMPLETE: {
    code: 40,
    fields: ['replica'],
    text: 'Handshake with {replica} have not been completed yet',
  },
  INSTANCE_NAME_MISMATCH: {
    code: 41,
    fields: ['expected_name', 'actual_name'],
    text: 'Mismatch server name: expected "{expected_name}", but got "{actual_name}"',
  },
  MASTER_NOT_SYNCED: {
    code: 42,
    fields: ['replica', 'replicaset'],
    text: 'Master {replica} of replicaset {replicaset} has not synchronized yet',
  },
}

/** Name of a vshard error, as `error.name` of vshard has it. */
export type VshardErrorName =
  | 'WRONG_BUCKET'
  | 'NON_MASTER'
  | 'BUCKET_ALREADY_EXISTS'
  | 'NO_SUCH_REPLICASET'
  | 'MOVE_TO_SELF'
  | 'MISSING_MASTER'
  | 'TRANSFER_IS_IN_PROGRESS'
  | 'UNREACHABLE_REPLICASET'
  | 'NO_ROUTE_TO_BUCKET'
  | 'NON_EMPTY'
  | 'UNREACHABLE_MASTER'
  | 'OUT_OF_SYNC'
  | 'HIGH_REPLICATION_LAG'
  | 'UNREACHABLE_REPLICA'
  | 'LOW_REDUNDANCY'
  | 'INVALID_REBALANCING'
  | 'SUBOPTIMAL_REPLICA'
  | 'UNKNOWN_BUCKETS'
  | 'REPLICASET_IS_LOCKED'
  | 'OBJECT_IS_OUTDATED'
  | 'ROUTER_ALREADY_EXISTS'
  | 'BUCKET_IS_LOCKED'
  | 'INVALID_CFG'
  | 'BUCKET_IS_PINNED'
  | 'TOO_MANY_RECEIVING'
  | 'STORAGE_IS_REFERENCED'
  | 'STORAGE_REF_ADD'
  | 'STORAGE_REF_USE'
  | 'STORAGE_REF_DEL'
  | 'BUCKET_RECV_DATA_ERROR'
  | 'REPLICASET_IN_BACKOFF'
  | 'STORAGE_IS_DISABLED'
  | 'BUCKET_IS_CORRUPTED'
  | 'ROUTER_IS_DISABLED'
  | 'BUCKET_GC_ERROR'
  | 'STORAGE_CFG_IS_IN_PROGRESS'
  | 'ROUTER_CFG_IS_IN_PROGRESS'
  | 'BUCKET_INVALID_UPDATE'
  | 'VHANDSHAKE_NOT_COMPLETE'
  | 'INSTANCE_NAME_MISMATCH'
  | 'MASTER_NOT_SYNCED'
