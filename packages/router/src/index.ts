export { createRouter, openRouter } from './create-router.js'
export type { BucketCallMethod, BucketPlace, CallRest, Router, RouterStats } from './router.js'
export type { RouterOptions } from './router-options.js'
export type { RouterCallOptions, RouterWaitOptions } from './call-options.js'
export type { CallKind } from './call-kind.js'
export type { CallCounts } from './call.js'
export type { ManyCall, ManyOutcome } from './many-calls.js'
export { storedFunction } from './stored-function.js'
export type { ArgumentsOf, PlainName, Signature, StoredFunction, ValuesOf } from './stored-function.js'
export type { DiscoveryMode, SetDiscovery } from './discovery.js'
export type { RouteStats } from './route-worker.js'
export type { ReplicasetTuning } from './topology.js'

// Where configurations come from.
export { readAnyConfig } from './any-config.js'
export { topologyFile, type TopologyFileOptions } from './topology-file.js'
export { type StorageTopologyOptions, topologyOfStorage } from './topology-of-storage.js'
export type { TopologySource } from './topology-source.js'

// Map-reduce, holds, pages.
export type { MapResult } from './map/arrivals.js'
export type { MapCall } from './map/map-call.js'
export type { MapOptions } from './map/map-options.js'
export type { BucketHold, HoldOptions } from './map/hold-buckets.js'
export {
  ClusterError,
  HoldLostError,
  MapReduceError,
  NoRouteError,
  RouterClosedError,
  UnmergeableError,
} from './errors.js'
export type { MapStage } from './errors.js'
export { merge } from './ordered-merge.js'
export type { MergeOptions } from './ordered-merge.js'
export type { RowPage, SelectPagesOptions } from './pages/select-pages.js'
export type { PageIterator } from './pages/row-range.js'

// What it tells.
export type { RouterAlert } from './alerts.js'
export type { RouterEvents, RoutesChange, TopologyEvent } from './events.js'
export type { BucketAvailability, ReplicasetSummary, RouterInfo, RouterStatus } from './router-info.js'
export { type CallTrace, CHANNELS, type MapTrace } from './diagnostics.js'
