/* A storage tells which cluster it belongs to: a seed is enough to find all the others. */
import { connect } from '@orbweaver/connection'
import type { Environment } from '@orbweaver/connection'
import { ConfigError, InvalidArgumentError } from '@orbweaver/iproto'
import type { ClusterConfig } from '@orbweaver/vshard'
import { readAnyConfig } from './any-config.js'
import type { TopologySource } from './topology-source.js'

export interface StorageTopologyOptions {
  /** Addresses of storages, asked in this order until one answers. */
  readonly uris: readonly string[]
  readonly user?: string
  readonly password?: string
  /**
   * Name of a function on the storages that returns the configuration, in vshard's shape or in ours. Default: none, and vshard's own is
   * read by EVAL, which needs a user that may execute anything (`universe`).
   */
  readonly function?: string
  /** Milliseconds for each address. Default 5,000. */
  readonly timeout?: number
  readonly environment?: Partial<Environment>
}

/** The configuration one of these storages has. */
export function topologyOfStorage(options: StorageTopologyOptions): TopologySource {
  if (options.uris.length === 0) throw new InvalidArgumentError('uris is empty, expected the address of a storage')
  return { read: (signal) => readFromAny(options, signal) }
}

async function readFromAny(options: StorageTopologyOptions, signal: AbortSignal): Promise<ClusterConfig> {
  const reasons: { path: string; message: string }[] = []
  for (const uri of options.uris) {
    signal.throwIfAborted()
    try {
      return await readFrom(uri, options)
    } catch (error) {
      reasons.push({ path: uri, message: error instanceof Error ? error.message : String(error) })
    }
  }
  throw new ConfigError(reasons, { subject: 'topology of storages' })
}

async function readFrom(uri: string, options: StorageTopologyOptions): Promise<ClusterConfig> {
  const { user, password, function: name, timeout = DEFAULT_TIMEOUT_MS, environment } = options
  const connection = await connect({
    uri,
    reconnect: false,
    connectTimeoutMs: timeout,
    ...(user === undefined ? {} : { user }),
    ...(password === undefined ? {} : { password }),
    ...(environment === undefined ? {} : { environment }),
  })
  try {
    const [config] =
      name === undefined
        ? await connection.eval<[unknown]>(VSHARD_CONFIG, [], { timeout })
        : await connection.call<[unknown]>(name, [], { timeout })
    return readAnyConfig(config)
  } finally {
    connection.destroy()
  }
}

/** What `vshard.storage.cfg` was given, without the options of the database, which are no concern of a router. */
const VSHARD_CONFIG = `
local cfg = require('vshard').storage.internal.current_cfg
return {sharding = cfg.sharding, bucket_count = cfg.bucket_count, identification_mode = cfg.identification_mode,
        shard_index = cfg.shard_index, discovery_mode = cfg.discovery_mode}`
const DEFAULT_TIMEOUT_MS = 5_000
