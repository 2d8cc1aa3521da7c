import type { Storage } from '@orbweaver/storage'
import type { ClusterConfig } from '@orbweaver/vshard'

/** What a test or a demo adds to every embedded instance: functions, mostly. */
export type SetUp = (
  storage: Storage,
  instance: { id: string; name: string; replicasetId: string },
) => void | Promise<void>

/** One instance to be started. */
export interface InstanceSpec {
  readonly id: string
  readonly config: ClusterConfig
  /** Serves `vshard.storage.*`. */
  readonly vshard: boolean
  /** In this process instead of one of its own. */
  readonly inProcess: boolean
  /** A directory of its own, for whatever it must write. */
  readonly dir: string
  /** Instances that must have a write before it is acknowledged. */
  readonly quorum: number
  /** `full`: what was acknowledged is on disk in `dir`. Default `none`. */
  readonly durability?: 'none' | 'full'
  /** Run once in each instance: a function (in this process only) or the URL of a module that exports `setUp`. */
  readonly setUp?: SetUp | string
  /** URL of a Lua file that every Tarantool runs once it is configured. */
  readonly lua?: string
}

export interface RunningInstance {
  /** `host:port`, without credentials. */
  readonly uri: string
  /** How it ended: exit code, or signal. For one in this process: 0. */
  readonly exited: Promise<number | string>
  /** Makes it the master of its replicaset. */
  promote(): Promise<void>
  /** Takes another configuration of the cluster, of which it stays a part. */
  apply(config: ClusterConfig): Promise<void>
  /** SIGKILL ends one in this process without a farewell too; SIGSTOP and SIGCONT need a process of its own. */
  signal(name: 'SIGTERM' | 'SIGKILL' | 'SIGSTOP' | 'SIGCONT'): void
}

/** A kind of server a cluster can consist of. `missing`: why it cannot run here, in words for a skipped test. */
export interface EngineDriver {
  readonly name: 'embedded' | 'tarantool'
  missing(): string | undefined
  /** Resolves when it accepts clients. */
  start(spec: InstanceSpec): Promise<RunningInstance>
}
