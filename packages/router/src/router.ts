import type { CheckedClusterConfig, ClusterConfig, ShardingKey, Strcrc32Options } from '@orbweaver/vshard'
import type { ReplicasetHandle } from '@orbweaver/replicaset'
import type { RouterCallOptions, RouterWaitOptions } from './call-options.js'
import type { CallKind } from './call-kind.js'
import type { CallCounts } from './call.js'
import type { DiscoveryMode } from './discovery.js'
import type { RouterEvents } from './events.js'
import type { ManyCall, ManyOutcome } from './many-calls.js'
import type { BucketHold, HoldOptions } from './map/hold-buckets.js'
import type { MapCall } from './map/map-call.js'
import type { MapOptions } from './map/map-options.js'
import type { RowPage, SelectPagesOptions } from './pages/select-pages.js'
import type { RouteStats } from './route-worker.js'
import type { BucketAvailability, RouterInfo } from './router-info.js'
import type { ArgumentsOf, PlainName, Signature, StoredFunction, ValuesOf } from './stored-function.js'

/**
 * Calls a function on a bucket. Its name is a text, or a `storedFunction`, whose arguments and values are checked then.
 * @returns the values it returned, at most three
 * @throws NoRouteError; VshardError: a refusal no retry can change; BoxError: what the function raised; the errors of
 * `@orbweaver/replicaset` and `@orbweaver/connection`
 */
export interface BucketCallMethod {
  <S extends Signature>(bucketId: number, name: StoredFunction<S>, ...rest: CallRest<S>): Promise<ValuesOf<S>>
  <T extends unknown[] = unknown[]>(
    bucketId: number,
    name: PlainName,
    args?: readonly unknown[],
    options?: RouterCallOptions,
  ): Promise<T>
}

/** What stands behind the name of a function with a known signature. */
export type CallRest<S extends Signature> =
  [] extends Parameters<S>
    ? [args?: ArgumentsOf<S>, options?: RouterCallOptions]
    : [args: ArgumentsOf<S>, options?: RouterCallOptions]

/** Numbers since the start. */
export interface RouterStats extends CallCounts {
  /** Questions for a bucket nobody had told about, each to all replicasets. */
  readonly lookups: number
  /** Pages read because many such buckets were wanted at once. */
  readonly lookupPages: number
  /** Buckets looked for now. */
  readonly searching: number
  /** Number of the table of routes. */
  readonly generation: number
  readonly routes: RouteStats
}

/** Where a bucket is, as far as the router knows. */
export interface BucketPlace {
  readonly bucketId: number
  /** Id of its replicaset. */
  readonly replicaset: string | undefined
  readonly availability: BucketAvailability
}

