import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { merge, mergeLists } from '../src/ordered-merge.js'

const byNumber = (a: number, b: number): number => a - b

async function* stream<T>(items: readonly T[], onEnd: () => void = () => undefined): AsyncGenerator<T> {
  try {
    yield* items
  } finally {
    onEnd()
  }
}

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const item of items) all.push(item)
  return all
}

describe('merge', () => {
  it('gives what a sort of everything gives, whatever the streams', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.array(fc.integer({ min: 0, max: 9 }))), async (lists) => {
        const streams = lists.map((list) => stream(list.toSorted(byNumber)))
        expect(await collect(merge(streams, byNumber))).toEqual(lists.flat().toSorted(byNumber))
      }),
    )
  })

  it.each([
    [4, [1, 2, 3, 4]],
    [0, []],
    [99, [1, 2, 3, 4, 5, 6]],
  ])('gives the first %d of all', async (limit, expected) => {
    expect(
      await collect(
        merge(
          [
            [1, 2, 3],
            [4, 5, 6],
          ],
          byNumber,
          { limit },
        ),
      ),
    ).toEqual(expected)
  })

  it('ends all streams at its limit', async () => {
    let ended = 0
    const streams = [1, 2].map((first) => stream([first, first + 10], () => ended++))
    expect(await collect(merge(streams, byNumber, { limit: 2 }))).toEqual([1, 2])
    expect(ended).toBe(2)
  })

  it('of lists that are there gives the same as of streams', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.array(fc.integer({ min: 0, max: 9 }))), fc.nat(20), async (lists, limit) => {
        const sorted = lists.map((list) => list.toSorted(byNumber))
        expect(mergeLists(sorted, byNumber, limit)).toEqual(await collect(merge(sorted, byNumber, { limit })))
      }),
    )
  })

  it('keeps equal items in the order of their streams', async () => {
    const streams = [
      stream([
        { key: 1, from: 'a' },
        { key: 2, from: 'a' },
      ]),
      stream([
        { key: 1, from: 'b' },
        { key: 2, from: 'b' },
      ]),
    ]
    const merged = await collect(merge(streams, (a, b) => a.key - b.key))
    expect(merged.map(({ key, from }) => `${key}${from}`)).toEqual(['1a', '1b', '2a', '2b'])
  })

  it('reads no further ahead than one item of each stream', async () => {
    const read: number[] = []
    async function* counting(first: number): AsyncGenerator<number> {
      for (let item = first; ; item += 10) {
        read.push(item)
        yield await Promise.resolve(item)
      }
    }
    const merged = merge([counting(0), counting(5)], byNumber)
    expect([(await merged.next()).value, (await merged.next()).value, (await merged.next()).value]).toEqual([0, 5, 10])
    await merged.return()
    expect(read).toEqual([0, 5, 10, 15])
  })

  it('ends every stream when the reader stops early, and when one of them fails', async () => {
    let ended = 0
    const endless = [1, 2].map((first) => stream([first, first + 10, first + 20], () => ended++))
    for await (const item of merge(endless, byNumber)) if (item === 2) break
    expect(ended).toBe(2)

    async function* failing(): AsyncGenerator<number> {
      yield await Promise.resolve(1)
      throw new Error('the shard went away')
    }
    ended = 0
    await expect(collect(merge([failing(), stream([5, 6], () => ended++)], byNumber))).rejects.toThrow(
      'the shard went away',
    )
    expect(ended).toBe(1)
  })
})
