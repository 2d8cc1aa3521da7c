/* Frames of replication: Tarantool's own are read with the same decoder, and ours come back as they were. */
import { readFileSync } from 'node:fs'
import {
  BoxError,
  BodyReader,
  decodeValue,
  FrameWriter,
  Key,
  readRow,
  readSubscribe,
  RequestType,
} from '@orbweaver/iproto'
import type { Row } from '@orbweaver/iproto'
import { describe, expect, it, test } from 'vitest'
import type { RowBody } from '../src/engine/engine.js'
import { RowLog } from '../src/replication/row-log.js'
import {
  decodeStreamFrame,
  decodeSubscription,
  encodeLocalRow,
  encodeSnapshotEnd,
  encodeSnapshotHead,
  encodeSnapshotRow,
  encodeSubscription,
  encodeTransaction,
  encodeVote,
} from '../src/replication/stream-codec.js'
import { TransactionReader } from '../src/replication/transaction-reader.js'
import { lastLsn } from '../src/replication/transaction.js'
import type { RowTransaction } from '../src/replication/transaction.js'

interface Stream {
  readonly server_version: string
  readonly request: string
  readonly start: number
  readonly frames: readonly string[]
}

const { streams } = JSON.parse(readFileSync(new URL('vectors/replication-stream.json', import.meta.url), 'utf8')) as {
  streams: readonly Stream[]
}

/** Transactions of a stream; kinds of rows an embedded storage never makes are left out, and named. */
function readStream(frames: readonly string[]): { transactions: RowTransaction[]; others: number[] } {
  const reader = new TransactionReader()
  const transactions: RowTransaction[] = []
  const others: number[] = []
  for (const hex of frames) {
    const header = readRow(Buffer.from(hex, 'hex'))
    if (header.lsn === 0) continue
    try {
      const frame = decodeStreamFrame(header)
      if (frame.is === 'promotion') transactions.push(reader.promotion(header, frame.promotion))
      const whole = frame.is === 'row' ? reader.add(header, frame.row) : undefined
      if (whole !== undefined) transactions.push(whole)
    } catch (error) {
      expect(String(error)).toMatch(/is none an embedded storage streams/)
      others.push(header.type)
    }
  }
  return { transactions, others }
}

function framesOf(write: (writer: FrameWriter) => void): Row[] {
  const writer = new FrameWriter()
  write(writer)
  const bytes = Buffer.concat(writer.take())
  const rows: Row[] = []
  for (let at = 0; at < bytes.length;) {
    const end = at + 5 + bytes.readUInt32BE(at + 1)
    rows.push(readRow(bytes.subarray(at, end)))
    at = end
  }
  return rows
}

const TUPLES: readonly RowBody[] = [
  { kind: 'replace', spaceId: 512, tuple: Buffer.from('9201a36f6e65', 'hex') },
  { kind: 'delete', spaceId: 512, key: Buffer.from('9101', 'hex') },
  { kind: 'replace', spaceId: 513, tuple: Buffer.from('9102', 'hex') },
]

