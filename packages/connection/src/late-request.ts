/**
 * Requests that cannot be written before the peer is known: names to resolve, features to check. They are resolved at the
 * moment they are encoded, on the connection that will carry them, and resolved again if that moment has to be repeated.
 */
import {
  BodyReader,
  type BodyWriter,
  Feature,
  featureName,
  FrameHeader,
  FrameWriter,
  Key,
  pingRequest,
  rawRequest,
  type Request,
  type RequestClass,
  RequestType,
  UnsupportedFeatureError,
} from '@orbweaver/iproto'
import { NoSuchIndexError } from './errors.js'
import type { IndexDefinition, Schema } from './schema.js'

/** What is known of the peer of this generation. */
export interface PeerView {
  /** From the greeting. */
  readonly version: string
  readonly features: ReadonlySet<number>
  readonly schema: Schema
  /** For messages. */
  readonly name: string
}

/** What a request is about, by id or by name. */
export interface Target {
  readonly space: number | string
  readonly index: number | string
}

/** @typeParam Args - what the caller gave, apart from space and index */
export interface LateRequestParts<Args extends readonly unknown[]> {
  readonly type: number
  readonly requestClass: RequestClass
  readonly args: Args
  /** Builds the request for ids or names; without `target` both are 0 and mean nothing. */
  readonly build: (space: number | string, index: number | string, args: Args) => Request
  readonly target?: Target
  /** Refuses what this peer cannot do. @throws UnsupportedFeatureError */
  readonly check?: ((peer: PeerView) => void) | undefined
  /**
   * Whether the server shall refuse (109) when the schema has changed since the names were looked up; then it can be sent
   * again. Not inside a stream, where sending again would overtake what came behind.
   */
  readonly checksVersion?: boolean
}

export class LateRequest<Args extends readonly unknown[] = readonly unknown[]> implements Request {
  readonly type: number
  readonly requestClass: RequestClass
  /** Set by `resolve`: names were looked up in a schema that may have been too old. */
  wasLookedUp = false
  /** Set by `resolve`: the version the server shall compare with its own; 0: none. */
  schemaVersion = 0
  readonly #parts: LateRequestParts<Args>
  #args: Args
  /** Its body, once it has to wait: arguments are read before the method that took them returns. */
  #frozen: Buffer | undefined
  /** The ids it was last resolved to. */
  #lastSpace = -1
  #lastIndex = -1

  constructor(parts: LateRequestParts<Args>) {
    this.type = parts.type
    this.requestClass = parts.requestClass
    this.#parts = parts
    this.#args = parts.args
  }

  get target(): Target | undefined {
    return this.#parts.target
  }

  /**
   * The request as this peer takes it.
   * @returns undefined: the schema must be refreshed first
   * @throws UnsupportedFeatureError, NoSuchSpaceError, NoSuchIndexError (all: nothing was sent)
   */
  resolve(peer: PeerView, schemaSeen: number): Request | undefined {
    const { check, target, checksVersion } = this.#parts
    check?.(peer)
    this.schemaVersion = 0
    this.wasLookedUp = false
    if (target === undefined) return this.#for(0, 0)
    if (peer.features.has(Feature.names) || (typeof target.space === 'number' && typeof target.index === 'number')) {
      return this.#for(target.space, target.index)
    }
    const found = peer.schema.resolve(target.space, target.index, schemaSeen)
    if (found === undefined) return undefined
    const { spaceId, indexId, version } = found
    this.wasLookedUp = true
    // The same ids twice in a row: other parts of the schema are changing, which must not hold this request up.
    const isNewTarget = spaceId !== this.#lastSpace || indexId !== this.#lastIndex
    if (checksVersion === true && isNewTarget) {
      this.schemaVersion = version
      this.#keepArguments()
    }
    this.#lastSpace = spaceId
    this.#lastIndex = indexId
    return this.#for(spaceId, indexId)
  }

  /** Takes a copy of the arguments, encoded. @returns its size in bytes @throws InvalidArgumentError */
  freeze(): number {
    this.#frozen ??= encodedBody(this.#parts.build(0, 0, this.#args))
    return this.#frozen.length
  }

  writeBody(): void {
    throw new TypeError('A late request has no body before it is resolved')
  }

