/* Pages over all shards of a cluster in memory, under virtual time, while buckets move all the time. */
import { Decimal, Uuid } from '@orbweaver/iproto'
import type { Router, SelectPagesOptions } from '@orbweaver/router'
import type { Storage } from '@orbweaver/storage'
import { afterEach, describe, expect, it } from 'vitest'
import { VirtualCluster } from './virtual-cluster.js'
import type { VirtualClusterOptions } from './virtual-cluster.js'

type Row = readonly [id: number, bucketId: number, ...rest: unknown[]]

let cluster: VirtualCluster

afterEach(async () => {
  await cluster.close()
})

/** `kind` repeats, `tag` may be nil, `mixed` is of any type, `code` is unique on a shard. */
const SETUP = (storage: Storage): void => {
  if (storage.isReadonly) return
  storage.createSpace('s', {
    format: [
      { name: 'id', type: 'unsigned' },
      { name: 'bucket_id', type: 'unsigned' },
      { name: 'kind', type: 'unsigned' },
      { name: 'tag', type: 'string', isNullable: true },
      { name: 'mixed', type: 'scalar', isNullable: true },
    ],
    indexes: [
      { name: 'pk', parts: ['id'] },
      { name: 'bucket_id', parts: ['bucket_id'], isUnique: false },
      { name: 'kind', parts: ['kind'], isUnique: false },
      { name: 'tag', parts: ['tag', 'kind'], isUnique: false },
      { name: 'mixed', parts: ['mixed'], isUnique: false },
      { name: 'hash', parts: ['id'], type: 'hash' },
    ],
  })
  storage.createSpace('unsharded', { format: [{ name: 'id', type: 'unsigned' }] })
}

async function start(options: VirtualClusterOptions, rows: readonly Row[]): Promise<Router> {
  cluster = await new VirtualCluster({ setUp: SETUP, ...options }).start()
  const ownerOf = new Map<number, Storage>()
  for (const { id } of cluster.replicasets)
    for (const bucketId of cluster.bucketsOf(cluster.master(id).name)) ownerOf.set(bucketId, cluster.master(id))
  for (const row of rows)
    ownerOf
      .get(row[1])!
      .space('s')
      .insert([...row])
  return cluster.router
}

async function pagesOf(options: SelectPagesOptions, space = 's'): Promise<number[][]> {
  const read = async (): Promise<number[][]> => {
    const pages: number[][] = []
    for await (const { rows } of cluster.router.selectPages<Row>(space, options)) pages.push(rows.map(([id]) => id))
    return pages
  }
  return cluster.wait(read())
}

const idsOf = async (options: SelectPagesOptions): Promise<number[]> => (await pagesOf(options)).flat()

describe('pages beside constant moves', () => {
  it('list 10,000 rows by 10, each once and in order', async () => {
    const rows = Array.from({ length: 10_000 }, (_, i): Row => [i, (i % 150) + 1, i % 3, `t${i % 7}`, null])
    const router = await start({ spread: [50, 50, 50], seed: 7, peerLatencyMs: 5 }, rows)
    let moves = 0
    const stop = new AbortController()
    const moving = async (): Promise<void> => {
      while (!stop.signal.aborted) {
        const [from, to] = ['a', 'b', 'c'].toSorted(() => cluster.random() - 0.5) as [string, string]
        const ids = cluster.bucketsOf(cluster.master(from).name)
        const id = ids[Math.floor(cluster.random() * ids.length)]!
        await cluster.move(id, from, to).then(
          () => moves++,
          () => undefined,
        )
        await new Promise<void>((resolve) => cluster.clock.schedule(20, resolve))
      }
    }
    const movers = [moving(), moving()]
    const read = async (): Promise<number[]> => {
      const ids: number[] = []
      for await (const page of router.selectPages<Row>('s', { pageSize: 10, timeout: 60_000 })) {
        ids.push(...page.rows.map(([id]) => id))
        // A reader takes its time, in which buckets move.
        await new Promise<void>((resolve) => cluster.clock.schedule(20, resolve))
      }
      return ids
    }
    const ids = await cluster.wait(read())
    stop.abort()
    await cluster.wait(Promise.all(movers))
    expect(ids).toEqual(rows.map(([id]) => id))
    expect(moves).toBeGreaterThan(100)
    expect(cluster.refs).toEqual({})
  }, 120_000)
})

