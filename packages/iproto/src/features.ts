import { RequestType } from './constants.js'

/**
 * What the two ends of a connection may agree on by ID, by its number on the wire. Only 2, 7 and 8 change what a server
 * sends; the others say what it understands.
 */
export const Feature = {
  streams: 0,
  transactions: 1,
  errorExtension: 2,
  watchers: 3,
  pagination: 4,
  names: 5,
  watchOnce: 6,
  dmlTupleExtension: 7,
  callReturnTupleExtension: 8,
  callArgumentTupleExtension: 9,
  fetchSnapshotCursor: 10,
  isSync: 11,
  insertArrow: 12,
} as const
export type Feature = (typeof Feature)[keyof typeof Feature]

/** The protocol version we announce in ID: that of Tarantool 3.2. */
export const PROTOCOL_VERSION = 9

/** Which feature a request type needs; a type that is absent here works on every server. */
export const FEATURE_OF_REQUEST: ReadonlyMap<number, Feature> = new Map<number, Feature>([
  [RequestType.begin, Feature.transactions],
  [RequestType.commit, Feature.transactions],
  [RequestType.rollback, Feature.transactions],
  [RequestType.watch, Feature.watchers],
  [RequestType.unwatch, Feature.watchers],
  [RequestType.watchOnce, Feature.watchOnce],
  [RequestType.insertArrow, Feature.insertArrow],
])

/**
 * Features of a server whose ID request failed with error 48 or was never answered because it is too old: none.
 * Gate by the reply, never by the greeting's version: old servers ignore what they do not know instead of refusing it.
 */
export const NO_FEATURES: ReadonlySet<number> = new Set()

/** Name of a feature for messages: `pagination`, or `feature 42` for a number unknown here. */
export function featureName(feature: number): string {
  for (const [name, number] of Object.entries(Feature)) if (number === feature) return name
  return `feature ${feature}`
}
