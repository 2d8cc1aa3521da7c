// For users: one connection.
export { connect, Connection, type ConnectionStats, createConnection, type WatchOptions } from './connection.js'
export type { ConnectionOptions } from './options.js'
export { reconnectDelayMs, type ReconnectPolicy } from './reconnect.js'
export type { Connected, ConnectionEvents } from './connection-events.js'
export type { ConnectionState, StateName } from './state.js'
export {
  type CallOptions,
  type IndexOptions,
  Operations,
  type OperationsHost,
  type RequestOptions,
  type SelectOptions,
  type SqlRows,
  type UpdateOptions,
} from './operations.js'
export type { IterateOptions, Page } from './pages.js'
export type { PushedCall } from './pushed-call.js'
export { PreparedStatement } from './sql.js'
export { Stream, type TransactionOptions } from './stream.js'
export type { EndedCounts } from './request-flow.js'

// What can go wrong, beside the errors of @orbweaver/iproto.
export {
  AuthError,
  ConnectError,
  ConnectionClosedError,
  ConnectionLostError,
  type ConnectStage,
  NoSuchIndexError,
  NoSuchSpaceError,
  QueueFullError,
  RequestAbortedError,
  RequestTimeoutError,
} from './errors.js'

// What is published for observers.
export { CHANNELS, type ConnectTrace, type LogRecord, type RequestTrace } from './diagnostics.js'

// For authors of layers above: the path without promises, a raw client end, and the seams to the outside world.
export type { PendingRequest, ReplySink, SendOptions, SessionPin } from './pending.js'
export { type ChannelOptions, type ChannelSink, type FrameChannel, type LargeFrame, openChannel } from './channel.js'
export type { Credential } from './handshake.js'
export { type Clock, type ScheduleOptions, systemClock } from './clock.js'
export { type Environment, resolveEnvironment, systemEnvironment } from './environment.js'
export type { Address, Dial, Transport, TransportSink } from './transport.js'
export { transportPair } from './transport-pair.js'
export { dialSocket, listen, type SocketListener, socketTransport } from './tcp-transport.js'
export {
  addressProblem,
  DEFAULT_PORT,
  formatAddress,
  parseAddress,
  parseListenAddress,
  type ParsedUri,
  parseUri,
} from './address.js'
