/* What a call may be told. Checked by hand: calls are many. */
import { InvalidArgumentError, shownValue } from '@orbweaver/iproto'
import type { CallMode } from '@orbweaver/replicaset'

/** Options of everything that asks somebody. */
export interface RouterWaitOptions {
  /** Milliseconds for everything. Default: `callTimeoutMs` of the router. `Infinity`: none. */
  readonly timeout?: number
  /** Ends it with `RequestAbortedError`. What was sent is not undone. */
  readonly signal?: AbortSignal
}

/** Options of calls on a bucket. */
export interface RouterCallOptions extends RouterWaitOptions {
  /** Reads: milliseconds for each instance that is asked; then another is asked. Default: none of its own. vshard: `request_timeout`. */
  readonly requestTimeout?: number
  /**
   * Reads: `stable` asks the same instance for the same bucket from every router, as long as it can serve. For caches, and for
   * readers that must agree.
   */
  readonly prefer?: 'stable'
  /** Reads: only instances at most so many milliseconds behind the master. */
  readonly maxLagMs?: number
  /**
   * Writes: running it twice does no harm. It is sent again after its answer was lost, and after the function met a read-only database,
   * as during a planned switch of the master. Default false.
   */
  readonly idempotent?: boolean
  /** Give values as the bytes they came in (`RawValue`), undecoded. Default false. */
  readonly raw?: boolean
}

export const NO_OPTIONS: RouterCallOptions = {}

/** @throws InvalidArgumentError */
export function checkCallOptions(mode: CallMode, options: RouterCallOptions): void {
  if (options === NO_OPTIONS) return
  if (typeof options !== 'object' || options === null) throw wrong('Options of a call', options, 'an object')
  for (const name in options) if (!NAMES.has(name)) throw unknownOption(name, NAMES)
  const { requestTimeout, prefer, maxLagMs, idempotent, raw } = options
  checkWait(options)
  if (requestTimeout !== undefined && !isDuration(requestTimeout))
    throw wrong('requestTimeout', requestTimeout, 'milliseconds above 0')
  if (maxLagMs !== undefined && !(typeof maxLagMs === 'number' && maxLagMs >= 0))
    throw wrong('maxLagMs', maxLagMs, 'milliseconds from 0')
  if (prefer !== undefined && prefer !== 'stable') throw wrong('prefer', prefer, "'stable'")
  if (idempotent !== undefined && typeof idempotent !== 'boolean')
    throw wrong('idempotent', idempotent, 'true or false')
  if (raw !== undefined && typeof raw !== 'boolean') throw wrong('raw', raw, 'true or false')
  if (mode === 'rw' && (requestTimeout ?? prefer ?? maxLagMs) !== undefined)
    throw new InvalidArgumentError('requestTimeout, prefer and maxLagMs are for reads, and this is a write')
}

/** @throws InvalidArgumentError */
export function checkWaitOptions(options: RouterWaitOptions): void {
  if (options === NO_OPTIONS) return
  if (typeof options !== 'object' || options === null) throw wrong('Options', options, 'an object')
  for (const name in options) if (!WAIT_NAMES.has(name)) throw unknownOption(name, WAIT_NAMES)
  checkWait(options)
}

/** The two alone, among options that were checked elsewhere. @throws InvalidArgumentError */
export function checkWait({ timeout, signal }: RouterWaitOptions): void {
  if (timeout !== undefined && !isDuration(timeout))
    throw wrong('timeout', timeout, 'milliseconds above 0, or Infinity')
  if (signal !== undefined && !(signal instanceof AbortSignal)) throw wrong('signal', signal, 'an AbortSignal')
}

function isDuration(value: unknown): boolean {
  return typeof value === 'number' && value > 0
}

function wrong(what: string, value: unknown, expected: string): InvalidArgumentError {
  return new InvalidArgumentError(`${what} is ${shownValue(value)}, expected ${expected}`)
}

function unknownOption(name: string, known: ReadonlySet<string>): InvalidArgumentError {
  return new InvalidArgumentError(`A call has no option '${name}'; it has ${[...known].join(', ')}`)
}

const NAMES: ReadonlySet<string> = new Set<keyof RouterCallOptions>([
  'timeout',
  'signal',
  'requestTimeout',
  'prefer',
  'maxLagMs',
  'idempotent',
  'raw',
])
const WAIT_NAMES: ReadonlySet<string> = new Set<keyof RouterWaitOptions>(['timeout', 'signal'])
