export { createProxy, type MasterSource, type Proxy } from './proxy.js'
export type { ProxyStats, TargetStatus } from './stats.js'
export type { ClientStatus, LaneStatus } from './status.js'
export type { Activity, PinReason } from './client.js'
export type { AdminOptions } from './admin.js'
export type { MetricsPage } from './metrics.js'
export { CHANNELS, type FailoverMessage, type RequestTrace } from './diagnostics.js'
export type { BalanceOptions } from './balancing.js'
export type { ListenOptions, ListenTls, TargetTls } from './listener.js'
export type {
  CredentialOptions,
  Embedded,
  FailoverDefaults,
  PinOptions,
  PoolOptions,
  ProxyOptions,
  RetryOptions,
  TargetDefinition,
} from './options.js'
export type { ReconfigurationReport } from './reconfiguration.js'
export type { ProxyLimits } from './limits.js'
export type { SplitOptions } from './routing.js'
export type { ServedRouter, ServeOptions } from './serve.js'
export type { BounceOptions, BucketLocator } from './bounce.js'
export type { VerifyPolicy } from './auth.js'
export type { TargetState } from './target.js'
export {
  FailoverError,
  type FailoverOptions,
  type FailoverOutcome,
  type FailoverReport,
  type FailoverStep,
} from './failover.js'
export { NotWritableError, REASON, type Reason, TargetUnavailableError, UnknownTargetError } from './errors.js'
