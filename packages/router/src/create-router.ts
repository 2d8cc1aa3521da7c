import type { Router } from './router.js'
import type { RouterOptions } from './router-options.js'
import type { TopologySource } from './topology-source.js'
import { VshardRouter } from './vshard-router.js'

/** Returns at once; nobody needs to be reachable yet. @throws ConfigError */
export function createRouter(options: RouterOptions): Router {
  return new VshardRouter(options)
}

/**
 * As `createRouter`, with the configuration a source has now.
 * @throws what the source says when it cannot be read; ConfigError
 */
export async function openRouter(
  options: Omit<RouterOptions, 'config'> & { readonly topology: TopologySource },
  signal: AbortSignal = new AbortController().signal,
): Promise<Router> {
  return createRouter({ ...options, config: await options.topology.read(signal) })
}
