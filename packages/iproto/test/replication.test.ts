import { describe, expect, it, test } from 'vitest'
import {
  type Ballot,
  ballotOf,
  BodyReader,
  type BodyWriter,
  BoxError,
  decodeValue,
  encodeValue,
  fetchSnapshotRequest,
  FrameHeader,
  FrameWriter,
  insertRequest,
  joinRequest,
  Key,
  MalformedFrameError,
  packVersion,
  readApplierHeartbeat,
  readConfirmation,
  readJoin,
  readPromotion,
  readRaft,
  readRow,
  readSubscribe,
  readSubscribeReply,
  registerRequest,
  type Request,
  RequestType,
  type RowFields,
  subscribeRequest,
  vclockOf,
  voteRequest,
  writeApplierHeartbeat,
  writeBallot,
  writeConfirmation,
  writePromotion,
  writeRaft,
  writeRelayHeartbeat,
  writeRow,
  writeVclock,
  writeVclockReply,
} from '../src/index.js'

const A = 'aaaaaaaa-0000-4000-8000-000000000001'
const B = 'bbbbbbbb-0000-4000-8000-000000000002'

function hexOf(write: (out: FrameWriter) => void): string {
  const out = new FrameWriter()
  write(out)
  return Buffer.concat(out.take()).toString('hex')
}

function written(writeBody: (out: BodyWriter) => void): Buffer {
  const out = new FrameWriter()
  out.beginFrame()
  writeBody(out)
  out.end()
  return Buffer.concat(out.take()).subarray(5)
}

function bodyOf(request: Request): BodyReader {
  const out = new FrameWriter()
  out.request(request, 1)
  const frame = Buffer.concat(out.take())
  const header = new FrameHeader()
  header.read(frame)
  return new BodyReader(frame.subarray(header.bodyStart, header.bodyEnd))
}

describe('rows', () => {
  test.each<[string, RowFields, string]>([
    ['a row by itself', { type: 2, replicaId: 1, lsn: 5, timestamp: 1.5 }, '8400020201030504cb3ff8000000000000'],
    ['the first of several', { type: 2, replicaId: 1, lsn: 5, tsn: 5, isCommit: false }, '840002020103050800'],
    ['a middle one', { type: 2, replicaId: 1, lsn: 6, tsn: 5, isCommit: false }, '840002020103060801'],
    ['the last one', { type: 2, replicaId: 1, lsn: 7, tsn: 5, isCommit: true }, '8500020201030708020901'],
    ['a synchronous one', { type: 2, replicaId: 1, lsn: 8, waitSync: true, waitAck: true }, '840002020103080906'],
    ['one in a subscription', { type: 2, sync: 9, replicaId: 2, lsn: 1, groupId: 1 }, '8500020109020207010301'],
    ['a heartbeat', { type: 0 }, '810000'],
  ])('%s is written as servers write it and read back', (_, row, header) => {
    const frame = Buffer.from(
      hexOf((out) => writeRow(out, row)),
      'hex',
    )
    expect(frame.subarray(5).toString('hex')).toBe(header)
    const read = readRow(frame)
    const { lsn = 0 } = row
    expect(read).toEqual({
      sync: 0,
      replicaId: 0,
      groupId: 0,
      lsn,
      timestamp: 0,
      tsn: lsn,
      isCommit: true,
      waitSync: false,
      waitAck: false,
      body: Buffer.alloc(0),
      ...row,
    })
  })

  it('carry the body of a request', () => {
    const out = new FrameWriter()
    const request = insertRequest(512, [1, 'x'])
    const size = writeRow(out, { type: request.type, lsn: 3, replicaId: 1, timestamp: 1_700_000_000.25 }, (body) =>
      request.writeBody(body),
    )
    const frame = Buffer.concat(out.take())
    expect(frame.length).toBe(size)
    const row = readRow(frame)
    const body = new BodyReader(row.body)
    expect([row.type, row.timestamp, body.uint(Key.spaceId), body.array(Key.tuple)]).toEqual([
      2,
      1_700_000_000.25,
      512,
      [1, 'x'],
    ])
    const header = new FrameHeader()
    header.read(frame)
    expect([header.type, header.bodyEnd - header.bodyStart]).toEqual([2, row.body.length])
  })

  it('that fail leave nothing behind', () => {
    const out = new FrameWriter()
    expect(() => writeRow(out, { type: 2, lsn: 1 }, (body) => body.value(() => 1))).toThrow('value is a function')
    expect(() => writeRow(out, { type: 2, lsn: 1, tsn: 2 })).toThrow('-1 is not an unsigned safe integer')
    expect(out.pendingBytes).toBe(0)
    expect(writeRow(out, { type: 12, lsn: 1 })).toBe(10)
  })

  it('keep a sync of 64 bits', () => {
    const frame = Buffer.from(
      hexOf((out) => writeRow(out, { type: 0, sync: 2n ** 64n - 1n })),
      'hex',
    )
    expect(readRow(frame).sync).toBe(2n ** 64n - 1n)
  })

  test.each([
    '80c0',
    '8100a161',
    '810401',
    '8104ca3f800000',
    '8103d301',
    '8103cf0020000000000000',
    '8203050806',
    '8104cb3ff8',
    '90',
    '',
  ])('with the header %s are refused, or read without it', (hex) => {
    const bytes = Buffer.from(hex, 'hex')
    const frame = Buffer.concat([Buffer.of(bytes.length), bytes])
    if (hex === '80c0') expect(readRow(frame).body.toString('hex')).toBe('c0')
    else expect(() => readRow(frame)).toThrow(MalformedFrameError)
  })

  it('skip keys they do not know', () => {
    expect(readRow(Buffer.from('0b830002059301a161800307', 'hex')).lsn).toBe(7)
  })
})