/** Rows whose sorting is known here: by number, numbers only. */
type Sorter = (row: Row) => number[]

const ITERATORS = ['EQ', 'REQ', 'ALL', 'GE', 'GT', 'LE', 'LT'] as const

/** What a list of everything, sorted and cut by hand, gives. */
function expected(rows: readonly Row[], by: Sorter, options: SelectPagesOptions): number[] {
  const { after, before, iterator, key = [] } = options
  const compare = (a: readonly number[], b: readonly number[]): number =>
    a.map((value, i) => value - (b[i] ?? value)).find((order) => order !== 0) ?? 0
  const place = (row: Row): number => compare(by(row).slice(0, key.length), key as number[])
  const isMeant = {
    EQ: (order: number) => order === 0,
    REQ: (order: number) => order === 0,
    ALL: (order: number) => order >= 0,
    GE: (order: number) => order >= 0,
    GT: (order: number) => order > 0,
    LE: (order: number) => order <= 0,
    LT: (order: number) => order < 0,
  }[iterator ?? 'ALL']
  const isDown = iterator === 'REQ' || iterator === 'LE' || iterator === 'LT'
  const sorted = rows.toSorted((a, b) => compare(by(a), by(b)) * (isDown ? -1 : 1))
  const side = (row: Row, cursor: readonly unknown[]): number => compare(by(row), by(cursor as Row)) * (isDown ? -1 : 1)
  return sorted
    .filter(
      (row) => (key.length === 0 && iterator !== 'GT' && iterator !== 'LT') || key.length === 0 || isMeant(place(row)),
    )
    .filter((row) => after === undefined || side(row, after) > 0)
    .filter((row) => before === undefined || side(row, before) < 0)
    .map(([id]) => id)
}

const byId: Sorter = ([id]) => [id]
const byKind: Sorter = ([id, , kind]) => [kind as number, id]

describe('pages add up to the whole', () => {
  const rows = Array.from({ length: 10 }, (_, i): Row => [i, (i % 6) + 1, i % 2, null, null])

  it.each([1, 2, 3, 4, 10, 11])('of %d rows, over keys that repeat, in both directions', async (pageSize) => {
    await start({ spread: [2, 2, 2] }, rows)
    for (const iterator of ['ALL', 'LE'] as const) {
      const pages = await pagesOf({ index: 'kind', iterator, pageSize })
      expect(pages.flat()).toEqual(expected(rows, byKind, { iterator }))
      expect(pages.slice(0, -1).every((page) => page.length === pageSize)).toBe(true)
    }
  })

  it('of ten thousand rows with three distinct values', async () => {
    const many = Array.from({ length: 10_000 }, (_, i): Row => [i, (i % 4) + 1, i % 3, null, null])
    await start({ spread: [1, 1, 1, 1] }, many)
    for (const pageSize of [97, 4_000])
      expect(await idsOf({ index: 'kind', pageSize })).toEqual(expected(many, byKind, {}))
  })

  it('say whether there is more, and end with a limit', async () => {
    const router = await start({ spread: [2, 2, 2] }, rows)
    const first = await cluster.wait(router.selectPages<Row>('s', { pageSize: 4 }).next())
    expect(first.value).toMatchObject({ hasMore: true })
    expect(await pagesOf({ pageSize: 4, limit: 6 })).toEqual([
      [0, 1, 2, 3],
      [4, 5],
    ])
    expect(await pagesOf({ pageSize: 5 })).toHaveLength(2)
    expect(await pagesOf({ key: [99] })).toEqual([])
    expect(cluster.refs).toEqual({})
  })
})

