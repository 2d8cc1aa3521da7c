/** Request types, and the types of what a server sends. Source: Tarantool src/box/iproto_constants.h, 2.6 to 3.8. */
export const RequestType = {
  ok: 0,
  select: 1,
  insert: 2,
  replace: 3,
  update: 4,
  delete: 5,
  call16: 6,
  auth: 7,
  eval: 8,
  upsert: 9,
  call: 10,
  execute: 11,
  nop: 12,
  prepare: 13,
  begin: 14,
  commit: 15,
  rollback: 16,
  insertArrow: 17,
  deleteRange: 18,
  raft: 30,
  raftPromote: 31,
  raftDemote: 32,
  raftConfirm: 40,
  raftRollback: 41,
  ping: 64,
  join: 65,
  subscribe: 66,
  voteDeprecated: 67,
  vote: 68,
  fetchSnapshot: 69,
  register: 70,
  joinMeta: 71,
  joinSnapshot: 72,
  id: 73,
  watch: 74,
  unwatch: 75,
  event: 76,
  watchOnce: 77,
  /** An out-of-band message (`box.session.push`): not the last frame of its request. */
  chunk: 128,
  /** Set in the type of every error frame; the low 15 bits hold the code as far as they can. */
  errorFlag: 0x8000,
} as const
export type RequestType = (typeof RequestType)[keyof typeof RequestType]

/** Keys of the header map (below 0x10) and of the body map. Values are of the MessagePack kind named behind each. */
export const Key = {
  requestType: 0x00, // uint
  sync: 0x01, // uint
  replicaId: 0x02, // uint
  lsn: 0x03, // uint
  timestamp: 0x04, // float64
  schemaVersion: 0x05, // uint
  serverVersion: 0x06, // uint
  groupId: 0x07, // uint
  tsn: 0x08, // uint, difference to the LSN
  flags: 0x09, // uint
  streamId: 0x0a, // uint
  threadId: 0x0b, // uint
  spaceId: 0x10, // uint
  indexId: 0x11, // uint
  limit: 0x12, // uint
  offset: 0x13, // uint
  iterator: 0x14, // uint
  indexBase: 0x15, // uint
  fetchPosition: 0x1f, // bool
  key: 0x20, // array
  tuple: 0x21, // array; arguments of CALL and EVAL, operations of UPDATE, [method, data] of AUTH
  functionName: 0x22, // str
  userName: 0x23, // str
  instanceUuid: 0x24, // str
  replicasetUuid: 0x25, // str
  vclock: 0x26, // map
  expr: 0x27, // str
  ops: 0x28, // array
  ballot: 0x29, // map
  tupleMeta: 0x2a, // map
  options: 0x2b, // map
  oldTuple: 0x2c, // array
  newTuple: 0x2d, // array
  afterPosition: 0x2e, // str
  afterTuple: 0x2f, // array
  data: 0x30, // array
  error24: 0x31, // str
  metadata: 0x32, // array
  bindMetadata: 0x33, // array
  bindCount: 0x34, // uint
  position: 0x35, // str
  arrow: 0x36, // ext
  sqlText: 0x40, // str
  sqlBind: 0x41, // array
  sqlInfo: 0x42, // map
  stmtId: 0x43, // uint
  replicaAnon: 0x50, // bool
  idFilter: 0x51, // array
  error: 0x52, // map
  term: 0x53, // uint
  version: 0x54, // uint
  features: 0x55, // array
  timeout: 0x56, // float64, seconds
  eventKey: 0x57, // str
  eventData: 0x58, // any
  txnIsolation: 0x59, // uint
  vclockSync: 0x5a, // uint
  authType: 0x5b, // str
  replicasetName: 0x5c, // str
  instanceName: 0x5d, // str
  spaceName: 0x5e, // str
  indexName: 0x5f, // str
  tupleFormats: 0x60, // map
  isSync: 0x61, // bool, only true
  isCheckpointJoin: 0x62, // bool
  checkpointVclock: 0x63, // map
  checkpointLsn: 0x64, // uint
} as const
export type Key = (typeof Key)[keyof typeof Key]

/** Iterators of SELECT by their number on the wire. `np` and `pp` exist from Tarantool 3.2. */
export const IteratorType = {
  eq: 0,
  req: 1,
  all: 2,
  lt: 3,
  le: 4,
  ge: 5,
  gt: 6,
  bitsAllSet: 7,
  bitsAnySet: 8,
  bitsAllNotSet: 9,
  overlaps: 10,
  neighbor: 11,
  np: 12,
  pp: 13,
} as const
export type IteratorType = (typeof IteratorType)[keyof typeof IteratorType]

/** Iterators by the name a Tarantool user knows. */
export type IteratorName =
  | 'EQ'
  | 'REQ'
  | 'ALL'
  | 'LT'
  | 'LE'
  | 'GE'
  | 'GT'
  | 'BITS_ALL_SET'
  | 'BITS_ANY_SET'
  | 'BITS_ALL_NOT_SET'
  | 'OVERLAPS'
  | 'NEIGHBOR'
  | 'NP'
  | 'PP'

/** FLAGS of a replicated row: bits of header key 0x09. */
export const RowFlag = { commit: 1, waitSync: 2, waitAck: 4 } as const

/** MessagePack extension types of Tarantool. */
export const ExtensionType = {
  decimal: 1,
  uuid: 2,
  error: 3,
  datetime: 4,
  compression: 5,
  interval: 6,
  tuple: 7,
  arrow: 8,
} as const
export type ExtensionType = (typeof ExtensionType)[keyof typeof ExtensionType]
