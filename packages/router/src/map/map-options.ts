import { checkOptions, InvalidArgumentError, optionRule } from '@orbweaver/iproto'
import type { OptionRules } from '@orbweaver/iproto'

/** How a map is done. */
export interface MapOptions {
  /** Milliseconds for everything. Default: of the router. `Infinity`: none. */
  readonly timeout?: number
  readonly signal?: AbortSignal
  /** Milliseconds of `timeout` kept for the map itself: references not granted before end the call. Default 0. */
  readonly mapTimeout?: number
  /** Only the replicasets that have these buckets. */
  readonly bucketIds?: Iterable<number>
  /** The same, with an argument for each bucket: every replicaset gets a map of its own buckets' arguments as its last argument. */
  readonly bucketArgs?: ReadonlyMap<number, unknown>
  /** Give values as the bytes they came in (`RawValue`), undecoded. Default false. */
  readonly raw?: boolean
}

const RULES: OptionRules = {
  timeout: optionRule.anything,
  signal: optionRule.anything,
  mapTimeout: optionRule.anything,
  bucketIds: { expected: 'a list or a set of bucket ids', fits: (value) => Symbol.iterator in Object(value) },
  bucketArgs: { expected: 'a Map of arguments by bucket id', fits: (value) => value instanceof Map },
  raw: optionRule.flag,
}

export const NO_MAP_OPTIONS: MapOptions = {}

/** @throws ConfigError for options that are not known, or of another type */
export function checkMapOptions(options: MapOptions): void {
  if (options === NO_MAP_OPTIONS || isUsual(options)) return
  checkOptions('map options', options, RULES)
}

/** Without an object per call: the problems, if there are any, are found and told by the table. */
function isUsual(options: MapOptions): boolean {
  if (typeof options !== 'object' || options === null) return false
  for (const name in options) {
    if (!Object.hasOwn(RULES, name)) return false
    const value = options[name as keyof MapOptions]
    if (value !== undefined && !RULES[name]!.fits(value)) return false
  }
  return true
}

/** Which buckets are meant; undefined: all. @throws InvalidArgumentError for options that contradict each other */
export function bucketsOf({ bucketArgs, bucketIds }: MapOptions): ReadonlySet<number> | undefined {
  if (bucketIds !== undefined && bucketArgs !== undefined)
    throw new InvalidArgumentError('Give bucketIds or bucketArgs, not both: the arguments name the buckets')
  if (bucketArgs !== undefined) return new Set(bucketArgs.keys())
  return bucketIds === undefined ? undefined : new Set(bucketIds)
}

/** @throws InvalidArgumentError unless it is a part of the whole */
export function mapTimeoutOf({ mapTimeout = 0 }: MapOptions, timeoutMs: number): number {
  if (Number.isFinite(mapTimeout) && mapTimeout >= 0 && mapTimeout <= timeoutMs) return mapTimeout
  throw new InvalidArgumentError(
    `mapTimeout is ${String(mapTimeout)}, expected 0 to ${timeoutMs}, the timeout of the whole call`,
  )
}