describe.each([1, 4])('a cursor on %d shards only narrows the range', (shards) => {
  it.each(ITERATORS)(
    'of %s',
    async (iterator) => {
      const rows = Array.from({ length: 24 }, (_, i): Row => [i * 2, (i % 8) + 1, i % 4, null, null])
      await start({ spread: Array.from({ length: shards }, () => 8 / shards) }, rows)
      // Before the range, at its edges, inside, beyond it, between rows, and a row that does not exist any more.
      const cursors = [-1, 0, 1, 10, 11, 46, 50].flatMap((id) =>
        [0, 2, 3, 9].map((kind): Row => [id, ((Math.abs(id) / 2) % 8) + 1, kind, null, null]),
      )
      for (const [index, by, keys] of [
        ['pk', byId, [[], [10], [11], [60]]],
        ['kind', byKind, [[], [2], [7]]],
      ] as const) {
        for (const key of keys) {
          for (const cursor of [undefined, ...cursors]) {
            const options = { index, iterator, key: [...key], pageSize: 7 }
            if (cursor === undefined || cursor[0] >= 0) {
              const after = cursor === undefined ? {} : { after: cursor }
              expect([options, after, await idsOf({ ...options, ...after })]).toEqual([
                options,
                after,
                expected(rows, by, { ...options, ...after }),
              ])
            }
            if (cursor === undefined || cursor[0] < 0) continue
            const backward = await pagesOf({ ...options, before: cursor })
            expect([options, cursor, backward.toReversed().flat()]).toEqual([
              options,
              cursor,
              expected(rows, by, { ...options, before: cursor }),
            ])
          }
        }
      }
    },
    60_000,
  )
})

describe('the order of pages', () => {
  it("is the index's own, whatever the types", async () => {
    const values: readonly unknown[] = [
      null,
      true,
      false,
      9_007_199_254_740_993n,
      9_007_199_254_740_992n,
      1.5,
      -3,
      Decimal.from('1.50000000000000000001'),
      Decimal.from('1e30'),
      'Z',
      'a',
      'é',
      '\u{1f600}',
      '\u{ffff}',
      Buffer.from([0]),
      Buffer.from([1, 0]),
      Uuid.from('11111111-1111-4111-8111-111111111111'),
      1.5,
      null,
    ]
    const rows = values.map((value, i): Row => [i, (i % 4) + 1, i, null, value])
    await start({ spread: [1, 1, 1, 1] }, rows)
    const several = await Promise.all(
      (['ALL', 'LE'] as const).flatMap((iterator) =>
        [1, 3].map((pageSize) => idsOf({ index: 'mixed', iterator, pageSize })),
      ),
    )
    await cluster.close()
    // One server that holds all rows says what is right.
    await start({ spread: [4] }, rows)
    const alone = cluster.at('a1').space('s')
    const right = (iterator: 'ALL' | 'LE'): number[] =>
      alone.select([], { index: 'mixed', iterator }).map(([id]) => id as number)
    expect(several).toEqual([right('ALL'), right('ALL'), right('LE'), right('LE')])
  })

  it('takes keys of several parts, with nil among them', async () => {
    const rows = Array.from({ length: 30 }, (_, i): Row => [
      i,
      (i % 3) + 1,
      i % 2,
      i % 5 === 0 ? null : `t${i % 3}`,
      null,
    ])
    await start({ spread: [1, 1, 1] }, rows)
    const ids = await idsOf({ index: 'tag', pageSize: 4 })
    const rank = ([id, , kind, tag]: Row): string =>
      `${(tag as string | null) ?? ''}/${String(kind)}/${String(id).padStart(2, '0')}`
    expect(ids).toEqual(rows.toSorted((a, b) => (rank(a) < rank(b) ? -1 : 1)).map(([id]) => id))
    expect(await idsOf({ index: 'tag', key: ['t1'], pageSize: 4 })).toEqual(ids.filter((id) => rows[id]![3] === 't1'))
  })

  it('tells rows of different shards apart that have the same primary key', async () => {
    const rows: Row[] = [1, 2, 3].flatMap((bucketId) => [0, 1, 2].map((id): Row => [id, bucketId, 7, null, null]))
    const router = await start({ spread: [1, 1, 1] }, rows)
    for (const index of ['pk', 'kind']) {
      for (const [iterator, sign] of [
        ['ALL', 1],
        ['LE', -1],
      ] as const) {
        const read = async (): Promise<Row[]> => {
          const all: Row[] = []
          for await (const page of router.selectPages<Row>('s', { index, iterator, pageSize: 2 }))
            all.push(...page.rows)
          return all
        }
        expect((await cluster.wait(read())).map(([id, bucketId]) => [id, bucketId])).toEqual(
          rows.map(([id, bucketId]) => [id, bucketId]).toSorted((a, b) => sign * (a[0]! - b[0]! || a[1]! - b[1]!)),
        )
      }
    }
  })
})