  /** The server may refuse it, and by the time it is sent again the caller may have changed its arguments. */
  #keepArguments(): void {
    if (this.#frozen !== undefined) return
    const copy = copyOfPlain(this.#args, 0)
    if (copy === NOT_PLAIN) this.freeze()
    else this.#args = copy as Args
  }

  #for(space: number | string, index: number | string): Request {
    if (this.#frozen === undefined) return this.#parts.build(space, index, this.#args)
    if (this.#parts.target === undefined) return rawRequest(this.type, this.requestClass, this.#frozen)
    return new RetargetedRequest(this.type, this.requestClass, this.#frozen, space, index)
  }
}

const NOT_PLAIN = Symbol('not plain')

/** A copy of nested arrays of values that cannot change; `NOT_PLAIN` when there is anything else in them. Encoding costs more. */
function copyOfPlain(value: unknown, depth: number): unknown {
  if (typeof value !== 'object' || value === null) return typeof value === 'function' ? NOT_PLAIN : value
  if (!Array.isArray(value) || depth > MAX_PLAIN_DEPTH) return NOT_PLAIN
  const copy: unknown[] = []
  for (const element of value as unknown[]) {
    const own = copyOfPlain(element, depth + 1)
    if (own === NOT_PLAIN) return NOT_PLAIN
    copy.push(own)
  }
  return copy
}

/** Arguments, a list of operations, an operation: deeper arrays are data and go the other way. */
const MAX_PLAIN_DEPTH = 3

/** Looks an index up in the schema of the connection, and asks for a sign of life behind it. */
export class DescribeRequest extends LateRequest {
  #definition: IndexDefinition | undefined
  readonly #target: Target

  constructor(target: Target) {
    super({ type: RequestType.ping, requestClass: 'read', args: [], build: pingRequest })
    this.#target = target
  }

  /** There once the request was answered. @throws NoSuchIndexError when it is not in the schema */
  get definition(): IndexDefinition {
    if (this.#definition === undefined)
      throw new NoSuchIndexError(String(this.#target.space), String(this.#target.index))
    return this.#definition
  }

  override resolve(peer: PeerView, schemaSeen: number): Request | undefined {
    const { space, index } = this.#target
    const found = peer.schema.resolve(space, index, schemaSeen)
    if (found === undefined) return undefined
    this.#definition = peer.schema.trusted(schemaSeen)?.space(found.spaceId)?.indexesById.get(found.indexId)
    return super.resolve(peer, schemaSeen)
  }
}

/** A request whose arguments were copied, so that the caller may change them while it waits. @throws InvalidArgumentError */
export function frozenRequest(request: Request): { readonly request: Request; readonly bytes: number } {
  if (request instanceof LateRequest) return { bytes: request.freeze(), request }
  const body = encodedBody(request)
  return { bytes: body.length, request: rawRequest(request.type, request.requestClass, body) }
}

/** For `check`: the peer has the feature, or the caller learns it before anything is sent. */
export function requireFeature(peer: PeerView, feature: number, what: string): void {
  if (peer.features.has(feature)) return
  throw unsupported(peer, feature, what)
}

export function unsupported(peer: PeerView, feature: number, what: string): UnsupportedFeatureError {
  return new UnsupportedFeatureError(
    featureName(feature),
    `${what} needs the feature "${featureName(feature)}", which ${peer.name} (Tarantool ${peer.version}) does not have`,
  )
}

/** A copied body with another space and index in it. */
class RetargetedRequest implements Request {
  readonly type: number
  readonly requestClass: RequestClass
  readonly #body: Buffer
  readonly #space: number | string
  readonly #index: number | string

  constructor(type: number, requestClass: RequestClass, body: Buffer, space: number | string, index: number | string) {
    this.type = type
    this.requestClass = requestClass
    this.#body = body
    this.#space = space
    this.#index = index
  }

  writeBody(out: BodyWriter): void {
    const body = new BodyReader(this.#body)
    const kept = COPIED_KEYS.filter((key) => body.has(key))
    const hasIndex = INDEXED_TYPES.has(this.type)
    out.mapHeader(kept.length + (hasIndex ? 2 : 1))
    writeRef(out, this.#space, Key.spaceId, Key.spaceName)
    if (hasIndex) writeRef(out, this.#index, Key.indexId, Key.indexName)
    for (const key of kept) {
      out.uint(key)
      out.raw(body.requireSlice(key))
    }
  }
}

function writeRef(out: BodyWriter, ref: number | string, idKey: number, nameKey: number): void {
  if (typeof ref === 'number') {
    out.uint(idKey)
    out.uint(ref)
  } else {
    out.uint(nameKey)
    out.text(ref)
  }
}

function encodedBody(request: Request): Buffer {
  scratch.request(request, 0)
  const chunks = scratch.take()
  const frame = chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks)
  scratchHeader.read(frame)
  // A copy of its own: a slice would keep the whole slab for as long as the request waits.
  return Buffer.from(frame.subarray(scratchHeader.bodyStart, scratchHeader.bodyEnd))
}

/** Used within one call only. */
const scratch = new FrameWriter({ slabBytes: 4_096 })
const scratchHeader = new FrameHeader()
/** Everything a request about a space may hold besides the space and the index. */
const COPIED_KEYS: readonly number[] = [
  Key.limit,
  Key.offset,
  Key.iterator,
  Key.indexBase,
  Key.fetchPosition,
  Key.key,
  Key.tuple,
  Key.ops,
  Key.afterPosition,
  Key.afterTuple,
]
/** SELECT, UPDATE and DELETE name an index. */
const INDEXED_TYPES: ReadonlySet<number> = new Set([1, 4, 5])
