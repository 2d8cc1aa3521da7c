/**
 * Merges streams that are ordered each into one that is ordered as a whole, reading no further ahead than one item per stream.
 * @param streams - each ordered by `compare`
 * @param compare - negative when `a` comes first; equal items keep the order of their streams
 * @example for await (const city of mergeOrdered(streams, (a, b) => b.population - a.population)) …
 */
export async function* mergeOrdered<T>(
  streams: readonly AsyncIterable<T>[],
  compare: (a: T, b: T) => number,
): AsyncGenerator<T, void, undefined> {
  const iterators = streams.map((stream) => stream[Symbol.asyncIterator]())
  try {
    const heads: Head<T>[] = []
    const first = await Promise.all(iterators.map((iterator) => iterator.next()))
    first.forEach((result, stream) => {
      if (result.done !== true) place(heads, { stream, value: result.value }, compare)
    })
    for (let head = heads.shift(); head !== undefined; head = heads.shift()) {
      yield head.value
      const next = await iterators[head.stream]!.next()
      if (next.done !== true) place(heads, { stream: head.stream, value: next.value }, compare)
    }
  } finally {
    // Whoever stops early must not leave a stream open: each may hold a connection or a page.
    await Promise.all(iterators.map(async (iterator) => iterator.return?.()))
  }
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