describe('pages are refused by name', () => {
  it.each([
    ['of a hash index', 's', { index: 'hash' }, /Index 'hash' of space 's' is of type hash/],
    ['of a space that is not sharded', 'unsharded', {}, /Space 'unsharded' is not sharded/],
    ['of a space that does not exist', 'nowhere', {}, /Space 'nowhere' does not exist/],
    ['of an index that does not exist', 's', { index: 'nope' }, /Index 'nope' of space 's' does not exist/],
    ['with a key that is too long', 's', { key: [1, 2] }, /The key has 2 parts, the index 1/],
    [
      'with an iterator without order',
      's',
      { iterator: 'OVERLAPS' as 'EQ' },
      /iterator.* is 'OVERLAPS', expected 'EQ'/,
    ],
    ['with two cursors', 's', { after: [1], before: [1] }, /after or before, not both/],
    ['with a cursor that is no row', 's', { after: [] }, /The cursor has 0 fields/],
    ['with an option that is not known', 's', { pagesize: 3 }, /pagesize.* is not known/],
    ['with pages of no size', 's', { pageSize: 0 }, /pageSize.* is 0, expected an integer from 1/],
  ])('%s', async (_what, space, options: object, message) => {
    const router = await start({ spread: [1, 1] }, [])
    const error = await cluster.failure(router.selectPages(space, options).next())
    expect(String(error)).toMatch(message)
    expect(error).toMatchObject({ executed: 'no' })
    expect(cluster.refs).toEqual({})
  })

  it('where shards disagree about the index', async () => {
    const router = await start({ spread: [1, 1] }, [])
    cluster.at('b1').createSpace('differs', {
      format: [
        { name: 'id', type: 'unsigned' },
        { name: 'bucket_id', type: 'unsigned' },
      ],
      indexes: [
        { name: 'pk', parts: ['id'] },
        { name: 'bucket_id', parts: ['bucket_id'], isUnique: false },
      ],
    })
    cluster.at('a1').createSpace('differs', {
      format: [
        { name: 'id', type: 'unsigned' },
        { name: 'bucket_id', type: 'unsigned' },
      ],
      indexes: [
        { name: 'pk', parts: ['bucket_id', 'id'] },
        { name: 'bucket_id', parts: ['bucket_id'], isUnique: false },
      ],
    })
    expect(String(await cluster.failure(router.selectPages('differs').next()))).toMatch(
      /Replicasets a and b define index '0' of space 'differs' differently/,
    )
  })
})

describe('a page', () => {
  it('follows a schema that changes between pages, with other numbers for the same names', async () => {
    const rows = Array.from({ length: 6 }, (_, i): Row => [i, (i % 2) + 1, i, null, null])
    const router = await start({ spread: [1, 1] }, rows)
    const pages = router.selectPages<Row>('s', { pageSize: 2 })
    const next = async (): Promise<number[]> => {
      const page = await cluster.wait(pages.next())
      return page.done === true ? [] : page.value.rows.map(([id]) => id)
    }
    expect(await next()).toEqual([0, 1])
    cluster.at('a1').createSpace('other', { format: [{ name: 'id', type: 'unsigned' }] })
    expect(await next()).toEqual([2, 3])
    expect(await next()).toEqual([4, 5])
  })

  it('is read again when a connection was lost meanwhile', async () => {
    const rows = Array.from({ length: 6 }, (_, i): Row => [i, (i % 2) + 1, i, null, null])
    await start({ spread: [1, 1], latencyMs: 20 }, rows)
    const reading = pagesOf({ pageSize: 6 })
    cluster.clock.schedule(70, () => {
      cluster.cut('a1')
      cluster.mend('a1')
    })
    expect(await reading).toEqual([[0, 1, 2, 3, 4, 5]])
    await cluster.clock.advance(40)
    expect(cluster.refs).toEqual({})
  })
})