/** A vshard router. Every call names a bucket; the router knows or finds out where it is. */
export interface Router extends AsyncDisposable {
  /** As it is now. */
  readonly config: CheckedClusterConfig
  /** The bucket of a sharding key: `bucketIdMpcrc32`. */
  bucketId(key: ShardingKey): number
  bucketIdMpcrc32(key: ShardingKey): number
  bucketIdStrcrc32(key: ShardingKey, options?: Strcrc32Options): number
  /** On the master of the bucket. */
  readonly callrw: BucketCallMethod
  /** A read, where it is best to read, the master included. */
  readonly callro: BucketCallMethod
  /** A read, from all instances in turn. */
  readonly callbro: BucketCallMethod
  /** A read, from a replica if there is one. */
  readonly callre: BucketCallMethod
  /** A read, from the replicas in turn. */
  readonly callbre: BucketCallMethod
  /** Any of these, by vshard's words. */
  call<T extends unknown[] = unknown[]>(
    bucketId: number,
    kind: CallKind,
    name: string,
    args?: readonly unknown[],
    options?: RouterCallOptions,
  ): Promise<T>
  /**
   * Many writes at once, grouped by the replicasets of their buckets; `timeout` and `signal` are for all together.
   * @returns how each ended, in the order of the list. Rejects only for calls that make no sense, and then none was made.
   */
  callManyRw<T extends unknown[] = unknown[]>(
    calls: readonly ManyCall[],
    options?: RouterCallOptions,
  ): Promise<ManyOutcome<T>[]>
  /**
   * Runs a function on all masters, each bucket counted exactly once. The result has what each returned, by replicaset id; with
   * `for await` the results come as they arrive.
   * @throws MapReduceError naming the stage and the replicaset; before the stage `map` nothing was executed, and what passes by
   * itself was tried again
   */
  mapCallrw<T extends unknown[] = unknown[]>(name: string, args?: readonly unknown[], options?: MapOptions): MapCall<T>
  /**
   * Experimental. As `mapCallrw` over all buckets, on replicas where there are: they first get everything their master had when
   * its buckets were put to rest. The function must only read.
   * @throws MapReduceError; HoldLostError when the masters did not keep their buckets to the end
   */
  mapCallro<T extends unknown[] = unknown[]>(
    name: string,
    args?: readonly unknown[],
    options?: Omit<MapOptions, 'bucketIds' | 'bucketArgs'>,
  ): MapCall<T>
  /** Keeps all buckets of the cluster where they are until it is released. @throws MapReduceError when not all storages agree in time */
  holdBuckets(options?: HoldOptions): Promise<BucketHold>
  /**
   * Rows of all shards in one order, page by page, each row once also while buckets move: a page is read on the masters while no
   * bucket may leave its place. Rows that others write meanwhile are in it or not. The user needs the right to read the space.
   * @param space - its name, or its id where that is the same on all shards
   * @throws UnmergeableError naming an index whose order cannot be reproduced here; NoSuchSpaceError, NoSuchIndexError,
   * MapReduceError
   * @example for await (const { rows } of router.selectPages('users', { index: 'name', pageSize: 50 })) …
   */
  selectPages<T extends readonly unknown[] = unknown[]>(
    space: string | number,
    options?: SelectPagesOptions,
  ): AsyncGenerator<RowPage<T>, void>
  /** The replicaset that has the bucket. @throws NoRouteError */
  route(bucketId: number, options?: RouterWaitOptions): Promise<ReplicasetHandle>
  /** All replicasets by id. */
  routeAll(): ReadonlyMap<string, ReplicasetHandle>
  /** Resolves when every bucket's replicaset is known. @throws RequestTimeoutError saying why it is not */
  ready(options?: RouterWaitOptions): Promise<void>
  /** The known replicaset of a bucket, without asking anybody. */
  locate(bucketId: number): string | undefined
  /** Takes note of a bucket's move that somebody else noticed. */
  report(fact: { bucketId: number; from: string; destination: string | undefined }): void
  /** Begins to learn routes in this way from now on. */
  setDiscoveryMode(mode: DiscoveryMode): void
  /** Forgets all routes; they are learnt again as they are needed, and by discovery. */
  forgetRoutes(): void
  /** The known places of some buckets: those with the ids `offset` + 1 to `offset` + `limit`. Default: all. */
  bucketsInfo(options?: { readonly offset?: number; readonly limit?: number }): BucketPlace[]
  /**
   * Makes the buckets of a new cluster, spread by the weights of the replicasets.
   * @returns false: there were buckets already (only with `ifNotBootstrapped`)
   * @throws VshardError NON_EMPTY; ClusterError with what each replicaset that failed says: what others made stays
   */
  bootstrap(options?: RouterWaitOptions & { readonly ifNotBootstrapped?: boolean }): Promise<boolean>
  /** Resolves when every replica has what its master has now. Default of `timeout`: vshard's `sync_timeout`. @throws ClusterError */
  sync(options?: RouterWaitOptions): Promise<void>
  /**
   * Takes another configuration. Replicasets and instances that stay keep their connections and routes; calls in flight go on, also
   * those to what was removed.
   * @throws ConfigError for one that cannot be used; then nothing has changed
   */
  reconfigure(config: ClusterConfig): void
  /** Calls are refused with ROUTER_IS_DISABLED from now on; those in flight go on. */
  disable(): void
  enable(): void
  info(): RouterInfo
  stats(): RouterStats
  on<E extends keyof RouterEvents>(event: E, listener: RouterEvents[E]): this
  once<E extends keyof RouterEvents>(event: E, listener: RouterEvents[E]): this
  off<E extends keyof RouterEvents>(event: E, listener: RouterEvents[E]): this
  /** Ends it: calls that wait are refused, those sent are waited for as long as `timeout` says. */
  close(options?: { readonly timeout?: number }): Promise<void>
}
