import { IteratorType, Key, RequestType, UnsupportedFeatureError } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import type { PeerRequest } from '../src/testing/index.js'
import { connected, failure, type Rig } from './rig.js'

type Row = readonly [number, string]

/** A space of rows [0..n) with a tree index on the first field, served with or without positions. */
function serve(rig: Rig, n: number): { rows: Row[]; requests: PeerRequest[] } {
  const rows: Row[] = Array.from({ length: n }, (_, i) => [i, `row ${String(i)}`])
  const requests: PeerRequest[] = []
  rig.peer.handle(RequestType.select, (request) => {
    const space = request.body.uint(Key.spaceId)
    if (space === 281) return request.reply([[512, 1, 'numbers']])
    if (space === 289)
      return request.reply([
        [512, 0, 'pk', 'tree', { unique: true }, [[0, 'unsigned']]],
        [512, 1, 'other', 'tree', {}, [[1, 'string']]],
      ])
    requests.push(request)
    const { body } = request
    const [from] = (body.array(Key.key) ?? []) as number[]
    const iterator = body.uint(Key.iterator) ?? IteratorType.eq
    const isDown = [IteratorType.le, IteratorType.lt, IteratorType.req].includes(iterator as 4)
    let found = rows.filter(([id]) => {
      if (from === undefined) return true
      if (iterator === IteratorType.gt) return id > from
      if (iterator === IteratorType.ge || iterator === IteratorType.all) return id >= from
      if (iterator === IteratorType.lt) return id < from
      if (iterator === IteratorType.le) return id <= from
      return id === from
    })
    if (isDown) found = found.reverse()
    const after = body.text(Key.afterPosition)
    if (after !== undefined) found = found.slice(found.findIndex(([id]) => `pos${String(id)}` === after) + 1)
    const page = found.slice(0, body.uint(Key.limit) ?? 0)
    const last = page.at(-1)
    const fields = new Map<number, unknown>([[Key.data, page]])
    if (body.bool(Key.fetchPosition) === true && last !== undefined) fields.set(Key.position, `pos${String(last[0])}`)
    request.replyWith(fields)
  })
  return { rows, requests }
}

async function collect<T>(rows: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const row of rows) all.push(row)
  return all
}

describe.each([
  ['with positions', '2.11.0', undefined],
  ['without positions', '2.10.0', [0, 1, 2, 3]],
] as const)('iterate, %s', (_name, version, features) => {
  const options = features === undefined ? { version } : { version, features }

  it.each([0, 1, 99, 100, 101, 250])('gives all of %i rows once and in order, by pages of 100', async (n) => {
    const rig = await connected(options)
    const { rows, requests } = serve(rig, n)
    expect(
      await rig.clock.run(collect(rig.connection.iterate<Row>(512, [], { iterator: 'ALL', pageSize: 100 }))),
    ).toEqual(rows)
    expect(requests.length).toBe(Math.floor(n / 100) + 1)
  })

  it.each([
    ['GE', 10, (rows: Row[]) => rows.slice(10)],
    ['GT', 10, (rows: Row[]) => rows.slice(11)],
    ['LE', 10, (rows: Row[]) => rows.slice(0, 11).reverse()],
    ['LT', 10, (rows: Row[]) => rows.slice(0, 10).reverse()],
    ['EQ', 10, (rows: Row[]) => rows.slice(10, 11)],
    ['REQ', undefined, (rows: Row[]) => [...rows].reverse()],
    ['EQ', undefined, (rows: Row[]) => rows],
  ] as const)('follows %s from %s', async (iterator, from, expected) => {
    const rig = await connected(options)
    const { rows } = serve(rig, 30)
    const key = from === undefined ? [] : [from]
    expect(await rig.clock.run(collect(rig.connection.iterate<Row>(512, key, { iterator, pageSize: 7 })))).toEqual(
      expected([...rows]),
    )
  })

  it('stops at its limit', async () => {
    const rig = await connected(options)
    const { rows, requests } = serve(rig, 30)
    expect(await rig.clock.run(collect(rig.connection.iterate(512, [], { limit: 12, pageSize: 5 })))).toEqual(
      rows.slice(0, 12),
    )
    expect(requests.map((request) => request.body.uint(Key.limit))).toEqual([5, 5, 2])
  })

  it('asks for a page when it is wanted, and no more after the loop is left', async () => {
    const rig = await connected(options)
    const { requests } = serve(rig, 1_000)
    await rig.clock.run(
      (async () => {
        for await (const page of rig.connection.selectPages<Row>(512, [], { pageSize: 10 })) {
          expect(page).toHaveLength(10)
          if (page[0]?.[0] === 20) break
        }
      })(),
    )
    expect(requests).toHaveLength(3)
  })

  it('goes on where it was after the connection broke between two pages', async () => {
    const rig = await connected(options)
    const { rows } = serve(rig, 40)
    const seen: Row[] = []
    const pages = rig.connection.selectPages<Row>(512, [], { pageSize: 10 })
    for (let i = 0; i < 5; i += 1) {
      const next = await rig.clock.run(pages.next())
      if (next.done !== true) seen.push(...next.value)
      rig.peer.cut()
      await rig.clock.advance(3_000)
    }
    expect(seen).toEqual(rows)
  })

  it('refuses a page size that makes no sense', async () => {
    const rig = await connected(options)
    expect(await rig.clock.run(failure(rig.connection.iterate(512, [], { pageSize: 0 }).next()))).toMatchObject({
      code: 'ORB_INVALID_ARGUMENT',
    })
  })
})

describe('Without positions', () => {
  it('takes names too', async () => {
    const rig = await connected({ version: '2.6.0' })
    const { rows } = serve(rig, 25)
    expect(await rig.clock.run(collect(rig.connection.iterate('numbers', [], { pageSize: 10 })))).toEqual(rows)
  })

  it('refuses what would pass over rows, before a page is asked for', async () => {
    const rig = await connected({ version: '2.6.0' })
    const { requests } = serve(rig, 25)
    const error = await rig.clock.run(failure(rig.connection.iterate('numbers', [], { index: 'other' }).next()))
    expect(error).toBeInstanceOf(UnsupportedFeatureError)
    expect(error.message).toMatch(/'other' is not the primary/)
    expect(requests).toEqual([])
  })

  it('refuses selectPage and after before anything is sent', async () => {
    const rig = await connected({ version: '2.6.0' })
    expect(await rig.clock.run(failure(rig.connection.selectPage(512)))).toBeInstanceOf(UnsupportedFeatureError)
    expect(await rig.clock.run(failure(rig.connection.select(512, [], { after: 'kQM' })))).toBeInstanceOf(
      UnsupportedFeatureError,
    )
    expect(rig.peer.requests).toEqual([])
  })
})

describe('selectPage', () => {
  it('gives rows and the position behind them, which after takes back', async () => {
    const rig = await connected()
    serve(rig, 5)
    const first = await rig.clock.run(rig.connection.selectPage<Row>(512, [], { limit: 3 }))
    expect(first.position).toBe('pos2')
    const second = await rig.clock.run(
      rig.connection.selectPage<Row>(512, [], { limit: 3, after: first.position as string }),
    )
    expect(second.rows.map(([id]) => id)).toEqual([3, 4])
    expect(
      await rig.clock.run(rig.connection.selectPage(512, [], { limit: 3, after: second.position as string })),
    ).toEqual({ rows: [], position: undefined })
  })
})
