import {
  BoxError,
  Datetime,
  Decimal,
  decodeValue,
  executeRequest,
  Extension,
  Interval,
  RawValue,
  type Request,
  RequestType,
  Tuple,
  UnsupportedFeatureError,
  Uuid,
} from '@orbweaver/iproto'
import { versionNumber } from './handshake.js'
import { LateRequest, type PeerView } from './late-request.js'

/** EXECUTE of a text or a statement id; with binds that could crash an old server it waits until the peer is known. */
export function executeOf(statement: string | number, binds: readonly unknown[]): Request {
  const isHarmless = !binds.some((bind) => typeof bind === 'object' && bind !== null)
  if (isHarmless) return executeRequest(statement, binds)
  return new LateRequest({
    type: RequestType.execute,
    requestClass: 'sql',
    args: [binds] as const,
    build: (_space, _index, [values]) => executeRequest(statement, values),
    check: (peer) => refuseExtensionBinds(peer, binds),
  })
}

/**
 * Refuses to bind extension values where they would crash the server: 2.6.0 dies of a segmentation fault, and nothing
 * before 2.10 takes them.
 * @throws UnsupportedFeatureError naming the bind
 */
function refuseExtensionBinds(peer: PeerView, binds: readonly unknown[]): void {
  if (versionNumber(peer.version) >= FIRST_SAFE_VERSION) return
  const at = binds.findIndex((bind) => holdsExtension(bind, 0))
  if (at < 0) return
  throw new UnsupportedFeatureError(
    'sql extension binds',
    `binds[${String(at)}] holds an extension value (decimal, uuid, datetime, …); binding one crashes Tarantool ${peer.version}, 2.10 is the first that takes it`,
  )
}

function holdsExtension(value: unknown, depth: number): boolean {
  if (typeof value !== 'object' || value === null) return false
  if (EXTENSION_CLASSES.some((type) => value instanceof type)) return true
  if (depth > MAX_DEPTH) return false
  if (value instanceof RawValue) return holdsExtension(decodeValue(Buffer.from(value.bytes)), depth + 1)
  if (value instanceof Uint8Array) return false
  const parts: Iterable<unknown> = value instanceof Map ? [...value.keys(), ...value.values()] : Object.values(value)
  for (const part of parts) if (holdsExtension(part, depth + 1)) return true
  return false
}

const EXTENSION_CLASSES = [Decimal, Uuid, Datetime, Interval, Extension, Tuple, BoxError, Date] as const
/** Values nested deeper than this are refused by the encoder. */
const MAX_DEPTH = 128
/** 2.10, see `versionNumber`. */
const FIRST_SAFE_VERSION = 2_010
