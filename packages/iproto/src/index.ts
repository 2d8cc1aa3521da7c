export {
  BoxError,
  ConfigError,
  FrameTooLargeError,
  InvalidArgumentError,
  isOrbweaverError,
  MalformedFrameError,
  OrbweaverError,
  UnsupportedFeatureError,
  type BoxErrorDetails,
  type BoxErrorEntry,
  type ConfigProblem,
  type Executed,
} from './errors.js'
export {
  checkOptions,
  isObject,
  optionProblems,
  optionRule,
  type OptionRule,
  type OptionRules,
  shownValue,
} from './option-rules.js'
export { executedOf, type RequestClass } from './executed.js'
export { ErrorCode, errorCodeName } from './error-codes.js'
export { ExtensionType, type IteratorName, IteratorType, Key, RequestType, RowFlag } from './constants.js'
export { Feature, FEATURE_OF_REQUEST, featureName, NO_FEATURES, PROTOCOL_VERSION } from './features.js'

export { Decimal } from './ext/decimal.js'
export { Uuid } from './ext/uuid.js'
export { Datetime, type DatetimeFields } from './ext/datetime.js'
export { Interval, type IntervalAdjust, type IntervalFields } from './ext/interval.js'
export { type FieldFormat, Tuple } from './ext/tuple.js'
export { ByteString, Double, Extension, Float, RawValue } from './msgpack/wrappers.js'
export { compareValues } from './value-order.js'

export { encodeValue } from './msgpack/encoder.js'
export { decodeValue } from './msgpack/decoder.js'
export type { DecodeOptions } from './msgpack/decode-options.js'
export { skipValue } from './msgpack/skip.js'
export type { BodyWriter } from './msgpack/body-writer.js'

export { type Request, rawRequest } from './request/request.js'
export type { IndexRef, SpaceRef } from './request/space.js'
export {
  deleteRequest,
  type DeleteOptions,
  insertRequest,
  NO_LIMIT,
  replaceRequest,
  selectRequest,
  type SelectOptions,
  type UpdateOperation,
  type UpdateOptions,
  updateRequest,
  type UpsertOptions,
  upsertRequest,
} from './request/dml.js'
export { call16Request, callRequest, evalRequest, type TupleFormatMap } from './request/call.js'
export { executeRequest, prepareRequest, unprepareRequest } from './request/sql.js'
export {
  beginRequest,
  type BeginOptions,
  commitRequest,
  type Isolation,
  rollbackRequest,
} from './request/transaction.js'
export { authGuestRequest, authRequest, idRequest, pingRequest } from './request/session.js'
export { unwatchRequest, watchOnceRequest, watchRequest } from './request/watch.js'

export {
  dataSlice,
  decodeData,
  decodeEvent,
  decodeId,
  decodePrepared,
  decodeSql,
  type EventFrame,
  type IdReply,
  type PreparedInfo,
  readError,
  readReply,
  type Reply,
  replyBody,
  replyPosition,
  type SqlColumn,
  type SqlResult,
} from './response.js'
export { chapSha1, chapSha1FromHash1, hash1Of, hash2Of, verifyChapSha1 } from './auth/chap-sha1.js'
export { papSha256 } from './auth/pap-sha256.js'

// For whoever moves the bytes: connections, servers, proxies.
export { BodyReader } from './body-reader.js'
export { FrameReader, type FrameReaderOptions, type LargeFrameProgress } from './frame-reader.js'
export { FrameWriter, type FrameWriterOptions } from './frame-writer.js'
export { formatGreeting, type Greeting, GREETING_BYTES, parseGreeting } from './greeting.js'
export { FrameHeader, patchReplySync } from './header.js'
export { writeErrorBody } from './response.js'

// For whoever keeps or streams rows: journals and replication.
export { type Ballot, ballotOf, writeBallot } from './replication/ballot.js'
export {
  type Confirmation,
  type Promotion,
  type RaftState,
  readConfirmation,
  readPromotion,
  readRaft,
  writeConfirmation,
  writePromotion,
  writeRaft,
} from './replication/promotion.js'
export { readRow, type Row, type RowFields, type RowHeader, writeRow } from './replication/row.js'
export { type Vclock, vclockOf, writeVclock } from './replication/vclock.js'
export {
  type ApplierHeartbeat,
  fetchSnapshotRequest,
  type JoinOptions,
  joinRequest,
  packVersion,
  readApplierHeartbeat,
  readJoin,
  readSubscribe,
  readSubscribeReply,
  registerRequest,
  type RegisterOptions,
  type SubscribeOptions,
  type SubscribeReply,
  subscribeRequest,
  voteRequest,
  writeApplierHeartbeat,
  writeRelayHeartbeat,
  writeVclockReply,
} from './request/replication.js'
