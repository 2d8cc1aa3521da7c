/* A map-reduce under way, and what comes of it. */
import { RequestAbortedError } from '@orbweaver/connection'
import { traceMap } from '../diagnostics.js'
import type { MapTrace } from '../diagnostics.js'
import { Arrivals } from './arrivals.js'
import type { MapResult } from './arrivals.js'

/**
 * The promise of a map's whole result, and, for `for await`, its results one by one as they arrive. A result that is read early is
 * only good when the iteration ends without an error: before that another replicaset may fail, or turn out to have changed its
 * master. Leaving the loop early ends the map as an abort does.
 * @example for await (const [replicasetId, [count]] of router.mapCallrw<[number]>('count')) …
 */
export interface MapCall<T extends unknown[] = unknown[]>
  extends Promise<MapResult<T>>, AsyncIterable<readonly [replicasetId: string, values: T]> {}

/** A map that runs. */
export interface RunningMap {
  /** Its caller wants nothing of it any more, for this reason. Does nothing after its end. */
  giveUp(reason: unknown): void
}

/**
 * Runs a map, telling its end to `resolve` or `reject`.
 * @throws what is wrong with its arguments
 */
export type MapStarter = (
  arrivals: Arrivals,
  resolve: (result: MapResult) => void,
  reject: (error: unknown) => void,
) => RunningMap

/** Begins a map at once, whether its results will be read one by one or as a whole. */
export function startMap<T extends unknown[]>(
  router: string,
  kind: MapTrace['kind'],
  functionName: string,
  start: MapStarter,
): MapCall<T> {
  const arrivals = new Arrivals()
  let running: RunningMap | undefined
  const whole = traceMap(
    router,
    kind,
    functionName,
    () =>
      new Promise<MapResult<T>>((resolve, reject) => {
        running = start(arrivals, resolve as (result: MapResult) => void, reject)
      }),
  )
  const read = (): AsyncIterator<readonly [string, T]> => {
    // Its failure is thrown by the loop: nobody needs to await the promise as well.
    whole.catch(() => undefined)
    return readArrivals(arrivals as Arrivals<T>, whole, running)
  }
  const call = whole as Promise<MapResult<T>> & Partial<MapCall<T>>
  call[Symbol.asyncIterator] = read as MapCall<T>[typeof Symbol.asyncIterator]
  return call as MapCall<T>
}

async function* readArrivals<T extends unknown[]>(
  arrivals: Arrivals<T>,
  whole: Promise<unknown>,
  running: RunningMap | undefined,
): AsyncGenerator<readonly [string, T], void> {
  const state = { isOver: false }
  const end = (): void => {
    state.isOver = true
    arrivals.wake()
  }
  whole.then(end, end)
  try {
    for (let next = 0; ; next++) {
      while (next >= arrivals.count && !state.isOver) await arrivals.change()
      if (next >= arrivals.count) break
      yield arrivals.at(next)
    }
    await whole
  } finally {
    if (!state.isOver)
      running?.giveUp(new RequestAbortedError('The loop over its results was left', { executed: 'unknown' }))
  }
}
