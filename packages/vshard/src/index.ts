/* What a vshard router and a vshard storage agree on. No I/O, no time. */

// Sharding keys.
export {
  bucketIdMpcrc32,
  bucketIdStrcrc32,
  mpcrc32,
  strcrc32,
  type ShardingKey,
  type ShardingKeyPart,
  type Strcrc32Options,
} from './bucket-hash.js'
export type { BigintText } from './key-strcrc32.js'

// The configuration of a cluster.
export {
  DEFAULT_BUCKET_COUNT,
  VSHARD_DEFAULTS,
  zoneDistance,
  type CheckedClusterConfig,
  type ClusterConfig,
  type InstanceConfig,
  type ReplicasetConfig,
  type VshardOptions,
  type ZoneWeight,
} from './config.js'
export { validateClusterConfig } from './cluster-config.js'
export { readVshardConfig } from './vshard-config.js'
export { writeVshardConfig } from './vshard-config-writer.js'
export {
  readTopology,
  type Topology,
  type TopologyFile,
  type TopologyProxy,
  type TopologyReplica,
  type TopologyReplicaset,
} from './topology.js'

// Errors.
export { asStorageError, asVshardError, isStorageTimeout, restoreError, VshardError } from './errors.js'
export { VSHARD_ERRORS, type VshardErrorKind, type VshardErrorName } from './error-table.js'

// For routers and storages: the calls on the wire and what they answer.
export { KEEPS_REFS, SERVICES, STORAGE_FUNCTIONS, type ServiceName, type StorageFunctionName } from './service-names.js'
export { toSeconds, type ServiceCall, type ServiceReply } from './service-reply.js'
export { readStorageCall, storageCall, type BucketMode, type StorageCallReply } from './storage-call.js'
export {
  BUCKET_STATUSES,
  bucketForceCreateCall,
  bucketForceDropCall,
  bucketsCountCall,
  bucketsDiscoveryCall,
  bucketSendCall,
  bucketsInfoCall,
  bucketStatCall,
  readBucketForceCreate,
  readBucketForceDrop,
  readBucketsCount,
  readBucketsDiscovery,
  readBucketSend,
  readBucketsInfo,
  readBucketStat,
  readStorageSync,
  storageSyncCall,
  type BucketInfo,
  type BucketRecord,
  type BucketSendOptions,
  type BucketStatReply,
  type BucketStatus,
  type DiscoveryPage,
} from './buckets.js'
export {
  bucketRecvCall,
  bucketTestGcCall,
  bucketTestSendCall,
  infoCall,
  keepsRefsCall,
  readBucketRecv,
  readBucketTestGc,
  readBucketTestSend,
  readInfo,
  readKeepsRefs,
  readRebalancerApplyRoutes,
  readRebalancerRequestState,
  readRecoveryBucketStat,
  readStorageBucketCheckpoint,
  readStorageMap,
  readStorageRef,
  readStorageRefCheckWithBuckets,
  readStorageRefMakeWithBuckets,
  readStorageUnref,
  rebalancerApplyRoutesCall,
  rebalancerRequestStateCall,
  recoveryBucketStatCall,
  serviceCall,
  storageBucketCheckpointCall,
  storageMapCall,
  storageRefCall,
  storageRefCheckWithBucketsCall,
  storageRefMakeWithBucketsCall,
  storageUnrefCall,
  type BucketChunk,
  type BucketsRefReply,
  type InstanceInfo,
  type MasterUpstream,
  type MovedBucket,
  type RebalancerState,
} from './services.js'
export { idealBalance, planBalance, type BalancePlan, type BalanceShare, type BalanceState } from './balance.js'