describe.each(streams)(
  'what Tarantool $server_version streams',
  ({ server_version: version, start, frames, request }) => {
    it('is answered to a request of ours', () => {
      const row = readRow(Buffer.from(request, 'hex'))
      expect(row.type).toBe(RequestType.subscribe)
      expect(readSubscribe(new BodyReader(row.body)).vclock).toEqual(new Map([[1, start]]))
      expect(decodeStreamFrame(readRow(Buffer.from(frames[0]!, 'hex'))).is).toBe('position')
    })

    it('is read as the transactions it was written in, each row with its number', () => {
      const { transactions, others } = readStream(frames)
      expect(others).toEqual([RequestType.upsert])
      const places = transactions.map((transaction) => [transaction.lsn, lastLsn(transaction)])
      const promotions = transactions.filter(({ promotion }) => promotion !== undefined)
      const last = version === '3.2.1' ? 13 : 12
      // One row, three rows, (the upsert,) two definitions, and the row that went together with one of a local space.
      expect(places.slice(0, 5)).toEqual([
        [4, 4],
        [5, 7],
        [9, 9],
        [10, 10],
        [11, 11],
      ])
      expect(places.at(-1)).toEqual([last, last])
      const [, three] = transactions
      expect(three!.rows.map((row) => [row.kind, decodeValue(row.kind === 'replace' ? row.tuple : row.key)])).toEqual([
        ['replace', [2, 'two']],
        ['delete', [1]],
        ['replace', [3, 'three']],
      ])
      expect(three!.origin).toBe(1)
      expect(Math.abs(three!.timestamp - Date.UTC(2026, 10, 30, 16, 59, 50))).toBeLessThan(10_000)
      expect(promotions.map(({ promotion }) => promotion)).toEqual(
        version === '3.2.1' ? [{ term: 2, leader: 1, lsn: 12, vclock: new Map() }] : [],
      )
    })

    it('is byte for byte what we write', () => {
      const { transactions } = readStream(frames)
      const [one, three] = transactions
      const ours = framesOf((writer) => {
        encodeTransaction(writer, one!)
        encodeTransaction(writer, three!)
      })
      const theirs = frames.slice(1, 5).map((hex) => readRow(Buffer.from(hex, 'hex')))
      // Theirs also name the sync of the subscription; times are rounded to our milliseconds.
      const bare = (row: Row): unknown => ({ ...row, sync: 0, timestamp: 0, body: row.body.toString('hex') })
      expect(ours.map(bare)).toEqual(theirs.map(bare))
    })
  },
)

describe('our own frames', () => {
  it('mark what belongs together as servers do: nothing for one row, TSN and a last flag for several', () => {
    const headers = framesOf((writer) => {
      encodeTransaction(writer, { origin: 2, lsn: 7, timestamp: 1_500, rows: TUPLES.slice(0, 1), promotion: undefined })
      encodeTransaction(writer, { origin: 2, lsn: 8, timestamp: 1_500, rows: TUPLES, promotion: undefined })
    })
    expect(headers.map(({ replicaId, lsn, tsn, isCommit }) => [replicaId, lsn, tsn, isCommit])).toEqual([
      [2, 7, 7, true],
      [2, 8, 8, false],
      [2, 9, 8, false],
      [2, 10, 8, true],
    ])
  })

  it('say everything of a promotion, a promise, a local row and a snapshot', () => {
    const vclock = new Map([
      [1, 5],
      [2, 9],
    ])
    const promotion = { term: 4, leader: 3, lsn: 6, vclock }
    const head = { vclock: new Map([...vclock, [3, 6]]), promotions: [promotion] }
    const frames = framesOf((writer) => {
      encodeTransaction(writer, { origin: 3, lsn: 6, timestamp: 0, rows: [], promotion }, 2)
      encodeVote(writer, { term: 9, candidate: 2 })
      encodeLocalRow(writer, TUPLES[0]!)
      encodeSnapshotHead(writer, head)
      encodeSnapshotRow(writer, TUPLES[2]!)
      encodeSnapshotEnd(writer, head)
    })
    expect(frames.map((row) => decodeStreamFrame(row))).toEqual([
      { is: 'promotion', promotion },
      { is: 'vote', vote: { term: 9, candidate: 2 } },
      { is: 'row', isLocal: true, row: TUPLES[0] },
      { is: 'snapshotHead', vclock: head.vclock },
      { is: 'promotion', promotion },
      { is: 'snapshotRows' },
      { is: 'row', isLocal: false, row: TUPLES[2] },
      { is: 'position', vclock: head.vclock },
    ])
    // The master before and its last row, as Tarantool has it.
    const body = new BodyReader(frames[0]!.body)
    expect([body.uint(Key.replicaId), body.uint(Key.lsn), body.uint(Key.term)]).toEqual([2, 9, 4])
  })
})

