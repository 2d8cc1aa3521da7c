export interface MergeOptions {
  /** Items in all; the streams are ended then. Default: none. */
  readonly limit?: number
}

/**
 * Merges streams that are ordered each into one that is ordered as a whole, reading no further ahead than one item per stream.
 * @param streams - each ordered by `compare`; lists too
 * @param compare - negative when `a` comes first; equal items keep the order of their streams
 * @example merge([[1, 2, 3], [4, 5, 6]], (a, b) => a - b, { limit: 4 }) // 1, 2, 3, 4
 */
export async function* merge<T>(
  streams: readonly (AsyncIterable<T> | Iterable<T>)[],
  compare: (a: T, b: T) => number,
  { limit = Infinity }: MergeOptions = {},
): AsyncGenerator<T, void, undefined> {
  const iterators = streams.map((stream) =>
    Symbol.asyncIterator in stream ? stream[Symbol.asyncIterator]() : stream[Symbol.iterator](),
  )
  try {
    if (limit <= 0) return
    const heads: Head<T>[] = []
    const first = await Promise.all(iterators.map(async (iterator) => iterator.next()))
    first.forEach((result, stream) => {
      if (result.done !== true) place(heads, { stream, value: result.value }, compare)
    })
    let left = limit
    for (let head = heads.shift(); head !== undefined; head = heads.shift()) {
      yield head.value
      left--
      if (left <= 0) return
      const next = await iterators[head.stream]!.next()
      if (next.done !== true) place(heads, { stream: head.stream, value: next.value }, compare)
    }
  } finally {
    // Whoever stops early must not leave a stream open: each may hold a connection or a page.
    await Promise.all(iterators.map(async (iterator) => iterator.return?.()))
  }
}

/** As `merge`, of lists that are there: the first `limit` of all. */
export function mergeLists<T>(lists: readonly (readonly T[])[], compare: (a: T, b: T) => number, limit: number): T[] {
  const merged: T[] = []
  const positions = lists.map(() => 0)
  const heads: Head<T>[] = []
  lists.forEach((list, stream) => {
    if (list.length > 0) place(heads, { stream, value: list[0]! }, compare)
  })
  for (let head = heads.shift(); head !== undefined && merged.length < limit; head = heads.shift()) {
    merged.push(head.value)
    const { stream } = head
    const position = (positions[stream]! += 1)
    const list = lists[stream]!
    if (position < list.length) place(heads, { stream, value: list[position]! }, compare)
  }
  return merged
}

interface Head<T> {
  readonly stream: number
  readonly value: T
}

/** Puts a head into its place: a list in order, since streams are few. */
function place<T>(heads: Head<T>[], head: Head<T>, compare: (a: T, b: T) => number): void {
  let low = 0
  let high = heads.length
  while (low < high) {
    const middle = (low + high) >> 1
    const order = compare(heads[middle]!.value, head.value)
    if (order < 0 || (order === 0 && heads[middle]!.stream < head.stream)) low = middle + 1
    else high = middle
  }
  heads.splice(low, 0, head)
}