describe('vclocks', () => {
  it('are written by rising id, without the local component and zeros', () => {
    const vclock = new Map([
      [3, 300],
      [0, 7],
      [1, 2 ** 40],
      [2, 0],
    ])
    expect(written((out) => writeVclock(out, vclock)).toString('hex')).toBe('8201cf000001000000000003cd012c')
    expect(vclockOf(decodeValue(written((out) => writeVclock(out, vclock))))).toEqual(
      new Map([
        [1, 2 ** 40],
        [3, 300],
      ]),
    )
    expect(vclockOf(decodeValue(written((out) => writeVclock(out, new Map()))))).toEqual(new Map())
  })

  test.each([
    [1],
    [null],
    [{ a: 1 }],
    [[]],
    [new Map([['a', 1]])],
    [new Map([[1, -1]])],
    [new Map([[1, 2n ** 60n]])],
    [new Map([[1.5, 1]])],
  ])('refuse %o', (value) => {
    expect(() => vclockOf(value)).toThrow(MalformedFrameError)
  })
})

describe('replication requests', () => {
  const vclock = new Map([
    [1, 10],
    [2, 20],
  ])

  it('JOIN says who joins', () => {
    expect(readJoin(bodyOf(joinRequest({ instanceUuid: A })))).toEqual({ instanceUuid: A })
    const full = { instanceUuid: A, instanceName: 'node-1', version: packVersion(2, 11, 3) }
    expect(readJoin(bodyOf(joinRequest(full)))).toEqual(full)
    expect(packVersion(2, 11, 3)).toBe(133_891)
    expect(() => readJoin(bodyOf(fetchSnapshotRequest()))).toThrow(expect.objectContaining({ boxCode: 69 }))
    expect(bodyOf(fetchSnapshotRequest({ version: 7 })).uint(Key.serverVersion)).toBe(7)
  })

  it('SUBSCRIBE says from where on', () => {
    const least = { replicasetUuid: B, instanceUuid: A, vclock }
    expect(readSubscribe(bodyOf(subscribeRequest(least)))).toEqual(least)
    const full = {
      ...least,
      replicasetName: 'rs',
      instanceName: 'n',
      version: 1,
      isAnonymous: false,
      idFilter: [1, 31],
      term: 4,
    }
    expect(readSubscribe(bodyOf(subscribeRequest(full)))).toEqual(full)
    expect(() => readSubscribe(bodyOf(joinRequest({ instanceUuid: A })))).toThrow(BoxError)
  })

  it('writes its keys in the order of servers', () => {
    const hex = hexOf((out) =>
      out.request(
        subscribeRequest({
          replicasetUuid: B,
          instanceUuid: A,
          vclock: new Map([[1, 5]]),
          version: 1,
          isAnonymous: false,
        }),
        3,
      ),
    )
    const text = (value: string): string => encodeValue(value).toString('hex')
    expect(hex.slice(10)).toBe(`82004201038525${text(B)}24${text(A)}26810105060150c2`)
  })

  it('REGISTER and VOTE', () => {
    const body = bodyOf(registerRequest({ instanceUuid: A, vclock }))
    expect([body.text(Key.instanceUuid), vclockOf(body.value(Key.vclock))]).toEqual([A, vclock])
    expect(voteRequest().type).toBe(RequestType.vote)
    expect(hexOf((out) => out.request(voteRequest(), 1))).toBe('ce000000058200440101')
  })

  it('answers', () => {
    const reply = { replicasetUuid: B, vclock }
    expect(readSubscribeReply(new BodyReader(written((out) => writeVclockReply(out, reply))))).toEqual(reply)
    const named = { ...reply, replicasetName: 'rs' }
    expect(readSubscribeReply(new BodyReader(written((out) => writeVclockReply(out, named))))).toEqual(named)
    expect(new BodyReader(written((out) => writeVclockReply(out, { vclock }))).has(Key.replicasetUuid)).toBe(false)
  })

  it('heartbeats', () => {
    for (const heartbeat of [
      { vclock, term: 5, vclockSync: 0 },
      { vclock: new Map<number, number>(), term: 0, vclockSync: 9 },
    ]) {
      expect(readApplierHeartbeat(new BodyReader(written((out) => writeApplierHeartbeat(out, heartbeat))))).toEqual(
        heartbeat,
      )
    }
    expect(written((out) => writeRelayHeartbeat(out, 0)).length).toBe(0)
    expect(written((out) => writeRelayHeartbeat(out, 3)).toString('hex')).toBe('815a03')
    expect(() => readApplierHeartbeat(new BodyReader(Buffer.from('80', 'hex')))).toThrow(MalformedFrameError)
  })
})

