/* The next rows of one shard behind a cursor, as a server that can go on behind a row gives them, and one that cannot. */
import {
  BodyReader,
  compareValues,
  encodeValue,
  Feature,
  FrameHeader,
  FrameWriter,
  IteratorType,
  Key,
} from '@orbweaver/iproto'
import type { Reply, Request } from '@orbweaver/iproto'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { compareRowKeys, indexOrder, keyOf } from '../src/pages/index-order.js'
import { rangeOf, spanOf } from '../src/pages/row-range.js'
import { selectOn } from '../src/pages/shard-select.js'

type Row = readonly [id: number, bucketId: number, kind: number]

const ORDER = indexOrder(
  's',
  [512, 2, 'kind', 'tree', { unique: false }, [[2, 'unsigned']]],
  [512, 0, 'pk', 'tree', { unique: true }, [[0, 'unsigned']]],
  [512, 1, 'bucket_id', 'tree', { unique: false }, [[1, 'unsigned']]],
)
const TARGET = { spaceId: 512, indexId: 2, order: ORDER, version: 80 }
const CONTEXT = { deadline: Infinity, decode: undefined }

/** A shard that holds rows and answers SELECT as Tarantool does. */
class Shard {
  rows: Row[]
  requests = 0
  /** Told after each answer. */
  onAnswer: () => void = () => undefined
  readonly features: ReadonlySet<number>

  constructor(rows: readonly Row[], canGoOn: boolean) {
    this.rows = [...rows]
    this.features = new Set(canGoOn ? [Feature.pagination] : [])
  }

  request(request: Request): Promise<Reply> {
    this.requests++
    const writer = new FrameWriter()
    writer.request(request, 1)
    const frame = Buffer.concat(writer.take())
    const header = new FrameHeader()
    header.read(frame)
    const found = this.#select(new BodyReader(frame.subarray(header.bodyStart, header.bodyEnd)))
    this.onAnswer()
    const data = encodeValue(found)
    return Promise.resolve({ frame: data, dataStart: 0, dataEnd: data.length, schemaVersion: 80 })
  }

  #select(body: BodyReader): Row[] {
    const byPrimary = body.uint(Key.indexId) === 0
    const key = body.array(Key.key) ?? []
    const iterator = body.uint(Key.iterator) ?? IteratorType.eq
    const partsOf = (row: readonly unknown[]): unknown[] => (byPrimary ? [row[0]] : [row[2], row[0]])
    const compare = (a: readonly unknown[], b: readonly unknown[]): number =>
      a
        .slice(0, b.length)
        .map((part, i) => compareValues(part, b[i]))
        .find((order) => order !== 0) ?? 0
    const isDown = iterator === IteratorType.le || iterator === IteratorType.lt || iterator === IteratorType.req
    const after = body.has(Key.afterTuple) ? partsOf(body.array(Key.afterTuple)!) : undefined
    const sign = isDown ? -1 : 1
    const isMeant = (row: Row): boolean => {
      const order = compare(partsOf(row), key) * sign
      if (iterator === IteratorType.eq || iterator === IteratorType.req) return order === 0
      return iterator === IteratorType.gt || iterator === IteratorType.lt ? order > 0 : order >= 0
    }
    const offset = body.uint(Key.offset) ?? 0
    return this.rows
      .toSorted((a, b) => compare(partsOf(a), partsOf(b)) * sign)
      .filter((row) => isMeant(row) && (after === undefined || compare(partsOf(row), after) * sign > 0))
      .slice(offset, offset + body.uint(Key.limit)!)
  }
}

const someRows = fc.uniqueArray(fc.tuple(fc.nat(60), fc.integer({ min: 1, max: 4 }), fc.nat(2)) as fc.Arbitrary<Row>, {
  selector: ([id]) => id,
  maxLength: 40,
})
const someCursor = fc.tuple(fc.nat(60), fc.integer({ min: 1, max: 4 }), fc.nat(3)) as fc.Arbitrary<Row>

describe.each([
  ['goes on behind a row', true],
  ['has no such request', false],
])('a shard whose server %s', (_what, canGoOn) => {
  it('gives the next rows behind any row, in both directions', async () => {
    await fc.assert(
      fc.asyncProperty(
        someRows,
        someCursor,
        fc.integer({ min: 1, max: 6 }),
        fc.boolean(),
        async (rows, cursor, limit, isReverse) => {
          const span = spanOf(ORDER, rangeOf(ORDER, isReverse ? 'LE' : 'ALL', []), keyOf(ORDER, cursor), false)!
          const found = await selectOn(new Shard(rows, canGoOn), TARGET, span, limit, CONTEXT)
          const place = (a: Row, b: Row): number =>
            compareRowKeys(ORDER, keyOf(ORDER, a), keyOf(ORDER, b)) * (isReverse ? -1 : 1)
          const right = rows.toSorted(place).filter((row) => place(row, cursor) > 0)
          expect(found.rows.map(({ row }) => row)).toEqual(right.slice(0, limit))
        },
      ),
      { numRuns: 300 },
    )
  })

  it('needs few requests, however many rows share a key', async () => {
    const rows = Array.from({ length: 10_000 }, (_, id): Row => [id, 1, 7])
    const shard = new Shard(rows, canGoOn)
    const span = spanOf(ORDER, rangeOf(ORDER, 'ALL', []), keyOf(ORDER, [8_000, 1, 7]), false)!
    const { rows: found } = await selectOn(shard, TARGET, span, 3, CONTEXT)
    expect(found.map(({ row }) => row[0])).toEqual([8_001, 8_002, 8_003])
    expect(shard.requests).toBeLessThanOrEqual(canGoOn ? 2 : 30)
  })

  it('skips nothing that was there all the time while other rows come and go', async () => {
    await fc.assert(
      fc.asyncProperty(someRows, someCursor, fc.infiniteStream(fc.nat(60)), async (rows, cursor, changes) => {
        const shard = new Shard(rows, canGoOn)
        const changed = new Set<number>()
        shard.onAnswer = () => {
          if (changed.size > 30) return
          const id = changes.next().value as number
          changed.add(id)
          const before = shard.rows.length
          shard.rows = shard.rows.filter((row) => row[0] !== id)
          if (shard.rows.length === before) shard.rows.push([id, 1, id % 3])
        }
        const span = spanOf(ORDER, rangeOf(ORDER, 'ALL', []), keyOf(ORDER, cursor), false)!
        const limit = 5
        const { rows: found } = await selectOn(shard, TARGET, span, limit, CONTEXT)
        const ids = found.map(({ row }) => row[0] as number)
        const right = rows.filter((row) => compareRowKeys(ORDER, keyOf(ORDER, row), keyOf(ORDER, cursor)) > 0)
        // A short page says that there is no more; a full one, that there is nothing before its last row but what it has.
        const last = found.at(-1)?.key
        for (const row of right) {
          const isCovered = found.length < limit || compareRowKeys(ORDER, keyOf(ORDER, row), last!) <= 0
          if (isCovered && !changed.has(row[0])) expect(ids).toContain(row[0])
        }
        expect(new Set(ids).size).toBe(ids.length)
      }),
      { numRuns: 300 },
    )
  })
})
