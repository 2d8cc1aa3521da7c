/* What is different between two configurations, and so has to be done. Pure; the proxy does it. */
import { formatAddress } from '@orbweaver/connection'
import type { ResolvedOptions } from './options.js'
import type { ListenOptions } from './listener.js'

/** What a reconfiguration changed. */
export interface ReconfigurationReport {
  /** By path: `listen 127.0.0.1:3302 added`, `targets.c removed`, `rw`, `limits.maxClients`. Empty: nothing. */
  readonly changes: readonly string[]
}

export interface ReconfigurationPlan extends ReconfigurationReport {
  readonly listenersAdded: readonly ListenOptions[]
  /** At the same address, with other certificates or others to trust. */
  readonly listenersRenewed: readonly ListenOptions[]
  /** By their text. */
  readonly listenersRemoved: readonly string[]
  readonly targetsAdded: readonly string[]
  /** Found at another address, or another thing in this process. */
  readonly targetsMoved: readonly string[]
  readonly targetsRemoved: readonly string[]
}

export function planReconfiguration(current: ResolvedOptions, next: ResolvedOptions): ReconfigurationPlan {
  const before = new Set(current.listen.map(formatAddress))
  const after = new Set(next.listen.map(formatAddress))
  const listenersAdded = next.listen.filter((address) => !before.has(formatAddress(address)))
  const listenersRemoved = [...before].filter((address) => !after.has(address))
  const doors = new Map(current.listen.map((options) => [formatAddress(options), doorOf(options)]))
  const listenersRenewed = next.listen.filter((options) => {
    const door = doors.get(formatAddress(options))
    return door !== undefined && door !== doorOf(options)
  })
  const names = [...next.targets.keys()]
  const targetsAdded = names.filter((name) => !current.targets.has(name))
  const targetsRemoved = [...current.targets.keys()].filter((name) => !next.targets.has(name))
  const targetsMoved = names.filter((name) => {
    const old = current.targets.get(name)
    return old !== undefined && old.identity !== next.targets.get(name)!.identity
  })
  const changes = [
    ...listenersAdded.map((address) => `listen ${formatAddress(address)} added`),
    ...listenersRemoved.map((address) => `listen ${address} removed`),
    ...listenersRenewed.map((options) => `listen ${formatAddress(options)}`),
    ...targetsAdded.map((name) => `targets.${name} added`),
    ...targetsRemoved.map((name) => `targets.${name} removed`),
    ...targetsMoved.map((name) => `targets.${name}.uri`),
    ...names
      .filter(
        (name) =>
          (current.targets.get(name)?.weight ?? next.targets.get(name)!.weight) !== next.targets.get(name)!.weight,
      )
      .map((name) => `targets.${name}.weight`),
    ...PLAIN.filter((name) => !isSame(current[name], next[name])),
    ...Object.entries(next.limits)
      .filter(([name, value]) => current.limits[name as keyof typeof current.limits] !== value)
      .map(([name]) => `limits.${name}`),
  ]
  return { changes, listenersAdded, listenersRenewed, listenersRemoved, targetsAdded, targetsMoved, targetsRemoved }
}

/** What makes a listener more than a plain socket, as text. */
function doorOf({ tls, proxyProtocol, isDirect }: ListenOptions): string {
  return JSON.stringify([tls, proxyProtocol, isDirect])
}

/** Options that are compared as a whole. */
const PLAIN = [
  'rw',
  'ro',
  'credentials',
  'verify',
  'modes',
  'weights',
  'split',
  'balance',
  'pin',
  'onFailover',
  'retriesReads',
  'rejectWhenReadOnly',
  'admin',
  'failover',
  'version',
  'uuid',
  'forwardUnknown',
] as const

/** They come from data: their text is what they are. */
function isSame(a: unknown, b: unknown): boolean {
  return JSON.stringify(a) === JSON.stringify(b)
}