describe('a reader of transactions', () => {
  const frames = framesOf((writer) =>
    encodeTransaction(writer, { origin: 2, lsn: 8, timestamp: 0, rows: TUPLES, promotion: undefined }),
  )

  test.each([
    ['one that begins in the middle', [1]],
    ['one with a hole', [0, 2]],
    ['a row that comes twice', [0, 0]],
  ])('refuses %s', (_, order) => {
    const reader = new TransactionReader()
    expect(() => {
      for (const i of order) reader.add(frames[i]!, TUPLES[i]!)
    }).toThrow(/comes where row/)
  })

  it('begins anew when the rest is not wanted', () => {
    const reader = new TransactionReader()
    reader.add(frames[0]!, TUPLES[0]!)
    reader.forget()
    expect(reader.add(frames[0]!, TUPLES[0]!)).toBeUndefined()
    reader.add(frames[1]!, TUPLES[1]!)
    expect(reader.add(frames[2]!, TUPLES[2]!)?.rows).toEqual(TUPLES)
  })
})

describe('a subscription', () => {
  const instanceUuid = 'aaaaaaaa-aaaa-4aaa-8aaa-000000000002'
  const replicasetUuid = 'bbbbbbbb-bbbb-4bbb-8bbb-000000000001'

  test.each([
    ['from a position', { vclock: new Map([[1, 5]]), term: 3 }],
    ['from nothing', undefined],
  ])('%s comes back', (_, from) => {
    const [row] = framesOf((writer) => encodeSubscription(writer, { instanceUuid, replicasetUuid, from }))
    expect(row!.type).toBe(from === undefined ? RequestType.join : RequestType.subscribe)
    const back = decodeSubscription(row!.type, row!.body)
    expect([back.instanceUuid, back.from]).toEqual([instanceUuid, from])
  })

  test.each([
    ['a Tarantool server', streams[0]!.request, /what Tarantool 3\.2\.1 streams/],
    // What embedded storages sent before: number, vclock and term.
    ['a storage of the first form', 'ce0000000e8200420101830202268101055303', /asks for none/],
  ])('of %s is refused in plain words', (_, hex, message) => {
    const row = readRow(Buffer.from(hex, 'hex'))
    expect(() => decodeSubscription(row.type, row.body)).toThrow(BoxError)
    expect(() => decodeSubscription(row.type, row.body)).toThrow(message)
  })
})

describe('the log', () => {
  function transactionOf(lsn: number, rows = 1): RowTransaction {
    return { origin: 1, lsn, timestamp: 0, rows: Array.from({ length: rows }, () => TUPLES[0]!), promotion: undefined }
  }

  it('finds where somebody continues by rows, and says when that is no longer here', () => {
    const log = new RowLog({ maxTransactions: 3 })
    for (const [lsn, rows] of [
      [1, 2],
      [3, 1],
      [4, 5],
      [9, 1],
    ] as const)
      log.append(transactionOf(lsn, rows), 0)
    const at = (lsn: number): number | undefined => log.positionFor(new Map([[1, lsn]]))
    expect([at(0), at(1)]).toEqual([undefined, undefined])
    expect([at(2), at(3), at(8), at(9)]).toEqual([1, 2, 3, 4])
    expect([log.start, log.end]).toEqual([1, 4])
  })

  it('keeps within its bytes', () => {
    const log = new RowLog({ maxBytes: 10_000 })
    for (let lsn = 1; lsn <= 1_000; lsn++) log.append(transactionOf(lsn), 0)
    expect(log.end).toBe(1_000)
    expect(log.end - log.start).toBeLessThan(50)
    expect(log.end - log.start).toBeGreaterThan(20)
  })

  it('shows nothing that is not revealed, and nothing of before it was cleared', () => {
    const log = new RowLog()
    log.append(transactionOf(1), 0)
    expect(log.at(0)).toBeUndefined()
    log.reveal()
    expect(log.at(0)?.lsn).toBe(1)
    log.clear(new Map([[1, 1]]))
    expect(log.at(0)).toBeUndefined()
    expect([log.positionFor(new Map()), log.positionFor(new Map([[1, 1]]))]).toEqual([undefined, 1])
  })
})