describe('rows about who may write', () => {
  it('PROMOTE names the owner before, the LSN and the term', () => {
    const promotion = { previousOwnerId: 2, lsn: 300, term: 7 }
    const bytes = written((out) => writePromotion(out, promotion))
    expect(bytes.toString('hex')).toBe('83020203cd012c5307')
    expect(readPromotion(new BodyReader(bytes))).toEqual(promotion)
    const confirmed = { ...promotion, confirmed: new Map([[1, 4]]) }
    expect(readPromotion(new BodyReader(written((out) => writePromotion(out, confirmed))))).toEqual(confirmed)
    expect(() => readPromotion(new BodyReader(Buffer.from('80', 'hex')))).toThrow(
      expect.objectContaining({ boxCode: 69 }),
    )
  })

  it('CONFIRM and ROLLBACK name the owner and the LSN', () => {
    const bytes = written((out) => writeConfirmation(out, { ownerId: 1, lsn: 9 }))
    expect(bytes.toString('hex')).toBe('8202010309')
    expect(readConfirmation(new BodyReader(bytes))).toEqual({ ownerId: 1, lsn: 9 })
  })

  it('RAFT leaves out what is not so', () => {
    expect(written((out) => writeRaft(out, { term: 3 })).toString('hex')).toBe('810003')
    const raft = { term: 3, vote: 1, state: 3, leaderId: 1, isLeaderSeen: true, vclock: new Map([[1, 2]]) }
    const bytes = written((out) => writeRaft(out, raft))
    expect(bytes.toString('hex')).toBe('86000301010203040105c303810102')
    expect(readRaft(new BodyReader(bytes))).toEqual(raft)
    expect(readRaft(new BodyReader(Buffer.from('810003', 'hex')))).toEqual({
      term: 3,
      vote: 0,
      state: 0,
      leaderId: 0,
      isLeaderSeen: false,
    })
    expect(() => readRaft(new BodyReader(Buffer.from('80', 'hex')))).toThrow('no term')
  })
})

describe('ballots', () => {
  const ballot: Ballot = {
    isReadOnlyConfigured: false,
    isReadOnly: true,
    isAnonymous: false,
    isBooted: true,
    vclock: new Map([[1, 5]]),
    gcVclock: new Map(),
    canLead: true,
    bootstrapLeaderUuid: A,
    registeredReplicaUuids: [A, B],
    instanceName: 'node-1',
  }

  it('go there and back', () => {
    for (const value of [
      ballot,
      { ...ballot, instanceName: undefined, bootstrapLeaderUuid: undefined, registeredReplicaUuids: [] },
    ]) {
      expect(ballotOf(decodeValue(written((out) => writeBallot(out, value))))).toEqual(value)
    }
  })

  it('of 2.6 have four fields', () => {
    const old = decodeValue(Buffer.from('81298401c20281010a038004c2', 'hex'))
    expect(ballotOf(old)).toEqual({
      ...ballot,
      isReadOnly: false,
      vclock: new Map([[1, 10]]),
      canLead: false,
      bootstrapLeaderUuid: undefined,
      registeredReplicaUuids: [],
      instanceName: undefined,
    })
    for (const value of [null, {}, new Map(), new Map([[0x29, 1]])])
      expect(() => ballotOf(value)).toThrow('A ballot is not a map')
  })
})
