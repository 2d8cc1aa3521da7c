import type { OrbweaverError } from '@orbweaver/iproto'
import type { ConnectionState } from './state.js'

/** What a new generation of a connection is. */
export interface Connected {
  /** 1 for the first, one more for each successful connect. */
  readonly generation: number
  /** Of the server, from its greeting. */
  readonly version: string
  readonly instanceUuid: string
  readonly features: ReadonlySet<number>
}

/** Events of a connection. None of them has to be listened to: an unheard failure is not an exception. */
export interface ConnectionEvents {
  /** A connection is up, the first or a later one. */
  connect: (connected: Connected) => void
  /** It is down. `cause` is undefined after an orderly end. */
  disconnect: (cause: OrbweaverError | undefined) => void
  /** An attempt failed; whether another follows is in `state`. */
  connectFailed: (cause: OrbweaverError) => void
  /** The server announced its shutdown: new requests wait for the next connection. */
  shutdown: () => void
  /** Every change of state. */
  state: (state: ConnectionState, previous: ConnectionState) => void
  /** A subscription without an `onError` cannot be served on this server. */
  watchError: (key: string, error: OrbweaverError) => void
  /** The last event: everything was released. */
  close: () => void
}
