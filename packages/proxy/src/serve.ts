/*
 * A router of this process as clients know it that call `vshard.router.…` by name: net.box and connectors of other languages. The
 * answers are those of vshard's own router: one value, or nil and an error as a map; wrong use raises an error.
 * Facts: vshard 0.1.42 (`callrw` and its kin give back the first value a function returned; `map_callrw` leaves out replicasets that
 * returned nil, and names the one that failed as a third value).
 */
import {
  BoxError,
  decodeValue,
  ErrorCode,
  isOrbweaverError,
  Key,
  type OrbweaverError,
  RawValue,
  skipValue,
} from '@orbweaver/iproto'
import { firstElement, peekKey, textAt } from './peek.js'

/** Options of one call, in milliseconds. */
interface ServedCallOptions {
  readonly timeout?: number
  readonly requestTimeout?: number
  readonly signal?: AbortSignal
  readonly raw?: boolean
}

type ServedBucketCall = (
  bucketId: number,
  name: string,
  args: readonly unknown[],
  options: ServedCallOptions,
) => Promise<readonly unknown[]>

/** What answers: a router of @orbweaver/router is one. */
export interface ServedRouter {
  readonly callrw: ServedBucketCall
  readonly callro: ServedBucketCall
  readonly callbro: ServedBucketCall
  readonly callre: ServedBucketCall
  readonly callbre: ServedBucketCall
  mapCallrw(
    name: string,
    args: readonly unknown[],
    options: ServedCallOptions & {
      readonly bucketIds?: Iterable<number>
      readonly bucketArgs?: ReadonlyMap<number, unknown>
    },
  ): PromiseLike<ReadonlyMap<string, readonly unknown[]>>
  bucketIdMpcrc32(key: string | number): number
  bucketIdStrcrc32(key: string | number): number
}

export interface ServeOptions {
  /**
   * Users whose calls are answered; those of others go to the master like any other. The router calls the storages as its own user,
   * so whoever is named here may call what that user may.
   */
  readonly users: readonly string[]
}

/** A call of a client, understood. */
export interface ServedCall {
  readonly name: string
  run(signal: AbortSignal): Promise<readonly unknown[]>
}

export class RouterService {
  readonly #router: ServedRouter
  readonly #users: ReadonlySet<string>

  constructor(router: ServedRouter, options: ServeOptions) {
    this.#router = router
    this.#users = new Set(options.users)
  }

