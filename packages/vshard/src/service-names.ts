/* Names of what a storage can be asked. Source: `storage/exports.lua` and `storage/init.lua` of vshard 0.1.42. */

/** The functions registered on every vshard storage, callable by the user of the replica URIs. */
export const STORAGE_FUNCTIONS = {
  call: 'vshard.storage.call',
  service: 'vshard.storage._call',
  bucketStat: 'vshard.storage.bucket_stat',
  bucketsDiscovery: 'vshard.storage.buckets_discovery',
  bucketsCount: 'vshard.storage.buckets_count',
  bucketForceCreate: 'vshard.storage.bucket_force_create',
  bucketForceDrop: 'vshard.storage.bucket_force_drop',
  sync: 'vshard.storage.sync',
  bucketRecv: 'vshard.storage.bucket_recv',
  bucketSend: 'vshard.storage.bucket_send',
  rebalancerRequestState: 'vshard.storage.rebalancer_request_state',
  rebalancerApplyRoutes: 'vshard.storage.rebalancer_apply_routes',
  bucketCollect: 'vshard.storage.bucket_collect',
  bucketsInfo: 'vshard.storage.buckets_info',
} as const

/** A function of this project's storages, which those in Lua do not have. */
export const KEEPS_REFS = 'orbweaver.vshard.keeps_refs'

/** The services behind `vshard.storage._call(name, …)`. */
export const SERVICES = {
  info: 'info',
  storageRef: 'storage_ref',
  storageRefMakeWithBuckets: 'storage_ref_make_with_buckets',
  storageRefCheckWithBuckets: 'storage_ref_check_with_buckets',
  storageMap: 'storage_map',
  storageUnref: 'storage_unref',
  bucketTestGc: 'bucket_test_gc',
  bucketTestSend: 'bucket_test_send',
  recoveryBucketStat: 'recovery_bucket_stat',
  storageBucketCheckpoint: 'storage_bucket_checkpoint',
  bucketRecv: 'bucket_recv',
  rebalancerRequestState: 'rebalancer_request_state',
  rebalancerApplyRoutes: 'rebalancer_apply_routes',
  createReplicasetRecoveryPoint: 'create_replicaset_recovery_point',
  testApi: 'test_api',
} as const

/** A name of {@link STORAGE_FUNCTIONS}, as it travels. */
export type StorageFunctionName = (typeof STORAGE_FUNCTIONS)[keyof typeof STORAGE_FUNCTIONS]

/** A name of {@link SERVICES}, as it travels. */
export type ServiceName = (typeof SERVICES)[keyof typeof SERVICES]