  /** The call in a body of CALL; undefined: it is another one, or one of a user whose calls are not answered here. */
  callOf(body: Buffer, user: string): ServedCall | undefined {
    if (!this.#users.has(user)) return undefined
    const text = textAt(body, peekKey(body, Key.functionName, 'last'))
    if (text === undefined || !text.subarray(0, PREFIX.length).equals(PREFIX)) return undefined
    const name = text.toString().slice(PREFIX.length)
    const run = Object.hasOwn(CALLS, name) ? CALLS[name] : undefined
    if (run === undefined) return undefined
    return { name, run: (signal) => this.#answer(run, body, signal) }
  }

  /** @throws BoxError for what vshard's router raises */
  async #answer(run: Run, body: Buffer, signal: AbortSignal): Promise<readonly unknown[]> {
    const args = argumentsOf(body)
    try {
      return await run(this.#router, args, signal)
    } catch (error) {
      if (error instanceof UsageError) throw raised(error.message)
      if (!isOrbweaverError(error)) throw error
      if (WRONG_USE.has(error.code)) throw raised(error.message)
      const failed = replicasetOf(error)
      return [null, wireError(error), ...(failed === undefined ? [] : [failed])]
    }
  }
}

type Run = (router: ServedRouter, args: readonly RawValue[], signal: AbortSignal) => Promise<readonly unknown[]>

class UsageError extends Error {}

const CALLS: Readonly<Record<string, Run>> = {
  callrw: bucketCall('callrw'),
  callro: bucketCall('callro'),
  callbro: bucketCall('callbro'),
  callre: bucketCall('callre'),
  callbre: bucketCall('callbre'),
  call: (router, [bucketId, how, ...rest], signal) =>
    bucketCall(kindOf(valueOf(how)))(router, bucketId === undefined ? [] : [bucketId, ...rest], signal),
  map_callrw: mapCall,
  bucket_id: (router, args) => bucketId(args, (key) => router.bucketIdStrcrc32(key)),
  bucket_id_strcrc32: (router, args) => bucketId(args, (key) => router.bucketIdStrcrc32(key)),
  bucket_id_mpcrc32: (router, args) => bucketId(args, (key) => router.bucketIdMpcrc32(key)),
}

type Kind = 'callrw' | 'callro' | 'callbro' | 'callre' | 'callbre'

function bucketCall(kind: Kind): Run {
  return async (router, [bucket, name, args, options], signal) => {
    const bucketId = valueOf(bucket)
    const functionName = valueOf(name)
    if (typeof bucketId !== 'number' || typeof functionName !== 'string')
      throw new UsageError('Usage: call(bucket_id, mode, func, args, opts)')
    const given = optionsOf(options)
    // A write is sent once: it has no time of its own for each attempt.
    const { requestTimeout: _attempt, ...whole } = given.call
    const times = kind === 'callrw' ? whole : given.call
    const values = await router[kind](bucketId, functionName, listOf(args), { ...times, raw: true, signal })
    if (given.isRaw) return values.length === 0 ? [null] : [values]
    return [values[0] ?? null]
  }
}

async function mapCall(
  router: ServedRouter,
  [name, args, options]: readonly RawValue[],
  signal: AbortSignal,
): Promise<readonly unknown[]> {
  const functionName = valueOf(name)
  if (typeof functionName !== 'string') throw new UsageError('Usage: map_callrw(func, args, opts)')
  const given = optionsOf(options)
  const found = await router.mapCallrw(functionName, listOf(args), {
    ...given.call,
    ...given.buckets,
    raw: true,
    signal,
  })
  const results = new Map<string, readonly unknown[]>()
  for (const [id, values] of found) {
    if (given.isRaw) results.set(id, values)
    else if (values.length > 0 && !isNil(values[0])) results.set(id, [values[0]])
  }
  return [results]
}

function bucketId([key]: readonly RawValue[], of: (key: string | number) => number): Promise<readonly unknown[]> {
  const value = valueOf(key)
  if (typeof value !== 'string' && typeof value !== 'number') throw new UsageError('Usage: router.bucket_id(key)')
  return Promise.resolve([of(value)])
}

/** `call` is told by a word, or by a map, whether it reads and from whom. */
function kindOf(how: unknown): Kind {
  if (how === undefined || how === null) return 'callrw'
  const fields = how instanceof Map ? how : new Map<unknown, unknown>([['mode', how]])
  const mode: unknown = fields.get('mode') ?? 'write'
  if (mode !== 'read' && mode !== 'write')
    throw new UsageError('Usage: router.call(bucket_id, shard_opts, func, args, opts)')
  if (mode === 'write') return 'callrw'
  const isBalanced = fields.get('balance') === true
  if (fields.get('prefer_replica') === true) return isBalanced ? 'callbre' : 'callre'
  return isBalanced ? 'callbro' : 'callro'
}

interface GivenOptions {
  readonly call: ServedCallOptions
  readonly isRaw: boolean
  readonly buckets: { readonly bucketIds?: number[]; readonly bucketArgs?: ReadonlyMap<number, unknown> }
}

/** Times are in seconds there, and half a second where none is given. */
function optionsOf(raw: RawValue | undefined): GivenOptions {
  const value = valueOf(raw) ?? new Map<unknown, unknown>()
  // An empty table of Lua travels as an empty list.
  const options = Array.isArray(value) && value.length === 0 ? new Map<unknown, unknown>() : value
  if (!(options instanceof Map)) throw new UsageError('Usage: call(bucket_id, mode, func, args, opts)')
  const seconds = (name: string): number | undefined => {
    const given: unknown = options.get(name)
    if (given === undefined || given === null) return undefined
    if (typeof given !== 'number' || !(given > 0)) throw new UsageError(`${name} is no number of seconds above 0`)
    return given * 1_000
  }
  const timeout = seconds('timeout') ?? DEFAULT_TIMEOUT_MS
  const requestTimeout = seconds('request_timeout')
  if (requestTimeout !== undefined && requestTimeout > timeout)
    throw new UsageError('request_timeout must be <= timeout')
  return {
    call: { timeout, ...(requestTimeout === undefined ? {} : { requestTimeout }) },
    isRaw: options.get('return_raw') === true,
    buckets: bucketsOf(options.get('bucket_ids')),
  }
}

/** A list of ids, or arguments by ids. */
function bucketsOf(given: unknown): GivenOptions['buckets'] {
  if (given === undefined || given === null) return {}
  if (Array.isArray(given)) return { bucketIds: given as number[] }
  if (given instanceof Map) return { bucketArgs: given as ReadonlyMap<number, unknown> }
  throw new UsageError('bucket_ids is neither a list of bucket ids nor a map of arguments by them')
}

// ---- values as they travel ------------------------------------------------------------------------------------------

/** The arguments of a CALL, each as the bytes it came in. @throws BoxError when they are no list */
function argumentsOf(body: Buffer): RawValue[] {
  const at = peekKey(body, Key.tuple, 'last')
  return at < 0 ? [] : elementsOf(body, at)
}

/** An argument that is a list itself, element by element: nothing of it is decoded. Absent or nil: an empty one. */
function listOf(raw: RawValue | undefined): RawValue[] {
  if (raw === undefined || isNil(raw)) return []
  const bytes = memoryOf(raw)
  const lead = bytes[0]!
  // An empty table of Lua may come as an empty map.
  if (lead === 0x80) return []
  if (!((lead >= 0x90 && lead < 0xa0) || lead === 0xdc || lead === 0xdd))
    throw new UsageError('Arguments of the function are no list')
  return elementsOf(bytes, 0)
}

function elementsOf(bytes: Buffer, at: number): RawValue[] {
  const elements: RawValue[] = []
  const lead = bytes[at]!
  const count = lead === 0xdc ? bytes.readUInt16BE(at + 1) : lead === 0xdd ? bytes.readUInt32BE(at + 1) : lead & 0x0f
  let from = firstElement(bytes, at)
  for (let i = 0; i < count && from >= 0 && from < bytes.length; i++) {
    const to = skipValue(bytes, from, bytes.length)
    elements.push(new RawValue(bytes.subarray(from, to)))
    from = to
  }
  return elements
}

function valueOf(raw: RawValue | undefined): unknown {
  return raw === undefined ? undefined : decodeValue(memoryOf(raw), { maps: 'map' })
}

function memoryOf({ bytes }: RawValue): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
}

function isNil(value: unknown): boolean {
  return value === null || value === undefined || (value instanceof RawValue && value.bytes[0] === MSGPACK_NIL)
}

/** An error as vshard's router gives it back: a map. */
function wireError(error: OrbweaverError): Readonly<Record<string, unknown>> {
  const cause: unknown = error.code === 'ORB_MAP_REDUCE' ? error.cause : undefined
  const told = isOrbweaverError(cause) ? cause : error
  if (hasWireForm(told)) return told.toWire()
  if (told instanceof BoxError) return { type: told.boxType, code: told.boxCode, message: told.message }
  if (told.code === 'ORB_NO_ROUTE') {
    const found = 'bucketId' in told ? told.bucketId : undefined
    return { type: 'ShardingError', code: 9, name: 'NO_ROUTE_TO_BUCKET', message: told.message, bucket_id: found }
  }
  const code = told.code === 'ORB_REQUEST_TIMEOUT' ? ErrorCode.timeout : ErrorCode.noConnection
  return { type: 'ClientError', code, message: told.message }
}

/** Errors of vshard know how they travel. */
function hasWireForm(error: object): error is { toWire(): Readonly<Record<string, unknown>> } {
  return 'toWire' in error && typeof error.toWire === 'function'
}

/** The replicaset that a map failed at. */
function replicasetOf(error: OrbweaverError): string | undefined {
  const id: unknown = 'replicasetId' in error ? error.replicasetId : undefined
  return typeof id === 'string' ? id : undefined
}

/** What Lua raises with `error(text)`. */
function raised(message: string): BoxError {
  return BoxError.of(ErrorCode.procLua, message)
}

const PREFIX = Buffer.from('vshard.router.')
const DEFAULT_TIMEOUT_MS = 500
const MSGPACK_NIL = 0xc0
/** Answers to wrong use, which Lua raises. */
const WRONG_USE: ReadonlySet<string> = new Set(['ORB_INVALID_ARGUMENT', 'ORB_CONFIG'])
